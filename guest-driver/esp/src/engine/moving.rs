//! How connections change their port or their engine, and how they are frozen meanwhile.

use ether::Time;

use super::{Answer, Engine, Options, handle::of_wire};
use crate::{
    ConnectionId, Counter, Error, Handover,
    connection::{Connection, Due, Phase},
    event,
    table::Key,
    wire::{Body, Frame, Header, Kind, Moved},
};

impl Engine {
    /// Takes a connection out of this engine, to be attached to another one of the same host. The engine remembers it for
    /// [`crate::Timing::moved_wait_ns`]: packets for its old port are dropped, not answered with a reset. If the port where it goes on is
    /// known (`moves_to`), a peer that moves at the same time is told of it.
    ///
    /// # Errors
    /// [`Error::NotConnected`] during the handshake, [`Error::Ended`] if it is over, [`Error::Unknown`].
    pub fn detach(&mut self, id: ConnectionId, moves_to: Option<u16>, now: Time) -> Result<Handover, Error> {
        let (connection, _) = self.connection_mut(id)?;
        let handover = match connection.phase {
            Phase::Open => Handover::of(connection),
            Phase::SynSent | Phase::SynReceived => return Err(Error::NotConnected),
            Phase::Closed(reason) => return Err(Error::Ended(reason)),
            Phase::TimeWait | Phase::Away(_) => return Err(Error::Ended(crate::Reason::Finished)),
        };
        self.shared.counters.count(Counter::HandedOver);
        self.send_away(id, moves_to, now);
        Ok(handover)
    }

    /// Forgets a connection that another engine of the same host has taken up from a copy: as [`detach`](Self::detach), without the
    /// handover.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such connection.
    pub fn forget(&mut self, id: ConnectionId, moves_to: Option<u16>, now: Time) -> Result<(), Error> {
        let phase = self.connection(id)?.phase;
        if phase == Phase::Open {
            self.send_away(id, moves_to, now);
        } else {
            self.forget_slot(id.slot);
        }
        Ok(())
    }

    /// Leaves nothing of a connection but what answers late packets.
    pub(super) fn send_away(&mut self, id: ConnectionId, moves_to: Option<u16>, now: Time) {
        let timing = &self.shared.config.timing;
        let (wait_ns, moved_max) = (timing.moved_wait_ns, self.shared.config.limits.moved);
        let Some(connection) = self.slots.get_mut(id.slot) else {
            return;
        };
        connection.clear(&mut self.shared);
        connection.phase = Phase::Away(moves_to);
        connection.flags.is_orphan = true;
        connection.flags.is_frozen = false;
        connection.events = 0;
        connection.due = Due::NEVER;
        connection.due.linger = now.plus_nanos(wait_ns);
        self.settle(id.slot, now);
        self.moved.push_back(id);
        while let Some(oldest) = self.moved.front().copied() {
            let is_live = self.is_phase(oldest, |phase| matches!(phase, Phase::Away(_)));
            if is_live && self.moved.len() <= moved_max {
                break;
            }
            self.moved.pop_front();
            if is_live {
                self.shared.counters.count(Counter::MovedEvicted);
                self.leave_key(oldest.slot);
            }
        }
    }

    /// Takes up a connection at a port of this engine. The peer is told where it lives until it answers there
    /// ([`crate::Event::Settled`] follows); nothing else is sent before. At the port where it was, the peer need not be told.
    ///
    /// # Errors
    /// [`Error::InUse`] if there is such a connection, [`Error::Limit`] if there are as many connections or bytes as may be,
    /// [`Error::Invalid`] for port 0.
    pub fn attach(
        &mut self,
        handover: Handover,
        local_port: u16,
        options: Options,
        now: Time,
    ) -> Result<ConnectionId, Error> {
        if local_port == 0 || handover.peer.mac == self.shared.config.mac {
            return Err(Error::Invalid);
        }
        self.make_room(&Key {
            mac: handover.peer.mac,
            peer_port: handover.peer.port,
            local_port,
        })?;
        let old_port = handover.local_port;
        let mut connection = Connection::new(handover.peer, local_port, Phase::Open);
        self.set_options(&mut connection, &options);
        if !handover.fill(&mut connection, &mut self.shared) {
            connection.clear(&mut self.shared);
            return Err(Error::Limit);
        }
        connection.send.payload_max = connection.terms.peer_payload_max.min(self.shared.config.payload_max());
        connection.receive.payload_max = handover.receive_payload_max;
        if local_port != old_port {
            connection.ends.moving_from = Some(handover.moving_from.unwrap_or(old_port));
            connection.flags.control_now = true;
            connection.waiting_since = Some(now);
        } else {
            connection.ends.moving_from = handover.moving_from;
            connection.flags.control_now = handover.moving_from.is_some();
            connection.receive.ack_now = true;
            connection.events |= event::SETTLED;
        }
        if !connection.receive.ring.is_empty() {
            connection.events |= event::READABLE;
        }
        if connection.receive.is_finished() {
            connection.events |= event::PEER_FINISHED;
        }
        self.shared.counters.count(Counter::Attached);
        Ok(self.add(connection, now))
    }

    /// Stops a connection: nothing is sent, what comes is dropped, and no call but [`thaw`](Self::thaw), [`detach`](Self::detach),
    /// [`forget`](Self::forget) and those that end it does anything. For the time of a `fork` after which two processes have the connection
    /// and one of them is to go on with it.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such connection.
    pub fn freeze(&mut self, id: ConnectionId, now: Time) -> Result<(), Error> {
        self.connection_mut(id)?.0.flags.is_frozen = true;
        self.settle(id.slot, now);
        Ok(())
    }

    /// Goes on with a connection that was frozen.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such connection.
    pub fn thaw(&mut self, id: ConnectionId, now: Time) -> Result<(), Error> {
        let time_wait_ns = self.shared.config.timing.time_wait_ns;
        let (connection, _) = self.connection_mut(id)?;
        if core::mem::take(&mut connection.flags.is_frozen) {
            connection.waiting_since = None;
            connection.heard = now;
            match connection.phase {
                Phase::Open if connection.ends.moving_from.is_none() => {
                    // What came meanwhile was dropped: the peer hears at once what is missing.
                    connection.receive.ack_now = true;
                }
                Phase::TimeWait => connection.due.linger = now.plus_nanos(time_wait_ns),
                _ => {
                    connection.flags.control_now = true;
                    connection.waiting_since = Some(now);
                }
            }
        }
        self.settle(id.slot, now);
        Ok(())
    }

    /// Takes a frame for a connection that lives elsewhere.
    pub(super) fn handle_away(&mut self, slot: u32, frame: &Frame<'_>) -> Result<(), Counter> {
        let Some(connection) = self.slots.get(slot) else {
            return Err(Counter::DropUnknown);
        };
        let Phase::Away(Some(local_port)) = connection.phase else {
            return Err(Counter::DropMoved);
        };
        // The peer has moved, too, and neither side knows the other's new port. In all other cases, the connection speaks for itself as soon
        // as it is attached; to name its port before would only have it refused there.
        if frame.kind == Kind::Moved {
            let answer = Answer {
                to: connection.ends.peer,
                header: Header {
                    number: connection.send.next,
                    window: Some(0),
                    ..Header::new(local_port, connection.ends.peer_port)
                },
                body: Body::Moved(Moved {
                    old_port: connection.ends.local_port,
                    instance: connection.terms.instance,
                }),
                check: connection.terms.blocks.check,
            };
            self.shared.counters.count(Counter::Forwarded);
            self.answer(answer);
        }
        Err(Counter::DropMoved)
    }

    /// Takes *moved* from a port that no connection has.
    pub(super) fn handle_moved(&mut self, frame: &Frame<'_>, now: Time) -> Result<(), Counter> {
        let Body::Moved(moved) = frame.body(false).map_err(of_wire)? else {
            return Err(Counter::DropMalformed);
        };
        let key = Key {
            mac: frame.source,
            peer_port: moved.old_port,
            local_port: frame.header.destination_port,
        };
        let slot = self.table.get(&key);
        let connection = slot.and_then(|slot| self.slots.get(slot));
        let (Some(slot), Some(connection)) = (slot, connection) else {
            self.refuse(frame, crate::wire::ResetCode::Unknown);
            return Err(Counter::DropUnknown);
        };
        if connection.terms.peer_instance != moved.instance {
            return Err(Counter::DropBadInstance);
        }
        if connection.flags.is_frozen {
            return Err(Counter::DropFrozen);
        }
        if connection.phase == Phase::SynSent {
            return Err(Counter::DropBadState);
        }
        frame.body(connection.terms.blocks.check).map_err(of_wire)?;
        self.rename(slot, frame.header.source_port)?;
        self.shared.counters.count(Counter::PeersMoved);
        let result = self.handle_known(slot, frame, now, &mut None);
        self.settle(slot, now);
        result
    }
}
