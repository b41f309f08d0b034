//! The ports of a switch: their numbers, and sets of them as bits.

/// A port of one switch: numbers are given out from 0 and used again after [`Switch::remove_port`].
///
/// [`Switch::remove_port`]: crate::Switch::remove_port
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

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

    pub(crate) fn remove(&mut self, port: PortId) {
        let (word, bit) = Self::split(port);
        self.0[word] &= !bit;
    }

    pub(crate) fn contains(&self, port: PortId) -> bool {
        let (word, bit) = Self::split(port);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Ports `64 * word` to `64 * word + 63`, lowest bit first.
    #[inline]
    pub(crate) fn word(&self, word: usize) -> u64 {
        self.0.get(word).copied().unwrap_or(0)
    }

    pub(crate) fn iter(self) -> PortIter {
        PortIter { set: self, word: 0 }
    }
}

/// The ports of a set, in rising order.
pub(crate) struct PortIter {
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
pub(crate) fn take_lowest(bits: &mut u64, word: usize) -> Option<PortId> {
    if *bits == 0 {
        return None;
    }
    let bit = bits.trailing_zeros() as usize;
    *bits &= *bits - 1;
    Some(PortId((word * 64 + bit) as u16))
}
