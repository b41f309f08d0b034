//! Writes pcapng capture files, block by block, into a caller's buffer.
//!
//! Blocks and options are those of the IETF draft "PCAP Now Generic (pcapng) Capture File Format", always little-endian, so
//! that one capture is one file on every machine. There is no reader here, and nothing is sent anywhere.

use alloc::vec::Vec;

use crate::{MacAddr, Time};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;
/// `if_tsresol`: time stamps count 10⁻⁹ seconds.
const RESOLUTION_NANOSECONDS: u8 = 9;

const OPT_END: u16 = 0;
const OPT_COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_MAC: u16 = 6;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;

/// Longest text of an option, in bytes: its length field has 16 bits, and the padded option must still fit.
pub const TEXT_LEN_MAX: usize = 65_532;

/// The direction of a frame, as seen by the interface it was captured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received by the interface.
    Inbound,
    /// Sent by the interface.
    Outbound,
}

/// One interface of a section; interfaces are numbered from 0 in the order they are described.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interface<'a> {
    /// Name, as `n1.eth0`.
    pub name: &'a str,
    /// What the interface is, for people.
    pub description: Option<&'a str>,
    /// Hardware address.
    pub mac: Option<MacAddr>,
    /// Most bytes that are kept of a frame; 0 = no limit. Cutting frames is the caller's part.
    pub snaplen_bytes: u32,
}

/// One captured frame.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Number of the interface it was captured on.
    pub interface: u32,
    /// When, counted from `origin_unix_ns`.
    pub at: Time,
    /// What [`Time::ZERO`] is in nanoseconds since 1970.
    pub origin_unix_ns: u64,
    /// The bytes that are kept, from the first of the Ethernet header, without frame check sequence.
    pub bytes: &'a [u8],
    /// Length of the whole frame on the wire, in bytes; taken as `bytes.len()` if it is smaller than that.
    pub original_len: u32,
    /// The direction of the frame, if that is known.
    pub direction: Option<Direction>,
    /// A remark that readers show with the frame; cut to [`TEXT_LEN_MAX`].
    pub comment: Option<&'a str>,
}

/// What an interface counted while it was captured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Number of the interface.
    pub interface: u32,
    /// When the counts were read, counted from `origin_unix_ns`.
    pub at: Time,
    /// What [`Time::ZERO`] is in nanoseconds since 1970.
    pub origin_unix_ns: u64,
    /// Frames the interface saw since the capture began.
    pub received_frames: Option<u64>,
    /// Frames it saw and could not capture.
    pub dropped_frames: Option<u64>,
}

/// Begins a file (or a new section of one). `user_application` names the writing program and its version.
pub fn section_header(out: &mut Vec<u8>, user_application: &str) {
    block(out, SECTION_HEADER, |out| {
        put_u32(out, BYTE_ORDER_MAGIC);
        out.extend_from_slice(&1u16.to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        // Section length -1: not known in advance, the file may be a stream.
        out.extend_from_slice(&u64::MAX.to_le_bytes());
        text_option(out, SHB_USERAPPL, user_application);
        end_of_options(out);
    });
}

/// Describes the next interface of the section; must come before the first frame of it.
pub fn interface_description(out: &mut Vec<u8>, interface: &Interface<'_>) {
    block(out, INTERFACE_DESCRIPTION, |out| {
        out.extend_from_slice(&LINKTYPE_ETHERNET.to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        put_u32(out, interface.snaplen_bytes);
        text_option(out, IF_NAME, interface.name);
        if let Some(text) = interface.description {
            text_option(out, IF_DESCRIPTION, text);
        }
        if let Some(mac) = interface.mac {
            option(out, IF_MAC, &mac.0);
        }
        option(out, IF_TSRESOL, &[RESOLUTION_NANOSECONDS]);
        end_of_options(out);
    });
}

/// Writes one frame.
pub fn enhanced_packet(out: &mut Vec<u8>, packet: &Packet<'_>) {
    block(out, ENHANCED_PACKET, |out| {
        let kept = u32::try_from(packet.bytes.len()).unwrap_or(u32::MAX);
        put_u32(out, packet.interface);
        put_timestamp(out, packet.origin_unix_ns, packet.at);
        put_u32(out, kept);
        put_u32(out, packet.original_len.max(kept));
        out.extend_from_slice(&packet.bytes[..kept as usize]);
        pad(out, kept as usize);
        if let Some(text) = packet.comment {
            text_option(out, OPT_COMMENT, text);
        }
        if let Some(direction) = packet.direction {
            let flags: u32 = match direction {
                Direction::Inbound => 1,
                Direction::Outbound => 2,
            };
            option(out, EPB_FLAGS, &flags.to_le_bytes());
        }
        if packet.comment.is_some() || packet.direction.is_some() {
            end_of_options(out);
        }
    });
}

/// Writes what an interface counted; usually the last blocks of a file.
pub fn interface_statistics(out: &mut Vec<u8>, statistics: &Statistics) {
    block(out, INTERFACE_STATISTICS, |out| {
        put_u32(out, statistics.interface);
        put_timestamp(out, statistics.origin_unix_ns, statistics.at);
        if let Some(frames) = statistics.received_frames {
            option(out, ISB_IFRECV, &frames.to_le_bytes());
        }
        if let Some(frames) = statistics.dropped_frames {
            option(out, ISB_IFDROP, &frames.to_le_bytes());
        }
        end_of_options(out);
    });
}

/// A block: type, length, body, length again. The body must be a multiple of four bytes long.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put_u32(out, kind);
    put_u32(out, 0);
    body(out);
    let len = u32::try_from(out.len() - start + 4).unwrap_or(u32::MAX);
    out[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
    put_u32(out, len);
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Two 32-bit halves, the high one first.
fn put_timestamp(out: &mut Vec<u8>, origin_unix_ns: u64, at: Time) {
    let ns = origin_unix_ns.saturating_add(at.as_nanos());
    put_u32(out, (ns >> 32) as u32);
    put_u32(out, ns as u32);
}

/// Fills up to the next multiple of four after `len` bytes.
fn pad(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&[0; 3][..len.next_multiple_of(4) - len]);
}

/// `value` must not be longer than [`TEXT_LEN_MAX`].
fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out, value.len());
}

fn text_option(out: &mut Vec<u8>, code: u16, text: &str) {
    option(out, code, &text.as_bytes()[..text.floor_char_boundary(TEXT_LEN_MAX)]);
}

fn end_of_options(out: &mut Vec<u8>) {
    out.extend_from_slice(&OPT_END.to_le_bytes());
    out.extend_from_slice(&0u16.to_le_bytes());
}
