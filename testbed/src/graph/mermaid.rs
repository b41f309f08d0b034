//! The drawing of a lab in the language of Mermaid.

use std::fmt::Write;

use super::{cable, cables, nic_cable, short, split};
use crate::lab::topology::Topology;

/// Makes a unique identifier, since some words, such as `end`, are reserved in Mermaid.
fn id(kind: &str, name: &str) -> String {
    format!("{kind}_{}", name.replace('-', "_"))
}

pub(super) fn draw(topology: &Topology) -> String {
    let mut out = "graph LR\n".to_owned();
    // Writing to a string does not fail.
    for switch in &topology.switches {
        _ = writeln!(out, "  {}[[\"{switch}\"]]", id("switch", switch));
    }
    for node in &topology.nodes {
        let near = id("node", &node.name);
        _ = writeln!(out, "  {near}([\"{}\"])", node.name);
        for nic in node.nics.iter().filter(|nic| nic.far_end.is_none()) {
            let far = nic
                .switch
                .as_ref()
                .map_or_else(|| near.clone(), |switch| id("switch", switch));
            let cable = nic_cable(nic);
            let label: Vec<_> = [short(nic).to_owned()]
                .into_iter()
                .chain(nic.addresses.iter().cloned())
                .collect();
            let label = if cable.is_empty() {
                label.join(" ")
            } else {
                format!("{}<br>{cable}", label.join(" "))
            };
            let line = if nic.is_up() { "---" } else { "-.-" };
            _ = writeln!(out, "  {near} {line}|\"{label}\"| {far}");
        }
        if node.uplink {
            _ = writeln!(out, "  {near} -.-|\"uplink\"| host{{{{\"the host's network\"}}}}");
        }
    }
    for (nic, far) in cables(topology) {
        let ends = [nic, far].map(|nic| [&[short(nic).to_owned()], nic.addresses.as_slice()].concat().join(" "));
        let mut label = ends.join(" - ");
        let settings = nic_cable(nic);
        if !settings.is_empty() {
            _ = write!(label, "<br>{settings}");
        }
        let line = if nic.is_up() { "---" } else { "-.-" };
        let [near, beyond] = [nic, far].map(|nic| id("node", split(&nic.name).0));
        _ = writeln!(out, "  {near} {line}|\"{label}\"| {beyond}");
    }
    for trunk in &topology.trunks {
        let settings = cable(("there", &trunk.link.a_to_b), ("back", &trunk.link.b_to_a));
        let label = if settings.is_empty() {
            String::new()
        } else {
            format!("|\"{settings}\"|")
        };
        let line = if trunk.link.a_to_b.up && trunk.link.b_to_a.up {
            "==="
        } else {
            "-.-"
        };
        _ = writeln!(
            out,
            "  {} {line}{label} {}",
            id("switch", &trunk.a),
            id("switch", &trunk.b)
        );
    }
    out
}
