//! `weft trunk set` and `weft trunk ls`: change and show the cables between switches.

use anyhow::{Result, bail};
use serde::Serialize;

use super::common::{
    CommonOptions, NoArgs,
    cable::{CableArgs, UP_DOWN, cable_columns, link_change},
    client, one_of, show, verb_list,
};
use crate::{
    lab::topology::{Topology, TrunkView},
    report::table::{self, Columns},
    supervisor_client::{client::Client, protocol::Request},
    vnicd_client::{
        TrunkDirection,
        report::{LinkSettings, TrunkLinks},
    },
};

verb_list! {
    /// Show and change the cables between switches.
    TrunkVerb {
        /// Show the cables between switches.
        #[command(add = show(&[("weft trunk ls", "cables between switches")]))]
        Ls(NoArgs) => ls,
        Set(Box<SetArgs>) => set,
    }
}

/// Change the cable between two switches while the lab runs; without options, show it.
#[derive(Debug, clap::Args)]
#[command(add = show(&[
    ("weft trunk set s1 s2 --rate 1Gbit", "a slower trunk"),
    ("weft trunk set s1 s2 down", "pull it out"),
    ("weft trunk set s1 s2 down --number 2", "the second of several"),
]))]
pub(super) struct SetArgs {
    /// A switch.
    from: String,
    /// The switch at the other end.
    to: String,
    /// Plug the cable in, or pull it out.
    #[arg(value_parser = one_of(UP_DOWN))]
    state: Option<bool>,
    /// Which of several cables between the two switches, from 1, in the order of the lab file.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    number: Option<u16>,
    /// Change only the direction from the first switch to the second.
    #[arg(long)]
    one_way: bool,
    /// What to change.
    #[command(flatten)]
    change: CableArgs,
}

/// Changes the cable between two switches; without changes, shows it.
fn set(options: &CommonOptions, args: &SetArgs) -> Result<()> {
    let client = client(options)?;
    let topology = client.topology()?;
    if topology.trunk(&args.from, &args.to).is_none() {
        bail!(no_trunk(&topology, &args.from, &args.to));
    }
    let links = change_trunk(&client, args)?;
    let number = args.number.map_or(1, usize::from);
    print_trunks(options, trunk_rows(&args.from, &args.to, number, links))
}

fn change_trunk(client: &Client, args: &SetArgs) -> Result<TrunkLinks> {
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
fn ls(options: &CommonOptions, _: &NoArgs) -> Result<()> {
    let trunks = client(options)?.topology()?.trunks;
    let mut rows = Vec::new();
    for (index, trunk) in trunks.iter().enumerate() {
        let ends = [&trunk.a, &trunk.b];
        let same = |other: &&TrunkView| ends == [&other.a, &other.b] || ends == [&other.b, &other.a];
        let number = trunks[..=index].iter().filter(same).count();
        rows.extend(trunk_rows(&trunk.a, &trunk.b, number, trunk.link.clone()));
    }
    print_trunks(options, rows)
}

/// Explains why two switches have no trunk, with the trunks that exist.
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

/// A table row: one direction of a trunk.
#[derive(Serialize)]
struct TrunkRow {
    from: String,
    to: String,
    /// Number of the cable among those between the two switches, from 1.
    number: usize,
    #[serde(flatten)]
    settings: LinkSettings,
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

fn print_trunks(options: &CommonOptions, rows: Vec<TrunkRow>) -> Result<()> {
    let columns = Columns::<TrunkRow>::default()
        .words("FROM", |row| row.from.clone())
        .words("TO", |row| row.to.clone())
        .numbers("NUMBER", |row| row.number.to_string());
    table::print(options.json, &rows, &cable_columns(columns, |row| &row.settings))
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
