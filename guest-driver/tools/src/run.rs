//! The start and end of all programs: results go to stdout, one sentence to stderr when something is wrong.

use std::{
    error::Error,
    fmt::{self, Display},
    io::{self, Write},
    process::ExitCode,
};

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;
use serde_json::json;

/// Runs a tool's body and turns its outcome into an exit code: 0, or 1 with the error as one sentence on stderr and,
/// with `json`, as `{"error": …}` on stdout.
pub fn run(tool: &str, json: bool, body: impl FnOnce() -> anyhow::Result<ExitCode>) -> ExitCode {
    run_with(tool, json, ExitCode::FAILURE, body)
}

/// As [`run`], for the tools that Open-MX has: they end with 255 when something is wrong.
pub fn run_omx(tool: &str, json: bool, body: impl FnOnce() -> anyhow::Result<ExitCode>) -> ExitCode {
    run_with(tool, json, ExitCode::from(255), body)
}

/// As [`run`], for `esp_ping`: as `ping` does, it ends with 2 when something is wrong.
pub fn run_ping(tool: &str, json: bool, body: impl FnOnce() -> anyhow::Result<ExitCode>) -> ExitCode {
    run_with(tool, json, ExitCode::from(2), body)
}

fn run_with(tool: &str, json: bool, failure: ExitCode, body: impl FnOnce() -> anyhow::Result<ExitCode>) -> ExitCode {
    omx::show_warnings();
    match body() {
        Ok(code) => code,
        // Who closes the output has read enough, and wants no sentence.
        Err(error) if error.is::<NoReader>() => failure,
        Err(error) => {
            let sentence = format!("{error:#}");
            say(tool, &sentence);
            if json {
                // If the output is closed, there is no reader to be told of it.
                let _ = writeln!(io::stdout(), "{}", json!({ "error": sentence }));
            }
            failure
        }
    }
}

/// Runs the tool of a module by [`run`], [`run_omx`] or [`run_ping`], under its name; `json` where it has that option.
#[macro_export]
macro_rules! tool {
    ($run:ident, $name:literal, $($module:ident)::+ $(, $json:ident)?) => {{
        let arguments = <$($module)::+::Arguments as ::clap::Parser>::parse();
        $crate::$run($name, false $(|| arguments.$json)?, || $($module)::+::main(&arguments))
    }};
}

/// Writes a sentence to stderr. If that is closed or full, the line is lost, and nothing else happens.
pub fn say(tool: &str, sentence: &str) {
    let _ = writeln!(io::stderr(), "{tool}: {sentence}");
}

/// Prints a result as one line of JSON or as text.
pub(crate) fn print(json: bool, report: &(impl Serialize + Display)) -> anyhow::Result<()> {
    print_line(&text_of(json, report)?)
}

/// Returns a result as one line of JSON or as text.
pub(crate) fn text_of(json: bool, report: &(impl Serialize + Display)) -> anyhow::Result<String> {
    if json {
        Ok(serde_json::to_string(report)?)
    } else {
        Ok(report.to_string())
    }
}

/// Prints one line at once, also when there is no reader yet.
pub(crate) fn print_line(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(NoReader.into()),
        written => written.context("cannot write to stdout"),
    }
}

/// The output has no reader any more.
#[derive(Debug)]
struct NoReader;

impl Display for NoReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stdout has no reader any more")
    }
}

impl Error for NoReader {}

/// An option that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

impl Switch {
    pub(crate) fn is_on(self) -> bool {
        self == Self::On
    }
}
