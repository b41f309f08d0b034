//! Packet types and the latency-sensitive mark (sections 2 and 15).
//!
//! The mark is bit 7 of the type byte. It is read only where marking is switched on: otherwise a marked frame is of
//! unknown type, exactly as for an unmodified Open-MX.

use core::fmt;

use ether::EtherType;

use super::HEAD_LEN;

/// Bit 7 of the type byte: the sender says that a program waits for this frame (section 15).
pub const MARK: u8 = 0x80;

macro_rules! packet_types {
    ($(#[doc = $doc:literal] $name:ident = $code:literal, $shown:literal;)*) => {
        /// The packet types that are spoken; codes as on the wire (section 2).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum PacketType {
            $(#[doc = $doc] $name = $code,)*
        }

        impl PacketType {
            /// Every type, in the order of the codes.
            pub const ALL: [Self; [$($code),*].len()] = [$(Self::$name),*];

            /// Returns the type with this code; the mark must have been cleared. `None` for the codes that are dropped.
            #[inline]
            pub const fn from_code(code: u8) -> Option<Self> {
                Some(match code {
                    $($code => Self::$name,)*
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
                    $(Self::$name => $shown,)*
                }
            }
        }
    };
}

packet_types! {
    /// 1: free-form frame.
    Raw = 1, "RAW";
    /// 3: asks for a host name.
    HostQuery = 3, "HOST_QUERY";
    /// 4: gives a host name.
    HostReply = 4, "HOST_REPLY";
    /// 35: acknowledgement.
    Truc = 35, "TRUC";
    /// 36: connection request or reply.
    Connect = 36, "CONNECT";
    /// 37: message of up to 32 bytes.
    Tiny = 37, "TINY";
    /// 38: message of up to 128 bytes.
    Small = 38, "SMALL";
    /// 39: fragment of a medium message.
    Medium = 39, "MEDIUM";
    /// 40: rendezvous.
    Rndv = 40, "RNDV";
    /// 41: request of one block.
    Pull = 41, "PULL";
    /// 42: one frame of a block.
    PullReply = 42, "PULL_REPLY";
    /// 43: end of a large message.
    Notify = 43, "NOTIFY";
    /// 44: refusal of a message or connection.
    NackLib = 44, "NACK_LIB";
    /// 45: refusal of a pull.
    NackMcp = 45, "NACK_MCP";
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
