//! The protocol of the connections of one Ethernet port.
//!
//! `connecting` is how connections begin, `handle` what frames do, `stream` what the program sends and reads, `closing` how connections
//! end, `moving` how they change their port or engine, `transmit` what goes out, `time` what is due.

mod closing;
mod connecting;
mod delivery;
mod half_open;
mod handle;
mod handshake;
mod listeners;
mod moving;
mod slots;
mod stream;
mod time;
mod transmit;

use alloc::collections::VecDeque;

use ether::{MacAddr, Time};

pub use self::{connecting::Options, handle::Handled, listeners::ListenOptions};
use self::{half_open::ProvenPeers, listeners::Listeners, slots::Slots};
use crate::{
    Address, Config, ConfigError, ConnectionId, Counter, Counters, Error, Event, Info, Reason,
    connection::{Connection, Phase, send::SpareLists, shared::Shared},
    event,
    memory::Memory,
    random::Random,
    table::Table,
    timers::Timers,
    wire::{Body, Header, Names},
};

/// A frame that belongs to no connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    to: MacAddr,
    header: Header,
    body: Body<'static>,
    check: bool,
}

/// The protocol of the connections of one Ethernet port.
///
/// An engine has no thread, no port and no clock. Its owner calls
///
/// - [`handle`](Self::handle) with each frame that came, and [`handle_timeout`](Self::handle_timeout) when the time has come that
///   [`poll_timeout`](Self::poll_timeout) names;
/// - [`connect`](Self::connect), [`listen`](Self::listen), [`send`](Self::send), [`receive`](Self::receive),
///   [`shutdown_write`](Self::shutdown_write), [`close`](Self::close) and the like for the program;
/// - and, after any of these, [`poll_transmit`](Self::poll_transmit) until it has nothing more or the port is full, and
///   [`poll_event`](Self::poll_event).
///
/// Times never go backwards. Equal seeds and calls give equal frames and events. Nothing is allocated per packet once buffers have
/// grown to what the connections need.
#[derive(Debug)]
pub struct Engine {
    shared: Shared,
    slots: Slots,
    table: Table,
    /// Half-open connections that are answered from a handshake port, by the port that the SYN was for.
    syns: Table,
    listeners: Listeners,
    proven_peers: ProvenPeers,
    timers: Timers,
    /// Connections with something to send, in the order of their turns.
    ready: VecDeque<u32>,
    answers: VecDeque<Answer>,
    /// Connections with events, in the order of their first.
    eventful: VecDeque<u32>,
    /// Connections in TIME-WAIT, and those that have moved, the oldest first, with generations.
    time_waits: VecDeque<ConnectionId>,
    moved: VecDeque<ConnectionId>,
    next_handshake_port: u16,
    /// Connections that found no memory for bytes to be sent, since others have it.
    starved: VecDeque<ConnectionId>,
}

impl Engine {
    /// An engine without connections. `seed` is a random number of the owner: instances and first numbers of connections follow from it,
    /// and who can guess them can forge packets.
    ///
    /// # Errors
    /// [`ConfigError`] for a configuration that cannot be.
    pub fn new(config: Config, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let mut random = Random::new(seed);
        let limits = &config.limits;
        Ok(Self {
            slots: Slots::default(),
            table: Table::new(random.next()),
            syns: Table::new(random.next()),
            listeners: Listeners::default(),
            proven_peers: ProvenPeers::default(),
            timers: Timers::default(),
            ready: VecDeque::new(),
            answers: VecDeque::new(),
            eventful: VecDeque::new(),
            time_waits: VecDeque::new(),
            moved: VecDeque::new(),
            starved: VecDeque::new(),
            next_handshake_port: config.handshake_ports.map_or(0, |(first, _)| first),
            shared: Shared {
                memory: Memory::new(limits.bytes, limits.spare_bytes),
                counters: Counters::default(),
                random,
                sent_lists: SpareLists::new(),
                parked_lists: SpareLists::new(),
                config,
            },
        })
    }

    /// The configuration; its MTU is the present one.
    pub const fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The counts of what happened.
    pub const fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Connections in any state, those included that the program has closed and that are not over.
    pub fn connections(&self) -> usize {
        self.slots.len()
    }

    /// Connections that the program has a name for, in the order of their [`ConnectionId::index`].
    pub fn ids(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        let all = self.slots.iter().map(|slot| self.slots.id(slot));
        all.filter(|id| self.slots.find(*id).is_some())
    }

    /// Bytes of the buffers of all connections.
    pub const fn buffer_bytes(&self) -> usize {
        self.shared.memory.used()
    }

    /// What is known of a connection.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is none of this name.
    pub fn info(&self, id: ConnectionId) -> Result<Info, Error> {
        let connection = self.connection(id)?;
        let Connection { send, rtt, tally, .. } = connection;
        Ok(Info {
            state: connection.state(),
            reason: match connection.phase {
                Phase::Closed(reason) => Some(reason),
                Phase::TimeWait => Some(Reason::Finished),
                _ => None,
            },
            peer: Address {
                mac: connection.ends.peer,
                port: connection.ends.peer_port,
            },
            local_port: connection.ends.local_port,
            listened_port: connection.ends.listened_port,
            is_frozen: connection.flags.is_frozen,
            is_moving: connection.ends.moving_from.is_some(),
            unread: connection.receive.ring.len(),
            unsent: send.uncut(),
            unacknowledged: send.cut as usize,
            payload_max: send.payload_max,
            round_trip_ns: rtt.smoothed_ns,
            round_trip_variation_ns: rtt.variation_ns,
            round_trip_min_ns: rtt.min_ns,
            timeout_ns: rtt.timeout_ns(&self.shared.config.timing),
            backoff: rtt.backoff,
            congestion_window: send.congestion.window,
            peer_window: send.right.wrapping_sub(send.unacknowledged),
            out_of_order: connection.receive.parked.len(),
            bytes_sent: tally.bytes_sent,
            bytes_received: tally.bytes_received,
            packets_sent: tally.packets_sent,
            packets_received: tally.packets_received,
            retransmitted: tally.retransmitted,
            sent_at: connection.sent,
            heard_at: connection.heard,
        })
    }

    /// What the program that connects calls both ends of a connection; none if it did not say, and after a handover.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is none of this name.
    pub fn names(&self, id: ConnectionId) -> Result<Option<Names>, Error> {
        Ok(self.connection(id)?.terms.names.as_deref().copied())
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        if !self.starved.is_empty() {
            self.feed();
        }
        while let Some(slot) = self.eventful.front().copied() {
            let id = match self.slots.get(slot) {
                Some(connection) if connection.flags.has_events => self.slots.id(slot),
                _ => {
                    self.eventful.pop_front();
                    continue;
                }
            };
            let Some(connection) = self.slots.get_mut(slot) else {
                continue;
            };
            let next = connection.events & connection.events.wrapping_neg();
            connection.events &= !next;
            if connection.events == 0 {
                connection.flags.has_events = false;
                self.eventful.pop_front();
            }
            match next {
                event::CONNECTED => return Some(Event::Connected(id)),
                event::READABLE => return Some(Event::Readable(id)),
                event::WRITABLE => return Some(Event::Writable(id)),
                event::PEER_FINISHED => return Some(Event::PeerFinished(id)),
                event::SETTLED => return Some(Event::Settled(id)),
                event::CLOSED => {
                    let reason = match connection.phase {
                        Phase::Closed(reason) => reason,
                        _ => Reason::Finished,
                    };
                    return Some(Event::Closed { id, reason });
                }
                _ => {}
            }
        }
        self.listeners.poll_event()
    }

    /// Tells connections that found no memory to send that there is some again.
    #[cold]
    fn feed(&mut self) {
        if self.shared.memory.has_room_to_send() {
            while let Some(id) = self.starved.pop_front() {
                if let Ok((connection, _)) = self.connection_mut(id)
                    && core::mem::take(&mut connection.flags.wants_room)
                {
                    connection.events |= event::WRITABLE;
                    if !core::mem::replace(&mut connection.flags.has_events, true) {
                        self.eventful.push_back(id.slot);
                    }
                }
            }
        }
    }

    /// Takes another MTU of the interface, in bytes behind Ethernet's header. Packets that are too long by now are sent again in pieces.
    ///
    /// # Errors
    /// [`ConfigError::Mtu`] if connections cannot live with it; the MTU stays as it is.
    pub fn set_mtu(&mut self, mtu: u16, now: Time) -> Result<(), ConfigError> {
        let config = &mut self.shared.config;
        let before = core::mem::replace(&mut config.mtu, mtu);
        if let Err(error) = config.check() {
            config.mtu = before;
            return Err(error);
        }
        let slots: alloc::vec::Vec<u32> = self.slots.iter().collect();
        for slot in slots {
            if let Some(connection) = self.slots.get_mut(slot) {
                connection.send.payload_max = connection.terms.peer_payload_max.min(self.shared.config.payload_max());
            }
            self.settle(slot, now);
        }
        Ok(())
    }

    /// The interface is gone, or cannot reach anybody any more: ends all connections, for [`Reason::Unreachable`].
    pub fn fail_all(&mut self, now: Time) {
        let slots: alloc::vec::Vec<u32> = self.slots.iter().collect();
        for slot in slots {
            self.end(slot, Reason::Unreachable);
            self.settle(slot, now);
        }
    }

    #[inline]
    fn connection(&self, id: ConnectionId) -> Result<&Connection, Error> {
        let slot = self.slots.find(id).ok_or(Error::Unknown)?;
        self.slots.get(slot).ok_or(Error::Unknown)
    }

    #[inline]
    fn connection_mut(&mut self, id: ConnectionId) -> Result<(&mut Connection, &mut Shared), Error> {
        let slot = self.slots.find(id).ok_or(Error::Unknown)?;
        let connection = self.slots.get_mut(slot).ok_or(Error::Unknown)?;
        Ok((connection, &mut self.shared))
    }

    /// After anything was done to a connection: gives it its turn to send, its deadline and its place among those with events, and
    /// forgets it if nothing is left of it.
    #[inline]
    fn settle(&mut self, slot: u32, now: Time) {
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        if connection.flags.is_orphan && matches!(connection.phase, Phase::Closed(_)) {
            self.forget_slot(slot);
            return;
        }
        connection.set_due(now, &self.shared.config.timing, &mut self.shared.counters);
        if !connection.flags.is_queued && connection.has_output() {
            connection.flags.is_queued = true;
            self.ready.push_back(slot);
        }
        let due = connection.due.first();
        if connection.events != 0 && !connection.flags.has_events {
            if connection.flags.is_orphan || connection.flags.is_incoming {
                connection.events = 0;
            } else {
                connection.flags.has_events = true;
                self.eventful.push_back(slot);
            }
        }
        self.timers.set_latest(slot, due);
    }

    /// Takes a connection out of all tables, and its memory back.
    fn forget_slot(&mut self, slot: u32) {
        self.unlist(slot);
        self.timers.remove(slot);
        if let Some(mut connection) = self.slots.remove(slot) {
            connection.clear(&mut self.shared);
        }
        // Queues may still name the slot: whoever takes it from there looks whether the connection has something.
    }

    /// Takes a connection out of the tables of those that packets are for.
    fn unlist(&mut self, slot: u32) {
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        if core::mem::take(&mut connection.flags.is_known) {
            self.table.remove(&connection.key(), slot);
        }
        self.syns.remove(&connection.listened_key(), slot);
        let (port, is_incoming) = (connection.ends.listened_port, connection.flags.is_incoming);
        if is_incoming {
            self.listeners.remove_slot(port, slot);
        }
    }

    /// A connection is over.
    fn end(&mut self, slot: u32, reason: Reason) {
        let Some(connection) = self.slots.get(slot) else {
            return;
        };
        if matches!(connection.phase, Phase::Closed(_)) {
            return;
        }
        self.unlist(slot);
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        connection.end(reason, &mut self.shared);
        // The program has not taken it from its listener, so it needs no event.
        connection.flags.is_orphan |= core::mem::take(&mut connection.flags.is_incoming);
    }

    fn answer(&mut self, answer: Answer) {
        if self.answers.len() >= self.shared.config.limits.answers {
            self.shared.counters.count(Counter::DropAnswers);
        } else {
            self.answers.push_back(answer);
        }
    }
}
