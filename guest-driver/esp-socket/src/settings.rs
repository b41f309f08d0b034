//! Settings that users make by variables of the environment. They are read once, when the program starts: some servers clear their
//! environment afterwards.

use std::{env, path::PathBuf, sync::OnceLock};

use crate::keeper::PROGRAM_VARIABLE;

/// So long a thread that waits looks for frames before it sleeps, in nanoseconds: about four round trips over veth.
const SPIN_NS: u64 = 50_000;

/// All settings.
pub(crate) struct Settings {
    /// How long a thread that waits looks for frames before it sleeps (`ESP_SPIN_US`, in microseconds).
    pub(crate) spin_ns: u64,
    /// A connection that cannot be made by ESP is an error (`ESP_FALLBACK=never`).
    pub(crate) never_falls_back: bool,
    /// Where a process says at its end what it did (`ESP_STATISTICS`): a file that is appended to, `-` for standard error.
    pub(crate) statistics: Option<PathBuf>,
    /// The program that is a keeper.
    pub(crate) keeper: PathBuf,
}

/// Returns the settings.
pub(crate) fn get() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let spin_us = env::var("ESP_SPIN_US").ok().and_then(|us| us.parse::<u64>().ok());
        // Which authorities there are is a setting, too.
        weft_authority::run_dir();
        Settings {
            spin_ns: spin_us.map_or(SPIN_NS, |us| us.saturating_mul(1000)),
            never_falls_back: env::var_os("ESP_FALLBACK").is_some_and(|value| value == "never"),
            statistics: env::var_os("ESP_STATISTICS").map(PathBuf::from),
            keeper: env::var_os(PROGRAM_VARIABLE).map_or_else(|| PathBuf::from("/usr/bin/esp-run"), PathBuf::from),
        }
    })
}
