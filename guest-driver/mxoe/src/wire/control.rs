//! The values of connections, acknowledgements and refusals: CONNECT, TRUC, NACK_LIB, NACK_MCP (sections 4, 7.3, 8,
//! 17).

use core::fmt;

use super::Preset;

/// The request or reply of a connection (4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Endpoint the packet is for.
    pub dst_endpoint: u8,
    /// Endpoint it comes from.
    pub src_endpoint: u8,
    /// The sequence number is 0 on sending; a refusal echoes what it received.
    pub seqnum: u16,
    /// Index of the destination in the sender's peer table: what the destination must put in the head of its frames.
    pub peer_index: u16,
    /// The requester's session id, echoed by the reply.
    pub src_session: u32,
    /// The sequence number the sender of this packet expects next.
    pub recv_seqnum_start: u16,
    /// Counter of connects, echoed by the reply.
    pub connect_seqnum: u8,
    /// The request or reply, with the fields that only that one has.
    pub kind: ConnectKind,
    /// What the sender can do beyond Open-MX (section 17); `None` if it did not say.
    pub extension: Option<Extension>,
}

/// The fields that only a request or only a reply has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectKind {
    /// Asks for a connection.
    Request {
        /// Connection key.
        key: u32,
    },
    /// Answers a request.
    Reply {
        /// The replier's session id.
        session: u32,
        /// 0 success, 11 bad key; every other value makes the reply be ignored.
        status: u8,
    },
}

impl ConnectKind {
    /// Status of a successful connection.
    pub const STATUS_SUCCESS: u8 = 0;
    /// Status of a refusal for a wrong key.
    pub const STATUS_BAD_KEY: u8 = 11;
}

/// "WFT1": this word stands in a pad of CONNECT when its sender announces abilities (section 17).
pub const EXTENSION_WORD: u32 = 0x5746_5431;

/// The abilities that a peer announces in a CONNECT (section 17).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Bits [`Extension::MARK`] and [`Extension::SHORT_ACK`]; the others are reserved.
    pub flags: u8,
    /// Base-2 logarithm of the frames per pull block.
    pub block_frames_log2: u8,
    /// [`super::Preset::code`], or 4 for another configuration.
    pub preset: u8,
}

impl Extension {
    /// The flag of a peer that understands the latency-sensitive mark.
    pub const MARK: u8 = 1;
    /// The flag of a peer that acknowledges within 1 ms and takes pulls of ranges.
    pub const SHORT_ACK: u8 = 2;

    /// Whether the mark may be sent to this peer. False when a reserved bit is set: nothing of such a word is used.
    #[inline]
    pub const fn understands_mark(&self) -> bool {
        self.has(Self::MARK)
    }

    /// Whether the peer acknowledges early and takes ranged pulls. False when a reserved bit is set.
    #[inline]
    pub const fn acknowledges_early(&self) -> bool {
        self.has(Self::SHORT_ACK)
    }

    const fn has(&self, flag: u8) -> bool {
        self.flags & !(Self::MARK | Self::SHORT_ACK) == 0 && self.flags & flag != 0
    }
}

/// Shows the sizes on the wire that the extension stands for, as a person names them.
impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Preset::from_code(self.preset) {
            Some(preset) => write!(f, "{preset}")?,
            None => f.write_str("sizes of no preset")?,
        }
        // The number comes from a peer.
        match 1_u64
            .checked_shl(self.block_frames_log2.into())
            .filter(|frames| *frames <= 64)
        {
            Some(frames) => write!(f, ", {frames} frames per pull block"),
            None => f.write_str(", pull blocks of an impossible size"),
        }
    }
}

/// A packet that holds only an acknowledgement: a TRUC of type 0x55 (7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Endpoint the packet is for.
    pub dst_endpoint: u8,
    /// Endpoint it comes from.
    pub src_endpoint: u8,
    /// The receiver's session id.
    pub session: u32,
    /// Everything before this number is completely received.
    pub ack: u16,
    /// The receiver's session id once more; a receiver checks both.
    pub session_id: u32,
    /// Counter of explicit acknowledgements to this partner, from 1.
    pub acknum: u32,
    /// Open-MX repeats `ack`; not used on reception.
    pub send_seq: u16,
    /// Open-MX writes 0; not used on reception.
    pub resent: u8,
}

/// Why something was refused (8.3). Only codes that cannot hurt the peer exist: others abort a reference process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NackCode {
    /// The endpoint index is too large.
    BadEndpoint = 1,
    /// The endpoint is not open.
    EndpointClosed = 2,
    /// The session differs.
    BadSession = 3,
    /// The region is not registered; answers a PULL only.
    BadRdmaWindow = 4,
}

impl NackCode {
    /// Returns the reason with this code.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::BadEndpoint,
            2 => Self::EndpointClosed,
            3 => Self::BadSession,
            4 => Self::BadRdmaWindow,
            _ => return None,
        })
    }
}

/// Refuses a message or a connection (8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NackLib {
    /// The endpoint that had been addressed.
    pub src_endpoint: u8,
    /// The endpoint that sent the refused packet.
    pub dst_endpoint: u8,
    /// Why; never [`NackCode::BadRdmaWindow`].
    pub code: NackCode,
    /// This value stands in the head, too.
    pub peer_index: u16,
    /// Sequence number of the refused packet, 0 for a connection.
    pub seqnum: u16,
}

/// Refuses a PULL (8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NackMcp {
    /// The field is not to be relied on: Open-MX writes the puller's endpoint here.
    pub src_endpoint: u8,
    /// Why.
    pub code: NackCode,
    /// Handle of the PULL.
    pub handle: u32,
    /// Magic of the PULL.
    pub magic: u32,
}
