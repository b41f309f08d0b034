//! Seeded random loads for the suite. Times are small numbers, so that everything often happens at once.

use alloc::vec::Vec;

use super::shrink::{Case, without_some};
use crate::{Coalescing, DmaModel, PacketInfo, StrategyKind};

/// SplitMix64: a seed has one sequence of numbers on any machine.
#[derive(Clone, Debug)]
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    pub(super) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Packets that arrive at one moment, and a change of settings before them.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    /// Nanoseconds after the batch before.
    pub(super) after_ns: u64,
    pub(super) packets: Vec<PacketInfo>,
    pub(super) change: Option<Coalescing>,
}

#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) coalescing: Coalescing,
    /// One engine, no rate: its completions can be told without it.
    pub(super) dma: DmaModel,
    pub(super) batches: Vec<Batch>,
}

impl Load {
    /// The load of a seed, with one of these strategies in its settings. Of every four, one has changes of settings and one is dense enough for adaptive moderation.
    pub(super) fn new(seed: u64, strategies: &[StrategyKind]) -> Self {
        let mut numbers = Numbers(seed);
        let settings = |numbers: &mut Numbers| Coalescing {
            strategy: numbers.one_of(strategies),
            delay_ns: numbers.one_of(&[0, 5, 40, 40, 300]),
            frames_max: numbers.one_of(&[0, 0, 2, 4]),
            marks: true,
        };
        let coalescing = settings(&mut numbers);
        let setup_ns = numbers.one_of(&[0, 0, 3, 20]);
        let marked = numbers.one_of(&[0, 20, 60]);
        let (changing, dense) = (seed % 4 == 1, seed % 4 == 2);
        let batches = (0..if dense { 120 } else { 24 }).map(|_| Batch {
            after_ns: match dense {
                true => numbers.one_of(&[1, 1, 2, 3]),
                false => numbers.one_of(&[0, 1, 4, 15, 45, 400]),
            },
            packets: (0..1 + numbers.below(3))
                .map(|_| PacketInfo {
                    len: numbers.one_of(&[60, 1500]),
                    marked: numbers.percent(marked),
                })
                .collect(),
            change: (changing && numbers.percent(20)).then(|| settings(&mut numbers)),
        });
        Self {
            coalescing,
            dma: DmaModel {
                setup_ns,
                ..DmaModel::ZERO
            },
            batches: batches.collect(),
        }
    }
}

impl Case for Load {
    fn smaller(&self) -> Vec<Self> {
        let with = |batches| Self {
            batches,
            ..self.clone()
        };
        let mut smaller: Vec<Self> = without_some(&self.batches).into_iter().map(with).collect();
        for (position, batch) in self.batches.iter().enumerate() {
            smaller.extend(batch.smaller().into_iter().map(|batch| {
                let mut load = self.clone();
                load.batches[position] = batch;
                load
            }));
        }
        if self.coalescing.frames_max != 0 {
            let mut load = self.clone();
            load.coalescing.frames_max = 0;
            smaller.push(load);
        }
        if self.dma != DmaModel::ZERO {
            smaller.push(Self {
                dma: DmaModel::ZERO,
                ..self.clone()
            });
        }
        smaller
    }
}

impl Case for Batch {
    fn smaller(&self) -> Vec<Self> {
        let mut smaller = Vec::new();
        if self.packets.len() > 1 {
            smaller.extend(without_some(&self.packets).into_iter().map(|packets| Self {
                packets,
                ..self.clone()
            }));
        }
        if self.change.is_some() {
            smaller.push(Self {
                change: None,
                ..self.clone()
            });
        }
        for position in 0..self.packets.len() {
            let packet = self.packets[position];
            let plainer = PacketInfo { len: 60, marked: false };
            for simple in [plainer, PacketInfo { len: 60, ..packet }] {
                if simple != packet {
                    let mut batch = self.clone();
                    batch.packets[position] = simple;
                    smaller.push(batch);
                }
            }
        }
        if self.after_ns > 1 {
            let after_ns = self.after_ns / 2;
            smaller.push(Self {
                after_ns,
                ..self.clone()
            });
        }
        smaller
    }
}

/// A load, and another one a minute later.
#[derive(Clone, Debug)]
pub(super) struct Twice {
    pub(super) first: Load,
    pub(super) then: Load,
}

impl Case for Twice {
    fn smaller(&self) -> Vec<Self> {
        let first = self.first.smaller().into_iter().map(|first| Self {
            first,
            then: self.then.clone(),
        });
        let then = self.then.smaller().into_iter().map(|then| Self {
            first: self.first.clone(),
            then,
        });
        first.chain(then).collect()
    }
}
