//! Ethernet ports for user space: one small trait, [`Netif`], and its implementations.
//!
//! [`AfPacket`] is a packet socket with a receive ring that is polled in memory, with an optional socket beside it that
//! hands short frames directly to the driver ([`DirectPool`]); [`VirtioPort`] is a queue pair of a card that the program drives
//! itself; [`memory_pair`] joins two ports inside one process. This crate knows nothing of a frame beyond its EtherType, and never
//! retries or reorders.

mod addresses;
mod af_packet;
mod af_xdp;
mod card_address;
mod card_error;
mod card_holder;
mod egress;
mod error;
mod filter;
mod interface;
mod mapping;
mod memory;
mod ready;
mod socket_options;
pub mod virtio;

use std::{
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd},
    ptr::NonNull,
    time::Instant,
};

pub use addresses::HostAddress;
pub use af_packet::{AfPacket, AfPacketOptions, FrameCounter, PreparedSocket, RingLayout, SharedLookup, UnboundSocket};
pub use af_xdp::{DirectPool, PreparedDirect};
pub use error::NetifError;
use ether::MacAddr;
pub use filter::Instruction;
pub use interface::Interface;
pub use memory::{MemoryPort, memory_pair};
pub use virtio::VirtioPort;

/// Most frames that [`Netif::send_burst`] takes in one call: two medium messages of the most fragments a receiver can
/// distinguish (32). It bounds what is kept on the stack for one system call.
pub const BURST_MAX: usize = 64;

/// An Ethernet port that can be polled without a system call and can put the caller to sleep.
///
/// All calls but [`Netif::wait`] return at once. A port has one owner (`&mut self`); several ports may be used from
/// several threads. Frames are without frame check sequence, with their Ethernet header, and of the one EtherType the
/// port was opened for; frames addressed to other stations are left out.
///
/// The contract is written so that a port whose buffers belong to a card (AF_XDP, a virtio driver in user space) can
/// fulfil it: a received frame is *lent* and goes back with the next call, a burst is one doorbell, and `wait` is where
/// interrupts are armed. [`AsFd`] gives the descriptor that becomes readable when `wait` would return, for callers that
/// watch several ports; it says nothing before `wait` has returned [`Wake::Deadline`] once since the last frame.
pub trait Netif: AsFd {
    /// Returns the port's own address.
    fn mac(&self) -> MacAddr;

    /// Returns the longest payload in bytes, without the 14 bytes of Ethernet header. It was read once, when the port
    /// was opened.
    fn mtu(&self) -> usize;

    /// Returns the oldest frame that has arrived, or `None`. Never blocks; costs no system call where the
    /// implementation can help it. The frame is valid until the next call on this port.
    ///
    /// # Errors
    /// [`NetifError::Down`] when the port is gone or switched off and cannot deliver again by itself.
    fn poll_receive(&mut self) -> Result<Option<&[u8]>, NetifError>;

    /// Returns the part of the port that keeps several frames lent at once. `None`: it lends one.
    fn lender(&mut self) -> Option<&mut dyn FrameLender> {
        None
    }

    /// Says whether bulk data is expected from now on. A port with a bulk path polls it while data is expected, and
    /// otherwise only now and then.
    fn expect_bulk(&mut self, _expected: bool) {}

    /// Returns a second descriptor, to be watched like that of [`AsFd`] while bulk data is expected.
    fn bulk_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Allows direct transmit for frames of up to this many bytes from now on: they bypass queueing disciplines and
    /// listeners of this host ([`Interface::egress_is_bare`]). With 0, the initial value, none are allowed. Does
    /// nothing where the port has no direct transmit.
    fn limit_direct(&mut self, _frame_len_max: usize) {}

    /// Sends one frame made of `parts`. `Ok(false)`: the port is full and took nothing; wait for [`Interest::Send`].
    ///
    /// # Errors
    /// [`NetifError::FrameTooLong`], [`NetifError::Down`], [`NetifError::Io`]; the frame was not taken.
    fn send(&mut self, parts: &[IoSlice<'_>]) -> Result<bool, NetifError> {
        Ok(self.send_burst(&[parts])? == 1)
    }

    /// Sends frames, each made of parts, in order and in one system call or doorbell; returns how many from the front
    /// were taken. At most [`BURST_MAX`] are taken; fewer when the port is full.
    ///
    /// # Errors
    /// As [`Netif::send`], when the first frame of `frames` could not be taken because of it. When a later one is at
    /// fault, those before it are taken and the error comes with the next call.
    fn send_burst(&mut self, frames: &[&[IoSlice<'_>]]) -> Result<usize, NetifError>;

    /// Sleeps until there is something to do: a frame to receive or room to send (as `interest` says), `deadline`, or
    /// `stop` readable. `stop` is checked first, a deadline in the past makes it a check. Signals do not end it.
    ///
    /// # Errors
    /// [`NetifError::Down`] as for [`Netif::poll_receive`].
    fn wait(&mut self, interest: Interest, deadline: Instant, stop: Option<BorrowedFd<'_>>)
    -> Result<Wake, NetifError>;

    /// Returns the counts of this port since it was opened.
    fn counters(&mut self) -> NetifCounters;
}

/// A port that keeps frames lent beyond the next call, so that something else than the processor can read them meanwhile
/// (papers.md M-OM-A).
///
/// # Safety
/// The bytes of a kept frame stay where they are, can be read, and are not written to until [`FrameLender::release`] gives the
/// frame back or the port is dropped, wherever the port itself is moved.
pub unsafe trait FrameLender {
    /// Returns how many frames can be kept at once. The limit leaves the port enough buffers to receive the next ones.
    fn kept_max(&self) -> usize;

    /// Keeps the frame that the last [`Netif::poll_receive`] returned, until it is released. `false`: as many are kept
    /// already as can be, or there is no such frame, and it goes back with the next call.
    fn keep(&mut self) -> bool;

    /// Whether a caller can sleep while these frames are kept. If not, [`Netif::wait`] and the port's descriptors may say that there
    /// is a frame where there is none until they are released.
    fn may_wait(&self) -> bool;

    /// Gives the `count` frames back that were kept first.
    fn release(&mut self, count: usize);

    /// Returns the memory in which kept frames lie, whole pages that stay where they are until the port is dropped: for engines that
    /// must know memory beforehand. By default it is not known, and such an engine copies none of these frames.
    fn memory(&self) -> Vec<LentMemory> {
        Vec::new()
    }
}

/// A part of the memory in which a port lends frames.
#[derive(Clone, Copy, Debug)]
pub struct LentMemory {
    /// The first byte; a page begins there.
    pub base: NonNull<u8>,
    /// Bytes, whole pages.
    pub len: usize,
}

/// What [`Netif::wait`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// A frame to receive.
    Receive,
    /// Room to send.
    Send,
    /// Either.
    Both,
}

impl Interest {
    const fn receive(self) -> bool {
        matches!(self, Self::Receive | Self::Both)
    }

    const fn send(self) -> bool {
        matches!(self, Self::Send | Self::Both)
    }
}

/// Why [`Netif::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// What was waited for may be there; it is not promised.
    Ready,
    /// The caller's descriptor became readable.
    Stop,
    /// The deadline passed.
    Deadline,
}

/// Counts of one port; all wrap at 2⁶⁴, which is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetifCounters {
    /// Frames handed to the caller.
    pub received: u64,
    /// Frames taken for sending.
    pub sent: u64,
    /// Of these, frames that were handed directly to the driver.
    pub sent_direct: u64,
    /// Frames that arrived while all receive buffers were in use; they are lost.
    pub dropped_no_buffer: u64,
    /// Frames longer than a receive buffer (the MTU was raised after opening); they are lost.
    pub dropped_too_long: u64,
    /// Frames for other stations, left out.
    pub skipped: u64,
}

/// Waits on the descriptors of a port, as every implementation of [`Netif::wait`] does.
fn wait_for(
    ports: &[(BorrowedFd<'_>, rustix::event::PollFlags)],
    deadline: Instant,
    stop: Option<BorrowedFd<'_>>,
) -> Result<ready::Readiness, NetifError> {
    ready::poll(ports, deadline, stop).map_err(NetifError::io("wait for frames"))
}
