//! `weft nic misorder`: shows and sets how cards move marks to earlier fragments.

use anyhow::Result;
use serde::Serialize;

use crate::{
    cli::common::{CommonOptions, Named, client, ports, show, with_cable},
    report::table::{self, Columns},
    vnicd_client::report::MisorderChange,
};

/// Show or change how early in outgoing medium messages the card puts the latency mark.
#[derive(Debug, clap::Args)]
#[command(add = show(&[
    ("weft nic misorder n1", "settings and counters"),
    ("weft nic misorder n1 3", "mark three fragments early"),
]))]
#[command(
    after_help = "The frames keep their order. To reorder frames: weft link set NIC --reorder 5% --reorder-delay 50us"
)]
pub(in crate::cli) struct MisorderArgs {
    /// `NODE` or `NODE.ethN`.
    nic: String,
    /// How many fragments before the last; 0 leaves the mark where the driver put it.
    #[arg(value_parser = clap::value_parser!(u8).range(0..=i64::from(firmware::MISORDER_DEGREE_MAX)))]
    degree: Option<u8>,
}

#[derive(Serialize)]
struct MisorderRow {
    degree: u8,
    /// Messages whose mark was sent on an earlier fragment.
    moved: u64,
    /// Last fragments whose mark was cleared.
    cleared: u64,
    /// Messages that were sent unchanged while the injector was on.
    kept: u64,
}

pub(in crate::cli) fn run(options: &CommonOptions, args: &MisorderArgs) -> Result<()> {
    let client = client(options)?;
    let mut rows = Vec::new();
    for port in with_cable(ports(&client, Some(&args.nic))?) {
        let settings = client
            .vnicd()?
            .change(&port.name, &MisorderChange { degree: args.degree })?;
        for stats in client.vnicd()?.stats(Some(&port.name))? {
            let count = |name| stats.misorder.get(name).copied().unwrap_or(0);
            rows.push(Named {
                settings: MisorderRow {
                    degree: settings.degree,
                    moved: count("moved"),
                    cleared: count("cleared"),
                    kept: count("kept"),
                },
                nic: stats.name,
            });
        }
    }
    let columns = Columns::<Named<MisorderRow>>::default()
        .words("NIC", |row| row.nic.clone())
        .numbers("DEGREE", |row| match row.settings.degree {
            0 => "off".to_owned(),
            degree => degree.to_string(),
        })
        .numbers("MARKS MOVED", |row| row.settings.moved.to_string())
        .numbers("CLEARED", |row| row.settings.cleared.to_string())
        .numbers("KEPT", |row| row.settings.kept.to_string());
    table::print(options.json, &rows, &columns)
}
