//! Why nothing is provided, and whether the user is told.

use std::{
    env,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
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
    /// The program names an interface or a host that there is not. Programs try names.
    Name(Reason),
    /// The interface cannot be used.
    Interface(Reason),
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self::Wish(reason)
    }
}

impl Refusal {
    /// Tells the user: at once if he has asked for the provider, or named its interface, and the interface cannot be used. A wish
    /// that is refused is told [at the end](tell_at_the_end) only: programs ask for more, and then for less.
    pub(crate) fn tell(self) {
        static TOLD: AtomicBool = AtomicBool::new(false);
        match self {
            Self::Utility => log(Level::Debug, || {
                "a utility provider asks, which this one does not need".to_owned()
            }),
            Self::Wish(reason) => {
                let reason = format!("nothing to provide: {reason}");
                log(Level::Info, || reason.clone());
                *last_refused() = Some(reason);
            }
            Self::Name(reason) => log(Level::Warn, || format!("nothing to provide: {reason}")),
            Self::Interface(reason) => {
                let is_expected = env::var_os("OMX_IFACES").is_some() || is_asked_for();
                let level = if is_expected && !TOLD.swap(true, Ordering::Relaxed) {
                    Level::Error
                } else {
                    Level::Info
                };
                log(level, || format!("nothing to provide: {reason}"));
            }
        }
    }
}

/// Returns the wish that was refused last, until one was fulfilled.
fn last_refused() -> MutexGuard<'static, Option<Reason>> {
    static LAST: Mutex<Option<Reason>> = Mutex::new(None);
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that the program has been told what it can use: what was refused before, or is later, it does without.
pub(crate) fn note_provided() {
    PROVIDED.store(true, Ordering::Relaxed);
    *last_refused() = None;
}

/// Tells the user at the end of the process why it got nothing, if he has asked for the provider: what an MPI implementation says
/// itself does not tell why.
pub(crate) fn tell_at_the_end() {
    let refused = last_refused().take();
    if let Some(reason) = refused.filter(|_| !PROVIDED.load(Ordering::Relaxed) && is_asked_for()) {
        log(Level::Error, || reason);
    }
}

/// The program has been told what it can use.
static PROVIDED: AtomicBool = AtomicBool::new(false);

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
