//! The configuration of an endpoint's engine: identity, wire dialect, limits, times. After the start only the time
//! after which a request is given up can change.

use ether::MacAddr;

use super::{DataPath, DataPathChoice};
use crate::wire::{Dialect, Extension, Preset, Sizes};

/// Everything an [`super::Engine`] must be told. The fields are public: start from [`Config::new`] and change some.
#[derive(Clone, Debug)]
pub struct Config {
    /// The endpoint's own address, which is the source of every frame.
    pub mac: MacAddr,
    /// The endpoint's own number.
    pub endpoint: u8,
    /// The endpoint's session id: random, drawn when the endpoint is opened, never [`crate::wire::SESSION_NONE`].
    pub session: u32,
    /// The connection key that a peer must present.
    pub key: u32,
    /// Layouts, sizes and EtherType. [`Config::extension`] switches marks on or off here.
    pub dialect: Dialect,
    /// The extension is announced in CONNECT (section 17); with `None` the engine behaves like an unmodified Open-MX.
    pub extension: Option<Extension>,
    /// The longest message that is sent eagerly, in bytes: 128 … the largest medium message (3.1).
    pub rndv_threshold: u32,
    /// The announcement of a large message carries so many of its first bytes, at most 120: for a protocol above whose
    /// header a receiver needs before it receives. 0 is what Open-MX does.
    pub announced_head_len: u8,
    /// Bounds of queues and memory.
    pub limits: Limits,
    /// Times of the protocol.
    pub timing: Timing,
    /// The choice of the path that data of long messages takes.
    pub data_path: DataPathChoice,
    /// A random number that keeps a peer from choosing collisions in hash tables.
    pub seed: u64,
}

impl Config {
    /// Makes the default configuration of `preset`, which announces everything this engine can do.
    pub fn new(mac: MacAddr, endpoint: u8, session: u32, preset: Preset) -> Self {
        let sizes = preset.sizes();
        Self::with_sizes(mac, endpoint, session, sizes, preset.code())
    }

    /// As [`Config::new`] for these sizes, announced under this code.
    pub fn with_sizes(mac: MacAddr, endpoint: u8, session: u32, sizes: Sizes, preset_code: u8) -> Self {
        Self {
            mac,
            endpoint,
            session,
            key: 0,
            dialect: Dialect::new(sizes),
            extension: Some(Extension {
                flags: Extension::MARK | Extension::SHORT_ACK,
                block_frames_log2: sizes.block_frames().ilog2() as u8,
                preset: preset_code,
            }),
            rndv_threshold: RNDV_THRESHOLD,
            announced_head_len: 0,
            limits: Limits::DEFAULT,
            timing: Timing::DEFAULT,
            data_path: DataPathChoice::Fixed(DataPath::WithMessages),
            seed: 0,
        }
    }

    /// Switches the latency mark off: it is not announced, so no peer agrees to it, none is sent, and frames that carry
    /// it are of unknown type.
    #[must_use]
    pub fn without_marks(mut self) -> Self {
        if let Some(own) = &mut self.extension {
            own.flags &= !Extension::MARK;
        }
        self
    }
}

/// The code in a CONNECT for sizes that are no preset (section 17).
pub const PRESET_OTHER: u8 = 4;

/// The default rendezvous threshold in bytes (section 3).
pub const RNDV_THRESHOLD: u32 = 32_768;

/// Bounds of one endpoint. At each of them something documented happens, and is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Partners (remote endpoints) that are remembered. Beyond: a CONNECT is dropped, a connect of our own is refused.
    pub partners: u32,
    /// Messages sent and not yet completely over. Beyond: [`super::SendError::TooMany`].
    pub sends: u32,
    /// Connects waiting for their reply. Beyond: [`super::SendError::TooMany`].
    pub connects: u32,
    /// Bytes of messages that completed for the program before they were acknowledged. Beyond: no early completion.
    pub early_completed_bytes: u32,
    /// Messages that completed early (`OMX_ZOMBIE_SEND`). Beyond: no early completion.
    pub zombies: u32,
    /// Unacknowledged eager bytes per partner. Beyond: messages wait; keeps a stream of mediums from flooding a path.
    pub eager_bytes_per_partner: u32,
    /// Requested bytes of running pulls not yet arrived, over all pulls of the endpoint: what its receive ring can hold
    /// (6.4). Beyond: the next block waits. Defaults to four full blocks of native-9000, so that one pull alone runs as
    /// deep as the reference's.
    pub pull_bytes_outstanding: u32,
    /// Pulls running at once, 1024 at most (the handle has 10 bits for it). Beyond: they wait.
    pub pulls: u32,
    /// Large sends in flight, 128 by default, 256 at most. Beyond: they wait, and so do later messages to their
    /// partners.
    pub large_sends: u32,
    /// Large messages announced and not yet pulled. Beyond: announcements are refused, so not acknowledged.
    pub announced: u32,
    /// Medium messages partly received. Beyond: the first fragment is refused.
    pub partials: u32,
    /// Packets kept because an earlier one is missing. Beyond: dropped; the sender sends them again.
    pub early_packets: u32,
    /// The bytes of these packets.
    pub early_packet_bytes: u32,
    /// Pull blocks waiting to be answered. Beyond: the PULL is dropped; the puller asks again.
    pub reply_blocks: u32,
    /// Connection replies and nacks waiting to be sent. Beyond: dropped; what they answer comes again.
    pub control_packets: u32,
}

impl Limits {
    /// The defaults (section 16).
    pub const DEFAULT: Self = Self {
        partners: 16_384,
        sends: 65_536,
        connects: 4_096,
        early_completed_bytes: 4 << 20,
        zombies: 512,
        eager_bytes_per_partner: 1 << 20,
        pull_bytes_outstanding: 4 * 286_976,
        pulls: 1_024,
        large_sends: 128,
        announced: 16_384,
        partials: 4_096,
        early_packets: 4_096,
        early_packet_bytes: 4 << 20,
        reply_blocks: 1_024,
        control_packets: 1_024,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Times of the protocol, in nanoseconds unless said (section 16 and 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The acknowledgement delay towards foreign peers.
    pub ack_delay_ns: u64,
    /// The acknowledgement delay towards peers that agreed on a short one (section 17).
    pub ack_delay_short_ns: u64,
    /// This many newly complete messages are acknowledged immediately (`OMX_NOTACKED_MAX`). Towards peers that agreed on
    /// the short delay, messages of up to 128 bytes count a quarter as long as no other is among them.
    pub ack_messages_max: u16,
    /// Shortest retransmission time-out towards foreign peers.
    pub rto_min_ns: u64,
    /// Shortest retransmission time-out towards peers with the short acknowledgement delay.
    pub rto_min_short_ns: u64,
    /// Longest retransmission time-out.
    pub rto_max_ns: u64,
    /// The interval at which a connect request is repeated (4.5).
    pub connect_resend_ns: u64,
    /// A request without an answer is given up after this time (7.5); [`super::Engine::set_give_up`] changes it.
    pub give_up_ns: u64,
    /// A pulled frame that waited longer than this in queues shows that too much is asked for at once: other users of
    /// the path, such as IP, wait as long, and get a share of it by what they have in that queue. Between virtual
    /// machines it must be longer, since a processor that was away for milliseconds resembles a queue.
    pub pull_queue_ns_max: u64,
}

impl Timing {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        ack_delay_ns: 1_000_000_000 / 64,
        ack_delay_short_ns: 1_000_000,
        ack_messages_max: 4,
        rto_min_ns: 25_000_000,
        rto_min_short_ns: 2_000_000,
        rto_max_ns: 500_000_000,
        connect_resend_ns: 500_000_000,
        give_up_ns: 500_000_000_000,
        pull_queue_ns_max: 1_000_000,
    };
}

impl Default for Timing {
    fn default() -> Self {
        Self::DEFAULT
    }
}
