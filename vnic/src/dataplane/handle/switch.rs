//! What is asked of switches through [`Fabric`]: how they work, what they know, what they counted.

use std::collections::BTreeMap;

use ether::Time;
use fabric::{DropReason, Egress, LinkDrop, PortCounters, PortId, PortVlans, StpPortStatus, Switch, VlanId};

use super::{Fabric, SwitchId};
use crate::dataplane::DataPlane;
use crate::dataplane::error::{FabricError, invalid};
use crate::dataplane::observers::watchers::Subject;
use crate::dataplane::wiring::trunk::{Trunk, TrunkLosses};
use vnicd_protocol::{
    Counts, ITSELF, MembershipInfo, SnoopedVlanInfo, SnoopingInfo, StationInfo, StpInfo, StpPortInfo, StpSettings,
    SwitchInfo, SwitchPortInfo, SwitchSettings, VlanChange, VlanList, VlanSettings, counts,
};

/// VLANs of a port as the switch wants them.
pub(in crate::dataplane) fn vlans_from(settings: &VlanSettings) -> Result<PortVlans, FabricError> {
    let untagged = match settings.untagged {
        None => None,
        Some(number) => Some(
            VlanId::new(number)
                .ok_or_else(|| invalid(format!("a VLAN is a number from 1 to {}, not {number}", VlanId::MAX)))?,
        ),
    };
    Ok(PortVlans {
        untagged,
        tagged: settings.tagged.numbers().filter_map(VlanId::new).collect(),
    })
}

/// VLANs of a port as they are told.
fn vlans_of(vlans: &PortVlans) -> VlanSettings {
    VlanSettings {
        untagged: vlans.untagged.map(VlanId::number),
        tagged: vlans.tagged.iter().map(VlanId::number).collect::<VlanList>(),
    }
}

/// Frames that ended in a switch, by reason, with the names that reasons have in JSON.
pub(in crate::dataplane) fn dropped_of(counters: &PortCounters) -> Counts {
    let reasons = DropReason::ALL.into_iter();
    reasons
        .map(|reason| (reason.name().replace('-', "_"), counters.dropped(reason)))
        .collect()
}

/// Frames that left a switch over a trunk, at its end `from`, and do not arrive, by reason.
fn lost_of(trunk: &Trunk, from: usize) -> Counts {
    let TrunkLosses {
        pool_share,
        bad_offload,
        too_many_trunks,
    } = trunk.lost[from];
    let own = [
        ("pool_share", pool_share),
        ("bad_offload", bad_offload),
        ("too_many_trunks", too_many_trunks),
    ];
    let counters = trunk.links[from].counters();
    let of_link = LinkDrop::ALL.map(|reason| (reason.name(), counters.dropped(reason)));
    let all = own.into_iter().chain(of_link);
    all.map(|(reason, count)| (reason.replace('-', "_"), count)).collect()
}

impl Fabric {
    /// Says how a switch works, before trunks are added to it.
    ///
    /// # Errors
    /// A priority that no bridge can have; then nothing is changed.
    pub fn set_switch(&self, switch: SwitchId, settings: &SwitchSettings) -> Result<(), FabricError> {
        if let Some(StpSettings { priority }) = settings.stp
            && (priority % StpSettings::PRIORITY_STEP != 0 || priority > StpSettings::PRIORITY_MAX)
        {
            return Err(invalid(format!(
                "a spanning tree priority is a multiple of {} up to {}, not {priority}",
                StpSettings::PRIORITY_STEP,
                StpSettings::PRIORITY_MAX
            )));
        }
        self.runner.with(|plane, now| {
            let state = &mut plane.forwarding.switches[switch.0];
            state.settings = settings.clone();
            state.apply_settings(switch.0, now);
            plane.forwarding.serve_switch(switch.0, now);
        });
        Ok(())
    }

    /// Changes the VLANs of a port (nothing, if there is no `change`) and returns what is in force; none in a switch without
    /// VLANs.
    ///
    /// # Errors
    /// No such port, one at no switch, or a number that is no VLAN; then nothing was changed.
    pub fn set_vlans(&self, name: &str, change: Option<VlanChange>) -> Result<Option<VlanSettings>, FabricError> {
        self.runner.with(|plane, now| {
            let index = plane
                .card_index(name)
                .ok_or_else(|| FabricError::NoSuchPort(name.to_owned()))?;
            let card = plane.card(index);
            let (switch, switch_port) = (card.attachment().switch, card.attachment().port);
            if let Some(change) = change {
                if card.settings().loopback {
                    return Err(invalid(format!(
                        "port {name:?} is connected to itself: there is no switch that could have VLANs"
                    )));
                }
                if plane.forwarding.switches[switch].settings.cable {
                    return Err(invalid(format!(
                        "port {name:?} is at a cable to another card: there is no switch that could have VLANs"
                    )));
                }
                let card = plane.card(index);
                let settings = match change {
                    VlanChange::Set(settings) => Some(settings),
                    VlanChange::Default => None,
                };
                let vlans = settings.as_ref().map(vlans_from).transpose()?;
                card.settings_mut().vlans = settings;
                plane.forwarding.switches[switch]
                    .switch
                    .set_port_vlans(switch_port, vlans);
                plane.forwarding.serve_switch(switch, now);
                plane.settings_changed(Subject::Port(index));
            }
            Ok(plane.forwarding.switches[switch]
                .switch
                .port_vlans(switch_port)
                .as_ref()
                .map(vlans_of))
        })
    }

    /// A switch, or all: how they work, their ports, what they counted. `None` if there is no such switch.
    pub fn switch_info(&self, name: Option<&str>) -> Option<Vec<SwitchInfo>> {
        self.runner.with(|plane, now| {
            let switches = plane.switches_named(name)?;
            Some(
                switches
                    .into_iter()
                    .map(|index| plane.switch_info(index, now))
                    .collect(),
            )
        })
    }

    /// The stations that a switch, or all, know now, by switch, VLAN and address. `None` if there is no such switch.
    pub fn stations(&self, name: Option<&str>) -> Option<Vec<StationInfo>> {
        self.runner.with(|plane, now| {
            let mut stations = Vec::new();
            for index in plane.switches_named(name)? {
                let state = &plane.forwarding.switches[index];
                let mut of_switch: Vec<_> = state.switch.table(now).collect();
                of_switch.sort_by_key(|entry| (entry.vlan, entry.mac));
                stations.extend(of_switch.into_iter().map(|entry| StationInfo {
                    switch: state.name.clone(),
                    vlan: entry.vlan.map(VlanId::number),
                    mac: entry.mac,
                    to: plane.behind(index, entry.port),
                    age_ns: entry.age_ns,
                }));
            }
            Some(stations)
        })
    }

    /// The multicast groups that a switch, or all, know to be wanted behind ports, by switch, VLAN, group and port. `None` if there is
    /// no such switch.
    pub fn memberships(&self, name: Option<&str>) -> Option<Vec<MembershipInfo>> {
        self.runner.with(|plane, now| {
            let mut memberships = Vec::new();
            for index in plane.switches_named(name)? {
                let state = &plane.forwarding.switches[index];
                memberships.extend(state.switch.group_members(now).map(|member| MembershipInfo {
                    switch: state.name.clone(),
                    vlan: member.vlan.map(VlanId::number),
                    group: member.group,
                    to: plane.behind(index, member.port),
                    left_ns: member.left_ns,
                }));
            }
            Some(memberships)
        })
    }
}

fn snooping_of(switch: &Switch, now: Time) -> Option<SnoopingInfo> {
    let vlans = switch.snooped_vlans(now).map(|vlan| {
        let [igmp_querier, mld_querier] = vlan.queriers.map(|querier| querier.map(|mac| mac.to_string()));
        SnoopedVlanInfo {
            vlan: vlan.vlan.map(VlanId::number),
            flooded: vlan.is_flooded,
            igmp_querier,
            mld_querier,
        }
    });
    switch.snoops().then(|| SnoopingInfo {
        vlans: vlans.collect(),
        counters: counts(&switch.snooping_counters()),
    })
}

fn stp_port_of(port: StpPortStatus) -> StpPortInfo {
    StpPortInfo {
        role: port.role.name().to_owned(),
        state: port.state.name().to_owned(),
        cost: port.path_cost,
        edge: port.edge,
        old_protocol: port.old_protocol,
        designated: port.designated.0.to_string(),
        bpdus_in: port.counters.bpdus_in,
        bpdus_out: port.counters.bpdus_out,
        bpdus_unknown: port.counters.bpdus_unknown,
    }
}

impl DataPlane {
    /// The numbers of the switches that are meant; cables between two cards, and cards that are connected to themselves, are none.
    fn switches_named(&self, name: Option<&str>) -> Option<Vec<usize>> {
        let mut found = Vec::new();
        for (index, state) in self.forwarding.switches.iter().enumerate() {
            if state.name != ITSELF && !state.settings.cable && name.is_none_or(|name| state.name == name) {
                found.push(index);
            }
        }
        (name.is_none() || !found.is_empty()).then_some(found)
    }

    /// What is behind a port of a switch.
    fn behind(&self, switch: usize, port: PortId) -> String {
        match self.forwarding.switches[switch].switch.egress(port) {
            Some(Egress::Local(_)) => {
                let card = self.forwarding.switches[switch].card_at(port);
                self.cards()[card].name().to_owned()
            }
            Some(Egress::Trunk(trunk)) => {
                let ends = self
                    .forwarding
                    .wiring
                    .trunks
                    .get(usize::from(trunk.0))
                    .map(|trunk| trunk.ends);
                let far = ends.and_then(|[a, b]| [a, b].into_iter().find(|end| *end != (switch, port)));
                far.map_or_else(String::new, |(switch, _)| self.forwarding.switches[switch].name.clone())
            }
            None => String::new(),
        }
    }

    /// What is lost on the trunk behind a port of a switch; `None` if a card is behind it.
    fn lost_behind(&self, switch: usize, port: PortId) -> Option<Counts> {
        let Some(Egress::Trunk(trunk)) = self.forwarding.switches[switch].switch.egress(port) else {
            return None;
        };
        let trunk = self.forwarding.wiring.trunks.get(usize::from(trunk.0))?;
        let from = trunk.ends.iter().position(|end| *end == (switch, port))?;
        Some(lost_of(trunk, from))
    }

    fn switch_info(&self, index: usize, now: ether::Time) -> SwitchInfo {
        let state = &self.forwarding.switches[index];
        let mut stations = BTreeMap::<PortId, u64>::new();
        for entry in state.switch.table(now) {
            *stations.entry(entry.port).or_default() += 1;
        }
        let ports = state.switch.ports().map(|port| {
            let counters = state.switch.counters(port);
            SwitchPortInfo {
                port: port.0,
                to: self.behind(index, port),
                trunk: matches!(state.switch.egress(port), Some(Egress::Trunk(_))),
                up: state.switch.is_port_up(port),
                aggregate: state.switch.aggregate_of(port).first().map(|first| first.0),
                stp: state.switch.spanning_tree_port(port).map(stp_port_of),
                router: state.switch.has_router(now, port),
                vlans: state.switch.port_vlans(port).as_ref().map(vlans_of),
                stations: stations.get(&port).copied().unwrap_or(0),
                counters: counts(counters),
                dropped: dropped_of(counters),
                lost: self.lost_behind(index, port),
            }
        });
        SwitchInfo {
            switch: state.name.clone(),
            settings: state.settings.clone(),
            has_vlans: state.switch.has_vlans(),
            stp: state.switch.spanning_tree().map(|tree| StpInfo {
                bridge: tree.bridge.to_string(),
                root: tree.root.to_string(),
                root_cost: tree.root_cost,
                root_port: tree.root_port.map(|port| port.0),
                topology_changes: tree.topology_changes,
                since_change_ns: tree.last_change.map(|at| now.nanos_since(at)),
            }),
            snooping: snooping_of(&state.switch, now),
            ports: ports.collect(),
        }
    }
}
