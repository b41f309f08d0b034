//! The limit for direct transmit, which the authority writes to the peer table: how long the frames may be that
//! endpoints hand directly to the driver. The authority writes it anew with every check, and what it has not repeated
//! for a while is not valid any more.

use ether::Time;

use crate::PeerTable;

/// What the authority wrote is valid for so long.
const HOLDS_NS: u64 = 3_000_000_000;
/// The longest frame is in these bits of the word; the bits above them count the writes.
const FRAME_LEN_BITS: u32 = 16;
const FRAME_LEN_MASK: u64 = (1 << FRAME_LEN_BITS) - 1;

/// How long frames may be that an endpoint hands directly to the driver.
#[derive(Debug, Default)]
pub struct DirectLimit {
    word: u64,
    /// When the word was first seen.
    since: Time,
}

impl DirectLimit {
    /// Returns the length of the longest such frame at `now`, by any clock that goes on, in bytes. With 0 none may be
    /// sent directly, because the authority says so or has written nothing for some seconds. For
    /// [`netif::Netif::limit_direct`].
    #[inline]
    pub fn frame_len_max(&mut self, table: &PeerTable, now: Time) -> usize {
        let word = table.direct_word();
        if word != self.word {
            (self.word, self.since) = (word, now);
        } else if now.nanos_since(self.since) > HOLDS_NS {
            return 0;
        }
        (word & FRAME_LEN_MASK) as usize
    }
}

/// Makes the word of the peer table that follows `before` and says how long such frames may be, in bytes.
pub fn next_word(before: u64, frame_len_max: usize) -> u64 {
    let said = (before >> FRAME_LEN_BITS).wrapping_add(1);
    said << FRAME_LEN_BITS | (frame_len_max as u64).min(FRAME_LEN_MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_authority_has_not_said_for_a_while_does_not_hold() {
        let dir = tempfile::tempdir().unwrap();
        let own = ether::MacAddr([2, 0, 0, 0, 0, 1]);
        let writer = crate::PeerTableWriter::open(&dir.path().join("peers"), own)
            .unwrap()
            .unwrap();
        let table = writer.table();
        let mut limit = DirectLimit::default();
        let at = |ms: u64| Time::from_nanos(1_000_000_000_000 + ms * 1_000_000);
        let say = |len| writer.set_direct_word(next_word(table.direct_word(), len));
        assert_eq!(limit.frame_len_max(table, at(0)), 0);
        for (ms, said, expected) in [
            (1000, Some(1514), 1514),
            (2000, Some(1514), 1514),
            (5000, None, 1514),
            (5001, None, 0),
            (9000, None, 0),
            (9001, Some(9014), 9014),
            (9002, Some(0), 0),
            (9003, Some(100_000), 65_535),
        ] {
            said.map(say);
            assert_eq!(limit.frame_len_max(table, at(ms)), expected, "{ms}");
        }
    }
}
