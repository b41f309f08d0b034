//! The tag of IEEE 802.1Q: the number of a VLAN, what a frame's tag says, and what becomes of it where the frame leaves.
//!
//! Only C-tags (0x8100) are read: to a customer bridge a frame with an S-tag (0x88a8) is an untagged one.

use core::fmt;

use ether::ETHERNET_HEADER_LEN;

/// Bytes of a tag: 0x8100 and the tag control information.
pub const VLAN_TAG_LEN: usize = 4;

/// Bytes of a frame up to the end of its tag.
pub(crate) const TAGGED_HEADER_LEN: usize = ETHERNET_HEADER_LEN + VLAN_TAG_LEN;

/// EtherType of a C-tag.
const C_TAG: [u8; 2] = [0x81, 0x00];

/// Where the tag begins: behind both addresses.
const TAG_AT: usize = 12;

/// Priority and drop eligibility in the tag control information.
const PRIORITY_MASK: u16 = 0xf000;

/// The number in it.
const VID_MASK: u16 = 0x0fff;

/// The number of a VLAN, 1 to 4094.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VlanId(u16);

impl VlanId {
    /// The VLAN of ports that were given no other one.
    pub const DEFAULT: Self = Self(1);
    /// The VLAN with the greatest number.
    pub const MAX: Self = Self(4094);

    /// The VLAN of this number; `None` if it is not 1 to 4094.
    pub const fn new(number: u16) -> Option<Self> {
        if number >= 1 && number <= Self::MAX.0 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The number of the VLAN.
    #[inline]
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How frames of a VLAN leave a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EgressForm {
    Untagged,
    Tagged,
}

/// The tag that a frame came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameTag {
    None,
    /// Tag control information: priority, drop eligibility, number.
    Tci(u16),
}

impl FrameTag {
    /// Reads it from a frame's first bytes; `None` if they end within the tag.
    #[inline]
    pub(crate) fn of(header: &[u8]) -> Option<Self> {
        if header.get(TAG_AT..ETHERNET_HEADER_LEN)? != C_TAG {
            return Some(Self::None);
        }
        let tci = header.get(ETHERNET_HEADER_LEN..ETHERNET_HEADER_LEN + 2)?;
        header.get(TAGGED_HEADER_LEN - 1)?;
        Some(Self::Tci(u16::from_be_bytes([tci[0], tci[1]])))
    }

    /// The number that it states; 0 where there is none.
    #[inline]
    pub(crate) const fn number(self) -> u16 {
        match self {
            Self::None => 0,
            Self::Tci(tci) => tci & VID_MASK,
        }
    }

    /// Where the EtherType behind it is.
    #[inline]
    pub(crate) const fn type_at(self) -> usize {
        match self {
            Self::None => TAG_AT,
            Self::Tci(_) => TAG_AT + VLAN_TAG_LEN,
        }
    }

    /// What is to be done with the tag of such a frame, of `vlan`, that leaves in this form. A tag keeps its priority, which
    /// is lost where the tag is.
    #[inline]
    pub(crate) fn change_for(self, form: EgressForm, vlan: VlanId) -> TagChange {
        match (self, form) {
            (Self::None, EgressForm::Untagged) => TagChange::Keep,
            (Self::None, EgressForm::Tagged) => TagChange::Push(vlan.0),
            (Self::Tci(_), EgressForm::Untagged) => TagChange::Pop,
            (Self::Tci(tci), EgressForm::Tagged) if tci & VID_MASK == vlan.0 => TagChange::Keep,
            (Self::Tci(tci), EgressForm::Tagged) => TagChange::Set(tci & PRIORITY_MASK | vlan.0),
        }
    }
}

/// What becomes of a frame's tag where it leaves the switch. Numbers are tag control information: priority, drop
/// eligibility, VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TagChange {
    /// The frame leaves as it came.
    Keep,
    /// It loses its tag, four bytes behind the addresses.
    Pop,
    /// It gets a tag behind the addresses.
    Push(u16),
    /// Its tag is replaced (one that stated only a priority).
    Set(u16),
}

/// The first bytes of a frame whose tag was changed: made by [`TagChange::head`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaggedHead {
    bytes: [u8; TAGGED_HEADER_LEN - 2],
    len: usize,
    /// Bytes at the beginning of the frame as it came that these stand for.
    pub replaces: usize,
}

impl TaggedHead {
    /// The bytes that the frame begins with now.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl TagChange {
    /// By how many bytes the frame becomes longer.
    #[inline]
    pub const fn growth(self) -> isize {
        match self {
            Self::Keep | Self::Set(_) => 0,
            Self::Pop => -(VLAN_TAG_LEN as isize),
            Self::Push(_) => VLAN_TAG_LEN as isize,
        }
    }

    /// What a frame, with these first bytes, begins with after the change. `None` if `header` is shorter than the
    /// addresses (or the tag that is to go).
    pub fn head(self, header: &[u8]) -> Option<TaggedHead> {
        let mut bytes = [0; TAGGED_HEADER_LEN - 2];
        bytes[..TAG_AT].copy_from_slice(header.get(..TAG_AT)?);
        let (len, replaces) = match self {
            Self::Keep => (TAG_AT, TAG_AT),
            Self::Pop => (TAG_AT, TAG_AT + VLAN_TAG_LEN),
            Self::Push(tci) | Self::Set(tci) => {
                bytes[TAG_AT..TAG_AT + 2].copy_from_slice(&C_TAG);
                bytes[TAG_AT + 2..].copy_from_slice(&tci.to_be_bytes());
                let replaced = if self.growth() == 0 { VLAN_TAG_LEN } else { 0 };
                (TAG_AT + VLAN_TAG_LEN, TAG_AT + replaced)
            }
        };
        (header.len() >= replaces).then_some(TaggedHead { bytes, len, replaces })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn changed(change: TagChange, frame: &[u8]) -> Vec<u8> {
        let head = change.head(frame).unwrap();
        let mut out = head.bytes().to_vec();
        out.extend_from_slice(&frame[head.replaces..]);
        assert_eq!(out.len() as isize, frame.len() as isize + change.growth());
        out
    }

    #[test]
    fn tags_are_pushed_popped_and_replaced_in_place() {
        let mut plain: Vec<u8> = (0..12).collect();
        plain.extend_from_slice(&[0x08, 0x00, 0xaa, 0xbb]);
        let tagged = changed(TagChange::Push(0xa00a), &plain);
        assert_eq!(tagged[12..], [0x81, 0x00, 0xa0, 0x0a, 0x08, 0x00, 0xaa, 0xbb]);
        assert_eq!(changed(TagChange::Pop, &tagged), plain);
        assert_eq!(changed(TagChange::Keep, &tagged), tagged);
        let other = changed(TagChange::Set(0x2014), &tagged);
        assert_eq!(other[12..], [0x81, 0x00, 0x20, 0x14, 0x08, 0x00, 0xaa, 0xbb]);
        assert_eq!(TagChange::Pop.head(&plain[..15]), None);
        assert_eq!(TagChange::Push(1).head(&plain[..11]), None);
    }
}
