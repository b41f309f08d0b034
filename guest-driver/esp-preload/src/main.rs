//! `esp-run`: starts a program whose TCP connections use ESP where the peer speaks it. Called as `esp_perf` it is that program: in guests,
//! where each byte costs boot time, both are one.

mod arguments;
mod environment;
#[path = "bin/esp_perf/main.rs"]
mod perf;

use std::{
    env,
    error::Error,
    fmt,
    fs::File,
    io::{self, Read},
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};
use clap::{CommandFactory, Parser, error::ErrorKind};
use esp_socket::{finisher, keeper, starter};

use arguments::Arguments;

/// The library's name, beside this program or in the folder for libraries next to it.
const LIBRARY: &str = "libesp-preload.so";

fn library(own: &Path) -> Result<PathBuf> {
    let dir = own.parent().context("this program has no folder")?;
    let places = [
        dir.join(LIBRARY),
        dir.join("../lib").join(LIBRARY),
        dir.join("../lib/x86_64-linux-gnu").join(LIBRARY),
        dir.join("esp/lib").join(LIBRARY),
    ];
    let found = places.iter().find(|place| place.exists());
    found
        .cloned()
        .with_context(|| format!("{LIBRARY} is not beside {}", own.display()))
}

/// Refuses what the loader would leave out with a line of its own, after which the program would use TCP all the same.
fn check_library(library: &Path) -> Result<()> {
    let mut start = [0; 4];
    let read = File::open(library).and_then(|mut file| file.read_exact(&mut start));
    if read.is_err() || start != *b"\x7fELF" {
        bail!("{} is no shared library", library.display());
    }
    let path = library.as_os_str().as_bytes();
    if path.iter().any(|byte| b" \t\n:".contains(byte)) {
        bail!(
            "the loader takes no library whose path has a blank or a colon, as {} has: `--library` names one elsewhere",
            library.display()
        );
    }
    Ok(())
}

/// Takes the command line. The name of a program that is an option is one that this program does not have.
fn parse() -> Result<Arguments, clap::Error> {
    let arguments = Arguments::try_parse()?;
    match arguments.program.first() {
        Some(program) if program.as_bytes().starts_with(b"-") => {
            let sentence = format!("there is no option '{}'", program.display());
            Err(Arguments::command().error(ErrorKind::UnknownArgument, sentence))
        }
        _ => Ok(arguments),
    }
}

fn run(arguments: Arguments) -> Result<()> {
    if let Some(interface) = arguments.keep_connection {
        return keeper::run(&interface).map_err(|error| anyhow::anyhow!("{error}"));
    }
    if let Some(interface) = arguments.finish_connections {
        return finisher::run(&interface).map_err(|error| anyhow::anyhow!("{error}"));
    }
    if let Some(interface) = arguments.start_authority {
        return starter::run(&interface).map_err(|error| anyhow::anyhow!("{error}"));
    }
    let [program, rest @ ..] = arguments.program.as_slice() else {
        bail!("no program is named");
    };
    let own = env::current_exe().context("this program's own file is not known")?;
    let library = match arguments.library {
        Some(library) => library,
        None => library(&own)?,
    };
    let library = library
        .canonicalize()
        .with_context(|| format!("no {}", library.display()))?;
    check_library(&library)?;
    let mut preload = library.into_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut command = Command::new(program);
    environment::prepare(&mut command)?;
    command
        .args(rest)
        .env("LD_PRELOAD", preload)
        .env(keeper::PROGRAM_VARIABLE, own);
    if arguments.never_fall_back {
        command.env("ESP_FALLBACK", "never");
    }
    if let Some(us) = arguments.spin_us {
        command.env("ESP_SPIN_US", us.to_string());
    }
    let error = command.exec();
    Err(NotStarted(error)).with_context(|| format!("{} cannot be started", program.display()))
}

/// Why the program was not started.
#[derive(Debug)]
struct NotStarted(io::Error);

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for NotStarted {}

fn main() -> ExitCode {
    let called = env::args_os().next().unwrap_or_default();
    if Path::new(&called).file_name().is_some_and(|name| name == "esp_perf") {
        return perf::main();
    }
    let arguments = match parse() {
        Ok(arguments) => arguments,
        // Help and the version, too: only they go to standard output. Where that is closed nobody is left to be told.
        Err(error) => {
            _ = error.print();
            return ExitCode::from(if error.use_stderr() { NOT_TRIED } else { 0 });
        }
    };
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("esp-run: {error:#}");
            ExitCode::from(exit_code(&error))
        }
    }
}

/// The exit code for everything that fails before the program is looked for, a mistake in the command line among it.
const NOT_TRIED: u8 = 125;

/// The exit code when a program does not run, as `env(1)` has it: 127 where there is none, 126 where it cannot be started, and 125 for
/// everything before.
fn exit_code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<NotStarted>() {
        Some(NotStarted(error)) if error.kind() == io::ErrorKind::NotFound => 127,
        Some(_) => 126,
        None => NOT_TRIED,
    }
}
