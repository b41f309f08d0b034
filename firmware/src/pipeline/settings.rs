//! The settings of a receive pipeline, changed while it runs, and what it can be asked: counters, what is pending, what waits.

use ether::Time;

use super::Pipeline;
use crate::{
    AdaptiveState, Coalescing, DmaModel, Interrupt, PacketInfo, Reason, RxCounters, StrategyKind,
    coalescing::Selection, recorder::RecordKind,
};

/// How long the oldest unannounced packet may wait, as far as it can be known before it arrives.
#[derive(Clone, Copy, Debug)]
pub(super) enum Delay {
    /// So many nanoseconds; `u64::MAX` without a time-out.
    Fixed(u64),
    /// The strategy is asked.
    Chosen,
}

impl Delay {
    pub(super) fn of(strategy: &impl Selection, coalescing: Coalescing, is_watched: bool) -> Self {
        if is_watched {
            // The watchdog is in place of the time-out.
            Self::Fixed(u64::MAX)
        } else if strategy.adaptive(0).is_some() {
            Self::Chosen
        } else {
            Self::Fixed(coalescing.delay_ns)
        }
    }
}

impl<S: Selection> Pipeline<S> {
    /// Changes the settings while packets may be pending or waiting; values beyond their limits are brought to the limit.
    ///
    /// Completions from now on are decided by the new settings, marks as they were read at arrival. Packets that already
    /// wait keep a time-out, the new delay from the arrival of the oldest; they are announced by the next `poll` if that
    /// is over, if there are as many as the new count limit (`count`), if coalescing is now off (`every-packet`), or if
    /// the strategy that leaves was putting off their interrupt (`deferred`). To have what is due decided by the old
    /// settings, `poll` before.
    pub fn set_coalescing(&mut self, now: Time, coalescing: Coalescing) {
        self.latest = self.latest.max(now);
        self.decided_until = self.latest;
        self.coalescing = coalescing.clamped();
        self.count_limit = count_limit(self.coalescing);
        let deciding = self.deciding();
        let was_deferring = self.strategy.is_deferring();
        let changed = !self.strategy.serves(deciding);
        if changed {
            self.strategy = S::new(deciding);
        }
        self.delay = Delay::of(&self.strategy, self.coalescing, self.watchdog.is_on());
        self.set_deadline();
        if self.waiting != 0 {
            if changed && was_deferring {
                self.due = Some(Reason::Deferred);
            } else if deciding.effective_strategy() == StrategyKind::Disabled {
                self.due = Some(Reason::EveryPacket);
            } else if self.waiting >= self.count_limit {
                self.due = Some(Reason::Count);
            }
        }
    }

    /// The settings in use.
    #[inline]
    pub fn coalescing(&self) -> Coalescing {
        self.coalescing
    }

    /// What adaptive moderation measured and chose since it was selected; `None` under any other strategy.
    pub fn adaptive(&self) -> Option<AdaptiveState> {
        self.strategy.adaptive(self.coalescing.delay_ns)
    }

    /// Changes the DMA model for packets that arrive from now on; those in flight keep their times. Values beyond their
    /// limits are brought to the limit.
    pub fn set_dma(&mut self, model: DmaModel) {
        self.dma.set_model(model);
    }

    /// The DMA model in use.
    pub fn dma(&self) -> DmaModel {
        self.dma.model()
    }

    /// Reads a packet's descriptor out of its frame with this queue's setting for marks; see [`PacketInfo::classify`].
    #[inline]
    pub fn classify(&self, header: &[u8], frame_len: u32) -> PacketInfo {
        PacketInfo::classify(header, frame_len, self.coalescing.marks)
    }

    /// An interrupt for a ring that may have been left without one: the driver of the firmware started anew.
    ///
    /// Announces what waits, if anything does.
    pub fn restart(&mut self, now: Time) -> Interrupt {
        self.latest = self.latest.max(now);
        self.raise(self.latest, Reason::Restart)
    }

    /// Forgets all packets, pending and waiting: the guest's driver stopped the ring. Settings and counters stay.
    pub fn reset(&mut self) {
        let forgotten = self.pending.len() as u64 + u64::from(self.waiting);
        self.counters.strategy_mut(self.coalescing.strategy).discarded += forgotten;
        self.pending.clear();
        self.waiting = 0;
        self.due = None;
        self.rung = Time::MAX;
        self.decision = Time::MAX;
        self.before_reset = self.counters.total().packets;
        self.watchdog.reset();
        self.strategy.announced();
        self.restart_timer();
    }

    /// A decided interrupt was signalled to the guest.
    #[inline]
    pub fn note_signalled(&mut self) {
        self.counters.strategy_mut(self.coalescing.strategy).signalled += 1;
        self.recorder.note(self.latest, RecordKind::Signal, 1, 0);
    }

    /// A decided interrupt was not signalled because the guest's driver did not want it.
    #[inline]
    pub fn note_suppressed(&mut self) {
        self.counters.strategy_mut(self.coalescing.strategy).suppressed += 1;
        self.recorder.note(self.latest, RecordKind::Suppress, 1, 0);
    }

    /// What was counted since the queue was made.
    #[inline]
    pub fn counters(&self) -> &RxCounters {
        &self.counters
    }

    /// Packets in flight to host memory.
    #[inline]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Packets in host memory that no interrupt announced yet.
    #[inline]
    pub fn waiting(&self) -> u32 {
        self.waiting
    }
}

pub(super) fn count_limit(coalescing: Coalescing) -> u32 {
    if coalescing.frames_max == 0 {
        u32::MAX
    } else {
        coalescing.frames_max
    }
}
