//! What a card must do with a ring, written a second time from the rules' meaning (virtio 1.2, 2.7; `docs/spec/control-socket.md`) and without
//! the daemon's code: the judge of generated rings. It reads the guest's memory as the device would, once the ring is written.

use weft_vnic_testkit::{DESC_INDIRECT, DESC_NEXT, DESC_WRITE, Descriptor, GuestMemory, HEADER_LEN, MEMORY_BASE};

use crate::attacks::{Attack, RX};

/// Length of a descriptor in memory.
const DESC_LEN: u64 = 16;
/// Shortest frame: an Ethernet header.
const FRAME_LEN_MIN: u64 = 14;
/// Longest plain frame of a port with the default MTU: 9000 bytes, an Ethernet header and two VLAN tags.
const FRAME_LEN_MAX: u64 = 9000 + 22;

/// What must become of one chain of a transmit ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Its frame is switched.
    Sent,
    /// Its frame is dropped and counted: shorter than an Ethernet header.
    Runt,
    /// Its frame is dropped and counted: longer than the MTU allows.
    TooLong,
    /// Its frame is dropped and counted: it asks for an offload that was not negotiated.
    BadOffload,
    /// The port fails by this rule, and takes nothing from there on.
    Breaks(&'static str),
}

/// A guest's memory and the descriptor table of the ring that is judged.
pub struct Model<'a> {
    pub memory: &'a GuestMemory,
    pub table: u64,
    pub ring_size: u16,
}

impl Model<'_> {
    fn has(&self, addr: u64, len: u64) -> bool {
        let end = MEMORY_BASE + self.memory.len() as u64;
        len == 0 || addr >= MEMORY_BASE && addr <= end && len <= end - addr
    }

    fn descriptor(&self, table: u64, index: u64) -> Descriptor {
        let mut bytes = [0; DESC_LEN as usize];
        self.memory.read(table + DESC_LEN * index, &mut bytes);
        let [a, b] = [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte])));
        Descriptor {
            addr: a,
            len: b as u32,
            flags: (b >> 32) as u16,
            next: (b >> 48) as u16,
        }
    }

    /// The buffers of the chain at `head`, as address and length, or the rule that it breaks.
    pub fn chain(&self, head: u16, vring: usize) -> Result<Vec<(u64, u64)>, &'static str> {
        let ring_size = u64::from(self.ring_size);
        if u64::from(head) >= ring_size {
            return Err("head_out_of_range");
        }
        let (mut table, mut entries, mut in_table) = (self.table, ring_size, false);
        let mut descriptor = self.descriptor(table, u64::from(head));
        let mut buffers = Vec::new();
        // As many descriptors as the ring has, and the one that leads to a table.
        for _ in 0..=ring_size {
            let Descriptor { addr, len, flags, next } = descriptor;
            let len = u64::from(len);
            if flags & DESC_INDIRECT != 0 {
                if in_table || flags & DESC_NEXT != 0 {
                    return Err("indirect_nested");
                }
                if len == 0 || len % DESC_LEN != 0 || len > DESC_LEN * ring_size {
                    return Err("indirect_length");
                }
                if addr.checked_add(len).is_none() || !self.has(addr, len) {
                    return Err("indirect_outside_memory");
                }
                (table, entries, in_table) = (addr, len / DESC_LEN, true);
                descriptor = self.descriptor(table, 0);
                continue;
            }
            match (vring == RX, flags & DESC_WRITE != 0) {
                (true, false) => return Err("read_only_in_receive"),
                (false, true) => return Err("writable_in_transmit"),
                _ => {}
            }
            if addr.checked_add(len).is_none() {
                return Err("length_wraps");
            }
            if !self.has(addr, len) {
                return Err("buffer_outside_memory");
            }
            buffers.push((addr, len));
            if flags & DESC_NEXT == 0 {
                return Ok(buffers);
            }
            if u64::from(next) >= entries {
                return Err("next_out_of_range");
            }
            descriptor = self.descriptor(table, u64::from(next));
        }
        Err("chain_too_long")
    }

    /// What must become of the transmit chain at `head`.
    fn sent(&self, head: u16, vring: usize) -> Outcome {
        let buffers = match self.chain(head, vring) {
            Ok(buffers) => buffers,
            Err(rule) => return Outcome::Breaks(rule),
        };
        let total: u64 = buffers.iter().map(|(_, len)| len).sum();
        let Some(frame_len) = total.checked_sub(HEADER_LEN as u64) else {
            return Outcome::Breaks("transmit_header_too_short");
        };
        let mut bytes = buffers.iter().flat_map(|&(addr, len)| addr..addr + len);
        let mut byte = || {
            let mut byte = [0];
            self.memory.read(bytes.next().expect("a header"), &mut byte);
            byte[0]
        };
        // Needs a checksum; is segmented.
        let asks = [byte() & 1 != 0, byte() != 0].contains(&true);
        match frame_len {
            ..FRAME_LEN_MIN => Outcome::Runt,
            _ if asks => Outcome::BadOffload,
            _ if frame_len > FRAME_LEN_MAX => Outcome::TooLong,
            _ => Outcome::Sent,
        }
    }

    /// What must become of each chain of a transmit ring, in order; nothing behind one that breaks a rule.
    pub fn transmit(&self, attack: &Attack) -> Vec<Outcome> {
        if attack.avail_jump.is_some() {
            return vec![Outcome::Breaks("avail_index_jump")];
        }
        let mut outcomes = Vec::new();
        for head in &attack.heads {
            let outcome = self.sent(*head, attack.vring);
            outcomes.push(outcome);
            if matches!(outcome, Outcome::Breaks(_)) {
                break;
            }
        }
        outcomes
    }

    /// The rules that the chains of a receive ring break. Which of them is found first is the device's choice: how far it reads
    /// ahead is no promise.
    pub fn receive(&self, attack: &Attack) -> Vec<&'static str> {
        if attack.avail_jump.is_some() {
            return vec!["avail_index_jump"];
        }
        let broken = attack
            .heads
            .iter()
            .filter_map(|head| match self.chain(*head, attack.vring) {
                Ok(buffers) => {
                    let capacity: u64 = buffers.iter().map(|(_, len)| len).sum();
                    (capacity < HEADER_LEN as u64).then_some("receive_buffer_too_short")
                }
                Err(rule) => Some(rule),
            });
        broken.collect()
    }
}
