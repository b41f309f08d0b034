//! The path of a frame through a switch with VLANs, link aggregation or snooping: its tag says the VLAN, its sender is learned in that
//! VLAN, and it is sent out of the ports that carry this VLAN in the form that each of them wants.
//!
//! A switch that has none of them never comes here.

use ether::{MacAddr, Time};

use super::aggregate::flow_hash;
use super::table::MacTable;
use super::{DropReason, Egress, Forward, PortVlans, Switch, Target, check};
use crate::ports::{PortId, PortSet, take_lowest};
use crate::snooping::kind_of;
use crate::vlan_tag::{EgressForm, FrameTag, TagChange, VlanId};

/// What is known of a frame when it has been let in.
pub(super) struct Admitted<'a> {
    pub(super) header: &'a [u8],
    pub(super) dst: MacAddr,
    src: MacAddr,
    tag: FrameTag,
    /// Its VLAN; none in a switch without VLANs.
    vlan: Option<VlanId>,
    bytes: u64,
}

impl Admitted<'_> {
    /// The VLAN as the table has it.
    pub(super) fn table_vlan(&self) -> u16 {
        self.vlan.map_or(0, VlanId::number)
    }

    /// Where the EtherType of what it carries is: behind its tag.
    pub(super) fn type_at(&self) -> usize {
        self.tag.type_at()
    }
}

impl Switch {
    /// Says which VLANs a port carries, or takes that back. From the first port on that was given some, the switch has VLANs:
    /// stations are learned in their VLAN, and frames stay in it. Its other ports then carry a default: those of cards are
    /// access ports of VLAN 1, those of trunks carry all VLANs, 1 without a tag. What was learned on the port is forgotten, and
    /// everything when the switch gets its first VLANs or loses its last. A switch that snoops asks all ports anew, since hosts say
    /// nothing by themselves in a VLAN that they come into, and floods frames to groups until they have answered.
    ///
    /// Nothing happens if there is no such port. For an aggregate, the port that stands for it counts.
    pub fn set_port_vlans(&mut self, port: PortId, vlans: Option<PortVlans>) {
        let Some(state) = self.ports.get_mut(usize::from(port.0)).filter(|state| state.present) else {
            return;
        };
        let is_changed = state.vlans != vlans;
        state.vlans = vlans;
        self.forget_stations(port);
        if is_changed && let Some(snooping) = &mut self.snooping {
            snooping.forget_port(port);
            snooping.topology_changed();
        }
        self.refresh_vlans();
    }

    /// The VLANs that a port carries; `None` in a switch without VLANs, or if there is no such port.
    pub fn port_vlans(&self, port: PortId) -> Option<PortVlans> {
        let port = self.aggregates.logical(port);
        let state = self.ports.get(usize::from(port.0)).filter(|state| state.present)?;
        self.has_vlans.then(|| match (&state.vlans, state.egress) {
            (Some(vlans), _) => vlans.clone(),
            (None, Egress::Local(_)) => PortVlans::access(VlanId::DEFAULT),
            (None, Egress::Trunk(_)) => PortVlans::trunk(Some(VlanId::DEFAULT), super::VlanSet::all()),
        })
    }

    /// Whether the switch reads tags.
    pub fn has_vlans(&self) -> bool {
        self.has_vlans
    }

    pub(super) fn refresh_vlans(&mut self) {
        let has_vlans = self.ports.iter().any(|port| port.present && port.vlans.is_some());
        if has_vlans != self.has_vlans {
            self.has_vlans = has_vlans;
            self.table = MacTable::new(self.config.entries_max(), self.config.hash_seed, has_vlans);
            self.ports.iter_mut().for_each(|port| port.entries = 0);
            if let Some(snooping) = &mut self.snooping {
                snooping.clear();
            }
        }
        self.refresh_managed();
    }

    pub(super) fn refresh_managed(&mut self) {
        self.is_managed = self.has_vlans || !self.aggregates.is_empty() || self.snooping.is_some();
        // What a port remembers was decided on another path.
        self.generation += 1;
    }

    /// The ports that the last answer, [`Forward::Several`], stands for, in rising order.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Does what [`count_repeated`](Switch::count_repeated) does, for all ports that the frames left by.
    #[inline(never)]
    pub(super) fn count_repeated_managed(&mut self, ingress: PortId, frames: u64, bytes: u64) {
        let counters = &mut self.ports[usize::from(ingress.0)].counters;
        if let Some(reason) = self.last.dropped {
            counters.dropped[reason as usize] += frames;
        }
        if let Some(dst) = self.last.flooded {
            counters.note_flooded(dst, frames);
        }
        for (out, growth) in &self.last.outs {
            let out = &mut self.ports[usize::from(out.0)].counters;
            out.out_frames += frames;
            out.out_bytes += bytes.saturating_add_signed(i64::from(*growth) * frames as i64);
            if self.last.flooded.is_some() {
                out.out_flooded += frames;
            }
        }
    }

    /// Decides about a frame that is counted as come in.
    #[inline(never)]
    pub(super) fn forward_managed(&mut self, now: Time, ingress: PortId, header: &[u8], bytes: u64) -> Forward {
        self.last.outs.clear();
        self.last.flooded = None;
        let logical = self.aggregates.logical(ingress);
        let forward = match self.admit(ingress, logical, header, bytes) {
            Err(reason) => return self.refuse(now, ingress, header, reason),
            Ok(frame) => {
                self.learn(now, logical, frame.src, frame.table_vlan());
                if self.must_inspect(now, &frame) {
                    return Forward::Inspect;
                }
                self.decide_managed(now, ingress, logical, &frame)
            }
        };
        self.note_decision(ingress, forward)
    }

    /// Counts a drop that was decided.
    pub(super) fn note_decision(&mut self, ingress: PortId, forward: Forward) -> Forward {
        if let Forward::Drop(reason) = forward {
            self.last.dropped = Some(reason);
            self.ports[usize::from(ingress.0)].counters.dropped[reason as usize] += 1;
        }
        forward
    }

    /// Whether a frame may come in, and into which VLAN.
    pub(super) fn admit<'a>(
        &self,
        ingress: PortId,
        logical: PortId,
        header: &'a [u8],
        bytes: u64,
    ) -> Result<Admitted<'a>, DropReason> {
        let (port, member) = (&self.ports[usize::from(logical.0)], &self.ports[usize::from(ingress.0)]);
        let is_open = port.open && member.up && !member.waits;
        let (dst, src) = match check(is_open, header) {
            Ok((_, dst, src)) => (dst, src),
            Err(DropReason::ReservedAddress)
                if self.transparency.forwards_reserved && !self.is_for_itself(ingress, header) =>
            {
                let address = |at: usize| header.get(at..).and_then(MacAddr::from_slice).unwrap_or_default();
                (address(0), address(6))
            }
            Err(reason) => return Err(reason),
        };
        let (tag, vlan) = self.classify(logical, header)?;
        Ok(Admitted {
            header,
            dst,
            src,
            tag,
            vlan,
            bytes,
        })
    }

    /// The tag of a frame that comes in, and the VLAN that it is in; none in a switch without VLANs.
    #[inline]
    fn classify(&self, logical: PortId, header: &[u8]) -> Result<(FrameTag, Option<VlanId>), DropReason> {
        let tag = FrameTag::of(header).ok_or(DropReason::TooShort)?;
        if !self.has_vlans {
            return Ok((tag, None));
        }
        let port = &self.ports[usize::from(logical.0)];
        let vlan = match &port.vlans {
            Some(vlans) => vlans.classify(tag),
            None => classify_by_default(port.egress, tag),
        };
        Ok((tag, Some(vlan?)))
    }

    /// The VLAN of a frame that comes in, as the table has it; `None` if the port does not carry it.
    pub(super) fn table_vlan(&self, logical: PortId, header: &[u8]) -> Option<u16> {
        if !self.has_vlans {
            return Some(0);
        }
        let (_, vlan) = self.classify(logical, header).ok()?;
        vlan.map(VlanId::number)
    }

    pub(super) fn decide_managed(
        &mut self,
        now: Time,
        ingress: PortId,
        logical: PortId,
        frame: &Admitted<'_>,
    ) -> Forward {
        if !frame.dst.is_multicast()
            && let Some(found) = self.find_station(now, frame.dst, frame.table_vlan())
        {
            if found.port == logical {
                return Forward::Drop(DropReason::SamePort);
            }
            return self.send_to_one_port(found.port, frame);
        }
        let group = frame.dst.is_multicast().then(|| self.groups.find(frame.dst)).flatten();
        let forward = group.map_or(Forward::Flood, Forward::Group);
        let wanted = match &mut self.snooping {
            Some(snooping) if forward == Forward::Flood && frame.dst.is_multicast() => {
                let group = kind_of(frame.header, frame.type_at()).group;
                group.and_then(|group| snooping.wanted_behind(now, frame.table_vlan(), group))
            }
            _ => None,
        };
        self.find_targets(logical, frame, forward, wanted.as_ref());
        if wanted.is_some() && self.targets.is_empty() {
            return Forward::Drop(DropReason::NoMember);
        }
        self.send_to_targets(ingress, frame)
    }

    /// Lists the ports that a frame leaves by: those that `forward` stands for, as far as it is `wanted` there.
    pub(super) fn find_targets(
        &mut self,
        logical: PortId,
        frame: &Admitted<'_>,
        forward: Forward,
        wanted: Option<&PortSet>,
    ) {
        self.targets.clear();
        let hash = self.hash_for(frame);
        for word in 0..self.words() {
            let wanted = wanted.map_or(u64::MAX, |wanted| wanted.word(word));
            let mut ports = self.target_word(logical, forward, word) & wanted;
            while let Some(port) = take_lowest(&mut ports, word) {
                if let Some((out, target)) = self.target_at(port, frame, hash) {
                    self.last.outs.push((out, target.tag.growth() as i8));
                    self.targets.push(target);
                }
            }
        }
    }

    /// Counts a frame that leaves by the ports that are listed.
    pub(super) fn send_to_targets(&mut self, ingress: PortId, frame: &Admitted<'_>) -> Forward {
        self.ports[usize::from(ingress.0)].counters.note_flooded(frame.dst, 1);
        self.last.flooded = Some(frame.dst);
        for (out, growth) in &self.last.outs {
            let counters = &mut self.ports[usize::from(out.0)].counters;
            counters.out_frames += 1;
            counters.out_bytes += frame.bytes.saturating_add_signed(i64::from(*growth));
            counters.out_flooded += 1;
        }
        Forward::Several
    }

    /// Decides about a frame to a station whose port is known.
    fn send_to_one_port(&mut self, port: PortId, frame: &Admitted<'_>) -> Forward {
        if !self.open.contains(port) {
            return Forward::Drop(DropReason::NoWay);
        }
        let hash = self.hash_for(frame);
        let Some((out, target)) = self.target_at(port, frame, hash) else {
            return Forward::Drop(DropReason::NoWay);
        };
        let growth = target.tag.growth();
        self.last.outs.push((out, growth as i8));
        let counters = &mut self.ports[usize::from(out.0)].counters;
        counters.out_frames += 1;
        counters.out_bytes += frame.bytes.saturating_add_signed(growth as i64);
        match target.tag {
            TagChange::Keep => Forward::One(target.egress),
            _ => {
                self.targets.clear();
                self.targets.push(target);
                Forward::Several
            }
        }
    }

    fn hash_for(&self, frame: &Admitted<'_>) -> u64 {
        if self.aggregates.is_empty() {
            0
        } else {
            flow_hash(frame.header)
        }
    }

    /// The form in which frames of a VLAN leave a port, if they do.
    pub(super) fn form_at(&self, port: PortId, vlan: VlanId) -> Option<EgressForm> {
        let state = self.ports.get(usize::from(port.0))?;
        match &state.vlans {
            Some(vlans) => vlans.egress(vlan),
            None => egress_by_default(state.egress, vlan),
        }
    }

    /// How a frame leaves a port that is open, and the port that counts it; `None` if the port does not carry its VLAN.
    fn target_at(&self, port: PortId, frame: &Admitted<'_>, hash: u64) -> Option<(PortId, Target)> {
        let tag = match frame.vlan {
            None => TagChange::Keep,
            Some(vlan) => {
                let form = self.form_at(port, vlan)?;
                frame.tag.change_for(form, vlan)
            }
        };
        let out = self.member_for(port, hash)?;
        let egress = self.ports.get(usize::from(out.0))?.egress;
        Some((out, Target { egress, tag }))
    }
}

/// [`PortVlans::egress`] of a port that was given no VLANs.
fn egress_by_default(egress: Egress, vlan: VlanId) -> Option<EgressForm> {
    match egress {
        _ if vlan == VlanId::DEFAULT => Some(EgressForm::Untagged),
        Egress::Local(_) => None,
        Egress::Trunk(_) => Some(EgressForm::Tagged),
    }
}

/// [`PortVlans::classify`] of a port that was given no VLANs.
fn classify_by_default(egress: Egress, tag: FrameTag) -> Result<VlanId, DropReason> {
    match tag {
        FrameTag::Tci(tci) if tci & 0xfff != 0 => {
            let vlan = VlanId::new(tci & 0xfff).ok_or(DropReason::VlanInvalid)?;
            egress_by_default(egress, vlan)
                .map(|_| vlan)
                .ok_or(DropReason::VlanNotAllowed)
        }
        _ => Ok(VlanId::DEFAULT),
    }
}
