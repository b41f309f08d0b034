//! Does a receive path keep its promises, whatever the strategy? The suite drives it in time, under random loads, and watches it from
//! outside.

use alloc::{format, vec::Vec};

use ether::Time;

use super::{Broken, Promise, load::Load, shrink::shrunk, timeline::Timeline};
use crate::{
    Coalescing, DmaModel, Event, Interrupt, PacketInfo, Pipeline, Reason, RxCounters, StrategyKind,
    coalescing::Selection,
};

/// Loads that a receive path is driven through.
const LOADS: u64 = 2_000;

/// What the suite drives: the pipeline, or something that behaves like one. See [`Pipeline`] for what each call does.
pub trait ReceivePath {
    /// A packet arrives; there is always room.
    fn arrive(&mut self, now: Time, packet: PacketInfo);
    /// Packets arrive together; there is room for all.
    fn arrive_together(&mut self, now: Time, packets: &[PacketInfo]) {
        packets.iter().for_each(|&packet| self.arrive(now, packet));
    }
    /// What is to be done by `now`; called until it says `None`.
    fn poll(&mut self, now: Time) -> Option<Event>;
    /// When `poll` will next have something to say.
    fn next_event(&self) -> Option<Time>;
    /// Changes the settings while traffic runs.
    fn set_coalescing(&mut self, now: Time, coalescing: Coalescing);
    /// Changes the DMA model for packets that arrive from now on.
    fn set_dma(&mut self, model: DmaModel);
    /// The driver of the firmware started anew.
    fn restart(&mut self, now: Time) -> Interrupt;
    /// The guest's driver stopped the ring.
    fn reset(&mut self);
    /// What was counted.
    fn counters(&self) -> &RxCounters;
}

impl<S: Selection> ReceivePath for Pipeline<S> {
    fn arrive(&mut self, now: Time, packet: PacketInfo) {
        // A full pipeline refuses and counts; the suite polls in time.
        _ = self.arrive(now, packet);
    }

    fn arrive_together(&mut self, now: Time, packets: &[PacketInfo]) {
        _ = self.arrive_together(now, packets.iter().copied());
    }

    fn poll(&mut self, now: Time) -> Option<Event> {
        self.poll(now)
    }

    fn next_event(&self) -> Option<Time> {
        self.next_event()
    }

    fn set_coalescing(&mut self, now: Time, coalescing: Coalescing) {
        self.set_coalescing(now, coalescing);
    }

    fn set_dma(&mut self, model: DmaModel) {
        self.set_dma(model);
    }

    fn restart(&mut self, now: Time) -> Interrupt {
        self.restart(now)
    }

    fn reset(&mut self) {
        self.reset();
    }

    fn counters(&self) -> &RxCounters {
        self.counters()
    }
}

/// Drives fresh receive paths, made by `make`, through random loads.
///
/// # Errors
/// The first promise that is broken, and how.
pub fn receive_path<P: ReceivePath>(make: impl Fn() -> P) -> Result<(), Broken> {
    receive_path_under(StrategyKind::ALL, make)
}

/// Runs the suite as [`receive_path`] does, with these strategies alone in the settings of the loads. Which promise is found broken first depends on them.
///
/// # Errors
/// Those of [`receive_path`].
///
/// # Panics
/// Without strategies.
pub fn receive_path_under<P: ReceivePath>(strategies: &[StrategyKind], make: impl Fn() -> P) -> Result<(), Broken> {
    (0..LOADS).try_for_each(|seed| {
        let load = Load::new(seed, strategies);
        run(make(), &load).map_err(|broken| shrunk(load, broken, |load| run(make(), load)))
    })
}

/// Drives a fresh receive path through a load.
pub(super) fn run<P: ReceivePath>(path: P, load: &Load) -> Result<(), Broken> {
    let mut watch = Watch::new(path);
    watch.begin(load);
    let ended = watch.run(load);
    ended.map_err(|broken| broken.shown(&watch.timeline))
}

/// What was decided under a load.
pub(super) struct Decisions {
    /// The interrupts: when, why, for how many packets.
    pub(super) interrupts: Vec<(Time, Reason, u32)>,
    /// How often one was put off.
    pub(super) deferred: u64,
}

/// Drives a receive path through a load, and says what else was watched.
pub(super) fn decisions<P: ReceivePath>(path: P, load: &Load) -> Result<(Decisions, Timeline), Broken> {
    let mut watch = Watch::new(path);
    watch.begin(load);
    watch.run(load)?;
    Ok((watch.decisions(0), watch.timeline))
}

/// Drives a receive path through a load and, after `quiet_ns` without packets, through another one; and a second path through
/// the latter alone, at equal times. Gives what both decided there, and what was seen of the first.
pub(super) fn after_a_pause<P: ReceivePath>(
    [path, fresh]: [P; 2],
    (first, then): (&Load, &Load),
    quiet_ns: u64,
) -> Result<([Decisions; 2], Timeline), Broken> {
    let mut watch = Watch::new(path);
    watch.begin(first);
    watch.run(first)?;
    watch.now = watch.now.plus_nanos(quiet_ns);
    watch.timeline.note(Some(watch.now), "a minute has passed");
    let mut other = Watch::new(fresh);
    other.now = watch.now;
    let (before, deferred) = (watch.interrupts.len(), watch.path.counters().total().deferred);
    watch.begin(then);
    watch.run(then)?;
    other.begin(then);
    other.run(then)?;
    let mut decided = watch.decisions(before);
    decided.deferred -= deferred;
    Ok(([decided, other.decisions(0)], watch.timeline))
}

/// What an onlooker knows of a packet.
struct Seen {
    arrived: Time,
    /// When its DMA completes, at the earliest.
    completes: Time,
    marked: bool,
    /// The longest delay that was configured while it waited.
    delay_ns: u64,
}

impl Seen {
    /// When it is announced at the latest.
    fn latest(&self) -> Time {
        self.completes.max(self.arrived.plus_nanos(self.delay_ns))
    }
}

pub(super) struct Watch<P> {
    path: P,
    settings: Coalescing,
    /// Settings changed since the last interrupt: an interrupt may be due for the change alone.
    changed: bool,
    changed_ever: bool,
    setup_ns: u64,
    now: Time,
    packets: Vec<Seen>,
    published: usize,
    announced: usize,
    interrupts: Vec<Interrupt>,
    pub(super) timeline: Timeline,
}

impl<P: ReceivePath> Watch<P> {
    pub(super) fn new(path: P) -> Self {
        Self {
            path,
            settings: Coalescing::DEFAULT,
            changed: false,
            changed_ever: false,
            setup_ns: 0,
            now: Time::ZERO,
            packets: Vec::new(),
            published: 0,
            announced: 0,
            interrupts: Vec::new(),
            timeline: Timeline::default(),
        }
    }

    /// The settings with which a load begins, while no packet is in flight.
    pub(super) fn begin(&mut self, load: &Load) {
        self.path.set_coalescing(self.now, load.coalescing);
        self.path.set_dma(load.dma);
        (self.settings, self.setup_ns) = (load.coalescing, load.dma.setup_ns);
        self.timeline.settings(None, load.coalescing);
        self.timeline.dma(load.dma);
    }

    /// The interrupts from number `first` on.
    pub(super) fn decisions(&self, first: usize) -> Decisions {
        let decided = |i: &Interrupt| (i.decided_at, i.reason, i.packets);
        Decisions {
            interrupts: self.interrupts[first..].iter().map(decided).collect(),
            deferred: self.path.counters().total().deferred,
        }
    }

    pub(super) fn run(&mut self, load: &Load) -> Result<(), Broken> {
        for batch in &load.batches {
            let at = self.now.plus_nanos(batch.after_ns);
            // What is due in the moment of the arrivals comes after them.
            self.pass(at, false)?;
            self.now = at;
            if let Some(settings) = batch.change {
                self.timeline.settings(Some(at), settings);
                self.path.set_coalescing(at, settings);
                (self.settings, self.changed, self.changed_ever) = (settings, true, true);
                let waiting = self.packets[self.announced..].iter_mut();
                waiting.for_each(|packet| packet.delay_ns = packet.delay_ns.max(settings.delay_ns));
            }
            for &packet in &batch.packets {
                self.timeline.arrives(at, self.packets.len() + 1, packet);
                self.path.arrive(at, packet);
                // One engine: a transfer begins when the one before has completed.
                let last = self.packets.last().map_or(Time::ZERO, |packet| packet.completes);
                self.packets.push(Seen {
                    arrived: at,
                    completes: at.max(last).plus_nanos(self.setup_ns),
                    marked: packet.marked,
                    delay_ns: self.settings.delay_ns,
                });
            }
            self.pass(at, true)?;
        }
        self.pass(self.now.plus_nanos(1_000_000), true)?;
        self.finish()
    }

    /// Polls whenever the path asks for it, until `end`, and then once more.
    fn pass(&mut self, end: Time, inclusive: bool) -> Result<(), Broken> {
        while let Some(at) = self.path.next_event() {
            if at > end || at == end && !inclusive {
                break;
            }
            self.now = self.now.max(at);
            if !self.poll()? {
                if self.is_overdue() {
                    return Err(self.broken(Promise::WithinTheTimeout, "no interrupt came"));
                }
                return Err(self.broken(Promise::NextEvent, "nothing was to be done"));
            }
        }
        if inclusive {
            self.now = end;
            if self.poll()? {
                return Err(self.broken(Promise::NextEvent, "next_event had not told it"));
            }
        }
        Ok(())
    }

    /// The oldest packet that completed should have been announced by now.
    fn is_overdue(&self) -> bool {
        let waiting = &self.packets[self.announced..self.published];
        waiting.first().is_some_and(|packet| packet.latest() <= self.now)
    }

    fn poll(&mut self) -> Result<bool, Broken> {
        let mut something = false;
        while let Some(event) = self.path.poll(self.now) {
            something = true;
            match event {
                Event::Completed { count, interrupt } => {
                    self.published(count)?;
                    interrupt.map_or(Ok(()), |interrupt| self.interrupted(interrupt))?;
                }
                Event::Interrupt(interrupt) => self.interrupted(interrupt)?,
                Event::FetchHostState => return Err(self.broken(Promise::NextEvent, "no watchdog was turned on")),
            }
        }
        let (waiting, limit) = (self.published - self.announced, self.settings.frames_max as usize);
        if limit != 0 && waiting >= limit && self.settings.delay_ns != 0 {
            return Err(self.broken(Promise::WithinTheCount, format!("{waiting} wait, the limit is {limit}")));
        }
        Ok(something)
    }

    fn published(&mut self, count: u32) -> Result<(), Broken> {
        self.timeline.completed(self.now, self.published + 1, count as usize);
        self.published += count as usize;
        let early = |packet: &Seen| packet.completes > self.now;
        if self.published > self.packets.len() || self.packets[..self.published].last().is_some_and(early) {
            return Err(self.broken(Promise::AfterTheDma, "it was published"));
        }
        Ok(())
    }

    fn interrupted(&mut self, interrupt: Interrupt) -> Result<(), Broken> {
        self.timeline.interrupt(&interrupt, self.announced + 1);
        let number = self.interrupts.len() as u64 + 1;
        if interrupt.sequence != number {
            return Err(self.broken(Promise::Numbered, format!("{} instead of {number}", interrupt.sequence)));
        }
        let (waiting, packets) = (self.published - self.announced, interrupt.packets as usize);
        if packets > waiting && self.announced + packets <= self.packets.len() {
            return Err(self.broken(Promise::AfterTheDma, format!("{packets} instead of {waiting}")));
        }
        if packets != waiting {
            let promise = match self.changed_ever && packets < waiting {
                true => Promise::SurvivesChanges,
                false => Promise::AnnouncesAllOnce,
            };
            return Err(self.broken(promise, format!("{packets} instead of {waiting} were announced")));
        }
        if packets == 0 {
            return Err(self.broken(Promise::NoIdleInterrupt, format!("the reason was {}", interrupt.reason)));
        }
        let announced = &self.packets[self.announced..self.published];
        for packet in announced {
            let latest = packet.latest();
            if interrupt.decided_at > latest {
                let late = interrupt.decided_at.nanos_since(latest);
                return Err(self.broken(Promise::WithinTheTimeout, format!("{late} ns longer")));
            }
        }
        if !self.reason_is_true(&interrupt, announced) {
            return Err(self.broken(Promise::TrueReason, format!("it was {}", interrupt.reason)));
        }
        self.announced = self.published;
        self.interrupts.push(interrupt);
        self.changed = false;
        Ok(())
    }

    fn reason_is_true(&self, interrupt: &Interrupt, announced: &[Seen]) -> bool {
        let any_marked = announced.iter().any(|packet| packet.marked);
        let oldest = announced[0].arrived;
        let over = interrupt.decided_at >= oldest.plus_nanos(self.settings.delay_ns);
        match interrupt.reason {
            Reason::Mark | Reason::Deferred => any_marked,
            Reason::Timeout => over,
            // A chosen delay may be over while the DMA takes longer; and a strategy may raise whenever it likes.
            Reason::Adaptive | Reason::Strategy => true,
            Reason::Count => self.settings.frames_max != 0 && interrupt.packets >= self.settings.frames_max,
            Reason::EveryPacket => interrupt.packets == 1 || self.changed,
            // No watchdog or clock was turned on, and nothing started anew.
            _ => false,
        }
    }

    fn finish(&mut self) -> Result<(), Broken> {
        let left = self.packets.len() - self.announced;
        if left > 0 {
            let promise = match self.changed_ever {
                true => Promise::SurvivesChanges,
                false => Promise::WithinTheTimeout,
            };
            return Err(self.broken(promise, format!("{left} were never announced")));
        }
        let total = self.path.counters().total();
        let decided = |reason| self.interrupts.iter().filter(|i| i.reason == reason).count() as u64;
        let reasons = Reason::ALL
            .iter()
            .all(|&reason| total.decided_for(reason) == decided(reason));
        let histogram: u64 = total.packets_per_interrupt.counts().iter().sum();
        let all = self.packets.len() as u64;
        if !reasons || histogram != self.interrupts.len() as u64 || (total.packets, total.announced) != (all, all) {
            return Err(self.broken(Promise::Counted, format!("{total:?}")));
        }
        Ok(())
    }

    fn broken(&self, promise: Promise, details: impl core::fmt::Display) -> Broken {
        let (announced, published, arrived) = (self.announced, self.published, self.packets.len());
        Broken::new(promise, details).during(format!(
            "at {} ns, {arrived} packets had arrived, {published} were published, {announced} announced",
            self.now.as_nanos()
        ))
    }
}
