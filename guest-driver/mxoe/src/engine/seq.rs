//! Sequence numbers: 14 bits that wrap, below two bits of a session number (7.1). This module is arithmetic only.

/// A sequence number as it stands in `lib_seqnum`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seq(pub u16);

const NUMBER: u16 = 0x3fff;

impl Seq {
    /// The number of the first message of a fresh conversation.
    pub const FIRST: Self = Self(1);

    /// Returns the 14 bits that count.
    #[inline]
    pub const fn number(self) -> u16 {
        self.0 & NUMBER
    }

    /// Returns the two bits of the session number.
    #[inline]
    pub const fn session(self) -> u16 {
        self.0 >> 14
    }

    /// Returns the number `count` messages later in this session.
    #[inline]
    #[must_use]
    pub const fn plus(self, count: u16) -> Self {
        Self((self.0 & !NUMBER) | (self.0.wrapping_add(count) & NUMBER))
    }

    /// Returns the number of messages from `earlier` to this one, modulo 16384; session bits are ignored.
    #[inline]
    pub const fn since(self, earlier: Self) -> u16 {
        self.0.wrapping_sub(earlier.0) & NUMBER
    }

    /// Whether the session bits agree.
    #[inline]
    pub const fn same_session(self, other: Self) -> bool {
        self.session() == other.session()
    }

    /// Returns number 1 of this session.
    #[must_use]
    pub const fn restarted(self) -> Self {
        Self((self.0 & !NUMBER) | Self::FIRST.0)
    }

    /// Returns number 1 of the next session.
    #[must_use]
    pub const fn next_session(self) -> Self {
        Self(self.restarted().0.wrapping_add(NUMBER + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_below_the_session_bits() {
        let last = Seq(0xbfff);
        assert_eq!(last.plus(1), Seq(0x8000));
        assert_eq!(last.plus(1).since(last), 1);
        assert_eq!(last.since(last.plus(1)), 0x3fff);
        assert_eq!(last.next_session(), Seq(0xc001));
        assert_eq!(Seq(0xc123).next_session(), Seq::FIRST);
        assert_eq!(Seq(0xc123).restarted(), Seq(0xc001));
        assert!(last.same_session(Seq(0x8000)) && !last.same_session(Seq(0x4000)));
    }
}
