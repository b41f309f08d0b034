//! The part of snooping in a switch: messages about groups are shown to it as a whole, and frames to groups go where they are wanted.
//!
//! What messages mean is decided in `snooping`; a switch that does not snoop never comes here.

use ether::{MacAddr, Time};

use super::managed::Admitted;
use super::{DropReason, Egress, Forward, Switch};
use crate::control_frame::ControlFrame;
use crate::ports::PortId;
use crate::snooping::{Audience, GroupMember, Kind, SnoopedVlan, Snooping, SnoopingCounters, kind_of};
use crate::vlan_tag::{EgressForm, VlanId};

impl Switch {
    /// Listens to what hosts and routers say about multicast groups with IGMP and MLD from now on, or (`None`) no more. Frames to a
    /// group of IP then go to the ports behind which it is wanted, and to routers. Those to groups of the link (224.0.0.0/24,
    /// ff01::/16, ff02::/16) and to groups that are none of IP are flooded as before. `address` is the one that the switch queries
    /// from where no router does; from then on the caller does what [`enable_spanning_tree`](Self::enable_spanning_tree) says.
    pub fn set_snooping(&mut self, address: Option<MacAddr>) {
        self.snooping = address.map(|address| alloc::boxed::Box::new(Snooping::new(address)));
        for number in 0..self.ports.len() {
            self.add_to_snooping(PortId(number as u16));
        }
        self.refresh_managed();
    }

    pub(super) fn add_to_snooping(&mut self, port: PortId) {
        let is_trunk = matches!(self.egress(port), Some(Egress::Trunk(_)));
        if let Some(snooping) = &mut self.snooping {
            snooping.add_port(port, is_trunk);
        }
    }

    /// A trunk came or went, or frames take other paths.
    pub(super) fn note_topology_change(&mut self) {
        if let Some(snooping) = &mut self.snooping {
            snooping.topology_changed();
        }
    }

    /// What the switch has to inspect before it decides about a frame.
    pub(super) fn must_inspect(&self, now: Time, frame: &Admitted<'_>) -> bool {
        let Some(snooping) = &self.snooping else { return false };
        if !frame.dst.is_multicast() || frame.dst.is_broadcast() {
            return false;
        }
        let Kind { is_message, group } = kind_of(frame.header, frame.type_at());
        is_message || (group.is_some() && snooping.wants_to_begin(now, frame.table_vlan()))
    }

    /// Decides about a frame for which [`forward`](Self::forward) just answered [`Forward::Inspect`]: `frame` is the whole of it, or
    /// as much as there is, and `frame_len` its length. The answer is never [`Forward::Inspect`].
    pub fn inspect(&mut self, now: Time, ingress: PortId, frame: &[u8], frame_len: usize) -> Forward {
        self.last.outs.clear();
        (self.last.flooded, self.last.dropped) = (None, None);
        if self.egress(ingress).is_none() {
            return Forward::Drop(DropReason::PortDown);
        }
        let logical = self.aggregates.logical(ingress);
        let forward = match self.admit(ingress, logical, frame, frame_len as u64) {
            Err(reason) => return self.refuse(now, ingress, frame, reason),
            Ok(admitted) => self.inspect_admitted(now, ingress, logical, &admitted),
        };
        self.note_decision(ingress, forward)
    }

    fn inspect_admitted(&mut self, now: Time, ingress: PortId, logical: PortId, frame: &Admitted<'_>) -> Forward {
        let (vlan, type_at) = (frame.table_vlan(), frame.type_at());
        let Some(snooping) = &mut self.snooping else {
            return self.decide_managed(now, ingress, logical, frame);
        };
        snooping.begin(now, vlan);
        let audience = match kind_of(frame.header, type_at).is_message {
            true => snooping.hear(now, vlan, logical, frame.header, type_at),
            false => Audience::AsData,
        };
        match audience {
            Audience::AsData => self.decide_managed(now, ingress, logical, frame),
            Audience::Everybody => {
                self.find_targets(logical, frame, Forward::Flood, None);
                self.send_to_targets(ingress, frame)
            }
            Audience::Routers => {
                let routers = snooping.routers(now, vlan);
                self.find_targets(logical, frame, Forward::Flood, Some(&routers));
                if self.targets.is_empty() {
                    self.ports[usize::from(ingress.0)].counters.in_control += 1;
                    return Forward::Taken;
                }
                self.send_to_targets(ingress, frame)
            }
        }
    }

    /// The next query that the switch has to send, and where.
    pub(super) fn poll_query(&mut self, now: Time) -> Option<(Egress, ControlFrame)> {
        loop {
            let ports = self.ports.len();
            let query = self.snooping.as_mut()?.poll_query(now, ports)?;
            if !self.open.contains(query.port) {
                continue;
            }
            let form = match VlanId::new(query.vlan) {
                Some(vlan) if self.has_vlans => self.form_at(query.port, vlan),
                _ => Some(EgressForm::Untagged),
            };
            let frame = match form {
                None => continue,
                Some(EgressForm::Untagged) => query.frame,
                Some(EgressForm::Tagged) => query.frame.tagged(query.vlan),
            };
            let sent = self.send_control(query.port, frame);
            if let (Some(_), Some(snooping)) = (&sent, &mut self.snooping) {
                snooping.counters.queries_out += 1;
                return sent;
            }
        }
    }

    /// Whether the switch snoops.
    pub fn snoops(&self) -> bool {
        self.snooping.is_some()
    }

    /// The groups that are wanted behind ports at `now`, in rising order of VLANs, groups and ports.
    pub fn group_members(&self, now: Time) -> impl Iterator<Item = GroupMember> + '_ {
        self.snooping.iter().flat_map(move |snooping| snooping.members(now))
    }

    /// Whether a multicast router is known behind a port at `now`, in any of its VLANs.
    pub fn has_router(&self, now: Time, port: PortId) -> bool {
        self.snooping
            .as_ref()
            .is_some_and(|snooping| snooping.has_router(now, port))
    }

    /// The VLANs in which groups are kept separate, with who asks for them.
    pub fn snooped_vlans(&self, now: Time) -> impl Iterator<Item = SnoopedVlan> + '_ {
        self.snooping.iter().flat_map(move |snooping| snooping.vlans(now))
    }

    /// What was heard and said about groups; zeros without snooping.
    pub fn snooping_counters(&self) -> SnoopingCounters {
        self.snooping
            .as_ref()
            .map(|snooping| snooping.counters)
            .unwrap_or_default()
    }
}
