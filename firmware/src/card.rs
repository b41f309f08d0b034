//! One card, the composition of its mechanisms.
//!
//! Frames themselves stay with the driver: it asks what a frame means and tells the queue that it arrived. What a mechanism does
//! is in the file of that mechanism; this one says which mechanisms a card has, and how they are reached.

mod group_requests;
mod host_record_requests;
mod in_band_control;
mod timed;

use alloc::{boxed::Box, vec::Vec};
use core::fmt;

use ether::Time;

use crate::{
    Coalescing, CoalescingChange, CoalescingError, DmaModel, Misorder, PipelineConfig, RxCounters, RxPipeline,
    Steering,
    control::{
        CONTROL_REPLIES_BURST, CONTROL_REPLIES_PER_S, ControlCounters, GroupWishes, HostRecordRequest, RateLimit,
    },
    copy_engine::{CopyEngine, CopyEngineConfig},
    multicast::Multicast,
    recorder::{FlightRecorder, RECORDER_EVENTS_MIN, RecordKind},
    timers::Timers,
};

/// The greatest number of queue pairs of a card: one for each of as many processors as a guest of a lab plausibly has.
pub const QUEUE_PAIRS_MAX: u16 = 64;

/// What a card starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardConfig {
    /// Number of receive queues, brought to 1 … [`QUEUE_PAIRS_MAX`].
    pub queue_pairs: u16,
    /// Coalescing of every queue.
    pub coalescing: Coalescing,
    /// The DMA model of every queue.
    pub dma: DmaModel,
    /// The shortest delay of a timer, and of the watchdog of a card with one queue, in nanoseconds; at least 1. What the
    /// driver of the firmware can serve at this rate without end: a guest chooses the delays, and its neighbours pay for
    /// them.
    pub timer_ns_min: u64,
}

impl Default for CardConfig {
    fn default() -> Self {
        Self {
            queue_pairs: 1,
            coalescing: Coalescing::DEFAULT,
            dma: DmaModel::ZERO,
            timer_ns_min: 1,
        }
    }
}

/// The card has no queue of this number; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownQueue;

impl fmt::Display for UnknownQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the card has no such queue")
    }
}

impl core::error::Error for UnknownQueue {}

/// A programmable card.
///
/// Each mechanism is a machine in a file or folder of its own, testable alone, in one field here and reached by one method; none knows
/// another. All of them are driven alike: *events* are calls with the time, *actions* come out of `poll` until it says `None`, and
/// [`Card::next_event`] is when the driver should poll again.
///
/// | machine | events in | actions out |
/// |---|---|---|
/// | [`rx`](Self::rx), the receive pipeline of a queue, with its strategy and its watchdog | `arrive`, `host_state`, `ring`, `restart`, `reset` | [`Event`](crate::Event): publish, signal, fetch the host's state |
/// | [`steering_mut`](Self::steering_mut) | `queue`: which queue does this frame go to? | the answer |
/// | [`misorder_mut`](Self::misorder_mut) | `sent`: a frame of the guest's | the byte to change |
/// | [`timers_mut`](Self::timers_mut), clock interrupts among them | `arm`, `disarm`, `clock_state` | [`TimerEvent`](crate::timers::TimerEvent) |
/// | [`multicast_mut`](Self::multicast_mut) | `send`, `receive`, `set_group`, `remove_group` | [`Accepted`](crate::multicast::Accepted) frames to forward, [`Action`](crate::multicast::Action) |
/// | [`copy_engine_mut`](Self::copy_engine_mut), of a self-connected card | `submit`, `fail`, `reset` | [`CopyAction`](crate::copy_engine::CopyAction) |
/// | [`handle_control`](Self::handle_control), what the guest asks of all of these | a control frame | the reply |
#[derive(Clone, Debug)]
pub struct Card {
    rx: Box<[RxPipeline]>,
    steering: Steering,
    misorder: Misorder,
    timers: Timers,
    multicast: Multicast,
    group_wishes: GroupWishes,
    /// What the guest wants its card to read, until the driver takes it.
    host_record_wish: Option<HostRecordRequest>,
    rate_limit: RateLimit<CONTROL_REPLIES_PER_S, CONTROL_REPLIES_BURST>,
    control_counters: ControlCounters,
    /// Only on a card whose output is wired to its input.
    copy_engine: Option<CopyEngine>,
    /// Events of the card that are no queue's.
    recorder: FlightRecorder,
}

impl Card {
    /// A card with idle queues.
    pub fn new(config: CardConfig) -> Self {
        let pipeline = PipelineConfig {
            coalescing: config.coalescing,
            dma: config.dma,
        };
        let queue_pairs = config.queue_pairs.clamp(1, QUEUE_PAIRS_MAX);
        Self {
            rx: (0..queue_pairs)
                .map(|_| RxPipeline::new(&pipeline))
                .collect::<Vec<_>>()
                .into_boxed_slice(),
            steering: Steering::new(queue_pairs),
            misorder: Misorder::new(),
            timers: Timers::new(config.timer_ns_min),
            multicast: Multicast::default(),
            group_wishes: GroupWishes::new(),
            host_record_wish: None,
            rate_limit: RateLimit::new(),
            control_counters: ControlCounters::default(),
            copy_engine: None,
            recorder: FlightRecorder::default(),
        }
    }

    /// Switches the flight recorder on, with room for about `events` events of the whole card; one that is on begins anew.
    /// Allocates its rings, one per queue and one for the card.
    pub fn start_recorder(&mut self, events: usize) {
        let each = (events / (self.rx.len() + 1)).max(RECORDER_EVENTS_MIN);
        self.recorder.start(0, each);
        (0..)
            .zip(&mut self.rx)
            .for_each(|(queue, rx)| rx.recorder.start(queue, each));
    }

    /// Switches the flight recorder off and forgets what it holds.
    pub fn stop_recorder(&mut self) {
        self.recorder.stop();
        self.rx.iter_mut().for_each(|rx| rx.recorder.stop());
    }

    /// True while the flight recorder is on.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.recorder.is_on()
    }

    /// Takes what the flight recorder holds: appends the bytes of its records to `out`, queue by queue, each in its order. To
    /// be called more often than the rings are full, or events are overwritten (which [`RecordKind::Lost`] says).
    pub fn drain_recorder(&mut self, out: &mut Vec<u8>) {
        self.recorder.drain_to(out);
        self.rx.iter_mut().for_each(|rx| rx.recorder.drain_to(out));
    }

    /// For the flight recorder: the card sent `frames` of its guest on, `bytes` in all.
    #[inline]
    pub fn note_forwarded(&mut self, now: Time, frames: u32, bytes: u64) {
        self.recorder.note(now, RecordKind::Forward, frames, bytes);
    }

    /// For the flight recorder: a frame was dropped, for a reason that has this `code` with the driver.
    #[inline]
    pub fn note_dropped(&mut self, now: Time, code: u8) {
        if self.recorder.is_on() {
            self.recorder.note_drop(now, code);
        }
    }

    /// Wires the card's output to its input: from now on it is a copy engine (M-CI1), and idle.
    pub fn connect_to_itself(&mut self, config: CopyEngineConfig) {
        self.copy_engine = Some(CopyEngine::new(config));
    }

    /// The copy engine of a self-connected card.
    pub fn copy_engine(&self) -> Option<&CopyEngine> {
        self.copy_engine.as_ref()
    }

    /// The copy engine of a self-connected card, to submit to and to poll.
    pub fn copy_engine_mut(&mut self) -> Option<&mut CopyEngine> {
        self.copy_engine.as_mut()
    }

    /// Number of receive queues.
    pub fn queue_pairs(&self) -> u16 {
        self.rx.len() as u16
    }

    /// The pipeline of a receive queue.
    ///
    /// # Panics
    /// If there is no such queue; see [`Card::queue_pairs`].
    #[inline]
    pub fn rx(&mut self, queue: u16) -> &mut RxPipeline {
        &mut self.rx[usize::from(queue)]
    }

    /// All receive queues, in order.
    pub fn queues(&self) -> &[RxPipeline] {
        &self.rx
    }

    /// Which receive queue a frame goes to (M-GF9).
    pub fn steering(&self) -> &Steering {
        &self.steering
    }

    /// The steering, to be asked about a frame or changed.
    #[inline]
    pub fn steering_mut(&mut self) -> &mut Steering {
        &mut self.steering
    }

    /// The misordering injector of what the guest sends (M-GF6).
    #[inline]
    pub fn misorder(&self) -> &Misorder {
        &self.misorder
    }

    /// The injector, to be shown a frame or changed.
    #[inline]
    pub fn misorder_mut(&mut self) -> &mut Misorder {
        &mut self.misorder
    }

    /// Settings of a queue.
    ///
    /// # Errors
    /// [`UnknownQueue`].
    pub fn coalescing(&self, queue: u16) -> Result<Coalescing, UnknownQueue> {
        self.rx
            .get(usize::from(queue))
            .map(RxPipeline::coalescing)
            .ok_or(UnknownQueue)
    }

    /// Changes the settings of one queue, or of all (`None`), while traffic runs; see [`RxPipeline::set_coalescing`].
    /// The queues concerned should then be polled.
    ///
    /// # Errors
    /// [`UnknownQueue`]; values beyond their limits are brought to the limit.
    pub fn set_coalescing(
        &mut self,
        now: Time,
        queue: Option<u16>,
        coalescing: Coalescing,
    ) -> Result<(), UnknownQueue> {
        self.selected(queue)?
            .iter_mut()
            .for_each(|rx| rx.set_coalescing(now, coalescing));
        Ok(())
    }

    /// Changes some settings of one queue, or of all (`None`), while traffic runs. Nothing is changed unless the result
    /// is within the limits for every queue concerned. The queues concerned should then be polled.
    ///
    /// # Errors
    /// A missing queue or a value out of range.
    pub fn change_coalescing(
        &mut self,
        now: Time,
        queue: Option<u16>,
        change: CoalescingChange,
    ) -> Result<(), ChangeError> {
        let changed = |rx: &RxPipeline| {
            let mut coalescing = rx.coalescing();
            change.apply_to(&mut coalescing);
            coalescing
        };
        let queues = self.selected(queue)?;
        for rx in queues.iter() {
            changed(rx).validated()?;
        }
        queues.iter_mut().for_each(|rx| rx.set_coalescing(now, changed(rx)));
        Ok(())
    }

    /// Changes the DMA model of all queues for packets that arrive from now on.
    pub fn set_dma(&mut self, model: DmaModel) {
        self.rx.iter_mut().for_each(|rx| rx.set_dma(model));
    }

    /// Counters of one queue, or the sum of all (`None`).
    ///
    /// # Errors
    /// [`UnknownQueue`].
    pub fn counters(&self, queue: Option<u16>) -> Result<RxCounters, UnknownQueue> {
        match queue {
            Some(queue) => self
                .rx
                .get(usize::from(queue))
                .map(|rx| *rx.counters())
                .ok_or(UnknownQueue),
            None => {
                let mut sum = RxCounters::default();
                self.rx.iter().for_each(|rx| sum.add(rx.counters()));
                Ok(sum)
            }
        }
    }

    /// The multicast of the card (`papers.md` M-BV5).
    #[inline]
    pub fn multicast(&self) -> &Multicast {
        &self.multicast
    }

    /// The multicast of the card, to hand it frames and to poll it.
    #[inline]
    pub fn multicast_mut(&mut self) -> &mut Multicast {
        &mut self.multicast
    }

    /// When one of the queues, the copy engine, the multicast or the timers next has something to do.
    pub fn next_event(&self) -> Option<Time> {
        let next = self.next_at();
        (next != Time::MAX).then_some(next)
    }

    /// Whether [`next_event`](Self::next_event) has come.
    // Asked in every round for every card.
    #[inline(always)]
    pub fn is_due(&self, now: Time) -> bool {
        self.next_at() <= now
    }

    /// The least of times, of which "never" is one, costs a few instructions each.
    #[inline(always)]
    fn next_at(&self) -> Time {
        let copies = self.copy_engine.as_ref().and_then(CopyEngine::next_event);
        let mut next = self.multicast.next_at();
        for at in [copies, self.timers.next_event()] {
            next = next.min(at.unwrap_or(Time::MAX));
        }
        for rx in &self.rx {
            next = next.min(rx.next_at());
        }
        next
    }

    fn selected(&mut self, queue: Option<u16>) -> Result<&mut [RxPipeline], UnknownQueue> {
        match queue {
            None => Ok(&mut self.rx),
            Some(queue) => self
                .rx
                .get_mut(usize::from(queue))
                .map(core::slice::from_mut)
                .ok_or(UnknownQueue),
        }
    }
}

/// Settings could not be changed; all of them are as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// There is no such queue.
    Queue(UnknownQueue),
    /// A value is out of range.
    Value(CoalescingError),
    /// The watchdog's delay is neither 0 nor within what this card allows.
    WatchdogDelay {
        /// The shortest delay, see [`Card::watchdog_ns_min`].
        ns_min: u64,
    },
}

impl From<UnknownQueue> for ChangeError {
    fn from(error: UnknownQueue) -> Self {
        Self::Queue(error)
    }
}

impl From<CoalescingError> for ChangeError {
    fn from(error: CoalescingError) -> Self {
        Self::Value(error)
    }
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(error) => error.fmt(f),
            Self::Value(error) => error.fmt(f),
            Self::WatchdogDelay { ns_min } => write!(
                f,
                "the watchdog's delay must be 0 (off), or {} us to 1 s on this card",
                ns_min.div_ceil(1000)
            ),
        }
    }
}

impl core::error::Error for ChangeError {}
