//! The sending side of direct transmit: frames are copied into the socket's part of the memory, named in its ring, and
//! handed over by one system call.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use ether::ETHERNET_HEADER_LEN;
use libc::{xdp_desc, xdp_mmap_offsets};

use super::{FRAME_LEN_MAX, FRAMES, PART_LEN, PreparedDirect, RING_ENTRIES};
use crate::{mapping::Mapping, socket_options::option_of};

/// An address outside of the memory: the kernel passes over an entry with it.
const NOWHERE: u64 = u64::MAX;
/// At most this many calls in a row are made for the same frames: a call ends early where the driver drops a frame.
const TRIES: u32 = 4;

/// A socket that hands frames to the driver.
pub(crate) struct Direct {
    socket: OwnedFd,
    /// The part of the memory that belongs to this socket, and its place in the kernel's view.
    frames: Mapping,
    frames_at: u64,
    rings: Rings,
    /// The length of the longest frame that may be sent, in bytes; 0 allows none.
    frame_len_max: usize,
}

impl Direct {
    /// Makes a sender of a prepared socket. It sends nothing until a [limit](Self::limit) says how long frames may be.
    pub(crate) fn new(prepared: PreparedDirect) -> io::Result<Self> {
        let PreparedDirect { socket, memory, part } = prepared;
        if rustix::fs::fstat(&memory)?.st_size < PART_LEN as i64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let frames_at = u64::from(part) * PART_LEN as u64;
        let frames = Mapping::populated(memory.as_fd(), 0, PART_LEN)?;
        let rings = Rings::map(socket.as_fd(), RING_ENTRIES)?;
        Ok(Self {
            socket,
            frames,
            frames_at,
            rings,
            frame_len_max: 0,
        })
    }

    /// Allows frames of up to this many bytes from now on.
    #[inline]
    pub(crate) fn limit(&mut self, frame_len_max: usize) {
        self.frame_len_max = frame_len_max.min(FRAME_LEN_MAX);
    }

    /// Sends frames, and returns how many from the front the kernel took. It may be 0: a frame is too long, there is no
    /// room, the link is down, …
    pub(crate) fn send(&mut self, frames: &[&[IoSlice<'_>]]) -> usize {
        let mut sent = 0;
        if self.frame_len_max == 0 {
            return 0;
        }
        self.clear();
        while sent < frames.len() {
            let count = self.put(&frames[sent..]);
            let taken = self.hand_over(count);
            sent += taken;
            if taken < count || count == 0 {
                break;
            }
        }
        sent
    }

    /// Lets the kernel pass over entries that are left of calls that did not succeed: of some kernels it takes a call for each.
    #[inline]
    fn clear(&self) {
        let mut free = self.free().1;
        while free < RING_ENTRIES as usize {
            self.call();
            let before = std::mem::replace(&mut free, self.free().1);
            if free <= before {
                // The link is down.
                return;
            }
        }
    }

    /// Names frames in the ring, as many as there is room for.
    fn put(&mut self, frames: &[&[IoSlice<'_>]]) -> usize {
        let (begin, free) = self.free();
        let mut count = 0;
        for parts in frames.iter().take(FRAMES.min(free)) {
            let len: usize = parts.iter().map(|part| part.len()).sum();
            if len > self.frame_len_max || len < ETHERNET_HEADER_LEN {
                break;
            }
            let at = count * FRAME_LEN_MAX;
            let mut end = at;
            for part in *parts {
                // SAFETY: `count` < `FRAMES` and the parts' sum is at most `FRAME_LEN_MAX`, so this is inside the socket's part of the
                // memory, which no reference is ever made to; the source is borrowed, and is not that memory.
                unsafe {
                    std::ptr::copy_nonoverlapping(part.as_ptr(), self.frames.base().add(end).as_ptr(), part.len())
                };
                end += part.len();
            }
            self.name(begin.wrapping_add(count as u32), self.frames_at + at as u64, len as u32);
            count += 1;
        }
        count
    }

    /// Returns the place of the next entry of the ring, and how many are free.
    fn free(&self) -> (u32, usize) {
        let begin = self.producer().load(Ordering::Relaxed);
        let used = begin.wrapping_sub(self.consumer().load(Ordering::Acquire));
        (begin, RING_ENTRIES.saturating_sub(used) as usize)
    }

    fn name(&self, entry: u32, address: u64, len: u32) {
        let descriptor = xdp_desc {
            addr: address,
            len,
            options: 0,
        };
        // SAFETY: the remainder is below the entries that the mapping was made for. The kernel reads them only during a
        // call of this socket, and no call is made while `self` is borrowed mutably.
        unsafe {
            self.rings
                .descriptors
                .add((entry % RING_ENTRIES) as usize)
                .write(descriptor)
        };
    }

    /// Lets the kernel send the `count` entries that were named last, and returns how many it took.
    fn hand_over(&mut self, count: usize) -> usize {
        if count == 0 {
            return 0;
        }
        let begin = self.producer().load(Ordering::Relaxed);
        let end = begin.wrapping_add(count as u32);
        self.producer().store(end, Ordering::Release);
        let mut taken = 0;
        for _ in 0..TRIES {
            let goes_on = self.call();
            // Whatever it says, where it came to says more. Entries from before may be left, too.
            let left = end.wrapping_sub(self.consumer().load(Ordering::Acquire));
            taken = count.saturating_sub(left as usize);
            if taken == count {
                return count;
            }
            if !goes_on {
                break;
            }
        }
        for entry in taken..count {
            self.name(begin.wrapping_add(entry as u32), NOWHERE, 0);
        }
        taken
    }

    /// Makes the kernel read the ring. Returns whether it may take more with the next call.
    fn call(&self) -> bool {
        self.take_back();
        // SAFETY: no pointers.
        let called = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        // Busy: the driver dropped a frame.
        called >= 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EBUSY)
    }

    /// Takes back completed frames, by whichever socket of the pool they were sent; otherwise the ring of completions
    /// would fill up. Another process may do so concurrently, so that a later word is overwritten by an earlier one;
    /// the next call corrects it.
    fn take_back(&self) {
        // SAFETY: inside the mapping of completions, aligned and always accessed atomically.
        let (completed, taken_back) = unsafe { (self.rings.completed.as_ref(), self.rings.taken_back.as_ref()) };
        taken_back.store(completed.load(Ordering::Acquire), Ordering::Release);
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: inside the mapping of the ring, aligned and always accessed atomically.
        unsafe { self.rings.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.rings.consumer.as_ref() }
    }
}

/// The rings in which this process names frames to be sent and the kernel names completed ones.
pub(super) struct Rings {
    _sends: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    descriptors: NonNull<xdp_desc>,
    _completions: Mapping,
    completed: NonNull<AtomicU32>,
    taken_back: NonNull<AtomicU32>,
}

// SAFETY: all that the pointers lead to belongs to the mappings of this value, which move with it; nothing in them is tied to a thread.
unsafe impl Send for Rings {}

impl Rings {
    /// Maps the rings of a socket that was set up with so many entries for frames to be sent.
    pub(super) fn map(socket: BorrowedFd<'_>, entries: u32) -> io::Result<Self> {
        let offsets = option_of::<xdp_mmap_offsets>(socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let sends_len = offsets.tx.desc as usize + entries as usize * size_of::<xdp_desc>();
        let sends = Mapping::populated(socket, libc::XDP_PGOFF_TX_RING.cast_unsigned(), sends_len)?;
        let last = offsets.cr.producer.max(offsets.cr.consumer) as usize;
        let completions_len = last + size_of::<u32>();
        let completions = Mapping::populated(socket, libc::XDP_UMEM_PGOFF_COMPLETION_RING, completions_len)?;
        Ok(Self {
            producer: sends.at(offsets.tx.producer)?,
            consumer: sends.at(offsets.tx.consumer)?,
            descriptors: sends.at(offsets.tx.desc)?,
            completed: completions.at(offsets.cr.producer)?,
            taken_back: completions.at(offsets.cr.consumer)?,
            _sends: sends,
            _completions: completions,
        })
    }
}
