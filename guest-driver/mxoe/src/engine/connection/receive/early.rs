//! Early packets, which are kept because an earlier one is missing (7.1): copies of frames, in lists by number, bounded
//! in count and bytes.

use alloc::{boxed::Box, vec::Vec};

use super::super::message::List;
use crate::engine::{
    seq::Seq,
    slab::{NIL, Slab},
};

/// A kept packet.
#[derive(Debug)]
pub(super) struct EarlyPacket {
    next: u32,
    previous: u32,
    seq: Seq,
    fragment: u8,
    frame: Box<[u8]>,
    len: u32,
}

/// The kept packets of an endpoint.
#[derive(Debug)]
pub(super) struct EarlyStore {
    packets: Slab<EarlyPacket>,
    bytes: u32,
    bytes_limit: u32,
    frame_len_max: usize,
    spare_small: Vec<Box<[u8]>>,
    spare_large: Vec<Box<[u8]>>,
    spare_bytes: usize,
}

/// This many bytes of buffers are kept for the next loss: light loss then allocates nothing.
const SPARE_BYTES_MAX: usize = 1 << 20;
/// Buffers are of two sizes, this and the longest frame's, so that small messages do not take whole frames.
const SMALL_BUFFER_LEN: usize = 256;

impl EarlyStore {
    pub(super) const fn new(packets_limit: u32, bytes_limit: u32, frame_len_max: usize) -> Self {
        Self {
            packets: Slab::new(packets_limit),
            bytes: 0,
            bytes_limit,
            frame_len_max,
            spare_small: Vec::new(),
            spare_large: Vec::new(),
            spare_bytes: 0,
        }
    }

    /// Keeps a frame in its place: by number counted from `base`, then fragment.
    pub(super) fn keep(&mut self, list: &mut List, base: Seq, seq: Seq, fragment: u8, frame: &[u8]) -> Kept {
        // Packets mostly come in order: the place is near the end.
        let mut after = list.tail;
        let key = (seq.since(base), fragment);
        while let Some(packet) = self.packets.get(after) {
            let there = (packet.seq.since(base), packet.fragment);
            if there == key {
                return Kept::Duplicate;
            }
            if there < key {
                break;
            }
            after = packet.previous;
        }
        if self.packets.is_full() || self.bytes.saturating_add(frame.len() as u32) > self.bytes_limit {
            return Kept::NoRoom;
        }
        let mut buffer = self.buffer(frame.len());
        buffer[..frame.len()].copy_from_slice(frame);
        self.bytes += buffer.len() as u32;
        let next = self.packets.get(after).map_or(list.head, |packet| packet.next);
        let Some(slot) = self.packets.insert(EarlyPacket {
            next,
            previous: after,
            seq,
            fragment,
            frame: buffer,
            len: frame.len() as u32,
        }) else {
            return Kept::NoRoom;
        };
        match self.packets.get_mut(after) {
            Some(packet) => packet.next = slot,
            None => list.head = slot,
        }
        match self.packets.get_mut(next) {
            Some(packet) => packet.previous = slot,
            None => list.tail = slot,
        }
        Kept::Yes
    }

    /// Returns the number of the first packet of a list.
    pub(super) fn first(&self, list: &List) -> Option<Seq> {
        self.packets.get(list.head).map(|packet| packet.seq)
    }

    /// Takes the first packet out: a buffer and how much of it is the frame. To be given back by [`EarlyStore::recycle`].
    pub(super) fn pop(&mut self, list: &mut List) -> Option<(Box<[u8]>, usize)> {
        let packet = self.packets.remove(list.head)?;
        list.head = packet.next;
        match self.packets.get_mut(packet.next) {
            Some(next) => next.previous = NIL,
            None => list.tail = NIL,
        }
        self.bytes -= packet.frame.len() as u32;
        Some((packet.frame, packet.len as usize))
    }

    /// Takes a frame back that [`EarlyStore::pop`] gave.
    pub(super) fn recycle(&mut self, frame: Box<[u8]>) {
        if self.spare_bytes + frame.len() <= SPARE_BYTES_MAX {
            self.spare_bytes += frame.len();
            if frame.len() <= SMALL_BUFFER_LEN {
                self.spare_small.push(frame);
            } else {
                self.spare_large.push(frame);
            }
        }
    }

    /// Forgets a whole list.
    pub(super) fn free_list(&mut self, head: u32) {
        let mut at = head;
        while let Some(packet) = self.packets.remove(at) {
            at = packet.next;
            self.bytes -= packet.frame.len() as u32;
            self.recycle(packet.frame);
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.packets.memory()
            + self.bytes as usize
            + self.spare_bytes
            + (self.spare_small.capacity() + self.spare_large.capacity()) * size_of::<Box<[u8]>>()
    }

    fn buffer(&mut self, len: usize) -> Box<[u8]> {
        let (spare, class_len) = if len <= SMALL_BUFFER_LEN {
            (&mut self.spare_small, SMALL_BUFFER_LEN)
        } else {
            (&mut self.spare_large, self.frame_len_max.max(len))
        };
        if let Some(buffer) = spare.pop_if(|buffer| buffer.len() >= len) {
            self.spare_bytes -= buffer.len();
            return buffer;
        }
        alloc::vec![0; class_len].into_boxed_slice()
    }
}

/// The fate of a packet that came early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Yes,
    Duplicate,
    NoRoom,
}
