//! The wire of a link and the queue in front of it: when a frame has been sent, and whether there is room for it.
//!
//! A token bucket and a plain rate are one machine: the bucket lets the wire lag behind the clock. Frames are not
//! kept here, and what happens to them behind the wire is decided elsewhere.

use alloc::{vec, vec::Vec};

use ether::Time;

use super::config::{LinkConfig, QUEUE_FRAMES_MAX, QueueLevel};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Bytes on the wire of a usual full frame: what frames are taken for that were not counted when they were queued.
const USUAL_WIRE_BYTES: u64 = 1538;

/// Bytes that are sent evenly from one time to another.
#[derive(Clone, Copy, Debug, Default)]
struct Backlog {
    from: Time,
    until: Time,
    bytes: u64,
}

impl Backlog {
    /// What is left of it, rounded up.
    fn at(self, now: Time) -> u64 {
        let (left, whole) = (self.until.nanos_since(now), self.until.nanos_since(self.from));
        if left == 0 || whole == 0 {
            return 0;
        }
        let bytes = (u128::from(self.bytes) * u128::from(left)).div_ceil(u128::from(whole));
        u64::try_from(bytes).unwrap_or(u64::MAX).min(self.bytes)
    }
}

/// When the last frames were sent, as many as the largest level in frames: so many wait as long as the oldest has not
/// been sent.
#[derive(Default)]
struct Departures {
    times: Vec<Time>,
    /// Where the next one goes, in the place of the oldest.
    next: usize,
}

impl Departures {
    fn add(&mut self, sent_at: Time) {
        if let Some(place) = self.times.get_mut(self.next) {
            *place = sent_at;
            self.next += 1;
            if self.next == self.times.len() {
                self.next = 0;
            }
        }
    }

    /// Whether at least `frames` wait or are being sent at `now`; `frames` must be at most what is remembered.
    fn at_least(&self, frames: usize, now: Time) -> bool {
        if frames == 0 {
            return true;
        }
        let len = self.times.len();
        let at = if self.next >= frames {
            self.next - frames
        } else {
            self.next + len - frames
        };
        self.times.get(at).is_some_and(|sent_at| *sent_at > now)
    }

    /// Remembers `frames` from now on; what is known of the last ones is kept.
    fn resize(&mut self, frames: usize) {
        let kept = frames.min(self.times.len());
        let mut times = vec![Time::ZERO; frames];
        for n in 1..=kept {
            let from = (self.next + self.times.len() - n) % self.times.len();
            times[frames - n] = self.times[from];
        }
        *self = Self { times, next: 0 };
    }
}

/// What became of a frame in front of the wire.
#[derive(Clone, Copy)]
pub(super) struct Queued {
    /// When its last bit is sent.
    pub sent_at: Time,
    /// Whether the queue is above the threshold of [`LinkConfig::ecn_above`] with it.
    pub above_threshold: bool,
    /// Bytes that wait with it, counted as on the wire; 0 if it found the wire free.
    pub queue_bytes: u64,
}

pub(super) struct Wire {
    rate_bps: u64,
    /// How far the wire may lag behind the clock: the time that a full bucket stands for.
    burst_ns: u64,
    limit: QueueLevel,
    threshold: QueueLevel,
    /// When the last bit of the last accepted frame has been sent, rounded down; with a bucket, when its tokens have been
    /// earned, which may be earlier than the frame came.
    busy_until: Time,
    /// What is missing from `busy_until`, in parts of a nanosecond, `rate_bps` of which are one.
    busy_rest: u64,
    /// What still waited when the rate last changed.
    earlier: Backlog,
    /// The `now` of the last frame.
    last_now: Time,
    departures: Departures,
}

impl Wire {
    pub(super) fn new(config: &LinkConfig) -> Self {
        let mut wire = Self {
            rate_bps: 0,
            burst_ns: 0,
            limit: QueueLevel::NONE,
            threshold: QueueLevel::NONE,
            busy_until: Time::ZERO,
            busy_rest: 0,
            earlier: Backlog::default(),
            last_now: Time::ZERO,
            departures: Departures::default(),
        };
        wire.reconfigure(config);
        wire
    }

    /// Changes the settings while frames wait: they keep their times and their size, and the new ones count from the next
    /// frame on. Frames that were not counted so far, since no level in frames was set, are taken for full ones.
    pub(super) fn reconfigure(&mut self, config: &LinkConfig) {
        let waiting_bytes = self.queue_bytes(self.last_now);
        if config.rate_bps != self.rate_bps {
            // Parts of a nanosecond of the old rate mean nothing at the new one.
            self.busy_until = self.busy_until.plus_nanos(u64::from(self.busy_rest > 0));
            self.busy_rest = 0;
            self.earlier = Backlog {
                from: self.last_now,
                until: self.busy_until,
                bytes: waiting_bytes,
            };
        }
        self.rate_bps = config.rate_bps;
        self.burst_ns = time_for(config.burst_bytes, config.rate_bps);
        self.limit = config.queue_max;
        self.threshold = config.ecn_above;
        let levels = [self.limit.frames, self.threshold.frames];
        let remembered = levels.map(|level| level.map_or(0, |frames| frames.min(QUEUE_FRAMES_MAX)));
        let remembered = remembered[0].max(remembered[1]) as usize;
        let known = self.departures.times.len();
        if remembered != known {
            self.departures.resize(remembered);
            if known == 0 {
                self.guess_departures(waiting_bytes);
            }
        }
    }

    /// Takes the bytes that wait for frames of the usual size, sent evenly.
    fn guess_departures(&mut self, waiting_bytes: u64) {
        let frames = waiting_bytes.div_ceil(USUAL_WIRE_BYTES);
        let span_ns = u128::from(self.busy_until.nanos_since(self.last_now));
        let counted = frames.min(self.departures.times.len() as u64);
        for n in frames - counted + 1..=frames {
            // Not above `span_ns`.
            let after_ns = (span_ns * u128::from(n) / u128::from(frames)) as u64;
            self.departures.add(self.last_now.plus_nanos(after_ns));
        }
    }

    /// Whether nothing waits for the wire or is being sent.
    #[inline]
    pub(super) fn is_free(&self, now: Time) -> bool {
        self.busy_until <= now
    }

    /// Bytes that wait or are being sent at `now`, counted as on the wire.
    #[inline]
    pub(super) fn queue_bytes(&self, now: Time) -> u64 {
        // What waited earlier is not sent later than what waits now.
        if self.busy_until <= now {
            return 0;
        }
        let from = now.max(self.earlier.until);
        self.earlier
            .at(now)
            .saturating_add(bytes_in(self.busy_until.nanos_since(from), self.rate_bps))
    }

    /// Queues a frame that takes `bits` on the wire; `None` if there is no room for it. A free wire takes any frame.
    #[inline]
    pub(super) fn enqueue(&mut self, now: Time, bits: u64) -> Option<Queued> {
        self.last_now = now;
        let waiting = self.queue_bytes(now);
        let (mut above_threshold, mut queue_bytes) = (false, 0);
        if waiting > 0 {
            queue_bytes = waiting.saturating_add(bits / 8);
            if !self.is_within(&self.limit, now, queue_bytes, bits) {
                return None;
            }
            above_threshold = !self.is_within(&self.threshold, now, queue_bytes, bits);
        }
        Some(Queued {
            sent_at: self.send(now, bits),
            above_threshold,
            queue_bytes,
        })
    }

    /// Whether the queue keeps to `level` with a frame of `bits` that makes it `bytes` long.
    #[inline]
    fn is_within(&self, level: &QueueLevel, now: Time, bytes: u64, bits: u64) -> bool {
        level.bytes.is_none_or(|most| bytes <= most)
            && level
                .ns
                .is_none_or(|most| self.after(now, bits).0.nanos_since(now) <= most)
            && level
                .frames
                .is_none_or(|most| !self.departures.at_least(most.min(QUEUE_FRAMES_MAX) as usize, now))
    }

    /// Puts bits on the wire as soon as it is free; the time the last one is sent.
    #[inline]
    pub(super) fn send(&mut self, now: Time, bits: u64) -> Time {
        (self.busy_until, self.busy_rest) = self.after(now, bits);
        let sent_at = self.busy_until.max(now);
        self.departures.add(sent_at);
        sent_at
    }

    /// Until when the wire would be busy with `bits` more, and the rest of that.
    #[inline]
    fn after(&self, now: Time, bits: u64) -> (Time, u64) {
        let idle_since = Time::from_nanos(now.as_nanos().saturating_sub(self.burst_ns));
        let (from, rest) = if self.busy_until < idle_since {
            (idle_since, 0)
        } else {
            (self.busy_until, self.busy_rest)
        };
        if self.rate_bps == 0 {
            return (from, rest);
        }
        let parts = u128::from(bits) * u128::from(NANOS_PER_SECOND) + u128::from(rest);
        let (ns, rest) = divide(parts, self.rate_bps);
        (from.plus_nanos(ns), rest)
    }
}

/// Quotient and remainder; in 64 bits where that is enough, since 128 take several times as long.
#[inline]
fn divide(parts: u128, rate: u64) -> (u64, u64) {
    match u64::try_from(parts) {
        Ok(parts) => (parts / rate, parts % rate),
        Err(_) => {
            let ns = u64::try_from(parts / u128::from(rate)).unwrap_or(u64::MAX);
            (ns, (parts % u128::from(rate)) as u64)
        }
    }
}

/// Whole bytes that are sent in `ns` at `rate`, rounded up.
#[inline]
fn bytes_in(ns: u64, rate_bps: u64) -> u64 {
    match ns.checked_mul(rate_bps) {
        Some(bits_e9) => bits_e9.div_ceil(8 * NANOS_PER_SECOND),
        None => {
            let bits_e9 = u128::from(ns) * u128::from(rate_bps);
            u64::try_from(bits_e9.div_ceil(8 * u128::from(NANOS_PER_SECOND))).unwrap_or(u64::MAX)
        }
    }
}

/// How long `bytes` take at a rate, in nanoseconds; 0 without one.
fn time_for(bytes: u64, rate_bps: u64) -> u64 {
    let bits_e9 = u128::from(bytes) * 8 * u128::from(NANOS_PER_SECOND);
    let ns = bits_e9.checked_div(u128::from(rate_bps)).unwrap_or(0);
    u64::try_from(ns).unwrap_or(u64::MAX)
}
