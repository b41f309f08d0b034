//! `weft nic group`: lists, joins and leaves the multicast groups of cards, and sets their trees.

use anyhow::{Result, bail};
use serde::Serialize;

use crate::{
    cli::common::{CommonOptions, client, ports, show, with_cable},
    report::table::{self, Columns},
    supervisor_client::client::Client,
    vnicd_client::{
        GroupChange,
        report::{Counts, GroupInfo},
    },
};

/// Show and change the multicast groups of cards.
#[derive(Debug, clap::Subcommand)]
pub(in crate::cli) enum GroupVerb {
    /// Show the groups: members, their children in the tree, and counters.
    #[command(add = show(&[("weft nic group list", "groups and their members")]))]
    List,
    /// Add a card to a group.
    #[command(add = show(&[("weft nic group join n1 7", "add n1's card to group 7")]))]
    Join {
        /// `NODE` or `NODE.ethN`.
        nic: String,
        /// Number of the group.
        #[arg(value_parser = clap::value_parser!(u16).range(1..))]
        group: u16,
    },
    /// Remove a card from a group.
    #[command(add = show(&[("weft nic group leave n1 7", "remove it again")]))]
    Leave {
        /// `NODE` or `NODE.ethN`.
        nic: String,
        /// Number of the group.
        #[arg(value_parser = clap::value_parser!(u16).range(1..))]
        group: u16,
    },
    /// Choose the shape of a group's trees; this restarts the group.
    #[command(add = show(&[("weft nic group tree 7 chain", "another tree for group 7")]))]
    Tree {
        /// Number of the group.
        #[arg(value_parser = clap::value_parser!(u16).range(1..))]
        group: u16,
        /// The shape.
        #[arg(value_parser = ["binary", "binomial", "chain"])]
        shape: String,
    },
}

/// A table row: a member of a group, with the counters of its card.
#[derive(Serialize)]
struct MemberRow {
    group: u16,
    tree: String,
    nic: String,
    children: Vec<String>,
    packets: Counts,
}

pub(in crate::cli) fn run(options: &CommonOptions, verb: &GroupVerb) -> Result<()> {
    let client = client(options)?;
    let groups = match verb {
        GroupVerb::List => client.vnicd()?.groups(&GroupChange::None)?,
        GroupVerb::Join { nic, group } => change_members(&client, nic, *group, true)?,
        GroupVerb::Leave { nic, group } => change_members(&client, nic, *group, false)?,
        GroupVerb::Tree { group, shape } => client.vnicd()?.groups(&GroupChange::Tree {
            group: *group,
            tree: shape.clone(),
        })?,
    };
    let only = match verb {
        GroupVerb::List => None,
        GroupVerb::Join { group, .. } | GroupVerb::Leave { group, .. } | GroupVerb::Tree { group, .. } => Some(*group),
    };
    let rows = rows(&client, &groups, only)?;
    table::print(options.json, &rows, &columns())
}

fn change_members(client: &Client, nic: &str, group: u16, join: bool) -> Result<Vec<GroupInfo>> {
    let mut groups = client.vnicd()?.groups(&GroupChange::None)?;
    let mut ports = with_cable(ports(client, Some(nic))?);
    if !join {
        let members = groups.iter().filter(|info| info.group == group);
        let members: Vec<_> = members
            .flat_map(|info| &info.members)
            .map(|member| &member.port)
            .collect();
        ports.retain(|port| members.contains(&&port.name));
        if ports.is_empty() {
            bail!("{nic} is not a member of group {group} (`weft nic group list` shows the members)");
        }
    }
    for port in ports {
        groups = client.vnicd()?.groups(&GroupChange::Member {
            port: port.name,
            group,
            join,
        })?;
    }
    Ok(groups)
}

fn rows(client: &Client, groups: &[GroupInfo], only: Option<u16>) -> Result<Vec<MemberRow>> {
    let stats = client.vnicd()?.stats(None)?;
    let mut rows = Vec::new();
    for info in groups
        .iter()
        .filter(|info| only.is_none_or(|group| info.group == group))
    {
        for member in &info.members {
            let port = stats.iter().find(|port| port.name == member.port);
            let counted = port.and_then(|port| port.groups.iter().find(|group| group.group == info.group));
            rows.push(MemberRow {
                group: info.group,
                tree: info.tree.clone(),
                nic: member.port.clone(),
                children: member.children.clone(),
                packets: counted.map(|group| group.packets.clone()).unwrap_or_default(),
            });
        }
    }
    Ok(rows)
}

fn columns() -> Columns<MemberRow> {
    let count = |row: &MemberRow, name: &str| row.packets.get(name).copied().unwrap_or(0).to_string();
    Columns::default()
        .numbers("GROUP", |row: &MemberRow| row.group.to_string())
        .words("TREE", |row| row.tree.clone())
        .words("NIC", |row| row.nic.clone())
        .words("SENDS TO", |row| {
            if row.children.is_empty() {
                "-".to_owned()
            } else {
                row.children.join(" ")
            }
        })
        .numbers("SENT", move |row| count(row, "sent"))
        .numbers("FORWARDED", move |row| count(row, "forwarded"))
        .numbers("DELIVERED", move |row| count(row, "delivered"))
        .numbers("NO BUFFER", move |row| count(row, "no_buffer"))
        .numbers("MISSED", move |row| count(row, "missed"))
        .numbers("DUPLICATES", move |row| count(row, "duplicates"))
        .numbers("GIVEN UP", move |row| count(row, "given_up"))
        .numbers("REFUSED", move |row| count(row, "refused"))
        .numbers("WAITED", move |row| count(row, "waited"))
}
