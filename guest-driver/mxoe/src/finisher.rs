//! Finishing for closed endpoints: acknowledgements, messages that were sent and pulled data that their peers may still want. The
//! authority of an interface has this, since frames for endpoints that are not open come to it.

use alloc::vec::Vec;

use ether::{MacAddr, Time};

use crate::{
    engine::{Config, Counters, Engine, HEAD_BUFFER_LEN, Handover, PRESET_OTHER, Peers},
    wire::{Dialect, PEER_INDEX_UNKNOWN},
};

/// A closed endpoint is finished for so long, in nanoseconds. Peers whose frames were lost ask again every half second.
pub const FINISHING_NS: u64 = 10_000_000_000;

/// The peers that a closed endpoint has talked with: index, address, and the index of this host there.
#[derive(Debug)]
struct Known(Vec<(u16, MacAddr, u16)>);

impl Peers for Known {
    fn mac(&self, index: u16) -> Option<MacAddr> {
        let found = self.0.iter().find(|(known, ..)| *known == index);
        found.map(|(_, mac, _)| *mac)
    }

    fn index(&self, mac: MacAddr) -> Option<u16> {
        let found = self.0.iter().find(|(_, known, _)| *known == mac);
        found.map(|(index, ..)| *index)
    }

    fn index_or_add(&mut self, mac: MacAddr) -> Option<u16> {
        self.index(mac)
    }

    fn reverse(&self, index: u16) -> u16 {
        let found = self.0.iter().find(|(known, ..)| *known == index);
        found.map_or(PEER_INDEX_UNKNOWN, |(.., reverse)| *reverse)
    }

    fn set_reverse(&mut self, _: u16, _: u16) {}
}

/// One closed endpoint.
#[derive(Debug)]
struct Finisher {
    engine: Engine<Known>,
    until: Time,
    /// The bytes of each message.
    data: Vec<Vec<u8>>,
}

/// The closed endpoints of an interface that are finished for. Each is so for [`FINISHING_NS`], since no peer says that the last
/// acknowledgement has come, or until its number is opened anew.
#[derive(Debug)]
pub struct Finishers {
    mac: MacAddr,
    dialect: Dialect,
    list: Vec<Finisher>,
    /// Counts of those that are over.
    before: Counters,
}

impl Finishers {
    /// Begins with none, for an interface with this address. Marks are read if they are on in `dialect`.
    pub fn new(mac: MacAddr, dialect: Dialect) -> Self {
        Self {
            mac,
            dialect,
            list: Vec::new(),
            before: Counters::default(),
        }
    }

    /// Finishes for an endpoint that was closed just now, in place of an earlier one of its number.
    pub fn take_over(&mut self, now: Time, handover: Handover) {
        self.forget(handover.endpoint);
        if handover.is_empty() || !handover.is_possible() {
            return;
        }
        let sizes = *self.dialect.sizes();
        let mut config = Config::with_sizes(self.mac, handover.endpoint, handover.session, sizes, PRESET_OTHER);
        config.dialect = self.dialect;
        config.timing.give_up_ns = FINISHING_NS;
        config.limits.large_sends = u32::MAX;
        let partners = handover.partners.iter();
        let peers = Known(partners.map(|known| (known.peer, known.mac, known.reverse)).collect());
        self.list.push(Finisher {
            engine: Engine::take_over(now, config, peers, &handover),
            until: now.plus_nanos(FINISHING_NS),
            data: handover.messages.into_iter().map(|message| message.data).collect(),
        });
    }

    /// Stops finishing for the endpoint with this number: it is open again.
    pub fn forget(&mut self, endpoint: u8) {
        self.stop_if(|finisher| finisher.engine.config().endpoint == endpoint);
    }

    fn stop_if(&mut self, is_over: impl Fn(&Finisher) -> bool) {
        for finisher in self.list.extract_if(.., |finisher| is_over(finisher)) {
            self.before.add(finisher.engine.counters());
        }
    }

    /// Whether no closed endpoint is finished for.
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether the endpoint with this number is finished for.
    pub fn has(&self, endpoint: u8) -> bool {
        self.list
            .iter()
            .any(|finisher| finisher.engine.config().endpoint == endpoint)
    }

    /// Adds what happened to frames for closed endpoints.
    pub fn add_to(&self, counters: &mut Counters) {
        counters.add(&self.before);
        for finisher in &self.list {
            counters.add(finisher.engine.counters());
        }
    }

    /// Handles a frame that is for no open endpoint. False: it concerns nothing that is owed.
    pub fn handle(&mut self, now: Time, frame: &[u8]) -> bool {
        if self.list.is_empty() {
            return false;
        }
        let Ok((head, packet)) = self.dialect.decode(frame) else {
            return false;
        };
        head.dst == self.mac
            && self
                .list
                .iter_mut()
                .any(|finisher| finisher.engine.handle_late(now, &head, &packet))
    }

    /// Returns when [`Finishers::handle_timeout`] is to be called at the latest.
    pub fn poll_timeout(&self) -> Option<Time> {
        let due = self.list.iter().map(|finisher| {
            let timeout = finisher.engine.poll_timeout().unwrap_or(Time::MAX);
            timeout.min(finisher.until)
        });
        due.min()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.stop_if(|finisher| finisher.until <= now);
        for finisher in &mut self.list {
            finisher.engine.handle_timeout(now);
        }
    }

    /// Writes the next frame to be sent to `out`, which should have room for the longest frame, and returns its length.
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        self.list.iter_mut().find_map(|finisher| finisher.transmit(now, out))
    }
}

impl Finisher {
    fn transmit(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        // No program waits for the ends of messages any more.
        while self.engine.poll_event().is_some() {}
        let mut head = [0; HEAD_BUFFER_LEN];
        loop {
            let transmit = self.engine.poll_transmit(now, &mut head)?;
            let len = transmit.frame_len();
            let payload = match transmit.payload {
                None => Some(&[][..]),
                Some(payload) => {
                    let range = payload.offset as usize..(payload.offset + payload.len) as usize;
                    self.data.get(payload.token as usize).and_then(|data| data.get(range))
                }
            };
            // What does not fit is lost as on a cable.
            if let (Some(payload), Some(frame)) = (payload, out.get_mut(..len)) {
                frame.fill(0);
                frame[..transmit.head_len].copy_from_slice(&head[..transmit.head_len]);
                frame[transmit.head_len..][..payload.len()].copy_from_slice(payload);
                return Some(len);
            }
        }
    }
}
