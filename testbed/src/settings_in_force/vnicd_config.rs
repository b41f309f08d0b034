//! The configuration of a `vnicd` that is to continue with the settings in force.

use anyhow::{Context, Result};

use super::{PortMemory, Settings};
use crate::{
    lab::{Lab, Nic, Trunk},
    state::StateDir,
    vnicd_client::{
        config::{GroupConfig, PortConfig, SwitchConfig, TrunkConfig, VnicdConfig},
        report::SwitchSettings,
    },
};

impl Settings {
    /// The configuration for a `vnicd` that is to go on with these settings.
    ///
    /// # Errors
    /// One sentence when a socket path is too long.
    pub fn vnicd_config(&self, lab: &Lab, state: &StateDir) -> Result<VnicdConfig> {
        let mut ports = Vec::new();
        for (name, _, nic) in lab.ports() {
            let memory = self.ports.get(&name).context("a port that is not in the lab")?;
            ports.push(self.port_config(name, nic, memory, state)?);
        }
        let groups = self.trees.iter().map(|(group, tree)| GroupConfig {
            group: *group,
            tree: tree.clone(),
        });
        Ok(VnicdConfig {
            switches: lab.switches.iter().map(|name| switch_config(lab, name)).collect(),
            ports,
            trunks: self.trunks.iter().map(trunk_config).collect(),
            groups: groups.collect(),
        })
    }

    fn port_config(&self, name: String, nic: &Nic, memory: &PortMemory, state: &StateDir) -> Result<PortConfig> {
        let connect = state.socket(&format!("{name}.sock"))?;
        let timers = self.timers.iter().filter(|armed| armed.port == name);
        Ok(PortConfig {
            switch: nic.switch.clone(),
            connect: connect
                .to_str()
                .context("the folder of the lab is not named in UTF-8")?
                .to_owned(),
            mac: nic.mac.to_string(),
            queue_pairs: nic.queue_pairs,
            mtu: nic.mtu,
            offloads: nic.offloads,
            loopback: nic.loopback,
            returns: false,
            coalescing: memory.coalescing.clone(),
            dma: memory.dma.clone(),
            steering: memory.steering.clone(),
            misorder: memory.misorder.clone(),
            link: memory.link.clone(),
            groups: memory.groups.clone(),
            vlans: memory.vlans.clone(),
            timers: timers.map(|armed| armed.timer.clone()).collect(),
            name,
        })
    }
}

fn switch_config(lab: &Lab, name: &str) -> SwitchConfig {
    let SwitchSettings {
        reserved,
        stp,
        snooping,
    } = lab.switch_settings.get(name).cloned().unwrap_or_default();
    SwitchConfig {
        name: name.to_owned(),
        reserved,
        stp,
        snooping,
    }
}

fn trunk_config(trunk: &Trunk) -> TrunkConfig {
    TrunkConfig {
        a: trunk.a.clone(),
        b: trunk.b.clone(),
        link: trunk.link.clone(),
        vlans: trunk.vlans.clone(),
        aggregate: trunk.aggregate.clone(),
        stp_cost: trunk.stp_cost,
    }
}
