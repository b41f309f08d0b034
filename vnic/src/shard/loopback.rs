//! A card whose output is wired to its input: what its guest sends comes back into the receive buffers it posted, as copies
//! of its copy engine (`papers.md` M-CI1). No switch, no link and no other guest has to do with it; control frames end at the
//! card as on any other.

use ether::Time;
use firmware::Firmware;
use firmware::copy_engine::{COPY_MTU_MAX, CopyAction, CopyEngineConfig, CopyRequest, Place};

use super::drops::{RxDrop, TxDrop};
use super::forward::{LINK_OVERHEAD, Outcome};
use super::frame::FrameRef;
use super::receive::Refused;
use super::transmit::{Held, TxOrigin};
use super::{FabricError, Inner, SwitchState};
use crate::report::{Counts, ITSELF, PortLinks, PortSettings, counts};

const _: () = assert!(super::fabric_handle::MTU_MAX + LINK_OVERHEAD <= COPY_MTU_MAX);

/// Wires `nic` to itself if `settings` say so. No time is modelled: the copies take what they take.
pub(super) fn connect(nic: &mut Firmware, settings: &PortSettings) {
    if settings.loopback {
        nic.connect_to_itself(CopyEngineConfig {
            mtu: settings.mtu + LINK_OVERHEAD,
            ..CopyEngineConfig::DEFAULT
        });
    }
}

/// Whether a port of these settings can be wired to itself, if it shall be.
pub(super) fn check(settings: &PortSettings) -> Result<(), FabricError> {
    if settings.loopback && settings.queue_pairs != 1 {
        return Err(FabricError::Invalid(format!(
            "port {:?} is connected to itself, which takes one queue pair, not {}: a copy engine has one ring",
            settings.name, settings.queue_pairs
        )));
    }
    check_link(settings, &settings.link)
}

/// Whether a port of these settings may have this link.
pub(super) fn check_link(settings: &PortSettings, link: &PortLinks) -> Result<(), FabricError> {
    if settings.loopback && *link != PortLinks::default() {
        return Err(FabricError::Invalid(format!(
            "port {:?} is connected to itself: there is no link whose settings could differ from the ideal",
            settings.name
        )));
    }
    Ok(())
}

/// The counters of a copy engine, by name.
pub(super) fn counters(nic: &Firmware) -> Option<Counts> {
    let engine = nic.copy_engine()?;
    let counters = engine.counters();
    let mut named = counts(counters);
    for error in firmware::copy_engine::CopyError::ALL {
        named.insert(format!("refused_{}", error.name()), counters.refused_for(error));
    }
    Some(named)
}

impl Inner {
    /// Adds a switch that only a self-connected card is at, so that nobody else's frames reach it. Gives its number.
    pub(super) fn add_switch_of_one(&mut self) -> usize {
        self.switches.push(SwitchState {
            name: ITSELF.to_owned(),
            settings: Default::default(),
            switch: fabric::Switch::new(fabric::SwitchConfig::default()),
            ports: Vec::new(),
        });
        self.switches.len() - 1
    }

    /// Takes a frame, whose header was checked, from the guest of a self-connected card.
    #[cold]
    #[inline(never)]
    pub(super) fn loop_back(
        &mut self,
        origin: TxOrigin,
        frame: &FrameRef<'_>,
        now: Time,
        held: Option<Held>,
    ) -> Outcome {
        let index = origin.port();
        if held.is_none() {
            self.begin_copy(index, frame, now);
        }
        let side = &self.ports[index].pairs[origin.pair()].tx;
        let until = held.map(|_| side.held_until);
        let arrived = if frame.header.suits(self.ports[index].receiver) {
            self.arrive_again(index, frame, now)
        } else {
            // The guest takes no frames like those it sends: they are completed and cut first, and do not wait.
            let mut all = Ok(());
            let resolved = self.resolve(frame, |inner, bytes| {
                let mut rest = [crate::memory::Piece::EMPTY];
                let whole = FrameRef::of_bytes(bytes, &mut rest, crate::offload::NetHeader::default());
                all = all.and(inner.arrive_again(index, &whole, now));
            });
            if !resolved {
                self.ports[index].drop_tx(TxDrop::BadOffload, now);
            }
            all.and(if resolved { Ok(()) } else { Err(None) })
        };
        if arrived == Err(Some(Refused::NoBuffer))
            && frame.header.suits(self.ports[index].receiver)
            && until.is_none_or(|until| now < until)
            && self.ports[index].may_hold(0, now)
        {
            let outcome = self.hold(origin, index, 0, now);
            if let Some(until) = until {
                self.ports[index].pairs[origin.pair()].tx.held_until = until;
            }
            return outcome;
        }
        let wire = frame.on_wire();
        let port = &mut self.ports[index];
        if let Some(wire) = &wire {
            port.count_sent(wire);
        }
        port.nic.note_forwarded(now, 1, u64::from(frame.len));
        if let Some(engine) = port.nic.copy_engine_mut() {
            match arrived {
                // Time::MAX: the engine models none.
                Ok(()) => while engine.poll(Time::MAX).is_some() {},
                Err(_) => _ = engine.fail(),
            }
        }
        if let Err(Some(refused)) = arrived {
            self.refused(index, refused, wire.map_or(1, |wire| wire.frames), now);
        }
        Outcome::Taken
    }

    /// Submits the copy that `frame` stands for, and lets the engine send it.
    fn begin_copy(&mut self, index: usize, frame: &FrameRef<'_>, now: Time) {
        let port = &mut self.ports[index];
        if let Some(engine) = port.nic.copy_engine_mut() {
            if engine.queued() != 0 {
                // Its ring was stopped before it found a buffer.
                engine.reset();
            }
            // Descriptors name rings here and not memory: each address is a position in the stream of bytes.
            let at = engine.counters().submitted_bytes;
            let copy = CopyRequest::new(Place::user(at), Place::kernel(at), frame.len);
            let submitted = engine.submit(now, copy);
            debug_assert!(submitted.is_ok());
            let mut moved = 0;
            while moved < frame.len
                && let Some(CopyAction::Move { len, .. }) = engine.poll(Time::MAX)
            {
                moved += len;
            }
        }
        if self.ports[index].capture.is_some() {
            self.capture_sent(index, frame, now);
        }
    }

    /// Puts a frame into the receive buffers; `None`: it was dropped, and counted already.
    fn arrive_again(&mut self, index: usize, frame: &FrameRef<'_>, now: Time) -> Result<(), Option<Refused>> {
        if !self.ports[index].pairs[0].rx.is_ready() {
            self.ports[index].drop_rx(RxDrop::NotReady, now);
            return Err(None);
        }
        self.deliver_apart(index, 0, frame, now).map_err(Some)
    }
}
