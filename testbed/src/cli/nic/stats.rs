//! `weft nic stats`: shows frames, drops and interrupts of cards, with their reasons.

use anyhow::Result;

use crate::{
    cli::common::{CommonOptions, NicArgs, client, stats},
    report::table::{self, Columns},
    vnicd_client::report::{Counts, PortStats},
};

pub(in crate::cli) fn run(options: &CommonOptions, args: &NicArgs) -> Result<()> {
    let rows = stats(&client(options)?, args.nic.as_deref())?;
    let dropped = |counts: &Counts| counts.values().sum::<u64>();
    let is_translated = rows.iter().any(|row| row.translation.is_some());
    let mut columns = Columns::<PortStats>::default()
        .words("NIC", |row| row.name.clone())
        .numbers("RX FRAMES", |row| row.rx.frames.to_string())
        .numbers("RX BYTES", |row| row.rx.bytes.to_string())
        .numbers("TX FRAMES", |row| row.tx.frames.to_string())
        .numbers("TX BYTES", |row| row.tx.bytes.to_string())
        .numbers("DROPPED", move |row| {
            (dropped(&row.rx.dropped) + dropped(&row.tx.dropped)).to_string()
        })
        .words("DROPPED FOR", drop_reasons)
        .numbers("MARKED", |row| row.marked.to_string())
        .numbers("INTERRUPTS", |row| row.interrupts.decided.to_string())
        .numbers("SIGNALLED", |row| row.interrupts.signalled.to_string())
        .words("REASONS", |row| table::counts(&row.interrupts.by_reason));
    if is_translated {
        columns = columns.words("TRANSLATIONS", |row| {
            table::counts(row.translation.as_ref().unwrap_or(&Counts::new()))
        });
    }
    table::print(options.json, &rows, &columns)
}

/// Renders drops such as `rx no_buffer 2, tx too_long 3`: towards the guest and from it, without reasons that never
/// applied. Frames that a cable lost are listed under the cable's reasons.
fn drop_reasons(row: &PortStats) -> String {
    let each = [
        ("rx", with_cables_reasons(&row.rx.dropped, &row.link.to_guest)),
        ("tx", with_cables_reasons(&row.tx.dropped, &row.link.from_guest)),
    ];
    let both = each.into_iter().flat_map(|(direction, counts)| {
        counts
            .into_iter()
            .map(move |(reason, count)| (format!("{direction} {reason}"), count))
    });
    table::counts(&both.collect())
}

/// Replaces the single number of frames lost on the cable by the cable's reasons. The part that the cable does not
/// explain stays `link`.
fn with_cables_reasons(dropped: &Counts, cable: &Counts) -> Counts {
    let mut counts = dropped.clone();
    let lost = cable
        .iter()
        .filter_map(|(name, count)| Some((name.strip_prefix("dropped_")?, *count)));
    for (reason, count) in lost {
        let Some(unexplained) = counts.get_mut("link") else {
            break;
        };
        let explained = count.min(*unexplained);
        *unexplained -= explained;
        *counts.entry(reason.to_owned()).or_default() += explained;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_why_frames_were_dropped_in_both_directions() {
        let mut stats = PortStats::default();
        assert_eq!(drop_reasons(&stats), "-");
        stats.tx.dropped = [("link", 0), ("runt", 1), ("too_long", 7)]
            .map(|(name, count)| (name.to_owned(), count))
            .into();
        assert_eq!(drop_reasons(&stats), "tx runt 1, tx too_long 7");
        stats.rx.dropped = [("no_buffer", 2)].map(|(name, count)| (name.to_owned(), count)).into();
        assert_eq!(drop_reasons(&stats), "rx no_buffer 2, tx runt 1, tx too_long 7");
        let counts = |of: &[(&str, u64)]| of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        stats.tx.dropped = Counts::default();
        stats.rx.dropped = counts(&[("link", 7), ("no_buffer", 2)]);
        stats.link.to_guest = counts(&[("dropped_loss", 1), ("dropped_queue_full", 5), ("offered_frames", 9)]);
        assert_eq!(
            drop_reasons(&stats),
            "rx link 1, rx loss 1, rx no_buffer 2, rx queue_full 5"
        );
    }
}
