//! Groups are created by all their members: each tells the first member that it is ready, and that one names the group to all.

use super::Engine;
use crate::{
    Counter, Event, GroupError, GroupId, Nodes,
    group::Creating,
    wire::{About, Kind},
};

impl Engine {
    /// Begins to create a group of `members`. All members call this, in the same order where there are several groups, and each gets
    /// [`Event::GroupCreated`] with the same name, or [`Event::GroupFailed`].
    ///
    /// # Errors
    /// [`GroupError`]; nothing was begun.
    pub fn create_group(&mut self, members: Nodes) -> Result<(), GroupError> {
        let me = self.config.me;
        if !members.is_within(Nodes::first(self.links.len())) || !members.has(me) || members.len() < 2 {
            return Err(GroupError::Members);
        }
        if !self.is_ready {
            return Err(GroupError::NotReady);
        }
        if !members.is_within(self.present()) {
            return Err(GroupError::MemberGone);
        }
        if self.groups.len() >= self.config.limits.groups {
            return Err(GroupError::TooMany);
        }
        let nth = self.groups.nth_of(members);
        let creating = self.creating(members, nth);
        creating.wanted = true;
        creating.joined.0 |= 1 << me;
        match members.lowest() {
            Some(first) if first != me => {
                let about = About {
                    number: nth,
                    nodes: members,
                    ..About::default()
                };
                self.send_to_all(Nodes(1 << first), Kind::Join, about);
            }
            _ => self.name_group(members, nth),
        }
        Ok(())
    }

    /// The members of a group that were not removed.
    pub fn group_members(&self, group: GroupId) -> Option<Nodes> {
        self.groups.by_id(group).map(|group| group.alive)
    }

    /// Groups that exist, that of all nodes first.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, Nodes)> {
        self.groups.iter().map(|group| (group.id, group.alive))
    }

    fn creating(&mut self, members: Nodes, nth: u32) -> &mut Creating {
        let list = &mut self.groups.creating;
        let known = list
            .iter()
            .position(|creating| creating.members == members && creating.nth == nth);
        let at = known.unwrap_or_else(|| {
            list.push(Creating {
                members,
                nth,
                joined: Nodes::default(),
                wanted: false,
            });
            list.len() - 1
        });
        &mut list[at]
    }

    /// At the first member: another one is ready.
    pub(super) fn join(&mut self, from: usize, about: &About) {
        let members = about.nodes;
        let all = Nodes::first(self.links.len());
        let is_first = members.lowest() == Some(self.config.me);
        // A member that asks for more groups than there can be, before this node asks for any, is wrong.
        let known = self.groups.creating.len() < 2 * self.config.limits.groups;
        if !is_first || !members.has(from) || !members.is_within(all) || !known {
            self.counters.count(Counter::BadControl);
            return;
        }
        if members
            .iter()
            .any(|member| self.links[member].standing == crate::link::Standing::Gone)
        {
            // The other will find out. A member that was not heard of yet is no such.
            return;
        }
        self.creating(members, about.number).joined.0 |= 1 << from;
        self.name_group(members, about.number);
    }

    /// At the first member: names the group if all are ready.
    fn name_group(&mut self, members: Nodes, nth: u32) {
        let me = self.config.me;
        let is_complete = |creating: &Creating| {
            creating.members == members && creating.nth == nth && creating.wanted && creating.joined == members
        };
        let Some(at) = self.groups.creating.iter().position(is_complete) else {
            return;
        };
        self.groups.creating.swap_remove(at);
        let id = self.groups.next_id(me);
        let about = About {
            group: id.0,
            number: nth,
            origin: 0,
            nodes: members,
        };
        self.send_to_all(members, Kind::Group, about);
        self.group_exists(id, members);
    }

    /// The first member names a group.
    pub(super) fn group_named(&mut self, from: usize, about: &About) {
        let members = about.nodes;
        let id = GroupId(about.group);
        let is_it =
            |creating: &Creating| creating.members == members && creating.nth == about.number && creating.wanted;
        let found = self.groups.creating.iter().position(is_it);
        let is_named_right = members.lowest() == Some(from)
            && about.group >> 16 == from as u32 + 1
            && self.groups.position(id).is_none();
        let (true, Some(at)) = (is_named_right, found) else {
            self.counters.count(Counter::BadControl);
            return;
        };
        self.groups.creating.swap_remove(at);
        self.group_exists(id, members);
    }

    fn group_exists(&mut self, id: GroupId, members: Nodes) {
        let (nodes, me) = (self.links.len(), self.config.me);
        // One that was removed since is in no tree.
        let alive = Nodes(members.0 & self.present().0);
        self.groups.add(id, members, alive, nodes, me);
        self.events.push_back(Event::GroupCreated { group: id, members });
        let position = self.groups.count() - 1;
        for gone in Nodes(members.0 & !alive.0).iter() {
            self.remove_from_group(position, gone);
        }
    }

    /// Whether a packet is for a group that this node is creating and that its first member has named to others before.
    pub(super) fn awaits_group(&self, from: usize, about: &About) -> bool {
        let first = (about.group >> 16).wrapping_sub(1) as usize;
        let fits = |creating: &Creating| {
            creating.wanted && creating.members.lowest() == Some(first) && creating.members.has(from)
        };
        self.groups.creating.iter().any(fits)
    }

    /// Groups that are being created without a member come to nothing.
    pub(super) fn fail_groups_with(&mut self, gone: usize) {
        let events = &mut self.events;
        self.groups.creating.retain(|creating| {
            let fails = creating.members.has(gone);
            if fails && creating.wanted {
                events.push_back(Event::GroupFailed {
                    members: creating.members,
                });
            }
            !fails
        });
    }
}
