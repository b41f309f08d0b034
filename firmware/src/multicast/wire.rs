//! The bytes of frames between cards (EtherType 0x88B6): a checked view and its writer. `docs/spec/card-multicast.md` is the definition.
//!
//! All fields wider than a byte are big-endian. Nothing here can panic on what a frame contains, and nothing decides.

use ether::{ETHERNET_HEADER_LEN, EtherType, MacAddr};

use super::MEMBERS_MAX;

/// Ethernet header and tag; the payload follows.
pub const TAG_END: usize = 38;
/// The shortest frame between cards: Ethernet's minimum without frame check sequence.
pub const CARD_FRAME_MIN: usize = 60;
/// The one version of the layout so far.
pub const TAG_VERSION: u8 = 1;
/// "WM", so that another user of the experimental EtherType is not taken for a card.
const MAGIC: u16 = 0x574d;

/// In a STATE: the card has packets that wait for a credit.
pub(super) const FLAG_WAITING: u8 = 1;
/// In a CREDIT: the card wants to hear a STATE.
pub(super) const FLAG_PROBE: u8 = 1;
/// In a SEND to a reliable group: tell by a SENT, as soon as all packets of the guest have left its card.
pub const FLAG_REPORT: u8 = 1;
/// The packet, or what is said, is about packets from one member to one other: reliable groups alone have these.
pub const FLAG_UNICAST: u8 = 2;

/// What a frame between cards is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A guest asks its own card to multicast the payload.
    Send = 0,
    /// A packet that goes down a tree, or is at its receiver.
    Data = 1,
    /// A card tells its child which number it sends next, and whether it waits for credits.
    State = 2,
    /// A card tells its parent below which number it has buffers.
    Credit = 3,
    /// A card shows its address to the switches.
    Announce = 4,
    /// A card tells the others, and each its guest, that the member of this rank is gone.
    Gone = 5,
    /// A card tells its own guest how many of its packets to a reliable group have left.
    Sent = 6,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Send,
        Self::Data,
        Self::State,
        Self::Credit,
        Self::Announce,
        Self::Gone,
        Self::Sent,
    ];
}

/// The tag of a frame between cards, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Destination address.
    pub to: MacAddr,
    /// Source address.
    pub from: MacAddr,
    /// What the frame is.
    pub kind: Kind,
    /// Number of the group; never 0 but in an ANNOUNCE.
    pub group: u16,
    /// Which writing of the group's tables the sender goes by.
    pub generation: u16,
    /// Rank of the member whose tree this is about, below [`MEMBERS_MAX`]. In a SEND with [`FLAG_UNICAST`]: of the receiver.
    pub rank: u8,
    /// The address of that member.
    pub sender: MacAddr,
    /// DATA: the packet's number. STATE: the next one to be sent. CREDIT: the first one without a buffer. SENT: how many have left.
    pub sequence: u32,
    /// DATA: cards that sent it so far, the sender's included.
    pub hops: u8,
    /// Bits by kind.
    pub flags: u8,
    /// Bytes of the payload.
    pub payload_len: u16,
}

impl Tag {
    /// The request of the guest at `from` to its card.
    pub const fn send(from: MacAddr, group: u16, payload_len: u16) -> Self {
        Self {
            to: MacAddr::CARD,
            from,
            kind: Kind::Send,
            group,
            generation: 0,
            rank: 0,
            sender: MacAddr([0; 6]),
            sequence: 0,
            hops: 0,
            flags: 0,
            payload_len,
        }
    }

    /// Reads the first bytes of a frame of `frame_len` bytes; `None` if it is no frame between cards of this version.
    #[inline]
    pub fn parse(head: &[u8], frame_len: u32) -> Option<Self> {
        let bytes: &[u8; TAG_END] = head.first_chunk()?;
        let address = |at: usize| MacAddr(core::array::from_fn(|i| bytes[at + i]));
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        if half(12) != EtherType::CARD_TO_CARD.0 || half(14) != MAGIC || bytes[16] != TAG_VERSION {
            return None;
        }
        let tag = Self {
            to: address(0),
            from: address(6),
            kind: *Kind::ALL.get(usize::from(bytes[17]))?,
            group: half(18),
            generation: half(20),
            rank: bytes[23],
            sender: address(24),
            sequence: u32::from_be_bytes([bytes[30], bytes[31], bytes[32], bytes[33]]),
            hops: bytes[34],
            flags: bytes[35],
            payload_len: half(36),
        };
        let fits = TAG_END as u32 + u32::from(tag.payload_len) <= frame_len;
        let known = bytes[22] == 0 && usize::from(tag.rank) < MEMBERS_MAX && tag.flags <= FLAG_UNICAST + 1;
        (fits && known && (tag.group != 0) != (tag.kind == Kind::Announce)).then_some(tag)
    }

    /// Writes the tag with its addresses.
    pub fn write(&self, head: &mut [u8; TAG_END]) {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            head[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&self.to.0);
        put(&self.from.0);
        put(&EtherType::CARD_TO_CARD.0.to_be_bytes());
        put(&MAGIC.to_be_bytes());
        put(&[TAG_VERSION, self.kind as u8]);
        put(&self.group.to_be_bytes());
        put(&self.generation.to_be_bytes());
        put(&[0, self.rank]);
        put(&self.sender.0);
        put(&self.sequence.to_be_bytes());
        put(&[self.hops, self.flags]);
        put(&self.payload_len.to_be_bytes());
    }
}

/// True for a frame between cards, which the magic word says: from a guest it goes to its card's
/// [`Multicast::send`](super::Multicast::send), from a network to [`Multicast::receive`](super::Multicast::receive). Other frames of
/// that EtherType are not for cards, and go on like any frame.
#[inline]
pub fn is_card_frame(head: &[u8]) -> bool {
    head.get(ETHERNET_HEADER_LEN - 2..ETHERNET_HEADER_LEN) == Some(&EtherType::CARD_TO_CARD.0.to_be_bytes())
        && head.get(ETHERNET_HEADER_LEN..ETHERNET_HEADER_LEN + 2) == Some(&MAGIC.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_survives_the_wire_and_nonsense_does_not() {
        let tag = Tag {
            kind: Kind::Data,
            generation: 3,
            rank: 127,
            sender: MacAddr([2, 0, 0, 0, 0, 9]),
            sequence: u32::MAX,
            hops: 4,
            flags: 1,
            ..Tag::send(MacAddr([2, 0, 0, 0, 0, 1]), 7, 22)
        };
        let mut head = [0; TAG_END];
        tag.write(&mut head);
        assert!(is_card_frame(&head) && !is_card_frame(&head[..15]));
        assert_eq!(Tag::parse(&head, 60), Some(tag));
        assert_eq!(Tag::parse(&head, 59), None, "the payload is longer than the frame");
        assert_eq!(Tag::parse(&head[..37], 60), None);
        for (at, value) in [(12, 0), (14, 0), (16, 2), (17, 7), (18, 0), (22, 1), (23, 128), (35, 4)] {
            let mut wrong = head;
            wrong[at] = value;
            let is_group = at == 18;
            if is_group {
                wrong[19] = 0;
            }
            assert_eq!(Tag::parse(&wrong, 60), None, "byte {at}");
            assert_eq!(is_card_frame(&wrong), at >= 16, "malformed ones are the card's, too");
        }
    }
}
