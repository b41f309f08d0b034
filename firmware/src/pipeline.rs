//! The receive pipeline of one queue: arrive → descriptor → DMA → announce.
//!
//! It decides when an interrupt is due and why. It is also the guard around the strategies: no interrupt before a DMA has
//! completed, no packet unannounced for longer than the time-out (or its own DMA, if that takes longer). It moves no bytes
//! and signals no guest; its driver does.

mod polled;
mod settings;

use core::fmt;

use ether::Time;

use crate::{
    Coalescing, DmaModel, Interrupt, PacketInfo, Reason, RxCounters,
    coalescing::{Action, Active, Attention, Completion, Oldest, Selection, Together},
    dma::DmaEngines,
    pending::{AT_POLL, PENDING_MAX, PendingRing, Slot},
    recorder::{FlightRecorder, RecordKind},
    watchdog::Watchdog,
};
use settings::Delay;

/// What a queue starts with.
#[derive(Clone, Copy, Debug, Default)]
pub struct PipelineConfig {
    /// Interrupt coalescing; values beyond their limits are brought to the limit.
    pub coalescing: Coalescing,
    /// The DMA model; values beyond their limits are brought to the limit.
    pub dma: DmaModel,
}

/// [`PENDING_MAX`] packets are in flight to host memory; the packet was not taken, and counted as refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipelineFull;

impl fmt::Display for PipelineFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{PENDING_MAX} packets are in flight to host memory; the packet was not taken"
        )
    }
}

impl core::error::Error for PipelineFull {}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The DMA of the `count` oldest pending packets completed: publish their descriptors; then, if an interrupt was
    /// decided, signal it.
    Completed {
        /// At least 1.
        count: u32,
        /// Decided after the last of them.
        interrupt: Option<Interrupt>,
    },
    /// An interrupt without a completion: signal it.
    Interrupt(Interrupt),
    /// The polling watchdog's timer expired: read the host's state and hand it over by [`RxPipeline::host_state`]. Comes
    /// only while a watchdog is on, and after everything that completed until then.
    FetchHostState,
}

/// The receive pipeline of one queue, with the strategies of the list.
pub type RxPipeline = Pipeline<Active>;

/// The receive pipeline of one queue.
///
/// `S` is where its strategy comes from: [`RxPipeline`] takes them from the list, the conformance suite has one alone.
///
/// Times handed to it should not go backwards; one that does is taken as the latest seen. In one instant, completions
/// come first (in order of arrival), then the time-out.
#[derive(Clone, Debug)]
pub struct Pipeline<S> {
    coalescing: Coalescing,
    strategy: S,
    /// How long the oldest unannounced packet may wait.
    delay: Delay,
    dma: DmaEngines,
    pending: PendingRing,
    /// Packets in host memory that no interrupt announced yet.
    waiting: u32,
    /// `waiting` at which M-GF2 raises; `u32::MAX` without a count limit.
    count_limit: u32,
    /// When the oldest unannounced packet arrived, pending or waiting.
    unannounced_since: Option<Time>,
    /// `unannounced_since` plus the delay in force; [`Time::MAX`] if there is none.
    deadline: Time,
    /// A change of settings, or a clock, made an interrupt due for what waits.
    due: Option<Reason>,
    /// When a clock wants what is in the ring announced; [`Time::MAX`] if none does.
    rung: Time,
    /// In place of the time-out while it is on.
    watchdog: Watchdog,
    /// When the host state that the watchdog waits for has arrived; [`Time::MAX`] while it waits for none.
    decision: Time,
    /// Packets that had arrived when the queue was last reset.
    before_reset: u64,
    /// Everything before this time is decided.
    decided_until: Time,
    /// The latest time seen.
    latest: Time,
    sequence: u64,
    counters: RxCounters,
    pub(crate) recorder: FlightRecorder,
}

impl<S: Selection> Pipeline<S> {
    /// A queue with nothing in it.
    pub fn new(config: &PipelineConfig) -> Self {
        let coalescing = config.coalescing.clamped();
        let strategy = S::new(coalescing);
        Self {
            coalescing,
            strategy,
            delay: Delay::of(&strategy, coalescing, false),
            dma: DmaEngines::new(config.dma),
            pending: PendingRing::new(),
            waiting: 0,
            count_limit: settings::count_limit(coalescing),
            unannounced_since: None,
            deadline: Time::MAX,
            due: None,
            rung: Time::MAX,
            watchdog: Watchdog::default(),
            decision: Time::MAX,
            before_reset: 0,
            decided_until: Time::ZERO,
            latest: Time::ZERO,
            sequence: 0,
            counters: RxCounters::default(),
            recorder: FlightRecorder::default(),
        }
    }

    /// A packet arrived for this queue: creates its descriptor (with the mark) and submits its DMA.
    ///
    /// # Errors
    /// [`PipelineFull`] if [`PENDING_MAX`] packets are pending.
    #[inline]
    pub fn arrive(&mut self, now: Time, packet: PacketInfo) -> Result<(), PipelineFull> {
        let counts = self.counters.strategy_mut(self.coalescing.strategy);
        if self.pending.is_full() {
            counts.refused_full += 1;
            return Err(PipelineFull);
        }
        counts.packets += 1;
        counts.bytes += u64::from(packet.len);
        counts.marked += u64::from(packet.marked);
        let arrived = now.max(self.latest);
        self.latest = arrived;
        let completes_at = if self.dma.is_zero() {
            AT_POLL
        } else {
            self.pending.note_timed();
            self.dma.submit(arrived, packet.len)
        };
        self.pending.push(Slot {
            arrived,
            completes_at,
            packet,
        });
        if self.recorder.is_on() {
            self.record_arrival(arrived, packet);
        }
        if self.unannounced_since.is_none() {
            self.first_unannounced(arrived);
        }
        Ok(())
    }

    /// Packets arrived together: as [`arrive`](Self::arrive) for each of them in turn, at less cost.
    ///
    /// # Errors
    /// [`PipelineFull`] if there was not room for all; those that found none are counted as refused.
    #[inline]
    pub fn arrive_together(
        &mut self,
        now: Time,
        packets: impl ExactSizeIterator<Item = PacketInfo>,
    ) -> Result<(), PipelineFull> {
        let count = packets.len();
        if count == 0 || !self.dma.is_zero() || self.pending.len() + count > PENDING_MAX {
            let mut all = Ok(());
            for packet in packets {
                all = all.and(self.arrive(now, packet));
            }
            return all;
        }
        let arrived = now.max(self.latest);
        self.latest = arrived;
        let added = self.pending.extend(arrived, packets);
        self.recorder
            .note(arrived, RecordKind::Arrive, count as u32, added.bytes);
        if added.marked != 0 {
            self.recorder.note(arrived, RecordKind::Mark, added.marked as u32, 0);
        }
        let counts = self.counters.strategy_mut(self.coalescing.strategy);
        counts.packets += count as u64;
        counts.bytes += added.bytes;
        counts.marked += added.marked;
        if self.unannounced_since.is_none() {
            self.first_unannounced(arrived);
        }
        Ok(())
    }

    /// What is to be done by `now`; to be called until it says `None`.
    ///
    /// Completions up to the first interrupt are merged into one event. After a late call everything is decided as it
    /// would have been in time, in order of time ([`Interrupt::decided_at`] tells when); only packets without a modelled
    /// DMA time complete at `now`.
    #[inline]
    pub fn poll(&mut self, now: Time) -> Option<Event> {
        let now = now.max(self.latest);
        self.latest = now;
        if let Some(reason) = self.due {
            return Some(Event::Interrupt(self.raise(self.decided_until, reason)));
        }
        let mut count = 0;
        if !self.pending.may_be_timed() && now <= self.timeout().min(self.decision) {
            let interrupt;
            (count, interrupt) = self.complete_now(now);
            if interrupt.is_some() {
                return Some(Event::Completed { count, interrupt });
            }
        }
        loop {
            let timeout = self.timeout();
            let decision = self.decision.max(self.decided_until);
            if let Some(slot) = self.pending.front() {
                let at = if slot.completes_at == AT_POLL {
                    now
                } else {
                    slot.completes_at.max(self.decided_until)
                };
                if at <= now && at <= timeout && at <= decision {
                    count += 1;
                    if let Some(interrupt) = self.complete_at(at) {
                        return Some(Event::Completed {
                            count,
                            interrupt: Some(interrupt),
                        });
                    }
                    continue;
                }
            }
            let interrupt = if timeout <= now && timeout <= decision && self.waiting != 0 {
                let reason = if self.rung <= self.deadline {
                    Reason::Clock
                } else {
                    self.timeout_reason()
                };
                Some(self.raise(timeout, reason))
            } else if decision <= now && self.decision != Time::MAX {
                let interrupt = self.decide_watchdog(decision);
                if interrupt.is_none() {
                    continue;
                }
                interrupt
            } else {
                None
            };
            if let Some(interrupt) = interrupt {
                return Some(match count {
                    0 => Event::Interrupt(interrupt),
                    _ => Event::Completed {
                        count,
                        interrupt: Some(interrupt),
                    },
                });
            }
            self.decided_until = now;
            return match count {
                0 => self.expire_watchdog(now),
                _ => Some(Event::Completed { count, interrupt: None }),
            };
        }
    }

    /// When the time-out comes, or the ring of a clock. It means nothing while only unfinished DMAs wait; a late one
    /// follows the next completion.
    #[inline]
    fn timeout(&self) -> Time {
        match self.waiting {
            0 => Time::MAX,
            _ => self.deadline.min(self.rung).max(self.decided_until),
        }
    }

    /// A packet arrived while all before it were announced.
    // Once per interrupt: `arrive`, which is called for each packet, shall stay small enough to be inlined.
    #[inline(never)]
    fn first_unannounced(&mut self, arrived: Time) {
        self.unannounced_since = Some(arrived);
        self.watchdog.arrive(arrived);
        self.set_deadline();
    }

    /// All pending packets complete now, up to the first interrupt: the common case, without modelled DMA times and with
    /// nothing to be decided before. Gives their number, and the interrupt that was decided after the last.
    #[inline]
    fn complete_now(&mut self, now: Time) -> (u32, Option<Interrupt>) {
        let all = self.pending.len() as u32;
        if all == 0 {
            return (0, None);
        }
        let mut together = false;
        let unheard = match self.strategy.attention() {
            Attention::EveryPacket => false,
            Attention::MarkedPackets => self.pending.marked() == 0,
            Attention::MarkedTogether => {
                together = self.pending.marked() != 0;
                true
            }
            Attention::NoPacket => true,
        };
        if unheard && self.waiting.saturating_add(all) < self.count_limit {
            // In one step: neither the strategy nor the count limit has anything to say, or the strategy says it of all at once.
            self.decided_until = now;
            self.waiting += all;
            self.recorder.note(now, RecordKind::DmaEnd, all, 0);
            let interrupt = if together { self.complete_together(now) } else { None };
            self.pending.clear();
            return (all, interrupt);
        }
        let mut count = 0;
        while count < all {
            count += 1;
            let interrupt = self.complete(now);
            if interrupt.is_some() {
                return (count, interrupt);
            }
        }
        (count, None)
    }

    /// All pending packets complete, and the strategy hears of them as a whole.
    #[inline(never)]
    fn complete_together(&mut self, at: Time) -> Option<Interrupt> {
        let last = self.pending.back()?.packet;
        let marked = self.pending.marked();
        self.pending.clear();
        let (put_off, action) = self.strategy.completed_together(Together { at, marked, last });
        self.counters.strategy_mut(self.coalescing.strategy).deferred += u64::from(put_off);
        if put_off != 0 {
            self.recorder.note(at, RecordKind::Defer, put_off, 0);
        }
        match action {
            Action::Raise(reason) => Some(self.raise(at, reason)),
            Action::Wait | Action::Defer => None,
        }
    }

    // Once more, so that the common case has it inlined.
    #[inline(never)]
    fn complete_at(&mut self, at: Time) -> Option<Interrupt> {
        self.complete(at)
    }

    /// The oldest pending packet's DMA completes.
    #[inline(always)]
    fn complete(&mut self, at: Time) -> Option<Interrupt> {
        let packet = self.pending.pop()?.packet;
        self.decided_until = at;
        self.waiting += 1;
        self.recorder.note(at, RecordKind::DmaEnd, 1, 0);
        // A packet that arrives later than this completion may already be in the ring if the driver polls late.
        let others_pending = self.pending.front().is_some_and(|next| next.arrived <= at);
        match self.strategy.completed(Completion {
            at,
            packet,
            others_pending,
        }) {
            Action::Raise(reason) => return Some(self.raise_often(at, reason)),
            Action::Defer => {
                self.counters.strategy_mut(self.coalescing.strategy).deferred += 1;
                self.recorder.note(at, RecordKind::Defer, 1, 0);
            }
            Action::Wait => {}
        }
        (self.waiting >= self.count_limit).then(|| self.raise(at, Reason::Count))
    }

    #[inline(never)]
    fn raise(&mut self, at: Time, reason: Reason) -> Interrupt {
        self.raise_often(at, reason)
    }

    // In line where a strategy may want an interrupt for each packet.
    #[inline(always)]
    fn raise_often(&mut self, at: Time, reason: Reason) -> Interrupt {
        self.sequence += 1;
        let interrupt = Interrupt {
            reason,
            packets: self.waiting,
            sequence: self.sequence,
            decided_at: at,
        };
        self.decided_until = at;
        self.waiting = 0;
        self.due = None;
        if self.rung <= at {
            self.rung = Time::MAX;
        }
        self.strategy.announced();
        self.counters.record(self.coalescing.strategy, &interrupt);
        self.restart_timer();
        self.recorder.note_raise(self.coalescing.strategy, &interrupt);
        interrupt
    }

    /// What the flight recorder is told of a packet that arrived alone.
    #[cold]
    #[inline(never)]
    fn record_arrival(&mut self, arrived: Time, packet: PacketInfo) {
        self.recorder.note(arrived, RecordKind::Arrive, 1, packet.len.into());
        if packet.marked {
            self.recorder.note(arrived, RecordKind::Mark, 1, 0);
        }
        if !self.dma.is_zero() {
            self.recorder.note(self.dma.last_started(), RecordKind::DmaStart, 1, 0);
        }
    }

    /// Counts the time-out from the oldest pending packet: to be used when nothing waits.
    #[inline]
    fn restart_timer(&mut self) {
        self.unannounced_since = self.pending.front().map(|slot| slot.arrived);
        self.set_deadline();
    }

    /// The strategy says how long the oldest unannounced packet may wait, the settings how long at most.
    #[inline]
    fn set_deadline(&mut self) {
        self.deadline = match (self.unannounced_since, self.delay) {
            (None, _) => Time::MAX,
            (Some(since), Delay::Fixed(delay_ns)) => since.plus_nanos(delay_ns),
            (Some(since), Delay::Chosen) => since.plus_nanos(self.chosen_delay_ns(since)),
        };
    }

    // Out of line, since most strategies leave the delay alone.
    #[inline(never)]
    fn chosen_delay_ns(&mut self, since: Time) -> u64 {
        let oldest = Oldest {
            arrived: since,
            announced: self.counters.strategy(self.coalescing.strategy).announced,
            longest_ns: self.coalescing.delay_ns,
        };
        self.strategy.delay_ns(oldest).min(oldest.longest_ns)
    }

    /// Whether it is the time-out of the settings that is over, or an earlier one that the strategy chose.
    fn timeout_reason(&self) -> Reason {
        match self.unannounced_since {
            Some(since) if self.deadline < since.plus_nanos(self.coalescing.delay_ns) => Reason::Adaptive,
            _ => Reason::Timeout,
        }
    }

    /// When [`RxPipeline::poll`] will next have something to say; `None` = not before another call of `arrive`.
    pub fn next_event(&self) -> Option<Time> {
        let next = self.next_at();
        (next != Time::MAX).then_some(next)
    }

    /// When there is something to do next, as [`next_event`](Self::next_event) says; [`Time::MAX`] for never.
    #[inline]
    pub(crate) fn next_at(&self) -> Time {
        if self.due.is_some() {
            return self.decided_until;
        }
        let completion = match self.pending.front() {
            None => Time::MAX,
            Some(slot) if slot.completes_at == AT_POLL => self.latest,
            Some(slot) => slot.completes_at.max(self.decided_until),
        };
        let watchdog = match self.watchdog.next_event() {
            None => Time::MAX,
            Some(at) => at.max(self.decided_until),
        };
        completion.min(self.timeout()).min(watchdog)
    }
}
