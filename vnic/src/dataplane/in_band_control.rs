//! Frames that a card keeps for itself: requests of its guest to the card, multicast, and copies of a self-connected card.

use ether::Time;
use firmware::{CONTROL_FRAME_MAX, Coalescing, SteeringSettings};

use super::DataPlane;
use super::card::transmit_ring::Blocked;
use super::frames::frame_ref::FrameRef;
use super::observers::watchers::Subject;
use super::route::{Loss, Service};
use super::wiring::Outcome;
use crate::memory::Piece;
use crate::offload::{NetHeader, OnWire};
use vnicd_protocol::QUEUE_PAIRS_MAX;
use vnicd_protocol::drops::TxDrop;

/// The settings of a card that its guest can change: coalescing and watchdog of each queue, and steering.
type GuestSettings = ([Option<(Coalescing, u64)>; QUEUE_PAIRS_MAX as usize], SteeringSettings);

fn guest_settings(firmware: &firmware::Card) -> GuestSettings {
    let of = |rx: &firmware::RxPipeline| (rx.coalescing(), rx.watchdog().delay_ns());
    let queues = std::array::from_fn(|queue| firmware.queues().get(queue).map(of));
    (queues, *firmware.steering().settings())
}

impl DataPlane {
    /// Serves a frame from a guest that its card keeps for itself.
    #[cold]
    #[inline(never)]
    pub(super) fn serve(
        &mut self,
        service: Service,
        frame: &FrameRef<'_>,
        wire: &OnWire,
        blocked: Option<&Blocked>,
        now: Time,
    ) -> Outcome {
        let index = frame.transit.card();
        match service {
            Service::Control => {
                self.card(index).count_sent(wire);
                self.answer_control(index, frame, now);
                Outcome::Taken
            }
            Service::Multicast => {
                self.forwarding.multicast_from_guest(index, frame, now);
                Outcome::Taken
            }
            Service::Loopback => self.forwarding.loop_back(frame, wire, blocked, now),
        }
    }

    /// Answers a control frame of the guest at `index`, on its receive queue 0.
    fn answer_control(&mut self, index: usize, frame: &FrameRef<'_>, now: Time) {
        // A frame that is longer than any request is refused by the firmware, which needs no more than to see that.
        let kept = (frame.len as usize).min(CONTROL_FRAME_MAX + 1);
        let mut request = [0; CONTROL_FRAME_MAX + 1];
        let request = &mut request[..kept];
        request.copy_from_slice(&self.forwarding.segments.joined(frame)[..kept]);
        let card = self.card(index);
        if let Some(capture) = card.capture_mut() {
            capture.sent(request, now);
        }
        let mut reply = [0; CONTROL_FRAME_MAX];
        let before = guest_settings(card.firmware());
        let firmware = card.firmware_mut();
        let mut len = firmware.handle_control(now, request, &mut reply);
        if let Some(wish) = firmware.take_group_request() {
            let outcome = self.change_group(index, wish.group, wish.join, Some(wish.guest), now);
            len = self.card(index).firmware_mut().answer_group(wish, outcome, &mut reply);
        }
        let card = self.card(index);
        if let Some(request) = card.firmware_mut().take_host_record_request() {
            let outcome = card.set_host_record(request.queue, request.place);
            len = card.firmware_mut().answer_host_record(request, outcome, &mut reply);
        }
        // Settings may have changed: what is due by the new ones is due now.
        card.announce_all(now);
        if guest_settings(card.firmware()) != before {
            // Watchers learn of it before the guest does.
            self.settings_changed(Subject::Port(index));
        }
        let card = self.card(index);
        if len == 0 {
            card.drop_tx(TxDrop::CardRefused, 1, now);
        } else {
            let mut rest = [Piece::EMPTY];
            let reply = FrameRef::of_bytes(&reply[..len], &mut rest, NetHeader::default(), frame.transit);
            if let Err(refused) = self.forwarding.wiring.deliver_from_memory(index, 0, &reply, now) {
                let wiring = &mut self.forwarding.wiring;
                wiring.lose_at_card(index, &reply, Loss::Refused(refused), 1, now);
            }
        }
    }
}
