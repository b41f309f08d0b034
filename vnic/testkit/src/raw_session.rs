//! A vhost-user connection that sends messages of any size, order and files, as no sound frontend does. Which nonsense is
//! told is the tests' business.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use vhost::VhostUserMemoryRegionInfo;

/// Length of a vhost-user message header.
const MESSAGE_HEADER_LEN: usize = 12;
/// Files one raw message may carry.
const FILES_MAX: usize = 64;

/// An answer of the backend.
#[derive(Debug)]
pub struct RawReply {
    /// Request it answers.
    pub request: u32,
    /// Flags.
    pub flags: u32,
    /// Body.
    pub body: Vec<u8>,
    /// Files that came along.
    pub files: Vec<OwnedFd>,
}

/// A vhost-user connection that sends whatever it is told.
#[derive(Debug)]
pub struct RawSession {
    stream: UnixStream,
}

impl RawSession {
    /// Connects; answers are waited for up to `reply_wait`.
    pub fn connect(path: &Path, reply_wait: Duration) -> io::Result<Self> {
        Self::on(UnixStream::connect(path)?, reply_wait)
    }

    /// Takes a connection over as it stands.
    pub fn on(stream: UnixStream, reply_wait: Duration) -> io::Result<Self> {
        stream.set_read_timeout(Some(reply_wait))?;
        stream.set_write_timeout(Some(reply_wait))?;
        Ok(RawSession { stream })
    }

    /// Sends a message; `size` is what its header says, whatever `body` has.
    pub fn send(&self, request: u32, flags: u32, size: u32, body: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(MESSAGE_HEADER_LEN + body.len());
        for word in [request, flags, size] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(body);
        self.send_bytes(&bytes, files)
    }

    /// Sends bytes as they are, files with the first of them.
    pub fn send_bytes(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let sent = sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
        if sent < bytes.len() {
            io::Write::write_all(&mut &self.stream, &bytes[sent..])?;
        }
        Ok(())
    }

    /// Waits for an answer; an error when the session is over or none comes in time.
    pub fn receive(&self) -> io::Result<RawReply> {
        let mut header = [0; MESSAGE_HEADER_LEN];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let message = recvmsg(
            &self.stream,
            &mut [IoSliceMut::new(&mut header)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        let files = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => files.collect(),
            _ => Vec::new(),
        });
        let files = files.collect();
        if message.bytes < header.len() {
            if message.bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            io::Read::read_exact(&mut &self.stream, &mut header[message.bytes..])?;
        }
        let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let mut body = vec![0; (word(8) as usize).min(1 << 16)];
        io::Read::read_exact(&mut &self.stream, &mut body)?;
        Ok(RawReply {
            request: word(0),
            flags: word(4),
            body,
            files,
        })
    }

    /// Whether the backend has closed the connection (checks for up to `wait`).
    pub fn is_closed_within(&self, wait: Duration) -> bool {
        // Answers that are still in flight come before the end.
        let deadline = Instant::now() + wait;
        loop {
            match self.receive() {
                Ok(_) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(_) => return true,
            }
            if Instant::now() >= deadline {
                return false;
            }
        }
    }
}

/// The body of a memory table message: regions as (guest address, length, user address, offset in the file).
pub fn memory_table_body(regions: &[[u64; 4]]) -> Vec<u8> {
    let mut body = (regions.len() as u64).to_ne_bytes().to_vec();
    for word in regions.iter().flatten() {
        body.extend_from_slice(&word.to_ne_bytes());
    }
    body
}

/// A region moved in the frontend's address space by `shift` bytes: ring addresses then translate to guest addresses that
/// are `shift` lower (the backend knows the frontend's addresses only from here).
pub fn shift_user_address(region: &VhostUserMemoryRegionInfo, shift: u64) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        userspace_addr: region.userspace_addr.wrapping_add(shift),
        ..*region
    }
}
