//! Frames of ESP and EDP: a checked view ([`Frame`]), plain values ([`Header`], [`Body`]) and their builder ([`emit()`]).
//!
//! The layout is that of `docs/spec/esp-wire.md`. Nothing here panics or reads out of bounds on any bytes. What depends on a
//! connection (numbers, instances, whether a check sequence was agreed on) is not checked here.
//!
//! ```
//! use esp::wire::{Body, Frame, Header, Kind, Path, emit};
//! use ether::{EtherType, MacAddr};
//!
//! let path = Path {
//!     destination: MacAddr([2, 0, 0, 0, 0, 2]),
//!     source: MacAddr([2, 0, 0, 0, 0, 1]),
//!     ether_type: EtherType::ESP,
//! };
//! let header = Header { number: 7, ..Header::new(4096, 5001) };
//! let mut frame = [0; 1514];
//! let len = emit(&mut frame, &path, &header, &Body::Data(b"hello"), false)?;
//! assert_eq!(len, 60);
//! let parsed = Frame::parse(&frame[..len], EtherType::ESP)?;
//! assert_eq!((parsed.kind, parsed.header), (Kind::Data, header));
//! assert_eq!(parsed.body(false)?, Body::Data(b"hello"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blocks;
mod body;
mod edp;
mod emit;
mod frame;
mod names;
mod ranges;

pub use blocks::Blocks;
pub use body::{Body, Moved, Piece, ResetCode, Syn, SynAck};
pub use edp::{Addresses, Ping, Pong, Question};
pub use emit::{EmitError, emit, emit_payload};
pub use frame::{Flags, Frame, Header, Kind, Path, WireError};
pub use names::Names;
pub use ranges::{RANGES_MAX, Ranges};

/// Version that SYN and SYN+ACK name.
pub const VERSION: u8 = 1;
/// Bytes of the header behind Ethernet's, as in the paper (M-HR2).
pub const HEADER_LEN: usize = 13;
/// Bytes before anything that a kind adds: Ethernet's header and the header.
pub const HEAD_LEN: usize = ether::ETHERNET_HEADER_LEN + HEADER_LEN;
/// Shortest frame without the check sequence of Ethernet; shorter ones are padded with zeros.
pub const FRAME_LEN_MIN: usize = 60;
/// Shortest frame of data that is marked as one of many, by a length that its payload is too long to need: longer than any that needs one,
/// so that a packet filter tells them by flag and length. Shorter ones are padded with zeros.
pub const BULK_FRAME_LEN_MIN: usize = 128;
/// A payload of up to this many bytes has its length in the frame, since Ethernet may have padded it.
pub const COUNTED_PAYLOAD_MAX: usize = FRAME_LEN_MIN - HEAD_LEN - 1;
/// Bytes of a check sequence: the CRC-32 of IEEE 802.3 over everything behind Ethernet's header, big endian.
pub const CHECK_LEN: usize = 4;
/// Bytes of the field *window*.
pub const WINDOW_LEN: usize = 4;
/// Bytes that a piece of a packet has before its payload: offset and length of the packet.
pub const PIECE_LEN: usize = 4;
/// Bytes of an MTU that a packet of data may not use for its payload: the header and, at times, a window, a check sequence and the
/// place of a piece; a length takes no more than that.
pub const OVERHEAD_MAX: usize = HEADER_LEN + WINDOW_LEN + CHECK_LEN + PIECE_LEN;
const _: () = assert!(HEAD_LEN + WINDOW_LEN + 2 + COUNTED_PAYLOAD_MAX + CHECK_LEN < BULK_FRAME_LEN_MIN);
