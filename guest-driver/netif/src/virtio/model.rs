//! A model of a card for tests: the device's side of a queue pair in this process, which keeps the rules or, told so,
//! breaks them; and registers that answer as told.

use std::{
    cell::RefCell,
    os::fd::OwnedFd,
    sync::atomic::{AtomicU16, Ordering},
};

use ether::MacAddr;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::{
    CardFacts, PairLayout, PairPlace, PreparedPair, Route,
    layout::{HEADER_LEN, PAGE, RingPlace},
    memory::{BusAddresses, SharedMemory},
    registers::Registers,
    ring::{Direction, Ring},
};

pub(super) const OWN: MacAddr = MacAddr([0x52, 0x54, 0, 0, 1, 1]);

/// The device's side of a queue pair.
pub(super) struct Pair {
    pub(super) memory: SharedMemory,
    pub(super) layout: PairLayout,
    mtu: usize,
    bus: BusAddresses,
    doorbells: OwnedFd,
    /// Indices up to which available entries were taken, and used ones written: of both rings.
    taken: [u16; 2],
    used: [u16; 2],
}

impl Pair {
    pub(super) fn new(mtu: usize, ring_size: u16) -> Self {
        let layout = PairLayout::new(mtu, ring_size, true);
        let memory = SharedMemory::new("weft-test", layout.len()).unwrap();
        // No two neighbours of the memory are neighbours for the device.
        let pages = (0..layout.len() / PAGE).rev().map(|page| (page as u64 + 7) << 12);
        let bus = BusAddresses::of_pages(pages.collect());
        for (place, direction) in [
            (layout.receive(), Direction::Receive),
            (layout.transmit(), Direction::Transmit),
        ] {
            Ring::lay_out(&memory, layout, place, direction, &bus);
        }
        let doorbells = memfd_create("doorbells", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&doorbells, PAGE as u64).unwrap();
        Self {
            memory,
            layout,
            mtu,
            bus,
            doorbells,
            taken: [0; 2],
            used: [0; 2],
        }
    }

    /// What a process gets for this pair.
    pub(super) fn prepared(&self) -> PreparedPair {
        PreparedPair {
            facts: CardFacts {
                address: "00:04.0".parse().unwrap(),
                mac: OWN,
                mtu: self.mtu,
                up: true,
            },
            route: Route::Uio,
            place: PairPlace {
                layout: self.layout,
                memory_offset: 0,
                queue: 0,
                doorbells: [0, 4],
            },
            memory: self.memory.file().try_clone_to_owned().unwrap(),
            doorbells: self.doorbells.try_clone().unwrap(),
            keep: Vec::new(),
        }
    }

    fn place(&self, ring: usize) -> RingPlace {
        [self.layout.receive(), self.layout.transmit()][ring]
    }

    fn half(&self, at: usize) -> &AtomicU16 {
        self.memory.half(at)
    }

    /// Says whether the device polls a ring.
    pub(super) fn poll(&self, ring: usize, polls: bool) {
        self.half(self.place(ring).used)
            .store(u16::from(polls), Ordering::SeqCst);
    }

    /// The device takes the next buffer: its head, and where its pieces are in the memory.
    pub(super) fn take(&mut self, ring: usize) -> Option<(u16, Vec<(usize, usize)>)> {
        let place = self.place(ring);
        if self.half(place.available + 2).load(Ordering::SeqCst) == self.taken[ring] {
            return None;
        }
        let entry = usize::from(self.taken[ring] % self.layout.ring_size);
        self.taken[ring] = self.taken[ring].wrapping_add(1);
        let head = self.half(place.available + 4 + 2 * entry).load(Ordering::SeqCst);
        let mut pieces = Vec::new();
        let mut next = Some(head);
        while let Some(number) = next {
            let at = place.descriptors + 16 * usize::from(number);
            let address = self.memory.long(at).load(Ordering::SeqCst);
            let len = self.memory.word(at + 8).load(Ordering::SeqCst) as usize;
            let flags = self.half(at + 12).load(Ordering::SeqCst);
            assert_eq!(flags & 2 != 0, ring == 0, "only the card writes into receive buffers");
            // Each piece is inside a page, which the device finds by its address.
            assert!(len > 0 && address as usize % PAGE + len <= PAGE);
            let page = (0..self.layout.len() / PAGE).find(|page| self.bus.of(page * PAGE) == address & !0xfff);
            pieces.push((page.expect("memory of the pair") * PAGE + address as usize % PAGE, len));
            next = (flags & 1 != 0).then(|| self.half(at + 14).load(Ordering::SeqCst));
        }
        Some((head, pieces))
    }

    /// The device writes a used entry, whatever it says, and publishes it.
    pub(super) fn put_back(&mut self, ring: usize, id: u32, len: u32) {
        let place = self.place(ring);
        let at = place.used + 4 + 8 * usize::from(self.used[ring] % self.layout.ring_size);
        self.memory.word(at).store(id, Ordering::SeqCst);
        self.memory.word(at + 4).store(len, Ordering::SeqCst);
        self.used[ring] = self.used[ring].wrapping_add(1);
        self.half(place.used + 2).store(self.used[ring], Ordering::SeqCst);
    }

    /// The device claims to have used so many more buffers.
    pub(super) fn claim(&mut self, ring: usize, more: u16) {
        self.used[ring] = self.used[ring].wrapping_add(more);
        let at = self.place(ring).used + 2;
        self.half(at).store(self.used[ring], Ordering::SeqCst);
    }

    /// The device delivers a frame; false if no buffer is there.
    pub(super) fn deliver(&mut self, frame: &[u8]) -> bool {
        let Some((head, pieces)) = self.take(0) else {
            return false;
        };
        let mut bytes = vec![0; HEADER_LEN];
        bytes.extend_from_slice(frame);
        let mut rest = &bytes[..];
        for (at, len) in pieces {
            let (here, later) = rest.split_at(len.min(rest.len()));
            // SAFETY: the driver gave this buffer to the device.
            unsafe { self.memory.write(at, here) };
            rest = later;
        }
        assert!(rest.is_empty(), "the buffer holds the longest frame");
        self.put_back(0, head.into(), bytes.len() as u32);
        true
    }

    /// The device takes the next frame that the driver sends.
    pub(super) fn collect(&mut self) -> Option<Vec<u8>> {
        let (head, pieces) = self.take(1)?;
        let mut bytes = Vec::new();
        for (at, len) in pieces {
            // SAFETY: the driver gave this buffer to the device.
            bytes.extend_from_slice(unsafe { self.memory.slot(at, len) });
        }
        self.put_back(1, head.into(), 0);
        assert_eq!(bytes[..HEADER_LEN], [0; HEADER_LEN]);
        Some(bytes.split_off(HEADER_LEN))
    }
}

/// Registers that answer as a network card does, with these facts.
pub(super) struct Facts {
    pub(super) features: u64,
    pub(super) queues: u16,
    pub(super) queue_size: u16,
    pub(super) pairs: u16,
    pub(super) mac: MacAddr,
    pub(super) mtu: u16,
    /// Bits of the status that the device refuses.
    pub(super) refused: u8,
    pub(super) written: RefCell<Vec<(usize, u32)>>,
}

/// The registers that all devices have.
pub(super) struct CommonModel<'a>(pub(super) &'a Facts);
/// A network card's own.
pub(super) struct NetworkModel<'a>(pub(super) &'a Facts);

// SAFETY: a test uses it in one thread.
unsafe impl Send for CommonModel<'_> {}
// SAFETY: a test uses it in one thread.
unsafe impl Send for NetworkModel<'_> {}

impl Facts {
    fn last(&self, offset: usize) -> u32 {
        let written = self.written.borrow();
        written
            .iter()
            .rev()
            .find(|(at, _)| *at == offset)
            .map_or(0, |(_, value)| *value)
    }
}

impl Registers for CommonModel<'_> {
    fn read(&self, offset: usize, _width: usize) -> u32 {
        let facts = self.0;
        match offset {
            4 => (facts.features >> (32 * facts.last(0))) as u32,
            18 => facts.queues.into(),
            20 => facts.last(20) & !u32::from(facts.refused),
            24 if facts.last(22) < facts.queues.into() => facts.queue_size.into(),
            30 => facts.last(22),
            _ => 0,
        }
    }

    fn write(&self, offset: usize, _width: usize, value: u32) {
        self.0.written.borrow_mut().push((offset, value));
    }
}

impl Registers for NetworkModel<'_> {
    fn read(&self, offset: usize, _width: usize) -> u32 {
        match offset {
            0..6 => self.0.mac.0[offset].into(),
            6 => 1,
            8 => self.0.pairs.into(),
            10 => self.0.mtu.into(),
            _ => 0,
        }
    }

    fn write(&self, _offset: usize, _width: usize, _value: u32) {
        panic!("a driver of virtio 1.0 writes nothing here");
    }
}
