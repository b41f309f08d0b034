//! What the drivers of the guests do at their rings.

use vhost_user_backend::VringT;
use vm_memory::Bytes;

use super::ring::{AVAILABLE, DESCRIPTORS, USED, address};
use super::{BUFFER, Guest, RING, Rig};
use crate::offload::NET_HEADER_LEN;

impl Rig {
    /// Posts receive buffer `index` of `guest`.
    pub fn post(&mut self, guest: usize, index: u16) {
        let Guest { memory, rx, .. } = &mut self.guests[guest];
        rx.descriptor(memory, index, BUFFER, 2);
        rx.make_available(memory, index);
    }

    /// Puts a frame with this virtio-net header on the transmit ring of `guest`, from its buffer `index`.
    pub fn send_with_header(&mut self, guest: usize, index: u16, header: &[u8], frame: &[u8]) {
        let Guest { memory, tx, .. } = &mut self.guests[guest];
        let at = tx.buffers + u64::from(index) * BUFFER as u64;
        memory.write_slice(header, address(at)).expect("in memory");
        memory
            .write_slice(frame, address(at + header.len() as u64))
            .expect("in memory");
        tx.descriptor(memory, index, header.len() + frame.len(), 0);
        tx.make_available(memory, index);
    }

    /// Puts a plain frame of any length on the transmit ring of `guest`, as a chain of buffers from `first` on.
    pub fn send_long(&mut self, guest: usize, first: u16, frame: &[u8]) {
        self.send_long_with_header(guest, first, &[0; NET_HEADER_LEN], frame);
    }

    /// As [`send_long`](Self::send_long), with this virtio-net header.
    pub fn send_long_with_header(&mut self, guest: usize, first: u16, header: &[u8; NET_HEADER_LEN], frame: &[u8]) {
        let Guest { memory, tx, .. } = &mut self.guests[guest];
        let bytes: Vec<u8> = header.iter().chain(frame).copied().collect();
        let pieces = bytes.chunks(BUFFER);
        let last = first + pieces.len() as u16 - 1;
        for (index, piece) in (first..).zip(pieces) {
            let at = tx.buffers + u64::from(index) * BUFFER as u64;
            memory.write_slice(piece, address(at)).expect("in memory");
            tx.descriptor(memory, index, piece.len(), u16::from(index != last));
            let next = tx.base + DESCRIPTORS + 16 * u64::from(index) + 14;
            memory.write_obj(index + 1, address(next)).expect("in memory");
        }
        tx.make_available(memory, first);
    }

    /// Puts a plain frame on the transmit ring of `guest`, from buffer `index`.
    pub fn send(&mut self, guest: usize, index: u16, frame: &[u8]) {
        self.send_with_header(guest, index, &[0; NET_HEADER_LEN], frame);
    }

    /// Takes what `guest` received: the virtio-net header and the frame of each packet, buffers of one packet joined.
    /// Buffers are posted again, and a call is wanted for the next packet.
    pub fn received(&mut self, guest: usize) -> Vec<([u8; NET_HEADER_LEN], Vec<u8>)> {
        let mut packets = Vec::new();
        let mut joining: Option<(u16, [u8; NET_HEADER_LEN], Vec<u8>)> = None;
        loop {
            let Guest { memory, rx, .. } = &mut self.guests[guest];
            let Some((index, len)) = rx.take_used(memory) else {
                break;
            };
            let mut bytes = vec![0; len as usize];
            let at = rx.buffers + u64::from(index) * BUFFER as u64;
            memory.read_slice(&mut bytes, address(at)).expect("in memory");
            self.post(guest, index);
            let (left, header, frame) = match joining.take() {
                None => {
                    let (header, frame) = bytes.split_first_chunk::<NET_HEADER_LEN>().expect("a header");
                    (u16::from_le_bytes([header[10], header[11]]), *header, frame.to_vec())
                }
                Some((left, header, mut frame)) => {
                    frame.extend_from_slice(&bytes);
                    (left, header, frame)
                }
            };
            if left > 1 {
                joining = Some((left - 1, header, frame));
            } else {
                packets.push((header, frame));
            }
        }
        let guest = &self.guests[guest];
        if guest.event_idx {
            guest.rx.want_call(&guest.memory);
        }
        packets
    }

    /// Takes what `guest` received, without joining buffers: the frame in each, or nothing where there is not even a header. Buffers
    /// are posted again.
    #[cfg(test)]
    pub fn received_or_empty(&mut self, guest: usize) -> Vec<Vec<u8>> {
        self.received_behind(guest, NET_HEADER_LEN)
    }

    /// As [`received_or_empty`](Self::received_or_empty), behind headers of `header_len` bytes.
    #[cfg(test)]
    pub fn received_behind(&mut self, guest: usize, header_len: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        loop {
            let Guest { memory, rx, .. } = &mut self.guests[guest];
            let Some((index, len)) = rx.take_used(memory) else {
                return frames;
            };
            let mut bytes = vec![0; len as usize];
            let at = rx.buffers + u64::from(index) * BUFFER as u64;
            memory.read_slice(&mut bytes, address(at)).expect("in memory");
            frames.push(bytes.split_off(bytes.len().min(header_len)));
            self.post(guest, index);
        }
    }

    /// Receive calls of `guest` since the last question, as its eventfd counted them.
    pub fn calls(&mut self, guest: usize) -> u64 {
        self.guests[guest].rx.calls()
    }

    /// True if the driver of `guest`, without EVENT_IDX, is asked to kick when it posts receive buffers.
    pub fn asked_for_refill_kicks(&self, guest: usize) -> bool {
        let Guest { memory, rx, .. } = &self.guests[guest];
        let flags: u16 = memory.read_obj(address(rx.base + USED)).expect("in memory");
        flags == 0
    }

    /// True if the driver of `guest` is asked to kick when it queues its next frame.
    pub fn asked_for_kicks(&self, guest: usize) -> bool {
        let Guest {
            memory, tx, event_idx, ..
        } = &self.guests[guest];
        let half = |at: u64| -> u16 { memory.read_obj(address(tx.base + at)).expect("in memory") };
        if *event_idx {
            half(USED + 4 + 8 * u64::from(RING)) == half(AVAILABLE + 2)
        } else {
            half(USED) == 0
        }
    }

    /// True if the driver of `guest` kicks now that it has queued `added` frames since it looked last.
    #[cfg(test)]
    pub fn would_kick(&self, guest: usize, added: u16) -> bool {
        let Guest {
            memory, tx, event_idx, ..
        } = &self.guests[guest];
        let half = |at: u64| -> u16 { memory.read_obj(address(tx.base + at)).expect("in memory") };
        if !*event_idx {
            return half(USED) == 0;
        }
        let event = half(USED + 4 + 8 * u64::from(RING));
        half(AVAILABLE + 2).wrapping_sub(event).wrapping_sub(1) < added
    }

    /// The kick of `guest` for frames that it queues, which does not block.
    #[cfg(test)]
    pub fn kick_of(&mut self, guest: usize) -> std::os::fd::OwnedFd {
        self.guests[guest].tx.kick()
    }

    /// Transmit chains that came back to `guest` since the last question.
    pub fn completed(&mut self, guest: usize) -> usize {
        let Guest { memory, tx, .. } = &mut self.guests[guest];
        std::iter::from_fn(|| tx.take_used(memory)).count()
    }

    /// Stops the receive ring of `guest`.
    #[cfg(test)]
    pub fn stop_receiving(&mut self, guest: usize) {
        self.plane.card(guest).stop_ring(0);
    }

    /// Starts the receive ring of `guest` again, where it stopped at `next_avail`, or empty and with all buffers posted anew.
    pub fn start_receiving(&mut self, guest: usize, next_avail: Option<u16>) {
        let Guest { memory, rx, .. } = &mut self.guests[guest];
        if next_avail.is_none() {
            rx.reset(memory);
        }
        rx.vring.set_queue_next_avail(next_avail.unwrap_or(0));
        let started = self.plane.card(guest).start_ring(0, &rx.vring, self.now);
        started.expect("a good ring");
        if next_avail.is_none() {
            (0..RING).for_each(|index| self.post(guest, index));
        }
    }

    /// Stops the transmit ring of `guest` and starts it empty.
    #[cfg(test)]
    pub fn restart_transmitting(&mut self, guest: usize) {
        self.plane.card(guest).stop_ring(1);
        let Guest { memory, tx, .. } = &mut self.guests[guest];
        tx.reset(memory);
        tx.vring.set_queue_next_avail(0);
        let started = self.plane.card(guest).start_ring(1, &tx.vring, self.now);
        started.expect("a good ring");
    }

    /// Another driver takes the rings of `guest` over as they are, which negotiates exactly these `features`.
    #[cfg(test)]
    pub fn change_driver(&mut self, guest: usize, features: u64) {
        self.plane.card(guest).set_features(features);
        self.restart_rings(guest, 0);
    }

    /// Stops both rings of `guest` and starts them as they are, with `base` given as where to go on.
    #[cfg(test)]
    pub fn restart_rings(&mut self, guest: usize, base: u16) {
        for index in 0..2 {
            self.plane.card(guest).stop_ring(index);
            let Guest { rx, tx, .. } = &self.guests[guest];
            let vring = &[rx, tx][index].vring;
            vring.set_queue_next_avail(base);
            let started = self.plane.card(guest).start_ring(index, vring, self.now);
            started.expect("a good ring");
        }
    }

    /// Posts receive buffers of `guest` whose chains have `pieces` pieces of one byte, or 12 in the first.
    #[cfg(test)]
    pub fn post_scattered(&mut self, guest: usize, heads: std::ops::Range<u16>, pieces: u16) {
        const TABLES: u64 = 2 << 20;
        let Guest { memory, rx, .. } = &mut self.guests[guest];
        for head in heads {
            let table = TABLES + 0x1000 * u64::from(head);
            for index in 0..pieces {
                let len = if index == 0 { NET_HEADER_LEN } else { 1 };
                let flags = if index + 1 < pieces { 3 } else { 2 };
                let words = [rx.buffers, len as u64 | flags << 32 | u64::from(index + 1) << 48];
                memory
                    .write_obj(words, address(table + 16 * u64::from(index)))
                    .expect("in memory");
            }
            let words = [table, u64::from(16 * pieces) | 4 << 32];
            let at = rx.base + DESCRIPTORS + 16 * u64::from(head);
            memory.write_obj(words, address(at)).expect("in memory");
            rx.make_available(memory, head);
        }
    }

    /// Makes every receive buffer of `guest` one that the device may not write.
    #[cfg(test)]
    pub fn make_receive_buffers_read_only(&mut self, guest: usize) {
        let Guest { memory, rx, .. } = &self.guests[guest];
        (0..RING).for_each(|index| rx.descriptor(memory, index, BUFFER, 0));
    }
}
