//! When something is due, by number. It has no clock.

use alloc::{boxed::Box, vec};

use ether::Time;

/// The deadlines of a fixed number of keys.
///
/// The earliest is known at any time. It may be too early after [`cancel`](Self::cancel): then [`pop_due`](Self::pop_due) finds
/// nothing and corrects it. So starting and cancelling a timer, which most packets do, cost nothing; looking through all keys is
/// for when a timer expires.
#[derive(Debug)]
pub(crate) struct Deadlines {
    at: Box<[Time]>,
    next: Time,
    /// The keys that are counted, and how many of them have a deadline.
    counted: Box<[bool]>,
    running: u32,
}

impl Deadlines {
    /// None of `keys` keys has a deadline; those of which `is_counted` says so are counted when they have one.
    pub(crate) fn new(keys: usize, is_counted: impl Fn(usize) -> bool) -> Self {
        Self {
            at: vec![Time::MAX; keys].into(),
            next: Time::MAX,
            counted: (0..keys).map(is_counted).collect(),
            running: 0,
        }
    }

    /// Counted keys that have a deadline.
    #[inline]
    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// No key is due before this.
    #[inline]
    pub(crate) fn next(&self) -> Time {
        self.next
    }

    /// Whether the key has a deadline.
    #[inline]
    pub(crate) fn is_set(&self, key: usize) -> bool {
        self.at[key] != Time::MAX
    }

    /// Makes `key` due at `at`, and at no other time.
    #[inline]
    pub(crate) fn set(&mut self, key: usize, at: Time) {
        self.running += u32::from(self.counted[key] && !self.is_set(key));
        self.at[key] = at;
        self.next = self.next.min(at);
    }

    /// Forgets the deadline of a key.
    #[inline]
    pub(crate) fn cancel(&mut self, key: usize) {
        self.running -= u32::from(self.counted[key] && self.is_set(key));
        self.at[key] = Time::MAX;
    }

    /// Takes out a key that is due.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<usize> {
        if self.next > now {
            return None;
        }
        let (key, at) = self.at.iter().copied().enumerate().min_by_key(|(_, at)| *at)?;
        self.next = at;
        if at > now {
            return None;
        }
        self.cancel(key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_out_in_the_order_of_their_deadlines() {
        let at = Time::from_nanos;
        let mut deadlines = Deadlines::new(5, |key| key != 1);
        assert_eq!((deadlines.next(), deadlines.pop_due(at(9))), (Time::MAX, None));
        for (key, ns) in [(0, 30), (1, 10), (2, 20), (3, 5)] {
            deadlines.set(key, at(ns));
        }
        assert_eq!(deadlines.running(), 3);
        deadlines.cancel(3);
        deadlines.set(1, at(25));
        deadlines.set(2, at(20));
        deadlines.cancel(4);
        assert_eq!(deadlines.running(), 2);
        assert!(deadlines.is_set(1) && !deadlines.is_set(3));
        assert_eq!((deadlines.next(), deadlines.pop_due(at(19))), (at(5), None));
        assert_eq!(deadlines.next(), at(20));
        assert_eq!(
            [(); 4].map(|()| deadlines.pop_due(at(40))),
            [Some(2), Some(1), Some(0), None]
        );
        assert_eq!((deadlines.next(), deadlines.running()), (Time::MAX, 0));
    }
}
