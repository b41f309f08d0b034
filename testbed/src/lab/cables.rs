//! Cables between two cards, without a switch: which cards they join, and what is set on both directions.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{
    Lab, NICS_MAX, Node,
    error::nearest,
    file::{CableFile, LabFile, LinkFile, NicFile, NodeFile},
    port_name,
    problems::Problems,
};

/// Number of cables between cards in one lab: each is an IPv4 network of its own by default.
pub const CABLES_MAX: usize = 200;

/// A cable between two cards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cable {
    /// The cards at its ends, as in `n1.eth1`.
    pub ends: [String; 2],
}

impl Cable {
    /// Returns what `vnicd` calls it, which no switch can be called.
    #[must_use]
    pub fn name(&self) -> String {
        self.ends.join("-")
    }
}

impl Lab {
    /// Returns the card at the other end of the cable of `port`, if that leads to a card.
    #[must_use]
    pub fn far_end(&self, port: &str) -> Option<&str> {
        far_end(&self.cables, port)
    }
}

/// A card that a file names: position of its node, and its number there.
type End = (usize, usize);

/// Plugs the cables of a file into the cards of `nodes`, which get those that only cables name.
pub(super) fn plug_in(file: &LabFile, nodes: &mut [NodeFile], problems: &mut Problems) -> Vec<Cable> {
    let files = &file.cable;
    // Where it cannot be, that is said of the nodes.
    let first = file.defaults.first_interface.as_ref();
    let first = first.map_or(0, |first| usize::try_from(*first.get_ref()).unwrap_or(0));
    if let Some(first_too_many) = files.get(CABLES_MAX) {
        let message = format!("{} cables between cards are too many", files.len());
        problems.add(first_too_many.between.span(), message, format!("at most {CABLES_MAX}"));
        return Vec::new();
    }
    let mut named = BTreeMap::<usize, BTreeSet<usize>>::new();
    let mut found = Vec::new();
    for file in files {
        let ends = file.between.get_ref().0.each_ref();
        let ends = ends.map(|end| find(end, first, nodes, problems));
        for (node, nic) in ends.iter().flatten() {
            named.entry(*node).or_default().insert(*nic);
        }
        if let [Some(a), Some(b)] = ends {
            found.push((file, [a, b]));
        }
    }
    for (node, wanted) in named {
        let nics = nodes[node].nic.get_or_insert_with(|| vec![NicFile::default()]);
        while nics.len() < NICS_MAX && wanted.contains(&nics.len()) {
            nics.push(NicFile::default());
        }
    }
    let mut cables = Vec::new();
    for (file, ends) in found {
        let directions = [(&file.link_forth, &file.link_back), (&file.link_back, &file.link_forth)];
        let written = file.between.get_ref().0.each_ref();
        for ((end, (from, to)), written) in ends.into_iter().zip(directions).zip(written) {
            plug(end, (file, from, to), (written, cables.len(), first), nodes, problems);
        }
        // Where an end was refused, too: the other one is in it.
        cables.push(Cable {
            ends: ends.map(|(node, nic)| port_name(nodes[node].name.get_ref(), first + nic)),
        });
    }
    cables
}

/// Finds the card that is meant by `n1.eth1`, where `first` is the number of a node's first card.
fn find(end: &Spanned<String>, first: usize, nodes: &[NodeFile], problems: &mut Problems) -> Option<End> {
    let parts = end.get_ref().rsplit_once(".eth");
    let number = |text: &str| text.parse::<usize>().ok()?.checked_sub(first);
    let Some((name, number)) = parts.and_then(|(name, text)| Some((name, number(text)?))) else {
        let message = format!("\"{}\" is no NIC", end.get_ref());
        let help = match first {
            0 => "a node and a number, such as \"n1.eth1\"".to_owned(),
            first => format!("a node and a number from {first} on, such as \"n1.eth{first}\""),
        };
        problems.add(end.span(), message, help);
        return None;
    };
    let found = nodes.iter().position(|node| node.name.get_ref() == name);
    if found.is_none() {
        let near = nearest(name, nodes.iter().map(|node| node.name.get_ref().as_str()));
        let help = near.map_or_else(
            || "the name of a [[node]]".to_owned(),
            |near| format!("did you mean \"{near}\"?"),
        );
        problems.add(end.span(), format!("there is no node \"{name}\""), help);
    }
    Some((found?, number))
}

/// Plugs one end of a cable in. The settings `from` and `to` are those of the directions from and to its guest.
fn plug(
    (node, number): End,
    (file, from, to): (&CableFile, &Option<LinkFile>, &Option<LinkFile>),
    (written, cable, first): (&Spanned<String>, usize, usize),
    nodes: &mut [NodeFile],
    problems: &mut Problems,
) {
    let node = &mut nodes[node];
    let name = port_name(node.name.get_ref(), first + number);
    let nics = node.nic.as_deref_mut().unwrap_or_default();
    let count = nics.len();
    let Some(nic) = nics.get_mut(number) else {
        let message = format!("{name} cannot be: the node has {count} NICs before it");
        let help = format!("NICs without a gap, from eth{first} on, at most {NICS_MAX}");
        problems.add(written.span(), message, help);
        return;
    };
    let mistake = if nic.cable.is_some() {
        Some((format!("{name} is at a cable already"), "each NIC at one cable"))
    } else if nic.switch.is_some() || nic.is_loopback() {
        let message = format!("{name} is at a cable, and its table says something else");
        Some((message, "leave out switch and loopback of the NIC"))
    } else if nic.has_vlans() {
        let message = format!("{name} is at a cable, where there are no VLANs");
        Some((message, "leave out vlan and vlans of the NIC"))
    } else if nic.link.is_some() || nic.link_to_guest.is_some() || nic.link_from_guest.is_some() {
        let message = format!("{name} has settings of a cable to a switch");
        Some((message, "link, link_forth and link_back of the [[cable]]"))
    } else {
        None
    };
    if let Some((message, help)) = mistake {
        problems.add(written.span(), message, help);
        return;
    }
    *nic = NicFile {
        cable: Some(cable),
        link: file.link.clone(),
        link_from_guest: from.clone(),
        link_to_guest: to.clone(),
        ..nic.clone()
    };
}

/// Makes what one end of a cable sends what the other one gets, in all settings and in its random choices.
pub(super) fn join_directions(cables: &[Cable], nodes: &mut [Node]) {
    let cards = |node: &Node| (0..node.nics.len()).map(|nic| node.port(nic)).collect::<Vec<_>>();
    let mut sent = BTreeMap::new();
    for node in nodes.iter() {
        sent.extend(
            cards(node)
                .into_iter()
                .zip(node.nics.iter().map(|nic| nic.link.from_guest)),
        );
    }
    for node in nodes {
        for (name, nic) in cards(node).iter().zip(&mut node.nics) {
            if let Some(link) = far_end(cables, name).and_then(|far| sent.get(far)) {
                nic.link.to_guest = *link;
            }
        }
    }
}

/// Returns the card at the other end of the cable of `port`, if that is among `cables`.
fn far_end<'a>(cables: &'a [Cable], port: &str) -> Option<&'a str> {
    cables.iter().find_map(|cable| match &cable.ends {
        [a, b] if a == port => Some(b.as_str()),
        [a, b] if b == port => Some(a.as_str()),
        _ => None,
    })
}
