//! The bytes of LCI's frames: a checked view and its writer. `docs/spec/lci-wire.md` is the definition.
//!
//! Fields wider than a byte are big-endian. Nothing here can panic on what a frame contains, and nothing decides.

use ether::{ETHERNET_HEADER_LEN, EtherType, MacAddr};

use crate::{
    Nodes,
    card::BEHIND_CARD,
    config::{NODES_MAX, PACKET_LEN_MAX},
};

/// "LC": the frames are LCI's. Frames between cards have the same EtherType by default, and another word here.
pub const MAGIC: u16 = 0x4c43;
/// The one version of the layout so far.
pub const VERSION: u8 = 1;
/// Length of the header of frames that concern one link, with the Ethernet header.
pub const LINK_HEADER_LEN: usize = 52;
/// Length of the header of frames that concern a group or a node, with the Ethernet header.
pub const GROUP_HEADER_LEN: usize = 80;
/// The shortest frame: Ethernet's minimum without frame check sequence.
pub const FRAME_LEN_MIN: usize = 60;

/// The receiver is to answer at once. With a HELLO: the sender has not heard of the receiver's session.
pub const FLAG_ANSWER: u8 = 1;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A node shows its session and its list of nodes.
    Hello = 0,
    /// Nothing but acknowledgements.
    Ack = 1,
    /// A packet for one node.
    Unicast = 2,
    /// A packet on a sender's tree.
    Multicast = 3,
    /// A node tells its parent in a tree which packets it and all below it have.
    Stable = 4,
    /// A node is ready for a group.
    Join = 5,
    /// The first member of a group names it.
    Group = 6,
    /// The sender has removed a node.
    Gone = 7,
    /// The sender leaves in order; it sends nothing more.
    Bye = 8,
}

impl Kind {
    /// Every kind, by number.
    pub const ALL: [Self; 9] = [
        Self::Hello,
        Self::Ack,
        Self::Unicast,
        Self::Multicast,
        Self::Stable,
        Self::Join,
        Self::Group,
        Self::Gone,
        Self::Bye,
    ];

    /// Whether frames of this kind have a number, and are acknowledged.
    pub const fn is_numbered(self) -> bool {
        !matches!(self, Self::Hello | Self::Ack)
    }

    /// Length of the header of this kind in bytes.
    pub const fn header_len(self) -> usize {
        match self {
            Self::Ack | Self::Unicast | Self::Bye => LINK_HEADER_LEN,
            _ => GROUP_HEADER_LEN,
        }
    }
}

/// The header of a frame, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Destination address.
    pub destination: MacAddr,
    /// Source address.
    pub source: MacAddr,
    /// What the frame is.
    pub kind: Kind,
    /// [`FLAG_ANSWER`] or 0.
    pub flags: u8,
    /// The node that sends this frame.
    pub from: u8,
    /// The node that it is for.
    pub to: u8,
    /// Which of several programs on the same network.
    pub job: u16,
    /// Bytes of the payload.
    pub length: u16,
    /// The sender's session.
    pub session: u32,
    /// The receiver's session as the sender knows it; 0 if it does not.
    pub peer_session: u32,
    /// The number of this frame on the link, if it has one.
    pub sequence: u32,
    /// The number that the sender awaits next.
    pub ack: u32,
    /// Bit *n*: the frame `ack + 1 + n` is there.
    pub selective: u64,
    /// What follows in frames that concern a group or a node; otherwise zeros.
    pub about: About,
}

/// What a frame says of a group or a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The group; in a HELLO the check sum of the list of nodes.
    pub group: u32,
    /// MULTICAST: number of the packet among those of its sender to the group. STABLE: all below are there. JOIN, GROUP: how
    /// many groups of these members there were before.
    pub number: u32,
    /// MULTICAST, STABLE: the node whose tree it is. GONE: the node that was removed.
    pub origin: u8,
    /// MULTICAST, STABLE: the members that the tree has. JOIN, GROUP: the members. HELLO: all nodes.
    pub nodes: Nodes,
}

impl Header {
    /// Reads a frame of the EtherType `ether_type`; `None` if it is no frame of LCI of this version.
    #[inline]
    pub fn parse(frame: &[u8], ether_type: EtherType) -> Option<Self> {
        let bytes: &[u8; LINK_HEADER_LEN] = frame.first_chunk()?;
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        if half(12) != ether_type.0 {
            return None;
        }
        Self::parse_any(frame)
    }

    /// Reads a frame that lies behind the tag of the card's multicast. Its addresses are not those of a frame of LCI.
    #[inline]
    pub(crate) fn parse_behind_card(frame: &[u8]) -> Option<Self> {
        Self::parse_any(frame.get(BEHIND_CARD..)?)
    }

    #[inline]
    fn parse_any(frame: &[u8]) -> Option<Self> {
        let bytes: &[u8; LINK_HEADER_LEN] = frame.first_chunk()?;
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if half(14) != MAGIC || bytes[16] != VERSION {
            return None;
        }
        let kind = *Kind::ALL.get(usize::from(bytes[17]))?;
        let header = Self {
            destination: MacAddr(core::array::from_fn(|i| bytes[i])),
            source: MacAddr(core::array::from_fn(|i| bytes[6 + i])),
            kind,
            flags: bytes[18],
            from: bytes[19],
            to: bytes[20],
            job: half(22),
            length: half(24),
            session: word(28),
            peer_session: word(32),
            sequence: word(36),
            ack: word(40),
            selective: u64::from(word(44)) << 32 | u64::from(word(48)),
            about: if kind.header_len() == LINK_HEADER_LEN {
                About::default()
            } else {
                About::parse(frame.get(LINK_HEADER_LEN..GROUP_HEADER_LEN)?)?
            },
        };
        let zeros = bytes[21] == 0 && half(26) == 0 && header.flags & !FLAG_ANSWER == 0;
        let nodes = usize::from(header.from) < NODES_MAX && usize::from(header.to) < NODES_MAX;
        let carries = matches!(kind, Kind::Unicast | Kind::Multicast);
        let length = usize::from(header.length);
        let fits = if carries {
            length <= PACKET_LEN_MAX && kind.header_len() + length <= frame.len()
        } else {
            length == 0
        };
        let sessions = header.session != 0 && (kind == Kind::Hello || header.peer_session != 0);
        (zeros && nodes && fits && sessions).then_some(header)
    }

    /// Writes the header for frames of the EtherType `ether_type` and returns its length.
    ///
    /// # Panics
    /// If `head` is shorter than [`GROUP_HEADER_LEN`].
    pub fn write(&self, ether_type: EtherType, head: &mut [u8]) -> usize {
        head[..6].copy_from_slice(&self.destination.0);
        head[6..12].copy_from_slice(&self.source.0);
        head[12..14].copy_from_slice(&ether_type.0.to_be_bytes());
        head[14..16].copy_from_slice(&MAGIC.to_be_bytes());
        head[16..22].copy_from_slice(&[VERSION, self.kind as u8, self.flags, self.from, self.to, 0]);
        head[22..24].copy_from_slice(&self.job.to_be_bytes());
        head[24..26].copy_from_slice(&self.length.to_be_bytes());
        head[26..28].copy_from_slice(&[0; 2]);
        head[28..32].copy_from_slice(&self.session.to_be_bytes());
        head[32..36].copy_from_slice(&self.peer_session.to_be_bytes());
        head[36..40].copy_from_slice(&self.sequence.to_be_bytes());
        head[40..44].copy_from_slice(&self.ack.to_be_bytes());
        head[44..52].copy_from_slice(&self.selective.to_be_bytes());
        let len = self.kind.header_len();
        if len == GROUP_HEADER_LEN {
            self.about.write(&mut head[LINK_HEADER_LEN..GROUP_HEADER_LEN]);
        }
        len
    }

    /// The payload of the frame that this is the header of.
    #[inline]
    pub fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let start = self.kind.header_len();
        frame.get(start..start + usize::from(self.length)).unwrap_or_default()
    }
}

impl About {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; GROUP_HEADER_LEN - LINK_HEADER_LEN] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let nodes = (0..4).fold(0, |nodes, nth| nodes << 32 | u128::from(word(12 + 4 * nth)));
        let zeros = bytes[9..12] == [0; 3] && usize::from(bytes[8]) < NODES_MAX;
        zeros.then_some(Self {
            group: word(0),
            number: word(4),
            origin: bytes[8],
            nodes: Nodes(nodes),
        })
    }

    fn write(&self, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&self.group.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.number.to_be_bytes());
        bytes[8..12].copy_from_slice(&[self.origin, 0, 0, 0]);
        bytes[12..28].copy_from_slice(&self.nodes.0.to_be_bytes());
    }
}

/// True for a frame of LCI, whatever else is in it: the magic word says so.
#[inline]
pub fn is_lci_frame(head: &[u8], ether_type: EtherType) -> bool {
    head.get(ETHERNET_HEADER_LEN - 2..ETHERNET_HEADER_LEN) == Some(&ether_type.0.to_be_bytes())
        && head.get(ETHERNET_HEADER_LEN..ETHERNET_HEADER_LEN + 2) == Some(&MAGIC.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: EtherType = EtherType::CARD_TO_CARD;

    fn header(kind: Kind) -> Header {
        Header {
            destination: MacAddr([2, 0, 0, 0, 0, 1]),
            source: MacAddr([2, 0, 0, 0, 0, 2]),
            kind,
            flags: FLAG_ANSWER,
            from: 127,
            to: 3,
            job: 0x0102,
            length: if matches!(kind, Kind::Unicast | Kind::Multicast) {
                7
            } else {
                0
            },
            session: 0x0a0b_0c0d,
            peer_session: 0x1a1b_1c1d,
            sequence: 0x2a2b_2c2d,
            ack: 0x3a3b_3c3d,
            selective: 0x4142_4344_4546_4748,
            about: if kind.header_len() == LINK_HEADER_LEN {
                About::default()
            } else {
                About {
                    group: 0x5a5b_5c5d,
                    number: 0x6a6b_6c6d,
                    origin: 9,
                    nodes: Nodes(1 << 127 | 5),
                }
            },
        }
    }

    #[test]
    fn m_bv1_a_header_survives_the_wire_and_nonsense_does_not() {
        for kind in Kind::ALL {
            let header = header(kind);
            let mut frame = [0; GROUP_HEADER_LEN + 7];
            assert_eq!(header.write(TYPE, &mut frame), kind.header_len());
            assert_eq!(Header::parse(&frame, TYPE), Some(header));
            assert_eq!(Header::parse(&frame, EtherType::MXOE), None);
            assert!(is_lci_frame(&frame, TYPE) && !is_lci_frame(&frame[..15], TYPE));
            let needed = kind.header_len() + usize::from(header.length);
            assert_eq!(Header::parse(&frame[..needed - 1], TYPE), None, "{kind:?} is cut off");
            for (at, value) in [
                (12, 0),
                (14, 0),
                (16, 2),
                (17, 9),
                (18, 2),
                (19, 128),
                (20, 128),
                (21, 1),
                (24, 4),
                (27, 1),
            ] {
                let mut wrong = frame;
                wrong[at] = value;
                assert_eq!(Header::parse(&wrong, TYPE), None, "{kind:?} byte {at}");
            }
            let mut wrong = frame;
            wrong[28..32].fill(0);
            assert_eq!(Header::parse(&wrong, TYPE), None, "no session");
        }
    }
}
