//! The second socket of a port, for frames that come in numbers: data that was asked for.
//!
//! It has no ring. The kernel keeps such a frame as it came and copies it when it is read, several with one system call, on the
//! reader's core; into a ring it is copied when it arrives, which over veth is the sender's core, and that one is the limit.
//! Looking costs a system call, so it is only done while such frames are expected, and now and then to be rid of others.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use libc::{iovec, mmsghdr};

use crate::NetifCounters;

/// At most this many frames are read with one system call.
const BATCH_FRAMES: usize = 32;
/// At most this many bytes are read with one system call: as much as stays in a core's own cache until it is handled.
const BATCH_LEN: usize = 128 << 10;
/// At most this many bytes of frames are kept at once.
const KEPT_LEN: usize = 512 << 10;
/// Frames that are not expected (late ones, duplicates, forged ones) are polled for once in this many polls.
const UNEXPECTED_POLLS: u32 = 1 << 12;

/// The second packet socket of a port, and the frames that were read from it and not taken yet.
pub(super) struct Bulk {
    socket: OwnedFd,
    /// The length of the longest frame, in bytes.
    frame_len: usize,
    /// The buffers for a batch, which are made at the first poll.
    batch: Option<Batch>,
    expected: bool,
    /// The polls left until unexpected frames are polled for.
    polls_left: u32,
}

impl Bulk {
    pub(super) const fn new(socket: OwnedFd, frame_len: usize) -> Self {
        Self {
            socket,
            frame_len,
            batch: None,
            expected: false,
            polls_left: UNEXPECTED_POLLS,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Says whether frames are expected from now on.
    #[inline]
    pub(super) const fn expect(&mut self, expected: bool) {
        self.expected = expected;
    }

    pub(super) const fn is_expected(&self) -> bool {
        self.expected
    }

    /// Whether frames were read that were not taken yet.
    pub(super) fn has_frame(&self) -> bool {
        self.batch.as_ref().is_some_and(|batch| batch.next < batch.filled)
    }

    /// Returns the oldest frame, if it is time to poll for one.
    #[inline]
    pub(super) fn poll(&mut self, counters: &mut NetifCounters) -> Option<&[u8]> {
        if !self.has_frame() {
            if !self.expected && self.polls_left > 0 {
                self.polls_left -= 1;
                return None;
            }
            self.polls_left = UNEXPECTED_POLLS;
        }
        self.take(counters)
    }

    /// Returns how many frames can be kept.
    pub(super) const fn kept_max(&self) -> usize {
        KEPT_LEN / place_len(self.frame_len)
    }

    /// Keeps the frame last returned until [`Bulk::release_kept`]. `false`: as many are kept already as can be.
    pub(super) fn keep(&mut self) -> bool {
        let kept_max = self.kept_max();
        self.batch.as_mut().is_some_and(|batch| batch.keep(kept_max))
    }

    /// Lets the place of the frame that was kept first be used again.
    pub(super) fn release_kept(&mut self) {
        if let Some(batch) = &mut self.batch {
            batch.spare.extend(batch.kept.pop_front());
        }
    }

    fn take(&mut self, counters: &mut NetifCounters) -> Option<&[u8]> {
        let batch = self.batch.get_or_insert_with(|| Batch::new(self.frame_len));
        if batch.next == batch.filled {
            // An error: there is no frame, or the link is down. Frames arrive again when it is up.
            batch.fill(self.socket.as_fd()).ok()?;
        }
        while batch.next < batch.filled {
            let at = batch.next;
            batch.next += 1;
            let message = &batch.messages[at];
            if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                counters.dropped_too_long += 1;
            } else {
                counters.received += 1;
                let len = (message.msg_len as usize).min(batch.place_len);
                let place = batch.parts[at].iov_base.cast::<u8>();
                // SAFETY: a place of `place_len` bytes, which are initialised, in memory that lives as long as `batch`. The kernel
                // writes to it in `fill` alone, which needs `&mut self`.
                return Some(unsafe { std::slice::from_raw_parts(place, len) });
            }
        }
        None
    }
}

/// Returns the length of a place for frames of this length, in bytes.
const fn place_len(frame_len: usize) -> usize {
    frame_len.next_multiple_of(64)
}

/// Places for frames, and the descriptions of these places that the kernel reads.
struct Batch {
    /// The memory of all places; that of the ones that take the place of kept frames is added when a frame is first kept.
    memory: Vec<Vec<u8>>,
    place_len: usize,
    // Point into `memory`, and `messages` to them. None of the three moves.
    parts: Vec<iovec>,
    messages: Vec<mmsghdr>,
    filled: usize,
    next: usize,
    /// Places of frames that the caller keeps, the oldest first.
    kept: VecDeque<*mut u8>,
    /// Places that hold nothing, to be used in the place of those.
    spare: Vec<*mut u8>,
}

// SAFETY: all that the pointers lead to belongs to this value alone and moves with it; nothing in it is tied to a thread.
unsafe impl Send for Batch {}

/// Makes memory for `count` places. The places are pointers to it, and it is accessed by these alone.
fn places(place_len: usize, count: usize) -> (Vec<u8>, Vec<*mut u8>) {
    let mut memory = vec![0; place_len * count];
    let base = memory.as_mut_ptr();
    let places = (0..count).map(|at| base.wrapping_add(at * place_len)).collect();
    (memory, places)
}

impl Batch {
    fn new(frame_len: usize) -> Self {
        let place_len = place_len(frame_len);
        let frames = (BATCH_LEN / place_len).clamp(1, BATCH_FRAMES);
        let (memory, places) = places(place_len, frames);
        let mut parts: Vec<_> = places
            .into_iter()
            .map(|place| iovec {
                iov_base: place.cast(),
                iov_len: place_len,
            })
            .collect();
        let messages = parts
            .iter_mut()
            .map(|part| {
                // SAFETY: plain data for which all zeros are valid.
                let mut message: mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        Self {
            memory: vec![memory],
            place_len,
            parts,
            messages,
            filled: 0,
            next: 0,
            kept: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// Keeps the frame last taken: the kernel gets another place for it.
    fn keep(&mut self, kept_max: usize) -> bool {
        if self.kept.is_empty() && self.spare.is_empty() {
            let (memory, places) = places(self.place_len, kept_max);
            self.memory.push(memory);
            self.spare = places;
        }
        let taken = self.next.checked_sub(1).and_then(|at| self.parts.get_mut(at));
        let (Some(part), Some(spare)) = (taken, self.spare.pop()) else {
            return false;
        };
        let place = std::mem::replace(&mut part.iov_base, spare.cast());
        self.kept.push_back(place.cast());
        true
    }

    /// Reads as many frames as are there and fit, at least one.
    fn fill(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        (self.next, self.filled) = (0, 0);
        // SAFETY: every message describes one place, whose memory lives as long as `self`, and which is neither borrowed while
        // `self` is borrowed for this call nor kept.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.messages.as_mut_ptr(),
                self.messages.len() as _,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        self.filled = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        Ok(())
    }
}
