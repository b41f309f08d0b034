//! Verbs about cables: link set and ls, trunk set and ls.

use anyhow::{Result, bail};
use serde::Serialize;

use super::{
    Usage,
    args::{Cli, DirectionArg, LinkArgs, TrunkArgs},
    client,
    nic::{cable_columns, link_change, ports, with_cable},
};
use crate::{
    lab::topology::{NicView, Topology, TrunkView},
    report::table::{self, Columns},
    supervisor::{client::Client, protocol::Request},
    vnicd_client::{
        TrunkDirection,
        report::{Direction, LinkChange, LinkSettings, PortLinks, TrunkLinks},
    },
};

/// One direction of a card's cable.
#[derive(Serialize)]
struct LinkRow {
    nic: String,
    /// The switch at the other end.
    switch: String,
    direction: &'static str,
    #[serde(flatten)]
    settings: LinkSettings,
}

/// One direction of a trunk.
#[derive(Serialize)]
struct TrunkRow {
    from: String,
    to: String,
    /// Which of the cables between the two, from 1.
    number: usize,
    #[serde(flatten)]
    settings: LinkSettings,
}

/// Changes the cable of one card; without anything to change, shows those that are meant.
pub(super) fn link(cli: &Cli, args: &LinkArgs) -> Result<()> {
    let direction = match args.direction {
        DirectionArg::Both => Direction::Both,
        DirectionArg::ToGuest => Direction::ToGuest,
        DirectionArg::FromGuest => Direction::FromGuest,
    };
    let client = client(cli)?;
    let change = link_change(args.state, &args.change);
    if change == LinkChange::default() {
        return link_list(cli, args.nic.as_deref());
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
        direction,
        change,
    };
    let links = client.request::<PortLinks>(&request)?;
    print_links(cli, link_rows(&port.name, &port.switch, links))
}

/// Shows the cables of the cards that are meant.
pub(super) fn link_list(cli: &Cli, target: Option<&str>) -> Result<()> {
    let client = client(cli)?;
    let topology = client.topology()?;
    let named = match target {
        Some(target) => with_cable(ports(&client, Some(target))?),
        None => Vec::new(),
    };
    let is_meant = |nic: &&NicView| match target {
        None => nic.switch.is_some(),
        Some(_) => named.iter().any(|port| port.name == nic.name),
    };
    let rows = topology.nics().filter(is_meant).flat_map(|nic| {
        let switch = nic.switch.as_deref().unwrap_or("-");
        link_rows(&nic.name, switch, nic.link.clone())
    });
    print_links(cli, rows.collect())
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

fn print_links(cli: &Cli, rows: Vec<LinkRow>) -> Result<()> {
    let columns = Columns::<LinkRow>::default()
        .words("NIC", |row| row.nic.clone())
        .words("SWITCH", |row| row.switch.clone())
        .words("DIRECTION", |row| row.direction.to_owned());
    table::print(cli.json, &rows, &cable_columns(columns, |row| &row.settings))
}

/// Changes the cable between two switches; without anything to change, shows it.
pub(super) fn trunk(cli: &Cli, args: &TrunkArgs) -> Result<()> {
    let client = client(cli)?;
    let topology = client.topology()?;
    if topology.trunk(&args.from, &args.to).is_none() {
        bail!(no_trunk(&topology, &args.from, &args.to));
    }
    let links = change_trunk(&client, args)?;
    let number = args.number.map_or(1, usize::from);
    print_trunks(cli, trunk_rows(&args.from, &args.to, number, links))
}

fn change_trunk(client: &Client, args: &TrunkArgs) -> Result<TrunkLinks> {
    client.request(&Request::Trunk {
        a: args.from.clone(),
        b: args.to.clone(),
        number: args.number.map(usize::from),
        direction: if args.one_way {
            TrunkDirection::AToB
        } else {
            TrunkDirection::Both
        },
        change: link_change(args.state, &args.change),
    })
}

/// Shows all cables between switches.
pub(super) fn trunk_list(cli: &Cli) -> Result<()> {
    let trunks = client(cli)?.topology()?.trunks;
    let mut rows = Vec::new();
    for (index, trunk) in trunks.iter().enumerate() {
        let ends = [&trunk.a, &trunk.b];
        let same = |other: &&TrunkView| ends == [&other.a, &other.b] || ends == [&other.b, &other.a];
        let number = trunks[..=index].iter().filter(same).count();
        rows.extend(trunk_rows(&trunk.a, &trunk.b, number, trunk.link.clone()));
    }
    print_trunks(cli, rows)
}

/// Why two switches have no trunk: with the ones that there are.
fn no_trunk(topology: &Topology, one: &str, other: &str) -> String {
    let lab = &topology.lab;
    let trunks: Vec<_> = topology
        .trunks
        .iter()
        .map(|trunk| format!("{} {}", trunk.a, trunk.b))
        .collect();
    let trunks = if trunks.is_empty() {
        "it has no trunks".to_owned()
    } else {
        format!("its trunks: {}", trunks.join(", "))
    };
    match [one, other]
        .iter()
        .find(|name| !topology.switches.iter().any(|switch| switch == *name))
    {
        Some(unknown) => format!(
            "there is no switch {unknown} in the lab {lab} (its switches: {}; {trunks})",
            topology.switches.join(", ")
        ),
        None => format!("there is no trunk between {one} and {other} in the lab {lab} ({trunks})"),
    }
}

fn trunk_rows(from: &str, to: &str, number: usize, links: TrunkLinks) -> Vec<TrunkRow> {
    let row = |from: &str, to: &str, settings| TrunkRow {
        from: from.to_owned(),
        to: to.to_owned(),
        number,
        settings,
    };
    vec![row(from, to, links.a_to_b), row(to, from, links.b_to_a)]
}

fn print_trunks(cli: &Cli, rows: Vec<TrunkRow>) -> Result<()> {
    let columns = Columns::<TrunkRow>::default()
        .words("FROM", |row| row.from.clone())
        .words("TO", |row| row.to.clone())
        .numbers("NUMBER", |row| row.number.to_string());
    table::print(cli.json, &rows, &cable_columns(columns, |row| &row.settings))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::lab::Lab;

    #[test]
    fn a_trunk_that_is_not_there_is_answered_with_those_that_are() {
        let switches = |count: usize| {
            (1..=count)
                .map(|n| format!("[[switch]]\nname = \"s{n}\"\n"))
                .collect::<String>()
        };
        let node = "[[node]]\nname = \"n1\"\nnic = []\n";
        let trunk = "[[trunk]]\nbetween = [\"s1\", \"s2\"]\n[[trunk]]\nbetween = [\"s2\", \"s3\"]\n";
        let topology = |text: &str| Topology::of(&Lab::parse(text, "lab.toml", "lab", Path::new("/")).expect("valid"));
        let lab = topology(&(switches(3) + node + trunk));
        assert!(lab.trunk("s3", "s2").is_some() && lab.trunk("s1", "s3").is_none());
        assert_eq!(
            no_trunk(&lab, "s9", "s2"),
            "there is no switch s9 in the lab lab (its switches: s1, s2, s3; its trunks: s1 s2, s2 s3)"
        );
        assert_eq!(
            no_trunk(&lab, "s1", "s3"),
            "there is no trunk between s1 and s3 in the lab lab (its trunks: s1 s2, s2 s3)"
        );
        assert_eq!(
            no_trunk(&topology(&(switches(2) + node)), "s1", "s2"),
            "there is no trunk between s1 and s2 in the lab lab (it has no trunks)"
        );
    }
}
