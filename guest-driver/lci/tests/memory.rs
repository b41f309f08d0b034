//! What an engine allocates, as the allocator sees it: nothing per packet once it is warm.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use ether::{MacAddr, Time};
use lci::{Config, Engine, GroupId, HEAD_LEN_MAX};

thread_local! {
    /// Allocations of this thread.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is handed on unchanged to the system's allocator, which keeps the contract; counting in a constant-initialised
// thread-local allocates nothing itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises about `layout` are those `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System.alloc` above with the same layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NODES: usize = 4;

/// Engines joined without delay, and one place for a frame.
struct Net {
    engines: Vec<Engine>,
    now: Time,
    got: u64,
}

impl Net {
    fn new() -> Self {
        let macs: Vec<_> = (0..NODES).map(|node| MacAddr([2, 0, 0, 0, 0, node as u8])).collect();
        let engine = |me| Engine::new(Config::new(me, macs.clone(), 1 + me as u32), Time::ZERO).unwrap();
        Self {
            engines: (0..NODES).map(engine).collect(),
            now: Time::ZERO,
            got: 0,
        }
    }

    /// Moves frames until there are none. Every 50th is lost.
    fn run(&mut self, lost: &mut u32) {
        loop {
            let mut moved = false;
            for from in 0..NODES {
                let mut frame = [0; HEAD_LEN_MAX + 1_024];
                let mut head = [0; HEAD_LEN_MAX];
                while let Some(transmit) = self.engines[from].poll_transmit(self.now, &mut head) {
                    moved = true;
                    *lost += 1;
                    if lost.is_multiple_of(50) {
                        continue;
                    }
                    frame[..transmit.head_len].copy_from_slice(&head[..transmit.head_len]);
                    let to = usize::from(head[20]);
                    let len = transmit.head_len + transmit.payload.map_or(0, |(_, len)| len) + transmit.pad_len;
                    self.engines[to].handle(self.now, &frame[..len]);
                    while let Some(packet) = self.engines[to].poll_delivery() {
                        self.got += 1;
                        assert!(self.engines[to].release(packet.buffer));
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn round(&mut self, lost: &mut u32) {
        for from in 0..NODES {
            while let Some(packet) = self.engines[from].allocate() {
                if packet.index() % 2 == 0 {
                    self.engines[from]
                        .launch_multicast(self.now, GroupId::ALL, packet, 1_000)
                        .unwrap();
                } else {
                    self.engines[from]
                        .launch_unicast(self.now, (from + 1) % NODES, packet, 10)
                        .unwrap();
                }
            }
        }
        for _ in 0..20 {
            self.run(lost);
            self.now = self.now.plus_nanos(1_000_000);
            let now = self.now;
            self.engines.iter_mut().for_each(|engine| engine.handle_timeout(now));
        }
        self.run(lost);
    }
}

#[test]
fn m_bv1_nothing_is_allocated_per_packet() {
    let mut net = Net::new();
    net.run(&mut 0);
    let mut lost = 0;
    for _ in 0..20 {
        net.round(&mut lost);
        net.engines
            .iter_mut()
            .for_each(|engine| while engine.poll_event().is_some() {});
    }
    let (before, got) = (ALLOCATIONS.get(), net.got);
    for _ in 0..200 {
        net.round(&mut lost);
    }
    assert!(net.got - got > 10_000, "{} packets", net.got - got);
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
