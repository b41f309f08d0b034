//! The options of an endpoint, and what the environment says about them (mx-api 9).

use std::{env, sync::Once, time::Duration};

use mxoe::{
    engine::{Limits, Lost, RNDV_THRESHOLD, Timing, parse_packet_loss},
    matching::UNEXPECTED_BYTES_DEFAULT,
    wire::Preset,
};
use netif::virtio::{CardAddress, VirtioError};

use crate::{
    Error,
    environment::{flag, number, say},
};

/// The behaviour of a blocking call while nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Polls the port again and again: this gives the shortest latency and takes a whole processor.
    Spin,
    /// Spins for this long, then sleeps until something arrives.
    SpinThenSleep(Duration),
    /// Sleeps immediately.
    Sleep,
}

/// What copies the data of large messages from other hosts to the program's memory (papers.md M-OM-A).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyEngineKind {
    /// The thread that receives the data.
    #[default]
    None,
    /// A thread of its own, one per endpoint, which needs a processor to itself while data comes.
    Thread,
    /// A card that is wired to itself and that this endpoint alone drives, for ports that it can reach: packet sockets and cards.
    Card(CardAddress),
}

impl CopyEngineKind {
    /// Parses `OMX_COPY_ENGINE`, and `OMX_COPY_CARD` where that is needed; where it cannot be followed, the processor copies, and the
    /// sentence says why.
    fn parse(text: &str, card: Option<&str>) -> (Self, Option<String>) {
        match text.trim() {
            "" | "none" => (Self::None, None),
            "thread" => (Self::Thread, None),
            "card" => match card.map(|name| parse_card(name.trim())) {
                Some(Ok(address)) => (Self::Card(address), None),
                Some(Err(error)) => (
                    Self::None,
                    Some(format!("`card`: OMX_COPY_CARD: {error}, so the processor copies")),
                ),
                None => (
                    Self::None,
                    Some(
                        "`card`: OMX_COPY_CARD names no card (as in virtio:0000:00:05.0), so the processor copies"
                            .to_owned(),
                    ),
                ),
            },
            other => (
                Self::None,
                Some(format!(
                    "`{other}` is none of `thread`, `card` and `none`, so the processor copies"
                )),
            ),
        }
    }
}

/// Reads the name of a card, as interfaces are named or as the PCI bus names it.
fn parse_card(name: &str) -> Result<CardAddress, VirtioError> {
    CardAddress::of_interface(name)?.map_or_else(|| name.parse(), Ok)
}

/// The options of an endpoint to be opened.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// Name of the interface; `None`: the first that can be used.
    pub interface: Option<String>,
    /// Endpoint number; `None`: the lowest that is free.
    pub endpoint: Option<u8>,
    /// Key that others must give to connect.
    pub key: u32,
    /// Bits and shift of the context id within the match information; 0 bits: none.
    pub context_id: (u8, u8),
    /// The bytes of unexpected messages that are kept, their descriptions included. At the limit acknowledgements stop,
    /// so that senders wait. A receive for a message behind those that wait gets it when others took some.
    pub unexpected_bytes_max: u64,
    /// The behaviour of blocking calls.
    pub waiting: Waiting,
    /// The process's helper thread makes progress while the program computes.
    pub progress: bool,
    /// While a connect blocks, the helper thread makes progress on every endpoint of the process, also on those that do without it.
    pub connects_for_all: bool,
    /// A signal that the program handles ends a blocking call as if its time were over.
    pub signals_end_waits: bool,
    /// The announcement of a large message carries its first eight bytes, so that a probe tells them of every message: for
    /// a protocol above with a header of its own. Both ends set it.
    pub announces_head: bool,
    /// Longest message sent eagerly to other hosts, in bytes; bounded by what the sizes on the wire allow.
    pub rndv_threshold: u32,
    /// Longest message sent eagerly to endpoints of this host, in bytes, at most 32 KiB.
    pub shared_rndv_threshold: u32,
    /// Long messages of this host are read from the sender's memory where the system allows it.
    pub single_copy: bool,
    /// What copies the data of large messages from other hosts. An engine of the program's own replaces it
    /// ([`crate::Endpoint::set_copy_engine`]).
    pub copy_engine: CopyEngineKind,
    /// Messages to the endpoint itself are sent as frames, which turn round before the port, as if they came over the
    /// network.
    pub self_by_frames: bool,
    /// Messages to other endpoints of this host are sent as frames, too, which go through memory shared with those.
    /// What those send goes over shared memory as usual, unless they have this option.
    pub others_by_frames: bool,
    /// Medium messages are copied, so that they complete before they are acknowledged.
    pub copies_mediums: bool,
    /// At most this many sends may be complete for the program and not acknowledged.
    pub early_completed_max: u32,
    /// This many messages may wait for an acknowledgement before one is sent immediately.
    pub ack_messages_max: u16,
    /// A request is given up after this time without an answer.
    pub give_up: Duration,
    /// Packets that are lost on purpose, for tests: of each kind one of n outgoing ones on average.
    pub packet_loss: Vec<(Lost, u32)>,
}

/// The reference's interval between two resends, which turns a number of resends into a time.
const RESEND_MS: u64 = 500;

impl Default for EndpointOptions {
    /// The defaults, changed by the environment: `OMX_WAITSPIN`, `OMX_WAITINTR`, `OMX_PROGRESS`, `OMX_CONNECT_POLLALL`,
    /// `OMX_UNEXPECTED_BYTES_MAX`, `OMX_ANY_ENDPOINT`, `OMX_CTXIDS`, `OMX_RNDV_THRESHOLD`, `OMX_SHARED_RNDV_THRESHOLD`, `OMX_SHARED_SINGLE_COPY`, `OMX_MEDIUM_SENDQ`,
    /// `OMX_PACKET_LOSS`, `OMX_COPY_ENGINE`, `OMX_COPY_CARD`, `OMX_ZOMBIE_SEND`, `OMX_NOTACKED_MAX`, `OMX_RESENDS_MAX`, `OMX_DISABLE_SELF`, `OMX_DISABLE_SHARED`, and the MX
    /// names of the last six (`MX_DISABLE_SHMEM` of the last).
    fn default() -> Self {
        let context_id = env::var("OMX_CTXIDS").ok().and_then(|text| {
            let (bits, shift) = text.split_once(',')?;
            Some((bits.trim().parse().ok()?, shift.trim().parse().ok()?))
        });
        let resends = number(&["OMX_RESENDS_MAX", "MX_MAX_RETRIES"], 1, u64::from(u32::MAX));
        let give_up = resends.map(|resends| Duration::from_millis(resends * RESEND_MS));
        Self {
            interface: None,
            endpoint: number(&["OMX_ANY_ENDPOINT"], 0, u8::MAX),
            key: 0,
            context_id: context_id.unwrap_or((0, 0)),
            unexpected_bytes_max: number(&["OMX_UNEXPECTED_BYTES_MAX"], 0, u64::MAX)
                .unwrap_or(UNEXPECTED_BYTES_DEFAULT),
            waiting: if flag(&["OMX_WAITSPIN"], false) {
                Waiting::Spin
            } else {
                Waiting::Sleep
            },
            progress: flag(&["OMX_PROGRESS"], true),
            connects_for_all: flag(&["OMX_CONNECT_POLLALL"], false),
            signals_end_waits: flag(&["OMX_WAITINTR"], false),
            announces_head: false,
            rndv_threshold: number(&["OMX_RNDV_THRESHOLD"], INLINE_LEN_MAX, u32::MAX).unwrap_or(RNDV_THRESHOLD),
            shared_rndv_threshold: number(
                &["OMX_SHARED_RNDV_THRESHOLD"],
                INLINE_LEN_MAX,
                SHARED_RNDV_THRESHOLD_MAX,
            )
            .unwrap_or(SHARED_RNDV_THRESHOLD),
            single_copy: flag(&["OMX_SHARED_SINGLE_COPY"], true),
            copy_engine: env::var("OMX_COPY_ENGINE").map_or(CopyEngineKind::None, |text| copy_engine(&text)),
            self_by_frames: flag(&["OMX_DISABLE_SELF", "MX_DISABLE_SELF"], false),
            others_by_frames: flag(&["OMX_DISABLE_SHARED", "MX_DISABLE_SHMEM"], false),
            copies_mediums: flag(&["OMX_MEDIUM_SENDQ"], true),
            early_completed_max: number(&["OMX_ZOMBIE_SEND", "MX_ZOMBIE_SEND"], 0, u32::MAX)
                .unwrap_or(Limits::DEFAULT.zombies),
            ack_messages_max: number(&["OMX_NOTACKED_MAX", "MX_IMM_ACK"], 1, u16::MAX)
                .unwrap_or(Timing::DEFAULT.ack_messages_max),
            give_up: give_up.unwrap_or(Duration::from_nanos(Timing::DEFAULT.give_up_ns)),
            packet_loss: env::var("OMX_PACKET_LOSS").map_or_else(|_| Vec::new(), |text| packet_loss(&text)),
        }
    }
}

/// Parses the parameters of a list ([`parse_packet_loss`]). Words that are no parameters are reported to the program's
/// user once.
fn packet_loss(text: &str) -> Vec<(Lost, u32)> {
    static SAID: Once = Once::new();
    let (faults, sentence) = parse_packet_loss(text);
    if let Some(sentence) = sentence {
        SAID.call_once(|| say(None, &format!("OMX_PACKET_LOSS: {sentence}")));
    }
    faults
}

/// Parses the choice of a copy engine. A choice that cannot be followed is reported to the program's user once.
fn copy_engine(text: &str) -> CopyEngineKind {
    static SAID: Once = Once::new();
    let card = env::var("OMX_COPY_CARD").ok();
    let (kind, sentence) = CopyEngineKind::parse(text, card.as_deref());
    if let Some(sentence) = sentence {
        SAID.call_once(|| say(None, &format!("OMX_COPY_ENGINE: {sentence}")));
    }
    kind
}

/// Longest message that is always sent eagerly, in bytes.
const INLINE_LEN_MAX: u32 = 128;
/// The default of that threshold for endpoints of one host, in bytes.
const SHARED_RNDV_THRESHOLD: u32 = 4096;
const SHARED_RNDV_THRESHOLD_MAX: u32 = crate::local::PAYLOAD_LEN_MAX as u32;

/// The number of blocks of one pull in flight (`mxoe-wire.md` section 3).
const PULL_BLOCKS: u32 = 4;

impl EndpointOptions {
    /// Sets the longest messages sent eagerly to other hosts and within this one, in bytes, where the environment says nothing of them.
    #[must_use]
    pub fn sending_eagerly(mut self, rndv_threshold: u32, shared_rndv_threshold: u32) -> Self {
        if env::var_os("OMX_RNDV_THRESHOLD").is_none() {
            self.rndv_threshold = rndv_threshold;
        }
        if env::var_os("OMX_SHARED_RNDV_THRESHOLD").is_none() {
            self.shared_rndv_threshold = shared_rndv_threshold;
        }
        self
    }

    /// The field of the match information that is the context id.
    ///
    /// # Errors
    /// [`Error::BadParameter`].
    pub(crate) fn context_mask(&self) -> Result<u64, Error> {
        let (bits, shift) = self.context_id;
        if bits > CONTEXT_ID_BITS_MAX || u32::from(bits) + u32::from(shift) > u64::BITS {
            return Err(Error::BadParameter);
        }
        if bits == 0 {
            return Ok(0);
        }
        Ok(((1 << bits) - 1) << shift)
    }

    /// Bounds of the protocol for a receive ring of this many bytes, with these sizes on the wire.
    pub(crate) fn limits(ring_len: usize, preset: Preset) -> Limits {
        // Half of the ring is for what was asked for, half for what comes unasked. And no more than one pull alone has
        // in flight: on a path that others use, such as IP, an endpoint's share is what it has in the queues.
        let room = u32::try_from(ring_len / 2).unwrap_or(u32::MAX);
        let one_pull = PULL_BLOCKS * preset.sizes().block_len();
        Limits {
            pull_bytes_outstanding: Limits::DEFAULT.pull_bytes_outstanding.min(one_pull).min(room),
            ..Limits::DEFAULT
        }
    }
}

/// Bits of a context id, at most.
const CONTEXT_ID_BITS_MAX: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_above_chooses_what_is_sent_eagerly_where_the_user_has_not() {
        let options = EndpointOptions::default().sending_eagerly(40_000, 5_000);
        assert_eq!((options.rndv_threshold, options.shared_rndv_threshold), (40_000, 5_000));
    }

    #[test]
    fn m_om_a_only_engines_that_exist_are_chosen_and_others_are_named_in_a_sentence() {
        let card = "0000:00:05.0".parse().unwrap();
        for (text, name, kind) in [
            ("none", None, CopyEngineKind::None),
            ("", None, CopyEngineKind::None),
            (" thread\n", Some("nonsense"), CopyEngineKind::Thread),
            ("card", Some("virtio:0000:00:05.0"), CopyEngineKind::Card(card)),
            ("card", Some(" 00:05.0"), CopyEngineKind::Card(card)),
        ] {
            assert_eq!(CopyEngineKind::parse(text, name), (kind, None));
        }
        for (text, name, said) in [
            ("card", None, "OMX_COPY_CARD names no card"),
            ("card", Some("eth1"), "OMX_COPY_CARD: "),
            ("gpu", None, "none of `thread`"),
        ] {
            let (kind, sentence) = CopyEngineKind::parse(text, name);
            assert_eq!(kind, CopyEngineKind::None);
            assert!(sentence.is_some_and(|sentence| sentence.contains(text) && sentence.contains(said)));
        }
    }
}
