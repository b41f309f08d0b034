//! What travels with a frame besides its bytes: where it came from, how far it got, and whether it may wait for its receiver.

/// The origin and history of a frame in one word, since every frame of every batch carries it.
///
/// From the lowest bit: queue pair (8 bits), card (32 bits), trunks crossed so far, and in the highest bit whether the frame
/// is dropped when its receiver has no buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit(u64);

/// What stands in the place of a card's number where a switch itself is the sender.
pub const SWITCHES: usize = u32::MAX as usize;

impl Transit {
    /// The first bit of the number of trunks.
    const TRUNKS_AT: u32 = 40;
    /// Set if the frame does not wait for a receiver without buffers.
    const NEVER_WAITS: u64 = 1 << 63;

    /// A frame from the transmit ring of this card and queue pair, whose share of the pool it takes.
    #[inline]
    pub fn from_ring(card: usize, pair: usize) -> Self {
        Self((card as u64) << 8 | pair as u64 & 0xff)
    }

    /// A frame that a card sends by itself: no ring could hold it back.
    #[inline]
    pub fn from_card(card: usize) -> Self {
        Self::from_ring(card, 0).without_waiting()
    }

    /// A frame that a switch sends by itself.
    pub fn from_switch() -> Self {
        Self::from_ring(SWITCHES, 0).without_waiting()
    }

    /// The card that sent the frame.
    #[inline]
    pub fn card(self) -> usize {
        (self.0 >> 8) as u32 as usize
    }

    /// The queue pair of the card.
    #[inline]
    pub fn pair(self) -> usize {
        usize::from(self.0 as u8)
    }

    /// Whether a switch sent the frame by itself.
    #[inline]
    pub fn is_from_switch(self) -> bool {
        self.card() == SWITCHES
    }

    /// Trunks that the frame crossed so far.
    #[inline]
    pub fn trunks_crossed(self) -> u32 {
        ((self.0 & !Self::NEVER_WAITS) >> Self::TRUNKS_AT) as u32
    }

    /// The transit data of the frame behind one more trunk.
    #[inline]
    pub fn behind_trunk(self) -> Self {
        Self(self.0 + (1 << Self::TRUNKS_AT))
    }

    /// Whether the frame waits when its receiver has no buffer for it just now.
    #[inline]
    pub fn may_wait(self) -> bool {
        self.0 & Self::NEVER_WAITS == 0
    }

    /// The transit data of a frame that may wait for its receiver.
    #[inline]
    pub fn waiting(self) -> Self {
        Self(self.0 & !Self::NEVER_WAITS)
    }

    /// The transit data of a frame that is dropped if its receiver has no buffer: one of several copies, for example, of which
    /// none may hold up the others.
    #[inline]
    pub fn without_waiting(self) -> Self {
        Self(self.0 | Self::NEVER_WAITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_changes_nothing_else_about_a_frame() {
        let frame = Transit::from_ring(70_000, 3).behind_trunk().behind_trunk();
        for frame in [frame, frame.without_waiting()] {
            assert_eq!((frame.card(), frame.pair(), frame.trunks_crossed()), (70_000, 3, 2));
        }
        assert!(frame.may_wait() && !frame.without_waiting().may_wait());
        assert_eq!(frame.without_waiting().waiting(), frame);
        assert!(Transit::from_switch().is_from_switch() && !Transit::from_switch().may_wait());
    }
}
