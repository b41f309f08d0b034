//! Frames with a head that the kernel keeps outside their pages.
//!
//! The kernel puts a packet socket's frame that is longer than a page into pages and leaves only the link header outside, so
//! that each load of a filter behind it copies its bytes out through a function, and a frame of 9000 bytes takes two pieces of pages,
//! of two and of one. A socket with `PACKET_VNET_HDR` says before each frame how much of it is a head (`hdr_len` of `struct
//! virtio_net_hdr`); nothing else of that structure is used. The head is chosen so that the rest is one piece: memory that the
//! receiver's core gives back and the sender's asks for again is what such frames cost most. Measured over veth (kernel 6.18): 4 MiB
//! with heads that leave one piece take 0.90 of the time that they take with heads of 64 bytes (12 alternating rounds); frames that
//! pass two filters with as many loads as an endpoint's and its authority's take 5.6 µs with heads of 64 bytes and 6.0 without, and
//! without any filter 5.2 and 5.1 (60 rounds).

use std::{
    io::{self, IoSlice},
    os::fd::BorrowedFd,
};

use super::socket;
use crate::BURST_MAX;

/// Bytes of `struct virtio_net_hdr`, before each frame that is sent, and before each in the receive ring.
pub(super) const HEAD_LEN: usize = 10;

/// Bytes of a frame that are its head at least: all headers of MXoE.
const FRAME_HEAD_LEN: usize = 64;
/// And at most, so that the kernel finds memory for it as easily as for a frame of usual length.
const FRAME_HEAD_LEN_MAX: usize = 1500;
/// What is shorter lies outside of pages anyway.
const PAGE_LEN: usize = 4096;

/// What stands before a frame: `struct virtio_net_hdr` without any offload.
type Head = [u8; HEAD_LEN];

/// Returns how many bytes of a frame of `len` bytes are its head, so that the remaining bytes fill as few pieces of
/// memory as possible: the kernel takes these in powers of two of pages. 0 leaves it to the kernel.
const fn head_len(len: usize) -> usize {
    if len < PAGE_LEN {
        return 0;
    }
    let rest = len - FRAME_HEAD_LEN;
    let whole = if rest < PAGE_LEN { 0 } else { 1 << rest.ilog2() };
    if whole > 0 && len - whole <= FRAME_HEAD_LEN_MAX {
        len - whole
    } else {
        FRAME_HEAD_LEN
    }
}

/// Returns the bytes before the frame of these parts, in the order of this processor.
fn head_of(parts: &[IoSlice<'_>]) -> Head {
    let len = parts.iter().map(|part| part.len()).sum();
    // Where it does not fit (the MTU of loopback may be longer), the head is merely shorter than it could be.
    let [low, high] = (head_len(len) as u16).to_ne_bytes();
    [0, 0, low, high, 0, 0, 0, 0, 0, 0]
}

/// Parts of one frame for which a send needs no memory.
const PARTS_MAX: usize = 7;

/// Makes a head stand before each frame. It is called before the ring is set up.
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
    let head = head_of(parts);
    let mut with_head = [IoSlice::new(&head); 1 + PARTS_MAX];
    with_head[1..=parts.len()].copy_from_slice(parts);
    socket::send(socket, &with_head[..=parts.len()])
}

/// As [`socket::send_burst`].
pub(super) fn send_burst(socket: BorrowedFd<'_>, frames: &[&[IoSlice<'_>]]) -> io::Result<usize> {
    let frames = &frames[..frames.len().min(BURST_MAX)];
    let mut heads = [[0; HEAD_LEN]; BURST_MAX];
    let mut parts = Vec::with_capacity(frames.iter().map(|parts| 1 + parts.len()).sum());
    for (head, frame) in heads.iter_mut().zip(frames) {
        *head = head_of(frame);
        parts.push(IoSlice::new(head));
        parts.extend_from_slice(frame);
    }
    let mut rest = &parts[..];
    let mut with_heads = [&parts[..0]; BURST_MAX];
    for (place, frame) in with_heads.iter_mut().zip(frames) {
        (*place, rest) = rest.split_at(1 + frame.len());
    }
    socket::send_burst(socket, &with_heads[..frames.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_frame_has_a_head_with_all_headers_that_leaves_one_piece_of_pages_if_it_stays_short() {
        for (len, head) in [
            (60, 0),
            (1514, 0),
            (4095, 0),
            (4096, 64),
            (4160, 64),
            (4161, 65),
            (5596, 1500),
            (5597, 64),
            (8255, 64),
            (8256, 64),
            (9014, 822),
            (9018, 826),
            (16_400, 64),
            (65_535, 64),
        ] {
            assert_eq!(head_len(len), head, "{len}");
        }
    }
}
