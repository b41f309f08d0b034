//! The settings in force of a lab's cards and cables: those of the lab file, changed by `weft nic` and `weft link`, and
//! from inside a guest. A `vnicd` that is started again gets them, a saved lab contains them, and reconciling compares
//! them with a file.

mod vnicd_config;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    lab::{Lab, speed, topology::Topology},
    vnicd_client::{
        Drained, PortPacketsGiven, PortTimer, SettingsEvent,
        report::{
            CoalescingSettings, DmaSettings, MisorderSettings, PortLinks, SteeringSettings, TrunkLinks, VlanSettings,
        },
    },
};

/// The settings of one card and its cable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PortMemory {
    coalescing: CoalescingSettings,
    dma: DmaSettings,
    steering: SteeringSettings,
    misorder: MisorderSettings,
    link: PortLinks,
    groups: Vec<u16>,
    vlans: Option<VlanSettings>,
    /// The card at the other end of the cable, if no switch is there: what this one gets is what that one sends.
    #[serde(default)]
    far_end: Option<String>,
}

/// The settings of all cards of a lab, by port name, and of the links between its switches, in the order of the lab
/// file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    ports: BTreeMap<String, PortMemory>,
    trunks: Vec<crate::lab::Trunk>,
    /// Trees of multicast groups that a user chose.
    trees: BTreeMap<u16, String>,
    /// Timers that a drained `vnicd` handed over, until the next one has them.
    timers: Vec<PortTimer>,
    /// Packets that guests gave to reliable groups of that `vnicd`, until the next one knows.
    #[serde(default)]
    packets_given: Vec<PortPacketsGiven>,
}

impl Settings {
    /// Makes the settings of a lab file.
    #[must_use]
    pub fn of(lab: &Lab) -> Self {
        let memory = |port: &str, nic: &crate::lab::Nic| PortMemory {
            coalescing: nic.coalescing.clone(),
            dma: nic.dma,
            steering: nic.steering,
            misorder: nic.misorder,
            link: nic.link.clone(),
            groups: Vec::new(),
            vlans: nic.vlans.clone(),
            far_end: lab.far_end(port).map(ToOwned::to_owned),
        };
        Self {
            ports: lab
                .ports()
                .map(|(port, _, nic)| (port.clone(), memory(&port, nic)))
                .collect(),
            trunks: lab.trunks.clone(),
            trees: BTreeMap::new(),
            timers: Vec::new(),
            packets_given: Vec::new(),
        }
    }

    /// Returns the lab with the settings in force in place of those of its file.
    #[must_use]
    pub fn in_force(&self, lab: &Lab) -> Lab {
        let mut lab = lab.clone();
        for node in &mut lab.nodes {
            let names: Vec<_> = (0..node.nics.len()).map(|index| node.port(index)).collect();
            for (name, nic) in names.iter().zip(&mut node.nics) {
                if let Some(memory) = self.ports.get(name) {
                    nic.coalescing = memory.coalescing.clone();
                    nic.dma = memory.dma;
                    nic.steering = memory.steering;
                    nic.misorder = memory.misorder;
                    nic.link = memory.link.clone();
                    nic.vlans = memory.vlans.clone();
                }
            }
        }
        lab.trunks.clone_from(&self.trunks);
        lab
    }

    /// Returns the settings of a changed lab file. What no file contains stays: groups that cards are in, and their
    /// trees.
    #[must_use]
    pub fn changed_to(&self, lab: &Lab) -> Self {
        let mut changed = Self::of(lab);
        for (port, memory) in &mut changed.ports {
            memory.groups = self.ports.get(port).map_or_else(Vec::new, |now| now.groups.clone());
        }
        changed.trees.clone_from(&self.trees);
        changed.timers.clone_from(&self.timers);
        changed.packets_given.clone_from(&self.packets_given);
        changed
    }

    /// Returns the topology of the lab with the current settings of its cables.
    #[must_use]
    pub fn topology(&self, lab: &Lab) -> Topology {
        let mut topology = Topology::of(lab);
        for nic in topology.nodes.iter_mut().flat_map(|node| &mut node.nics) {
            if let Some(memory) = self.ports.get(&nic.name) {
                nic.link = memory.link.clone();
            }
        }
        // Several trunks between two switches are distinguished by their order: both lists have the lab's order.
        let mut left: Vec<_> = self.trunks.iter().collect();
        for trunk in &mut topology.trunks {
            let ends = |memory: &&crate::lab::Trunk| (&memory.a, &memory.b) == (&trunk.a, &trunk.b);
            if let Some(at) = left.iter().position(ends) {
                trunk.link = left.remove(at).link.clone();
            }
        }
        topology
    }

    /// Moves the timers of guests into the future, since time in which the guests were stopped does not count.
    pub fn shift_timers(&mut self, by_ns: u64) {
        for armed in &mut self.timers {
            armed.timer.due = armed.timer.due.plus_nanos(by_ns);
        }
    }

    /// Remembers what a drained `vnicd` handed over for the next one.
    pub fn hand_over(&mut self, drained: &Drained) {
        self.timers.clone_from(&drained.timers);
        self.packets_given.clone_from(&drained.packets_given);
    }

    /// Forgets what was handed over: a `vnicd` has it, and one that is started later must not take it again.
    pub fn handed_over(&mut self) {
        self.timers = Vec::new();
        self.packets_given = Vec::new();
    }

    /// Remembers the coalescing settings in force on a card.
    pub fn set_coalescing(&mut self, port: &str, settings: CoalescingSettings) {
        if let Some(memory) = self.ports.get_mut(port) {
            memory.coalescing = settings;
        }
    }

    /// Remembers the settings in force at a card's end of its cable.
    pub fn set_link(&mut self, port: &str, settings: PortLinks) {
        let Some(memory) = self.ports.get_mut(port) else { return };
        match memory.far_end.clone() {
            None => memory.link = settings,
            Some(far) => {
                memory.link.from_guest = settings.from_guest;
                if let Some(far) = self.ports.get_mut(&far) {
                    far.link.to_guest = settings.from_guest;
                }
            }
        }
    }

    /// Returns the settings in force on a card's cable.
    #[must_use]
    pub fn link(&self, port: &str) -> Option<&PortLinks> {
        Some(&self.ports.get(port)?.link)
    }

    /// Remembers the settings in force on the cable between two switches, in the direction of `a` and `b`; `number`
    /// selects one of several, from 1.
    pub fn set_trunk(&mut self, a: &str, b: &str, number: usize, settings: TrunkLinks) {
        let between = |trunk: &&mut crate::lab::Trunk| {
            let names = (trunk.a.as_str(), trunk.b.as_str());
            names == (a, b) || names == (b, a)
        };
        if let Some(trunk) = self.trunks.iter_mut().filter(between).nth(number.saturating_sub(1)) {
            if (trunk.a.as_str(), trunk.b.as_str()) == (a, b) {
                trunk.link = settings;
            } else {
                trunk.link = TrunkLinks {
                    a_to_b: settings.b_to_a,
                    b_to_a: settings.a_to_b,
                };
            }
        }
    }

    /// Returns whether the guest's end of that cable is to have a carrier.
    #[must_use]
    pub fn link_is_up(&self, port: &str) -> bool {
        self.ports
            .get(port)
            .is_none_or(|memory| memory.link.to_guest.up && memory.link.from_guest.up)
    }

    /// Returns the speed that a card tells a guest that boots now, in Mbit/s: what the lab file says, else the rate of its cable.
    #[must_use]
    pub fn speed_mbps(&self, port: &str, nic: &crate::lab::Nic) -> u32 {
        let link = self.ports.get(port).map_or(&nic.link, |memory| &memory.link);
        nic.card.speed_mbps.unwrap_or_else(|| speed::of_cable(link))
    }

    /// Remembers settings in force that `vnicd` reported: guests and others change settings without asking the
    /// supervisor.
    pub fn set(&mut self, event: SettingsEvent) {
        match event {
            SettingsEvent::Port {
                port,
                coalesce,
                dma,
                steering,
                misorder,
                link,
                groups,
                vlans,
            } => {
                if let Some(memory) = self.ports.get_mut(&port) {
                    *memory = PortMemory {
                        coalescing: coalesce,
                        dma,
                        steering: *steering,
                        misorder,
                        link: memory.link.clone(),
                        groups,
                        vlans: vlans.map(|vlans| *vlans),
                        far_end: memory.far_end.take(),
                    };
                }
                self.set_link(&port, link);
            }
            SettingsEvent::Trunk { a, b, number, link } => self.set_trunk(&a, &b, number, link),
            SettingsEvent::Group { group, tree } => {
                self.trees.insert(group, tree);
            }
            SettingsEvent::Watching => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::state::StateDir;
    use crate::vnicd_client::report::SteeringMode;

    #[test]
    fn parallel_trunks_are_shown_each_with_its_own_settings() {
        let trunk = "[[trunk]]\nbetween = [\"s1\", \"s2\"]\n";
        let text = format!(
            "[[switch]]\nname = \"s1\"\nstp = true\n[[switch]]\nname = \"s2\"\nstp = true\n{trunk}{trunk}{trunk}\
             [[node]]\nname = \"n1\"\nnic = [{{ switch = \"s1\" }}]\n"
        );
        let lab = Lab::parse(&text, "lab.toml", "lines", Path::new("/")).expect("valid");
        let mut settings = Settings::of(&lab);
        let with_delay = |delay_ns| {
            let mut link = TrunkLinks::default();
            link.a_to_b.delay_ns = delay_ns;
            link
        };
        settings.set_trunk("s1", "s2", 2, with_delay(2));
        settings.set_trunk("s1", "s2", 3, with_delay(3));
        let shown = settings.topology(&lab).trunks;
        assert_eq!(
            shown.iter().map(|trunk| trunk.link.a_to_b.delay_ns).collect::<Vec<_>>(),
            [0, 2, 3]
        );
    }

    #[test]
    fn a_vnicd_started_again_gets_the_settings_that_were_in_force() {
        let lab = Lab::parse(
            "[[switch]]\nname = \"s1\"\n[[switch]]\nname = \"s2\"\n[[trunk]]\nbetween = [\"s1\", \"s2\"]\n\
             [[node]]\nname = \"n1\"\nnic = [{ switch = \"s1\" }]\n[[node]]\nname = \"n2\"\nnic = [{ switch = \"s2\" }]\n",
            "lab.toml",
            "pair",
            Path::new("/"),
        )
        .expect("valid");
        let state = StateDir::at(Path::new("/run/weft/pair"));
        let mut settings = Settings::of(&lab);
        let mut stream = CoalescingSettings::default();
        stream.all.strategy = "stream".to_owned();
        stream.all.delay_ns = 1_000_000;
        settings.set_coalescing("n2.eth0", stream.clone());
        let mut cable = PortLinks::default();
        cable.from_guest.up = false;
        settings.set_link("n1.eth0", cable.clone());
        // A guest changed this setting, as vnicd reports it.
        settings.set(SettingsEvent::Port {
            port: "n1.eth0".to_owned(),
            coalesce: CoalescingSettings::default(),
            dma: DmaSettings {
                setup_ns: 77,
                ..Default::default()
            },
            steering: Box::new(SteeringSettings {
                mode: SteeringMode::Endpoint,
                ..Default::default()
            }),
            misorder: MisorderSettings::of_degree(3),
            link: cable.clone(),
            groups: vec![7],
            vlans: Some(Box::default()),
        });
        settings.set(SettingsEvent::Group {
            group: 7,
            tree: "chain".to_owned(),
        });
        let mut trunk = lab.trunks[0].link.clone();
        trunk.a_to_b.delay_ns = 5;
        settings.set(SettingsEvent::Trunk {
            a: "s1".to_owned(),
            b: "s2".to_owned(),
            number: 1,
            link: trunk.clone(),
        });
        let config = settings.vnicd_config(&lab, &state).expect("short paths");
        assert_eq!((config.ports[0].dma.setup_ns, &config.trunks[0].link), (77, &trunk));
        assert_eq!(config.ports[0].steering.mode, SteeringMode::Endpoint);
        assert_eq!(config.ports[0].misorder.degree, 3);
        let turned = TrunkLinks {
            a_to_b: trunk.b_to_a,
            b_to_a: trunk.a_to_b,
        };
        settings.set_trunk("s2", "s1", 1, turned);
        assert_eq!(
            settings.vnicd_config(&lab, &state).expect("short paths").trunks,
            config.trunks
        );
        assert_eq!(
            (&config.ports[0].groups[..], config.groups[0].tree.as_str()),
            (&[7][..], "chain")
        );
        assert_eq!(config.ports[1].coalescing, stream);
        assert_eq!(config.ports[0].coalescing, CoalescingSettings::default());
        assert_eq!(config.ports[0].link, cable);
        let connect = config.ports[0].connect.as_deref();
        assert_eq!(connect, Some(Path::new("/run/weft/pair/n1.eth0.sock")));
        assert!(!settings.link_is_up("n1.eth0") && settings.link_is_up("n2.eth0"));
    }
}
