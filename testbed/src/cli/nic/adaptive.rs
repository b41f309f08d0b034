//! `weft nic adaptive`: shows what the adaptive moderation of cards measured and chose. It changes nothing; `nic
//! coalesce` does.

use anyhow::Result;

use crate::{
    cli::common::{CommonOptions, Named, NicArgs, client, stats},
    lab::units::Span,
    report::table::{self, Columns},
    vnicd_client::report::AdaptiveStats,
};

pub(in crate::cli) fn run(options: &CommonOptions, args: &NicArgs) -> Result<()> {
    let mut rows = Vec::new();
    for card in stats(&client(options)?, args.nic.as_deref())? {
        let named = |settings| Named {
            nic: card.name.clone(),
            settings,
        };
        rows.extend(card.adaptive.into_iter().map(named));
    }
    let columns = Columns::<Named<AdaptiveStats>>::default()
        .words("NIC", |row| row.nic.clone())
        .numbers("QUEUE", |row| row.settings.queue.to_string())
        .numbers("DELAY NOW", |row| Span(row.settings.state.delay_ns).to_string())
        .numbers("AT MOST", |row| Span(row.settings.longest_ns).to_string())
        .numbers("PACKETS/S", |row| row.settings.state.packets_per_s.to_string())
        .numbers("LONGER", |row| row.settings.state.longer.to_string())
        .numbers("SHORTER", |row| row.settings.state.shorter.to_string());
    table::print(options.json, &rows, &columns)
}
