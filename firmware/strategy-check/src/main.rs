//! Checks one coalescing strategy, without any other part of Weft: the promises that every strategy gives, and the expectation
//! traces that are named as arguments (files, or folders with files `*.toml`). `scripts/strategy` builds it with the file to be checked.
#![forbid(unsafe_code)]

mod trace;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::mpsc,
    thread,
    time::Duration,
};

use firmware::conformance;

include!(concat!(env!("OUT_DIR"), "/checked.rs"));

/// How long all promises may take. They take less than a second: a strategy that is still at it never answers.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let (sender, receiver) = mpsc::channel();
    // In a thread of its own, so that a strategy that panics or never answers is told of.
    let checks = thread::spawn(move || {
        let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
        // The receiver is gone only where the program ends.
        _ = sender.send(check(&arguments));
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::FAILURE,
        Ok(Err(error)) => {
            eprintln!("strategy: {error}");
            ExitCode::from(2)
        }
        Err(mpsc::RecvTimeoutError::Timeout) => {
            println!(
                "BROKEN    {NAME} does not answer within {} s: is there a loop in it?",
                PATIENCE.as_secs()
            );
            ExitCode::FAILURE
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            // The message of the panic, with the line in the student's file, stands on standard error.
            _ = checks.join();
            println!("BROKEN    {NAME} panics, as the lines above say: on the card, that stops the guest's network");
            ExitCode::FAILURE
        }
    }
}

/// Runs everything; true if all is right.
fn check(arguments: &[PathBuf]) -> Result<bool, String> {
    let traces = traces(arguments)?;
    println!("{NAME} in {FILE}");
    let broken = conformance::broken_promises::<Checked>();
    if broken.is_empty() {
        println!("ok        every promise that strategies give");
    }
    for broken in &broken {
        println!("\nBROKEN    {}", broken.promise.broken());
        println!("          {}", broken.details);
        println!("\n{}", broken.timeline);
    }
    let mut wrong = 0;
    for (path, expectation) in &traces {
        match expectation.check::<Checked>() {
            Ok(()) => println!("ok        {}", path.display()),
            Err(unexpected) => {
                wrong += 1;
                println!("\nUNEXPECTED  {}", path.display());
                println!("          {unexpected}");
                println!("\n{}", unexpected.timeline);
            }
        }
    }
    println!(
        "promises broken: {}; traces not as expected: {wrong} of {}",
        broken.len(),
        traces.len()
    );
    Ok(broken.is_empty() && wrong == 0)
}

/// The expectations that are named, or those beside the strategy's file.
fn traces(arguments: &[PathBuf]) -> Result<Vec<(PathBuf, conformance::Expectation)>, String> {
    let mut paths = Vec::new();
    for argument in arguments {
        if argument.is_dir() {
            paths.extend(in_folder(argument).map_err(|error| format!("{}: {error}", argument.display()))?);
        } else {
            paths.push(argument.clone());
        }
    }
    let read = |path: PathBuf| match trace::read(&path) {
        Ok(expectation) => Ok((path, expectation)),
        Err(error) => Err(format!("{} {error}", path.display())),
    };
    paths.into_iter().map(read).collect()
}

fn in_folder(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
