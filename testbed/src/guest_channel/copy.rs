//! Copies between host and guest: an archive through the streams of a request. The receiver checks what is in an
//! archive when it is unpacked (`weft_agent::transfer`).

use std::io::{self, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weft_agent::frame::{DATA_MAX, Kind};
use weft_agent::message::{CopyIn, CopyOut};
use weft_agent::transfer;

use super::command::{Event, Running};
use super::link::Link;
use super::{ANSWER_TIME_MAX, ChannelError};

/// Number of bytes that are kept of a guest's message about a copy: a sentence with a long path in it.
const NOTE_LEN_MAX: usize = 1024;

pub(super) fn copy_in(link: &Arc<Link>, source: &Path, destination: &str) -> Result<(), ChannelError> {
    let real = std::fs::canonicalize(source)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", source.display())))?;
    let name = source
        .file_name()
        .or_else(|| real.file_name())
        .and_then(|name| name.to_str());
    let name = name.ok_or_else(|| ChannelError::Refused(format!("{} has no plain name", source.display())))?;
    let request = CopyIn {
        destination: destination.to_owned(),
        name: name.to_owned(),
    };
    let mut running = link.request(Kind::CopyIn, Some(&request))?;
    let input = running.stdin().expect("it was not taken before");
    let packed = transfer::pack(source, BufWriter::with_capacity(DATA_MAX, input));
    let note = match packed {
        Ok(note) => note,
        // The guest ended the copy and reports the reason itself.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => None,
        Err(error) => return Err(error.into()),
    };
    match (running.next(Some(ANSWER_TIME_MAX))?, note) {
        (Event::Exited(_), None) => Ok(()),
        (Event::Exited(_), Some(note)) => Err(io::Error::other(note).into()),
        (other, _) => Err(ChannelError::Protocol(format!("it answers a copy with {other:?}"))),
    }
}

pub(super) fn copy_out(link: &Arc<Link>, source: &str, destination: &Path) -> Result<PathBuf, ChannelError> {
    let name = Path::new(source).file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| ChannelError::Refused(format!("{source} has no plain name")))?;
    let mut running = link.request(
        Kind::CopyOut,
        Some(&CopyOut {
            path: source.to_owned(),
        }),
    )?;
    drop(running.stdin());
    let mut archive = Archive {
        running,
        piece: Vec::new(),
        at: 0,
        note: Vec::new(),
        end: None,
    };
    let unpacked = transfer::unpack(&mut archive, destination, name);
    match archive.end {
        // The guest's report about its end is the cause of any failure here.
        Some(Err(error)) => Err(error),
        _ if archive.note.is_empty() => Ok(unpacked?),
        _ => {
            unpacked?;
            Err(ChannelError::Refused(
                String::from_utf8_lossy(&archive.note).into_owned(),
            ))
        }
    }
}

/// A reader of the output of a request.
struct Archive {
    running: Running,
    piece: Vec<u8>,
    at: usize,
    /// Message of the guest about files that changed while they were read.
    note: Vec<u8>,
    end: Option<Result<(), ChannelError>>,
}

impl Read for Archive {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            match (&self.end, self.end.is_none().then(|| self.running.next(None))) {
                (Some(Ok(())), _) => return Ok(0),
                (Some(Err(_)), _) => return Err(io::ErrorKind::ConnectionAborted.into()),
                (None, Some(Ok(Event::Stdout(piece)))) => (self.piece, self.at) = (piece, 0),
                (None, Some(Ok(Event::Exited(_)))) => self.end = Some(Ok(())),
                (None, Some(Ok(Event::Stderr(piece)))) => {
                    let room = NOTE_LEN_MAX.saturating_sub(self.note.len());
                    self.note.extend_from_slice(&piece[..piece.len().min(room)]);
                }
                (None, Some(Err(error))) => self.end = Some(Err(error)),
                (None, _) => {}
            }
        }
        let len = buffer.len().min(self.piece.len() - self.at);
        buffer[..len].copy_from_slice(&self.piece[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}
