//! `weft switch stp`: shows the spanning tree.

use anyhow::Result;
use serde::Serialize;

use crate::{
    cli::common::{CommonOptions, SwitchArgs, client},
    report::table::{self, Columns},
    vnicd_client::report::{StpInfo, StpPortInfo},
};

/// A table row: a port of a switch in the spanning tree.
#[derive(Serialize)]
struct StpRow {
    switch: String,
    tree: StpInfo,
    number: u16,
    to: String,
    #[serde(flatten)]
    port: StpPortInfo,
}

pub(in crate::cli) fn run(options: &CommonOptions, args: &SwitchArgs) -> Result<()> {
    let mut rows = Vec::new();
    for info in client(options)?.vnicd()?.switches(args.switch.as_deref())? {
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
    table::print(options.json, &rows, &columns)
}
