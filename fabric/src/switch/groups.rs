//! Multicast groups with registered members, as a small sorted list.
//!
//! Groups change rarely and are looked up only when a frame's pair of addresses changed, so a binary search will do.
//! Who may join is decided elsewhere.

use alloc::vec::Vec;
use core::fmt;

use ether::MacAddr;

use super::GroupId;
use crate::ports::{PortId, PortSet};

/// Groups of one switch. Each takes 136 bytes; the limit keeps a guest that joins without end below 64 KiB. Frames to
/// groups beyond it are flooded, as to every group without members.
pub const GROUPS_MAX: usize = 256;

/// A port could not join a group; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// The address belongs to one station, is the broadcast address, or is one of 01:80:c2:00:00:0x, which are never
    /// forwarded.
    NotAGroup(MacAddr),
    /// The switch has no such port.
    NoSuchPort(PortId),
    /// There are [`GROUPS_MAX`] groups; frames to this one go on being flooded.
    TooMany,
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAGroup(mac) => write!(f, "{mac} is not a multicast group that a port can join"),
            Self::NoSuchPort(PortId(port)) => write!(f, "the switch has no port {port}"),
            Self::TooMany => {
                write!(
                    f,
                    "the switch has {GROUPS_MAX} groups already; frames to this one are flooded to every port"
                )
            }
        }
    }
}

impl core::error::Error for GroupError {}

struct Group {
    mac: MacAddr,
    members: PortSet,
}

/// Sorted by address; no group is empty.
#[derive(Default)]
pub(super) struct Groups {
    list: Vec<Group>,
}

impl Groups {
    fn position(&self, mac: MacAddr) -> Result<usize, usize> {
        self.list.binary_search_by_key(&mac, |group| group.mac)
    }

    pub(super) fn find(&self, mac: MacAddr) -> Option<GroupId> {
        self.position(mac).ok().map(|index| GroupId(index as u16))
    }

    pub(super) fn members(&self, id: GroupId) -> Option<&PortSet> {
        self.list.get(usize::from(id.0)).map(|group| &group.members)
    }

    pub(super) fn join(&mut self, mac: MacAddr, port: PortId) -> Result<(), GroupError> {
        let index = match self.position(mac) {
            Ok(index) => index,
            Err(_) if self.list.len() >= GROUPS_MAX => return Err(GroupError::TooMany),
            Err(index) => {
                self.list.insert(
                    index,
                    Group {
                        mac,
                        members: PortSet::EMPTY,
                    },
                );
                index
            }
        };
        self.list[index].members.insert(port);
        Ok(())
    }

    pub(super) fn leave(&mut self, mac: MacAddr, port: PortId) -> bool {
        let Ok(index) = self.position(mac) else { return false };
        let members = &mut self.list[index].members;
        let was_member = members.contains(port);
        members.remove(port);
        if members.is_empty() {
            self.list.remove(index);
        }
        was_member
    }

    pub(super) fn leave_all(&mut self, port: PortId) {
        for group in &mut self.list {
            group.members.remove(port);
        }
        self.list.retain(|group| !group.members.is_empty());
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (MacAddr, &PortSet)> + '_ {
        self.list.iter().map(|group| (group.mac, &group.members))
    }
}
