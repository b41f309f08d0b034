//! `weft capture`: writes frames of cards as pcapng to a file or a pipe, until Ctrl-C or until the reader of the pipe
//! has gone.

use std::{
    io::{self, Write},
    os::fd::AsFd,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result, ensure};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use super::common::{CommonOptions, act, client, ports};
use crate::{report::file::OutFile, supervisor_client::client::Client, vnicd_client::Ends};

/// Capture the frames of cards, in both directions, as pcapng on standard output.
#[derive(Debug, clap::Args)]
#[command(add = act(&[
    ("weft capture n1 -w n1.pcapng", "into a file, until Ctrl-C"),
    ("weft capture | tshark -r -", "all cards, read by tshark"),
]))]
#[command(after_help = dissector_help())]
pub(super) struct CaptureArgs {
    /// `NODE` or `NODE.ethN` (default: all).
    nics: Vec<String>,
    /// Bytes kept of each frame (default: all).
    #[arg(long, value_name = "BYTES")]
    snaplen: Option<u32>,
    /// Write to a file instead.
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Describes how Wireshark and tshark decode MXoE and control frames.
fn dissector_help() -> String {
    let lua = dissector_path();
    format!(
        "Wireshark and tshark name MXoE and control frames with the dissector\n  {0}\nFor example:\n  weft capture | tshark \
         -X lua_script:{0} -r -\n  weft capture | wireshark -X lua_script:{0} -k -i -",
        lua.display()
    )
}

/// Returns the path of the dissector for Wireshark and tshark: beside the installed programs, else in the sources.
fn dissector_path() -> PathBuf {
    const NAME: &str = "weft.lua";
    let installed = crate::programs::folder()
        .ok()
        .map(|folder| folder.join("../share/weft").join(NAME));
    installed
        .filter(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("dissector").join(NAME))
}

pub(super) fn run(options: &CommonOptions, args: &CaptureArgs) -> Result<()> {
    let client = &client(options)?;
    let mut names = Vec::new();
    for nic in &args.nics {
        names.extend(ports(client, Some(nic))?.into_iter().map(|port| port.name));
    }
    // The file is opened before the capture begins, so that an unwritable file does not cost other readers their
    // capture.
    let mut file = args.write.as_deref().map(OutFile::open).transpose()?;
    let captured = capture_into(client, args, &names, file.as_mut());
    // The part captured before a failure is complete.
    if let Some(file) = file {
        file.keep_unless_empty();
    }
    captured
}

fn capture_into(client: &Client, args: &CaptureArgs, names: &[String], file: Option<&mut OutFile>) -> Result<()> {
    let mut capture = client.vnicd()?.capture(names, args.snaplen)?;
    let ends = Arc::new(Ends::default());
    ends.set(capture.handle()?);
    let reader_gone = Arc::new(AtomicBool::new(false));
    let mut out: Box<dyn Write> = match file {
        Some(file) => Box::new(file.writer()?),
        None => {
            let (ends, gone) = (Arc::clone(&ends), Arc::clone(&reader_gone));
            std::thread::Builder::new().name("reader".to_owned()).spawn(move || {
                wait_until_reader_is_gone(&io::stdout());
                gone.store(true, Ordering::SeqCst);
                // The output is gone, so the captured frames have no destination.
                ends.end();
                ends.end();
            })?;
            Box::new(io::stdout())
        }
    };
    // Ctrl-C is the usual end of a capture, and everything captured until then is complete.
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot catch signals")?;
    let asked = Arc::clone(&ends);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            asked.end();
        }
    })?;
    let missing = loop {
        match capture.write_to(&mut out) {
            Ok(missing) => break missing,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !ends.is_asked() => {
                // The next vnicd gets a separate section in the file, since it has another clock.
                let next = client.in_next_vnicd(&ends, |vnicd| Ok(vnicd.capture(names, args.snaplen)?));
                capture = next.map_err(|_| error)?;
                ends.set(capture.handle()?);
            }
            Err(error) => return Err(error.into()),
        }
    };
    if reader_gone.load(Ordering::SeqCst) {
        return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
    }
    ensure!(
        missing == 0,
        "{missing} frames are missing: they came faster than they were written (`--snaplen` makes them shorter)"
    );
    Ok(())
}

/// Returns when `out` is a pipe, socket or terminal whose other end is gone, and never for anything else. A silent lab
/// has nothing to write, so a failing write would not reveal it.
fn wait_until_reader_is_gone(out: &impl AsFd) {
    loop {
        // `poll` reports errors and hang-ups without being asked for them.
        let mut fds = [PollFd::new(out, PollFlags::empty())];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => {}
            Ok(_) if fds[0].revents().is_empty() => {}
            Ok(_) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_leaves_is_noticed_without_writing_to_it() {
        let (reading, writing) = io::pipe().expect("a pipe");
        let (told, heard) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn(move || {
            told.send(()).expect("somebody listens");
            wait_until_reader_is_gone(&writing);
        });
        heard.recv().expect("it waits");
        assert!(!waiting.is_finished());
        drop(reading);
        waiting.join().expect("no panic");
    }
}
