//! What a closed endpoint still owes to its peers, in transit from its engine to another one that pays it: acknowledgements, messages
//! that no peer has acknowledged, and the bytes of those that are announced. As bytes, it goes through memory that programs share; it
//! is checked when it is read.

use alloc::vec::Vec;

use ether::MacAddr;

use super::Seq;
use crate::wire::{SESSION_NONE, SMALL_DATA_MAX};

const MAGIC: [u8; 4] = *b"MXOH";
const VERSION: u8 = 1;
/// More partners than an endpoint remembers.
const PARTNERS_MAX: u32 = 65_536;
/// More messages than an endpoint sends at once.
const MESSAGES_MAX: u32 = 1 << 18;
/// At most this many numbers are unacknowledged (7.1).
const REACH_MAX: u16 = 8191;

/// Bytes that are no handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are no endpoint that was handed over")]
pub struct BadHandover;

/// A closed endpoint in transit from its engine to one that finishes for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The number that the endpoint had.
    pub endpoint: u8,
    /// Its session.
    pub session: u32,
    pub(crate) partners: Vec<HandedPartner>,
    pub(crate) messages: Vec<HandedMessage>,
}

/// A partner of a closed endpoint, and the numbers of the conversation with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandedPartner {
    /// The address of its board.
    pub mac: MacAddr,
    /// Its endpoint number.
    pub endpoint: u8,
    /// The index of its board in the interface's peer table.
    pub peer: u16,
    /// The index of this host in that board's table.
    pub reverse: u16,
    /// Its session.
    pub session: u32,
    /// It gets latency marks.
    pub marks: bool,
    /// Both ends acknowledge within 1 ms.
    pub short_acks: bool,
    /// It announced no extension.
    pub is_foreign: bool,
    /// The oldest number of its messages that was not completely received.
    pub expected: Seq,
    /// The number of the next message to it.
    pub next: Seq,
    /// The oldest number that it has not acknowledged.
    pub unacked_first: Seq,
    /// Packets to it that carried only an acknowledgement.
    pub acks_sent: u32,
    /// The number of the newest packet of its own that carried only an acknowledgement.
    pub acks_heard: u32,
}

/// The kind of a message that a closed endpoint has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandedKind {
    /// Up to 128 bytes.
    Short,
    Medium,
    Large {
        region: u8,
        use_counter: u8,
        /// The announcement was acknowledged.
        acknowledged: bool,
    },
    /// `length` says how much was transferred.
    Notify {
        rdma_id: u8,
        rdma_seqnum: u8,
    },
}

impl HandedKind {
    const fn code(self) -> [u8; 4] {
        match self {
            Self::Short => [0, 0, 0, 0],
            Self::Medium => [1, 0, 0, 0],
            Self::Large {
                region,
                use_counter,
                acknowledged,
            } => [2, region, use_counter, acknowledged as u8],
            Self::Notify { rdma_id, rdma_seqnum } => [3, rdma_id, rdma_seqnum, 0],
        }
    }

    const fn of_code(code: [u8; 4]) -> Option<Self> {
        Some(match code {
            [0, 0, 0, 0] => Self::Short,
            [1, 0, 0, 0] => Self::Medium,
            [2, region, use_counter, acknowledged @ 0..=1] => Self::Large {
                region,
                use_counter,
                acknowledged: acknowledged == 1,
            },
            [3, rdma_id, rdma_seqnum, 0] => Self::Notify { rdma_id, rdma_seqnum },
            _ => return None,
        })
    }
}

/// A message that its receiver may not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HandedMessage {
    /// The place of its receiver among the partners.
    pub partner: u32,
    pub seq: Seq,
    pub kind: HandedKind,
    pub match_info: u64,
    pub length: u32,
    /// All bytes of the message; none for a NOTIFY.
    pub data: Vec<u8>,
}

impl Handover {
    /// Makes an endpoint that owes nothing.
    pub const fn new(endpoint: u8, session: u32) -> Self {
        Self {
            endpoint,
            session,
            partners: Vec::new(),
            messages: Vec::new(),
        }
    }

    /// Whether nothing is owed to anybody.
    pub const fn is_empty(&self) -> bool {
        self.partners.is_empty()
    }

    /// Adds a partner.
    pub fn add_partner(&mut self, partner: HandedPartner) {
        self.partners.push(partner);
    }

    /// Adds the word that a large message of the partner added last is over, which this partner may not have.
    pub fn add_notify(&mut self, seq: Seq, rdma_id: u8, rdma_seqnum: u8, transferred: u32) {
        let Some(partner) = self.partners.len().checked_sub(1) else {
            return;
        };
        self.messages.push(HandedMessage {
            partner: partner as u32,
            seq,
            kind: HandedKind::Notify { rdma_id, rdma_seqnum },
            match_info: 0,
            length: transferred,
            data: Vec::new(),
        });
    }

    /// Returns the endpoint as bytes, for [`from_bytes`](Self::from_bytes) of the same version.
    pub fn to_bytes(&self) -> Vec<u8> {
        let data: usize = self.messages.iter().map(|message| message.data.len()).sum();
        let mut bytes = Vec::with_capacity(32 + 40 * self.partners.len() + 32 * self.messages.len() + data);
        let mut put = |part: &[u8]| bytes.extend_from_slice(part);
        put(&MAGIC);
        put(&[VERSION, self.endpoint]);
        put(&self.session.to_be_bytes());
        put(&(self.partners.len() as u32).to_be_bytes());
        put(&(self.messages.len() as u32).to_be_bytes());
        for partner in &self.partners {
            put(&partner.mac.0);
            put(&[
                partner.endpoint,
                u8::from(partner.marks) | u8::from(partner.short_acks) << 1 | u8::from(partner.is_foreign) << 2,
            ]);
            let words = [
                partner.peer,
                partner.reverse,
                partner.expected.0,
                partner.next.0,
                partner.unacked_first.0,
            ];
            words.iter().for_each(|word| put(&word.to_be_bytes()));
            let numbers = [partner.session, partner.acks_sent, partner.acks_heard];
            numbers.iter().for_each(|number| put(&number.to_be_bytes()));
        }
        for message in &self.messages {
            put(&message.partner.to_be_bytes());
            put(&message.seq.0.to_be_bytes());
            put(&message.kind.code());
            put(&message.match_info.to_be_bytes());
            put(&message.length.to_be_bytes());
            put(&(message.data.len() as u32).to_be_bytes());
            put(&message.data);
        }
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) made.
    ///
    /// # Errors
    /// [`BadHandover`] if the bytes are no endpoint that an engine could have had.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadHandover> {
        let mut reader = Reader(bytes);
        if reader.array()? != MAGIC || reader.array()? != [VERSION] {
            return Err(BadHandover);
        }
        let [endpoint] = reader.array()?;
        let [session, partners, messages] = reader.numbers()?;
        if partners > PARTNERS_MAX || messages > MESSAGES_MAX {
            return Err(BadHandover);
        }
        let mut handover = Self::new(endpoint, session);
        for _ in 0..partners {
            handover.partners.push(reader.partner()?);
        }
        for _ in 0..messages {
            handover.messages.push(reader.message()?);
        }
        (reader.0.is_empty() && handover.is_possible())
            .then_some(handover)
            .ok_or(BadHandover)
    }

    /// Whether an engine could have had this endpoint.
    pub(crate) fn is_possible(&self) -> bool {
        self.session != SESSION_NONE && self.partners.iter().all(HandedPartner::is_possible) && {
            // In the order of their numbers, each once for a partner; announced ones may be acknowledged.
            let mut last: Vec<Option<Seq>> = alloc::vec![None; self.partners.len()];
            self.messages.iter().all(|message| {
                let at = message.partner as usize;
                let Some(partner) = self.partners.get(at) else {
                    return false;
                };
                message.has_its_bytes() && (message.is_acknowledged() || message.follows(&mut last[at], partner))
            })
        }
    }
}

impl HandedPartner {
    fn is_possible(&self) -> bool {
        !self.mac.is_multicast()
            && self.session != SESSION_NONE
            && self.next.same_session(self.unacked_first)
            && self.next.since(self.unacked_first) <= REACH_MAX
    }
}

impl HandedMessage {
    pub(crate) const fn is_acknowledged(&self) -> bool {
        matches!(self.kind, HandedKind::Large { acknowledged: true, .. })
    }

    const fn has_its_bytes(&self) -> bool {
        match self.kind {
            HandedKind::Short => self.length as usize <= SMALL_DATA_MAX && self.data.len() == self.length as usize,
            HandedKind::Medium => self.length > 0 && self.data.len() == self.length as usize,
            HandedKind::Large { .. } => self.data.len() == self.length as usize,
            HandedKind::Notify { .. } => self.data.is_empty(),
        }
    }

    /// Whether its number is one that the partner has not acknowledged, behind the last one.
    const fn follows(&self, last: &mut Option<Seq>, partner: &HandedPartner) -> bool {
        let reach = partner.next.since(partner.unacked_first);
        let at = self.seq.since(partner.unacked_first);
        let is_later = match last.replace(self.seq) {
            Some(before) => before.since(partner.unacked_first) < at,
            None => true,
        };
        is_later && at < reach && self.seq.same_session(partner.next)
    }
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

    fn numbers<const COUNT: usize>(&mut self) -> Result<[u32; COUNT], BadHandover> {
        let mut numbers = [0; COUNT];
        for number in &mut numbers {
            *number = u32::from_be_bytes(self.array()?);
        }
        Ok(numbers)
    }

    fn words<const COUNT: usize>(&mut self) -> Result<[u16; COUNT], BadHandover> {
        let mut words = [0; COUNT];
        for word in &mut words {
            *word = u16::from_be_bytes(self.array()?);
        }
        Ok(words)
    }

    fn partner(&mut self) -> Result<HandedPartner, BadHandover> {
        let mac = MacAddr(self.array()?);
        let [endpoint, flags] = self.array()?;
        let [peer, reverse, expected, next, unacked_first] = self.words()?;
        let [session, acks_sent, acks_heard] = self.numbers()?;
        if flags > 7 {
            return Err(BadHandover);
        }
        Ok(HandedPartner {
            mac,
            endpoint,
            peer,
            reverse,
            session,
            marks: flags & 1 != 0,
            short_acks: flags & 2 != 0,
            is_foreign: flags & 4 != 0,
            expected: Seq(expected),
            next: Seq(next),
            unacked_first: Seq(unacked_first),
            acks_sent,
            acks_heard,
        })
    }

    fn message(&mut self) -> Result<HandedMessage, BadHandover> {
        let [partner] = self.numbers()?;
        let [seq] = self.words()?;
        let kind = HandedKind::of_code(self.array()?).ok_or(BadHandover)?;
        let match_info = u64::from_be_bytes(self.array()?);
        let [length, data_len] = self.numbers()?;
        Ok(HandedMessage {
            partner,
            seq: Seq(seq),
            kind,
            match_info,
            length,
            data: self.take(data_len)?.into(),
        })
    }
}
