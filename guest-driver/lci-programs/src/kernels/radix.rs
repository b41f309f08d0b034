//! Radix sort over shared regions (R-BV5): in each pass a node counts the digits of its keys, reads all others' counts, and writes each key
//! to its place, which mostly is another node's. Between passes the nodes spin on a counter in the shared memory, so the kernel does not
//! end where interrupts are disabled.

use super::{COUNTER, Settings, check, share};
use crate::{
    node::{Node, ProgramError},
    numbers::Numbers,
    region::Regions,
};

const DIGIT_BITS: u32 = 4;
const DIGITS: usize = 1 << DIGIT_BITS;
const PASSES: u32 = 4;
/// Keys of a region.
const KEYS: usize = 64;
const KEY_LEN: usize = 4;
/// Regions with counts of digits, and those of the second array, begin here.
const COUNTS: u32 = 1 << 20;
const SECOND: u32 = 1 << 16;

fn keys(count: usize) -> Vec<u32> {
    let mut numbers = Numbers::new(3);
    (0..count).map(|_| (numbers.next_u64() >> 40) as u32 & 0xffff).collect()
}

fn digit(key: u32, pass: u32) -> usize {
    (key >> (DIGIT_BITS * pass)) as usize % DIGITS
}

fn encode(keys: &[u32]) -> Vec<u8> {
    keys.iter().flat_map(|key| key.to_le_bytes()).collect()
}

fn decode(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|key| u32::from_le_bytes(*key)).collect()
}

/// The sorted keys.
pub fn sequential(regions: usize) -> Vec<u8> {
    let mut keys = keys(regions * KEYS);
    keys.sort_unstable();
    encode(&keys)
}

/// Where this node's keys of each digit go: behind all lower digits, and behind the same digit of lower nodes.
async fn places<N: Node>(regions: &Regions<'_, N>) -> Result<[usize; DIGITS], ProgramError> {
    let node = regions.node();
    let mut counts = Vec::new();
    for other in 0..node.size() {
        counts.push(decode(&regions.read(COUNTS + other as u32).await?));
    }
    let mut places = [0; DIGITS];
    let mut before = 0;
    for (digit, place) in places.iter_mut().enumerate() {
        for (other, counts) in counts.iter().enumerate() {
            if other == node.me() {
                *place = before;
            }
            before += counts[digit] as usize;
        }
    }
    Ok(places)
}

/// Sorts the keys of `count` regions of 64 each; returns the nanoseconds that it took.
///
/// # Errors
/// [`ProgramError`] of the node, [`ProgramError::Stalled`] without interrupts, or if the result is not that of [`sequential`].
pub async fn run<N: Node>(node: &N, settings: &Settings, count: usize, expected: &[u8]) -> Result<u64, ProgramError> {
    let regions = Regions::new(node, KEYS * KEY_LEN, settings.interrupts, settings.patience_ns).await?;
    let own = share(count, node.size(), node.me());
    let all = keys(count * KEYS);
    for region in own.clone() {
        let bytes = encode(&all[region * KEYS..(region + 1) * KEYS]);
        regions
            .write(region as u32, |into| into.copy_from_slice(&bytes))
            .await?;
    }
    let mut round = 0;
    let mut arrays = [0, SECOND];
    regions.barrier().await?;
    let start_ns = node.now_ns();
    for pass in 0..PASSES {
        let mut mine = Vec::new();
        for region in own.clone() {
            mine.extend(decode(&regions.read(arrays[0] + region as u32).await?));
        }
        let mut counts = [0u32; DIGITS];
        mine.iter().for_each(|key| counts[digit(*key, pass)] += 1);
        let bytes = encode(&counts);
        regions
            .write(COUNTS + node.me() as u32, |into| {
                into[..bytes.len()].copy_from_slice(&bytes)
            })
            .await?;
        round += 1;
        regions.spin_barrier(COUNTER, round).await?;
        let mut places = places(&regions).await?;
        // By region, so that each is fetched once.
        let mut moves = std::collections::BTreeMap::<usize, Vec<(usize, u32)>>::new();
        for key in mine {
            let place = &mut places[digit(key, pass)];
            moves.entry(*place / KEYS).or_default().push((*place % KEYS, key));
            *place += 1;
        }
        for (region, keys) in moves {
            let put = |into: &mut [u8]| {
                for (at, key) in keys {
                    into[at * KEY_LEN..][..KEY_LEN].copy_from_slice(&key.to_le_bytes());
                }
            };
            regions.write(arrays[1] + region as u32, put).await?;
        }
        node.compute((own.len() * KEYS) as u64 * 20).await;
        round += 1;
        regions.spin_barrier(COUNTER, round).await?;
        arrays.swap(0, 1);
    }
    let took_ns = node.now_ns() - start_ns;
    let mut result = Vec::new();
    for region in 0..count {
        result.extend(regions.read(arrays[0] + region as u32).await?);
    }
    regions.finish().await?;
    check(node.me(), "the sorted keys", &result, expected)?;
    Ok(took_ns)
}
