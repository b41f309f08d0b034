//! Fuzz target: arbitrary ring contents through the split ring's index logic and chain walk. No panic, no
//! piece outside guest memory, no endless walk. As a plain test it runs a fixed number of generated inputs.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vnic::memory::{MemoryMap, Piece};
use vnic::ring::{Direction, RingAddresses, SplitRing};

/// Inputs of a plain test run.
const INPUTS: usize = 500_000;
/// Two option bytes, descriptor table, available and used ring.
const INPUT_LEN_MAX: usize = 2 + IMAGE_LEN;
const IMAGE_LEN: usize = 0x300;
/// Two regions side by side, so that buffers may span them, and a third one away.
const REGIONS: [(u64, usize); 3] = [(0x1_0000, 0x2000), (0x1_2000, 0x1000), (0x8_0000, 0x1000)];
const SIZE: u16 = 16;
const ADDRESSES: RingAddresses = RingAddresses {
    descriptors: 0x1_0000,
    available: 0x1_0100,
    used: 0x1_0200,
};

/// Turns wide values into ones near the memory most of the time, so that walks get far.
fn shaped(bytes: &[u8]) -> Vec<u8> {
    let mut image = bytes.to_vec();
    for descriptor in image.chunks_exact_mut(16) {
        if descriptor[7] & 7 != 0 {
            let near = 0x1_0000 + u64::from(u16::from_le_bytes([descriptor[0], descriptor[1]]) & 0x3fff);
            descriptor[..8].copy_from_slice(&near.to_le_bytes());
            descriptor[10..12].fill(0);
            descriptor[14] &= 0x1f;
            descriptor[15] = 0;
        }
    }
    image
}

struct World {
    memory: Arc<GuestMemoryMmap<()>>,
    map: MemoryMap,
    walked: AtomicU64,
}

impl World {
    fn holds(&self, piece: &Piece) -> bool {
        REGIONS.iter().any(|(addr, len)| {
            let base = self.memory.get_host_address(GuestAddress(*addr)).unwrap() as usize;
            let start = piece.ptr as usize;
            start >= base && start + piece.len as usize <= base + len
        })
    }

    fn run(&self, input: &[u8]) {
        let [options, next_avail, rest @ ..] = input else {
            return;
        };
        let image = shaped(rest);
        let image = &image[..image.len().min(IMAGE_LEN)];
        self.memory
            .write_slice(image, GuestAddress(ADDRESSES.descriptors))
            .unwrap();
        let (event_idx, indirect) = (options & 1 != 0, options & 2 != 0);
        let direction = if options & 4 != 0 {
            Direction::Transmit
        } else {
            Direction::Receive
        };
        let next_avail = u16::from(*next_avail);
        // The ring goes on at its used index.
        self.memory
            .write_obj(next_avail, GuestAddress(ADDRESSES.used + 2))
            .unwrap();
        let mut ring = SplitRing::new(&self.map, SIZE, ADDRESSES, event_idx, indirect).unwrap();
        // An index that moved too far is refused; a moderate one is used instead, so that the walk is reached.
        if ring.refresh().is_err() {
            let index = next_avail.wrapping_add(u16::from(options >> 4));
            self.memory
                .write_obj(index, GuestAddress(ADDRESSES.available + 2))
                .unwrap();
        }
        let mut pieces = Vec::new();
        for _ in 0..ring.refresh().unwrap_or(0) {
            let head = ring.take_head();
            pieces.clear();
            self.walked.fetch_add(1, Ordering::Relaxed);
            let walked = ring.walk(&self.map, head, direction, &mut pieces);
            // A descriptor may lie across regions, so a chain has a few pieces more than descriptors at most.
            assert!(pieces.len() <= usize::from(SIZE + 1) * REGIONS.len());
            assert!(pieces.iter().all(|piece| self.holds(piece)));
            if walked.is_ok() {
                ring.push_used(head, 0);
            }
        }
        ring.publish();
        ring.driver_wants_notification();
    }
}

#[test]
fn arbitrary_rings_break_rules_but_nothing_else() {
    let ranges = REGIONS.map(|(addr, len)| (GuestAddress(addr), len));
    let memory = Arc::new(GuestMemoryMmap::<()>::from_ranges(&ranges).unwrap());
    let map = MemoryMap::new(Arc::clone(&memory), Arc::new(AtomicBool::new(false))).unwrap();
    // A panic ends the test, which does not read the world afterwards.
    let world = AssertUnwindSafe(World {
        memory,
        map,
        walked: AtomicU64::new(0),
    });
    let world: &AssertUnwindSafe<World> = &world;
    bolero::check!()
        .with_iterations(INPUTS)
        .with_max_len(INPUT_LEN_MAX)
        .for_each(|input: &[u8]| run(world, input));
    println!("{} chains walked", world.walked.load(Ordering::Relaxed));
}

fn run(world: &AssertUnwindSafe<World>, input: &[u8]) {
    world.run(input);
}
