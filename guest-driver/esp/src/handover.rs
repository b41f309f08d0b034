//! A connection in transit from one engine to another.

use alloc::vec::Vec;

use ether::{MacAddr, Time};

use crate::{
    Address, BUFFER_MAX, PACKETS_MAX,
    connection::{
        Connection,
        congestion::Congestion,
        rtt::{ROUND_TRIP_MAX_NS, Rtt},
        send::{Fate, Fin, Sent},
        shared::Shared,
    },
    memory::Purpose,
    wire::Blocks,
};

const MAGIC: [u8; 4] = *b"ESPH";
const VERSION: u8 = 1;

/// Bytes that are no handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are no connection that was handed over")]
pub struct BadHandover;

/// A connection in transit from one engine to another of the same host: its numbers, and the bytes that were not acknowledged or not
/// read. As bytes, it can go through a socket or a file; they are checked when they are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    pub(crate) peer: Address,
    pub(crate) local_port: u16,
    pub(crate) listened_port: u16,
    /// The port before, if the peer does not know the last one.
    pub(crate) moving_from: Option<u16>,
    instance: u64,
    peer_instance: u64,
    agreed: Blocks,
    peer_payload_max: u16,
    pub(crate) receive_payload_max: u16,
    smoothed_ns: u64,
    variation_ns: u64,
    min_ns: u64,
    unacknowledged: u32,
    send_right: u32,
    /// Length, push and end of each packet that was sent and not acknowledged.
    sent: Vec<(u16, bool, bool)>,
    fin: Fin,
    closed_first: bool,
    /// Bytes to be sent that no packet has are all to go at once.
    is_pushed: bool,
    unsent: Vec<u8>,
    next: u32,
    receive_right: u32,
    partial: u16,
    peer_fin: Option<u32>,
    unread: Vec<u8>,
}

impl Handover {
    /// The peer's Ethernet address and port.
    pub const fn peer(&self) -> Address {
        self.peer
    }

    /// The port where the connection was.
    pub const fn local_port(&self) -> u16 {
        self.local_port
    }

    /// The port that the SYN was for.
    pub const fn listened_port(&self) -> u16 {
        self.listened_port
    }

    /// The number that names the connection on this side; no other has it.
    pub const fn instance(&self) -> u64 {
        self.instance
    }

    pub(crate) fn of(connection: &Connection) -> Self {
        let Connection { send, receive, rtt, .. } = connection;
        let collect = |(first, second): (&[u8], &[u8])| [first, second].concat();
        Self {
            peer: Address {
                mac: connection.ends.peer,
                port: connection.ends.peer_port,
            },
            local_port: connection.ends.local_port,
            listened_port: connection.ends.listened_port,
            moving_from: connection.ends.moving_from,
            instance: connection.terms.instance,
            peer_instance: connection.terms.peer_instance,
            agreed: connection.terms.blocks,
            peer_payload_max: connection.terms.peer_payload_max,
            receive_payload_max: receive.payload_max,
            smoothed_ns: rtt.smoothed_ns,
            variation_ns: rtt.variation_ns,
            min_ns: rtt.min_ns,
            unacknowledged: send.unacknowledged,
            send_right: send.right,
            sent: send.sent.iter().map(|sent| (sent.len, sent.push, sent.fin)).collect(),
            fin: send.fin,
            closed_first: connection.flags.closed_first,
            is_pushed: !send.is_waiting_for_more(),
            unsent: collect(send.ring.slices(0, usize::MAX)),
            next: receive.next,
            receive_right: receive.right,
            partial: receive.partial,
            peer_fin: receive.fin,
            unread: collect(receive.ring.slices(0, usize::MAX)),
        }
    }

    /// Makes `connection` the one that was handed over; false without memory.
    pub(crate) fn fill(&self, connection: &mut Connection, shared: &mut Shared) -> bool {
        let Connection { send, receive, .. } = connection;
        connection.ends.listened_port = self.listened_port;
        connection.terms.instance = self.instance;
        connection.terms.peer_instance = self.peer_instance;
        connection.terms.blocks = self.agreed;
        connection.terms.peer_payload_max = self.peer_payload_max;
        connection.flags.closed_first = self.closed_first;
        connection.rtt = Rtt {
            smoothed_ns: self.smoothed_ns,
            variation_ns: self.variation_ns,
            min_ns: self.min_ns,
            backoff: 0,
        };
        send.unacknowledged = self.unacknowledged;
        send.next = self.unacknowledged.wrapping_add(self.sent.len() as u32);
        send.right = self.send_right;
        send.fin = self.fin;
        send.congestion = Congestion::default();
        let mut position = 0u32;
        send.restore(self.sent.iter().map(|(len, push, fin)| {
            let sent = Sent {
                position,
                len: *len,
                push: *push,
                fin: *fin,
                fate: Fate::Lost,
                is_repeated: true,
                sent_at: Time::ZERO,
            };
            position = position.wrapping_add(u32::from(*len));
            sent
        }));
        send.cut = position;
        if !self.unsent.is_empty() && !send.ring.push(&self.unsent, Purpose::Read, &mut shared.memory) {
            return false;
        }
        if self.is_pushed {
            send.push_all();
        }
        receive.next = self.next;
        receive.right = self.receive_right;
        receive.partial = self.partial;
        receive.fin = self.peer_fin;
        self.unread.is_empty() || receive.ring.push(&self.unread, Purpose::Read, &mut shared.memory)
    }

    /// The connection as bytes, for [`from_bytes`](Self::from_bytes) of the same version.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(160 + 3 * self.sent.len() + self.unsent.len() + self.unread.len());
        let mut put = |part: &[u8]| bytes.extend_from_slice(part);
        put(&MAGIC);
        put(&[VERSION]);
        put(&self.peer.mac.0);
        let ports = [
            self.peer.port,
            self.local_port,
            self.listened_port,
            self.moving_from.unwrap_or(0),
            self.peer_payload_max,
            self.receive_payload_max,
            self.partial,
        ];
        ports.iter().for_each(|word| put(&word.to_be_bytes()));
        let words = [
            self.instance,
            self.peer_instance,
            self.smoothed_ns,
            self.variation_ns,
            self.min_ns,
        ];
        words.iter().for_each(|word| put(&word.to_be_bytes()));
        let numbers = [
            self.unacknowledged,
            self.send_right,
            self.next,
            self.receive_right,
            self.peer_fin.unwrap_or(0),
            self.sent.len() as u32,
            self.unsent.len() as u32,
            self.unread.len() as u32,
        ];
        numbers.iter().for_each(|word| put(&word.to_be_bytes()));
        put(&[
            u8::from(self.agreed.selective),
            u8::from(self.agreed.mark),
            u8::from(self.agreed.check),
            self.fin as u8,
            u8::from(self.closed_first),
            u8::from(self.is_pushed),
            u8::from(self.peer_fin.is_some()),
        ]);
        for (len, push, fin) in &self.sent {
            put(&len.to_be_bytes());
            put(&[u8::from(*push) | u8::from(*fin) << 1]);
        }
        put(&self.unsent);
        put(&self.unread);
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) made.
    ///
    /// # Errors
    /// [`BadHandover`] if the bytes are no connection that an engine could have had.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadHandover> {
        let mut reader = Reader(bytes);
        if reader.array()? != MAGIC || reader.array()? != [VERSION] {
            return Err(BadHandover);
        }
        let mac = MacAddr(reader.array()?);
        let [
            peer_port,
            local_port,
            listened_port,
            moving_from,
            peer_payload_max,
            receive_payload_max,
            partial,
        ] = reader.words(u16::from_be_bytes)?;
        let [instance, peer_instance, smoothed_ns, variation_ns, min_ns] = reader.words(u64::from_be_bytes)?;
        let [
            unacknowledged,
            send_right,
            next,
            receive_right,
            peer_fin,
            sent_len,
            unsent_len,
            unread_len,
        ] = reader.words(u32::from_be_bytes)?;
        let [selective, mark, check, fin, closed_first, is_pushed, has_peer_fin] = reader.array()?;
        if sent_len > PACKETS_MAX + 1 || unsent_len > BUFFER_MAX || unread_len > BUFFER_MAX {
            return Err(BadHandover);
        }
        let sent = reader.sent(sent_len)?;
        let handover = Self {
            peer: Address { mac, port: peer_port },
            local_port,
            listened_port,
            moving_from: (moving_from != 0).then_some(moving_from),
            instance,
            peer_instance,
            agreed: Blocks {
                selective: boolean(selective)?,
                mark: boolean(mark)?,
                check: boolean(check)?,
            },
            peer_payload_max,
            receive_payload_max,
            smoothed_ns,
            variation_ns,
            min_ns,
            unacknowledged,
            send_right,
            sent,
            fin: fin_of(fin)?,
            closed_first: boolean(closed_first)?,
            is_pushed: boolean(is_pushed)?,
            unsent: reader.take(unsent_len)?.into(),
            next,
            receive_right,
            partial,
            peer_fin: boolean(has_peer_fin)?.then_some(peer_fin),
            unread: reader.take(unread_len)?.into(),
        };
        let is_right = reader.0.is_empty() && handover.is_possible();
        is_right.then_some(handover).ok_or(BadHandover)
    }

    /// Whether an engine could have had this connection.
    fn is_possible(&self) -> bool {
        let ports = [
            self.peer.port,
            self.local_port,
            self.peer_payload_max,
            self.receive_payload_max,
        ];
        let cut: usize = self.sent.iter().map(|(len, ..)| usize::from(*len)).sum();
        let fins = self.sent.iter().filter(|(.., fin)| *fin).count();
        let fin_at_end = self.sent.last().is_some_and(|(len, _, fin)| *fin && *len == 0);
        let is_fin_right = match self.fin {
            Fin::No | Fin::Wanted => fins == 0,
            Fin::Sent => fins == 1 && fin_at_end && cut == self.unsent.len(),
            Fin::Acknowledged => self.sent.is_empty() && self.unsent.is_empty(),
        };
        let has_data = self.sent.iter().all(|(len, _, fin)| *fin || *len > 0);
        let window = self.receive_right.wrapping_sub(self.next);
        let send_window = self.send_right.wrapping_sub(self.unacknowledged);
        let peer_fin_at = self.peer_fin.map(|fin| fin.wrapping_sub(self.next).wrapping_add(1));
        let round_trips = [self.smoothed_ns, self.variation_ns, self.min_ns];
        !self.peer.mac.is_multicast()
            && round_trips.iter().all(|ns| *ns <= ROUND_TRIP_MAX_NS)
            && ports.iter().all(|port| *port != 0)
            && cut <= self.unsent.len()
            && is_fin_right
            && has_data
            && (window <= PACKETS_MAX || window == u32::MAX)
            && send_window.wrapping_add(1) <= PACKETS_MAX + 1
            && peer_fin_at.is_none_or(|at| at <= PACKETS_MAX + 1)
            && self.partial < self.receive_payload_max
    }
}

fn boolean(byte: u8) -> Result<bool, BadHandover> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(BadHandover),
    }
}

fn fin_of(byte: u8) -> Result<Fin, BadHandover> {
    let all = [Fin::No, Fin::Wanted, Fin::Sent, Fin::Acknowledged];
    all.into_iter().find(|fin| *fin as u8 == byte).ok_or(BadHandover)
}

/// Reads fields one after the other.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: u32) -> Result<&'a [u8], BadHandover> {
        let (taken, rest) = self.0.split_at_checked(len as usize).ok_or(BadHandover)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], BadHandover> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(BadHandover)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// Length, push and end of so many packets.
    fn sent(&mut self, count: u32) -> Result<Vec<(u16, bool, bool)>, BadHandover> {
        let packet = |[high, low, flags]: [u8; 3]| (u16::from_be_bytes([high, low]), flags & 1 != 0, flags & 2 != 0);
        (0..count).map(|_| self.array().map(packet)).collect()
    }

    fn words<Word: Copy + Default, const LEN: usize, const COUNT: usize>(
        &mut self,
        of: fn([u8; LEN]) -> Word,
    ) -> Result<[Word; COUNT], BadHandover> {
        let mut words = [Word::default(); COUNT];
        for word in &mut words {
            *word = of(self.array()?);
        }
        Ok(words)
    }
}
