//! What a guest of the rig needs to keep a record for its card: its memory, and how far its card is.

use std::sync::Arc;

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

use super::ring::USED;
use super::{Guest, Rig, address};
use crate::dataplane::rig::iommu::PAGE;

impl Rig {
    /// The memory of a guest, as its driver sees it.
    pub fn guest_memory(&self, guest: usize) -> &GuestMemoryMmap {
        &self.guests[guest].memory
    }

    /// The used index of the receive ring of a guest.
    pub fn next_used(&self, guest: usize) -> u16 {
        let Guest { memory, rx, .. } = &self.guests[guest];
        memory.read_obj(address(rx.base + USED + 2)).expect("in memory")
    }

    /// Where the page ends that the receive ring's used index is in.
    pub fn indices_page_end(&self, guest: usize) -> u64 {
        self.guests[guest].rx.base + USED + PAGE as u64
    }

    /// Shares a page of memory more with the card of a guest.
    pub fn share_page(&mut self, guest: usize, at: u64) {
        let region = MmapRegion::new(PAGE).expect("memory");
        let region = GuestRegionMmap::new(region, GuestAddress(at)).expect("a region");
        let more = self.guests[guest].memory.insert_region(Arc::new(region));
        self.replace_memory(guest, more.expect("memory beside the other"));
    }

    /// Shares a page no more that was shared so.
    pub fn unshare_page(&mut self, guest: usize, at: u64) {
        let less = self.guests[guest].memory.remove_region(GuestAddress(at), PAGE as u64);
        self.replace_memory(guest, less.expect("a region").0);
    }

    fn replace_memory(&mut self, guest: usize, memory: GuestMemoryMmap) {
        let (memory, now) = (Arc::new(memory), self.now);
        self.guests[guest].memory = Arc::clone(&memory);
        self.plane.card(guest).set_memory(memory, now);
    }
}
