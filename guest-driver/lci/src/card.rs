//! What LCI-ni and LCI-mixed ask of the card: a reliable group of all nodes (`docs/spec/card-multicast.md`), whose packets are sent to the
//! card and come from it, and whose notes say what has left and who is gone.

use alloc::{collections::VecDeque, vec::Vec};

use ether::MacAddr;
use firmware::multicast::{FLAG_REPORT, FLAG_UNICAST, Kind as CardKind, SEND_BUFFERS, TAG_END, Tag, is_card_frame};

use crate::transmit::Outgoing;

/// Bytes before LCI's magic word in a frame of the card, beyond those in a frame of its own.
pub(crate) const BEHIND_CARD: usize = TAG_END - ether::ETHERNET_HEADER_LEN;
/// Frames that may be in the card: it keeps as many for its host.
const WINDOW: u32 = SEND_BUFFERS as u32;

/// Who gets a frame from the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    Node(usize),
    All,
}

/// What a frame from the card is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FromCard {
    /// A packet of this node; the LCI header follows behind the tag.
    Packet { from: usize, is_multicast: bool },
    /// So many of the own frames have left the card.
    Left(u32),
    /// The host of this node is gone.
    Gone(usize),
}

/// The card as the engine sees it.
#[derive(Debug)]
pub(crate) struct CardLink {
    group: u16,
    own: MacAddr,
    /// Nodes by rank, which is the order of addresses, and ranks by node.
    nodes: Vec<u8>,
    ranks: Vec<u8>,
    /// Frames that were given to the card, and those of them that have left it.
    given: u32,
    left: u32,
    /// The card has removed this node, and takes nothing from it.
    pub(crate) has_removed: bool,
    /// Packets for all that wait for the card to have room (LCI-ni).
    pub(crate) for_all: VecDeque<Outgoing>,
}

impl CardLink {
    pub(crate) fn new(group: u16, me: usize, macs: &[MacAddr]) -> Self {
        let mut nodes: Vec<_> = (0..macs.len() as u8).collect();
        nodes.sort_by_key(|node| macs[usize::from(*node)]);
        let mut ranks = nodes.clone();
        for (rank, node) in (0u8..).zip(&nodes) {
            ranks[usize::from(*node)] = rank;
        }
        Self {
            group,
            own: macs[me],
            nodes,
            ranks,
            given: 0,
            left: 0,
            has_removed: false,
            for_all: VecDeque::with_capacity(crate::SEND_BUFFERS + 1),
        }
    }

    /// Whether the card has room for another frame.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.given.wrapping_sub(self.left) < WINDOW
    }

    /// Whether all frames have left the card.
    pub(crate) fn is_empty(&self) -> bool {
        self.given == self.left
    }

    /// The card has removed this node: nothing that it was given is waited for.
    pub(crate) fn removes(&mut self) {
        self.has_removed = true;
        self.left = self.given;
    }

    /// Writes what the card wants to know before `len` bytes from LCI's magic word on.
    pub(crate) fn write(&mut self, to: To, len: usize, report: bool, head: &mut [u8]) {
        self.given = self.given.wrapping_add(1);
        let mut tag = Tag::send(self.own, self.group, len as u16);
        if let To::Node(node) = to {
            tag.flags = FLAG_UNICAST;
            tag.rank = self.ranks[node];
        }
        if report {
            tag.flags |= FLAG_REPORT;
        }
        if let Some(head) = head.first_chunk_mut::<TAG_END>() {
            tag.write(head);
        }
    }

    /// Reads a frame from the card; `None` if it is none for this program.
    #[inline]
    pub(crate) fn read(&mut self, frame: &[u8]) -> Option<FromCard> {
        let tag = Tag::parse(frame, frame.len() as u32)?;
        if tag.group != self.group || tag.to != self.own {
            return None;
        }
        let node = usize::from(*self.nodes.get(usize::from(tag.rank))?);
        match tag.kind {
            CardKind::Data => Some(FromCard::Packet {
                from: node,
                is_multicast: tag.flags & FLAG_UNICAST == 0,
            }),
            CardKind::Sent if tag.from == MacAddr::CARD => Some(FromCard::Left(tag.sequence)),
            CardKind::Gone if tag.from == MacAddr::CARD => Some(FromCard::Gone(node)),
            _ => None,
        }
    }

    /// Notes how many frames have left the card; false for a number that cannot be.
    pub(crate) fn note_left(&mut self, left: u32) -> bool {
        let news = left.wrapping_sub(self.left);
        let is_sound = news <= self.given.wrapping_sub(self.left);
        if is_sound {
            self.left = left;
        }
        is_sound
    }
}

/// True for a frame of the card's multicast, whatever else is in it.
#[inline]
pub(crate) fn is_from_card(frame: &[u8]) -> bool {
    is_card_frame(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_told_apart_by_the_order_of_their_addresses_and_notes_by_what_can_be() {
        let macs = [9, 3, 7].map(|last| MacAddr([2, 0, 0, 0, 0, last]));
        let mut card = CardLink::new(0x8001, 0, &macs);
        let mut head = [0; TAG_END];
        card.write(To::Node(1), 22, false, &mut head);
        let tag = Tag::parse(&head, 60).expect("a good tag");
        assert_eq!(
            (tag.rank, tag.flags, tag.group),
            (0, FLAG_UNICAST, 0x8001),
            "the lowest address"
        );
        let gone = Tag {
            to: macs[0],
            from: MacAddr::CARD,
            kind: CardKind::Gone,
            rank: 1,
            ..tag
        };
        let mut read = |tag: Tag| {
            let mut frame = [0; 60];
            tag.write(frame.first_chunk_mut().expect("longer"));
            card.read(&frame)
        };
        assert_eq!(read(gone), Some(FromCard::Gone(2)));
        assert_eq!(read(Tag { rank: 3, ..gone }), None, "no member");
        assert_eq!(read(Tag { from: macs[1], ..gone }), None, "not the card");
        assert_eq!(read(Tag { group: 0x8002, ..gone }), None, "another program's");
        assert!(!card.note_left(2) && card.note_left(1) && card.is_empty() && !card.note_left(0));
    }
}
