//! Packet types and the latency-sensitive mark (sections 2 and 15).
//!
//! The mark is bit 7 of the type byte. It is read only where marking is switched on: otherwise a marked frame is of
//! unknown type, exactly as for an unmodified Open-MX.

use core::fmt;

use ether::EtherType;

use super::HEAD_LEN;

/// Bit 7 of the type byte: the sender says that a program waits for this frame (section 15).
pub const MARK: u8 = 0x80;

/// The packet types that are spoken; codes as on the wire (section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// 1: free-form frame.
    Raw = 1,
    /// 3: asks for a host name.
    HostQuery = 3,
    /// 4: gives a host name.
    HostReply = 4,
    /// 35: acknowledgement.
    Truc = 35,
    /// 36: connection request or reply.
    Connect = 36,
    /// 37: message of up to 32 bytes.
    Tiny = 37,
    /// 38: message of up to 128 bytes.
    Small = 38,
    /// 39: fragment of a medium message.
    Medium = 39,
    /// 40: rendezvous.
    Rndv = 40,
    /// 41: request of one block.
    Pull = 41,
    /// 42: one frame of a block.
    PullReply = 42,
    /// 43: end of a large message.
    Notify = 43,
    /// 44: refusal of a message or connection.
    NackLib = 44,
    /// 45: refusal of a pull.
    NackMcp = 45,
}

impl PacketType {
    /// Every type, in the order of the codes.
    pub const ALL: [Self; 14] = [
        Self::Raw,
        Self::HostQuery,
        Self::HostReply,
        Self::Truc,
        Self::Connect,
        Self::Tiny,
        Self::Small,
        Self::Medium,
        Self::Rndv,
        Self::Pull,
        Self::PullReply,
        Self::Notify,
        Self::NackLib,
        Self::NackMcp,
    ];

    /// Returns the type with this code; the mark must have been cleared. `None` for the codes that are dropped.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Raw,
            3 => Self::HostQuery,
            4 => Self::HostReply,
            35 => Self::Truc,
            36 => Self::Connect,
            37 => Self::Tiny,
            38 => Self::Small,
            39 => Self::Medium,
            40 => Self::Rndv,
            41 => Self::Pull,
            42 => Self::PullReply,
            43 => Self::Notify,
            44 => Self::NackLib,
            45 => Self::NackMcp,
            _ => return None,
        })
    }

    /// Returns the code on the wire.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the name that packet dumps show.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "RAW",
            Self::HostQuery => "HOST_QUERY",
            Self::HostReply => "HOST_REPLY",
            Self::Truc => "TRUC",
            Self::Connect => "CONNECT",
            Self::Tiny => "TINY",
            Self::Small => "SMALL",
            Self::Medium => "MEDIUM",
            Self::Rndv => "RNDV",
            Self::Pull => "PULL",
            Self::PullReply => "PULL_REPLY",
            Self::Notify => "NOTIFY",
            Self::NackLib => "NACK_LIB",
            Self::NackMcp => "NACK_MCP",
        }
    }
}

impl fmt::Display for PacketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether `frame` is an MXoE frame (default EtherType) whose type byte carries the mark. The EtherType is checked
/// first: in other frames that byte has another meaning.
#[inline]
pub fn is_marked(frame: &[u8]) -> bool {
    is_mxoe(frame) && frame[HEAD_LEN] & MARK != 0
}

/// Sets the mark of an MXoE frame; leaves every other frame alone.
#[inline]
pub fn set_mark(frame: &mut [u8]) {
    if is_mxoe(frame) {
        frame[HEAD_LEN] |= MARK;
    }
}

/// Clears the mark of an MXoE frame; leaves every other frame alone.
#[inline]
pub fn clear_mark(frame: &mut [u8]) {
    if is_mxoe(frame) {
        frame[HEAD_LEN] &= !MARK;
    }
}

#[inline]
fn is_mxoe(frame: &[u8]) -> bool {
    frame.len() > HEAD_LEN && frame[12..14] == EtherType::MXOE.0.to_be_bytes()
}
