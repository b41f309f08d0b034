//! What the supervisor remembers of a lab's cards and cables, so that a `vnicd` started again has the settings that were
//! in force: those of the lab file, changed by `weft nic` and `weft link`, and those set from inside a guest (read back).

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use crate::{
    lab::Lab,
    state::StateDir,
    vnicd_client::{
        VnicdClient, VnicdError,
        config::{PortConfig, SwitchConfig, TrunkConfig, VnicdConfig},
        report::{CoalescingChange, CoalescingSettings, Direction, DmaChange, DmaSettings, LinkChange, PortLinks},
    },
};

/// Settings of one card and its cable.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PortMemory {
    coalescing: CoalescingSettings,
    dma: DmaSettings,
    link: PortLinks,
}

/// Settings of all cards of a lab, by port name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings(BTreeMap<String, PortMemory>);

impl Settings {
    /// What the lab file says.
    #[must_use]
    pub fn of(lab: &Lab) -> Self {
        let memory = |nic: &crate::lab::Nic| PortMemory {
            coalescing: nic.coalescing.clone(),
            dma: nic.dma.clone(),
            link: nic.link.clone(),
        };
        Self(lab.ports().map(|(port, _, nic)| (port, memory(nic))).collect())
    }

    /// The configuration for a `vnicd` that is to go on with these settings.
    ///
    /// # Errors
    /// One sentence when a socket path is too long.
    pub fn vnicd_config(&self, lab: &Lab, state: &StateDir) -> Result<VnicdConfig> {
        let mut ports = Vec::new();
        for (name, _, nic) in lab.ports() {
            let memory = self.0.get(&name).context("a port that is not in the lab")?;
            let listen = state.socket(&format!("{name}.sock"))?;
            ports.push(PortConfig {
                switch: nic.switch.clone(),
                listen: listen
                    .to_str()
                    .context("the folder of the lab is not named in UTF-8")?
                    .to_owned(),
                mac: nic.mac.to_string(),
                queue_pairs: nic.queue_pairs,
                mtu: nic.mtu,
                offloads: nic.offloads,
                coalescing: memory.coalescing.clone(),
                dma: memory.dma.clone(),
                link: memory.link.clone(),
                name,
            });
        }
        let switches = lab
            .switches
            .iter()
            .map(|name| SwitchConfig { name: name.clone() })
            .collect();
        let trunk = |trunk: &crate::lab::Trunk| TrunkConfig {
            a: trunk.a.clone(),
            b: trunk.b.clone(),
            link: trunk.link.clone(),
        };
        Ok(VnicdConfig {
            switches,
            ports,
            trunks: lab.trunks.iter().map(trunk).collect(),
        })
    }

    /// Remembers what is in force on a card now.
    pub fn set_coalescing(&mut self, port: &str, settings: CoalescingSettings) {
        if let Some(memory) = self.0.get_mut(port) {
            memory.coalescing = settings;
        }
    }

    /// Remembers what is in force on a cable now.
    pub fn set_link(&mut self, port: &str, settings: PortLinks) {
        if let Some(memory) = self.0.get_mut(port) {
            memory.link = settings;
        }
    }

    /// Whether the guest's end of that cable shall have a carrier.
    #[must_use]
    pub fn link_is_up(&self, port: &str) -> bool {
        self.0
            .get(port)
            .is_none_or(|memory| memory.link.to_guest.up && memory.link.from_guest.up)
    }

    /// Reads from `vnicd` what is in force on every card: guests and others change settings without asking us.
    ///
    /// # Errors
    /// When `vnicd` does not answer.
    pub fn read_back(&mut self, vnicd: &mut VnicdClient) -> Result<(), VnicdError> {
        for (port, memory) in &mut self.0 {
            memory.coalescing = vnicd.coalesce(port, &CoalescingChange::default())?;
            memory.dma = vnicd.dma(port, &DmaChange::default())?;
            memory.link = vnicd.link(port, Direction::Both, &LinkChange::default())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_vnicd_started_again_gets_the_settings_that_were_in_force() {
        let lab = Lab::parse(
            "[[node]]\nname = \"n1\"\n[[node]]\nname = \"n2\"\n",
            "lab.toml",
            "pair",
            Path::new("/"),
        )
        .expect("valid");
        let state = StateDir::at(Path::new("/run/weft/pair"));
        let mut settings = Settings::of(&lab);
        let stream = CoalescingSettings {
            strategy: "stream".to_owned(),
            delay_ns: 1_000_000,
            ..Default::default()
        };
        settings.set_coalescing("n2.eth0", stream.clone());
        let mut cable = PortLinks::default();
        cable.from_guest.up = false;
        settings.set_link("n1.eth0", cable.clone());
        let config = settings.vnicd_config(&lab, &state).expect("short paths");
        assert_eq!(config.ports[1].coalescing, stream);
        assert_eq!(config.ports[0].coalescing, CoalescingSettings::default());
        assert_eq!(config.ports[0].link, cable);
        assert_eq!(config.ports[0].listen, "/run/weft/pair/n1.eth0.sock");
        assert!(!settings.link_is_up("n1.eth0") && settings.link_is_up("n2.eth0"));
    }
}
