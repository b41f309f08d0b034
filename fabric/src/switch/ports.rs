//! Sets of ports as bits, and the walk over those that a frame goes to.

use super::{Egress, Forward, PortId, Switch};

/// Ports of one switch: far above what one host can serve with guests, and a set of them is still 128 bytes.
pub const PORTS_MAX: usize = 1024;

const WORDS: usize = PORTS_MAX / 64;

/// A set of port numbers below [`PORTS_MAX`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortSet([u64; WORDS]);

impl PortSet {
    pub(crate) const EMPTY: Self = Self([0; WORDS]);

    fn split(port: PortId) -> (usize, u64) {
        (usize::from(port.0) / 64, 1 << (port.0 % 64))
    }

    pub(crate) fn insert(&mut self, port: PortId) {
        let (word, bit) = Self::split(port);
        self.0[word] |= bit;
    }

    pub(super) fn remove(&mut self, port: PortId) {
        let (word, bit) = Self::split(port);
        self.0[word] &= !bit;
    }

    pub(super) fn contains(&self, port: PortId) -> bool {
        let (word, bit) = Self::split(port);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Ports `64 * word` to `64 * word + 63`, lowest bit first.
    #[inline]
    pub(super) fn word(&self, word: usize) -> u64 {
        self.0.get(word).copied().unwrap_or(0)
    }

    pub(super) fn iter(self) -> PortIter {
        PortIter { set: self, word: 0 }
    }
}

/// The ports of a set, in rising order.
pub(super) struct PortIter {
    set: PortSet,
    word: usize,
}

impl Iterator for PortIter {
    type Item = PortId;

    fn next(&mut self) -> Option<PortId> {
        while let Some(bits) = self.set.0.get_mut(self.word) {
            if let Some(port) = take_lowest(bits, self.word) {
                return Some(port);
            }
            self.word += 1;
        }
        None
    }
}

/// Takes the lowest port out of a word of a set.
#[inline]
pub(super) fn take_lowest(bits: &mut u64, word: usize) -> Option<PortId> {
    if *bits == 0 {
        return None;
    }
    let bit = bits.trailing_zeros() as usize;
    *bits &= *bits - 1;
    Some(PortId((word * 64 + bit) as u16))
}

/// The ways a frame leaves the switch, in rising order of ports; made by [`Switch::flood_targets`].
pub struct FloodTargets<'a> {
    switch: &'a Switch,
    ingress: PortId,
    forward: Forward,
    one: Option<Egress>,
    bits: u64,
    word: usize,
    /// Words that are still to come end here.
    words: usize,
}

impl<'a> FloodTargets<'a> {
    #[inline]
    pub(super) fn new(switch: &'a Switch, ingress: PortId, forward: Forward) -> Self {
        let (one, words) = match forward {
            Forward::One(egress) => (Some(egress), 0),
            Forward::Several | Forward::Taken | Forward::Inspect | Forward::Drop(_) => (None, 0),
            Forward::Flood | Forward::Group(_) => (None, switch.words()),
        };
        Self {
            switch,
            ingress,
            forward,
            one,
            bits: switch.target_word(ingress, forward, 0),
            word: 0,
            words,
        }
    }
}

impl Iterator for FloodTargets<'_> {
    type Item = Egress;

    #[inline]
    fn next(&mut self) -> Option<Egress> {
        if let Some(egress) = self.one.take() {
            return Some(egress);
        }
        loop {
            if let Some(port) = take_lowest(&mut self.bits, self.word) {
                return self.switch.egress(port);
            }
            self.word += 1;
            if self.word >= self.words {
                return None;
            }
            self.bits = self.switch.target_word(self.ingress, self.forward, self.word);
        }
    }
}
