//! The drawing of a lab in the language of Graphviz.

use std::fmt::Write;

use super::{cable, cables, nic_cable, short, split};
use crate::lab::topology::Topology;

pub(super) fn draw(topology: &Topology) -> String {
    let mut out = format!(
        "graph \"{}\" {{\n  layout=neato; overlap=false; splines=true;\n  node [fontname=\"sans-serif\"]; edge [fontname=\"sans-serif\", fontsize=9];\n",
        topology.lab
    );
    // Writing to a string does not fail.
    for switch in &topology.switches {
        _ = writeln!(out, "  \"{switch}\" [shape=box, style=filled, fillcolor=\"#dbe9f6\"];");
    }
    for node in &topology.nodes {
        _ = writeln!(out, "  \"{}\" [shape=ellipse];", node.name);
        for nic in node.nics.iter().filter(|nic| nic.far_end.is_none()) {
            let far = nic.switch.as_ref().unwrap_or(&node.name);
            let near = [&[short(nic).to_owned()], nic.addresses.as_slice()]
                .concat()
                .join("\\n");
            let style = if nic.is_up() { "" } else { ", style=dashed" };
            _ = writeln!(
                out,
                "  \"{}\" -- \"{far}\" [taillabel=\"{near}\", label=\"{}\"{style}];",
                node.name,
                nic_cable(nic)
            );
        }
        if node.uplink {
            _ = writeln!(
                out,
                "  \"{}\" -- \"the host's network\" [taillabel=\"uplink\", style=dotted];",
                node.name
            );
        }
    }
    for (nic, far) in cables(topology) {
        let [near, beyond] = [nic, far].map(|nic| {
            [&[short(nic).to_owned()], nic.addresses.as_slice()]
                .concat()
                .join("\\n")
        });
        let style = if nic.is_up() { "" } else { ", style=dashed" };
        _ = writeln!(
            out,
            "  \"{}\" -- \"{}\" [taillabel=\"{near}\", headlabel=\"{beyond}\", label=\"{}\"{style}];",
            split(&nic.name).0,
            split(&far.name).0,
            nic_cable(nic)
        );
    }
    for trunk in &topology.trunks {
        let style = if trunk.link.a_to_b.up && trunk.link.b_to_a.up {
            "bold"
        } else {
            "dashed"
        };
        let settings = cable(("there", &trunk.link.a_to_b), ("back", &trunk.link.b_to_a));
        _ = writeln!(
            out,
            "  \"{}\" -- \"{}\" [style={style}, label=\"{settings}\"];",
            trunk.a, trunk.b
        );
    }
    out + "}\n"
}
