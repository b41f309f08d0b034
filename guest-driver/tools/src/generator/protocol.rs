//! What client and server of the generator say to each other, inside ordinary MXoE messages.
//!
//! Match information: a constant, the operation, and the client's session id as the number of the run.

use ether::MacAddr;
use mxoe::wire::{Connect, ConnectKind, Eager, Extension, Packet, Preset, SMALL_DATA_MAX, TINY_DATA_MAX};

/// Endpoint of the server. Client and server have different ones, so that frames of several runs can be told apart in
/// captures.
pub(super) const SERVER_ENDPOINT: u8 = 1;
/// Endpoint of a client.
pub(super) const CLIENT_ENDPOINT: u8 = 2;
/// The key of all connections of the generator: "WGEN".
pub(super) const CONNECT_KEY: u32 = 0x5747_454e;
/// The first and later sequence numbers use 14 bits (mxoe-wire.md 7.1).
pub(super) const SEQNUM_MASK: u32 = 0x3fff;
/// A buffer for any frame of the longest preset.
pub(super) const FRAME_BUFFER_LEN: usize = 9014;

/// What a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Operation {
    /// Answer me: TINY and SMALL are sent back as they are, a MEDIUM is answered by a TINY.
    Ping = 1,
    /// The answer, under the same sequence number.
    Pong = 2,
    /// Only count me.
    Stream = 3,
    /// How many of mine did you count?
    Query = 4,
    /// So many: [`Count`].
    Report = 5,
}

const MATCH_CONSTANT: u32 = 0x5747_4500;

pub(super) fn match_info(operation: Operation, run: u32) -> u64 {
    u64::from(MATCH_CONSTANT | operation as u32) << 32 | u64::from(run)
}

/// Operation and run, if the message is the generator's.
pub(super) fn parse_match_info(match_info: u64) -> Option<(Operation, u32)> {
    let high = (match_info >> 32) as u32;
    if high & !0xff != MATCH_CONSTANT {
        return None;
    }
    let operation = match high as u8 {
        1 => Operation::Ping,
        2 => Operation::Pong,
        3 => Operation::Stream,
        4 => Operation::Query,
        5 => Operation::Report,
        _ => return None,
    };
    Some((operation, match_info as u32))
}

/// A message as TINY or SMALL, whichever its length asks for.
pub(super) fn message(eager: Eager<'_>) -> Packet<'_> {
    debug_assert!(eager.data.len() <= SMALL_DATA_MAX);
    if eager.data.len() <= TINY_DATA_MAX {
        Packet::Tiny(eager)
    } else {
        Packet::Small(eager)
    }
}

/// What a server counted of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Messages.
    pub(super) messages: u64,
    /// From the first to the last of them, in nanoseconds of the server's monotonic clock.
    pub(super) elapsed_ns: u64,
}

impl Count {
    pub(super) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.messages.to_be_bytes());
        bytes[8..].copy_from_slice(&self.elapsed_ns.to_be_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (messages, rest) = bytes.split_first_chunk()?;
        let (elapsed_ns, _) = rest.split_first_chunk()?;
        Some(Self {
            messages: u64::from_be_bytes(*messages),
            elapsed_ns: u64::from_be_bytes(*elapsed_ns),
        })
    }
}

/// What an end announces in its CONNECT.
pub(super) fn extension(preset: Preset, marks: bool) -> Extension {
    Extension {
        flags: if marks { Extension::MARK } else { 0 },
        block_frames_log2: preset.sizes().block_frames().ilog2() as u8,
        preset: preset.code(),
    }
}

pub(super) fn connect(endpoints: [u8; 2], src_session: u32, kind: ConnectKind, extension: Extension) -> Connect {
    let [src_endpoint, dst_endpoint] = endpoints;
    Connect {
        dst_endpoint,
        src_endpoint,
        seqnum: 0,
        // Ends are told apart by their addresses; the one index that is handed out is 0.
        peer_index: 0,
        src_session,
        recv_seqnum_start: 1,
        connect_seqnum: 0,
        kind,
        extension: Some(extension),
    }
}

/// A session id; never "none". Not a secret: it tells runs apart.
pub(super) fn random_session() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library seeds its hasher from the system's random numbers, and does not wait for a freshly booted
    // guest to gather entropy.
    let random = std::hash::RandomState::new().build_hasher().finish() as u32;
    random & 0x7fff_ffff
}

/// The key by which the server knows a client.
pub(super) type ClientId = (MacAddr, u8);
