//! The peer table of an endpoint: the one that the authority shares, with what this endpoint learned itself on top. Only the
//! authority adds peers.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use ether::{MacAddr, Time};
use mxoe::{
    engine::{HandedPartner, PartnerId, PeerMap, Peers, Seq},
    wire::PEER_INDEX_UNKNOWN,
};
use weft_authority::{DirectLimit, HandoverMemory, PeerTable, Session};

/// What a peer told this endpoint, and what the shared table said then: a newer word there counts more.
#[derive(Clone, Copy, Debug)]
struct Learned {
    reverse: u16,
    shared_then: u16,
}

pub(crate) struct SharedPeers {
    table: PeerTable,
    session: Arc<Mutex<Session>>,
    direct: DirectLimit,
    by_mac: HashMap<MacAddr, u16>,
    learned: Vec<Option<Learned>>,
    /// Where the authority finds what is owed when the program has ended.
    owed: Option<HandoverMemory>,
}

impl SharedPeers {
    pub(crate) fn new(table: PeerTable, session: Arc<Mutex<Session>>) -> Self {
        Self {
            table,
            session,
            direct: DirectLimit::default(),
            by_mac: HashMap::new(),
            learned: Vec::new(),
            owed: None,
        }
    }

    fn find(&self, mac: MacAddr) -> Option<u16> {
        self.by_mac
            .get(&mac)
            .copied()
            // Added since: there are few, and each is looked for once.
            .or_else(|| (0..self.table.len()).find(|index| self.table.mac(*index) == Some(mac)))
    }
}

/// The peers of an endpoint.
pub(crate) enum EndpointPeers {
    /// Of an interface with an authority.
    Shared(SharedPeers),
    /// Of a port without one: inside one process.
    Own(PeerMap),
}

impl EndpointPeers {
    /// Returns the longest frame that may use direct transmit now, as the authority says; 0 if none may.
    #[inline]
    pub(crate) fn direct_frame_len_max(&mut self, now: Time) -> usize {
        match self {
            Self::Shared(peers) => peers.direct.frame_len_max(&peers.table, now),
            Self::Own(_) => 0,
        }
    }

    /// Has what is owed noted here from now on.
    pub(crate) fn note_in(&mut self, memory: Option<HandoverMemory>) {
        if let Self::Shared(peers) = self {
            peers.owed = memory;
        }
    }

    /// Returns the memory where what is owed is noted, if the authority can do with it.
    #[inline]
    pub(crate) const fn owed(&mut self) -> Option<&mut HandoverMemory> {
        match self {
            Self::Shared(peers) => peers.owed.as_mut(),
            Self::Own(_) => None,
        }
    }
}

impl Peers for EndpointPeers {
    #[inline]
    fn mac(&self, index: u16) -> Option<MacAddr> {
        match self {
            Self::Shared(peers) => peers.table.mac(index),
            Self::Own(peers) => peers.mac(index),
        }
    }

    fn index(&self, mac: MacAddr) -> Option<u16> {
        match self {
            Self::Shared(peers) => peers.find(mac),
            Self::Own(peers) => peers.index(mac),
        }
    }

    fn index_or_add(&mut self, mac: MacAddr) -> Option<u16> {
        let peers = match self {
            Self::Shared(peers) => peers,
            Self::Own(peers) => return peers.index_or_add(mac),
        };
        if let Some(index) = peers.find(mac) {
            peers.by_mac.insert(mac, index);
            return Some(index);
        }
        // Busy: the connection is being made anew. What needs the peer comes again in half a second.
        let index = peers.session.try_lock().ok()?.try_add_peer(mac).ok()?;
        (peers.table.mac(index) == Some(mac)).then_some(index)
    }

    #[inline]
    fn reverse(&self, index: u16) -> u16 {
        match self {
            Self::Shared(peers) => {
                let shared = peers.table.reverse(index);
                match peers.learned.get(usize::from(index)) {
                    Some(Some(learned)) if learned.shared_then == shared => learned.reverse,
                    _ => shared,
                }
            }
            Self::Own(peers) => peers.reverse(index),
        }
    }

    fn set_reverse(&mut self, index: u16, reverse: u16) {
        match self {
            Self::Shared(peers) => {
                if reverse == PEER_INDEX_UNKNOWN || peers.table.mac(index).is_none() {
                    return;
                }
                let at = usize::from(index);
                if peers.learned.len() <= at {
                    peers.learned.resize(at + 1, None);
                }
                peers.learned[at] = Some(Learned {
                    reverse,
                    shared_then: peers.table.reverse(index),
                });
            }
            Self::Own(peers) => peers.set_reverse(index, reverse),
        }
    }

    fn note_partner(&mut self, partner: PartnerId, about: Option<&HandedPartner>) {
        match (self.owed(), about) {
            (Some(owed), Some(about)) => owed.note_partner(partner.index(), about),
            (Some(owed), None) => owed.forget_partner(partner.index()),
            (None, _) => {}
        }
    }

    #[inline]
    fn note_received(&mut self, partner: PartnerId, expected: Seq) {
        if let Some(owed) = self.owed() {
            owed.note_received(partner.index(), expected);
        }
    }

    #[inline]
    fn note_acknowledged(&mut self, partner: PartnerId, first: Seq) {
        if let Some(owed) = self.owed() {
            owed.note_acknowledged(partner.index(), first);
        }
    }

    fn note_notify(&mut self, partner: PartnerId, seq: Seq, region: [u8; 2], transferred: u32) {
        if let Some(owed) = self.owed() {
            owed.note_notify(partner.index(), seq, region, transferred);
        }
    }
}
