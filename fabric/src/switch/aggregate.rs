//! Link aggregation: several trunks between two switches, or cables to one guest, as one port, over which flows are spread by a hash.
//!
//! All frames of a flow take one trunk, so they keep their order. A trunk that goes down leaves the group; its flows move
//! to the others, and theirs stay where they are.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::{Egress, Switch};
use crate::lacp::Lacp;
use crate::ports::PortId;

/// Trunks of one aggregate: more than any switch that is sold.
pub const AGGREGATE_MEMBERS_MAX: usize = 16;

/// The ports were not joined to an aggregate; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateError {
    /// It needs 2 to [`AGGREGATE_MEMBERS_MAX`] ports.
    Members(usize),
    /// The port does not exist, is named twice, is in an aggregate already, or leads to a card where others are trunks, or the reverse.
    NotFree(PortId),
}

impl fmt::Display for AggregateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Members(count) => write!(f, "an aggregate has 2 to {AGGREGATE_MEMBERS_MAX} trunks, not {count}"),
            Self::NotFree(PortId(port)) => write!(f, "port {port} is not free for this aggregate"),
        }
    }
}

impl core::error::Error for AggregateError {}

/// The aggregates of a switch: the first member of each stands for all.
#[derive(Default)]
pub(super) struct Aggregates {
    list: Vec<Vec<PortId>>,
    /// The ports that speak LACP, if any do.
    pub(super) lacp: Option<Box<Lacp>>,
}

impl Aggregates {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn of(&self, port: PortId) -> Option<&Vec<PortId>> {
        self.list.iter().find(|members| members.contains(&port))
    }

    /// The port that stands for the aggregate of `port`, or the port itself.
    #[inline]
    pub(super) fn logical(&self, port: PortId) -> PortId {
        self.of(port)
            .and_then(|members| members.first())
            .copied()
            .unwrap_or(port)
    }

    /// The members of the aggregate that `port` is in.
    pub(super) fn members(&self, port: PortId) -> Option<&[PortId]> {
        self.of(port).map(Vec::as_slice)
    }
}

/// Spreads a value over all bits.
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    value ^ (value >> 32)
}

/// A hash of what frames of one flow have in common: addresses, protocol, and, where it is TCP or UDP that is not in
/// fragments, ports. `header` begins with the Ethernet header.
pub(super) fn flow_hash(header: &[u8]) -> u64 {
    let byte = |at: usize| header.get(at).copied().unwrap_or(0);
    let word = |at: usize| u64::from(u32::from_be_bytes([byte(at), byte(at + 1), byte(at + 2), byte(at + 3)]));
    let mut hash = mixed(word(0) << 32 | word(4)) ^ mixed(word(8).rotate_left(17));
    let mut at = 12;
    if header.get(at..at + 2) == Some(&[0x81, 0x00]) {
        hash = mixed(hash ^ word(at + 2) >> 16 & 0xfff);
        at += 4;
    }
    let (ports, protocol) = match header.get(at..at + 2) {
        Some([0x08, 0x00]) => {
            let ip = at + 2;
            hash = mixed(hash ^ (word(ip + 12) << 32 | word(ip + 16)));
            let is_fragment = word(ip + 6) >> 16 & 0x3fff != 0;
            let len = usize::from(byte(ip) & 0xf) * 4;
            ((!is_fragment).then_some(ip + len), byte(ip + 9))
        }
        Some([0x86, 0xdd]) => {
            let ip = at + 2;
            for at in (ip + 8..ip + 40).step_by(8) {
                hash = mixed(hash ^ (word(at) << 32 | word(at + 4)));
            }
            (Some(ip + 40), byte(ip + 6))
        }
        Some(kind) => return mixed(hash ^ u64::from(kind[0]) << 8 ^ u64::from(kind[1])),
        None => return hash,
    };
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    match ports {
        Some(at) if matches!(protocol, TCP | UDP) => mixed(hash ^ word(at) ^ u64::from(protocol) << 40),
        _ => mixed(hash ^ u64::from(protocol) << 40),
    }
}

impl Switch {
    /// Makes one port of several trunk ports that lead to one switch, or of several ports of cards of one guest. The first of them stands for all: stations are
    /// learned on it, and its VLANs, its group memberships and its settings in the spanning tree hold for the aggregate.
    ///
    /// # Errors
    /// Too few or too many ports, one that is in an aggregate, or trunks and cards together; then nothing is changed.
    pub fn aggregate(&mut self, members: &[PortId]) -> Result<(), AggregateError> {
        if !(2..=AGGREGATE_MEMBERS_MAX).contains(&members.len()) {
            return Err(AggregateError::Members(members.len()));
        }
        for (index, member) in members.iter().enumerate() {
            if !self.is_like(members[0], *member)
                || self.aggregates.of(*member).is_some()
                || members[..index].contains(member)
            {
                return Err(AggregateError::NotFree(*member));
            }
        }
        let config = self.spanning_tree_config(members[0]);
        for member in members {
            self.close(*member);
        }
        self.aggregates.list.push(members.to_vec());
        self.is_managed = true;
        self.refresh_open(members[0]);
        self.restore_spanning_tree_config(members[0], config);
        Ok(())
    }

    /// Adds a port to the aggregate of `first`, or makes one of the two.
    ///
    /// # Errors
    /// Those of [`aggregate`](Self::aggregate).
    pub fn join_aggregate(&mut self, first: PortId, member: PortId) -> Result<(), AggregateError> {
        let Some(at) = self.aggregates.list.iter().position(|members| members.contains(&first)) else {
            return self.aggregate(&[first, member]);
        };
        let members = self.aggregates.list[at].len();
        if members >= AGGREGATE_MEMBERS_MAX {
            return Err(AggregateError::Members(members + 1));
        }
        if !self.is_like(first, member) || self.aggregates.of(member).is_some() {
            return Err(AggregateError::NotFree(member));
        }
        self.close(member);
        self.aggregates.list[at].push(member);
        self.refresh_open(first);
        Ok(())
    }

    /// Whether there are both ports, and cards are behind both, or trunks.
    fn is_like(&self, one: PortId, other: PortId) -> bool {
        match (self.egress(one), self.egress(other)) {
            (Some(one), Some(other)) => matches!(one, Egress::Trunk(_)) == matches!(other, Egress::Trunk(_)),
            _ => false,
        }
    }

    /// Closes a port: it carries nothing by itself any more, and the other parts of the switch forget it.
    fn close(&mut self, port: PortId) {
        self.leave_tree(port);
        self.forget_stations(port);
        if let Some(snooping) = &mut self.snooping {
            snooping.forget_port(port);
            snooping.topology_changed();
        }
        self.open.remove(port);
        if let Some(state) = self.ports.get_mut(usize::from(port.0)) {
            state.open = false;
        }
    }

    /// The ports that the aggregate of `port` consists of, the one first that stands for all; the port alone if it is in none.
    pub fn aggregate_of(&self, port: PortId) -> &[PortId] {
        self.aggregates.members(port).unwrap_or(&[])
    }

    /// Takes a port that is about to be removed out of its aggregate. One member that is left is a port like any other; the one that is
    /// the first now has the aggregate's settings in the spanning tree.
    pub(super) fn leave_aggregate(&mut self, port: PortId) {
        let Some(at) = self.aggregates.list.iter().position(|members| members.contains(&port)) else {
            return;
        };
        let logical = self.aggregates.logical(port);
        let config = self.spanning_tree_config(logical);
        self.close(logical);
        let members = &mut self.aggregates.list[at];
        members.retain(|member| *member != port);
        let left = members.clone();
        if left.len() < 2 {
            self.aggregates.list.remove(at);
        }
        for member in &left {
            self.refresh_open(*member);
        }
        if let Some(first) = left.first() {
            self.restore_spanning_tree_config(*first, config);
        }
        self.refresh_managed();
    }

    /// The member of the aggregate behind `logical` that a flow takes (or the port itself, if it is in none), of those that
    /// are up. Of all members the one wins that suits the flow best, so no flow moves but those of a member that left.
    pub(super) fn member_for(&self, logical: PortId, hash: u64) -> Option<PortId> {
        let Some(members) = self.aggregates.members(logical) else {
            return Some(logical);
        };
        let up = members.iter().filter(|member| self.carries(**member));
        up.max_by_key(|member| mixed(hash ^ u64::from(member.0) << 48)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn udp(from: u16, fragment: u16, tagged: bool) -> vec::Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if tagged {
            frame.extend_from_slice(&[0x81, 0, 0, 7]);
        }
        frame.extend_from_slice(&[8, 0, 0x45, 0, 0, 60, 0, 1]);
        frame.extend_from_slice(&fragment.to_be_bytes());
        frame.extend_from_slice(&[64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend_from_slice(&from.to_be_bytes());
        frame.extend_from_slice(&[0, 9, 0, 8, 0, 0]);
        frame
    }

    #[test]
    fn flows_are_told_apart_by_ports_and_fragments_are_not() {
        for tagged in [false, true] {
            assert_eq!(flow_hash(&udp(1, 0, tagged)), flow_hash(&udp(1, 0, tagged)));
            assert_ne!(flow_hash(&udp(1, 0, tagged)), flow_hash(&udp(2, 0, tagged)));
            // What stands in the place of the ports of a later fragment is data.
            assert_eq!(flow_hash(&udp(1, 0x2000, tagged)), flow_hash(&udp(2, 0x00b9, tagged)));
        }
        assert_ne!(flow_hash(&udp(1, 0, false)), flow_hash(&udp(1, 0, true)));
        for len in 0..60 {
            _ = flow_hash(&udp(1, 0, true)[..len.min(46)]);
        }
    }
}
