//! `weft switch ls`: shows the switches of the lab.

use anyhow::Result;

use crate::{
    cli::common::{CommonOptions, NoArgs, client},
    report::table::{self, Columns},
    vnicd_client::report::SwitchInfo,
};

pub(in crate::cli) fn run(options: &CommonOptions, _: &NoArgs) -> Result<()> {
    let rows = client(options)?.vnicd()?.switches(None)?;
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
    table::print(options.json, &rows, &columns)
}
