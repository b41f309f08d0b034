//! Frames handed straight to an interface's driver, by AF_XDP sockets that only send, in copy mode.
//!
//! A packet socket takes a frame through the kernel's layers for packets of any protocol: its message and its parts are copied in one by
//! one, its headers are dissected, queueing disciplines and their bypasses are asked. An AF_XDP socket copies the frame from memory that
//! the kernel knows already, and calls the driver. Measured over veth (kernel 6.18, one core on each side, 41 alternating runs of 30,000
//! frames in bursts of 32, to a packet socket without a ring): a frame of 1514 bytes takes 0.70 of the time (0.66 … 0.72), one of 174
//! bytes 0.66 (0.64 … 0.67).
//!
//! Receiving stays with packet sockets: an AF_XDP socket receives through a program in the driver, which is slower over veth and takes
//! all frames of a queue. No program is loaded for sending.
//!
//! A queue of an interface belongs to one memory for frames, so sockets that are to use it have it in common ([`DirectPool`]); each has a
//! part of its own. Whoever has such a socket can let the kernel send what lies in others' parts, so they belong to one user. Frames are
//! copied while the system call lasts (not for every driver: [`crate::Interface::copies_frames_of_direct_pools`]), so what the kernel says
//! of completed frames is only taken back, by whoever of the owners comes next.
//!
//! What such frames pass by: queueing disciplines, and whoever listens to what the interface sends (`tcpdump`). So they are sent this way
//! only while there is nothing of the kind ([`crate::Interface::egress_is_bare`]).

mod pool;
mod socket;

pub use pool::{DirectPool, PreparedDirect};
pub(crate) use socket::Direct;

/// Bytes of a place for a frame, and of the longest that is sent this way; the kernel wants a power of two, at least this one.
pub(crate) const FRAME_LEN_MAX: usize = 2048;
/// Frames that a socket has places for: as many as the kernel takes at one call.
const FRAMES: usize = 32;
/// Bytes of a socket's part of the memory.
const PART_LEN: usize = FRAMES * FRAME_LEN_MAX;
/// Entries of a socket's ring: a call's frames, and those of one that did not succeed.
const RING_ENTRIES: u32 = 2 * FRAMES as u32;
