//! The options that change any cable, and the columns that show them, for `link` and `trunk`.

use crate::{
    lab::{
        cable::{Distribution, EcnThreshold, Loss, QueueLimit},
        settings::{jitter_argument, link_delay_argument, reorder_delay_argument},
        units::{Rate, Share, Size, Span},
    },
    report::{
        cable::{delay, faults, queue, rate},
        table::Columns,
    },
    vnicd_client::report::{LinkChange, LinkSettings},
};

use super::{ON_OFF, Words, one_of};

/// The options that change any cable.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct CableArgs {
    /// Bit rate, such as 10Gbit, or unlimited, which takes a burst back.
    #[arg(long)]
    rate: Option<Rate>,
    /// Size of the token bucket: bytes that may be sent at once after a pause; 0B for none.
    #[arg(long, value_name = "SIZE")]
    burst: Option<Size>,
    /// Propagation delay.
    #[arg(long, value_name = "TIME", value_parser = link_delay_argument)]
    delay: Option<Span>,
    /// Variation of the delay; 0 for none.
    #[arg(long, value_name = "TIME", value_parser = jitter_argument)]
    jitter: Option<Span>,
    /// Distribution of the delays.
    #[arg(long, visible_alias = "distribution", value_name = "KIND")]
    jitter_distribution: Option<Distribution>,
    /// Whether frames with a short delay overtake those before them.
    #[arg(long, value_name = "on|off", value_parser = one_of(ON_OFF))]
    jitter_reorders: Option<bool>,
    /// Queue in front of a link with a rate, such as 64K, "100 packets" or 20ms.
    #[arg(long, value_name = "LENGTH")]
    queue: Option<QueueLimit>,
    /// Queue length above which packets of ECN-capable transports are marked, or off.
    #[arg(long, value_name = "LENGTH|off")]
    ecn_threshold: Option<EcnThreshold>,
    /// Largest payload in bytes.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(68..=65_521))]
    mtu: Option<u32>,
    /// Probability that a frame is lost, such as 0.1%; or bursts of loss, such as "gemodel 1% 25%" (P, R, 1-H, 1-K).
    #[arg(long, value_name = "SHARE|MODEL")]
    loss: Option<Loss>,
    /// Lose every Nth frame; 0 for none.
    #[arg(long, value_name = "N")]
    loss_every: Option<u32>,
    /// Probability that a frame is delayed by --reorder-delay.
    #[arg(long, value_name = "SHARE")]
    reorder: Option<Share>,
    /// How long a reordered frame is delayed.
    #[arg(long, value_name = "TIME", value_parser = reorder_delay_argument)]
    reorder_delay: Option<Span>,
    /// Probability that a frame arrives twice.
    #[arg(long, value_name = "SHARE")]
    duplicate: Option<Share>,
    /// Probability that one bit of a frame is flipped.
    #[arg(long, value_name = "SHARE")]
    corrupt: Option<Share>,
    /// Deliver corrupted frames instead of dropping them.
    #[arg(long, value_name = "on|off", value_parser = one_of(ON_OFF))]
    corrupt_past_fcs: Option<bool>,
    /// Seed of the random choices.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// The state of a cable, as a word.
pub(in crate::cli) const UP_DOWN: Words<bool> = &[("up", "Plugged in", true), ("down", "Pulled out", false)];

/// Converts options into the requested change.
pub(in crate::cli) fn link_change(up: Option<bool>, args: &CableArgs) -> LinkChange {
    let mut change = LinkChange {
        up,
        rate_bps: args.rate.map(|rate| rate.0),
        // A burst is a part of a rate, and goes with it.
        burst_bytes: args
            .burst
            .map_or((args.rate == Some(Rate(0))).then_some(0), |burst| Some(burst.0)),
        delay_ns: args.delay.map(|delay| delay.0),
        jitter_ns: args.jitter.map(|jitter| jitter.0),
        jitter_distribution: args.jitter_distribution.map(Into::into),
        jitter_reorders: args.jitter_reorders,
        mtu: args.mtu,
        loss_every: args.loss_every,
        reorder_ppm: args.reorder.map(|share| share.0),
        reorder_delay_ns: args.reorder_delay.map(|delay| delay.0),
        duplicate_ppm: args.duplicate.map(|share| share.0),
        corrupt_ppm: args.corrupt.map(|share| share.0),
        corrupt_past_fcs: args.corrupt_past_fcs,
        seed: args.seed,
        queue_max: args.queue.map(QueueLimit::level),
        ecn_above: args.ecn_threshold.map(EcnThreshold::level),
        ..LinkChange::default()
    };
    if let Some(loss) = args.loss {
        loss.set(&mut change);
    }
    change
}

/// Adds the columns about one direction of any cable.
pub(in crate::cli) fn cable_columns<R: 'static>(columns: Columns<R>, settings: fn(&R) -> &LinkSettings) -> Columns<R> {
    columns
        .words("LINK", move |row| {
            if settings(row).up { "up" } else { "down" }.to_owned()
        })
        .numbers("RATE", move |row| rate(settings(row)))
        .numbers("DELAY", move |row| delay(settings(row)))
        .numbers("QUEUE", move |row| queue(settings(row)))
        .numbers("MTU", move |row| settings(row).mtu.to_string())
        .words("FAULTS", move |row| faults(settings(row)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vnicd_client::report::{JitterDistribution, QueueLevel};

    #[test]
    fn only_faults_that_are_on_are_shown() {
        assert_eq!(faults(&LinkSettings::default()), "-");
        let settings = LinkSettings {
            loss_ppm: 1_000,
            reorder_ppm: 50_000,
            reorder_delay_ns: 1_000_000,
            ..LinkSettings::default()
        };
        assert_eq!(faults(&settings), "loss 0.1%, reorder 5% by 1ms");
        let settings = LinkSettings {
            loss_ppm: 1,
            loss_enter_ppm: 10_000,
            loss_leave_ppm: 250_000,
            loss_in_burst_ppm: 1_000_000,
            loss_every: 100,
            ..LinkSettings::default()
        };
        assert_eq!(faults(&settings), "loss gemodel 1% 25% 100% 1ppm, loss of every 100th");
    }

    #[test]
    fn an_unlimited_rate_takes_a_burst_back_unless_one_is_asked_for() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            cable: CableArgs,
        }
        let change = |words: &[&str]| {
            let line = <Line as clap::Parser>::parse_from([&["weft"], words].concat());
            let change = link_change(None, &line.cable);
            (change.rate_bps, change.burst_bytes)
        };
        assert_eq!(change(&["--rate", "unlimited"]), (Some(0), Some(0)));
        assert_eq!(change(&["--rate", "1Gbit"]), (Some(1_000_000_000), None));
        assert_eq!(change(&["--rate", "unlimited", "--burst", "1K"]), (Some(0), Some(1024)));
        assert_eq!(change(&["--delay", "1ms"]), (None, None));
    }

    #[test]
    fn a_cable_is_shown_as_it_was_asked_for() {
        let ideal = LinkSettings::default();
        assert_eq!([rate(&ideal), delay(&ideal), queue(&ideal)], ["unlimited", "0", "1M"]);
        let settings = LinkSettings {
            rate_bps: 10_000_000,
            burst_bytes: 32 << 10,
            delay_ns: 10_000_000,
            jitter_ns: 1_000_000,
            jitter_distribution: JitterDistribution::Pareto,
            queue_max: QueueLevel::frames(100),
            ecn_above: QueueLevel::nanos(5_000_000),
            ..ideal
        };
        let shown = [rate(&settings), delay(&settings), queue(&settings)];
        assert_eq!(shown, ["10Mbit burst 32K", "10ms ± 1ms pareto", "100 packets, ECN 5ms"]);
    }
}
