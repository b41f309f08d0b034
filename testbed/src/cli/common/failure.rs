//! The failures of `weft`: the exit codes that `--help` documents, and one sentence on standard error.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use crate::{
    interrupted::Interrupted,
    lab::{LabError, nearest},
};

/// Exit code for mistakes on the command line and in lab files.
const EXIT_USAGE: u8 = 2;

/// Exit code after Ctrl-C, as shells count signals.
pub(in crate::cli) const EXIT_INTERRUPTED: u8 = 130;

/// Exit code when the reader of a pipe went away, as shells count signals.
const EXIT_BROKEN_PIPE: u8 = 141;

/// A request that has no possible meaning, as opposed to one that failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(in crate::cli) struct Usage(pub(in crate::cli) String);

/// Returns a question that names the nearest of the words that are known, for a sentence about one that is not.
pub(in crate::cli) fn did_you_mean(word: &str, known: &[String]) -> String {
    let near = nearest(word, known.iter().map(String::as_str));
    near.map_or_else(String::new, |near| format!(", did you mean {near}?"))
}

/// Prints why a verb failed, and returns the exit code for it.
pub(in crate::cli) fn report(error: &anyhow::Error) -> ExitCode {
    let broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let json = cause
            .downcast_ref::<serde_json::Error>()
            .and_then(serde_json::Error::io_error_kind);
        io.or(json) == Some(io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(broken_pipe) {
        return EXIT_BROKEN_PIPE.into();
    }
    if error.is::<Interrupted>() {
        return EXIT_INTERRUPTED.into();
    }
    // Standard error may be closed as well; then the sentence has no reader.
    _ = writeln!(io::stderr(), "weft: {error:#}");
    if error.chain().any(|cause| cause.is::<LabError>() || cause.is::<Usage>()) {
        return EXIT_USAGE.into();
    }
    ExitCode::FAILURE
}
