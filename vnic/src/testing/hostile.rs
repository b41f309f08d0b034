//! What no sound driver or frontend does: any content anywhere in the rings, raw vhost-user messages
//! with any size, order and files. Only means; which nonsense is told is the tests' business.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use vhost::VhostUserMemoryRegionInfo;

use super::frontend::{Error, Frontend};
use super::ring::{DESC_LEN, Descriptor, DriverRing};

/// A seeded source of test values (splitmix64): the same seed gives the same cases on every machine.
#[derive(Debug, Clone)]
pub struct Seed(u64);

impl Seed {
    /// A stream of values named by `seed`.
    pub fn new(seed: u64) -> Self {
        Seed(seed)
    }

    /// Any 64-bit value.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A value from `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        debug_assert!(low <= high);
        match (high - low).checked_add(1) {
            Some(span) => low + self.any() % span,
            None => self.any(),
        }
    }

    /// True with a chance of `numerator` in `denominator`.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.any() % denominator < numerator
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.range(0, choices.len() as u64 - 1) as usize]
    }

    /// A length or index as tests like them: often near a border.
    pub fn odd_number(&mut self) -> u64 {
        let border = self.pick(&[
            0,
            1,
            12,
            16,
            64,
            256,
            4096,
            65_535,
            1 << 31,
            1 << 32,
            1 << 47,
            1 << 63,
            u64::MAX,
        ]);
        match self.range(0, 3) {
            0 => border,
            1 => border.wrapping_add(self.range(0, 17)),
            2 => border.wrapping_sub(self.range(0, 17)),
            _ => self.any() >> self.range(0, 63),
        }
    }
}

impl DriverRing {
    /// Writes avail entry `slot` (modulo the size) without moving the index.
    pub fn raw_avail_entry(&self, slot: u16, value: u16) {
        let at = 4 + 2 * u64::from(slot & (self.size() - 1));
        self.memory().write(self.addresses().1 + at, &value.to_le_bytes());
    }

    /// Writes the avail index.
    pub fn raw_avail_idx(&self, value: u16) {
        self.memory().write(self.addresses().1 + 2, &value.to_le_bytes());
    }

    /// Writes the avail flags.
    pub fn raw_avail_flags(&self, value: u16) {
        self.memory().write(self.addresses().1, &value.to_le_bytes());
    }

    /// Writes used_event.
    pub fn raw_used_event(&self, value: u16) {
        let at = 4 + 2 * u64::from(self.size());
        self.memory().write(self.addresses().1 + at, &value.to_le_bytes());
    }

    /// Writes the used index, which belongs to the device.
    pub fn raw_used_idx(&self, value: u16) {
        self.memory().write(self.addresses().2 + 2, &value.to_le_bytes());
    }

    /// Writes `chain` to descriptors 0, 1, … as it is, makes `heads` available after the `start` entries before them,
    /// and kicks.
    pub fn raw_post(&mut self, start: u16, chain: &[Descriptor], heads: &[u16]) {
        for (index, descriptor) in chain.iter().enumerate() {
            self.write_descriptor(index as u16, *descriptor);
        }
        for (index, head) in heads.iter().enumerate() {
            self.raw_avail_entry(start.wrapping_add(index as u16), *head);
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.raw_avail_idx(start.wrapping_add(heads.len() as u16));
        self.kick();
    }
}

impl Frontend {
    /// Stops all rings and empties them (GET_VRING_BASE, driver reset with indices at `base`), within the session.
    pub fn stop_rings(&mut self, base: u16) -> Result<(), Error> {
        for index in 0..self.pairs.len() * 2 {
            self.stop_ring(index)?;
        }
        for pair in &mut self.pairs {
            pair.rx.reset(base);
            pair.tx.reset(base);
        }
        Ok(())
    }

    /// Starts and enables vring `index` where it stands, without posting receive buffers and without a kick.
    pub fn start_only(&mut self, index: usize) -> Result<(), Error> {
        self.start_ring(index)?;
        self.enable_ring(index, true)
    }
}

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

    /// Whether the backend has closed the connection (looks for up to `wait`).
    pub fn is_closed_within(&self, wait: Duration) -> bool {
        // Answers that are still under way come before the end.
        let deadline = std::time::Instant::now() + wait;
        loop {
            match self.receive() {
                Ok(_) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(_) => return true,
            }
            if std::time::Instant::now() >= deadline {
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

/// Length in bytes of a descriptor table with `entries` descriptors.
pub fn table_len(entries: usize) -> u32 {
    (entries * DESC_LEN) as u32
}
