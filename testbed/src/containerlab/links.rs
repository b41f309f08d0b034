//! The links of a topology: between guests each is a cable; to a bridge it is a cable to that switch; between bridges it is a trunk.

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
    pub cables: Vec<Cable>,
    pub trunks: Vec<Trunk>,
    pub first_interface: usize,
}

/// A switch of the lab file.
#[derive(Debug, Serialize)]
pub(super) struct Switch {
    name: String,
}

/// A cable between two NICs, such as `n1.eth1`.
#[derive(Debug, Default, Serialize)]
pub(super) struct Cable {
    between: [String; 2],
}

/// A cable between two switches.
#[derive(Debug, Serialize)]
pub(super) struct Trunk {
    between: [String; 2],
}

/// A NIC of the lab file.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Nic {
    #[serde(skip_serializing_if = "Option::is_none")]
    switch: Option<String>,
    address: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<Link>,
    /// Place of its cable to another NIC, and which end of that it has.
    #[serde(skip)]
    cable: Option<(usize, usize)>,
}

#[derive(Clone, Debug, Serialize)]
struct Link {
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
        let bridge = |name: &String| Switch { name: name.clone() };
        let mut links = Self {
            switches: nodes.bridges.iter().map(bridge).collect(),
            cables: Vec::new(),
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
        for (name, interfaces) in &mut guests {
            interfaces.number(links.first_interface, notes);
            for (number, nic) in &interfaces.numbered {
                if let Some((cable, end)) = nic.cable {
                    links.cables[cable].between[end] = format!("{name}.eth{number}");
                }
            }
        }
        for (name, interfaces) in guests {
            if let Some(guest) = nodes.guest(&name) {
                guest.nic = interfaces.without_gaps(links.first_interface, &links.cables);
            }
        }
        links.cables.retain(Cable::is_whole);
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
        let nic = |switch: Option<&str>, cable| Nic {
            switch: switch.map(str::to_owned),
            address: "none",
            mtu,
            link: None,
            cable,
        };
        let mut plug_in = |end: End, nic| guests.entry(end.node.clone()).or_default().add(end, nic, notes);
        match (is_bridge(&a), is_bridge(&b)) {
            (true, true) => {
                let between = [a.node, b.node];
                self.trunks.push(Trunk { between });
            }
            (true, false) => plug_in(b, nic(Some(&a.node), None)),
            (false, true) => plug_in(a, nic(Some(&b.node), None)),
            (false, false) => {
                let cable = self.cables.len();
                self.cables.push(Cable::default());
                plug_in(a, nic(None, Some((cable, 0))));
                plug_in(b, nic(None, Some((cable, 1))));
            }
        }
    }
}

impl Cable {
    /// Returns whether a NIC is at both ends: one that was left out is at none.
    fn is_whole(&self) -> bool {
        self.between.iter().all(|end| !end.is_empty())
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

    /// Numbers the interfaces that have none, from `first` on.
    fn number(&mut self, first: usize, notes: &mut Vec<Note>) {
        for (end, nic) in self.named.drain(..) {
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
    }

    /// Returns the NICs without gaps: where the topology has no interface, or nothing is at the other end of its cable, there is one
    /// that is not plugged in.
    fn without_gaps(mut self, first: usize, cables: &[Cable]) -> Vec<Nic> {
        let last = self.numbered.keys().last().copied();
        let unplugged = Nic {
            switch: None,
            address: "none",
            mtu: None,
            link: Some(Link { up: false }),
            cable: None,
        };
        let numbers = first..last.map_or(first, |last| last + 1);
        numbers
            .map(|number| self.numbered.remove(&number))
            .map(|nic| nic.filter(|nic| nic.cable.is_none_or(|(cable, _)| cables[cable].is_whole())))
            .map(|nic| nic.unwrap_or_else(|| unplugged.clone()))
            .collect()
    }
}
