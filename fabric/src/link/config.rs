//! The settings of a link, and what is wrong with some.

use core::fmt;

use super::jitter::JitterDistribution;
#[cfg(feature = "serde")]
use super::names::{Ecn, Queue};

/// One million: a probability in parts per million is out of this.
pub const PPM: u32 = 1_000_000;

/// Most frames that a limit or threshold of a queue can be about: as many short frames as the 128 MiB hold that a live
/// switch keeps for all links. Higher ones act as this one. A link remembers so many times, of 8 bytes.
pub const QUEUE_FRAMES_MAX: u32 = 65_536;

/// How full a queue is, the frame being sent included. What is `None` does not count; with several, the first that is
/// exceeded does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLevel {
    /// Bytes, counted as on the wire.
    pub bytes: Option<u64>,
    /// Frames, at most [`QUEUE_FRAMES_MAX`].
    pub frames: Option<u32>,
    /// Nanoseconds until the last bit has been sent.
    pub ns: Option<u64>,
}

impl QueueLevel {
    /// Never exceeded.
    pub const NONE: Self = Self {
        bytes: None,
        frames: None,
        ns: None,
    };

    /// So many bytes on the wire.
    pub const fn bytes(bytes: u64) -> Self {
        Self {
            bytes: Some(bytes),
            ..Self::NONE
        }
    }

    /// So many frames.
    pub const fn frames(frames: u32) -> Self {
        Self {
            frames: Some(frames),
            ..Self::NONE
        }
    }

    /// So many nanoseconds.
    pub const fn nanos(ns: u64) -> Self {
        Self {
            ns: Some(ns),
            ..Self::NONE
        }
    }

    /// Whether a queue that never exceeds `limit` never exceeds this either, as far as equal units can tell.
    fn is_beyond(&self, limit: &Self) -> bool {
        fn beyond<T: PartialOrd>(threshold: Option<T>, limit: Option<T>) -> Option<bool> {
            threshold.map(|threshold| limit.is_some_and(|limit| threshold >= limit))
        }
        let beyond = [
            beyond(self.bytes, limit.bytes),
            beyond(self.frames, limit.frames),
            beyond(self.ns, limit.ns),
        ];
        *self != Self::NONE && beyond.iter().all(|beyond| beyond.unwrap_or(true))
    }
}

weft_settings::settings! {
    /// One direction of a link. The default is a perfect wire: up, no rate, no delay, no faults.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", serde(from = "LinkChange", into = "FlatLink"))]
    pub struct LinkConfig, changed by struct LinkChange, written as struct FlatLink in "FlatLink" {
        /// Whether anything passes. Default true.
        pub up: bool,
        /// Bits per second on the wire, counted as Ethernet does (see [`wire_bits`](super::wire_bits)); 0 = unlimited.
        pub rate_bps: u64,
        /// Bytes, counted as on the wire, that may be sent at once when nothing was sent for as long as they take at the rate:
        /// the size of a token bucket. 0 = none, each frame takes its time. Without a rate it has no effect, and is refused.
        pub burst_bytes: u64,
        /// Propagation delay in nanoseconds, added after the last bit was sent.
        pub delay_ns: u64,
        /// How far the delay of a frame is from `delay_ns`, in nanoseconds; never so far that it arrives before it was sent, so a
        /// jitter larger than the delay makes frames later in the mean. More than [`JITTER_NS_MAX`](super::JITTER_NS_MAX) acts as
        /// that.
        pub jitter_ns: u64,
        /// How delays spread around `delay_ns`.
        pub jitter_distribution: JitterDistribution,
        /// Whether a frame may overtake one that was sent earlier and has a longer delay; otherwise it arrives together with
        /// that.
        pub jitter_reorders: bool,
        /// What waits for the wire or is being sent; a frame that would go beyond is dropped. A free wire takes any frame.
        /// Without a rate nothing waits. Default 1 MiB.
        pub queue_max in Queue [queue_bytes: u64, queue_frames: u32, queue_ns: u64]: QueueLevel,
        /// Frames that go beyond this when they are queued are to be marked as having met congestion, if they are of a transport
        /// that knows such marks ([`Admission::Deliver`](super::Admission::Deliver)). Default: none.
        pub ecn_above in Ecn [ecn_bytes: u64, ecn_frames: u32, ecn_ns: u64]: QueueLevel,
        /// Largest payload in bytes, what follows the Ethernet header and up to two VLAN tags
        /// ([`FRAME_OVERHEAD_BYTES`](super::FRAME_OVERHEAD_BYTES)); larger frames are dropped. Default 9000.
        pub mtu: u32,
        /// Frames lost on the wire, in parts per million; with bursts, those lost outside of them (1-k of the Gilbert-Elliott
        /// model).
        pub loss_ppm: u32,
        /// Frames behind which a burst of lost frames begins, in parts per million of those outside of one (p); 0 = no bursts.
        pub loss_enter_ppm: u32,
        /// Frames behind which it ends, in parts per million of those in one (r).
        pub loss_leave_ppm: u32,
        /// Frames lost in it, in parts per million of those (1-h).
        pub loss_in_burst_ppm: u32,
        /// Every so many frames on the wire, the last of them is lost; 0 = none.
        pub loss_every: u32,
        /// Frames delayed by `reorder_delay_ns`, so that those sent in that time overtake them, in parts per million.
        pub reorder_ppm: u32,
        /// How long the reordered frames are delayed, in nanoseconds.
        pub reorder_delay_ns: u64,
        /// Frames that arrive twice, in parts per million.
        pub duplicate_ppm: u32,
        /// Frames in which one bit is flipped, in parts per million.
        pub corrupt_ppm: u32,
        /// What becomes of those: `false`, the receiver's frame check sequence finds them and they are dropped; `true`, the
        /// bit was flipped where no check sees it, and they are delivered.
        pub corrupt_past_fcs: bool,
        /// Where the random numbers start. Links that should not fail in step need different seeds.
        pub seed: u64,
    }
}

impl From<LinkChange> for LinkConfig {
    /// What is not given is as on a perfect wire.
    fn from(change: LinkChange) -> Self {
        let mut config = Self::IDEAL;
        change.apply_to(&mut config);
        config
    }
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self::IDEAL
    }
}

impl LinkConfig {
    /// A perfect wire: up, no rate, no delay, no faults, 1 MiB of queue, an MTU of 9000.
    pub const IDEAL: Self = Self {
        up: true,
        rate_bps: 0,
        burst_bytes: 0,
        delay_ns: 0,
        jitter_ns: 0,
        jitter_distribution: JitterDistribution::Uniform,
        jitter_reorders: false,
        queue_max: QueueLevel::bytes(1 << 20),
        ecn_above: QueueLevel::NONE,
        mtu: 9000,
        loss_ppm: 0,
        loss_enter_ppm: 0,
        loss_leave_ppm: 0,
        loss_in_burst_ppm: 0,
        loss_every: 0,
        reorder_ppm: 0,
        reorder_delay_ns: 0,
        duplicate_ppm: 0,
        corrupt_ppm: 0,
        corrupt_past_fcs: false,
        seed: 0,
    };
}

/// Settings that contradict themselves; a link can be made of them, but does not do what was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkConfigError {
    /// A probability above one million parts per million; it acts as one million.
    PpmTooLarge {
        /// The setting's name.
        field: &'static str,
        /// The value that was asked for.
        ppm: u32,
    },
    /// Frames would be delayed by no time, so nothing would be reordered.
    ReorderWithoutDelay,
    /// A bucket of tokens that no rate fills.
    BurstWithoutRate,
    /// The queue would be full before the threshold is exceeded, so no frame would be marked.
    ThresholdBeyondQueue,
    /// A limit or threshold of more than [`QUEUE_FRAMES_MAX`] frames; it acts as that.
    TooManyFrames {
        /// The setting's name.
        field: &'static str,
        /// The value that was asked for.
        frames: u32,
    },
}

impl fmt::Display for LinkConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PpmTooLarge { field, ppm } => {
                write!(
                    f,
                    "{field} is {ppm}, but a probability is at most {PPM} parts per million"
                )
            }
            Self::ReorderWithoutDelay => f.write_str("reordering has no effect without a delay"),
            Self::BurstWithoutRate => f.write_str("a burst has no effect on a link of unlimited rate"),
            Self::ThresholdBeyondQueue => f.write_str(
                "the ECN threshold is not below the queue limit, so frames would be dropped and none marked",
            ),
            Self::TooManyFrames { field, frames } => {
                write!(
                    f,
                    "{field} is {frames}, but a queue counts at most {QUEUE_FRAMES_MAX} frames"
                )
            }
        }
    }
}

impl core::error::Error for LinkConfigError {}

impl LinkConfig {
    /// Checks settings that come from a user. A link takes any settings; this says which of them make no sense.
    pub fn validate(&self) -> Result<(), LinkConfigError> {
        let probabilities = [
            ("loss_ppm", self.loss_ppm),
            ("loss_enter_ppm", self.loss_enter_ppm),
            ("loss_leave_ppm", self.loss_leave_ppm),
            ("loss_in_burst_ppm", self.loss_in_burst_ppm),
            ("reorder_ppm", self.reorder_ppm),
            ("duplicate_ppm", self.duplicate_ppm),
            ("corrupt_ppm", self.corrupt_ppm),
        ];
        for (field, ppm) in probabilities {
            if ppm > PPM {
                return Err(LinkConfigError::PpmTooLarge { field, ppm });
            }
        }
        if self.reorder_ppm > 0 && self.reorder_delay_ns == 0 {
            return Err(LinkConfigError::ReorderWithoutDelay);
        }
        if self.burst_bytes > 0 && self.rate_bps == 0 {
            return Err(LinkConfigError::BurstWithoutRate);
        }
        for (field, frames) in [
            ("queue_frames", self.queue_max.frames),
            ("ecn_frames", self.ecn_above.frames),
        ] {
            if let Some(frames) = frames.filter(|frames| *frames > QUEUE_FRAMES_MAX) {
                return Err(LinkConfigError::TooManyFrames { field, frames });
            }
        }
        if self.ecn_above.is_beyond(&self.queue_max) {
            return Err(LinkConfigError::ThresholdBeyondQueue);
        }
        Ok(())
    }

    /// Whether frames pass unharmed and in order, all by one delay later, the MTU aside.
    pub(super) fn only_delays(&self) -> bool {
        let without = Self { delay_ns: 0, ..*self };
        without.is_ideal()
    }

    /// Whether frames pass at once and unharmed, the MTU aside. Queue, bucket and threshold do nothing without a rate.
    pub(super) fn is_ideal(&self) -> bool {
        self.up && self.rate_bps == 0 && self.delay_ns == 0 && self.jitter_ns == 0 && !self.has_faults()
    }

    /// Whether anything is drawn or counted for single frames behind the wire, jitter aside.
    pub(super) fn has_faults(&self) -> bool {
        let bursts = if self.loss_enter_ppm > 0 {
            self.loss_in_burst_ppm
        } else {
            0
        };
        let probabilities = self.loss_ppm | bursts | self.reorder_ppm | self.duplicate_ppm | self.corrupt_ppm;
        probabilities != 0 || self.loss_every != 0
    }
}
