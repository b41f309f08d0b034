//! The vhost-user session of a port: everything between a frontend's socket and the published `vhost-user-backend` daemon.
//!
//! A front reads every message first, because stock frontends and the stock backend disagree on a few; a fresh daemon
//! serves each connection. The session knows nothing of frames, rings' contents or the switch.
//!
//! ```text
//! frontend ⇄ front (wire, rules) ⇄ private socket ⇄ VhostUserDaemon ⇄ Guarded ⇄ the device's backend object
//! ```
//!
//! A port waits in the control plane's one thread. Threads of a connected one: `conn` (owns the connection and relays its messages), and
//! the daemon's own. They are there because the published daemon blocks on its socket and its workers; all of them sleep while there is
//! no message, and frames never pass through them except the workers.

mod connection;
mod file_kind;
mod guard;
mod log;
pub mod message;
mod port;
mod private;
pub mod quick_end;
mod refusal;
mod regions;
mod rules;
pub mod socket;
mod translation;
mod vring;
mod wire;

use std::sync::Arc;

use ether::MacAddr;
use vhost_user_backend::VhostUserBackend;

use crate::memory::Misses;

pub use port::{Sessions, SessionsError};
pub use refusal::{SessionRule, SessionRuleCounters};
pub use translation::TranslationChange;
pub use vring::{NoSignals, SessionVring};

/// What a session needs of a port's device. One device lives as long as its port and sees many connections, one after another.
pub trait SessionDevice: Clone + Send + Sync + 'static {
    /// The object that the daemon of one connection calls.
    type Backend: VhostUserBackend<Bitmap = (), Vring = SessionVring> + Clone + 'static;

    /// Name of the port, for logs.
    fn name(&self) -> &str;
    /// A backend object for a new connection. The one before is inert from now on, and what [`Self::fail`] said is forgotten.
    fn new_backend(&self) -> Self::Backend;
    /// A SET_VRING_ENABLE is about to reach the daemon (`enabled` false) or was just sent to it (`enabled` true).
    fn ring_enabled(&self, index: u16, enabled: bool);
    /// The list of what the device misses of its guest's translations, if the guest may be behind an IOMMU of its own; then
    /// feature bit ACCESS_PLATFORM is in what the frontend hears of the device's features.
    fn misses(&self) -> Option<Arc<Misses>> {
        None
    }
    /// What the frontend says about the guest's IOMMU; only where [`Self::misses`] gives a list.
    fn translation_changed(&self, _change: TranslationChange) {}
    /// The guest is here now, at this address, and was elsewhere before: the frontend asks for a frame by which switches learn it.
    fn announce(&self, _station: MacAddr) {}
    /// This side is about to end the connection: kicks that are there are taken. A frontend that finds one behind the end takes it for
    /// itself, and throws away what its guest sends.
    fn connection_ends(&self);
    /// The connection is over: all rings stop, guest memory is released. The daemon's workers may still be inside a call.
    fn connection_closed(&self);
    /// The connection ended by a fault of the frontend or of this process: one sentence says which, and `rule` what the
    /// frontend broke, if it did. Comes behind [`Self::connection_closed`]; the device counts the rule, shows the sentence until
    /// the next connection, and logs it at a limited rate.
    fn fail(&self, why: String, rule: Option<SessionRule>);
}

#[cfg(test)]
mod rules_tests;
#[cfg(test)]
mod tests;
