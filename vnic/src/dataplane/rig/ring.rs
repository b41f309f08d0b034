//! One ring of a guest of the rig as its driver writes and reads it in the guest's memory, with the eventfd it is called by.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use vhost_user_backend::VringT;
use vm_memory::{Bytes, GuestAddress, GuestMemoryAtomic, GuestMemoryMmap};

use super::{BUFFER, RING};
use crate::session::SessionVring;

pub(super) const DESCRIPTORS: u64 = 0;
pub(super) const AVAILABLE: u64 = 0x2000;
pub(super) const USED: u64 = 0x3000;

/// One direction's ring as its driver sees it: descriptor `n` always belongs to buffer `n`.
pub(super) struct DriverRing {
    pub(super) base: u64,
    pub(super) buffers: u64,
    available: u16,
    used: u16,
    call: File,
    pub(super) vring: SessionVring,
}

pub(super) fn address<T: TryInto<u64>>(at: T) -> GuestAddress {
    GuestAddress(at.try_into().unwrap_or(u64::MAX))
}

impl DriverRing {
    pub(super) fn new(memory: &Arc<GuestMemoryMmap>, base: u64, buffers: u64) -> Self {
        let vring = SessionVring::new(GuestMemoryAtomic::from(memory.clone()), RING).expect("a vring");
        vring.set_queue_size(RING);
        vring
            .set_queue_info(base + DESCRIPTORS, base + AVAILABLE, base + USED)
            .expect("ring addresses");
        vring.set_queue_ready(true);
        vring.set_enabled(true);
        let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        let ours: OwnedFd = call.as_fd().try_clone_to_owned().expect("a second descriptor");
        vring.set_call(Some(File::from(ours)));
        Self {
            base,
            buffers,
            available: 0,
            used: 0,
            call: File::from(call),
            vring,
        }
    }

    /// A kick eventfd that does not block, the ring's from now on.
    #[cfg(test)]
    pub(super) fn kick(&self) -> OwnedFd {
        let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        let ours = kick.try_clone().expect("a second descriptor");
        self.vring.set_kick(Some(File::from(ours)));
        kick
    }

    pub(super) fn descriptor(&self, memory: &GuestMemoryMmap, index: u16, len: usize, flags: u16) {
        let addr = self.buffers + u64::from(index) * BUFFER as u64;
        let at = self.base + DESCRIPTORS + 16 * u64::from(index);
        let write = |offset: u64, bytes: &[u8]| memory.write_slice(bytes, address(at + offset)).expect("in memory");
        write(0, &addr.to_le_bytes());
        write(8, &(len as u32).to_le_bytes());
        write(12, &flags.to_le_bytes());
        write(14, &[0, 0]);
    }

    pub(super) fn make_available(&mut self, memory: &GuestMemoryMmap, index: u16) {
        let slot = u64::from(self.available % RING);
        memory
            .write_obj(index, address(self.base + AVAILABLE + 4 + 2 * slot))
            .expect("in memory");
        self.available = self.available.wrapping_add(1);
        memory
            .write_obj(self.available, address(self.base + AVAILABLE + 2))
            .expect("in memory");
    }

    /// Empties the ring, as a driver does that starts anew.
    pub(super) fn reset(&mut self, memory: &GuestMemoryMmap) {
        (self.available, self.used) = (0, 0);
        for index in [AVAILABLE, USED] {
            memory
                .write_obj(0u16, address(self.base + index + 2))
                .expect("in memory");
        }
    }

    /// The next used entry: descriptor and length.
    pub(super) fn take_used(&mut self, memory: &GuestMemoryMmap) -> Option<(u16, u32)> {
        let published: u16 = memory.read_obj(address(self.base + USED + 2)).expect("in memory");
        if published == self.used {
            return None;
        }
        let slot = u64::from(self.used % RING);
        let entry: [u32; 2] = [0, 4].map(|part| {
            memory
                .read_obj(address(self.base + USED + 4 + 8 * slot + part))
                .expect("in memory")
        });
        self.used = self.used.wrapping_add(1);
        Some((entry[0] as u16, entry[1]))
    }

    /// Asks for a call when the next entry is used (EVENT_IDX).
    pub(super) fn want_call(&self, memory: &GuestMemoryMmap) {
        self.want_call_after(memory, 0);
    }

    fn want_call_after(&self, memory: &GuestMemoryMmap, entries: u16) {
        let at = self.base + AVAILABLE + 4 + 2 * u64::from(RING);
        let event = self.used.wrapping_add(entries);
        memory.write_obj(event, address(at)).expect("in memory");
    }

    pub(super) fn calls(&mut self) -> u64 {
        let mut bytes = [0; 8];
        match self.call.read(&mut bytes) {
            Ok(8) => u64::from_ne_bytes(bytes),
            _ => 0,
        }
    }
}

#[cfg(test)]
impl super::Rig {
    /// Says for a driver without EVENT_IDX whether it wants no calls for received packets.
    pub fn want_no_calls(&mut self, guest: usize, none: bool) {
        let super::Guest { memory, rx, .. } = &self.guests[guest];
        memory
            .write_obj(u16::from(none), address(rx.base + AVAILABLE))
            .expect("in memory");
    }

    /// Says for a driver with EVENT_IDX that it wants a call for the packet behind the next so many entries.
    pub fn want_call_after(&mut self, guest: usize, entries: u16) {
        let super::Guest { memory, rx, .. } = &self.guests[guest];
        rx.want_call_after(memory, entries);
    }
}
