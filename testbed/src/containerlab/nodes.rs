//! The nodes of a topology: guests, and bridges, which become switches.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::Serialize;

use super::{Note, links::Nic, yaml::Yaml};
use crate::lab::AtPath;

/// Debian's package of FRR, and what its container images start by themselves.
const FRR: &str = "frr";
const START_FRR: &str = "/usr/lib/frr/frrinit.sh start";

/// The nodes by name.
#[derive(Debug)]
pub(super) struct Nodes {
    /// Guests in the order of the file.
    pub guests: BTreeMap<usize, Guest>,
    /// Names of bridges.
    pub bridges: Vec<String>,
}

/// A node of the lab file.
#[derive(Debug, Default, Serialize)]
pub(super) struct Guest {
    pub name: String,
    image: &'static str,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    packages: BTreeSet<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    exec: Vec<String>,
    sysctl: BTreeMap<&'static str, u8>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<Bind>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mount: Vec<Bind>,
    pub nic: Vec<Nic>,
}

/// A file or folder of this machine in a guest.
#[derive(Debug, Serialize)]
struct Bind {
    from: String,
    to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    readonly: Option<bool>,
}

impl Nodes {
    pub(super) fn of(topology: &Yaml, at_path: &dyn Fn(&Path) -> AtPath, notes: &mut Vec<Note>) -> Self {
        let (defaults, kinds) = (topology.get("defaults"), topology.get("kinds"));
        let mut nodes = Self {
            guests: BTreeMap::new(),
            bridges: Vec::new(),
        };
        let listed = topology.get("nodes").map(Yaml::entries).unwrap_or_default();
        for (place, (name, line, node)) in listed.into_iter().enumerate() {
            let kind = node.get("kind").or_else(|| defaults?.get("kind"));
            let kind = kind.and_then(Yaml::text).unwrap_or_else(|| "linux".to_owned());
            if kind == "bridge" || kind == "ovs-bridge" {
                nodes.bridges.push(name);
                continue;
            }
            if kind != "linux" {
                let sentence = format!("the kind {} is translated as linux", kind.escape_default());
                notes.push(Note { line, sentence });
            }
            let mut guest = Guest {
                name,
                image: "network",
                // Docker's containers forward; topologies with routers count on it.
                sysctl: BTreeMap::from([("net.ipv4.ip_forward", 1)]),
                ..Guest::default()
            };
            let of_kind = kinds.and_then(|kinds| kinds.get(&kind));
            for layer in [defaults, of_kind, Some(node)].into_iter().flatten() {
                guest.apply(layer, at_path, notes);
            }
            if guest.packages.contains(FRR) {
                guest.exec.insert(0, START_FRR.to_owned());
            }
            nodes.guests.insert(place, guest);
        }
        nodes
    }

    /// Returns the guest of this name.
    pub(super) fn guest(&mut self, name: &str) -> Option<&mut Guest> {
        self.guests.values_mut().find(|guest| guest.name == name)
    }
}

impl Guest {
    /// Adds what a table says of the node.
    fn apply(&mut self, layer: &Yaml, at_path: &dyn Fn(&Path) -> AtPath, notes: &mut Vec<Note>) {
        for (key, line, value) in layer.entries() {
            match &*key {
                "kind" => {}
                "image" => self.image(value, notes),
                "exec" if value.is_sequence() => self.exec.extend(value.items().iter().filter_map(Yaml::text)),
                "env" if value.is_mapping() => self.env.extend(words(value)),
                "labels" if value.is_mapping() => self.labels.extend(words(value)),
                "binds" if value.is_sequence() => {
                    for bind in value.items() {
                        self.bind(bind, at_path, notes);
                    }
                }
                "exec" | "binds" => notes.push(Note::other_form(line, &key, "list")),
                "env" | "labels" => notes.push(Note::other_form(line, &key, "table")),
                _ => notes.push(Note::left_out(line, &key)),
            }
        }
    }

    fn image(&mut self, image: &Yaml, notes: &mut Vec<Note>) {
        let name = image.text().unwrap_or_default();
        // The image of a node is in place of its kind's.
        self.packages.clear();
        let instead = if name.contains("frr") {
            self.packages.insert(FRR);
            "Debian's package frr in the image \"network\""
        } else {
            "the image \"network\""
        };
        notes.push(Note {
            line: image.line(),
            sentence: format!(
                "guests boot no container images: {instead} takes the place of {}",
                name.escape_default()
            ),
        });
    }

    fn bind(&mut self, bind: &Yaml, at_path: &dyn Fn(&Path) -> AtPath, notes: &mut Vec<Note>) {
        let text = bind.text().unwrap_or_default();
        let parts: Vec<&str> = text.split(':').collect();
        let (from, to, options) = match parts[..] {
            [from, to] => (from, to, ""),
            [from, to, options] => (from, to, options),
            _ => {
                let sentence = format!("the bind {} is not translated", text.escape_default());
                return notes.push(Note {
                    line: bind.line(),
                    sentence,
                });
            }
        };
        let is_folder = at_path(Path::new(from)) == AtPath::Folder;
        let made = Bind {
            from: from.to_owned(),
            to: to.to_owned(),
            readonly: (is_folder && options.split(',').any(|option| option == "ro")).then_some(true),
        };
        if is_folder { &mut self.mount } else { &mut self.files }.push(made);
    }
}

fn words(value: &Yaml) -> BTreeMap<String, String> {
    let entries = value.entries().into_iter();
    entries
        .filter_map(|(key, _, value)| Some((key, value.text()?)))
        .collect()
}
