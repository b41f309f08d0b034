//! Why nothing is provided, and whether the user is told.

use std::{
    env,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::log::{Level, log};

/// The reason why a wish cannot be fulfilled, for the user's log.
pub(crate) type Reason = String;

/// Why nothing is provided.
pub(crate) enum Refusal {
    /// One of libfabric's own providers asks, to be put on top of this one.
    Utility,
    /// The program wants what the provider does not have.
    Wish(Reason),
    /// The interface cannot be used.
    Interface(Reason),
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self::Wish(reason)
    }
}

impl Refusal {
    /// Tells the user, and for sure if he has asked for the provider, or named its interface: what an MPI implementation says
    /// itself does not tell why.
    pub(crate) fn tell(self) {
        static TOLD: AtomicBool = AtomicBool::new(false);
        let (is_expected, reason) = match self {
            Self::Utility => {
                return log(Level::Debug, || {
                    "a utility provider asks, which this one does not need".to_owned()
                });
            }
            // Programs ask for more, and then for less.
            Self::Wish(reason) => (!PROVIDED.load(Ordering::Relaxed) && is_asked_for(), reason),
            Self::Interface(reason) => (env::var_os("OMX_IFACES").is_some() || is_asked_for(), reason),
        };
        let level = if is_expected && !TOLD.swap(true, Ordering::Relaxed) {
            Level::Error
        } else {
            Level::Info
        };
        log(level, || format!("nothing to provide: {reason}"));
    }
}

/// The program has been told what it can use.
static PROVIDED: AtomicBool = AtomicBool::new(false);

/// Notes that the program has been told what it can use: what it asks for later, it may do without.
pub(crate) fn note_provided() {
    PROVIDED.store(true, Ordering::Relaxed);
}

/// The variables by which users, and launchers for them, choose a provider.
const CHOICES: [&str; 4] = [
    "FI_PROVIDER",
    "I_MPI_OFI_PROVIDER",
    "OMPI_MCA_mtl_ofi_provider_include",
    "OMPI_MCA_opal_common_ofi_provider_include",
];

/// Whether the user has asked for this provider by its name.
fn is_asked_for() -> bool {
    let names_it = |list: String| list.split([',', ';']).any(|name| name == "mx");
    CHOICES.iter().any(|variable| env::var(variable).is_ok_and(names_it))
}
