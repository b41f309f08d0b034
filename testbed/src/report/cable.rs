//! The settings of a cable in words.

use crate::{
    lab::{
        cable::{EcnThreshold, Loss, QueueLimit},
        units::{Rate, Share, Size, Span},
    },
    vnicd_client::report::LinkSettings,
};

/// Renders a rate such as `10Mbit` or, with a token bucket, `10Mbit burst 32K`.
#[must_use]
pub fn rate(settings: &LinkSettings) -> String {
    let rate = Rate(settings.rate_bps);
    match settings.burst_bytes {
        0 => rate.to_string(),
        burst => format!("{rate} burst {}", Size(burst)),
    }
}

/// Renders a delay such as `10ms` or, with jitter, `10ms ± 1ms pareto`.
#[must_use]
pub fn delay(settings: &LinkSettings) -> String {
    let delay = Span(settings.delay_ns);
    if settings.jitter_ns == 0 {
        return delay.to_string();
    }
    let (jitter, distribution) = (Span(settings.jitter_ns), settings.jitter_distribution.name());
    let order = if settings.jitter_reorders { ", reorders" } else { "" };
    format!("{delay} ± {jitter} {distribution}{order}")
}

/// Renders a queue such as `1M` or, with an ECN threshold, `1M, ECN 64K`.
#[must_use]
pub fn queue(settings: &LinkSettings) -> String {
    let limit = QueueLimit::of_queue(settings).map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
    match EcnThreshold::of(settings).0 {
        None => limit,
        Some(threshold) => format!("{limit}, ECN {threshold}"),
    }
}

/// Renders faults such as `loss 1%, reorder 5% by 1ms`, without those that are off.
#[must_use]
pub fn faults(settings: &LinkSettings) -> String {
    let loss = Loss::of(settings);
    let mut words = Vec::new();
    if loss != Loss::default() {
        words.push(format!("loss {loss}"));
    }
    if settings.loss_every > 0 {
        words.push(format!("loss of every {}th", settings.loss_every));
    }
    let delay = Span(settings.reorder_delay_ns);
    let past = if settings.corrupt_past_fcs { " past FCS" } else { "" };
    for (name, ppm, more) in [
        ("reorder", settings.reorder_ppm, format!(" by {delay}")),
        ("duplicate", settings.duplicate_ppm, String::new()),
        ("corrupt", settings.corrupt_ppm, past.to_owned()),
    ] {
        if ppm > 0 {
            words.push(format!("{name} {}{more}", Share(ppm)));
        }
    }
    if words.is_empty() {
        "-".to_owned()
    } else {
        words.join(", ")
    }
}
