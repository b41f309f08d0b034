//! `weft switch macs`: shows the learned addresses.

use anyhow::Result;

use crate::{
    cli::common::{CommonOptions, SwitchArgs, client},
    lab::units::Span,
    report::table::{self, Columns},
    vnicd_client::report::StationInfo,
};

pub(in crate::cli) fn run(options: &CommonOptions, args: &SwitchArgs) -> Result<()> {
    let rows = client(options)?.vnicd()?.stations(args.switch.as_deref())?;
    let columns = Columns::<StationInfo>::default()
        .words("SWITCH", |row| row.switch.clone())
        .words("VLAN", |row| table::or_dash(row.vlan))
        .words("MAC", |row| row.mac.to_string())
        .words("BEHIND", |row| row.to.clone())
        // A finer resolution is of no use to a reader.
        .numbers("AGE", |row| {
            let step_ns = if row.age_ns < 10_000_000_000 {
                1_000_000
            } else {
                1_000_000_000
            };
            Span(row.age_ns / step_ns * step_ns).to_string()
        });
    table::print(options.json, &rows, &columns)
}
