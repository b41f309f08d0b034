//! The links of a topology: between guests, each is a switch that forwards everything, as a cable does; to a bridge, it is a cable to
//! that switch; between bridges it is a trunk.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Note, nodes::Nodes, yaml::Yaml};

/// Number of a containerlab node's first interface that links use: `eth0` is for its management.
const FIRST_INTERFACE: usize = 1;

/// Ends of links that are no nodes.
const OUTSIDE: [&str; 3] = ["host", "mgmt-net", "macvlan"];

/// What links become.
#[derive(Debug)]
pub(super) struct Links {
    pub switches: Vec<Switch>,
    pub trunks: Vec<Trunk>,
    pub first_interface: usize,
}

/// A switch of the lab file.
#[derive(Debug, Serialize)]
pub(super) struct Switch {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved: Option<&'static str>,
}

/// A cable between two switches.
#[derive(Debug, Serialize)]
pub(super) struct Trunk {
    between: [String; 2],
}

/// A NIC of the lab file.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Nic {
    switch: String,
    address: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<Cable>,
}

#[derive(Clone, Debug, Serialize)]
struct Cable {
    up: bool,
}

/// One end of a link.
struct End {
    node: String,
    interface: String,
    line: usize,
}

/// The interfaces of each guest by number, and those without one.
#[derive(Default)]
struct Interfaces {
    numbered: BTreeMap<usize, Nic>,
    named: Vec<(End, Nic)>,
}

impl Links {
    pub(super) fn of(topology: &Yaml, nodes: &mut Nodes, notes: &mut Vec<Note>) -> Self {
        let bridge = |name: &String| Switch {
            name: name.clone(),
            reserved: None,
        };
        let mut links = Self {
            switches: nodes.bridges.iter().map(bridge).collect(),
            trunks: Vec::new(),
            first_interface: FIRST_INTERFACE,
        };
        let mut guests: BTreeMap<String, Interfaces> = BTreeMap::new();
        for link in topology.get("links").map(Yaml::items).unwrap_or_default() {
            links.add(link, nodes, &mut guests, notes);
        }
        if guests.values().any(|interfaces| interfaces.numbered.contains_key(&0)) {
            links.first_interface = 0;
        }
        for (name, interfaces) in guests {
            let nics = interfaces.in_order(links.first_interface, &links.switches, notes);
            if let Some(guest) = nodes.guest(&name) {
                guest.nic = nics;
            }
        }
        links
    }

    fn add(
        &mut self,
        link: &Yaml,
        nodes: &mut Nodes,
        guests: &mut BTreeMap<String, Interfaces>,
        notes: &mut Vec<Note>,
    ) {
        let mut mtu = None;
        for (key, line, value) in link.entries() {
            match &*key {
                "endpoints" => {}
                "type" if value.text().as_deref() == Some("veth") => {}
                "mtu" => mtu = value.text().and_then(|text| text.parse().ok()),
                _ => notes.push(Note::left_out(line, &key)),
            }
        }
        let items = link.get("endpoints").map(Yaml::items).unwrap_or_default();
        let ends: Vec<End> = items.iter().filter_map(End::of).collect();
        let Ok([a, b]) = <[End; 2]>::try_from(ends) else {
            let sentence = "a link without two ends is left out".to_owned();
            return notes.push(Note {
                line: link.line(),
                sentence,
            });
        };
        if let Some(end) = [&a, &b].into_iter().find(|end| !end.is_of(nodes)) {
            let what = if OUTSIDE.contains(&&*end.node) {
                "leads out of the lab"
            } else {
                "ends at no node of the file"
            };
            let sentence = format!("the link to {} {what} and is left out", end.node.escape_default());
            return notes.push(Note {
                line: end.line,
                sentence,
            });
        }
        let is_bridge = |end: &End| nodes.bridges.contains(&end.node);
        let switch = match (is_bridge(&a), is_bridge(&b)) {
            (true, true) => {
                let between = [a.node, b.node];
                return self.trunks.push(Trunk { between });
            }
            (true, false) => a.node.clone(),
            (false, true) => b.node.clone(),
            (false, false) => self.cable(nodes),
        };
        let nic = Nic {
            switch,
            address: "none",
            mtu,
            link: None,
        };
        for end in [a, b].into_iter().filter(|end| !nodes.bridges.contains(&end.node)) {
            guests.entry(end.node.clone()).or_default().add(end, nic.clone(), notes);
        }
    }

    /// Adds a switch that is as a cable, and returns its name.
    fn cable(&mut self, nodes: &mut Nodes) -> String {
        let is_free =
            |name: &String| nodes.guest(name).is_none() && self.switches.iter().all(|switch| switch.name != *name);
        let names = (self.switches.len() + 1..).map(|number| format!("link{number}"));
        let name = names.into_iter().find(is_free).unwrap_or_default();
        self.switches.push(Switch {
            name: name.clone(),
            reserved: Some("forward"),
        });
        name
    }
}

impl End {
    /// Reads `NODE:INTERFACE`, or a table.
    fn of(end: &Yaml) -> Option<Self> {
        let line = end.line();
        let (node, interface) = match end.text() {
            Some(text) => text
                .split_once(':')
                .map(|(node, interface)| (node.to_owned(), interface.to_owned()))?,
            None => (end.get("node")?.text()?, end.get("interface")?.text()?),
        };
        Some(Self { node, interface, line })
    }

    fn is_of(&self, nodes: &mut Nodes) -> bool {
        nodes.bridges.contains(&self.node) || nodes.guest(&self.node).is_some()
    }
}

impl Interfaces {
    fn add(&mut self, end: End, nic: Nic, notes: &mut Vec<Note>) {
        let number = end.interface.strip_prefix("eth").and_then(|number| number.parse().ok());
        match number.filter(|number| *number < crate::lab::NICS_MAX + FIRST_INTERFACE) {
            Some(number) if self.numbered.contains_key(&number) => {
                let sentence = format!("{}:{} is there twice, and left out here", end.node, end.interface);
                notes.push(Note {
                    line: end.line,
                    sentence,
                });
            }
            Some(number) => _ = self.numbered.insert(number, nic),
            None => self.named.push((end, nic)),
        }
    }

    /// Returns the NICs without gaps: where the topology has no interface there is one that is not plugged in.
    fn in_order(mut self, first: usize, switches: &[Switch], notes: &mut Vec<Note>) -> Vec<Nic> {
        for (end, nic) in self.named {
            let number = (first..)
                .find(|number| !self.numbered.contains_key(number))
                .unwrap_or(first);
            let sentence = format!(
                "the interface {} of {} is eth{number} here",
                end.interface.escape_default(),
                end.node
            );
            notes.push(Note {
                line: end.line,
                sentence,
            });
            self.numbered.insert(number, nic);
        }
        let last = self.numbered.keys().last().copied();
        let unplugged = || Nic {
            switch: switches.first().map(|switch| switch.name.clone()).unwrap_or_default(),
            address: "none",
            mtu: None,
            link: Some(Cable { up: false }),
        };
        let numbers = first..last.map_or(first, |last| last + 1);
        numbers
            .map(|number| self.numbered.get(&number).cloned().unwrap_or_else(unplugged))
            .collect()
    }
}
