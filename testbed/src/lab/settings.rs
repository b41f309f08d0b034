//! Merges NIC, DMA and link settings from the lab's defaults down to one direction of one cable, within their limits.

use std::ops::RangeInclusive;

use toml::Spanned;

use super::{
    cable::{EcnThreshold, QueueLimit},
    file::{CoalescingFile, DmaFile, LinkFile, NicFile, SteeringFile},
    problems::Problems,
    units::{Rate, Span},
};
use vnicd_protocol::{
    CoalescingSettings, DmaSettings, LinkChange, LinkSettings, MEMBER_TIMEOUT_NS_MAX, MEMBER_TIMEOUT_NS_MIN,
    MisorderSettings, QueueTable, SteeringSettings,
};

/// Longest coalescing delay and DMA set-up time: a guest's TCP gives up on a slower card.
pub const CARD_DELAY_NS_MAX: u64 = 1_000_000_000;
/// Longest time on a link, during which frames wait in `vnicd`.
pub const LINK_DELAY_NS_MAX: u64 = vnicd_protocol::LINK_DELAY_NS_MAX;
/// Largest number of simultaneous DMA transfers.
pub const DMA_PARALLELISM_MAX: u32 = 16;
/// Largest number of packets that a card lets wait for an interrupt: as many as its firmware can delay.
pub const FRAMES_MAX: u32 = firmware::coalescing::FRAMES_MAX_MAX;
/// Range of the MTU, from what IPv4 requires of every link to the largest that the card supports.
pub const MTU_RANGE: RangeInclusive<u32> = 68..=9000;
/// MTUs of NICs that are connected to themselves.
const LOOPBACK_MTU_RANGE: RangeInclusive<u32> = 68..=vnicd_protocol::MTU_MAX;
/// MTUs of NICs that programs drive, and of links: up to that of frames of 65,535 bytes, which no protocol over Ethernet exceeds.
pub const LONG_MTU_RANGE: RangeInclusive<u32> = 68..=65_535 - ether::ETHERNET_HEADER_LEN as u32;

const LINK_DELAY: &str = "a link delay";
const JITTER: &str = "a jitter";
const REORDER_DELAY: &str = "a reordering delay";
const COALESCING_DELAY: &str = "a coalescing delay";

/// Returns whether the NIC is connected to itself; settings that exclude that are mistakes.
pub(super) fn loopback(nic: &NicFile, queue_pairs: u16, problems: &mut Problems) -> bool {
    let Some(on) = nic.loopback.as_ref().filter(|on| *on.get_ref()) else {
        return false;
    };
    if queue_pairs != 1 {
        let message = format!("a NIC that is connected to itself has one queue pair, not {queue_pairs}");
        problems.add(
            on.span(),
            message,
            "queue_pairs = 1 beside it: a copy engine has one ring",
        );
    }
    if nic.link.is_some() || nic.link_to_guest.is_some() || nic.link_from_guest.is_some() {
        let message = "a NIC that is connected to itself has no cable whose settings could be changed".to_owned();
        problems.add(on.span(), message, "leave out loopback, or link and its directions");
    }
    if nic.switch.is_some() {
        let message = "a NIC that is connected to itself is at no switch".to_owned();
        problems.add(on.span(), message, "leave out loopback, or switch");
    }
    true
}

/// Returns how long a member of the card's reliable groups may take nothing.
pub(super) fn member_timeout(nic: &NicFile, problems: &mut Problems) -> u64 {
    let Some(timeout) = &nic.member_timeout else {
        return member_timeout_by_default();
    };
    let (span, min) = (*timeout.get_ref(), Span(MEMBER_TIMEOUT_NS_MIN));
    if span.0 < min.0 {
        let message = format!("a member timeout of {span} is too short");
        problems.add(timeout.span(), message, format!("at least {min}"));
    }
    span_within(timeout, MEMBER_TIMEOUT_NS_MAX, "a member timeout", problems)
}

/// Returns what holds where a lab file says nothing.
pub(super) const fn member_timeout_by_default() -> u64 {
    firmware::multicast::DEAD_NS
}

pub(super) fn span_within(value: &Spanned<Span>, max_ns: u64, what: &str, problems: &mut Problems) -> u64 {
    let span = *value.get_ref();
    if span.0 > max_ns {
        let (message, help) = too_long(span, max_ns, what);
        problems.add(value.span(), message, help);
    }
    span.0
}

fn too_long(span: Span, max_ns: u64, what: &str) -> (String, String) {
    (
        format!("{what} of {span} is too long"),
        format!("at most {}", Span(max_ns)),
    )
}

/// Parses a time on the command line, with the limits and sentences of a lab file.
fn argument_within(text: &str, max_ns: u64, what: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    if span.0 > max_ns {
        let (message, help) = too_long(span, max_ns, what);
        return Err(format!("{message}: {help}"));
    }
    Ok(span)
}

/// Parses the delay of a link on the command line.
///
/// # Errors
/// Fails with one sentence.
pub fn link_delay_argument(text: &str) -> Result<Span, String> {
    argument_within(text, LINK_DELAY_NS_MAX, LINK_DELAY)
}

/// Parses the jitter of a link on the command line.
///
/// # Errors
/// Fails with one sentence.
pub fn jitter_argument(text: &str) -> Result<Span, String> {
    argument_within(text, LINK_DELAY_NS_MAX, JITTER)
}

/// Parses the delay of a reordered frame on the command line.
///
/// # Errors
/// Fails with one sentence.
pub fn reorder_delay_argument(text: &str) -> Result<Span, String> {
    argument_within(text, LINK_DELAY_NS_MAX, REORDER_DELAY)
}

/// Parses the delay of a coalescing strategy on the command line.
///
/// # Errors
/// Fails with one sentence.
pub fn coalescing_delay_argument(text: &str) -> Result<Span, String> {
    argument_within(text, CARD_DELAY_NS_MAX, COALESCING_DELAY)
}

/// Converts a whole number to the key's own type; one that is not in `range` is a mistake, and the least value is used
/// from here on.
pub(super) fn within<T: TryFrom<i64> + PartialOrd + Copy>(
    value: &Spanned<i64>,
    range: &RangeInclusive<T>,
    mistake: impl FnOnce(i64) -> (String, String),
    problems: &mut Problems,
) -> T {
    let number = *value.get_ref();
    if let Ok(fits) = T::try_from(number)
        && range.contains(&fits)
    {
        return fits;
    }
    let (message, help) = mistake(number);
    problems.add(value.span(), message, help);
    *range.start()
}

/// Checks the MTU of a NIC, which may be longer where no kernel drives it.
pub(super) fn mtu_of_nic(value: &Spanned<i64>, nic: &NicFile, problems: &mut Problems) -> u32 {
    let range = if nic.is_loopback() {
        &LOOPBACK_MTU_RANGE
    } else if nic.is_bypassed() {
        &LONG_MTU_RANGE
    } else {
        &MTU_RANGE
    };
    mtu_within(value, range, problems)
}

fn mtu_within(value: &Spanned<i64>, range: &RangeInclusive<u32>, problems: &mut Problems) -> u32 {
    let (min, max) = (range.start(), range.end());
    let mistake = |mtu| {
        (
            format!("an MTU of {mtu} bytes is not possible"),
            format!("from {min} to {max}; 1500 is usual, 9000 are jumbo frames"),
        )
    };
    within(value, range, mistake, problems)
}

pub(super) fn coalescing(
    layers: &[Option<&CoalescingFile>],
    queue_pairs: u16,
    problems: &mut Problems,
) -> CoalescingSettings {
    let mut merged = CoalescingSettings::default();
    for layer in layers.iter().copied().flatten() {
        if let Some(strategy) = &layer.strategy {
            merged.all.strategy.clone_from(strategy.get_ref());
        }
        if let Some(delay) = &layer.delay {
            merged.all.delay_ns = span_within(delay, CARD_DELAY_NS_MAX, COALESCING_DELAY, problems);
        }
        if let Some(frames) = &layer.frames {
            let mistake = |frames| {
                (
                    format!("an interrupt after {frames} packets is not possible"),
                    format!("from 0 (no such limit) to {FRAMES_MAX}"),
                )
            };
            merged.all.frames_max = within(frames, &(0..=FRAMES_MAX), mistake, problems);
        }
        merged.all.marks = layer.marks.unwrap_or(merged.all.marks);
        if let Some(delay) = &layer.watchdog {
            merged.watchdog_ns = watchdog(delay, queue_pairs, problems);
        }
    }
    merged
}

fn watchdog(delay: &Spanned<Span>, queue_pairs: u16, problems: &mut Problems) -> u64 {
    let delay_ns = span_within(delay, CARD_DELAY_NS_MAX, "a watchdog's delay", problems);
    let shortest_ns = vnicd_protocol::TIMER_NS_MIN * u64::from(queue_pairs);
    if (1..shortest_ns).contains(&delay_ns) {
        problems.add(
            delay.span(),
            format!("a watchdog's delay of {} is too short", delay.get_ref()),
            format!("0 (off), or at least {}: 50us for each queue pair", Span(shortest_ns)),
        );
    }
    delay_ns
}

pub(super) fn dma(layers: &[Option<&DmaFile>], problems: &mut Problems) -> DmaSettings {
    let mut merged = DmaSettings::default();
    for layer in layers.iter().copied().flatten() {
        if let Some(setup) = &layer.setup {
            merged.setup_ns = span_within(setup, CARD_DELAY_NS_MAX, "a DMA set-up time", problems);
        }
        if let Some(rate) = &layer.rate {
            merged.rate_bps = rate.get_ref().0;
            if (1..firmware::DMA_RATE_BPS_MIN).contains(&merged.rate_bps) {
                let help = format!("at least {}, or \"unlimited\"", Rate(firmware::DMA_RATE_BPS_MIN));
                problems.add(
                    rate.span(),
                    format!("a DMA rate of {} is too low", rate.get_ref()),
                    help,
                );
            }
        }
        if let Some(parallelism) = &layer.parallelism {
            let mistake = |at_a_time| {
                (
                    format!("{at_a_time} DMA transfers at a time are not possible"),
                    format!("from 1 to {DMA_PARALLELISM_MAX}"),
                )
            };
            merged.parallelism = within(parallelism, &(1..=DMA_PARALLELISM_MAX), mistake, problems);
        }
    }
    merged
}

pub(super) fn steering(
    layers: &[Option<&SteeringFile>],
    queue_pairs: u16,
    problems: &mut Problems,
) -> SteeringSettings {
    let mut merged = SteeringSettings::default();
    for layer in layers.iter().copied().flatten() {
        if let Some(mode) = layer.mode {
            merged.mode = mode.into();
            merged.chosen = true;
        }
        if let Some(list) = &layer.endpoints {
            merged.endpoints = queue_table(list, queue_pairs, problems);
        }
        if let Some(list) = &layer.indirection {
            merged.indirection = queue_table(list, queue_pairs, problems);
        }
    }
    merged
}

fn queue_table<const LEN: usize>(
    list: &Spanned<Vec<i64>>,
    queue_pairs: u16,
    problems: &mut Problems,
) -> QueueTable<LEN> {
    let queues = list.get_ref();
    let known = 0..i64::from(queue_pairs);
    if let Some(queue) = queues.iter().find(|queue| !known.contains(queue)) {
        problems.add(
            list.span(),
            format!("this NIC has no queue {queue}"),
            format!("it has {queue_pairs}, counted from 0 (`queue_pairs`)"),
        );
    }
    if queues.len() > LEN {
        problems.add(
            list.span(),
            format!("{} queues are too many", queues.len()),
            format!("at most {LEN}; a shorter list is repeated"),
        );
    }
    let queues: Vec<_> = queues.iter().filter_map(|queue| u8::try_from(*queue).ok()).collect();
    QueueTable::repeating(&queues).unwrap_or_default()
}

pub(super) fn misorder(degree: Option<&Spanned<i64>>, problems: &mut Problems) -> MisorderSettings {
    let max = firmware::MISORDER_DEGREE_MAX;
    let mistake = |degree| {
        (
            format!("a misordering degree of {degree} is not possible"),
            format!("from 0 (off) to {max}: no medium message has more fragments"),
        )
    };
    degree.map_or_else(MisorderSettings::default, |degree| {
        MisorderSettings::of_degree(within(degree, &(0..=max), mistake, problems))
    })
}

/// Merges the tables of one direction of a cable, which carries at least frames of this MTU if no table says otherwise.
pub(super) fn link(layers: &[Option<&LinkFile>], mtu: u32, problems: &mut Problems) -> LinkSettings {
    let mut merged = LinkSettings::default();
    merged.mtu = merged.mtu.max(mtu);
    for layer in layers.iter().copied().flatten() {
        link_change(layer, problems).apply_to(&mut merged);
    }
    contradictions(layers, &merged, problems);
    merged
}

/// Converts one table of a cable to a change of settings.
fn link_change(layer: &LinkFile, problems: &mut Problems) -> LinkChange {
    let mut delay = |value: &Option<Spanned<Span>>, what| {
        value
            .as_ref()
            .map(|value| span_within(value, LINK_DELAY_NS_MAX, what, problems))
    };
    let mut change = LinkChange {
        up: layer.up,
        rate_bps: layer.rate.map(|rate| rate.0),
        burst_bytes: layer.burst.as_ref().map(|burst| burst.get_ref().0),
        delay_ns: delay(&layer.delay, LINK_DELAY),
        jitter_ns: delay(&layer.jitter, JITTER),
        jitter_distribution: layer.jitter_distribution.map(Into::into),
        jitter_reorders: layer.jitter_reorders,
        reorder_ppm: layer.reorder.as_ref().map(|share| share.get_ref().0),
        reorder_delay_ns: delay(&layer.reorder_delay, REORDER_DELAY),
        duplicate_ppm: layer.duplicate.map(|share| share.0),
        corrupt_ppm: layer.corrupt.map(|share| share.0),
        corrupt_past_fcs: layer.corrupt_past_fcs,
        seed: layer.seed,
        queue_max: layer.queue.map(QueueLimit::level),
        ecn_above: layer
            .ecn_threshold
            .as_ref()
            .map(|threshold| threshold.get_ref().level()),
        ..LinkChange::default()
    };
    if let Some(loss) = layer.loss {
        loss.set(&mut change);
    }
    change.mtu = layer.mtu.as_ref().map(|mtu| mtu_within(mtu, &LONG_MTU_RANGE, problems));
    change.loss_every = layer.loss_every.as_ref().map(|every| {
        let mistake = |every| {
            (
                format!("losing every {every}th frame is not possible"),
                format!("from 0 (none) to {}", u32::MAX),
            )
        };
        within(every, &(0..=u32::MAX), mistake, problems)
    });
    change
}

/// Notes settings of a cable that have no effect in combination with the others, each at the place where it was set
/// last.
fn contradictions(layers: &[Option<&LinkFile>], merged: &LinkSettings, problems: &mut Problems) {
    fn place<'a, T: 'a>(
        layers: &[Option<&'a LinkFile>],
        of: impl Fn(&'a LinkFile) -> Option<&'a Spanned<T>>,
    ) -> std::ops::Range<usize> {
        let last = layers.iter().rev().copied().flatten().find_map(of);
        last.map_or(0..0, Spanned::span)
    }
    if merged.burst_bytes > 0 && merged.rate_bps == 0 {
        problems.add(
            place(layers, |layer| layer.burst.as_ref()),
            "a burst has no effect on a link of unlimited rate".to_owned(),
            "add rate = …, such as \"100Mbit\", or leave out burst",
        );
    }
    if merged.reorder_ppm > 0 && merged.reorder_delay_ns == 0 {
        problems.add(
            place(layers, |layer| layer.reorder.as_ref()),
            "reordering has no effect without a delay".to_owned(),
            "add reorder_delay = …, such as \"50us\", or leave out reorder",
        );
    }
    if let (Some(threshold), Some(limit)) = (EcnThreshold::of(merged).0, QueueLimit::of_queue(merged))
        && threshold.is_beyond(limit)
    {
        problems.add(
            place(layers, |layer| layer.ecn_threshold.as_ref()),
            format!("an ECN threshold of {threshold} is never exceeded in a queue of at most {limit}"),
            "a lower threshold, or a longer queue",
        );
    }
}
