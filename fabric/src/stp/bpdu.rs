//! BPDUs on the wire (IEEE 802.1D-2004, clause 9): configuration, topology change notification, and rapid ones.

use ether::{ETHERNET_HEADER_LEN, MacAddr};

use super::priority::{BridgeId, Times, Vector};
use super::types::PortRole;
use crate::control_frame::{CONTROL_FRAME_LEN_MIN, ControlFrame};

/// The address of all bridges, where BPDUs go.
pub const BRIDGE_GROUP: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0]);

/// LLC of BPDUs: both service access points, unnumbered information.
const LLC: [u8; 3] = [0x42, 0x42, 0x03];

const BPDU_AT: usize = ETHERNET_HEADER_LEN + LLC.len();

const TYPE_CONFIGURATION: u8 = 0x00;
const TYPE_RAPID: u8 = 0x02;
const TYPE_CHANGE: u8 = 0x80;

const CONFIGURATION_LEN: usize = 35;
const RAPID_LEN: usize = 36;
const CHANGE_LEN: usize = 4;

const FLAG_CHANGE: u8 = 1;
const FLAG_PROPOSAL: u8 = 1 << 1;
const FLAG_LEARNING: u8 = 1 << 4;
const FLAG_FORWARDING: u8 = 1 << 5;
const FLAG_AGREEMENT: u8 = 1 << 6;
const FLAG_CHANGE_ACK: u8 = 1 << 7;
const ROLE_SHIFT: u8 = 2;

/// Which kind of BPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of bridges that speak the old protocol.
    Configuration,
    Rapid,
}

/// The flags of a BPDU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    pub change: bool,
    pub proposal: bool,
    pub learning: bool,
    pub forwarding: bool,
    pub agreement: bool,
    pub change_ack: bool,
}

/// Which news of a port an answer is to. It stands in the padding behind a rapid BPDU, where bridges of others have nothing and
/// check nothing: the standard's agreements do not say what they agree to, and one to old news may close a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Exchange {
    /// Number of the news that this BPDU tells.
    pub told: u16,
    /// Number of the last news that the sender heard on this port.
    pub heard: u16,
}

/// What an [`Exchange`] begins with.
const EXCHANGE_MARK: [u8; 2] = *b"Wf";

/// Where it is: behind the BPDU.
const EXCHANGE_AT: usize = BPDU_AT + RAPID_LEN;

impl Exchange {
    fn parse(frame: &[u8]) -> Option<Self> {
        let (mark, words) = frame.get(EXCHANGE_AT..EXCHANGE_AT + 6)?.split_first_chunk::<2>()?;
        (*mark == EXCHANGE_MARK).then(|| Self {
            told: u16::from_be_bytes([words[0], words[1]]),
            heard: u16::from_be_bytes([words[2], words[3]]),
        })
    }
}

/// What a bridge says of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub kind: Kind,
    /// `None`: a role that rapid spanning tree does not know.
    pub role: Option<PortRole>,
    pub flags: Flags,
    pub vector: Vector,
    pub times: Times,
    /// None from bridges of others.
    pub exchange: Option<Exchange>,
}

/// What a frame to the address of all bridges says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bpdu {
    Message(Message),
    /// A topology change notification of the old protocol.
    Change,
}

impl Bpdu {
    /// Reads a frame from its first bytes; `None` if it is no BPDU that this protocol reads, or too little of it is there.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let len = usize::from(u16::from_be_bytes([*frame.get(12)?, *frame.get(13)?]));
        if frame.get(ETHERNET_HEADER_LEN..BPDU_AT)? != LLC {
            return None;
        }
        let bpdu = frame.get(BPDU_AT..)?;
        let said = len.checked_sub(LLC.len())?.min(bpdu.len());
        let bpdu = &bpdu[..said];
        let &[0, 0, version, kind, ..] = bpdu else { return None };
        match kind {
            TYPE_CHANGE if said >= CHANGE_LEN => Some(Self::Change),
            TYPE_CONFIGURATION if said >= CONFIGURATION_LEN => {
                Message::parse(Kind::Configuration, bpdu).map(Self::Message)
            }
            TYPE_RAPID if version >= 2 && said >= RAPID_LEN => {
                let exchange = Exchange::parse(frame);
                Message::parse(Kind::Rapid, bpdu).map(|message| Self::Message(Message { exchange, ..message }))
            }
            _ => None,
        }
    }

    /// The frame that says it.
    pub fn frame(&self, source: MacAddr) -> ControlFrame {
        let mut control = ControlFrame::zeroed(CONTROL_FRAME_LEN_MIN);
        let frame = control.bytes_mut();
        frame[..6].copy_from_slice(&BRIDGE_GROUP.0);
        frame[6..12].copy_from_slice(&source.0);
        frame[ETHERNET_HEADER_LEN..BPDU_AT].copy_from_slice(&LLC);
        let bpdu = &mut frame[BPDU_AT..];
        let len = match self {
            Self::Change => {
                bpdu[3] = TYPE_CHANGE;
                CHANGE_LEN
            }
            Self::Message(message) => message.write(bpdu),
        };
        if let Self::Message(Message {
            kind: Kind::Rapid,
            exchange: Some(Exchange { told, heard }),
            ..
        }) = self
        {
            frame[EXCHANGE_AT..EXCHANGE_AT + 2].copy_from_slice(&EXCHANGE_MARK);
            frame[EXCHANGE_AT + 2..EXCHANGE_AT + 4].copy_from_slice(&told.to_be_bytes());
            frame[EXCHANGE_AT + 4..EXCHANGE_AT + 6].copy_from_slice(&heard.to_be_bytes());
        }
        frame[12..14].copy_from_slice(&((len + LLC.len()) as u16).to_be_bytes());
        control
    }
}

impl Message {
    fn parse(kind: Kind, bpdu: &[u8]) -> Option<Self> {
        let eight = |at: usize| bpdu.get(at..)?.first_chunk::<8>().copied();
        let two = |at: usize| Some(u16::from_be_bytes(*bpdu.get(at..)?.first_chunk()?));
        let bits = *bpdu.get(4)?;
        let flags = Flags {
            change: bits & FLAG_CHANGE != 0,
            proposal: bits & FLAG_PROPOSAL != 0,
            learning: bits & FLAG_LEARNING != 0,
            forwarding: bits & FLAG_FORWARDING != 0,
            agreement: bits & FLAG_AGREEMENT != 0,
            change_ack: bits & FLAG_CHANGE_ACK != 0,
        };
        let role = match (kind, bits >> ROLE_SHIFT & 3) {
            (Kind::Configuration, _) | (Kind::Rapid, 3) => Some(PortRole::Designated),
            (Kind::Rapid, 2) => Some(PortRole::Root),
            (Kind::Rapid, 1) => Some(PortRole::Alternate),
            (Kind::Rapid, _) => None,
        };
        Some(Self {
            kind,
            role,
            flags: match kind {
                Kind::Rapid => flags,
                Kind::Configuration => Flags {
                    change: flags.change,
                    change_ack: flags.change_ack,
                    ..Flags::default()
                },
            },
            vector: Vector {
                root: BridgeId::from_bytes(eight(5)?),
                cost: u32::from_be_bytes(*bpdu.get(13..)?.first_chunk()?),
                bridge: BridgeId::from_bytes(eight(17)?),
                port: two(25)?,
            },
            times: Times {
                message_age: two(27)?,
                max_age: two(29)?,
                hello: two(31)?,
                forward_delay: two(33)?,
            },
            exchange: None,
        })
    }

    /// Writes the BPDU and returns its length.
    fn write(&self, bpdu: &mut [u8]) -> usize {
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let Flags {
            change,
            proposal,
            learning,
            forwarding,
            agreement,
            change_ack,
        } = self.flags;
        let role = match self.role {
            Some(PortRole::Designated) => 3,
            Some(PortRole::Root) => 2,
            Some(PortRole::Alternate | PortRole::Backup) => 1,
            Some(PortRole::Disabled) | None => 0,
        };
        let old = flag(change, FLAG_CHANGE) | flag(change_ack, FLAG_CHANGE_ACK);
        let rapid = flag(change, FLAG_CHANGE)
            | flag(proposal, FLAG_PROPOSAL)
            | role << ROLE_SHIFT
            | flag(learning, FLAG_LEARNING)
            | flag(forwarding, FLAG_FORWARDING)
            | flag(agreement, FLAG_AGREEMENT);
        let (version, kind, bits, len) = match self.kind {
            Kind::Configuration => (0, TYPE_CONFIGURATION, old, CONFIGURATION_LEN),
            Kind::Rapid => (2, TYPE_RAPID, rapid, RAPID_LEN),
        };
        bpdu[2..5].copy_from_slice(&[version, kind, bits]);
        bpdu[5..13].copy_from_slice(&self.vector.root.to_bytes());
        bpdu[13..17].copy_from_slice(&self.vector.cost.to_be_bytes());
        bpdu[17..25].copy_from_slice(&self.vector.bridge.to_bytes());
        let Times {
            message_age,
            max_age,
            hello,
            forward_delay,
        } = self.times;
        let words = [self.vector.port, message_age, max_age, hello, forward_delay];
        for (place, word) in bpdu[25..35].chunks_exact_mut(2).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: Kind, role: PortRole, flags: Flags) -> Bpdu {
        Bpdu::Message(Message {
            kind,
            role: Some(role),
            flags,
            vector: Vector {
                root: BridgeId::new(0x1000, MacAddr([2, 0, 0, 0, 0, 1])),
                cost: 20_000,
                bridge: BridgeId::new(0x8000, MacAddr([2, 0, 0, 0, 0, 2])),
                port: 0x8003,
            },
            times: Times {
                message_age: 256,
                max_age: 20 * 256,
                hello: 2 * 256,
                forward_delay: 15 * 256,
            },
            exchange: (kind == Kind::Rapid).then_some(Exchange { told: 7, heard: 65_535 }),
        })
    }

    #[test]
    fn what_is_written_is_read() {
        let source = MacAddr([2, 0, 0, 0, 0, 9]);
        let flags = Flags {
            proposal: true,
            agreement: true,
            learning: true,
            ..Flags::default()
        };
        for bpdu in [
            message(Kind::Rapid, PortRole::Designated, flags),
            message(Kind::Rapid, PortRole::Root, Flags::default()),
            message(
                Kind::Configuration,
                PortRole::Designated,
                Flags {
                    change_ack: true,
                    ..Flags::default()
                },
            ),
            Bpdu::Change,
        ] {
            let frame = bpdu.frame(source);
            assert_eq!(Bpdu::parse(frame.bytes()), Some(bpdu));
            for len in 0..BPDU_AT + 4 {
                assert_eq!(Bpdu::parse(&frame.bytes()[..len]), None, "{len} bytes");
            }
        }
    }

    #[test]
    fn other_frames_to_the_bridge_group_are_none() {
        let mut frame = *message(Kind::Rapid, PortRole::Designated, Flags::default())
            .frame(MacAddr([2, 0, 0, 0, 0, 9]))
            .bytes()
            .first_chunk::<CONTROL_FRAME_LEN_MIN>()
            .unwrap();
        frame[13] = 20;
        assert_eq!(Bpdu::parse(&frame), None, "it says that it is shorter");
        frame[13] = 39;
        frame[BPDU_AT] = 1;
        assert_eq!(Bpdu::parse(&frame), None, "another protocol");
    }
}
