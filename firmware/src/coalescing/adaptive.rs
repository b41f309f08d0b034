//! Adaptive moderation (`papers.md` M-GF7), alone or with a strategy for marks on top (M-GF8).
//!
//! The delay follows the recent traffic: none while it is quiet, up to that of the settings under load. Packets are not
//! counted one by one, but when interrupts announce them, as Linux' DIM and Intel's ITR do.

use super::{Action, Attention, Completion, Oldest, Strategy, Together};

/// The longest delay is that of the settings; each level below has half of it, and level 0 none.
const LEVEL_MAX: u8 = 4;
/// Level *n* is reached, one level per sample, at so many times *n* packets per longest delay. Below it, waiting collects too
/// little to be worth the latency: the answers of a ping-pong stay quiet, a saturated link of 1 Gbit/s does not.
const PACKETS_PER_LEVEL: u64 = 4;
/// Level *n* is left below that divided by this, so that traffic near a bound does not flap.
const HYSTERESIS: u64 = 2;
/// A sample ends when so many packets were announced in it …
const SAMPLE_PACKETS: u64 = 32;
/// … or so many longest delays are over. At the lowest rate that counts as load both come at once; less would be noise: 32
/// packets of random traffic come out half as many once in 500 samples.
const SAMPLE_DELAYS: u64 = SAMPLE_PACKETS / PACKETS_PER_LEVEL;

/// What adaptive moderation measured and chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AdaptiveState {
    /// The delay in force, in nanoseconds; at most that of the settings. 0 = an interrupt when a packet's DMA completes.
    pub delay_ns: u64,
    /// Packets per second in the last whole sample. A sample ends with a packet, so this stays while nothing arrives.
    pub packets_per_s: u64,
    /// Times that the delay was made longer.
    pub longer: u64,
    /// Times that the delay was made shorter.
    pub shorter: u64,
}

/// Moderation with `M` on top, which decides about completions; `Timeout` for none.
///
/// The rule: a sample begins with a packet that is the oldest not announced, and ends with the next such packet by whose
/// arrival [`SAMPLE_PACKETS`] have been announced in it or [`SAMPLE_DELAYS`] × the longest delay have passed. Its rate is what was
/// announced over the time between, in packets per longest delay. If that is at least [`PACKETS_PER_LEVEL`] × the next level,
/// the level rises by one; while it is less than [`PACKETS_PER_LEVEL`] / [`HYSTERESIS`] × the level, the level falls: load
/// is believed slowly, quiet at once. Level 0 has no delay, level *n* the longest one halved [`LEVEL_MAX`] − *n* times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Adaptive<M> {
    marks: M,
    level: u8,
    /// The packet with which the sample that runs began.
    began: Option<Oldest>,
    /// Packets and nanoseconds of the last whole sample.
    last: (u64, u64),
    longer: u64,
    shorter: u64,
}

impl<M> Adaptive<M> {
    fn delay_at_level(&self, longest_ns: u64) -> u64 {
        match self.level {
            0 => 0,
            level => longest_ns >> (LEVEL_MAX - level),
        }
    }

    /// Takes the level from a whole sample.
    fn sample_ended(&mut self, packets: u64, took_ns: u64, longest_ns: u64) {
        self.last = (packets, took_ns);
        let before = self.level;
        // Packets per longest delay, and the bounds, both times what the sample took.
        let arrived = packets.saturating_mul(longest_ns);
        let bound = |per_delay: u64| took_ns.saturating_mul(per_delay);
        if self.level < LEVEL_MAX && arrived >= bound(PACKETS_PER_LEVEL * u64::from(self.level + 1)) {
            self.level += 1;
        }
        while self.level > 0 && arrived < bound(PACKETS_PER_LEVEL / HYSTERESIS * u64::from(self.level)) {
            self.level -= 1;
        }
        self.longer += u64::from(self.level > before);
        self.shorter += u64::from(self.level < before);
    }
}

impl<M: Strategy> Strategy for Adaptive<M> {
    #[inline]
    fn completed(&mut self, completion: Completion) -> Action {
        self.marks.completed(completion)
    }

    #[inline]
    fn completed_together(&mut self, together: Together) -> (u32, Action) {
        self.marks.completed_together(together)
    }

    #[inline]
    fn attention(&self) -> Attention {
        self.marks.attention()
    }

    #[inline]
    fn announced(&mut self) {
        self.marks.announced();
    }

    #[inline]
    fn is_deferring(&self) -> bool {
        self.marks.is_deferring()
    }

    fn delay_ns(&mut self, oldest: Oldest) -> u64 {
        let began = *self.began.get_or_insert(oldest);
        let packets = oldest.announced.saturating_sub(began.announced);
        let took_ns = oldest.arrived.nanos_since(began.arrived);
        if packets >= SAMPLE_PACKETS || took_ns >= oldest.longest_ns.saturating_mul(SAMPLE_DELAYS) {
            self.sample_ended(packets, took_ns, oldest.longest_ns);
            self.began = Some(oldest);
        }
        self.delay_at_level(oldest.longest_ns)
    }

    fn adaptive(&self, longest_ns: u64) -> Option<AdaptiveState> {
        let (packets, took_ns) = self.last;
        Some(AdaptiveState {
            delay_ns: self.delay_at_level(longest_ns),
            packets_per_s: packets.saturating_mul(1_000_000_000) / took_ns.max(1),
            longer: self.longer,
            shorter: self.shorter,
        })
    }
}
