//! What no sound driver does to its ring: any content at any place of it. Which nonsense is told is the tests' business.

use std::sync::atomic::{Ordering, fence};

use super::{Descriptor, DriverRing};

impl DriverRing {
    /// Writes avail entry `slot` (modulo the size) without moving the index.
    pub fn raw_avail_entry(&self, slot: u16, value: u16) {
        let at = 4 + 2 * u64::from(slot & (self.size() - 1));
        self.memory().write(self.addresses().1 + at, &value.to_le_bytes());
    }

    /// Writes the avail index.
    pub fn raw_avail_idx(&self, value: u16) {
        self.memory().write(self.addresses().1 + 2, &value.to_le_bytes());
    }

    /// Writes the avail flags.
    pub fn raw_avail_flags(&self, value: u16) {
        self.memory().write(self.addresses().1, &value.to_le_bytes());
    }

    /// Writes used_event.
    pub fn raw_used_event(&self, value: u16) {
        let at = 4 + 2 * u64::from(self.size());
        self.memory().write(self.addresses().1 + at, &value.to_le_bytes());
    }

    /// Writes the used index, which belongs to the device.
    pub fn raw_used_idx(&self, value: u16) {
        self.memory().write(self.addresses().2 + 2, &value.to_le_bytes());
    }

    /// Writes `chain` to descriptors 0, 1, … as it is, makes `heads` available after the `start` entries before them,
    /// and kicks.
    pub fn raw_post(&mut self, start: u16, chain: &[Descriptor], heads: &[u16]) {
        for (index, descriptor) in chain.iter().enumerate() {
            self.write_descriptor(index as u16, *descriptor);
        }
        for (index, head) in heads.iter().enumerate() {
            self.raw_avail_entry(start.wrapping_add(index as u16), *head);
        }
        fence(Ordering::SeqCst);
        self.raw_avail_idx(start.wrapping_add(heads.len() as u16));
        self.kick();
    }
}
