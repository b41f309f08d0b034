//! `weft nic copy-engine`: shows the copies of cards that are connected to themselves.

use anyhow::{Result, bail};

use crate::{
    cli::common::{CommonOptions, Named, NicArgs, client, stats},
    report::table::{self, Columns},
    vnicd_client::report::{Counts, PortStats},
};

/// Shows the copy engines of the cards named.
pub(in crate::cli) fn run(options: &CommonOptions, args: &NicArgs) -> Result<()> {
    let target = args.nic.as_deref();
    let counted = |card: PortStats| {
        Some(Named {
            nic: card.name,
            settings: card.copy_engine?,
        })
    };
    let rows: Vec<_> = stats(&client(options)?, target)?
        .into_iter()
        .filter_map(counted)
        .collect();
    if let (Some(target), true) = (target, rows.is_empty()) {
        bail!("{target} is not connected to itself, so it has no copy engine (loopback = true in the lab file)");
    }
    let count =
        |name: &'static str| move |row: &Named<Counts>| row.settings.get(name).copied().unwrap_or(0).to_string();
    let columns = Columns::<Named<Counts>>::default()
        .words("NIC", |row| row.nic.clone())
        .numbers("COPIES", count("submitted"))
        .numbers("COMPLETED", count("completed"))
        .numbers("GIVEN UP", count("failed"))
        .numbers("FORGOTTEN", count("cancelled"))
        .numbers("FRAMES", count("frames"))
        .numbers("BYTES", count("moved_bytes"))
        .words("REFUSED", |row| refused(&row.settings));
    table::print(options.json, &rows, &columns)
}

/// Renders why requests were refused, such as `overlap 2, queue_full 1`.
fn refused(counts: &Counts) -> String {
    let refused = counts
        .iter()
        .filter_map(|(name, count)| Some((name.strip_prefix("refused_")?, *count)));
    table::counts(&refused.map(|(reason, count)| (reason.to_owned(), count)).collect())
}
