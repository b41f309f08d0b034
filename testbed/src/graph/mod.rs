//! A lab as a picture: text for terminals, DOT for Graphviz, Mermaid for web pages, SVG by itself. This module writes
//! no files; names in a lab are letters, digits, dashes, underscores and dots, so only added texts need escaping.

mod dot;
mod mermaid;
mod svg;
mod text;

use crate::{
    lab::topology::{NicView, Topology},
    report::cable as words_of,
    vnicd_client::report::LinkSettings,
};

/// The format of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A tree of lines for each switch.
    Text,
    /// For Graphviz: dot -Tpng.
    Dot,
    /// For web pages that draw it, such as those of code forges.
    Mermaid,
    /// A picture that browsers show.
    Svg,
}

/// Draws the whole picture, with a line end.
#[must_use]
pub fn draw(topology: &Topology, format: Format) -> String {
    match format {
        Format::Text => text::draw(topology),
        Format::Dot => dot::draw(topology),
        Format::Mermaid => mermaid::draw(topology),
        Format::Svg => svg::draw(topology),
    }
}

/// Renders the settings of both directions of a cable: nothing for an ideal one, one text if both are equal, else both.
fn cable(there: (&str, &LinkSettings), back: (&str, &LinkSettings)) -> String {
    let (one, other) = (settings(there.1), settings(back.1));
    if one == other {
        return one;
    }
    let ideal = |text: String| if text.is_empty() { "ideal".to_owned() } else { text };
    format!("{}: {}; {}: {}", there.0, ideal(one), back.0, ideal(other))
}

/// Renders the settings of a card's cable.
fn nic_cable(nic: &NicView) -> String {
    if nic.far_end.is_some() {
        return cable(("there", &nic.link.from_guest), ("back", &nic.link.to_guest));
    }
    cable(("to guest", &nic.link.to_guest), ("from guest", &nic.link.from_guest))
}

/// Renders settings such as `10Gbit, 5us, loss 1%`, without those of an ideal cable.
fn settings(link: &LinkSettings) -> String {
    let mut words = Vec::new();
    if !link.up {
        words.push("down".to_owned());
    }
    if link.rate_bps > 0 {
        words.push(words_of::rate(link));
    }
    if link.delay_ns > 0 || link.jitter_ns > 0 {
        words.push(words_of::delay(link));
    }
    let queue = words_of::queue(link);
    if queue != words_of::queue(&LinkSettings::default()) {
        words.push(format!("queue {queue}"));
    }
    let faults = words_of::faults(link);
    if faults != "-" {
        words.push(faults);
    }
    words.join(", ")
}

/// Returns `eth0` of `n1.eth0`.
fn short(nic: &NicView) -> &str {
    split(&nic.name).1
}

/// Splits `n1.eth0` into the names of node and card.
fn split(nic: &str) -> (&str, &str) {
    nic.rsplit_once('.').unwrap_or(("", nic))
}

/// Returns the cables between two cards, each once, with the card that the lab names first before the other.
fn cables(topology: &Topology) -> impl Iterator<Item = (&NicView, &NicView)> {
    let place = |name: &str| topology.nics().position(|nic| nic.name == name);
    topology.nics().filter_map(move |nic| {
        let far = topology
            .nics()
            .find(|other| Some(&other.name) == nic.far_end.as_ref())?;
        (place(&nic.name) < place(&far.name)).then_some((nic, far))
    })
}

#[cfg(test)]
mod tests;
