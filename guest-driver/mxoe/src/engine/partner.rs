//! The remote endpoints that an endpoint knows, with the state that each part of the engine keeps of them (4.2).

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use ether::MacAddr;
use hashbrown::HashMap;

use super::{
    connection::{acknowledge::AckSchedule, conversation::Conversation, receive::ReceiveState, transmit::SendState},
    hash::Keyed,
    seq::Seq,
    transfers::path::TransferPath,
};
use crate::source_key::SourceKey;

/// The address of a remote endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartnerAddress {
    pub mac: MacAddr,
    pub endpoint: u8,
    /// The index of the endpoint's peer in our table.
    pub peer: u16,
}

impl PartnerAddress {
    /// Returns the endpoint as matching tells it from others.
    #[inline]
    pub(super) const fn source_key(&self) -> SourceKey {
        SourceKey::new(self.mac, self.endpoint)
    }
}

/// One remote endpoint. It has a record for each part of the engine, which only that part reads.
#[derive(Debug)]
pub(super) struct Partner {
    pub address: PartnerAddress,
    pub conversation: Conversation,
    pub send: SendState,
    pub receive: ReceiveState,
    pub acks: AckSchedule,
    pub path: TransferPath,
}

impl Partner {
    const fn new(address: PartnerAddress) -> Self {
        Self {
            address,
            conversation: Conversation::NONE,
            send: SendState::NEW,
            receive: ReceiveState::NEW,
            acks: AckSchedule::NEW,
            path: TransferPath::NEW,
        }
    }

    /// Returns how many complete messages were not acknowledged yet.
    pub(super) const fn ack_pending(&self) -> u16 {
        self.acks.pending(self.receive.expected())
    }

    /// Sets the receive numbers; nothing is partly received then.
    pub(super) const fn restart_receiving(&mut self, at: Seq) {
        self.receive.restart(at);
        self.acks.restart(at);
    }

    /// Whether this is its address.
    #[inline]
    pub(super) fn is_at(&self, mac: MacAddr, endpoint: u8) -> bool {
        self.address.mac == mac && self.address.endpoint == endpoint
    }
}

/// Packs the address of a remote endpoint into one word.
const fn word_of(mac: MacAddr, endpoint: u8) -> u64 {
    mac.to_u64() << 8 | endpoint as u64
}

/// The remote endpoints that an endpoint knows. A slot names one for as long as the engine lives.
#[derive(Debug)]
pub(super) struct Partners {
    list: Vec<Partner>,
    by_address: HashMap<u64, u32, Keyed>,
    /// The slot that was found last: frames come in trains.
    last: u32,
    limit: usize,
}

impl Partners {
    pub(super) fn new(limit: u32, seed: u64) -> Self {
        Self {
            list: Vec::new(),
            by_address: HashMap::with_hasher(Keyed::new(seed)),
            last: 0,
            limit: limit as usize,
        }
    }

    /// Returns the number of remote endpoints.
    #[inline]
    pub(super) const fn len(&self) -> u32 {
        self.list.len() as u32
    }

    /// Returns the remote endpoint in this slot.
    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&Partner> {
        self.list.get(slot as usize)
    }

    /// Returns the remote endpoint that was found last, and its slot.
    #[inline]
    pub(super) fn last(&self) -> Option<(u32, &Partner)> {
        Some((self.last, self.list.get(self.last as usize)?))
    }

    /// Returns all remote endpoints.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Partner> {
        self.list.iter()
    }

    /// Finds a remote endpoint.
    #[inline]
    pub(super) fn find(&mut self, mac: MacAddr, endpoint: u8) -> Option<u32> {
        if let Some((slot, last)) = self.last()
            && last.is_at(mac, endpoint)
        {
            return Some(slot);
        }
        let found = self.by_address.get(&word_of(mac, endpoint)).copied()?;
        self.last = found;
        Some(found)
    }

    /// Finds or makes a remote endpoint; `None` at the limit.
    pub(super) fn find_or_add(&mut self, address: PartnerAddress) -> Option<u32> {
        if let Some(found) = self.find(address.mac, address.endpoint) {
            self[found].address.peer = address.peer;
            return Some(found);
        }
        if self.list.len() >= self.limit {
            return None;
        }
        let slot = self.len();
        self.list.push(Partner::new(address));
        self.by_address.insert(word_of(address.mac, address.endpoint), slot);
        Some(slot)
    }

    /// Returns the memory in use, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.list.capacity() * size_of::<Partner>() + self.by_address.allocation_size()
    }
}

impl Index<u32> for Partners {
    type Output = Partner;

    #[inline]
    fn index(&self, slot: u32) -> &Partner {
        &self.list[slot as usize]
    }
}

impl IndexMut<u32> for Partners {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut Partner {
        &mut self.list[slot as usize]
    }
}
