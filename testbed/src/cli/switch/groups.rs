//! `weft switch groups`: shows the IP multicast groups behind the ports of switches that snoop.

use std::net::IpAddr;

use anyhow::Result;
use serde::Serialize;

use crate::{
    cli::common::{CommonOptions, SwitchArgs, client},
    lab::units::Span,
    report::table::{self, Columns},
};

/// Resolution of the remaining time: a finer one is of no use to a reader.
const SECOND_NS: u64 = 1_000_000_000;

/// A table row: a multicast group that is wanted behind a port, or a port with a router, which gets all groups.
#[derive(Serialize)]
struct GroupRow {
    switch: String,
    vlan: Option<u16>,
    /// Address of the group; `None` stands for all groups.
    group: Option<IpAddr>,
    to: String,
    /// Remaining time in nanoseconds; `None` means as long as a router is there.
    left_ns: Option<u64>,
}

pub(in crate::cli) fn run(options: &CommonOptions, args: &SwitchArgs) -> Result<()> {
    let mut vnicd = client(options)?.vnicd()?;
    let members = vnicd
        .memberships(args.switch.as_deref())?
        .into_iter()
        .map(|member| GroupRow {
            switch: member.switch,
            vlan: member.vlan,
            group: Some(member.group),
            to: member.to,
            left_ns: Some(member.left_ns),
        });
    let routers = vnicd.switches(args.switch.as_deref())?.into_iter().flat_map(|info| {
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
        .words("VLAN", |row| table::or_dash(row.vlan))
        .words("GROUP", |row| {
            row.group
                .map_or_else(|| "all (router)".to_owned(), |group| group.to_string())
        })
        .words("BEHIND", |row| row.to.clone())
        .numbers("FOR", |row| {
            table::or_dash(row.left_ns.map(|left| Span(left / SECOND_NS * SECOND_NS)))
        });
    table::print(options.json, &rows, &columns)
}
