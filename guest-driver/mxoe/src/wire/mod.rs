//! MXoE frames: a checked view ([`FrameView`]), plain values ([`Packet`]), and the settings both ends must share
//! ([`Dialect`]).
//!
//! Layouts, limits and names follow `mxoe-wire.md`; section numbers in these pages are that document's. Nothing here
//! panics or reads out of bounds on any bytes. What depends on a conversation (peer, endpoint, session, sequence) is not
//! checked here.
//!
//! ```
//! use mxoe::wire::{Dialect, Eager, Head, Packet, Preset};
//!
//! let dialect = Dialect::new(Preset::Native1500.sizes()).with_marks(true);
//! let hello = Packet::Tiny(Eager {
//!     dst_endpoint: 1, src_endpoint: 3, seqnum: 1, piggyack: 1,
//!     match_info: 0x0123_4567_89ab_cdef, session: 0x0bad_cafe, data: b"hello",
//! });
//! let head = Head { dst: ether::MacAddr([2, 0, 0, 0, 0, 11]), src: ether::MacAddr([2, 0, 0, 0, 0, 10]), peer_index: 7, marked: true };
//! let mut frame = [0; 1500];
//! let len = dialect.emit(&head, &hello, &mut frame)?;
//! let view = dialect.view(&frame[..len]).unwrap();
//! assert!(view.head().marked);
//! assert_eq!(view.packet(), Ok(hello));
//! # Ok::<(), mxoe::wire::EmitError>(())
//! ```

mod control;
mod dialect;
mod discovery;
mod eager;
mod kind;
mod large;
mod layout;
mod preset;
mod sequenced;
mod sizes;

pub use control::{Ack, Connect, ConnectKind, EXTENSION_WORD, Extension, NackCode, NackLib, NackMcp};
pub use dialect::{Dialect, EmitError, FrameView, Head, WireError};
pub use discovery::{Announcement, HostQuery, HostReply, Raw};
pub use eager::{Eager, Medium};
pub use kind::{MARK, PacketType, clear_mark, is_marked, set_mark};
pub use large::{Notify, Pull, PullReply, PullShapeError, Rndv, endpoint_of_pull_magic, pull_magic};
pub use preset::{ParsePresetError, Preset};
pub(crate) use sequenced::{Sequenced, sequenced};
pub use sizes::{Mode, Sizes, SizesError};

/// Shortest frame on the wire without frame check sequence; shorter ones are padded with zeros (1.2).
pub const FRAME_LEN_MIN: usize = 60;
/// Bytes before a packet's body: two addresses, the EtherType, the peer index (1.1).
pub const HEAD_LEN: usize = 16;
/// Longest head plus body header of any type: the native PULL (1.2).
pub const HEADER_LEN_MAX: usize = 60;
/// A peer index that is not known yet (1.1).
pub const PEER_INDEX_UNKNOWN: u16 = 0xffff;
/// "No session yet"; never drawn as a session id (1.3).
pub const SESSION_NONE: u32 = 0xffff_ffff;
/// Most data bytes of a TINY (5.1).
pub const TINY_DATA_MAX: usize = 32;
/// Most data bytes of a SMALL (5.2).
pub const SMALL_DATA_MAX: usize = 128;
/// The bytes of the message that an announcement may carry, at most: its eight own bytes count, too.
pub const RNDV_HEAD_MAX: usize = SMALL_DATA_MAX - 8;
/// A receiver can distinguish at most so many fragments: its bitmap has 32 bits (section 3).
pub const FRAGMENTS_MAX: u32 = 32;
/// Longest host name, its terminating zero included (9.3).
pub const HOST_NAME_LEN_MAX: usize = 80;
/// Longest RAW frame that is taken, Ethernet header included (9.1).
pub const RAW_FRAME_LEN_MAX: usize = 1024;
/// First value of the magic of HOST_QUERY and HOST_REPLY (9.3).
pub const HOST_MAGIC_FIRST: u32 = 0x1305_2008;

/// One MXoE packet as a plain value; data are borrowed from the frame or from the sender's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Free-form frame of the mapping daemons (9.1).
    Raw(Raw<'a>),
    /// Asks for a board's name (9.3).
    HostQuery(HostQuery),
    /// Gives a board's name (9.3).
    HostReply(HostReply<'a>),
    /// A packet that holds only an acknowledgement ("liback", 7.3).
    Ack(Ack),
    /// Request or reply of a connection (4.1).
    Connect(Connect),
    /// A message of up to 32 bytes (5.1).
    Tiny(Eager<'a>),
    /// A message of up to 128 bytes (5.2).
    Small(Eager<'a>),
    /// One fragment of a medium message (5.3).
    Medium(Medium<'a>),
    /// Rendezvous: announces a large message (6.1).
    Rndv(Rndv<'a>),
    /// Requests one block of a large message (6.2).
    Pull(Pull),
    /// One frame of a requested block (6.3).
    PullReply(PullReply<'a>),
    /// End of a large message (6.5).
    Notify(Notify),
    /// Refuses a message or connection (8.1).
    NackLib(NackLib),
    /// Refuses a PULL (8.2).
    NackMcp(NackMcp),
}

impl<'a> Packet<'a> {
    /// The type code this packet goes out with.
    #[inline]
    pub const fn packet_type(&self) -> PacketType {
        match self {
            Self::Raw(_) => PacketType::Raw,
            Self::HostQuery(_) => PacketType::HostQuery,
            Self::HostReply(_) => PacketType::HostReply,
            Self::Ack(_) => PacketType::Truc,
            Self::Connect(_) => PacketType::Connect,
            Self::Tiny(_) => PacketType::Tiny,
            Self::Small(_) => PacketType::Small,
            Self::Medium(_) => PacketType::Medium,
            Self::Rndv(_) => PacketType::Rndv,
            Self::Pull(_) => PacketType::Pull,
            Self::PullReply(_) => PacketType::PullReply,
            Self::Notify(_) => PacketType::Notify,
            Self::NackLib(_) => PacketType::NackLib,
            Self::NackMcp(_) => PacketType::NackMcp,
        }
    }

    /// The bytes that follow the header: message data, a host name without its zero, the free part of a RAW; empty for
    /// the types without.
    #[inline]
    pub const fn data(&self) -> &'a [u8] {
        match self {
            Self::Tiny(p) | Self::Small(p) => p.data,
            Self::Medium(p) => p.data,
            Self::Rndv(p) => p.head,
            Self::PullReply(p) => p.data,
            Self::HostReply(p) => p.name,
            Self::Raw(p) => p.payload,
            _ => &[],
        }
    }
}
