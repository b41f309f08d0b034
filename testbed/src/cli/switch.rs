//! Verbs about switches: switch ls, macs, vlans, stp, groups and stats; and the VLANs of a NIC: nic vlan.

use std::net::IpAddr;

use anyhow::{Result, bail};
use serde::Serialize;

use super::{
    args::{Cli, SwitchVerb},
    client,
    nic::{ports, with_cable},
};
use crate::{
    lab::units::Span,
    report::table::{self, Columns},
    vnicd_client::report::{
        StationInfo, StpInfo, StpPortInfo, SwitchInfo, SwitchPortInfo, VlanChange, VlanList, VlanSettings,
    },
};

pub(super) fn switch(cli: &Cli, verb: &SwitchVerb) -> Result<()> {
    match verb {
        SwitchVerb::Ls => ls(cli),
        SwitchVerb::Macs { switch } => macs(cli, switch.as_deref()),
        SwitchVerb::Vlans { switch } => vlans(cli, switch.as_deref()),
        SwitchVerb::Stp { switch } => stp(cli, switch.as_deref()),
        SwitchVerb::Groups { switch } => groups(cli, switch.as_deref()),
        SwitchVerb::Stats { switch } => stats(cli, switch.as_deref()),
    }
}

fn ls(cli: &Cli) -> Result<()> {
    let rows = client(cli)?.vnicd()?.switches(None)?;
    let columns = Columns::<SwitchInfo>::default()
        .words("SWITCH", |row| row.switch.clone())
        .numbers("NICS", |row| {
            row.ports.iter().filter(|port| !port.trunk).count().to_string()
        })
        .numbers("TRUNKS", |row| {
            row.ports.iter().filter(|port| port.trunk).count().to_string()
        })
        .numbers("STATIONS", |row| {
            row.ports.iter().map(|port| port.stations).sum::<u64>().to_string()
        })
        .words("SPANNING TREE", |row| match &row.stp {
            None => "-".to_owned(),
            Some(stp) if stp.root_port.is_none() => "root".to_owned(),
            Some(stp) => format!("root cost {}", stp.root_cost),
        })
        .words("VLANS", |row| if row.has_vlans { "yes" } else { "no" }.to_owned())
        .words("SNOOPING", |row| {
            if row.snooping.is_some() { "yes" } else { "no" }.to_owned()
        })
        .words("RESERVED", |row| row.settings.reserved.name().to_owned());
    table::print(cli.json, &rows, &columns)
}

fn macs(cli: &Cli, switch: Option<&str>) -> Result<()> {
    let rows = client(cli)?.vnicd()?.stations(switch)?;
    let columns = Columns::<StationInfo>::default()
        .words("SWITCH", |row| row.switch.clone())
        .words("VLAN", |row| {
            row.vlan.map_or_else(|| "-".to_owned(), |vlan| vlan.to_string())
        })
        .words("MAC", |row| row.mac.to_string())
        .words("BEHIND", |row| row.to.clone())
        // Nobody reads it finer.
        .numbers("AGE", |row| {
            let step_ns = if row.age_ns < 10_000_000_000 {
                1_000_000
            } else {
                1_000_000_000
            };
            Span(row.age_ns / step_ns * step_ns).to_string()
        });
    table::print(cli.json, &rows, &columns)
}

/// A port with the name of its switch, flat in JSON.
#[derive(Serialize)]
struct PortRow {
    switch: String,
    #[serde(flatten)]
    port: SwitchPortInfo,
}

fn port_rows(cli: &Cli, switch: Option<&str>) -> Result<Vec<PortRow>> {
    let switches = client(cli)?.vnicd()?.switches(switch)?;
    let rows = switches.into_iter().flat_map(|info| {
        info.ports.into_iter().map(move |port| PortRow {
            switch: info.switch.clone(),
            port,
        })
    });
    Ok(rows.collect())
}

fn port_columns() -> Columns<PortRow> {
    Columns::default()
        .words("SWITCH", |row: &PortRow| row.switch.clone())
        .numbers("PORT", |row| row.port.port.to_string())
        .words("TO", |row| row.port.to.clone())
}

/// The VLANs of a port of a switch.
#[derive(Serialize)]
struct VlanRow {
    switch: String,
    port: u16,
    to: String,
    trunk: bool,
    vlans: Option<VlanSettings>,
}

fn vlans(cli: &Cli, switch: Option<&str>) -> Result<()> {
    let rows: Vec<_> = port_rows(cli, switch)?
        .into_iter()
        .map(|PortRow { switch, port }| VlanRow {
            switch,
            port: port.port,
            to: port.to,
            trunk: port.trunk,
            vlans: port.vlans,
        })
        .collect();
    let columns = Columns::<VlanRow>::default()
        .words("SWITCH", |row| row.switch.clone())
        .numbers("PORT", |row| row.port.to_string())
        .words("TO", |row| row.to.clone())
        .words("UNTAGGED", |row| untagged(row.vlans.as_ref()))
        .words("TAGGED", |row| tagged(row.vlans.as_ref()));
    table::print(cli.json, &rows, &columns)
}

fn untagged(vlans: Option<&VlanSettings>) -> String {
    match vlans {
        // Tags are not read: there are no VLANs.
        None => "any".to_owned(),
        Some(vlans) => vlans.untagged.map_or_else(|| "-".to_owned(), |vlan| vlan.to_string()),
    }
}

fn tagged(vlans: Option<&VlanSettings>) -> String {
    match vlans {
        None => "any".to_owned(),
        Some(vlans) if vlans.tagged.is_empty() => "-".to_owned(),
        Some(vlans) => vlans.tagged.to_string(),
    }
}

/// A port of a switch in the spanning tree.
#[derive(Serialize)]
struct StpRow {
    switch: String,
    tree: StpInfo,
    number: u16,
    to: String,
    #[serde(flatten)]
    port: StpPortInfo,
}

fn stp(cli: &Cli, switch: Option<&str>) -> Result<()> {
    let mut rows = Vec::new();
    for info in client(cli)?.vnicd()?.switches(switch)? {
        let Some(tree) = info.stp else { continue };
        for port in info.ports {
            let Some(stp) = port.stp else { continue };
            rows.push(StpRow {
                switch: info.switch.clone(),
                tree: tree.clone(),
                number: port.port,
                to: port.to,
                port: stp,
            });
        }
    }
    let columns = Columns::<StpRow>::default()
        .words("SWITCH", |row| row.switch.clone())
        .words("BRIDGE", |row| row.tree.bridge.clone())
        .words("ROOT", |row| row.tree.root.clone())
        .numbers("PORT", |row| row.number.to_string())
        .words("TO", |row| row.to.clone())
        .words("ROLE", |row| row.port.role.clone())
        .words("STATE", |row| row.port.state.clone())
        .numbers("COST", |row| row.port.cost.to_string())
        .words("EDGE", |row| if row.port.edge { "yes" } else { "no" }.to_owned())
        .numbers("BPDUS IN", |row| row.port.bpdus_in.to_string())
        .numbers("BPDUS OUT", |row| row.port.bpdus_out.to_string());
    table::print(cli.json, &rows, &columns)
}

/// A multicast group that is wanted behind a port, or a port with a router, which gets all groups.
#[derive(Serialize)]
struct GroupRow {
    switch: String,
    vlan: Option<u16>,
    /// None: all groups.
    group: Option<IpAddr>,
    to: String,
    /// None: as long as a router is there.
    left_ns: Option<u64>,
}

fn groups(cli: &Cli, switch: Option<&str>) -> Result<()> {
    let mut vnicd = client(cli)?.vnicd()?;
    let members = vnicd.memberships(switch)?.into_iter().map(|member| GroupRow {
        switch: member.switch,
        vlan: member.vlan,
        group: Some(member.group),
        to: member.to,
        left_ns: Some(member.left_ns),
    });
    let routers = vnicd.switches(switch)?.into_iter().flat_map(|info| {
        let ports = info.ports.into_iter().filter(|port| port.router);
        ports.map(move |port| GroupRow {
            switch: info.switch.clone(),
            vlan: None,
            group: None,
            to: port.to,
            left_ns: None,
        })
    });
    let rows: Vec<_> = members.chain(routers).collect();
    let columns = Columns::<GroupRow>::default()
        .words("SWITCH", |row| row.switch.clone())
        .words("VLAN", |row| {
            row.vlan.map_or_else(|| "-".to_owned(), |vlan| vlan.to_string())
        })
        .words("GROUP", |row| {
            row.group
                .map_or_else(|| "all (router)".to_owned(), |group| group.to_string())
        })
        .words("BEHIND", |row| row.to.clone())
        .numbers("FOR", |row| {
            row.left_ns
                .map_or_else(|| "-".to_owned(), |left| Span(left / SECOND_NS * SECOND_NS).to_string())
        });
    table::print(cli.json, &rows, &columns)
}

/// Finer than a second nobody reads how long a group is still wanted.
const SECOND_NS: u64 = 1_000_000_000;

fn stats(cli: &Cli, switch: Option<&str>) -> Result<()> {
    let rows = port_rows(cli, switch)?;
    let count = |row: &PortRow, name: &str| row.port.counters.get(name).copied().unwrap_or(0).to_string();
    let columns = port_columns()
        .numbers("IN FRAMES", move |row| count(row, "in_frames"))
        .numbers("IN BYTES", move |row| count(row, "in_bytes"))
        .numbers("OUT FRAMES", move |row| count(row, "out_frames"))
        .numbers("OUT BYTES", move |row| count(row, "out_bytes"))
        .numbers("FLOODED", move |row| count(row, "out_flooded"))
        .numbers("LEARNED", move |row| count(row, "learned"))
        .numbers("MOVED", move |row| count(row, "moved"))
        .words("DROPPED", |row| table::counts(&row.port.dropped))
        .words("LOST", |row| {
            row.port.lost.as_ref().map_or_else(|| "-".to_owned(), table::counts)
        });
    table::print(cli.json, &rows, &columns)
}

/// The VLANs of a NIC at its switch.
#[derive(Serialize)]
struct NicVlans {
    nic: String,
    vlans: Option<VlanSettings>,
}

/// What is said about frames without a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untagged {
    /// They are of this VLAN.
    Vlan(u16),
    /// They are dropped.
    None,
    /// The port is as if nobody had said anything about its VLANs.
    Default,
}

/// Reads what is said about frames without a tag.
pub(super) fn untagged_argument(text: &str) -> Result<Untagged, String> {
    match text {
        "none" => return Ok(Untagged::None),
        "default" => return Ok(Untagged::Default),
        _ => {}
    }
    match text.parse::<VlanList>().map(|list| list.numbers().collect::<Vec<_>>()) {
        Ok(numbers) if numbers.len() == 1 => Ok(Untagged::Vlan(numbers[0])),
        _ => Err(format!(
            "{text:?} is no VLAN: a number from 1 to 4094, none, or default"
        )),
    }
}

/// What to ask for; `now` are the VLANs in force. What is named is meant: a port that is given only a VLAN for frames without a
/// tag is an access port.
fn vlan_change(
    untagged: Option<Untagged>,
    tagged: Option<&VlanList>,
    now: Option<&VlanSettings>,
) -> Result<Option<VlanChange>> {
    let untagged = match (untagged, tagged) {
        (None, None) => return Ok(None),
        (Some(Untagged::Default), None) => return Ok(Some(VlanChange::Default)),
        (Some(Untagged::Default), Some(_)) => bail!("`default` takes back what --tagged says: name one of them"),
        (Some(Untagged::None), tagged) if tagged.is_none_or(VlanList::is_empty) => {
            bail!("`none` without --tagged lets no frame pass: `weft link set NIC down` does that")
        }
        (Some(Untagged::None), _) => None,
        (Some(Untagged::Vlan(vlan)), _) => Some(vlan),
        (None, Some(_)) => now.map_or(VlanSettings::default().untagged, |now| now.untagged),
    };
    Ok(Some(VlanChange::Set(VlanSettings {
        untagged,
        tagged: tagged.cloned().unwrap_or_default(),
    })))
}

pub(super) fn vlan(
    cli: &Cli,
    target: &str,
    untagged_vlan: Option<Untagged>,
    tagged_vlans: Option<&VlanList>,
) -> Result<()> {
    let client = client(cli)?;
    let mut rows = Vec::new();
    for port in with_cable(ports(&client, Some(target))?) {
        let mut vnicd = client.vnicd()?;
        let mut vlans = vnicd.vlans(&port.name, None)?;
        if let Some(change) = vlan_change(untagged_vlan, tagged_vlans, vlans.as_ref())? {
            vlans = vnicd.vlans(&port.name, Some(&change))?;
        }
        rows.push(NicVlans { nic: port.name, vlans });
    }
    let columns = Columns::<NicVlans>::default()
        .words("NIC", |row| row.nic.clone())
        .words("UNTAGGED", |row| untagged(row.vlans.as_ref()))
        .words("TAGGED", |row| tagged(row.vlans.as_ref()));
    table::print(cli.json, &rows, &columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_about_untagged_frames_is_a_vlan_none_or_the_default() {
        assert_eq!(untagged_argument("none"), Ok(Untagged::None));
        assert_eq!(untagged_argument("default"), Ok(Untagged::Default));
        assert_eq!(untagged_argument("10"), Ok(Untagged::Vlan(10)));
        for wrong in ["0", "10,11", "all", "x"] {
            assert!(untagged_argument(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_named_is_meant_and_what_lets_no_frame_pass_is_refused() {
        let list: VlanList = "20".parse().unwrap();
        let set = |untagged, tagged: &str| {
            Some(VlanChange::Set(VlanSettings {
                untagged,
                tagged: tagged.parse().unwrap(),
            }))
        };
        let now = VlanSettings {
            untagged: Some(7),
            tagged: "8".parse().unwrap(),
        };
        for (untagged, tagged, asked) in [
            (None, None, None),
            (Some(Untagged::Default), None, Some(VlanChange::Default)),
            (Some(Untagged::Vlan(10)), None, set(Some(10), "")),
            (Some(Untagged::Vlan(10)), Some(&list), set(Some(10), "20")),
            (Some(Untagged::None), Some(&list), set(None, "20")),
            (None, Some(&list), set(Some(7), "20")),
        ] {
            assert_eq!(vlan_change(untagged, tagged, Some(&now)).unwrap(), asked);
        }
        assert_eq!(vlan_change(None, Some(&list), None).unwrap(), set(Some(1), "20"));
        assert!(vlan_change(Some(Untagged::None), None, Some(&now)).is_err());
        assert!(vlan_change(Some(Untagged::Default), Some(&list), None).is_err());
    }
}
