//! Timers of guests: when one expires, its card sends a frame to the guest.
//!
//! Whether and when is decided by the firmware; the watchdog, which only interrupts, is served with the queues.

use ether::Time;
use firmware::CONTROL_FRAME_MAX;
use firmware::control::doorbell_frame;
use firmware::timers::{ArmedTimer, Expiry, TimerEvent};

use super::DataPlane;
use super::frames::frame_ref::FrameRef;
use super::frames::transit::Transit;
use crate::memory::Piece;
use crate::offload::NetHeader;

/// A timer of the card with this index.
pub(super) type PortTimer = (usize, ArmedTimer);

/// Timers as a configuration says them, due since 1970, on the clock of a data plane whose time 0 is `origin_unix_ns`. What was due before that
/// is due then.
pub(super) fn timers_from(timers: &[ArmedTimer], origin_unix_ns: u64) -> Vec<ArmedTimer> {
    let origin = Time::from_nanos(origin_unix_ns);
    let since = |timer: &ArmedTimer| ArmedTimer {
        due: Time::from_nanos(timer.due.nanos_since(origin)),
        ..*timer
    };
    timers.iter().map(since).collect()
}

impl DataPlane {
    /// Takes all timers from all cards: as they are told, and as they are put back. Those of guests that are paused are told, and
    /// stay where they wait for them.
    pub(super) fn take_timers(&mut self) -> (Vec<(String, ArmedTimer)>, Vec<PortTimer>) {
        let (mut told, mut taken) = (Vec::new(), Vec::new());
        for (index, card) in self.forwarding.wiring.cards.iter_mut().enumerate() {
            let aside = card.firmware_mut().timers_mut().set_aside();
            for timer in aside.iter().chain(card.timers_set_aside()) {
                let due = timer.due.plus_nanos(self.origin_unix_ns);
                told.push((card.name().to_owned(), ArmedTimer { due, ..*timer }));
            }
            taken.extend(aside.into_iter().map(|timer| (index, timer)));
        }
        (told, taken)
    }

    /// Arms timers again that were taken.
    pub(super) fn put_timers_back(&mut self, timers: &[PortTimer], now: Time) {
        for (index, timer) in timers {
            let timers = self.card(*index).firmware_mut().timers_mut();
            // No other could be armed meanwhile: nothing was taken from guests.
            if timers.resume(now, timer).is_err() {
                timers.note_lost();
            }
        }
    }

    /// Serves the timers of the card at `index` that are due.
    pub(super) fn serve_timers(&mut self, index: usize, now: Time) {
        while let Some(event) = self.card(index).firmware_mut().timers_mut().poll(now) {
            match event {
                TimerEvent::FetchClockState { timer } => {
                    let card = self.card(index);
                    let state = card.clock_state(now);
                    card.firmware_mut().timers_mut().clock_state(now, timer, state, 0);
                }
                TimerEvent::Expired(expiry) => self.send_expiry(index, &expiry, now),
            }
        }
        self.forwarding.wiring.announce_touched(now);
    }

    fn send_expiry(&mut self, index: usize, expiry: &Expiry, now: Time) {
        let mut frame = [0; CONTROL_FRAME_MAX];
        let len = doorbell_frame(expiry, &mut frame);
        let mut rest = [Piece::EMPTY];
        let transit = Transit::from_card(index);
        let whole = FrameRef::of_bytes(&frame[..len], &mut rest, NetHeader::default(), transit);
        let wiring = &mut self.forwarding.wiring;
        let is_delivered = wiring.deliver_from_memory(index, 0, &whole, now).is_ok();
        let card = self.card(index);
        if is_delivered {
            card.firmware_mut().rx(0).ring(now);
            card.note_timer_frame();
        } else {
            card.firmware_mut().timers_mut().note_lost();
        }
    }
}
