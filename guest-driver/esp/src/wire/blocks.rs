//! The optional blocks of SYN and SYN+ACK: type, length, value. Type 0 ends the list, as the padding of Ethernet does.

use super::{Names, WireError};

const END: u8 = 0;
const SELECTIVE: u8 = 1;
const MARK: u8 = 2;
const CHECK: u8 = 3;
pub(super) const NAMES: u8 = 4;

/// What a side can do; a connection does what both can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// It takes selective acknowledgements.
    pub selective: bool,
    /// It marks frames for cards that interrupt at a mark, and likes to be sent such.
    pub mark: bool,
    /// It wants check sequences.
    pub check: bool,
}

impl Blocks {
    /// What both sides can.
    pub const fn both(self, other: Self) -> Self {
        Self {
            selective: self.selective && other.selective,
            mark: self.mark && other.mark,
            check: self.check && other.check,
        }
    }

    /// Reads the blocks, with the names of the connection if they are there; unknown ones are skipped.
    pub(super) fn parse(mut bytes: &[u8]) -> Result<(Self, Option<Names>), WireError> {
        let mut blocks = Self::default();
        let mut names = None;
        while let [kind, rest @ ..] = bytes {
            if *kind == END {
                break;
            }
            let (len, rest) = rest.split_first().ok_or(WireError::Short)?;
            let value = rest.get(..usize::from(*len)).ok_or(WireError::Short)?;
            bytes = &rest[value.len()..];
            match *kind {
                SELECTIVE => blocks.selective = true,
                MARK => blocks.mark = true,
                CHECK => blocks.check = true,
                NAMES => names = Some(Names::parse(value).ok_or(WireError::Field)?),
                _ => {}
            }
        }
        Ok((blocks, names))
    }

    /// The blocks as bytes, and how many there are.
    pub(super) const fn to_bytes(self) -> ([u8; 6], usize) {
        let mut bytes = [0; 6];
        let mut len = 0;
        let all = [(self.selective, SELECTIVE), (self.mark, MARK), (self.check, CHECK)];
        let mut at = 0;
        while at < all.len() {
            if all[at].0 {
                bytes[len] = all[at].1;
                len += 2;
            }
            at += 1;
        }
        (bytes, len)
    }
}
