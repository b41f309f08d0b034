//! Board announcements (9.2): this board's on a schedule, others' into the peer table. And the queue of RAW frames
//! (9.1).

use alloc::vec::Vec;

use ether::{MacAddr, Time};

use super::{Authority, AuthorityEvent, Counter, Head, Peers, RAW_QUEUE_MAX};
use crate::wire::Announcement;

/// This many announcements are made at the start, and whenever a board is new.
const QUICK: u8 = 8;
/// The interval between these announcements.
const QUICK_NS: u64 = 1_000_000_000;
/// The interval between later announcements.
const SLOW_NS: u64 = 180_000_000_000;

/// The schedule of announcements, and the boards that were seen.
#[derive(Debug)]
pub(super) struct Discovery {
    serial: u32,
    quick_left: u8,
    at: Time,
    /// The serial numbers of the boards, by peer index.
    serials: Vec<Option<u32>>,
}

impl Discovery {
    pub(super) const OFF: Self = Self {
        serial: 0,
        quick_left: 0,
        at: Time::MAX,
        serials: Vec::new(),
    };

    pub(super) fn start(&mut self, now: Time, serial: u32) {
        self.serial = serial;
        self.quick_left = QUICK;
        self.at = now;
    }

    pub(super) const fn due(&self) -> Time {
        self.at
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.at <= now && self.at != Time::MAX
    }

    pub(super) fn announced(&mut self, now: Time) {
        self.quick_left = self.quick_left.saturating_sub(1);
        let wait_ns = if self.quick_left > 0 { QUICK_NS } else { SLOW_NS };
        self.at = now.plus_nanos(wait_ns);
    }

    pub(super) fn announcement(&self, mac: MacAddr) -> Announcement {
        Announcement {
            board: mac.to_u64(),
            serial: self.serial,
        }
    }

    /// Notes that a board was seen, and returns whether it is new or has started anew.
    fn seen(&mut self, now: Time, peer: u16, serial: u32) -> bool {
        let place = usize::from(peer);
        if self.serials.len() <= place {
            self.serials.resize(place + 1, None);
        }
        if self.serials[place].replace(serial) == Some(serial) {
            return false;
        }
        self.quick_left = QUICK;
        self.at = self.at.min(now.plus_nanos(QUICK_NS));
        true
    }
}

impl Authority {
    pub(super) fn handle_raw<P: Peers>(&mut self, now: Time, frame: &[u8], head: &Head, payload: &[u8], peers: &mut P) {
        let discovers = self.discovery.due() != Time::MAX && head.dst == MacAddr::BROADCAST;
        let taken = discovers && self.handle_announcement(now, payload, peers);
        if taken && !self.raw_open {
            return;
        }
        if !self.raw_open || self.raw.len() >= RAW_QUEUE_MAX {
            self.counters.count(Counter::DropRawQueueFull);
            return;
        }
        self.counters.count(Counter::RecvRaw);
        self.raw.push_back(frame.into());
    }

    /// Whether it was an announcement.
    fn handle_announcement<P: Peers>(&mut self, now: Time, payload: &[u8], peers: &mut P) -> bool {
        let Some(announcement) = Announcement::from_payload(payload) else {
            return false;
        };
        let zeros = payload.iter().take(ANNOUNCEMENT_ZEROS).all(|byte| *byte == 0);
        let [.., a, b, c, d, e, f] = announcement.board.to_be_bytes();
        let mac = MacAddr([a, b, c, d, e, f]);
        if !zeros || a & 1 != 0 || announcement.board == 0 {
            return false;
        }
        if mac == self.config.mac {
            return true;
        }
        let known = peers.index(mac).is_some();
        let Some(peer) = peers.index_or_add(mac) else {
            self.counters.count(Counter::DropBadPeerAddr);
            return true;
        };
        if !known {
            self.counters.count(Counter::PeersAdded);
            self.peer_added(now, peer);
        }
        if self.discovery.seen(now, peer, announcement.serial) {
            if known {
                self.peer_restarted(now, peer);
            }
            self.events.push_back(AuthorityEvent::Board { peer });
        }
        true
    }
}

/// This many zero bytes before the address distinguish an announcement from other RAW frames.
const ANNOUNCEMENT_ZEROS: usize = 15;
