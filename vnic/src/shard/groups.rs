//! The group service: who is in which multicast group, and the tables that follow from that for every card.
//!
//! Guests join and leave for their own cards by the control protocol, hosts for any by the control socket. Packets are
//! forwarded elsewhere (`cards`).

use std::collections::BTreeMap;

use ether::{MacAddr, Time};
use firmware::control::GroupRefusal;
use firmware::multicast::{GROUPS_MAX, GroupTable, MEMBERS_MAX, TreeShape, rows};

use super::fabric_handle::invalid;
use super::watch::Subject;
use super::{Fabric, FabricError, Inner};
use crate::report::{GroupInfo, GroupMember};

/// A group with members, or with a tree that was asked for.
#[derive(Default)]
struct Group {
    shape: TreeShape,
    /// Which writing of the tables is in force.
    generation: u16,
    /// Address and port (index), in the order of addresses.
    members: Vec<(MacAddr, usize)>,
}

/// All groups by number.
#[derive(Default)]
pub(super) struct Groups(BTreeMap<u16, Group>);

impl Groups {
    /// The groups that the port at `index` is in.
    fn of_port(&self, index: usize) -> impl Iterator<Item = u16> {
        let joined = move |group: &Group| group.members.iter().any(|(_, port)| *port == index);
        self.0
            .iter()
            .filter(move |(_, group)| joined(group))
            .map(|(number, _)| *number)
    }

    /// Groups whose tree was chosen, and the tree.
    pub(super) fn shapes(&self) -> impl Iterator<Item = (u16, TreeShape)> {
        let chosen = self.0.iter().filter(|(_, group)| group.shape != TreeShape::default());
        chosen.map(|(number, group)| (*number, group.shape))
    }

    /// The tree of a group.
    pub(super) fn shape(&self, number: u16) -> TreeShape {
        self.0.get(&number).map(|group| group.shape).unwrap_or_default()
    }
}

impl Inner {
    /// Makes the card at `index` a member of `number`, or not one any more. `guest` is the address that the guest says it has;
    /// the configured one is known better. Nothing happens if it is so already.
    ///
    /// # Errors
    /// [`GroupRefusal`]; nothing was changed.
    pub(super) fn change_group(
        &mut self,
        index: usize,
        number: u16,
        join: bool,
        guest: Option<MacAddr>,
        now: Time,
    ) -> Result<(), GroupRefusal> {
        let known = self.ports[index].settings.mac;
        let address = known.or(guest);
        if guest.is_some() && address != guest {
            return Err(GroupRefusal::Address);
        }
        let joined = self.groups.of_port(index).count();
        let group = self.groups.0.get(&number);
        let members = group.map_or(&[][..], |group| &group.members);
        let at = members.iter().position(|(_, port)| *port == index);
        match (join, at) {
            (true, None) => {
                if joined >= GROUPS_MAX {
                    return Err(GroupRefusal::TooManyGroups);
                }
                if members.len() >= MEMBERS_MAX {
                    return Err(GroupRefusal::Full);
                }
                let address = address.ok_or(GroupRefusal::Address)?;
                let Err(place) = members.binary_search_by_key(&address, |(address, _)| *address) else {
                    return Err(GroupRefusal::Address);
                };
                let group = self.groups.0.entry(number).or_default();
                group.members.insert(place, (address, index));
            }
            (false, Some(at)) => {
                if let Some(group) = self.groups.0.get_mut(&number) {
                    group.members.remove(at);
                    if group.members.is_empty() && group.shape == TreeShape::default() {
                        self.groups.0.remove(&number);
                    }
                }
                self.ports[index].nic.multicast_mut().remove_group(number);
                self.tend_multicast(index, now);
            }
            (true, Some(_)) | (false, None) => return Ok(()),
        }
        self.write_tables(number, now);
        self.ports[index].settings.groups = self.groups.of_port(index).collect();
        // Those who watch hear of it before whoever asked.
        self.settings_changed(Subject::Port(index));
        Ok(())
    }

    /// Joins a group that the configuration names.
    pub(super) fn join_configured(&mut self, index: usize, group: u16, now: Time) -> Result<(), FabricError> {
        if group == 0 {
            return Err(invalid("groups are numbered from 1"));
        }
        if self.ports[index].settings.mac.is_none() {
            return Err(invalid(format!(
                "the address of the guest of port {:?} is not configured: only the guest itself can join a group",
                self.ports[index].settings.name
            )));
        }
        self.change_group(index, group, true, None, now).map_err(invalid)
    }

    /// Writes the tables of a group to the cards of all its members.
    fn write_tables(&mut self, number: u16, now: Time) {
        let Some(group) = self.groups.0.get_mut(&number) else {
            return;
        };
        group.generation = group.generation.wrapping_add(1);
        let (shape, generation) = (group.shape, group.generation);
        let ports: Vec<usize> = group.members.iter().map(|(_, port)| *port).collect();
        let members: Vec<MacAddr> = group.members.iter().map(|(address, _)| *address).collect();
        for (own, port) in ports.iter().enumerate() {
            let table = GroupTable {
                group: number,
                generation,
                own: own as u8,
                members: &members,
                rows: &rows(shape, members.len(), own),
            };
            // A table that the service made is sound, and the number of groups was checked.
            if let Err(error) = self.ports[*port].nic.multicast_mut().set_group(now, &table) {
                tracing::error!(group = number, "a group's table was refused: {error}");
            }
        }
        for port in ports {
            self.tend_multicast(port, now);
        }
    }

    fn set_tree(&mut self, number: u16, shape: TreeShape, now: Time) {
        let group = self.groups.0.entry(number).or_default();
        if group.shape != shape {
            group.shape = shape;
            self.write_tables(number, now);
        }
        if self.groups.0.get(&number).is_some_and(|group| group.members.is_empty()) && shape == TreeShape::default() {
            self.groups.0.remove(&number);
        }
        self.settings_changed(Subject::Group(number));
    }

    fn group_infos(&self) -> Vec<GroupInfo> {
        let name = |port: usize| self.ports[port].settings.name.clone();
        let info = |(number, group): (&u16, &Group)| GroupInfo {
            group: *number,
            tree: group.shape.name().to_owned(),
            members: (0..group.members.len())
                .map(|own| {
                    let row = rows(group.shape, group.members.len(), own).swap_remove(own);
                    let (mac, port) = group.members[own];
                    let children = row.children().iter();
                    GroupMember {
                        port: name(port),
                        mac: mac.to_string(),
                        children: children
                            .map(|child| name(group.members[usize::from(child.rank)].1))
                            .collect(),
                    }
                })
                .collect(),
        };
        self.groups.0.iter().map(info).collect()
    }
}

impl Fabric {
    /// All multicast groups with their members.
    pub fn groups(&self) -> Vec<GroupInfo> {
        self.shard.with(|inner, _| inner.group_infos())
    }

    /// Makes the card of a port a member of a group, or not one any more; returns all groups.
    ///
    /// # Errors
    /// No such port, group 0, an address that is not known, or a limit; then nothing was changed.
    pub fn change_group(&self, port: &str, group: u16, join: bool) -> Result<Vec<GroupInfo>, FabricError> {
        self.shard.with(|inner, now| {
            let index = inner
                .port_index(port)
                .ok_or_else(|| FabricError::NoSuchPort(port.to_owned()))?;
            if join {
                inner.join_configured(index, group, now)?;
            } else {
                inner.change_group(index, group, false, None, now).map_err(invalid)?;
            }
            Ok(inner.group_infos())
        })
    }

    /// Chooses the tree of a group, which may have no members yet; returns all groups.
    ///
    /// # Errors
    /// Group 0 or an unknown shape; then nothing was changed.
    pub fn set_tree(&self, group: u16, tree: &str) -> Result<Vec<GroupInfo>, FabricError> {
        let shape: TreeShape = tree.parse().map_err(invalid)?;
        if group == 0 {
            return Err(invalid("groups are numbered from 1"));
        }
        self.shard.with(|inner, now| {
            inner.set_tree(group, shape, now);
            Ok(inner.group_infos())
        })
    }
}
