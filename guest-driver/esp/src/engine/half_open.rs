//! Connections whose peers have begun a handshake, and which of them are dropped for newer ones.
//!
//! Anybody can send SYNs in the name of hosts that do not exist, faster than an honest host answers. So those of hosts that have finished a
//! handshake before are kept for as long as there are others.

use alloc::collections::VecDeque;

use ether::MacAddr;

/// So many hosts are remembered for having finished a handshake: those that did last.
const PROVEN_MAX: usize = 256;

/// The half-open connections of a listener, each kind with the oldest first.
#[derive(Debug, Default)]
pub(super) struct HalfOpen {
    unproven: VecDeque<u32>,
    proven: VecDeque<u32>,
}

impl HalfOpen {
    pub(super) fn len(&self) -> usize {
        self.unproven.len() + self.proven.len()
    }

    /// `is_proven`: the peer has finished a handshake before.
    pub(super) fn add(&mut self, slot: u32, is_proven: bool) {
        let list = if is_proven {
            &mut self.proven
        } else {
            &mut self.unproven
        };
        list.push_back(slot);
    }

    /// Takes the one that is dropped for a newer one.
    pub(super) fn pop(&mut self) -> Option<u32> {
        self.unproven.pop_front().or_else(|| self.proven.pop_front())
    }

    pub(super) fn remove(&mut self, slot: u32) {
        for list in [&mut self.proven, &mut self.unproven] {
            if let Some(at) = list.iter().position(|other| *other == slot) {
                list.remove(at);
                return;
            }
        }
    }

    pub(super) fn into_slots(self) -> impl Iterator<Item = u32> {
        self.unproven.into_iter().chain(self.proven)
    }
}

/// Hosts that have finished a handshake, the latest last.
#[derive(Debug, Default)]
pub(super) struct ProvenPeers(VecDeque<MacAddr>);

impl ProvenPeers {
    pub(super) fn contains(&self, peer: MacAddr) -> bool {
        self.0.contains(&peer)
    }

    pub(super) fn note(&mut self, peer: MacAddr) {
        if self.0.back() == Some(&peer) {
            return;
        }
        if let Some(at) = self.0.iter().position(|known| *known == peer) {
            self.0.remove(at);
        } else if self.0.len() == PROVEN_MAX {
            self.0.pop_front();
        }
        self.0.push_back(peer);
    }
}
