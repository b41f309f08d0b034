//! Copies in and out of the guest: an archive through a command's streams, without a process.

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use weft_agent::credit::Consumed;
use weft_agent::frame::{DATA_MAX, Kind};
use weft_agent::message::{CopyIn, CopyOut, ExitStatus, Failed};
use weft_agent::transfer;

use super::Session;
use super::command::{Command, InputReader, OutputWriter};

/// Resolves a path; relative paths start where a login would.
fn place(path: &str) -> PathBuf {
    Path::new(&std::env::var("HOME").unwrap_or_else(|_| "/".into())).join(path)
}

pub fn copy_in(session: &Arc<Session>, id: u32, copy: CopyIn) {
    let (sender, input) = mpsc::channel();
    session.add(id, Command::without_process(sender));
    let session = Arc::clone(session);
    let run = move || {
        let reader = InputReader {
            session: Arc::clone(&session),
            id,
            input,
            piece: Vec::new(),
            at: 0,
            consumed: Consumed::default(),
        };
        end(
            &session,
            id,
            transfer::unpack(reader, &place(&copy.destination), &copy.name).map(drop),
        );
    };
    drop(std::thread::Builder::new().name("copy-in".into()).spawn(run));
}

pub fn copy_out(session: &Arc<Session>, id: u32, copy: CopyOut) {
    let (sender, _input) = mpsc::channel();
    let command = Command::without_process(sender);
    session.add(id, Arc::clone(&command));
    let session = Arc::clone(session);
    let run = move || {
        let writer = OutputWriter {
            session: Arc::clone(&session),
            id,
            command,
        };
        let packed = transfer::pack(&place(&copy.path), BufWriter::with_capacity(DATA_MAX, writer));
        let packed = packed.map(|note| {
            if let Some(note) = note {
                // One sentence is far less than the credit that this stream starts with.
                session.send(id, Kind::Stderr, sentence(note).into_bytes());
            }
        });
        end(&session, id, packed);
    };
    drop(std::thread::Builder::new().name("copy-out".into()).spawn(run));
}

fn end(session: &Session, id: u32, result: std::io::Result<()>) {
    match result {
        Ok(()) => session.finish(id, Kind::Exited, &ExitStatus::Code(0)),
        Err(error) => {
            session.finish(
                id,
                Kind::Failed,
                &Failed {
                    message: sentence(error.to_string()),
                    not_found: false,
                },
            );
        }
    }
}

/// Shortens a sentence until it fits into a frame, however long the names in it are.
fn sentence(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(1024));
    text
}
