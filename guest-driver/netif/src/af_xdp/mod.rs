//! Direct transmit: frames are handed directly to an interface's driver, by AF_XDP sockets that only send, in copy
//! mode.
//!
//! A packet socket takes a frame through the kernel's layers for packets of any protocol: its message and its parts are copied in one by
//! one, its headers are dissected, queueing disciplines and their bypasses are asked. An AF_XDP socket copies the frame from memory that
//! the kernel knows already, and calls the driver. Measured over veth (kernel 6.18, one core on each side, 41 alternating rounds of 30,000
//! frames in bursts of 32, to a packet socket without a ring): a frame of 1514 bytes takes 0.70 of the time (0.66 … 0.72), one of 174
//! bytes 0.66 (0.64 … 0.67).
//!
//! Receiving stays with packet sockets: an AF_XDP socket receives through a program in the driver, which is slower over veth and takes
//! all frames of a queue. No program is loaded for sending.
//!
//! A queue of an interface belongs to one memory for frames, so sockets that use it share that memory ([`DirectPool`]),
//! and each owns a part of it. A process that has such a socket can make the kernel send the contents of other parts,
//! so all of them belong to one user. Frames are copied while the system call lasts (not for every driver:
//! [`DirectPool::copies_frames_of`]), so completed frames only have to be taken back from the
//! kernel, by the process that sends next.
//!
//! Such frames bypass queueing disciplines and programs that listen to what the interface sends (`tcpdump`). So direct
//! transmit is used only while there is nothing of the kind ([`crate::Interface::egress_is_bare`]).

mod pool;
mod socket;

pub use pool::{DirectPool, PreparedDirect};
pub(crate) use socket::Direct;

/// The size of a place for a frame, and the length of the longest frame that direct transmit takes. The kernel wants a
/// power of two, at least this one.
pub(crate) const FRAME_LEN_MAX: usize = 2048;
/// Frames that a socket has places for: as many as the kernel takes at one call.
const FRAMES: usize = 32;
/// Bytes of a socket's part of the memory.
const PART_LEN: usize = FRAMES * FRAME_LEN_MAX;
/// Entries of a socket's ring: a call's frames, and those of one that did not succeed.
const RING_ENTRIES: u32 = 2 * FRAMES as u32;
