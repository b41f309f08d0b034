//! The data plane: switches with all cards at them, run to completion by one thread at a time.
//!
//! A thread that gets a kick takes the data plane and runs it; a thread of its own runs it for timers and under lasting load.
//! The vhost-user session, the control socket and the metrics use it through [`Fabric`]. Interrupts are decided by the
//! firmware, destinations by the switches, and how a frame gets over the next link by `route`.

mod announcement;
mod card;
mod containment;
mod error;
mod forwarding;
mod frames;
mod handle;
mod in_band_control;
mod multicast_groups;
mod observers;
mod polling_backoff;
mod reconnect_grace;
#[cfg(any(test, feature = "rig"))]
pub mod rig;
mod rounds;
mod route;
mod runner;
mod settings;
#[cfg(test)]
mod tests;
mod timers;
mod wiring;

pub(crate) use card::Card;
pub use card::backpressure::WAIT_NS_MAX;
pub(crate) use card::ring_activity::RingActivity;
pub use error::FabricError;
pub use handle::card_settings::CardSettings;
pub use handle::drain::{DRAIN_CHECK_INTERVAL, Drain, UnderWay};
pub use handle::flight_recorder::{TRACE_EVENTS_DEFAULT, TraceReader};
pub use handle::watch::Watch;
pub use handle::{Fabric, PortHandle, SwitchId};
pub use observers::capture::{CaptureReader, Chunk};
pub(crate) use runner::Runner;
pub use settings::FabricSettings;
pub use wiring::trunk::TrunkOptions;

use ether::Time;

use forwarding::Forwarding;
use multicast_groups::MulticastGroups;
use observers::watchers::Watchers;

/// Everything that the lock of a [`Runner`] protects.
pub(crate) struct DataPlane {
    /// Switches, cards, trunks and the frames between them.
    forwarding: Forwarding,
    /// Which cards are in which multicast groups.
    groups: MulticastGroups,
    watchers: Watchers,
    /// Some card is captured, or was until its reader went.
    has_captures: bool,
    /// When guests of an earlier process are waited for no longer, at the latest; `None` once that has ended.
    reconnect_grace_ends: Option<Time>,
    /// A guest of an earlier process is back.
    has_returned: bool,
    /// Number of [`Drain`]s, during which no frame is taken from guests.
    drains: u32,
    /// What [`Time::ZERO`] is in nanoseconds since 1970.
    origin_unix_ns: u64,
}

impl DataPlane {
    fn new(origin_unix_ns: u64, settings: FabricSettings) -> Self {
        Self {
            forwarding: Forwarding::default(),
            groups: MulticastGroups::default(),
            watchers: Watchers::default(),
            has_captures: false,
            reconnect_grace_ends: (settings.return_ns > 0).then(|| Time::from_nanos(settings.return_ns)),
            has_returned: false,
            drains: 0,
            origin_unix_ns,
        }
    }

    /// Whether a self-connected card has copied since this was asked last.
    fn take_has_copied(&mut self) -> bool {
        std::mem::take(&mut self.forwarding.has_copied)
    }

    /// The card with number `index`, which never goes away.
    pub(crate) fn card(&mut self, index: usize) -> &mut Card {
        &mut self.forwarding.wiring.cards[index]
    }

    fn cards(&self) -> &[Card] {
        &self.forwarding.wiring.cards
    }
}
