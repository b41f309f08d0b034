//! Blocking calls: check, then spin or sleep until a frame, a protocol timer, the time limit, a wakeup, or another
//! thread's progress.

use std::{os::fd::AsFd, sync::atomic::Ordering, time::Duration};

use ether::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{Endpoint, Waiting, clock, core::Core, shared::Locked};

/// The longest sleep. It bounds the arithmetic: after it everything is checked again.
const SLEEP_MAX: Duration = Duration::from_secs(3600);
/// A thread that sleeps without an event of its own checks this often; that happens when the process has no descriptors
/// left.
const POLL_INTERVAL_WITHOUT_EVENT: Duration = Duration::from_millis(1);

impl Endpoint {
    /// Makes progress until `find` finds something; `None` after `timeout`, a wakeup, or when the endpoint is closed.
    pub(crate) fn block<T>(&self, timeout: Option<Duration>, find: impl FnMut(&mut Core) -> Option<T>) -> Option<T> {
        self.block_since(self.wakeup_count(), timeout, find)
    }

    /// Blocks as [`Endpoint::block`] does, unless there were wakeups since there had been so many.
    pub(crate) fn block_since<T>(
        &self,
        wakeups: u64,
        timeout: Option<Duration>,
        mut find: impl FnMut(&mut Core) -> Option<T>,
    ) -> Option<T> {
        let shared = &*self.shared;
        let mut core = self.lock();
        // What is there already needs no progress, and no clock.
        if let Some(found) = find(&mut core) {
            return Some(found);
        }
        let _inside = self.enter();
        core.egress.batching_mut().end_burst();
        let timed = timeout.is_some() || matches!(shared.waiting, Waiting::SpinThenSleep(_));
        let begin = timed.then(clock::now);
        let after = |limit: Duration| begin.map(|begin| plus(begin, limit));
        let deadline = timeout.and_then(after);
        let spin_until = match shared.waiting {
            Waiting::Spin => Some(Time::from_nanos(u64::MAX)),
            Waiting::SpinThenSleep(limit) => after(limit),
            Waiting::Sleep => None,
        };
        // Not in the first round: the clock may have been read long ago.
        let mut spinning = false;
        let mut locked = Some((core, begin));
        loop {
            let (core, now) = locked.take().unwrap_or_else(|| (self.lock(), None));
            let before = core.completions();
            let now = now.or_else(|| (!spinning || core.is_stopped()).then(clock::now));
            let mut core = if now.is_some() {
                self.step(core, now, before)
            } else {
                self.spin(core)
            };
            // `Core::step` does not advance the time while progress is stopped.
            core.now = core.now.max(now.unwrap_or(core.now));
            if let Some(found) = find(&mut core) {
                return Some(found);
            }
            let closed = core.closed || shared.wakeups.load(Ordering::SeqCst) != wakeups;
            // While the thread spins, `core.now` is the time of the last clock read, a microsecond ago at most.
            if closed || deadline.is_some_and(|deadline| deadline <= core.now) {
                return None;
            }
            spinning = spin_until.is_some_and(|until| core.now < until);
            if spinning {
                drop(core);
                if shared.wanting.load(Ordering::Relaxed) > 0 {
                    std::thread::yield_now();
                }
                continue;
            }
            let now = clock::now();
            if core.is_ready() {
                continue;
            }
            let mut limit = deadline.map_or(SLEEP_MAX, |deadline| Duration::from_nanos(deadline.nanos_since(now)));
            if let Some(due) = core.poll_timeout()
                && !core.is_stopped()
            {
                limit = limit.min(Duration::from_nanos(due.nanos_since(now)));
            }
            if self.sleep(core, limit) {
                return None;
            }
        }
    }

    /// Sleeps until the endpoint has something to do, another thread wakes this one, or `limit` has passed. Returns
    /// whether a signal ended the sleep that is to end the call, too.
    fn sleep(&self, mut core: Locked<'_>, mut limit: Duration) -> bool {
        let shared = &*self.shared;
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, !core.is_stopped());
        events.set(PollFlags::OUT, core.egress.is_blocked() && !core.is_stopped());
        let place = core.sleepers.enter();
        drop(core);
        // Without an event the thread learns only by polling what other threads do.
        let event = place.as_ref().map(|place| &place.event);
        if event.is_none() {
            limit = limit.min(POLL_INTERVAL_WITHOUT_EVENT);
        }
        let event = event.map_or(shared.descriptors.port.as_fd(), AsFd::as_fd);
        let mut event_events = PollFlags::empty();
        event_events.set(PollFlags::IN, place.is_some());
        let nothing = (event, PollFlags::empty());
        let [others, bulk] = [&shared.descriptors.others, &shared.descriptors.bulk]
            .map(|fd| fd.as_ref().map_or(nothing, |fd| (fd.as_fd(), events & PollFlags::IN)));
        let mut fds = [
            (event, event_events),
            (shared.descriptors.port.as_fd(), events),
            others,
            bulk,
        ]
        .map(|(fd, events)| PollFd::from_borrowed_fd(fd, events));
        // A signal ends the sleep early: unless the program wants to know, that costs one needless check.
        let slept = poll(&mut fds, Timespec::try_from(limit.min(SLEEP_MAX)).ok().as_ref());
        let interrupted = shared.signals_end_waits && slept == Err(rustix::io::Errno::INTR);
        if (fds[1].revents() | fds[3].revents()).contains(PollFlags::ERR) {
            shared.take_port_error();
        }
        let has_bulk = !fds[3].revents().is_empty();
        let mut core = self.lock();
        if has_bulk {
            // If this thread did not ask for bulk data, another one may have, meanwhile.
            core.egress.expect_bulk();
        }
        core.sleepers.leave(place);
        drop(core);
        interrupted
    }
}

/// Returns the time `limit` after `begin`, or the last one there is.
fn plus(begin: Time, limit: Duration) -> Time {
    let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    Time::from_nanos(begin.as_nanos().saturating_add(limit_ns))
}
