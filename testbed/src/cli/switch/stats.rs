//! `weft switch stats`: shows the counters of each port, and drops with their reasons.

use anyhow::Result;

use super::ports::{PortRow, port_rows};
use crate::{
    cli::common::{CommonOptions, SwitchArgs},
    report::table::{self, Columns},
};

pub(in crate::cli) fn run(options: &CommonOptions, args: &SwitchArgs) -> Result<()> {
    let rows = port_rows(options, args.switch.as_deref())?;
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
        .words("LOST", |row| table::or_dash(row.port.lost.as_ref().map(table::counts)));
    table::print(options.json, &rows, &columns)
}

fn port_columns() -> Columns<PortRow> {
    Columns::default()
        .words("SWITCH", |row: &PortRow| row.switch.clone())
        .numbers("PORT", |row| row.port.port.to_string())
        .words("TO", |row| row.port.to.clone())
}
