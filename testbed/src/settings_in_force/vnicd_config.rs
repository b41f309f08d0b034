//! The configuration of a `vnicd` that is to continue with the settings in force.

use anyhow::{Context, Result};
use vnicd_protocol::{LinkSettings, MTU_MAX, PortLinks, SwitchSettings};

use super::{PortMemory, Settings};
use crate::{
    lab::{Bypass, Lab, Nic, Trunk},
    state::StateDir,
    vnicd_client::config::{Config, GroupEntry, PortSettings, SwitchEntry, TrunkEntry},
};

impl Settings {
    /// Makes the configuration of a `vnicd` that is to continue with these settings.
    ///
    /// # Errors
    /// Fails with one sentence when a socket path is too long.
    pub fn vnicd_config(&self, lab: &Lab, state: &StateDir) -> Result<Config> {
        let mut ports = Vec::new();
        for (name, _, nic) in lab.ports() {
            let memory = self.ports.get(&name).context("a port that is not in the lab")?;
            ports.push(self.port_settings(name, nic, memory, state)?);
        }
        let groups = self.trees.iter().map(|(group, tree)| GroupEntry {
            group: *group,
            tree: tree.clone(),
        });
        let switches = lab.switches.iter().map(|name| SwitchEntry {
            name: name.clone(),
            settings: lab.switch_settings.get(name).cloned().unwrap_or_default(),
        });
        let cables = lab.cables.iter().map(|cable| SwitchEntry {
            name: cable.name(),
            settings: SwitchSettings::of_cable(),
        });
        Ok(Config {
            switches: switches.chain(cables).collect(),
            ports,
            trunks: self.trunks.iter().map(trunk_entry).collect(),
            groups: groups.collect(),
        })
    }

    fn port_settings(&self, name: String, nic: &Nic, memory: &PortMemory, state: &StateDir) -> Result<PortSettings> {
        let timers = self.timers.iter().filter(|armed| armed.port == name);
        let given = self.packets_given.iter().filter(|given| given.port == name);
        Ok(PortSettings {
            switch: nic.switch.clone(),
            listen: None,
            connect: Some(state.socket(&format!("{name}.sock"))?),
            mac: Some(nic.mac),
            queue_pairs: nic.queue_pairs,
            mtu: nic.mtu,
            offloads: nic.offloads,
            iommu: nic.bypass.is_some_and(Bypass::needs_iommu),
            loopback: nic.card.loopback,
            member_timeout_ns: nic.card.member_timeout_ns,
            returns: false,
            coalescing: memory.coalescing.clone(),
            dma: memory.dma,
            steering: memory.steering,
            misorder: memory.misorder,
            link: memory.at_own_end(),
            groups: memory.groups.clone(),
            vlans: memory.vlans.clone(),
            aggregate: nic.card.aggregate.clone(),
            timers: timers.map(|armed| armed.timer).collect(),
            packets_given: given.map(|given| given.given).collect(),
            name,
        })
    }
}

impl PortMemory {
    /// Returns what is set at the card's own end: of a cable to another card, what that one sends is set there.
    fn at_own_end(&self) -> PortLinks {
        match self.far_end {
            None => self.link.clone(),
            Some(_) => PortLinks {
                to_guest: LinkSettings {
                    mtu: MTU_MAX,
                    ..LinkSettings::default()
                },
                from_guest: self.link.from_guest,
            },
        }
    }
}

fn trunk_entry(trunk: &Trunk) -> TrunkEntry {
    TrunkEntry {
        a: trunk.a.clone(),
        b: trunk.b.clone(),
        link: trunk.link.clone(),
        vlans: trunk.vlans.clone(),
        aggregate: trunk.aggregate.clone(),
        stp_cost: trunk.stp_cost,
    }
}
