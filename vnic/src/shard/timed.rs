//! What a card does by time of its own: the guest's timers ring, as frames from the card to the guest.
//!
//! When and whether they ring is the firmware's; the watchdog, which only interrupts, is served with the queues.

use ether::Time;
use firmware::CONTROL_FRAME_MAX;
use firmware::clock::ClockState;
use firmware::control::doorbell_frame;
use firmware::timers::{ArmedTimer, Expiry, TimerEvent};

use super::frame::FrameRef;
use super::{Inner, Port};
use crate::memory::Piece;
use crate::offload::NetHeader;

/// A timer of the port with this index.
pub(super) type PortTimer = (usize, ArmedTimer);

/// Timers as a configuration says them, due since 1970, on the clock of a shard whose time 0 is `origin_unix_ns`. What was due before that
/// is due then.
pub(super) fn timers_from(timers: &[ArmedTimer], origin_unix_ns: u64) -> Vec<ArmedTimer> {
    let origin = Time::from_nanos(origin_unix_ns);
    let since = |timer: &ArmedTimer| ArmedTimer {
        due: Time::from_nanos(timer.due.nanos_since(origin)),
        ..*timer
    };
    timers.iter().map(since).collect()
}

impl Port {
    /// The guest's first receive ring runs. If it is the guest that armed them, its timers go on.
    pub(super) fn resume_timers(&mut self, is_back: bool, now: Time) {
        let left = std::mem::take(&mut self.timers_left);
        if !is_back {
            return self.nic.timers_mut().forget(left.len());
        }
        for timer in left {
            if let Err(error) = self.nic.timers_mut().resume(now, &timer) {
                tracing::warn!(port = %self.settings.name, timer = timer.timer, %error, "a guest's timer is lost");
                self.nic.timers_mut().note_lost();
            }
        }
    }
}

impl Inner {
    /// Takes all timers from all cards: as they are told, and as they are put back. Those of guests that are paused are told, and
    /// stay where they wait for them.
    pub(super) fn take_timers(&mut self) -> (Vec<(String, ArmedTimer)>, Vec<PortTimer>) {
        let (mut told, mut taken) = (Vec::new(), Vec::new());
        for (index, port) in self.ports.iter_mut().enumerate() {
            let aside = port.nic.timers_mut().set_aside();
            for timer in aside.iter().chain(&port.timers_left) {
                let due = timer.due.plus_nanos(self.origin_unix_ns);
                told.push((port.settings.name.clone(), ArmedTimer { due, ..*timer }));
            }
            taken.extend(aside.into_iter().map(|timer| (index, timer)));
        }
        (told, taken)
    }

    /// Arms timers again that were taken.
    pub(super) fn put_timers_back(&mut self, timers: &[PortTimer], now: Time) {
        for (index, timer) in timers {
            let timers = self.ports[*index].nic.timers_mut();
            // Nobody could arm others meanwhile: nothing was taken from guests.
            if timers.resume(now, timer).is_err() {
                timers.note_lost();
            }
        }
    }

    /// Serves the timers of the card at `index` that are due.
    #[inline]
    pub(super) fn serve_timers(&mut self, index: usize, now: Time) {
        let due = self.ports[index].nic.timers().next_event();
        if due.is_some_and(|at| at <= now) {
            self.serve_due_timers(index, now);
        }
    }

    #[cold]
    fn serve_due_timers(&mut self, index: usize, now: Time) {
        while let Some(event) = self.ports[index].nic.timers_mut().poll(now) {
            match event {
                TimerEvent::FetchClockState { timer } => {
                    let port = &mut self.ports[index];
                    let rings = port.pairs.iter().filter_map(|pair| pair.rx.ring.as_ref());
                    let last_poll = port.last_poll.look(now, rings.map(|ring| ring.driver_words()));
                    let state = ClockState {
                        // A clock runs on the card only while the guest keeps it armed.
                        running_timers: 1,
                        last_poll,
                    };
                    port.nic.timers_mut().clock_state(now, timer, state, 0);
                }
                TimerEvent::Expired(expiry) => self.ring_doorbell(index, &expiry, now),
            }
        }
        self.announce_touched(now);
    }

    fn ring_doorbell(&mut self, index: usize, expiry: &Expiry, now: Time) {
        let mut frame = [0; CONTROL_FRAME_MAX];
        let len = doorbell_frame(expiry, &mut frame);
        let mut rest = [Piece::EMPTY];
        let whole = FrameRef::of_bytes(&frame[..len], &mut rest, NetHeader::default());
        let is_ready = self.ports[index].pairs[0].rx.is_ready();
        if is_ready && self.deliver_apart(index, 0, &whole, now).is_ok() {
            let port = &mut self.ports[index];
            port.nic.rx(0).ring(now);
            port.last_poll.note_doorbell();
        } else {
            self.ports[index].nic.timers_mut().note_lost();
        }
    }
}
