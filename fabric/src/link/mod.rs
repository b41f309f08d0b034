//! One direction of a link: whether a frame arrives, when, and in what state.
//!
//! A link has rate, delay, queue limit, MTU, and faults from a seed; all of it may change while frames are in flight. It keeps
//! no frames and flips no bits: it answers when and what, and the caller keeps the frame until then.

mod chance;
mod config;
mod jitter;
mod loss;
#[cfg(feature = "serde")]
mod names;
mod wire;

use ether::{ETHERNET_HEADER_LEN, Time};

use chance::{Chance, Odds, Use};
pub use config::{LinkChange, LinkConfig, LinkConfigError, PPM, QUEUE_FRAMES_MAX, QueueLevel};
use jitter::offset_ns;
pub use jitter::{JITTER_NS_MAX, JitterDistribution};
use loss::{LossModel, Lost};
use wire::{Queued, Wire};

/// What a frame takes on the wire beside its bytes: preamble and start delimiter 8, frame check sequence 4, gap 12.
const WIRE_OVERHEAD_BYTES: u64 = 24;

/// Shortest frame without its frame check sequence; shorter ones are padded by the sender (IEEE 802.3 3.2.8).
const WIRE_FRAME_BYTES_MIN: u64 = 60;

/// What an MTU does not count: the Ethernet header and two VLAN tags.
pub const FRAME_OVERHEAD_BYTES: u32 = ETHERNET_HEADER_LEN as u32 + 2 * 4;

/// The time a frame takes on an Ethernet wire, in bit times: padded to 60 bytes, with preamble, frame check sequence and
/// gap. So 10 Gbit/s carry 14.88 million short frames per second here, as they do on a cable.
#[inline]
pub const fn wire_bits(frame_len: usize) -> u64 {
    let bytes = if (frame_len as u64) < WIRE_FRAME_BYTES_MIN {
        WIRE_FRAME_BYTES_MIN
    } else {
        frame_len as u64
    };
    bytes.saturating_add(WIRE_OVERHEAD_BYTES).saturating_mul(8)
}

weft_settings::named! {
    /// Why a frame does not arrive.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum LinkDrop {
        /// The link is down.
        Down = "down",
        /// Its payload is larger than the MTU.
        Mtu = "mtu",
        /// Too many bytes wait for the wire.
        QueueFull = "queue-full",
        /// Lost on the wire, after it took its time there.
        Loss = "loss",
        /// A bit was flipped, and the receiver's frame check sequence found it.
        Corrupt = "corrupt",
        /// Lost on the wire because it was its turn: every Nth frame is.
        EveryNth = "every-nth",
    }
}

/// What becomes of a frame on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It does not arrive; the reason is counted.
    Drop {
        /// Why the frame does not arrive.
        reason: LinkDrop,
        /// When its sender is rid of it: when its last bit has been sent, if it was lost on the wire, or at once.
        sent_at: Time,
    },
    /// It arrives. Frames with equal times arrive in the order in which they were admitted.
    Deliver {
        /// When its last bit has been sent, and its sender is rid of it; not after `at`.
        sent_at: Time,
        /// When it arrives.
        at: Time,
        /// When a second copy arrives, if one does; not before `at`.
        duplicate_at: Option<Time>,
        /// The bit to flip, in both copies: bit `n % 8` (lowest first) of byte `n / 8` of the frame.
        corrupt_bit: Option<u32>,
        /// Whether the queue was above the ECN threshold: the frame is to be marked by [`ether::ecn::mark`] if its sender
        /// can be told so, both copies and before a bit is flipped, and [`Link::count_marked`] is to be called if it was.
        mark_ecn: bool,
    },
}

impl Admission {
    /// When the frame has left its sender: its last bit has been sent, or it was dropped before it came on the wire. A second
    /// copy is the link's own, and no sender waits for it.
    pub const fn sent_at(self) -> Time {
        match self {
            Self::Drop { sent_at, .. } | Self::Deliver { sent_at, .. } => sent_at,
        }
    }
}

/// Counts of one direction of a link since it was made; changes of its settings do not reset them.
///
/// `offered_frames + duplicated_frames = delivered_frames + ` [`LinkCounters::dropped_total`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LinkCounters {
    /// Frames the link was asked to carry.
    pub offered_frames: u64,
    /// Their bytes, without frame check sequence.
    pub offered_bytes: u64,
    /// Frames that arrive, second copies included.
    pub delivered_frames: u64,
    /// The bytes of frames that arrive.
    pub delivered_bytes: u64,
    /// Frames delayed by the reorder delay.
    pub held_back_frames: u64,
    /// Frames that arrive before one that was sent earlier: reordering that really happened.
    pub overtaking_frames: u64,
    /// Frames that arrive twice.
    pub duplicated_frames: u64,
    /// Frames that arrive with a flipped bit (each counted once, duplicated or not).
    pub corrupted_frames: u64,
    /// Frames that were marked as having met congestion (each counted once, duplicated or not).
    pub marked_frames: u64,
    /// Most bytes that ever waited for the wire, counted as on the wire.
    pub queue_bytes_peak: u64,
    #[cfg_attr(feature = "serde", serde(skip))]
    dropped: [u64; LinkDrop::ALL.len()],
}

impl LinkCounters {
    /// Frames that did not arrive for this reason.
    pub const fn dropped(&self, reason: LinkDrop) -> u64 {
        self.dropped[reason as usize]
    }

    /// Frames that did not arrive.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }
}

/// How probable each fault is, except for loss.
#[derive(Clone, Copy)]
struct FaultOdds {
    reorder: Odds,
    duplicate: Odds,
    corrupt: Odds,
}

impl FaultOdds {
    fn new(config: &LinkConfig) -> Self {
        Self {
            reorder: Odds::of_ppm(config.reorder_ppm),
            duplicate: Odds::of_ppm(config.duplicate_ppm),
            corrupt: Odds::of_ppm(config.corrupt_ppm),
        }
    }
}

/// One direction of a link.
///
/// # Promises
/// - Without reordering asked for, by `reorder_ppm` or `jitter_reorders`, arrival times never fall, also when rate, delay or
///   jitter change while frames are in flight.
/// - The rate is kept to the nanosecond over any number of frames: what division leaves over is carried on. In any stretch of
///   time at most the bucket's bytes more than the rate are sent.
/// - Same seed, settings and calls: same answers, on every machine.
/// - [`Link::admit`] allocates nothing.
pub struct Link {
    config: LinkConfig,
    /// Whether the settings are those of an ideal link, or of one with nothing but a delay: asked for each frame.
    is_ideal: bool,
    /// Whether the settings have any fault: asked for each frame of a link that is not ideal.
    has_faults: bool,
    only_delays: bool,
    counters: LinkCounters,
    wire: Wire,
    /// Latest arrival among frames that were not delayed for reordering: where order is kept, others of that kind do not come before it.
    in_order_at: Time,
    /// Latest arrival of all.
    latest_at: Time,
    jitter: Chance,
    loss: LossModel,
    odds: FaultOdds,
    reorder: Chance,
    duplicate: Chance,
    corrupt: Chance,
}

impl Link {
    /// A link on which nothing is in flight.
    pub fn new(config: LinkConfig) -> Self {
        let seed = config.seed;
        Self {
            is_ideal: config.is_ideal(),
            has_faults: config.has_faults(),
            only_delays: config.only_delays(),
            counters: LinkCounters::default(),
            wire: Wire::new(&config),
            config,
            in_order_at: Time::ZERO,
            latest_at: Time::ZERO,
            jitter: Chance::new(seed, Use::Jitter),
            loss: LossModel::new(&config),
            odds: FaultOdds::new(&config),
            reorder: Chance::new(seed, Use::Reorder),
            duplicate: Chance::new(seed, Use::Duplicate),
            corrupt: Chance::new(seed, Use::Corrupt),
        }
    }

    /// Changes the settings while frames are in flight: those keep their times, and the wire stays taken until they are
    /// sent. The random streams go on where they were, unless the seed changed: then they start again from it. So does a burst
    /// of lost frames, as long as the settings have bursts.
    ///
    /// Memory is taken here, if a level of the queue is given in frames, and never by [`Link::admit`].
    pub fn set_config(&mut self, config: LinkConfig) {
        if config.seed != self.config.seed {
            let seed = config.seed;
            self.jitter = Chance::new(seed, Use::Jitter);
            self.loss = LossModel::new(&config);
            self.reorder = Chance::new(seed, Use::Reorder);
            self.duplicate = Chance::new(seed, Use::Duplicate);
            self.corrupt = Chance::new(seed, Use::Corrupt);
        }
        self.loss.reconfigure(&config);
        self.odds = FaultOdds::new(&config);
        self.wire.reconfigure(&config);
        self.has_faults = config.has_faults();
        self.is_ideal = config.is_ideal();
        self.only_delays = config.only_delays();
        self.config = config;
    }

    /// The settings.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// What was counted.
    pub fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// Whether frames pass at once and unharmed: up, no rate, delay, jitter or fault. The caller may then deliver at once and
    /// call [`Link::count_passed`] instead of [`Link::admit`], once nothing is in flight any more
    /// ([`Link::is_drained`]), and if the MTU is kept.
    #[inline]
    pub fn is_ideal(&self) -> bool {
        self.is_ideal
    }

    /// Whether the link has no setting but a delay and the MTU, and nothing waits any more for a rate that it had: frames that
    /// are sent together arrive together, unharmed. The caller may then ask about several at once, with
    /// [`Link::admit_together`].
    #[inline]
    pub fn only_delays(&self, now: Time) -> bool {
        self.only_delays && self.wire.is_free(now)
    }

    /// Counts frames that are handed to the link together at `now`, which must not go backwards, and says when all of them
    /// arrive. Only for a link that [only delays](Link::only_delays) them, and frames within its MTU.
    pub fn admit_together(&mut self, now: Time, frames: u64, bytes: u64) -> Time {
        debug_assert!(self.only_delays(now));
        self.count_passed(frames, bytes);
        let overtaking_before = self.counters.overtaking_frames;
        let at = self.arrival(now, self.config.delay_ns, false);
        if self.counters.overtaking_frames != overtaking_before {
            self.counters.overtaking_frames = overtaking_before + frames;
        }
        at
    }

    /// Whether every frame admitted so far has arrived before `now`. One that arrives at `now` may still be in its keeper's
    /// hands, and comes before those that do not have to be kept.
    #[inline]
    pub fn is_drained(&self, now: Time) -> bool {
        self.latest_at < now || self.latest_at == Time::ZERO
    }

    /// Counts frames that the caller delivered itself because the link is ideal.
    #[inline]
    pub fn count_passed(&mut self, frames: u64, bytes: u64) {
        self.counters.offered_frames += frames;
        self.counters.offered_bytes += bytes;
        self.counters.delivered_frames += frames;
        self.counters.delivered_bytes += bytes;
    }

    /// Bytes that wait for the wire or are being sent at `now`, counted as on the wire.
    pub fn queue_bytes(&self, now: Time) -> u64 {
        self.wire.queue_bytes(now)
    }

    /// Counts a frame that the caller marked as [`Admission::Deliver`] asked for.
    pub fn count_marked(&mut self) {
        self.counters.marked_frames += 1;
    }

    /// Decides about a frame of `frame_len` bytes (without frame check sequence) that is handed to the link at `now`,
    /// which must not go backwards from call to call.
    ///
    /// In this order: down, MTU, queue limit; then it takes its time on the wire; then loss, corruption, duplication
    /// (the second copy takes the wire's time again and has equal jitter), reordering.
    pub fn admit(&mut self, now: Time, frame_len: usize) -> Admission {
        let bytes = frame_len as u64;
        self.counters.offered_frames += 1;
        self.counters.offered_bytes += bytes;
        if !self.config.up {
            return self.drop(LinkDrop::Down, now);
        }
        if bytes > u64::from(FRAME_OVERHEAD_BYTES) + u64::from(self.config.mtu) {
            return self.drop(LinkDrop::Mtu, now);
        }
        let bits = wire_bits(frame_len);
        let Some(queued) = self.wire.enqueue(now, bits) else {
            return self.drop(LinkDrop::QueueFull, now);
        };
        self.counters.queue_bytes_peak = self.counters.queue_bytes_peak.max(queued.queue_bytes);
        let delay_ns = self.delay_ns();
        if self.has_faults {
            return self.deliver_with_faults(now, bytes, delay_ns, queued);
        }
        self.delivered(bytes);
        Admission::Deliver {
            sent_at: queued.sent_at,
            at: self.arrival(queued.sent_at, delay_ns, false),
            duplicate_at: None,
            corrupt_bit: None,
            mark_ecn: queued.above_threshold,
        }
    }

    /// What becomes of a frame that has been put on a wire with faults.
    #[inline(always)]
    fn deliver_with_faults(&mut self, now: Time, bytes: u64, delay_ns: u64, queued: Queued) -> Admission {
        let Queued {
            sent_at,
            above_threshold,
            ..
        } = queued;
        // Each stream draws for each frame that was sent, so that the fate of the n-th frame in one respect does not
        // depend on the other probabilities.
        let lost = self.loss.next();
        let corrupted = self.corrupt.hits(self.odds.corrupt);
        let duplicated = self.duplicate.hits(self.odds.duplicate);
        let is_reordered = self.reorder.hits(self.odds.reorder);
        match lost {
            Some(Lost::ByTurn) => return self.drop(LinkDrop::EveryNth, sent_at),
            Some(Lost::ByChance) => return self.drop(LinkDrop::Loss, sent_at),
            None => {}
        }
        if corrupted && !self.config.corrupt_past_fcs {
            return self.drop(LinkDrop::Corrupt, sent_at);
        }
        let corrupt_bit = (corrupted && bytes > 0).then(|| {
            self.counters.corrupted_frames += 1;
            self.corrupt
                .below(u32::try_from(bytes.saturating_mul(8)).unwrap_or(u32::MAX))
        });
        let at = self.arrival(sent_at, delay_ns, is_reordered);
        self.delivered(bytes);
        let duplicate_at = duplicated.then(|| {
            self.counters.duplicated_frames += 1;
            self.delivered(bytes);
            let sent_at = self.wire.send(now, wire_bits(bytes as usize));
            self.arrival(sent_at, delay_ns, is_reordered).max(at)
        });
        if is_reordered {
            self.counters.held_back_frames += 1;
        }
        Admission::Deliver {
            sent_at,
            at,
            duplicate_at,
            corrupt_bit,
            mark_ecn: above_threshold,
        }
    }

    /// How long the next frame is in flight.
    #[inline]
    fn delay_ns(&mut self) -> u64 {
        let LinkConfig {
            delay_ns,
            jitter_ns,
            jitter_distribution,
            ..
        } = self.config;
        if jitter_ns == 0 {
            return delay_ns;
        }
        delay_ns.saturating_add_signed(offset_ns(jitter_distribution, jitter_ns, &mut self.jitter))
    }

    fn drop(&mut self, reason: LinkDrop, sent_at: Time) -> Admission {
        self.counters.dropped[reason as usize] += 1;
        Admission::Drop { reason, sent_at }
    }

    fn delivered(&mut self, bytes: u64) {
        self.counters.delivered_frames += 1;
        self.counters.delivered_bytes += bytes;
    }

    /// When a frame arrives whose last bit is sent at `sent_at`.
    #[inline]
    fn arrival(&mut self, sent_at: Time, delay_ns: u64, is_reordered: bool) -> Time {
        let mut at = sent_at.plus_nanos(delay_ns);
        if is_reordered {
            at = at.plus_nanos(self.config.reorder_delay_ns);
        } else {
            let in_order_at = self.in_order_at.max(at);
            self.in_order_at = in_order_at;
            if !self.config.jitter_reorders {
                at = in_order_at;
            }
        }
        if at < self.latest_at {
            self.counters.overtaking_frames += 1;
        }
        self.latest_at = self.latest_at.max(at);
        at
    }
}
