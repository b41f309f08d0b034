//! GET_STRATEGIES: which strategies a card has, and their names. A client shows and takes the names that its card has.

use core::fmt;

use super::{
    StrategyCode,
    reply::ReplyError,
    wire::{BODY_MAX, Reader, Writer},
};
use crate::StrategyKind;

/// Bytes of a reply before the names.
const NAMES_AT: usize = 4;
/// Bytes that the names in a reply have, their lengths included.
const NAMES_LEN: usize = BODY_MAX - NAMES_AT;

/// Names of a card's strategies: as many as one reply holds, from a code on.
#[derive(Clone, PartialEq, Eq)]
pub struct StrategyNames {
    /// How many strategies the card has; their codes count from 0.
    pub total: u8,
    /// The code of the first that is named here.
    first: u8,
    /// How many are named here.
    count: u8,
    /// The names, each behind its length.
    text: [u8; NAMES_LEN],
    text_len: usize,
}

impl StrategyNames {
    /// The strategies of this crate from a code on.
    pub(crate) fn from(first: StrategyCode) -> Self {
        let mut names = Self {
            total: StrategyKind::COUNT as u8,
            first: first.0,
            count: 0,
            text: [0; NAMES_LEN],
            text_len: 0,
        };
        for name in StrategyKind::NAMES.iter().skip(usize::from(first.0)) {
            let end = names.text_len + 1 + name.len();
            let Some(room) = names.text.get_mut(names.text_len..end) else {
                break;
            };
            // Names have at most 31 bytes.
            room[0] = name.len() as u8;
            room[1..].copy_from_slice(name.as_bytes());
            (names.count, names.text_len) = (names.count + 1, end);
        }
        names
    }

    /// The strategies named here with their codes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (StrategyCode, &str)> {
        let mut rest = &self.text[..self.text_len];
        (self.first..=u8::MAX).map_while(move |code| {
            let (&len, text) = rest.split_first()?;
            let (name, behind) = text.split_at_checked(len.into())?;
            rest = behind;
            Some((StrategyCode(code), core::str::from_utf8(name).ok()?))
        })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.u8(self.total);
        writer.u8(self.first);
        writer.u8(self.count);
        writer.u8(0);
        writer.bytes(&self.text[..self.text_len]);
    }

    /// Takes only names that may stand on a terminal.
    pub(super) fn read(reader: &mut Reader) -> Result<Option<Self>, ReplyError> {
        let parts = (|| Some((reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?)))();
        let Some((total, first, count, _)) = parts else {
            return Ok(None);
        };
        let mut names = Self {
            total,
            first,
            count,
            text: [0; NAMES_LEN],
            text_len: 0,
        };
        for _ in 0..count {
            let Some(name) = reader.0.first().and_then(|&len| reader.0.get(..1 + usize::from(len))) else {
                return Ok(None);
            };
            if name.len() == 1 || !name[1..].iter().all(u8::is_ascii_graphic) {
                return Err(ReplyError::UnknownValue);
            }
            let end = names.text_len + name.len();
            // The body is no longer than this room.
            let Some(room) = names.text.get_mut(names.text_len..end) else {
                return Ok(None);
            };
            room.copy_from_slice(name);
            names.text_len = end;
            reader.0 = &reader.0[name.len()..];
        }
        Ok(Some(names))
    }
}

impl fmt::Debug for StrategyNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StrategyNames(of {}: ", self.total)?;
        f.debug_list().entries(self.iter()).finish()?;
        f.write_str(")")
    }
}
