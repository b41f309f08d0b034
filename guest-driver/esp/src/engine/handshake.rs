//! How connections are agreed on: SYN, SYN+ACK, and the acknowledgement that completes them.

use alloc::boxed::Box;

use ether::Time;

use super::{Engine, handle::of_wire};
use crate::{
    Address, Counter,
    connection::{Connection, Phase},
    event,
    table::Key,
    wire::{Body, Frame, ResetCode, Syn, SynAck},
};

fn syn_of(frame: &Frame<'_>) -> Result<Syn, Counter> {
    match frame.body(false).map_err(of_wire)? {
        Body::Syn(syn) => Ok(syn),
        _ => Err(Counter::DropMalformed),
    }
}

fn syn_ack_of(frame: &Frame<'_>) -> Result<SynAck, Counter> {
    match frame.body(false).map_err(of_wire)? {
        Body::SynAck(syn_ack) => Ok(syn_ack),
        _ => Err(Counter::DropMalformed),
    }
}

const fn key_of(frame: &Frame<'_>) -> Key {
    Key {
        mac: frame.source,
        peer_port: frame.header.source_port,
        local_port: frame.header.destination_port,
    }
}

impl Engine {
    /// Takes a SYN that belongs to no connection.
    pub(super) fn handle_syn(&mut self, frame: &Frame<'_>, now: Time) -> Result<(), Counter> {
        let syn = syn_of(frame)?;
        if let Some(slot) = self.syns.get(&key_of(frame)) {
            return self.handle_syn_of_half_open(slot, frame, &syn, now);
        }
        self.open_half(frame, &syn, now)
    }

    /// Takes a SYN for a connection that is answered from a handshake port.
    fn handle_syn_of_half_open(&mut self, slot: u32, frame: &Frame<'_>, syn: &Syn, now: Time) -> Result<(), Counter> {
        let Some(connection) = self.slots.get_mut(slot) else {
            return Err(Counter::DropUnknown);
        };
        if connection.terms.peer_instance == syn.instance {
            self.shared.counters.count(Counter::Duplicates);
            connection.flags.control_now = true;
            self.settle(slot, now);
            return Ok(());
        }
        // The peer has started anew.
        self.forget_slot(slot);
        self.open_half(frame, syn, now)
    }

    /// Answers a SYN at a port that is listened at.
    fn open_half(&mut self, frame: &Frame<'_>, syn: &Syn, now: Time) -> Result<(), Counter> {
        let port = frame.header.destination_port;
        let limits = &self.shared.config.limits;
        let (limit, connections_max) = (limits.half_open, limits.connections);
        let Some(listener) = self.listeners.get(port) else {
            self.refuse(frame, ResetCode::Refused);
            return Err(Counter::DropUnknown);
        };
        if listener.complete.len() >= listener.options.backlog {
            return Err(Counter::BacklogFull);
        }
        let hold = listener.options.hold;
        let mut oldest = None;
        if listener.half_open.len() >= limit {
            oldest = listener.half_open.pop();
        } else if self.slots.len() >= connections_max {
            // Whoever is flooded gives way, not the others.
            oldest = self.listeners.pop_of_most();
        }
        if let Some(oldest) = oldest {
            self.shared.counters.count(Counter::HalfOpenEvicted);
            self.forget_slot(oldest);
        }
        if self.slots.len() >= connections_max {
            return Err(Counter::DropNoConnection);
        }
        let from = Address {
            mac: frame.source,
            port: frame.header.source_port,
        };
        let local_port = self.port_for(from, port).ok_or(Counter::DropNoConnection)?;
        let mut connection = Connection::new(from, local_port, Phase::SynReceived);
        connection.ends.listened_port = port;
        connection.flags.is_incoming = true;
        connection.terms.instance = self.shared.random.next();
        connection.send.start(self.shared.random.next() as u32);
        self.set_options(&mut connection, &super::Options::default());
        if hold {
            connection.receive.limit = 0;
        }
        self.answer_syn(&mut connection, frame, syn);
        connection.waiting_since = Some(now);
        let id = self.add(connection, now);
        if local_port != port {
            self.syns.insert(key_of(frame), id.slot);
        }
        if let Some(listener) = self.listeners.get(port) {
            listener
                .half_open
                .add(id.slot, self.proven_peers.contains(frame.source));
        }
        Ok(())
    }

    /// The port to answer a SYN from.
    fn port_for(&mut self, from: Address, port: u16) -> Option<u16> {
        let Some((first, last)) = self.shared.config.handshake_ports else {
            return Some(port);
        };
        for _ in first..=last {
            let local_port = self.next_handshake_port;
            self.next_handshake_port = if local_port == last { first } else { local_port + 1 };
            let key = Key {
                mac: from.mac,
                peer_port: from.port,
                local_port,
            };
            if self.table.get(&key).is_none() {
                return Some(local_port);
            }
        }
        None
    }

    fn answer_syn(&self, connection: &mut Connection, frame: &Frame<'_>, syn: &Syn) {
        let config = &self.shared.config;
        connection.learn(
            syn.instance,
            syn.payload_max,
            syn.blocks,
            config.blocks,
            config.payload_max(),
        );
        connection.terms.names = syn.names.map(Box::new);
        connection.receive.start(frame.header.number.wrapping_add(1));
        connection
            .send
            .open(connection.send.next, frame.header.window.unwrap_or(0));
        connection.flags.control_now = true;
    }

    /// Takes a SYN from the peer's port of a connection.
    pub(super) fn handle_syn_again(&mut self, slot: u32, frame: &Frame<'_>, now: Time) -> Result<(), Counter> {
        let syn = syn_of(frame)?;
        let Some(connection) = self.slots.get_mut(slot) else {
            return Err(Counter::DropUnknown);
        };
        let is_same = connection.terms.peer_instance == syn.instance;
        match connection.phase {
            Phase::SynSent => {
                // Both have begun at the same time.
                let Some(mut connection) = self.slots.take(slot) else {
                    return Err(Counter::DropUnknown);
                };
                connection.phase = Phase::SynReceived;
                self.answer_syn(&mut connection, frame, &syn);
                self.slots.put(slot, connection);
            }
            Phase::SynReceived if is_same => {
                self.shared.counters.count(Counter::Duplicates);
                connection.flags.control_now = true;
            }
            Phase::SynReceived if connection.flags.is_incoming => {
                self.forget_slot(slot);
                return self.open_half(frame, &syn, now);
            }
            Phase::TimeWait if !is_same => {
                self.leave_key(slot);
                return self.open_half(frame, &syn, now);
            }
            _ if is_same => connection.receive.ack_now = true,
            // The peer may have started anew: if so, it answers this with a reset.
            _ => {
                connection.receive.ack_now = true;
                return Err(Counter::DropBadInstance);
            }
        }
        Ok(())
    }

    /// Takes a SYN+ACK from the port that a connection's SYN was for, or that its peer has answered from before.
    pub(super) fn handle_syn_ack(&mut self, slot: u32, frame: &Frame<'_>, now: Time) -> Result<(), Counter> {
        let syn_ack = syn_ack_of(frame)?;
        let Some(connection) = self.slots.get_mut(slot) else {
            return Err(Counter::DropUnknown);
        };
        if syn_ack.peer_instance != connection.terms.instance {
            return Err(Counter::DropBadInstance);
        }
        let is_same = syn_ack.instance == connection.terms.peer_instance;
        match connection.phase {
            Phase::SynSent => self.connected(slot, frame, &syn_ack, now),
            _ if !is_same => Err(Counter::DropBadInstance),
            Phase::SynReceived => {
                self.establish(slot, frame, now)?;
                if let Some(connection) = self.slots.get_mut(slot) {
                    connection.receive.ack_now = true;
                }
                Ok(())
            }
            _ => {
                self.shared.counters.count(Counter::Duplicates);
                connection.receive.ack_now = true;
                Ok(())
            }
        }
    }

    /// Takes a SYN+ACK from another port than the SYN was for.
    pub(super) fn handle_syn_ack_of_other_port(&mut self, frame: &Frame<'_>, now: Time) -> Result<(), Counter> {
        let syn_ack = syn_ack_of(frame)?;
        let key = Key {
            peer_port: syn_ack.listened_port,
            ..key_of(frame)
        };
        let slot = self.table.get(&key);
        let connection = slot.and_then(|slot| self.slots.get_mut(slot));
        let (Some(slot), Some(connection)) = (slot, connection) else {
            self.refuse(frame, ResetCode::Unknown);
            return Err(Counter::DropUnknown);
        };
        if connection.phase != Phase::SynSent || connection.terms.instance != syn_ack.peer_instance {
            self.refuse(frame, ResetCode::Unknown);
            return Err(Counter::DropBadInstance);
        }
        if connection.flags.is_frozen {
            return Err(Counter::DropFrozen);
        }
        self.check_syn_ack(slot, frame)?;
        self.rename(slot, frame.header.source_port)?;
        let result = self.connected(slot, frame, &syn_ack, now);
        self.settle(slot, now);
        result
    }

    fn check_syn_ack(&mut self, slot: u32, frame: &Frame<'_>) -> Result<(), Counter> {
        let next = self.slots.get(slot).map(|connection| connection.send.next);
        if frame.header.ack != next {
            self.refuse(frame, ResetCode::Unknown);
            return Err(Counter::DropBadAck);
        }
        Ok(())
    }

    /// The peer has accepted a connection.
    fn connected(&mut self, slot: u32, frame: &Frame<'_>, syn_ack: &SynAck, now: Time) -> Result<(), Counter> {
        self.check_syn_ack(slot, frame)?;
        let shared = &mut self.shared;
        let Some(connection) = self.slots.get_mut(slot) else {
            return Err(Counter::DropUnknown);
        };
        let (ours, own_max) = (shared.config.blocks, shared.config.payload_max());
        connection.learn(syn_ack.instance, syn_ack.payload_max, syn_ack.blocks, ours, own_max);
        connection.receive.start(frame.header.number.wrapping_add(1));
        connection.receive.ack_now = true;
        connection.open_now(frame, now);
        connection.events |= event::CONNECTED;
        shared.counters.count(Counter::Established);
        Ok(())
    }

    /// The peer has acknowledged the SYN of a connection that answered its SYN.
    pub(super) fn establish(&mut self, slot: u32, frame: &Frame<'_>, now: Time) -> Result<(), Counter> {
        let Some(connection) = self.slots.get(slot) else {
            return Err(Counter::DropUnknown);
        };
        // Its body is checked before anything becomes of the connection.
        frame.body(connection.terms.blocks.check).map_err(of_wire)?;
        if frame.header.ack != Some(connection.send.next) {
            self.refuse(frame, ResetCode::Unknown);
            return Err(Counter::DropBadAck);
        }
        let alias = connection.listened_key();
        let (port, is_incoming) = (connection.ends.listened_port, connection.flags.is_incoming);
        if is_incoming {
            let listener = self.listeners.get(port).ok_or(Counter::DropUnknown)?;
            if listener.complete.len() >= listener.options.backlog {
                // Its SYN+ACK is sent again, and so the acknowledgement, until there is room.
                return Err(Counter::BacklogFull);
            }
            self.proven_peers.note(frame.source);
            self.listeners.complete(port, slot);
            self.shared.counters.count(Counter::Accepts);
        }
        self.syns.remove(&alias, slot);
        self.shared.counters.count(Counter::Established);
        let Some(connection) = self.slots.get_mut(slot) else {
            return Err(Counter::DropUnknown);
        };
        connection.open_now(frame, now);
        if !is_incoming {
            connection.events |= event::CONNECTED;
        }
        Ok(())
    }

    /// The peer's port of a connection is another one from now on.
    pub(super) fn rename(&mut self, slot: u32, peer_port: u16) -> Result<(), Counter> {
        let Some(connection) = self.slots.get(slot) else {
            return Err(Counter::DropUnknown);
        };
        let (old, alias) = (connection.key(), connection.listened_key());
        let new = Key { peer_port, ..old };
        if let Some(other) = self.table.get(&new) {
            let is_past = |connection: &Connection| matches!(connection.phase, Phase::TimeWait | Phase::Away(_));
            if !self.slots.get(other).is_some_and(is_past) {
                return Err(Counter::DropPortTaken);
            }
            self.leave_key(other);
        }
        self.table.remove(&old, slot);
        self.table.insert(new, slot);
        // A peer that moves before its handshake is over has its answer, and asks from its old port no more.
        self.syns.remove(&alias, slot);
        if let Some(connection) = self.slots.get_mut(slot) {
            connection.ends.peer_port = peer_port;
        }
        Ok(())
    }
}
