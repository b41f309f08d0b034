//! A guest of the rig behind an IOMMU of its own, every page of which lies somewhere else in the memory that it shares.
//!
//! The card sees the memory through a mapping of its own, in which a page cannot be touched while the frontend has not
//! translated an address to it: an access by a translation that is gone ends the test's process with a signal.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect};
use vhost_user_backend::VringT;
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vnicd_protocol::PortSettings;

use super::ring::{AVAILABLE, DESCRIPTORS, USED};
use super::{BUFFER, Guest, MEMORY, RING, RING_SPACE, Rig, address};
use crate::memory::{Access, Mapping, Miss, Misses, Permission};
use crate::offload::NET_HEADER_LEN;
use crate::ring::RingAddresses;
use crate::session::TranslationChange;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Pages of the guest, whose driver uses their numbers in I/O addresses.
pub const PAGES: usize = MEMORY / PAGE;
/// Pages of the file behind it: as many again are free, to move pages to.
const FILE_PAGES: usize = 2 * PAGES;
/// Where the card's memory begins in guest addresses.
const GUEST_BASE: u64 = 1 << 32;

impl Rig {
    /// Puts a frame on the transmit ring of `guest` by descriptor `index`, from any place in its memory.
    pub fn send_from_place(&mut self, guest: usize, index: u16, at: u64, frame: &[u8]) {
        let Guest { memory, tx, .. } = &mut self.guests[guest];
        let bytes: Vec<u8> = [0; NET_HEADER_LEN].iter().chain(frame).copied().collect();
        memory.write_slice(&bytes, address(at)).expect("in memory");
        tx.descriptor(memory, index, bytes.len(), 0);
        let descriptor = tx.base + DESCRIPTORS + 16 * u64::from(index);
        memory.write_obj(at, address(descriptor)).expect("in memory");
        tx.make_available(memory, index);
    }

    /// Puts a frame on the transmit ring of `guest` by an indirect table of three descriptors at `table`, from buffer `index`.
    pub fn send_indirect(&mut self, guest: usize, index: u16, table: u64, frame: &[u8]) {
        let Guest { memory, tx, .. } = &mut self.guests[guest];
        let bytes: Vec<u8> = [0; NET_HEADER_LEN].iter().chain(frame).copied().collect();
        let at = tx.buffers + u64::from(index) * BUFFER as u64;
        memory.write_slice(&bytes, address(at)).expect("in memory");
        let parts = [
            (0, NET_HEADER_LEN),
            (NET_HEADER_LEN, 100),
            (NET_HEADER_LEN + 100, frame.len() - 100),
        ];
        for (number, (offset, len)) in (0..).zip(parts) {
            let flags = u64::from(number < 2);
            let words = [at + offset as u64, len as u64 | flags << 32 | (number + 1) << 48];
            memory
                .write_obj(words, address(table + 16 * number))
                .expect("in memory");
        }
        let descriptor = tx.base + DESCRIPTORS + 16 * u64::from(index);
        let words = [table, (16 * parts.len() as u64) | (4 << 32)];
        memory.write_obj(words, address(descriptor)).expect("in memory");
        tx.make_available(memory, index);
    }

    /// Puts a descriptor of any address and length on a ring of `guest`: to receive into, or to send from.
    pub fn offer_wild(&mut self, guest: usize, receives: bool, index: u16, addr: u64, len: u32) {
        let Guest { memory, rx, tx, .. } = &mut self.guests[guest];
        let ring = if receives { rx } else { tx };
        let at = ring.base + DESCRIPTORS + 16 * u64::from(index);
        let flags = if receives { 2 } else { 0 };
        let words = [addr, u64::from(len) | flags << 32];
        memory.write_obj(words, address(at)).expect("in memory");
        ring.make_available(memory, index);
    }

    /// Stops both rings of `guest`, as its frontend does when the driver resets the card, and starts them empty with all buffers
    /// posted.
    pub fn restart_driver(&mut self, guest: usize) {
        for ring in 0..2 {
            self.plane.card(guest).stop_ring(ring);
        }
        let Guest { memory, rx, tx, .. } = &mut self.guests[guest];
        for (index, ring) in [rx, tx].into_iter().enumerate() {
            ring.reset(memory);
            ring.vring.set_queue_next_avail(0);
            let started = self.plane.forwarding.wiring.cards[guest].start_ring(index, &ring.vring, self.now);
            started.expect("a good ring");
        }
        (0..RING).for_each(|index| self.post(guest, index));
    }
}

/// The IOMMU of a guest, and the memory behind it.
pub struct Iommu {
    guest: usize,
    file: OwnedFd,
    /// What the driver sees, in the order of I/O addresses.
    driver: Arc<GuestMemoryMmap>,
    /// What the card sees, in the order of the file.
    device: Arc<GuestMemoryMmap>,
    /// The page of the file behind each page of I/O addresses.
    places: Vec<usize>,
    free: Vec<usize>,
    /// What the card may do with each page of I/O addresses, as its frontend told it.
    given: Vec<Option<Permission>>,
    /// Pages of the file of which the card was told instead of the right ones, by page of I/O addresses.
    lies: BTreeMap<usize, usize>,
    /// What the card asked for.
    pub misses: Arc<Misses>,
}

/// Reading and writing.
pub const BOTH: Permission = Permission {
    read: true,
    write: true,
};

fn memory_of(file: &OwnedFd, at: u64, pages: usize) -> Arc<GuestMemoryMmap> {
    let file = std::fs::File::from(file.as_fd().try_clone_to_owned().expect("a descriptor"));
    let range = (GuestAddress(at), pages * PAGE, Some(FileOffset::new(file, 0)));
    Arc::new(GuestMemoryMmap::from_ranges_with_files([range]).expect("memory"))
}

impl Rig {
    /// Adds a guest behind an IOMMU at `switch`. Nothing of its memory is translated.
    pub fn add_guest_behind_iommu(&mut self, switch: usize, features: u64) -> Iommu {
        self.add_behind_iommu(switch, features, |_| ())
    }

    /// As [`add_guest_behind_iommu`](Self::add_guest_behind_iommu), with a card that is connected to itself.
    #[cfg(test)]
    pub fn add_loopback_guest_behind_iommu(&mut self, features: u64) -> Iommu {
        let switch = self.plane.forwarding.add_switch_of_one();
        self.add_behind_iommu(switch, features, |settings| settings.loopback = true)
    }

    fn add_behind_iommu(&mut self, switch: usize, features: u64, change: impl FnOnce(&mut PortSettings)) -> Iommu {
        let file = memfd_create("iommu", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&file, (FILE_PAGES * PAGE) as u64).expect("room");
        let misses = Arc::new(Misses::new().expect("an eventfd"));
        let mut iommu = Iommu {
            guest: self.guests.len(),
            driver: memory_of(&file, 0, PAGES),
            device: memory_of(&file, GUEST_BASE, FILE_PAGES),
            // Each page beside the one that follows it: none continues its neighbour.
            places: (0..PAGES).map(|page| FILE_PAGES - 1 - 2 * page).collect(),
            free: (0..PAGES).map(|page| 2 * page).collect(),
            given: vec![None; PAGES],
            lies: BTreeMap::new(),
            misses: Arc::clone(&misses),
            file,
        };
        (0..FILE_PAGES).for_each(|page| iommu.protect(page, MprotectFlags::empty()));
        (0..PAGES).for_each(|page| iommu.show(page));
        let mut card = self.card_at(switch, |settings| {
            settings.iommu = true;
            change(settings);
        });
        card.share_misses(Some(Arc::clone(&misses)));
        card.set_features(features | 1 << virtio_bindings::virtio_config::VIRTIO_F_VERSION_1);
        card.change_translation(TranslationChange::On(misses), self.now);
        for index in 0..2 {
            let base = RING_SPACE * u64::from(index);
            let addresses = RingAddresses {
                descriptors: base + DESCRIPTORS,
                available: base + AVAILABLE,
                used: base + USED,
            };
            card.change_translation(TranslationChange::RingPlaced { index, addresses }, self.now);
        }
        card.set_memory(Arc::clone(&iommu.device), self.now);
        let driver = Arc::clone(&iommu.driver);
        iommu.guest = self.add_driver(card, driver, features);
        iommu
    }

    fn tell(&mut self, guest: usize, change: TranslationChange) {
        let now = self.now;
        self.plane.card(guest).change_translation(change, now);
    }
}

impl Iommu {
    fn protect(&self, file_page: usize, flags: MprotectFlags) {
        let at = GuestAddress(GUEST_BASE + (file_page * PAGE) as u64);
        let page = self.device.get_host_address(at).expect("in memory");
        // SAFETY: a page of the card's mapping, of which no reference exists; it stays mapped.
        unsafe { mprotect(page.cast(), PAGE, flags) }.expect("a page of ours");
    }

    /// Shows the driver the page of the file that is behind this page of I/O addresses now.
    fn show(&self, page: usize) {
        let at = GuestAddress((page * PAGE) as u64);
        let host = self.driver.get_host_address(at).expect("in memory");
        let offset = (self.places[page] * PAGE) as u64;
        // SAFETY: replaces a page of the driver's own mapping, of which no reference exists, by another of the same file.
        unsafe {
            mmap(
                host.cast(),
                PAGE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::FIXED,
                &self.file,
                offset,
            )
        }
        .expect("a page of ours");
    }

    /// Tells the card that it may use this page so.
    pub fn give(&mut self, rig: &mut Rig, page: usize, permission: Permission) {
        self.protect(self.places[page], MprotectFlags::READ | MprotectFlags::WRITE);
        let lie = self.lies.remove(&page);
        self.given[page] = Some(permission);
        let first = (page * PAGE) as u64;
        let mapping = Mapping {
            first,
            last: first + PAGE as u64 - 1,
            guest: GUEST_BASE + (self.places[page] * PAGE) as u64,
            permission,
        };
        rig.tell(self.guest, TranslationChange::Given(vec![mapping]));
        lie.into_iter().for_each(|file_page| self.hide(file_page));
    }

    /// Tells the card of other pages of the file than those that are behind these pages of I/O addresses, in one mapping, whatever it was
    /// told of them before.
    pub fn lie(&mut self, rig: &mut Rig, pages: Range<usize>, file_page: usize, permission: Permission) {
        let told = pages.clone().zip(file_page..);
        told.clone()
            .for_each(|(_, to)| self.protect(to, MprotectFlags::READ | MprotectFlags::WRITE));
        let first = (pages.start * PAGE) as u64;
        let mapping = Mapping {
            first,
            last: (pages.end * PAGE) as u64 - 1,
            guest: GUEST_BASE + (file_page * PAGE) as u64,
            permission,
        };
        rig.tell(self.guest, TranslationChange::Given(vec![mapping]));
        let before: Vec<_> = pages.clone().filter_map(|page| self.lies.remove(&page)).collect();
        let true_before: Vec<_> = pages
            .filter_map(|page| Some((page, self.given[page].take()?)))
            .collect();
        self.lies.extend(told);
        let true_before = true_before.into_iter().map(|(page, _)| self.places[page]);
        let gone: Vec<_> = before.into_iter().chain(true_before).collect();
        gone.into_iter().for_each(|file_page| self.hide(file_page));
    }

    /// A page of the file cannot be touched any more, unless the card was told of it for other addresses.
    fn hide(&self, file_page: usize) {
        let is_told = self.lies.values().any(|to| *to == file_page)
            || (0..PAGES).any(|page| self.given[page].is_some() && self.places[page] == file_page);
        if !is_told {
            self.protect(file_page, MprotectFlags::empty());
        }
    }

    /// Tells the card that it may not use these pages any more. When that is done, any access to them ends the process.
    pub fn take(&mut self, rig: &mut Rig, pages: Range<usize>) {
        let range = (pages.start * PAGE) as u64..=(pages.end * PAGE) as u64 - 1;
        rig.tell(self.guest, TranslationChange::Gone(range));
        for page in pages {
            if self.given[page].take().is_some() {
                self.hide(self.places[page]);
            }
            if let Some(file_page) = self.lies.remove(&page) {
                self.hide(file_page);
            }
        }
    }

    /// Moves a page to another place in the guest's memory, as its kernel may do once the card has let go of it.
    pub fn migrate(&mut self, rig: &mut Rig, page: usize, to: usize) {
        self.take(rig, page..page + 1);
        let at = GuestAddress((page * PAGE) as u64);
        let host = self.driver.get_host_address(at).expect("in memory");
        let mut bytes = [0u8; PAGE];
        // SAFETY: a page of the driver's mapping, which no one else uses now.
        unsafe { std::ptr::copy_nonoverlapping(host, bytes.as_mut_ptr(), PAGE) };
        let to = to % self.free.len();
        std::mem::swap(&mut self.places[page], &mut self.free[to]);
        self.show(page);
        // SAFETY: as above; it is another page of the file now.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), host, PAGE) };
    }

    /// Answers what the card asked for, at most `limit` questions. Returns how many there were.
    pub fn answer(&mut self, rig: &mut Rig, limit: usize) -> usize {
        let mut answers = 0;
        while answers < limit
            && let Some(miss) = self.misses.next_to_ask(Instant::now())
        {
            answers += 1;
            let page = miss.iova as usize / PAGE;
            let before = self.given[page];
            assert!(
                before.is_none_or(|permission| !permission.allows(miss.access)),
                "page {page} was given and is missed"
            );
            self.give(rig, page, BOTH);
        }
        answers
    }

    /// Denies the card's oldest question.
    pub fn deny_one(&mut self, rig: &mut Rig) -> Option<(u64, Access)> {
        let miss = self.misses.next_to_ask(Instant::now())?;
        self.deny(rig, miss);
        Some((miss.iova, miss.access))
    }

    /// Denies a question.
    pub fn deny(&mut self, rig: &mut Rig, miss: Miss) {
        rig.tell(self.guest, TranslationChange::Denied(miss));
    }

    /// A driver begins anew: all translations are void.
    pub fn reset(&mut self, rig: &mut Rig) {
        rig.tell(self.guest, TranslationChange::On(Arc::clone(&self.misses)));
        self.lies.clear();
        self.given.fill(None);
        (0..FILE_PAGES).for_each(|page| self.protect(page, MprotectFlags::empty()));
    }

    /// The frontend shares its memory anew: all translations are void.
    pub fn replace_memory(&mut self, rig: &mut Rig) {
        self.device = memory_of(&self.file, GUEST_BASE, FILE_PAGES);
        (0..FILE_PAGES).for_each(|page| self.protect(page, MprotectFlags::empty()));
        let now = rig.now;
        rig.plane.card(self.guest).set_memory(Arc::clone(&self.device), now);
        self.given.fill(None);
    }

    /// The frontend is gone.
    pub fn disconnect(&mut self, rig: &mut Rig) {
        rig.plane.card(self.guest).disconnect();
        self.lies.clear();
        self.given.fill(None);
        (0..FILE_PAGES).for_each(|page| self.protect(page, MprotectFlags::empty()));
    }
}
