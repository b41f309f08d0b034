//! How connections end.

use ether::Time;

use super::{Answer, Engine};
use crate::{
    ConnectionId, Counter, Error, Reason,
    connection::{Due, Phase},
    event,
    wire::{Body, Header, ResetCode},
};

impl Engine {
    /// The program has no more use for a connection, whose name is free from now on. What was sent still arrives, and the end of the stream
    /// behind it. If there are bytes that the program has not read, the connection is reset, as TCP does, since the peer's have not all
    /// found a reader. A frozen connection is left to who has its copy: see [`forget`](Self::forget).
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such connection.
    pub fn close(&mut self, id: ConnectionId, now: Time) -> Result<(), Error> {
        let fin_wait_ns = self.shared.config.timing.fin_wait_ns;
        let slot = self.slots.find(id).ok_or(Error::Unknown)?;
        if self.connection(id)?.flags.is_frozen {
            return self.forget(id, None, now);
        }
        let Some(connection) = self.slots.get_mut(slot) else {
            return Err(Error::Unknown);
        };
        connection.flags.is_orphan = true;
        connection.events = 0;
        match connection.phase {
            Phase::Open if connection.receive.ring.is_empty() => {
                connection.finish();
                connection.due.linger = now.plus_nanos(fin_wait_ns);
                self.settle(slot, now);
            }
            Phase::TimeWait | Phase::Away(_) => self.settle(slot, now),
            Phase::Closed(_) => self.forget_slot(slot),
            _ => {
                self.abort_slot(slot);
                self.forget_slot(slot);
            }
        }
        Ok(())
    }

    /// Gives a connection up: the peer is told, and all that waits is forgotten. Its name is free from now on.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such connection.
    pub fn abort(&mut self, id: ConnectionId) -> Result<(), Error> {
        let slot = self.slots.find(id).ok_or(Error::Unknown)?;
        self.abort_slot(slot);
        self.forget_slot(slot);
        Ok(())
    }

    /// Tells the peer that a connection is over, if it may know of it, and ends it.
    pub(super) fn abort_slot(&mut self, slot: u32) {
        let Some(connection) = self.slots.get(slot) else {
            return;
        };
        let is_known_to_peer = matches!(connection.phase, Phase::Open | Phase::SynReceived);
        if is_known_to_peer && !connection.flags.is_frozen {
            let header = Header {
                number: connection.send.next,
                ack: Some(connection.receive.next),
                ..Header::new(connection.ends.local_port, connection.ends.peer_port)
            };
            let to = connection.ends.peer;
            self.shared.counters.count(Counter::ResetsSent);
            self.answer(Answer {
                to,
                header,
                body: Body::Reset(ResetCode::Aborted),
                check: false,
            });
        }
        self.end(slot, Reason::Aborted);
    }

    /// A connection whose both streams have ended.
    pub(super) fn finished(&mut self, slot: u32, now: Time) {
        let limits_time_wait = self.shared.config.limits.time_wait;
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        if !connection.flags.closed_first {
            self.end(slot, Reason::Finished);
            return;
        }
        connection.phase = Phase::TimeWait;
        connection.events |= event::CLOSED;
        connection.due = Due::NEVER;
        connection.due.linger = now.plus_nanos(self.shared.config.timing.time_wait_ns);
        connection.waiting_since = None;
        connection
            .send
            .clear(&mut self.shared.memory, &mut self.shared.sent_lists);
        let id = self.slots.id(slot);
        self.time_waits.push_back(id);
        while let Some(oldest) = self.time_waits.front().copied() {
            let is_live = self.is_phase(oldest, |phase| phase == Phase::TimeWait);
            if is_live && self.time_waits.len() <= limits_time_wait {
                break;
            }
            self.time_waits.pop_front();
            if is_live {
                self.shared.counters.count(Counter::TimeWaitEvicted);
                self.leave_key(oldest.slot);
            }
        }
    }

    /// Whether a connection is still there, in a certain part of its life.
    pub(super) fn is_phase(&self, id: ConnectionId, is: impl FnOnce(Phase) -> bool) -> bool {
        let connection = self.slots.get(id.slot);
        connection.is_some_and(|connection| self.slots.id(id.slot) == id && is(connection.phase))
    }
}
