//! The peer table of an interface as an engine sees it: index ↔ address, and the index of this host in each peer's
//! table. The caller fills it.

use alloc::vec::Vec;

use ether::MacAddr;
use hashbrown::HashMap;

use super::{HandedPartner, PartnerId, Seq, hash::Keyed};
use crate::wire::PEER_INDEX_UNKNOWN;

/// A peer table. One authority per interface hands out the indices; an endpoint's engine looks them up.
pub trait Peers {
    /// Returns the address of the peer with this index.
    fn mac(&self, index: u16) -> Option<MacAddr>;

    /// Returns the index of the peer with this address.
    fn index(&self, mac: MacAddr) -> Option<u16>;

    /// As [`Peers::index`], but adds a peer that announced itself by a valid CONNECT or query. `None` if the table is
    /// full or static: the peer's packet is dropped.
    fn index_or_add(&mut self, mac: MacAddr) -> Option<u16>;

    /// Returns the index of this host in that peer's table; [`PEER_INDEX_UNKNOWN`] before the peer told it.
    fn reverse(&self, index: u16) -> u16;

    /// Notes the index of this host in that peer's table.
    fn set_reverse(&mut self, index: u16, reverse: u16);

    /// Notes, where the authority sees it, a conversation that has begun with a partner, or `None` if one has ended. If the program
    /// ends without a word, the authority makes a [`super::Handover`] of what was noted.
    fn note_partner(&mut self, partner: PartnerId, about: Option<&HandedPartner>) {
        let _ = (partner, about);
    }

    /// Notes there that all messages of a partner before `expected` were received.
    #[inline]
    fn note_received(&mut self, partner: PartnerId, expected: Seq) {
        let _ = (partner, expected);
    }

    /// Notes there that all messages to a partner before `first` are acknowledged.
    #[inline]
    fn note_acknowledged(&mut self, partner: PartnerId, first: Seq) {
        let _ = (partner, first);
    }

    /// Notes there the word to a partner that its large message of this region and use is over.
    fn note_notify(&mut self, partner: PartnerId, seq: Seq, region: [u8; 2], transferred: u32) {
        let _ = (partner, seq, region, transferred);
    }
}

/// A peer table in plain memory.
#[derive(Debug)]
pub struct PeerMap {
    slots: Vec<(MacAddr, u16)>,
    by_mac: HashMap<MacAddr, u16, Keyed>,
    limit: u32,
    grows: bool,
}

/// The default size of a table (1.3).
pub const PEERS_DEFAULT: u32 = 1024;
/// The greatest size of a table (1.3).
pub const PEERS_MAX: u32 = 65_535;

impl PeerMap {
    /// Makes an empty table of at most `limit` peers (65535 at most), to which peers add themselves by a CONNECT or
    /// query.
    pub fn new(limit: u32, seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            by_mac: HashMap::with_hasher(Keyed::new(seed)),
            limit: limit.min(PEERS_MAX),
            grows: true,
        }
    }

    /// Makes the table static: only [`PeerMap::add`] adds peers (`--static-peers`).
    #[must_use]
    pub const fn fixed(mut self) -> Self {
        self.grows = false;
        self
    }

    /// Adds a peer, or finds it. `None` if the table is full.
    pub fn add(&mut self, mac: MacAddr) -> Option<u16> {
        if let Some(index) = self.by_mac.get(&mac) {
            return Some(*index);
        }
        if self.slots.len() as u32 >= self.limit {
            return None;
        }
        let index = self.slots.len() as u16;
        self.slots.push((mac, PEER_INDEX_UNKNOWN));
        self.by_mac.insert(mac, index);
        Some(index)
    }

    /// Returns the number of peers in the table.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

impl Peers for PeerMap {
    #[inline]
    fn mac(&self, index: u16) -> Option<MacAddr> {
        self.slots.get(usize::from(index)).map(|slot| slot.0)
    }

    fn index(&self, mac: MacAddr) -> Option<u16> {
        self.by_mac.get(&mac).copied()
    }

    fn index_or_add(&mut self, mac: MacAddr) -> Option<u16> {
        if self.grows { self.add(mac) } else { self.index(mac) }
    }

    #[inline]
    fn reverse(&self, index: u16) -> u16 {
        self.slots
            .get(usize::from(index))
            .map_or(PEER_INDEX_UNKNOWN, |slot| slot.1)
    }

    fn set_reverse(&mut self, index: u16, reverse: u16) {
        if let Some(slot) = self.slots.get_mut(usize::from(index)) {
            slot.1 = reverse;
        }
    }
}
