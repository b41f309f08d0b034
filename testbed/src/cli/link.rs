//! `weft link set` and `weft link ls`: change and show the cables between cards and switches, or between two cards.

use anyhow::Result;
use serde::Serialize;

use super::common::{
    CommonOptions, NicArgs, Usage, Words,
    cable::{CableArgs, UP_DOWN, cable_columns, link_change},
    client, one_of, ports, show, verb_list, with_cable,
};
use crate::{
    lab::topology::NicView,
    report::table::{self, Columns},
    supervisor_client::protocol::Request,
    vnicd_client::report::{Direction, LinkChange, LinkSettings, PortLinks},
};

verb_list! {
    /// Show and change the cables between cards and switches, or two cards.
    LinkVerb {
        /// Show the cables of all NICs, or of one.
        #[command(add = show(&[
            ("weft link ls", "all cables of cards"),
            ("weft link ls n1", "the cables of a node"),
        ]))]
        Ls(NicArgs) => ls,
        Set(Box<SetArgs>) => set,
    }
}

/// Change a NIC's cable while the lab runs; without options, show it.
#[derive(Debug, clap::Args)]
#[command(add = show(&[
    ("weft link set n1 --rate 100Mbit --delay 5ms", "a slow and long cable"),
    ("weft link set n1 --loss 1% --direction to-guest", "loss towards the guest"),
    ("weft link set n1 down", "pull it out"),
]))]
pub(super) struct SetArgs {
    /// `NODE.ethN`; `NODE` is enough for a node with one NIC. A cable between two NICs is named by either.
    nic: Option<String>,
    /// Plug the cable in, or pull it out. The guest sees its card's carrier change.
    #[arg(value_parser = one_of(UP_DOWN))]
    state: Option<bool>,
    /// Change only one direction of the cable.
    #[arg(long, default_value = "both", value_parser = one_of(DIRECTIONS))]
    direction: Direction,
    /// What to change.
    #[command(flatten)]
    change: CableArgs,
}

const DIRECTIONS: Words<Direction> = &[
    ("both", "Both directions", Direction::Both),
    (
        "to-guest",
        "From the switch, or the other card, to the guest",
        Direction::ToGuest,
    ),
    (
        "from-guest",
        "From the guest to the switch, or to the other card",
        Direction::FromGuest,
    ),
];

/// Changes the cable of one card; without changes, shows the cables of the cards named.
fn set(options: &CommonOptions, args: &SetArgs) -> Result<()> {
    let client = client(options)?;
    let change = link_change(args.state, &args.change);
    if change == LinkChange::default() {
        return show_cables(options, args.nic.as_deref());
    }
    let meant = with_cable(ports(&client, args.nic.as_deref())?);
    let [port] = meant.as_slice() else {
        let names: Vec<_> = meant.iter().map(|port| port.name.as_str()).collect();
        let which = args
            .nic
            .as_deref()
            .map_or_else(|| "the lab".to_owned(), ToOwned::to_owned);
        let sentence = format!(
            "{which} has several NICs, name the one whose cable is meant: {}",
            names.join(", ")
        );
        return Err(Usage(sentence).into());
    };
    let request = Request::Link {
        port: port.name.clone(),
        direction: args.direction,
        change,
    };
    let links = client.request::<PortLinks>(&request)?;
    let topology = client.topology()?;
    let nic = topology.nics().find(|nic| nic.name == port.name);
    let other_end = nic.and_then(NicView::other_end).unwrap_or("-");
    print_links(options, link_rows(&port.name, other_end, links))
}

fn ls(options: &CommonOptions, args: &NicArgs) -> Result<()> {
    show_cables(options, args.nic.as_deref())
}

/// Shows the cables of the cards named.
fn show_cables(options: &CommonOptions, target: Option<&str>) -> Result<()> {
    let client = client(options)?;
    let topology = client.topology()?;
    let named = match target {
        Some(target) => with_cable(ports(&client, Some(target))?),
        None => Vec::new(),
    };
    let is_meant = |nic: &&NicView| match target {
        None => nic.other_end().is_some(),
        Some(_) => named.iter().any(|port| port.name == nic.name),
    };
    let rows = topology
        .nics()
        .filter(is_meant)
        .flat_map(|nic| link_rows(&nic.name, nic.other_end().unwrap_or("-"), nic.link.clone()));
    print_links(options, rows.collect())
}

/// A table row: one direction of a card's cable.
#[derive(Serialize)]
struct LinkRow {
    nic: String,
    /// The switch, or the card, at the other end.
    switch: String,
    direction: &'static str,
    #[serde(flatten)]
    settings: LinkSettings,
}

fn link_rows(nic: &str, switch: &str, links: PortLinks) -> Vec<LinkRow> {
    let row = |direction, settings| LinkRow {
        nic: nic.to_owned(),
        switch: switch.to_owned(),
        direction,
        settings,
    };
    vec![row("to-guest", links.to_guest), row("from-guest", links.from_guest)]
}

fn print_links(options: &CommonOptions, rows: Vec<LinkRow>) -> Result<()> {
    let columns = Columns::<LinkRow>::default()
        .words("NIC", |row| row.nic.clone())
        .words("SWITCH", |row| row.switch.clone())
        .words("DIRECTION", |row| row.direction.to_owned());
    table::print(options.json, &rows, &cable_columns(columns, |row| &row.settings))
}
