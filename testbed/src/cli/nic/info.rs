//! `weft nic info`: shows connection, rings and offloads of cards.

use anyhow::Result;

use crate::{
    cli::common::{CommonOptions, NicArgs, client, ports},
    report::table::{self, Columns},
    vnicd_client::report::PortInfo,
};

pub(in crate::cli) fn run(options: &CommonOptions, args: &NicArgs) -> Result<()> {
    let rows = ports(&client(options)?, args.nic.as_deref())?;
    let columns = Columns::<PortInfo>::default()
        .words("NIC", |row| row.name.clone())
        .words("SWITCH", |row| row.switch.clone())
        .words("MAC", |row| table::or_dash(row.mac))
        .words("IN USE", |row| table::or_dash(row.mac_in_use))
        .words("STATE", |row| match (&row.failed, row.connected, row.rings_started) {
            (Some(why), ..) => format!("failed: {why}"),
            (None, false, _) => "no guest".to_owned(),
            (None, true, 0) => "connected".to_owned(),
            (None, true, rings) => format!("{rings} rings run"),
        })
        .words("LINK", |row| if row.link_up { "up" } else { "down" }.to_owned())
        .numbers("QUEUE PAIRS", |row| row.queue_pairs.to_string())
        .numbers("MTU", |row| row.mtu.to_string())
        .words("FEATURES", |row| row.features.join(" "));
    table::print(options.json, &rows, &columns)
}
