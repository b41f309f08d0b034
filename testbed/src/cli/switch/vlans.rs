//! `weft switch vlans`: shows the VLANs of each port.

use anyhow::Result;
use serde::Serialize;

use super::ports::{PortRow, port_rows};
use crate::{
    cli::common::{CommonOptions, SwitchArgs},
    report::{
        table::{self, Columns},
        vlan::{tagged, untagged},
    },
    vnicd_client::report::VlanSettings,
};

/// A table row: the VLANs of a port of a switch.
#[derive(Serialize)]
struct VlanRow {
    switch: String,
    port: u16,
    to: String,
    trunk: bool,
    vlans: Option<VlanSettings>,
}

pub(in crate::cli) fn run(options: &CommonOptions, args: &SwitchArgs) -> Result<()> {
    let rows: Vec<_> = port_rows(options, args.switch.as_deref())?
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
    table::print(options.json, &rows, &columns)
}
