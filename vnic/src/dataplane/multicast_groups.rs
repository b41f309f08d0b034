//! The group service: who is in which multicast group, and the tables that follow from that for every card.
//!
//! Guests join and leave for their own cards by the control protocol, hosts for any by the control socket. Packets are
//! forwarded elsewhere (`forwarding::card_to_card`).

use std::collections::{BTreeMap, btree_map::Entry};

use ether::{MacAddr, Time};
use fabric::TrunkGraph;
use firmware::control::GroupRefusal;
use firmware::multicast::{Class, GROUPS_MAX, GroupTable, MEMBERS_MAX, TreeShape, rows};

use super::error::invalid;
use super::observers::watchers::Subject;
use super::{Card, DataPlane, FabricError};

/// Those who are in a group and can reach each other: address and port (index), in the order of addresses.
type Members = Vec<(MacAddr, usize)>;

/// All groups. A number means another group in each network, that is on switches that no trunk joins: its packets could not
/// get from one to the other.
#[derive(Default)]
pub(super) struct MulticastGroups {
    /// By number and network; none without members.
    members: BTreeMap<(u16, usize), Members>,
    /// Trees that were chosen, for a number in all networks; the others are of the default shape.
    shapes: BTreeMap<u16, TreeShape>,
    /// Number of the last writing of any group's tables. Common to all, so that a group that had no members for a while does not
    /// take packets of its former life for new ones.
    generation: u16,
}

impl MulticastGroups {
    /// The groups that the card at `index` is in.
    fn of_card(&self, index: usize) -> impl Iterator<Item = u16> {
        let joined = move |members: &Members| members.iter().any(|(_, port)| *port == index);
        self.members
            .iter()
            .filter(move |(_, members)| joined(members))
            .map(|((number, _), _)| *number)
    }

    /// Groups whose tree was chosen, and the tree.
    pub(super) fn shapes(&self) -> impl Iterator<Item = (u16, TreeShape)> {
        self.shapes.iter().map(|(number, shape)| (*number, *shape))
    }

    /// The groups of each network with their members, and those whose tree was chosen and that have no member in any network.
    pub(super) fn all(&self) -> impl Iterator<Item = (u16, &[(MacAddr, usize)])> {
        let with_members = self.members.iter();
        let empty = self.shapes.keys().filter(|number| {
            let mut networks = self.members.range((**number, 0)..=(**number, usize::MAX));
            networks.next().is_none()
        });
        with_members
            .map(|((number, _), members)| (*number, &members[..]))
            .chain(empty.map(|number| (*number, &[][..])))
    }

    /// True if any card is in a group.
    pub(super) fn have_members(&self) -> bool {
        !self.members.is_empty()
    }

    /// The tree of a group.
    pub(super) fn shape(&self, number: u16) -> TreeShape {
        self.shapes.get(&number).copied().unwrap_or_default()
    }
}

impl DataPlane {
    /// The network that the port at `index` is in: one of the switches that trunks join, the same for all of them.
    fn network_of(&self, index: usize) -> usize {
        let mut graph = TrunkGraph::new(self.forwarding.switches.len());
        for trunk in &self.forwarding.wiring.trunks {
            // A trunk that closed a loop was refused when it was added.
            _ = graph.join(trunk.ends[0].0, trunk.ends[1].0);
        }
        graph.network_of(self.cards()[index].attachment().switch)
    }

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
        let known = self.cards()[index].settings().mac;
        let address = known.or(guest);
        // A guest whose address is not configured is believed, unless it says that it has another one's.
        let other = |card: &Card| known.is_none() && address.is_some() && card.settings().mac == address;
        if guest.is_some() && (address != guest || self.cards().iter().any(other)) {
            return Err(GroupRefusal::Address);
        }
        let joined = self.groups.of_card(index).count();
        let key = (number, self.network_of(index));
        let members = self.groups.members.get(&key).map_or(&[][..], Vec::as_slice);
        let at = members.iter().position(|(_, port)| *port == index);
        match (join, at) {
            (true, None) => {
                if self.cards()[index].settings().loopback {
                    return Err(GroupRefusal::Loopback);
                }
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
                let members = self.groups.members.entry(key).or_default();
                members.insert(place, (address, index));
            }
            (false, Some(at)) => {
                if let Entry::Occupied(mut members) = self.groups.members.entry(key) {
                    members.get_mut().remove(at);
                    if members.get().is_empty() {
                        members.remove();
                    }
                }
                self.card(index).firmware_mut().multicast_mut().remove_group(number);
                self.forwarding.serve_multicast(index, now);
            }
            (true, Some(_)) | (false, None) => return Ok(()),
        }
        let mut numbers = self.groups.members.keys();
        self.forwarding.has_reliable_groups = numbers.any(|(number, _)| Class::of_group(*number) == Class::Reliable);
        self.write_tables(key, now);
        let groups = self.groups.of_card(index).collect();
        self.card(index).settings_mut().groups = groups;
        // Watchers learn of it before the one that asked.
        self.settings_changed(Subject::Port(index));
        Ok(())
    }

    /// Joins a group that the configuration names.
    pub(super) fn join_configured(&mut self, index: usize, group: u16, now: Time) -> Result<(), FabricError> {
        if group == 0 {
            return Err(invalid("groups are numbered from 1"));
        }
        if self.cards()[index].settings().mac.is_none() {
            return Err(invalid(format!(
                "the address of the guest of port {:?} is not configured: only the guest itself can join a group",
                self.cards()[index].name()
            )));
        }
        self.change_group(index, group, true, None, now).map_err(invalid)
    }

    /// The card at `index` and the other members of a reliable group that it can reach were in it in a process before this one.
    pub(super) fn go_on_in_group(&mut self, index: usize, group: u16, now: Time) {
        let members = self.groups.members.get(&(group, self.network_of(index)));
        // Its tables were written anew for this card, which has made all of them forget.
        let ports: Vec<usize> = members.into_iter().flatten().map(|(_, port)| *port).collect();
        for port in ports {
            let card = self.card(port);
            let given = card.settings().packets_given.iter().find(|given| given.group == group);
            let count = given.map(|given| given.count);
            card.firmware_mut().multicast_mut().go_on_from(group, count);
            self.forwarding.serve_multicast(port, now);
        }
    }

    /// Writes the tables of a group in one network to the cards of all its members there.
    fn write_tables(&mut self, key: (u16, usize), now: Time) {
        let number = key.0;
        let shape = self.groups.shape(number);
        let Some(members) = self.groups.members.get(&key) else {
            return;
        };
        self.groups.generation = self.groups.generation.wrapping_add(1);
        let generation = self.groups.generation;
        let (members, ports): (Vec<MacAddr>, Vec<usize>) = members.iter().copied().unzip();
        for (own, port) in ports.iter().enumerate() {
            let table = GroupTable {
                group: number,
                generation,
                class: Class::of_group(number),
                own: own as u8,
                members: &members,
                rows: &rows(shape, members.len(), own),
            };
            // A table that the service made is sound, and the number of groups was checked.
            if let Err(error) = self.card(*port).firmware_mut().multicast_mut().set_group(now, &table) {
                tracing::error!(group = number, "a group's table was refused: {error}");
            }
        }
        for port in ports {
            self.forwarding.serve_multicast(port, now);
        }
    }

    pub(super) fn set_tree(&mut self, number: u16, shape: TreeShape, now: Time) {
        if self.groups.shape(number) != shape {
            if shape == TreeShape::default() {
                self.groups.shapes.remove(&number);
            } else {
                self.groups.shapes.insert(number, shape);
            }
            let networks = self.groups.members.range((number, 0)..=(number, usize::MAX));
            let keys: Vec<_> = networks.map(|(key, _)| *key).collect();
            for key in keys {
                self.write_tables(key, now);
            }
        }
        self.settings_changed(Subject::Group(number));
    }
}
