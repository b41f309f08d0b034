//! A capture as a stream of pcapng bytes over `vnicd`'s control socket, ended at a whole block. The client decodes no frames.

use std::{
    io::{BufRead, BufReader, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Frames as they are announced, as pcapng bytes.
#[derive(Debug)]
pub struct Capture {
    pub(super) reader: BufReader<UnixStream>,
    pub(super) asked_to_end: Arc<AtomicBool>,
}

/// Ends a capture from elsewhere.
#[derive(Debug)]
pub struct CaptureEnd {
    pub(super) stream: UnixStream,
    pub(super) asked: Arc<AtomicBool>,
}

impl CaptureEnd {
    /// Asks `vnicd` for the end: what was captured until now still comes. Asked once more, it waits for nothing.
    pub fn end(&self) {
        let how = if self.asked.swap(true, Ordering::SeqCst) {
            Shutdown::Both
        } else {
            Shutdown::Write
        };
        // One that has ended already needs no end.
        _ = self.stream.shutdown(how);
    }
}

/// Ends what goes on in one `vnicd` after the other: a capture, a trace.
#[derive(Debug, Default)]
pub struct Ends {
    asked: AtomicBool,
    current: Mutex<Option<CaptureEnd>>,
}

impl Ends {
    /// What is to be ended from now on. Ended at once if that was asked for before.
    pub fn set(&self, end: CaptureEnd) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_asked() {
            end.end();
        }
        *current = Some(end);
    }

    /// Ends the capture that runs now, as [`CaptureEnd::end`] does, or the one that starts next.
    pub fn end(&self) {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        self.asked.store(true, Ordering::SeqCst);
        if let Some(end) = &*current {
            end.end();
        }
    }

    /// Whether the end was asked for.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Capture {
    /// A handle that ends the capture from elsewhere.
    ///
    /// # Errors
    /// When the system has no more file handles.
    pub fn handle(&self) -> std::io::Result<CaptureEnd> {
        Ok(CaptureEnd {
            stream: self.reader.get_ref().try_clone()?,
            asked: Arc::clone(&self.asked_to_end),
        })
    }

    /// Writes whole pcapng blocks to `out` as they come, until the handle asks for the end. A block that is cut off by the
    /// end is left out, so that what was written is a whole file. Returns how many frames are missing because they came
    /// faster than they were taken.
    ///
    /// # Errors
    /// When `out` takes no more, what comes is not pcapng, or `vnicd` ends before it was asked to.
    pub fn write_to(mut self, mut out: impl Write) -> std::io::Result<u64> {
        let mut missing = 0;
        let mut bytes: Vec<u8> = Vec::new();
        loop {
            let piece = match self.reader.fill_buf() {
                Ok(piece) => piece,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if piece.is_empty() {
                if self.asked_to_end.load(Ordering::SeqCst) {
                    return Ok(missing);
                }
                return Err(std::io::Error::new(
                    std::io::ErrorKind::UnexpectedEof,
                    "vnicd has ended, and the capture with it; what was captured until then is whole",
                ));
            }
            bytes.extend_from_slice(piece);
            let length = piece.len();
            self.reader.consume(length);
            let whole = whole_blocks(&bytes)?;
            missing += dropped(&bytes[..whole]);
            out.write_all(&bytes[..whole])?;
            out.flush()?;
            bytes.drain(..whole);
        }
    }
}

/// Longest block: a frame of the largest segmentation with its comment.
const BLOCK_LEN_MAX: usize = 1 << 20;

/// Frames that the statistics blocks among these whole blocks say were dropped.
pub(super) fn dropped(mut blocks: &[u8]) -> u64 {
    const INTERFACE_STATISTICS: u32 = 5;
    const IFDROP: u16 = 5;
    /// Type, length, interface and time stamp stand before the options.
    const OPTIONS_AT: usize = 20;
    let mut sum = 0;
    while let (Some(kind), Some(length)) = (word(blocks, 0), word(blocks, 4)) {
        let (block, rest) = blocks.split_at((length as usize).min(blocks.len()));
        blocks = rest;
        let mut options = block.get(OPTIONS_AT..).unwrap_or_default();
        while kind == INTERFACE_STATISTICS
            && let Some(head) = word(options, 0)
        {
            let (code, length) = (head as u16, (head >> 16) as usize);
            if code == IFDROP && length == 8 {
                let halves = (word(options, 4), word(options, 8));
                sum += u64::from(halves.0.unwrap_or(0)) | u64::from(halves.1.unwrap_or(0)) << 32;
            }
            options = options.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
    sum
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    bytes.try_into().ok().map(u32::from_le_bytes)
}

/// Length of the whole blocks at the start of `bytes`. Each block says its length behind its type (`vnicd` writes
/// little-endian files).
pub(super) fn whole_blocks(bytes: &[u8]) -> std::io::Result<usize> {
    let mut at = 0;
    while let Some(length) = bytes.get(at + 4..at + 8) {
        let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
        if !(12..=BLOCK_LEN_MAX).contains(&length) {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                "what vnicd sends is not pcapng",
            ));
        }
        if at + length > bytes.len() {
            break;
        }
        at += length;
    }
    Ok(at)
}
