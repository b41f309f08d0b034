//! The ends of a pair's requests and of the pair: time limits, and the loss of the other side.

use ether::Time;
use mxoe::engine::Counter;

use super::{Pair, RECORDS_PER_TURN, Scope};
use crate::{StatusCode, local::ring::RECORDS_MAX, slab::Key};

impl Pair {
    /// Sets the time when a request of this pair is given up.
    pub(in crate::local) fn set_until(&mut self, request: Key, until: Time) {
        let connects = self.connects.iter_mut().filter(|(of, _)| *of == request);
        let waiting = self
            .outgoing
            .waiting
            .iter_mut()
            .filter(|waiting| waiting.request == request);
        let announced = self
            .outgoing
            .announced
            .values_mut()
            .filter(|announced| announced.request == request);
        let arriving = self
            .incoming
            .arriving
            .values_mut()
            .filter(|arriving| arriving.request == request);
        let places = connects
            .map(|(_, place)| place)
            .chain(waiting.map(|waiting| &mut waiting.until))
            .chain(announced.map(|announced| &mut announced.until))
            .chain(arriving.map(|arriving| &mut arriving.until));
        if places.map(|place| *place = until).count() > 0 {
            self.note_due(until);
        }
    }

    /// Gives up what waits too long.
    pub(in crate::local) fn expire(&mut self, now: Time, scope: &mut Scope<'_>) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let requests = &mut scope.store.requests;
        self.connects.retain(|(request, until)| {
            let goes_on = *until > now;
            if !goes_on {
                requests.complete(*request, StatusCode::Unreachable);
            }
            goes_on
        });
        self.outgoing.waiting.retain(|waiting| {
            let goes_on = waiting.until > now;
            if !goes_on {
                requests.complete_send(waiting.request, StatusCode::Unreachable, 0);
            }
            goes_on
        });
        let messages_out = &mut self.rings.messages_out;
        self.outgoing.announced.retain(|_, announced| {
            let goes_on = announced.until > now;
            if !goes_on {
                messages_out.withdraw();
                requests.complete_send(announced.request, StatusCode::Timeout, 0);
            }
            goes_on
        });
        let late: Vec<(u64, Key)> = self
            .incoming
            .arriving
            .iter()
            .filter(|(_, arriving)| arriving.until <= now)
            .map(|(id, arriving)| (*id, arriving.request))
            .collect();
        for (id, request) in late {
            self.incoming.arriving.remove(&id);
            scope.store.received(request, StatusCode::Timeout, 0);
            self.finish(id, None, scope);
        }
        self.due = self
            .connects
            .iter()
            .map(|(_, until)| *until)
            .chain(self.outgoing.waiting.iter().map(|waiting| waiting.until))
            .chain(self.outgoing.announced.values().map(|announced| announced.until))
            .chain(self.incoming.arriving.values().map(|arriving| arriving.until))
            .min();
    }

    /// Ends everything with the other side. Returns the pair if the other program has ended and there is no room for
    /// messages that it had sent.
    pub(in crate::local) fn end(mut self, code: StatusCode, scope: &mut Scope<'_>) -> Option<Self> {
        // What was written before the other side went is received.
        self.read_all(scope);
        self.hang_up();
        for (request, _) in self.connects.drain(..) {
            scope.store.requests.complete(request, code);
        }
        for waiting in self.outgoing.waiting.drain(..) {
            scope.store.requests.complete_send(waiting.request, code, 0);
        }
        for (_, announced) in self.outgoing.announced.drain() {
            scope.store.requests.complete_send(announced.request, code, 0);
        }
        for (_, arriving) in self.incoming.arriving.drain() {
            scope.store.received(arriving.request, code, 0);
        }
        let (pair, store) = (self.id, &mut *scope.store);
        scope.pulls.retain(|pull| {
            let goes_on = pull.large.pair != pair;
            if !goes_on {
                store.received(pull.request, code, 0);
            }
            goes_on
        });
        store.forget_announced(pair);
        scope.counters.count(Counter::PartnersLost);
        self.ended = true;
        (self.incoming.refused && !self.broken && code == StatusCode::EndpointClosed).then_some(self)
    }

    /// Reads what the other side had written, as far as there is room.
    fn read_all(&mut self, scope: &mut Scope<'_>) {
        // More turns than a full ring needs, and an end: a child of that program may still be writing.
        for _ in 0..=2 * RECORDS_MAX / RECORDS_PER_TURN {
            // No side is there for answers, which would keep messages from being read.
            self.outgoing.control.clear();
            if self.broken || !self.read(scope) {
                return;
            }
        }
    }

    /// Takes messages of a program that is gone. Whether all are taken.
    pub(in crate::local) fn is_read(&mut self, scope: &mut Scope<'_>) -> bool {
        if !self.incoming.refused {
            self.read_all(scope);
        }
        !self.incoming.refused
    }
}
