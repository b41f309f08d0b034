//! What a card does by time of its own: the guest's timers ring, as frames from the card to the guest.
//!
//! When and whether they ring is the firmware's; the watchdog, which only interrupts, is served with the queues.

use ether::Time;
use firmware::CONTROL_FRAME_MAX;
use firmware::clock::ClockState;
use firmware::control::doorbell_frame;
use firmware::timers::{Expiry, TimerEvent};

use super::Inner;
use super::frame::FrameRef;
use crate::memory::Piece;
use crate::offload::NetHeader;

impl Inner {
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
