//! Sets of ports as bits, and the walk over those that a frame goes to.

use super::{Egress, Forward, PortId, Switch};

/// Ports of one switch: far above what one host can serve with guests, and a set of them is still 128 bytes.
pub const PORTS_MAX: usize = 1024;

const WORDS: usize = PORTS_MAX / 64;

/// A set of port numbers below [`PORTS_MAX`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct PortSet([u64; WORDS]);

impl PortSet {
    pub(super) const EMPTY: Self = Self([0; WORDS]);

    fn split(port: PortId) -> (usize, u64) {
        (usize::from(port.0) / 64, 1 << (port.0 % 64))
    }

    pub(super) fn insert(&mut self, port: PortId) {
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

    /// The ports of `self` and of `within`, without `except`.
    pub(super) fn targets(&self, within: Option<&Self>, except: PortId) -> Self {
        let mut set = *self;
        if let Some(within) = within {
            for (word, other) in set.0.iter_mut().zip(&within.0) {
                *word &= other;
            }
        }
        if usize::from(except.0) < PORTS_MAX {
            set.remove(except);
        }
        set
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

    #[inline]
    fn next(&mut self) -> Option<PortId> {
        while let Some(bits) = self.set.0.get_mut(self.word) {
            if *bits != 0 {
                let bit = bits.trailing_zeros();
                *bits &= *bits - 1;
                return Some(PortId((self.word * 64) as u16 + bit as u16));
            }
            self.word += 1;
        }
        None
    }
}

/// The ways a frame leaves the switch, in rising order of ports; made by [`Switch::flood_targets`].
pub struct FloodTargets<'a> {
    switch: &'a Switch,
    one: Option<Egress>,
    ports: PortIter,
}

impl<'a> FloodTargets<'a> {
    pub(super) fn new(switch: &'a Switch, ingress: PortId, forward: Forward) -> Self {
        let (one, ports) = match forward {
            Forward::One(egress) => (Some(egress), PortSet::EMPTY),
            Forward::Drop(_) => (None, PortSet::EMPTY),
            Forward::Flood | Forward::Group(_) => (None, switch.targets(ingress, forward)),
        };
        Self {
            switch,
            one,
            ports: ports.iter(),
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
        let port = self.ports.next()?;
        self.switch.egress(port)
    }
}
