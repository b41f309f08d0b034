//! Frames with a head that the kernel keeps outside their pages.
//!
//! The kernel puts a packet socket's frame that is longer than a page into pages and leaves only the link header outside, so
//! that each load of a filter behind it copies its bytes out through a function. A socket with `PACKET_VNET_HDR` says before each
//! frame how much of it is a head (`hdr_len` of `struct virtio_net_hdr`); nothing else of that structure is used. Measured over
//! veth, frames of 9000 bytes that meet two filters with as many loads as an endpoint's and its authority's (kernel 6.18, 60
//! alternating rounds of each): 5.6 µs per frame with such heads, 6.0 without; without any filter 5.2 and 5.1.

use std::{
    io::{self, IoSlice},
    os::fd::BorrowedFd,
};

use super::socket;
use crate::BURST_MAX;

/// Bytes of `struct virtio_net_hdr`, before each frame that is sent, and before each in the receive ring.
pub(super) const HEAD_LEN: usize = 10;

/// Bytes of a frame that are its head: all headers of MXoE.
const FRAME_HEAD_LEN: u16 = 64;

/// No offload of any kind, and the head's length at `hdr_len`, in the order of this processor.
static HEAD: [u8; HEAD_LEN] = {
    let [low, high] = FRAME_HEAD_LEN.to_ne_bytes();
    [0, 0, low, high, 0, 0, 0, 0, 0, 0]
};
/// For frames that are shorter: they lie outside of pages anyway, and the kernel refuses a head longer than its frame.
static NO_HEAD: [u8; HEAD_LEN] = [0; HEAD_LEN];

/// What stands before the frame of these parts.
fn head_of(parts: &[IoSlice<'_>]) -> IoSlice<'static> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    IoSlice::new(if len < FRAME_HEAD_LEN.into() { &NO_HEAD } else { &HEAD })
}

/// Parts of one frame for which a send needs no memory.
const PARTS_MAX: usize = 7;

/// From now on a head stands before each frame. Before the ring is set up.
pub(super) fn enable(socket: BorrowedFd<'_>) -> io::Result<()> {
    socket::set_option(socket, libc::PACKET_VNET_HDR, &1_i32)
}

/// Whether [`enable`] was called for this socket, here or elsewhere.
pub(super) fn is_enabled(socket: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(socket::option(socket, libc::PACKET_VNET_HDR)? != 0)
}

/// As [`socket::send`].
pub(super) fn send(socket: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> io::Result<()> {
    if parts.len() > PARTS_MAX {
        return send_burst(socket, &[parts]).map(|_| ());
    }
    let mut with_head = [head_of(parts); 1 + PARTS_MAX];
    with_head[1..=parts.len()].copy_from_slice(parts);
    socket::send(socket, &with_head[..=parts.len()])
}

/// As [`socket::send_burst`].
pub(super) fn send_burst(socket: BorrowedFd<'_>, frames: &[&[IoSlice<'_>]]) -> io::Result<usize> {
    let frames = &frames[..frames.len().min(BURST_MAX)];
    let mut parts = Vec::with_capacity(frames.iter().map(|parts| 1 + parts.len()).sum());
    for frame in frames {
        parts.push(head_of(frame));
        parts.extend_from_slice(frame);
    }
    let mut rest = &parts[..];
    let mut with_heads = [&parts[..0]; BURST_MAX];
    for (place, frame) in with_heads.iter_mut().zip(frames) {
        (*place, rest) = rest.split_at(1 + frame.len());
    }
    socket::send_burst(socket, &with_heads[..frames.len()])
}
