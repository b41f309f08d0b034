//! One step of an endpoint: frames are received, timers run, events are taken, frames are sent. Any thread that has the
//! endpoint's lock may make it.

use ether::Time;

use super::Core;
use crate::{backoff::Backoff, clock, local::Local};

/// This many frames are handled before what they cause is sent.
const FRAMES_PER_STEP: usize = 32;

/// This many polls of an empty port come between two reads of the clock: about a microsecond, and timers are no finer.
const IDLE_POLLS: u32 = 16;
/// This many polls of an empty port come between two reads of the clock by a thread that spins, whose polls are shorter.
const SPIN_POLLS: u32 = 48;

/// Whether an endpoint makes progress, and how often it polls its port.
#[derive(Debug)]
pub(super) struct Progress {
    /// The polls of an empty port since the clock was last read.
    idle_polls: u32,
    /// Pauses of a thread that takes one message after the other.
    backoff: Backoff,
    /// How often progress was switched off, by the program or while its handler runs.
    stopped: u32,
    /// The program switched progress off; it may do so several times.
    stopped_by_program: bool,
}

impl Progress {
    pub(super) const fn new() -> Self {
        Self {
            idle_polls: 0,
            backoff: Backoff::new(),
            stopped: 0,
            stopped_by_program: false,
        }
    }

    /// Notes that the program sends.
    #[inline]
    pub(super) const fn sent(&mut self) {
        self.backoff.sent();
    }
}

impl Core {
    /// Takes frames, does what is due, and sends. Returns whether there was anything to do. Without a time, the clock
    /// is read only when a frame is there, and now and then.
    pub(crate) fn step(&mut self, now: Option<Time>) -> bool {
        self.step_as(now, now.is_some())
    }

    /// Like [`Core::step`], with the clock already read; optimised for the case that no frame is waiting.
    pub(crate) fn glance(&mut self, now: Time) -> bool {
        self.step_as(Some(now), false)
    }

    /// Polls once for a program that takes what is complete. When something is, and no frame is to be sent, the remaining
    /// part of a step waits, since it would only delay the program.
    #[inline]
    pub(crate) fn poll(&mut self) {
        if self.is_stopped() || self.closed || self.progress.idle_polls >= IDLE_POLLS {
            self.step(None);
            return;
        }
        let before = self.completions();
        let busy = self.local.as_mut().is_some_and(|local| local.step(&mut self.store));
        let mut now = None;
        let has_completed = self.completions() != before;
        if !has_completed {
            let frames = self.receive_frames(&mut now);
            let has_completed = self.completions() != before;
            let is_idle = !busy && frames == 0 && self.engine.is_settled() && !self.has_work(None);
            let may_wait = has_completed && self.engine.is_quiet() && self.egress.batching().is_empty();
            if !is_idle && !may_wait {
                self.step(now);
                return;
            }
        }
        self.progress.idle_polls += 1;
    }

    /// Whether a receive may be posted without progress: no message is there for it, and nothing is to be done. Counts as
    /// a poll, so that some of the receives of a program that does nothing else make progress.
    #[inline]
    pub(crate) fn may_receive_later(&mut self) -> bool {
        let may = !self.closed
            && self.progress.idle_polls < IDLE_POLLS
            && self.store.table.unexpected.is_empty()
            && self.engine.poll_timeout().is_none()
            && self.engine.is_settled()
            && self.connecting.due().is_none()
            && !self.has_work(None);
        self.progress.idle_polls += u32::from(may);
        may
    }

    #[inline(always)]
    fn step_as(&mut self, mut now: Option<Time>, mut thoroughly: bool) -> bool {
        if self.is_stopped() || self.closed {
            return false;
        }
        let mut busy = false;
        loop {
            if let Some(local) = &mut self.local {
                busy |= local.step(&mut self.store);
            }
            let frames = self.receive_frames(&mut now);
            if !thoroughly && frames == 0 && self.progress.idle_polls < IDLE_POLLS && !self.has_work(now) {
                self.progress.idle_polls += 1;
                return busy;
            }
            thoroughly = true;
            self.progress.idle_polls = 0;
            self.now = *now.get_or_insert_with(clock::now);
            if let Some(local) = &mut self.local
                && local.needs_poll(self.now)
            {
                local.poll(&mut self.store, self.now);
                busy |= local.step(&mut self.store);
                self.publish();
            }
            if self.engine.poll_timeout().is_some_and(|due| due <= self.now) {
                self.engine.handle_timeout(self.now);
            }
            if self.connecting.due().is_some_and(|due| due <= self.now) {
                self.connect_late();
            }
            busy |= self.flush(self.now) || frames > 0;
            if frames < FRAMES_PER_STEP && !self.has_looped() {
                return busy;
            }
            // Frames may come faster than they are handled, for long: answers to what was just sent would seem to have taken no
            // time, and nothing would become due.
            now = None;
        }
    }

    /// Whether something is to be sent, or is due at `now`.
    #[inline]
    fn has_work(&mut self, now: Option<Time>) -> bool {
        !self.egress.is_idle()
            || !self.engine.is_quiet()
            || self.store.copies.has_copied()
            || now.is_some_and(|now| {
                self.engine.poll_timeout().is_some_and(|due| due <= now)
                    || self.connecting.due().is_some_and(|due| due <= now)
                    || self.local.as_ref().is_some_and(|local| local.needs_poll(now))
            })
    }

    /// Polls once for a thread that spins, and returns whether there was anything. Frames get the time of the last
    /// clock read, which such a thread makes about every microsecond. When a message arrived and no frame is to be
    /// sent, the remaining part of a step waits, since it would only delay the message.
    #[inline]
    pub(crate) fn spin(&mut self) -> bool {
        if self.is_stopped() || self.closed || self.progress.idle_polls >= SPIN_POLLS {
            return self.step(None);
        }
        self.progress.idle_polls += 1;
        let before = self.completions();
        let busy = self.local.as_mut().is_some_and(|local| local.step(&mut self.store));
        let frames = self.receive_frames(&mut Some(self.now));
        if busy || frames > 0 {
            if self.completions() == before || !self.engine.is_quiet() || !self.egress.batching().is_empty() {
                self.step(Some(clock::now()));
            }
            return true;
        }
        // What the last frames acknowledged, now that nothing is there to be handed over, and receives that were copied.
        (!self.engine.is_settled() || self.store.copies.has_copied()) && self.step(Some(clock::now()))
    }

    /// Takes frames that are there, and returns how many. Without a time the clock is read when there is one.
    #[inline]
    fn receive_frames(&mut self, now: &mut Option<Time>) -> usize {
        let mut frames = 0;
        let before = self.completions();
        // Frames of this interface come first.
        let mut looped = if self.has_looped() { self.next_looped() } else { None };
        while frames < FRAMES_PER_STEP {
            let frame = match &looped {
                Some(frame) => frame.as_slice(),
                None => match self.egress.poll_receive() {
                    Some(frame) => frame,
                    None => break,
                },
            };
            self.now = *now.get_or_insert_with(clock::now);
            // The one place for both, so that the compiler keeps it in this loop.
            self.engine.handle(self.now, frame, &mut self.store);
            if self.store.copies.take_from_this_frame() {
                self.keep_frame(looped.is_none());
            }
            frames += 1;
            if looped.is_some() && frames < FRAMES_PER_STEP {
                looped = self.next_looped();
            }
        }
        self.progress.backoff.received(self.completions() - before);
        frames
    }

    /// Sends what is to be sent, then takes events: the wire comes first.
    pub(crate) fn flush(&mut self, now: Time) -> bool {
        let sent = self.egress.transmit(now, &mut self.engine, &self.store);
        if self.egress.loopback().is_some() {
            self.deliver_looped();
        }
        self.egress.transmitted(self.engine.awaits_bulk_data());
        self.events();
        if self.store.copies.is_awaited() {
            self.reclaim();
        }
        sent > 0
    }

    /// Whether progress is switched off, by the program or while its handler runs.
    #[inline]
    pub(crate) const fn is_stopped(&self) -> bool {
        self.progress.stopped > 0
    }

    /// Stops progress until [`Core::go_on`], which is to be called as often.
    pub(crate) const fn stop(&mut self) {
        self.progress.stopped += 1;
    }

    /// Lets progress be made again, unless it was stopped more than once.
    pub(crate) const fn go_on(&mut self) {
        self.progress.stopped -= 1;
    }

    /// Switches progress off for the program. What came before counts, and deferred sends go out.
    pub(crate) fn stop_by_program(&mut self) {
        if self.progress.stopped_by_program {
            return;
        }
        let before = self.completions();
        self.flush(clock::now());
        self.wake_if(before);
        self.progress.stopped_by_program = true;
        self.stop();
    }

    /// Switches progress on for the program.
    pub(crate) const fn go_on_by_program(&mut self) {
        if self.progress.stopped_by_program {
            self.progress.stopped_by_program = false;
            self.go_on();
        }
    }

    /// Whether a thread that polls is to pause first.
    #[inline]
    pub(crate) const fn takes_pause(&mut self) -> bool {
        self.progress.backoff.take()
    }

    /// Returns when something is due if nothing happens before.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let local = self.local.as_ref().and_then(Local::poll_timeout);
        let looped = self.has_looped().then_some(Time::ZERO);
        let times = self.engine.poll_timeout().into_iter();
        times.chain(local).chain(looped).chain(self.connecting.due()).min()
    }

    /// Before sleeping: whether there is something to do already. Only after this returned false do the port's
    /// descriptor and that of the other programs signal new work.
    pub(crate) fn is_ready(&mut self) -> bool {
        self.publish();
        if self.is_stopped() {
            return false;
        }
        if self.store.copies.is_awaited() && self.wait_for_copies() {
            return true;
        }
        if !self.engine.is_settled() || self.has_looped() {
            // A hurried poll left something to do.
            return true;
        }
        self.egress.has_frame() || self.local.as_mut().is_some_and(Local::sleep)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use ether::MacAddr;
    use mxoe::{engine::Counter, wire::Preset};
    use netif::memory_pair;

    use super::FRAMES_PER_STEP;
    use crate::{Address, Endpoint, EndpointOptions, clock};

    /// Opens two endpoints without helper threads, joined in memory, and returns the second one's address as the first
    /// knows it. At most `slots` frames are in flight.
    fn joined(slots: usize) -> (Endpoint, Endpoint, Address) {
        let macs = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
        let (port_a, port_b) = memory_pair(macs, 1500, slots).unwrap();
        let options = EndpointOptions {
            progress: false,
            ..EndpointOptions::default()
        };
        let a = Endpoint::open_on(&options, Box::new(port_a), Preset::Native1500).unwrap();
        let b = Endpoint::open_on(&options, Box::new(port_b), Preset::Native1500).unwrap();
        let connect = a.iconnect(macs[1], 0, options.key, 0, 0).unwrap();
        loop {
            b.progress();
            if let Some(status) = a.test(connect).unwrap() {
                return (a, b, status.address.unwrap());
            }
        }
    }

    /// Where frames come as fast as they are handled, one step takes long.
    #[test]
    fn time_goes_on_while_more_frames_are_there_than_are_handled_at_once() {
        let (a, b, to_b) = joined(4 * FRAMES_PER_STEP);
        // Of a few, some may be sent again meanwhile.
        for frames in [1, FRAMES_PER_STEP] {
            for _ in 0..frames {
                // SAFETY: what is posted lies in no memory.
                unsafe { a.isend(&[], to_b, 3, 0, false) }.unwrap();
                a.progress();
            }
            let mut core = b.lock();
            let begin = clock::now();
            while clock::now() == begin {}
            assert!(core.step(Some(begin)));
            assert_eq!(core.now > begin, frames == FRAMES_PER_STEP);
        }
    }

    /// Without the helper thread only the program itself sees to its timers.
    #[test]
    fn a_program_that_only_posts_sends_again_what_is_not_acknowledged_as_soon_as_that_is_due() {
        for posts_receives in [false, true] {
            let (a, _b, to_b) = joined(64);
            // SAFETY: what is posted lies in no memory.
            let send = || unsafe { a.isend(&[], to_b, 3, 0, false) }.unwrap();
            // SAFETY: as above.
            let receive = || unsafe { a.irecv(&[], 3, u64::MAX, 0) }.unwrap();
            send();
            let mut posts = 0;
            // What `b` received is not read.
            while a.counters().get(Counter::ResentMessages) == 0 {
                let due = a.lock().engine.poll_timeout().unwrap();
                while clock::now() < due {
                    thread::yield_now();
                }
                if posts_receives {
                    receive()
                } else {
                    send()
                };
                posts += 1;
                // The timer that comes first may be one that is no longer needed.
                assert!(posts <= 4, "{posts} posts, each after something was due");
            }
        }
    }
}
