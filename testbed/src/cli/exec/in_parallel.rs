//! One command in several nodes in parallel: a thread for each, whole lines with the node's name before them.

use std::{
    io::{self, Write},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use super::{super::common::agent, EXIT_EXEC_FAILED};
use crate::{
    guest_channel::{ChannelError, Control, Event, Exec},
    supervisor_client::client::Client,
};

/// Bytes of a line that are kept until its end comes; longer lines are written in pieces.
const LINE_MAX: usize = 64 << 10;

/// The running commands, and whether they are to end.
#[derive(Default)]
struct Group {
    running: Vec<Control>,
    ending: Option<i32>,
}

/// Runs `exec` in all `nodes` in parallel. The exit status is that of the first node, in the order of the lab, where it
/// is not 0.
pub(super) fn run(client: &Client, nodes: &[String], exec: &Exec) -> Result<ExitCode> {
    let group = Arc::new(Mutex::new(Group::default()));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot catch signals")?;
    let told = Arc::clone(&group);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let mut group = told.lock();
            if group.ending.is_some() {
                _ = writeln!(io::stderr(), "weft: the commands were told to end twice, and are left");
                std::process::exit(128 + signal);
            }
            group.ending = Some(signal);
            group.running.iter().for_each(|control| control.signal(signal));
        }
    })?;
    let width = nodes.iter().map(String::len).max().unwrap_or(0);
    let codes = std::thread::scope(|scope| {
        let threads: Vec<_> = nodes
            .iter()
            .map(|node| {
                let group = Arc::clone(&group);
                scope.spawn(move || one(client, node, exec, &format!("{node:width$}  "), &group))
            })
            .collect();
        let codes = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Ok(EXIT_EXEC_FAILED)));
        codes.collect::<Vec<_>>()
    });
    let mut first = 0;
    for code in codes {
        let code = code?;
        if first == 0 {
            first = code;
        }
    }
    Ok(first.into())
}

/// Runs the command in one node, and returns its exit status.
///
/// # Errors
/// Fails when its output cannot be written.
fn one(client: &Client, node: &str, exec: &Exec, prefix: &str, group: &Mutex<Group>) -> Result<u8, io::Error> {
    match stream(client, node, exec, prefix, group) {
        Ok(code) => Ok(code),
        Err(error) => {
            if let Some(closed) = error
                .downcast_ref::<io::Error>()
                .filter(|error| error.kind() == io::ErrorKind::BrokenPipe)
            {
                return Err(closed.kind().into());
            }
            let (sentence, code) = match error.downcast_ref::<ChannelError>() {
                Some(ChannelError::NotStarted { message, not_found }) => {
                    (message.clone(), if *not_found { 127 } else { 126 })
                }
                _ => (format!("{error:#}"), EXIT_EXEC_FAILED),
            };
            // Standard error may be closed as well; then the sentence has no reader.
            _ = writeln!(io::stderr().lock(), "{prefix}weft: {sentence}");
            Ok(code)
        }
    }
}

fn stream(client: &Client, node: &str, exec: &Exec, prefix: &str, group: &Mutex<Group>) -> Result<u8> {
    let channel = agent(client, node)?;
    let mut running = channel.exec(exec)?;
    {
        let mut group = group.lock();
        if let Some(signal) = group.ending {
            running.control().signal(signal);
        }
        group.running.push(running.control());
    }
    let (mut out, mut err) = (Lines::new(prefix), Lines::new(prefix));
    loop {
        match running.next(None)? {
            Event::Started { .. } => {}
            Event::Stdout(bytes) => out.write(&bytes, &mut io::stdout().lock())?,
            Event::Stderr(bytes) => err.write(&bytes, &mut io::stderr().lock())?,
            Event::Exited(status) => {
                out.finish(&mut io::stdout().lock())?;
                err.finish(&mut io::stderr().lock())?;
                return Ok(u8::try_from(status.shell_code()).unwrap_or(u8::MAX));
            }
        }
    }
}

/// A writer of lines with a prefix.
struct Lines<'a> {
    prefix: &'a str,
    /// Line that has not ended.
    begun: Vec<u8>,
}

impl<'a> Lines<'a> {
    fn new(prefix: &'a str) -> Self {
        Self {
            prefix,
            begun: Vec::new(),
        }
    }

    fn write(&mut self, bytes: &[u8], to: &mut impl Write) -> io::Result<()> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.line(to)?;
            } else if self.begun.len() >= LINE_MAX {
                self.finish(to)?;
            }
        }
        to.flush()
    }

    fn line(&mut self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(self.prefix.as_bytes())?;
        to.write_all(&self.begun)?;
        self.begun.clear();
        Ok(())
    }

    /// Writes the last line, which has no end.
    fn finish(&mut self, to: &mut impl Write) -> io::Result<()> {
        if self.begun.is_empty() {
            return Ok(());
        }
        self.begun.push(b'\n');
        self.line(to)?;
        to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_node_before_it_however_it_comes_in_pieces() {
        let mut out = Vec::new();
        let mut lines = Lines::new("n1  ");
        for piece in ["one\ntw", "o\n\nth", "ree"] {
            lines.write(piece.as_bytes(), &mut out).expect("memory takes all");
        }
        lines.finish(&mut out).expect("memory takes all");
        assert_eq!(String::from_utf8_lossy(&out), "n1  one\nn1  two\nn1  \nn1  three\n");
        out.clear();
        lines
            .write(&vec![b'x'; LINE_MAX + 1], &mut out)
            .expect("memory takes all");
        assert!(out.len() > LINE_MAX, "a line without end is not kept forever");
    }
}
