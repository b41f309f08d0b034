//! The drawing of a lab as SVG: a column for each switch with the nodes below it, trunks as arcs above. A node stands
//! below the switch of its first card; the wires of its other cards reach over to their switches.

use std::fmt::Write;

use super::{cable, cables, nic_cable, short};
use crate::lab::topology::{NicView, NodeView, Topology};

/// Width of a switch's column and of the boxes, in pixels.
const COLUMN: usize = 380;
const SWITCH_WIDTH: usize = 120;
const NODE_WIDTH: usize = 110;
/// Heights of boxes and gaps, in pixels.
const BOX_HEIGHT: usize = 34;
const CARD_HEIGHT: usize = 30;
const ROW_GAP: usize = 16;
const MARGIN: usize = 20;
/// Room for one more arc of a trunk, in pixels.
const ARC_HEIGHT: usize = 28;
/// Distances from the left edge of a column to the line from which its nodes branch off, and to the nodes.
const BUS: usize = 40;
const NODE_LEFT: usize = 230;

/// How far a cable between two cards reaches out.
const BOW: usize = 60;

/// The place of a node.
struct Place<'a> {
    node: &'a NodeView,
    left: usize,
    top: usize,
    height: usize,
}

impl Place<'_> {
    /// Returns the height of a card's end of its cable.
    fn card(&self, index: usize) -> usize {
        self.top + self.height * (2 * index + 1) / (2 * self.node.nics.len())
    }
}

pub(super) fn draw(topology: &Topology) -> String {
    let reach = topology
        .trunks
        .iter()
        .map(|trunk| span(topology, &trunk.a, &trunk.b))
        .max()
        .unwrap_or(0);
    let top = MARGIN + reach * ARC_HEIGHT + 20;
    let places = places(topology, top + BOX_HEIGHT + ROW_GAP);
    let width = MARGIN * 2 + columns(topology) * COLUMN;
    let height = places
        .iter()
        .map(|place| place.top + place.height)
        .max()
        .unwrap_or(top + BOX_HEIGHT)
        + MARGIN
        + 16;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<title>lab {}</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
        topology.lab
    );
    for trunk in &topology.trunks {
        let settings = cable(("there", &trunk.link.a_to_b), ("back", &trunk.link.b_to_a));
        let up = trunk.link.a_to_b.up && trunk.link.b_to_a.up;
        arc(&mut out, topology, (&trunk.a, &trunk.b), &settings, up, top);
    }
    for (nic, far) in cables(topology) {
        between(&mut out, &places, nic, far);
    }
    for place in &places {
        for (index, nic) in place.node.nics.iter().enumerate() {
            wire(&mut out, topology, place, (index, nic), top);
        }
    }
    for (index, switch) in topology.switches.iter().enumerate() {
        shape(
            &mut out,
            (left(index), top),
            (SWITCH_WIDTH, BOX_HEIGHT),
            "4",
            "#dbe9f6",
            switch,
        );
    }
    for place in &places {
        let fill = if place.node.uplink { "#e8f5e1" } else { "#f6f1e4" };
        shape(
            &mut out,
            (place.left, place.top),
            (NODE_WIDTH, place.height),
            "16",
            fill,
            &place.node.name,
        );
        if place.node.uplink {
            text(
                &mut out,
                (place.left + NODE_WIDTH / 2, place.top + place.height + 13),
                "middle",
                "uplink",
            );
        }
    }
    out + "</svg>\n"
}

/// Returns the number of columns: one for each switch, and one for nodes that are at none.
fn columns(topology: &Topology) -> usize {
    let lonely = topology.nodes.iter().any(|node| home(topology, node).is_none());
    (topology.switches.len() + usize::from(lonely)).max(1)
}

/// Returns the left edge of a column.
fn left(column: usize) -> usize {
    MARGIN + column * COLUMN
}

fn position(topology: &Topology, switch: &str) -> Option<usize> {
    topology.switches.iter().position(|name| name == switch)
}

/// Returns the column of a node: that of the switch of its first card that has one.
fn home(topology: &Topology, node: &NodeView) -> Option<usize> {
    let switch = node.nics.iter().find_map(|nic| nic.switch.as_deref())?;
    position(topology, switch)
}

/// Returns the number of columns between two switches.
fn span(topology: &Topology, a: &str, b: &str) -> usize {
    let at = |name| position(topology, name).unwrap_or(0);
    at(a).abs_diff(at(b))
}

fn places(topology: &Topology, top: usize) -> Vec<Place<'_>> {
    let mut next = vec![top; topology.switches.len() + 1];
    let place = |node| {
        let column = home(topology, node).unwrap_or(topology.switches.len());
        let height = BOX_HEIGHT.max(node.nics.len() * CARD_HEIGHT);
        let place = Place {
            node,
            left: left(column) + NODE_LEFT,
            top: next[column],
            height,
        };
        next[column] += height + ROW_GAP;
        place
    };
    topology.nodes.iter().map(place).collect()
}

/// Draws a trunk: neighbours are joined by one line, others by an arc above those between them.
fn arc(out: &mut String, topology: &Topology, (a, b): (&str, &str), label: &str, up: bool, top: usize) {
    let (Some(one), Some(other)) = (position(topology, a), position(topology, b)) else {
        return;
    };
    let (first, last) = (one.min(other), one.max(other));
    let dashes = if up { "" } else { " stroke-dasharray=\"6 5\"" };
    let stroke = format!("fill=\"none\" stroke=\"#3b6ea5\" stroke-width=\"3\"{dashes}");
    // Writing to a string does not fail.
    if last - first == 1 {
        let (x1, x2, y) = (left(first) + SWITCH_WIDTH, left(last), top + BOX_HEIGHT / 2);
        _ = writeln!(out, "<path d=\"M{x1} {y}H{x2}\" {stroke}/>");
        text(out, (x1.midpoint(x2), y - 6), "middle", label);
    } else {
        let (x1, x2, peak) = (
            left(first) + SWITCH_WIDTH / 2,
            left(last) + SWITCH_WIDTH / 2,
            top - 12 - (last - first) * ARC_HEIGHT + ARC_HEIGHT,
        );
        _ = writeln!(
            out,
            "<path d=\"M{x1} {top}C{x1} {peak} {x1} {peak} {} {peak}H{}C{x2} {peak} {x2} {peak} {x2} {top}\" {stroke}/>",
            x1 + 40,
            x2 - 40
        );
        text(out, (x1.midpoint(x2), peak - 5), "middle", label);
    }
}

/// Draws the cable of a card: below the switch of its column it branches off the line; to another switch it bends.
fn wire(out: &mut String, topology: &Topology, place: &Place<'_>, (index, nic): (usize, &NicView), top: usize) {
    let y = place.card(index);
    let dashes = if nic.is_up() { "" } else { " stroke-dasharray=\"5 4\"" };
    let stroke = format!("fill=\"none\" stroke=\"#555555\" stroke-width=\"1.5\"{dashes}");
    let far = nic.switch.as_deref().and_then(|switch| position(topology, switch));
    let below = top + BOX_HEIGHT;
    match far {
        Some(column) if Some(column) == home(topology, place.node) => {
            let bus = left(column) + BUS;
            _ = writeln!(out, "<path d=\"M{bus} {below}V{y}H{}\" {stroke}/>", place.left);
        }
        Some(column) => {
            let end = left(column) + SWITCH_WIDTH - 20;
            let start = if end > place.left {
                place.left + NODE_WIDTH
            } else {
                place.left
            };
            _ = writeln!(
                out,
                "<path d=\"M{start} {y}C{end} {y} {end} {y} {end} {below}\" {stroke}/>"
            );
        }
        None if nic.far_end.is_some() => {}
        None => {
            let (x, up, down) = (place.left, y - 8, y + 8);
            _ = writeln!(
                out,
                "<path d=\"M{x} {up}C{} {up} {} {down} {x} {down}\" {stroke}/>",
                x - 40,
                x - 40
            );
        }
    }
    let words = [&[short(nic).to_owned()], nic.addresses.as_slice()].concat().join(" ");
    // The label is beside the wire, where it leaves the node.
    let (x, anchor) = match far {
        Some(column) if left(column) > place.left => (place.left + NODE_WIDTH + 8, "start"),
        _ if nic.other_end().is_some() => (place.left - 8, "end"),
        _ => (place.left - 44, "end"),
    };
    text(out, (x, y - 4), anchor, &words);
    text(out, (x, y + 12), anchor, &nic_cable(nic));
}

/// Draws a cable between two cards: a bow on the right of their nodes.
fn between(out: &mut String, places: &[Place<'_>], nic: &NicView, far: &NicView) {
    let end = |nic: &NicView| {
        places.iter().find_map(|place| {
            let index = place.node.nics.iter().position(|other| other.name == nic.name)?;
            Some((place.left + NODE_WIDTH, place.card(index)))
        })
    };
    if let [Some((x1, y1)), Some((x2, y2))] = [end(nic), end(far)] {
        let dashes = if nic.is_up() { "" } else { " stroke-dasharray=\"5 4\"" };
        _ = writeln!(
            out,
            "<path d=\"M{x1} {y1}C{} {y1} {} {y2} {x2} {y2}\" fill=\"none\" stroke=\"#555555\" stroke-width=\"1.5\"{dashes}/>",
            x1 + BOW,
            x2 + BOW
        );
    }
}

fn shape(
    out: &mut String,
    (x, y): (usize, usize),
    (width, height): (usize, usize),
    round: &str,
    fill: &str,
    name: &str,
) {
    _ = writeln!(
        out,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{round}\" fill=\"{fill}\" stroke=\"#333333\"/>"
    );
    _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-weight=\"bold\" font-size=\"{}\">{name}</text>",
        x + width / 2,
        y + height / 2 + 5,
        // The longest names have 24 characters.
        if name.len() > 12 { 8 } else { 13 }
    );
}

fn text(out: &mut String, (x, y): (usize, usize), anchor: &str, words: &str) {
    if !words.is_empty() {
        _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" font-size=\"10\" fill=\"#333333\">{words}</text>"
        );
    }
}
