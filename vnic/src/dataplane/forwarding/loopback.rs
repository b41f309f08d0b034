//! A card whose output is wired to its input: what its guest sends comes back into the receive buffers that it posted, as copies
//! of its copy engine (M-CI1 in `docs/spec/papers.md`). No switch, no link and no other guest has to do with it; control
//! frames end at the card as on any other.

use ether::Time;
use firmware::copy_engine::{
    COPY_FRAME_LEN_MAX, COPY_HEADER_LEN, COPY_MTU_MAX, CopyAction, CopyEngineConfig, CopyHeader, CopyRequest,
    NOTIFICATION_LEN, Notification, Place,
};

use super::Forwarding;
use super::switch_state::SwitchState;
use crate::dataplane::card::receive_ring::{Meeting, Refused};
use crate::dataplane::card::transmit_ring::Blocked;
use crate::dataplane::error::FabricError;
use crate::dataplane::frames::frame_ref::FrameRef;
use crate::dataplane::frames::mtu;
use crate::dataplane::route::{self, Loss, Route};
use crate::dataplane::wiring::Outcome;
use crate::dataplane::wiring::link_crossing::Hop;
use crate::memory::Piece;
use crate::offload::{NetHeader, OnWire};
use vnicd_protocol::{Counts, ITSELF, PortLinks, PortSettings, counts};

const _: () = assert!(mtu::frame_len_max(vnicd_protocol::MTU_MAX) <= COPY_MTU_MAX);

/// Wires `nic` to itself if `settings` say so. No time is modelled: the copies take what they take.
pub fn connect(nic: &mut firmware::Card, settings: &PortSettings) {
    if settings.loopback {
        nic.connect_to_itself(CopyEngineConfig {
            mtu: mtu::frame_len_max(settings.mtu).max(COPY_FRAME_LEN_MAX),
            ..CopyEngineConfig::DEFAULT
        });
    }
}

/// The copy that a frame stands for. Descriptors name rings here and not memory: `at` is a position in the stream of bytes, and the
/// variable of a notification is behind all of them.
fn copy_of(frame: &FrameRef<'_>, at: u64) -> CopyRequest {
    const VARIABLE: Notification = Notification {
        variable: Place::kernel(u64::MAX - 15),
        value: 0,
    };
    let whole = CopyRequest::new(Place::user(at), Place::kernel(at), frame.len);
    let Some(header) = CopyHeader::decode(frame.inline) else {
        return whole;
    };
    let behind = frame.len.saturating_sub(COPY_HEADER_LEN as u32);
    match behind.checked_sub(NOTIFICATION_LEN) {
        Some(data) if header.notifies => CopyRequest { len: data, ..whole }.notifying(VARIABLE),
        _ if behind > 0 => CopyRequest { len: behind, ..whole },
        _ => whole,
    }
}

/// Whether a port of these settings can be wired to itself, if it shall be.
pub fn check(settings: &PortSettings) -> Result<(), FabricError> {
    if settings.loopback && settings.queue_pairs != 1 {
        return Err(FabricError::Invalid(format!(
            "port {:?} is connected to itself, which takes one queue pair, not {}: a copy engine has one ring",
            settings.name, settings.queue_pairs
        )));
    }
    check_link(settings, &settings.link)
}

/// Whether a port of these settings may have this link.
pub fn check_link(settings: &PortSettings, link: &PortLinks) -> Result<(), FabricError> {
    if settings.loopback && *link != PortLinks::default() {
        return Err(FabricError::Invalid(format!(
            "port {:?} is connected to itself: there is no link whose settings could differ from the ideal",
            settings.name
        )));
    }
    Ok(())
}

/// The counters of a copy engine, by name.
pub fn counters(nic: &firmware::Card) -> Option<Counts> {
    let engine = nic.copy_engine()?;
    let counters = engine.counters();
    let mut named = counts(counters);
    for error in firmware::copy_engine::CopyError::ALL {
        named.insert(format!("refused_{}", error.name()), counters.refused_for(error));
    }
    Some(named)
}

impl Forwarding {
    /// Adds a switch that only a self-connected card is at, so that no other frames reach it. Gives its number.
    pub fn add_switch_of_one(&mut self) -> usize {
        let switch = fabric::Switch::new(fabric::SwitchConfig::default());
        self.switches.push(SwitchState::new(ITSELF, switch));
        self.switches.len() - 1
    }

    /// Takes a frame, whose header was checked, from the guest of a self-connected card. If it was `blocked`, its copy has begun.
    pub fn loop_back(&mut self, frame: &FrameRef<'_>, wire: &OnWire, blocked: Option<&Blocked>, now: Time) -> Outcome {
        let frame = &frame.with_transit(Blocked::transit_of(blocked, frame.transit, now));
        let index = frame.transit.card();
        let met = match CopyHeader::decode(frame.inline) {
            Some(header) => self.wiring.cards[index].meet_buffer(header.index),
            None => Meeting::Next,
        };
        // Transmit chains come back after their frames arrived: where this process was killed in between, they are sent a second time.
        if met == Meeting::Past {
            return Outcome::Taken;
        }
        if blocked.is_none() {
            self.begin_copy(index, frame, now);
        }
        let arrived = match met {
            Meeting::Next => self.arrive(index, frame, now),
            // Copies are done in order: those behind one that was lost wait until their program has sent that again, and then them.
            _ => Some(Err((Hop::ToGuest(index), Loss::Refused(Refused::NoBuffer)))),
        };
        let Some(arrived) = arrived else {
            return self.wiring.block(frame, index, 0, now);
        };
        self.has_copied = true;
        let card = &mut self.wiring.cards[index];
        card.count_sent(wire);
        card.firmware_mut().note_forwarded(now, 1, u64::from(frame.len));
        if let Some(engine) = card.firmware_mut().copy_engine_mut() {
            match arrived {
                // Time::MAX: the engine models none.
                Ok(()) => while engine.poll(Time::MAX).is_some() {},
                Err(_) => _ = engine.fail(),
            }
        }
        if let Err((hop, loss)) = arrived {
            self.wiring.lose(hop, loss, wire.frames, now);
        }
        Outcome::Taken
    }

    /// Delivers a frame; `None` if it is to wait for a buffer.
    fn arrive(&mut self, index: usize, frame: &FrameRef<'_>, now: Time) -> Option<Result<(), (Hop, Loss)>> {
        if !frame.header.suits(self.wiring.cards[index].receiver_offloads()) {
            return Some(self.deliver_resolved(index, frame, now));
        }
        let Err(refused) = self.wiring.deliver_from_memory(index, 0, frame, now) else {
            return Some(Ok(()));
        };
        let card = &mut self.wiring.cards[index];
        // Where a buffer is, its frontend will say, or its session ends: that has a limit of its own.
        if refused == Refused::NoBuffer && card.awaits_translation(0) {
            return None;
        }
        match route::after_refusal(refused, frame, card, 0, now) {
            Route::Drop(loss) => Some(Err((Hop::ToGuest(index), loss))),
            _ => None,
        }
    }

    /// Delivers a frame that its guest does not take as it is: completed and cut. These frames do not wait, as no program's copies are
    /// among them.
    fn deliver_resolved(&mut self, index: usize, frame: &FrameRef<'_>, now: Time) -> Result<(), (Hop, Loss)> {
        let mut all = Ok(());
        let wiring = &mut self.wiring;
        let resolved = self.segments.resolve(frame, |bytes| {
            let mut rest = [Piece::EMPTY];
            let whole = FrameRef::of_bytes(bytes, &mut rest, NetHeader::default(), frame.transit);
            all = all.and(wiring.deliver_from_memory(index, 0, &whole, now));
        });
        if !resolved {
            return Err((Hop::FromGuest(index), Loss::BadOffload));
        }
        all.map_err(|refused| (Hop::ToGuest(index), Loss::Refused(refused)))
    }

    /// Submits the copy that `frame` stands for, and lets the engine send it.
    fn begin_copy(&mut self, index: usize, frame: &FrameRef<'_>, now: Time) {
        let card = &mut self.wiring.cards[index];
        if let Some(engine) = card.firmware_mut().copy_engine_mut() {
            if engine.queued() != 0 {
                // Its ring was stopped before it found a buffer.
                engine.reset();
            }
            let copy = copy_of(frame, engine.counters().submitted_bytes);
            let submitted = engine.submit(now, copy);
            debug_assert!(submitted.is_ok());
            let mut moved = 0;
            while moved < copy.len
                && let Some(CopyAction::Move { len, .. }) = engine.poll(Time::MAX)
            {
                moved += len;
            }
        }
        self.wiring.capture_sent(index, frame, &mut self.segments, now);
    }
}
