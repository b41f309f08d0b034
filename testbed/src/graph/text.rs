//! The drawing of a lab as lines for a terminal: each switch with what is plugged into it, and what is plugged into
//! none.

use std::fmt::Write;

use super::{cable, cables, nic_cable};
use crate::lab::topology::{NicView, Topology};

pub(super) fn draw(topology: &Topology) -> String {
    let mut out = String::new();
    for switch in &topology.switches {
        list(&mut out, switch, &ends(topology, switch));
    }
    let between: Vec<_> = cables(topology)
        .map(|(nic, far)| {
            let (near, beyond) = (addresses(nic), addresses(far));
            let shown = if near.is_empty() && beyond.is_empty() {
                String::new()
            } else {
                format!("{near} - {beyond}")
            };
            [nic.name.clone(), far.name.clone(), shown, nic_cable(nic)]
        })
        .collect();
    if !between.is_empty() {
        list(&mut out, "between cards", &between);
    }
    let mut unconnected = Vec::new();
    for node in &topology.nodes {
        for nic in node.nics.iter().filter(|nic| nic.other_end().is_none()) {
            unconnected.push([
                nic.name.clone(),
                "connected to itself".to_owned(),
                addresses(nic),
                String::new(),
            ]);
        }
        if node.nics.is_empty() {
            unconnected.push([node.name.clone(), "no NIC".to_owned(), String::new(), String::new()]);
        }
    }
    if !unconnected.is_empty() {
        list(&mut out, "at no switch", &unconnected);
    }
    let uplinks = topology.nodes.iter().filter(|node| node.uplink);
    let uplinks: Vec<_> = uplinks
        .map(|node| [node.name.clone(), String::new(), String::new(), String::new()])
        .collect();
    if !uplinks.is_empty() {
        list(&mut out, "uplink to the host's network", &uplinks);
    }
    out
}

fn addresses(nic: &NicView) -> String {
    nic.addresses.join(" ")
}

/// Lists the cables of a switch: far end, address of the card, address of the guest, settings.
fn ends(topology: &Topology, switch: &str) -> Vec<[String; 4]> {
    let nics = topology.nics().filter(|nic| nic.switch.as_deref() == Some(switch));
    let mut rows: Vec<_> = nics
        .map(|nic| [nic.name.clone(), nic.mac.clone(), addresses(nic), nic_cable(nic)])
        .collect();
    for trunk in &topology.trunks {
        let (far, settings) = if trunk.a == switch {
            (
                &trunk.b,
                cable(("there", &trunk.link.a_to_b), ("back", &trunk.link.b_to_a)),
            )
        } else if trunk.b == switch {
            (
                &trunk.a,
                cable(("there", &trunk.link.b_to_a), ("back", &trunk.link.a_to_b)),
            )
        } else {
            continue;
        };
        rows.push([far.clone(), "trunk".to_owned(), String::new(), settings]);
    }
    rows
}

/// Renders a heading and its rows as branches, in columns.
fn list(out: &mut String, heading: &str, rows: &[[String; 4]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    // Writing to a string does not fail.
    _ = writeln!(out, "{heading}");
    for (index, row) in rows.iter().enumerate() {
        let branch = if index + 1 == rows.len() { "└─" } else { "├─" };
        let mut line = format!("{branch} {:w$}", row[0], w = widths[0]);
        for (text, width) in row[1..3].iter().zip(&widths[1..]) {
            if *width > 0 {
                _ = write!(line, "  {text:width$}");
            }
        }
        if !row[3].is_empty() {
            _ = write!(line, "  {}", row[3]);
        }
        _ = writeln!(out, "{}", line.trim_end());
    }
}
