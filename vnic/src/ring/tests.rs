//! Chains in rings larger than the rig's.

use std::sync::Arc;

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::chain_walk::{FLAG_INDIRECT, FLAG_NEXT};
use super::*;
use crate::memory::MemoryMap;

const TABLE: u64 = 0x10_0000;
const PAGE: usize = 4096;

/// A ring of 1024 entries, and behind it memory in many regions of one page.
fn ring() -> (GuestMemoryMmap, MemoryMap, SplitRing) {
    let pages = (0..400).map(|page| (GuestAddress(0x1000_0000 + page * PAGE as u64), PAGE));
    let ranges: Vec<_> = [(GuestAddress(0), 2 << 20)].into_iter().chain(pages).collect();
    let memory = GuestMemoryMmap::from_ranges(&ranges).unwrap();
    let map = MemoryMap::new(Arc::new(memory.clone()), Arc::default()).unwrap();
    let addresses = RingAddresses {
        descriptors: 0,
        available: 0x8000,
        used: 0xa000,
    };
    let ring = SplitRing::new(&map, RING_SIZE_MAX, addresses, false, true).unwrap();
    (memory, map, ring)
}

fn write(memory: &GuestMemoryMmap, at: u64, (addr, len): (u64, u32), flags: u16, next: u16) {
    let words = [addr, u64::from(len) | u64::from(flags) << 32 | u64::from(next) << 48];
    memory.write_obj(words, GuestAddress(at)).unwrap();
}

/// A chain of `count` buffers of `len` bytes each at `table`.
fn chain(memory: &GuestMemoryMmap, table: u64, count: u16, len: u32) {
    for index in 0..count {
        let flags = if index + 1 < count { FLAG_NEXT } else { 0 };
        write(memory, table + 16 * u64::from(index), (TABLE, len), flags, index + 1);
    }
}

#[test]
fn a_chain_of_more_pieces_than_any_driver_needs_breaks_a_rule() {
    let (memory, map, ring) = ring();
    let limit = CHAIN_PIECES_MAX as u16;
    let mut pieces = Vec::new();
    let mut walk = |expected: Result<usize, Rule>| {
        pieces.clear();
        let outcome = ring.walk(&map, 0, Direction::Transmit, &mut pieces);
        assert_eq!(outcome.map(|()| pieces.len()), expected.map_err(Halt::from));
    };
    for len in [1, 60] {
        chain(&memory, 0, limit, len);
        walk(Ok(CHAIN_PIECES_MAX));
        chain(&memory, 0, limit + 1, len);
        walk(Err(Rule::ChainTooScattered));
    }
    // Empty buffers are no pieces, but they are walked.
    chain(&memory, 0, 1000, 0);
    walk(Err(Rule::ChainTooScattered));
    // That chain in an indirect table.
    write(&memory, 0, (TABLE, 16 * u32::from(limit)), FLAG_INDIRECT, 0);
    chain(&memory, TABLE, limit, 1);
    walk(Ok(CHAIN_PIECES_MAX));
    write(&memory, 0, (TABLE, 16 * 1000), FLAG_INDIRECT, 0);
    chain(&memory, TABLE, 1000, 1);
    walk(Err(Rule::ChainTooScattered));
    // One buffer over very many regions.
    write(&memory, 0, (0x1000_0000, (CHAIN_PIECES_MAX * PAGE) as u32), 0, 0);
    walk(Ok(CHAIN_PIECES_MAX));
    write(&memory, 0, (0x1000_0000, (CHAIN_PIECES_MAX * PAGE + 1) as u32), 0, 0);
    walk(Err(Rule::ChainTooScattered));
}
