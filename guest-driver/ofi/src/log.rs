//! Messages to the user of a program, by libfabric's variables `FI_LOG_LEVEL` and `FI_LOG_PROV`. The library's own functions
//! for this cannot be used: a plug-in that links libfabric is bound to its version.

use std::{
    env,
    io::{self, Write},
    sync::OnceLock,
};

/// The levels of `FI_LOG_LEVEL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Something failed that the program asked for: always shown.
    Error,
    Warn,
    Info,
    Debug,
}

/// Returns the most talkative level that is shown.
fn shown() -> Level {
    static SHOWN: OnceLock<Level> = OnceLock::new();
    *SHOWN.get_or_init(|| {
        let about_us = env::var("FI_LOG_PROV").map_or(true, |names| match names.strip_prefix('^') {
            Some(hidden) => !hidden.split(',').any(|name| name == "mx"),
            None => names.split(',').any(|name| name == "mx"),
        });
        match env::var("FI_LOG_LEVEL").as_deref() {
            _ if !about_us => Level::Error,
            Ok("warn") => Level::Warn,
            Ok("trace" | "info") => Level::Info,
            Ok("debug") => Level::Debug,
            _ => Level::Error,
        }
    })
}

/// Writes one line to standard error if the level is shown. `sentence` is only asked for then.
pub(crate) fn log(level: Level, sentence: impl FnOnce() -> String) {
    if level <= shown() {
        let line = format!("libfabric:{}:mx: {}\n", std::process::id(), sentence());
        // One write: other processes write to the same terminal, and this one may be about to be killed.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}
