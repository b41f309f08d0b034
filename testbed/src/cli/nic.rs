//! Verbs about cards: nic stats, coalesce and info, capture; and what the verbs about cables share with them.

mod watchdog;

use std::{
    io::{self, Write},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result, bail, ensure};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use serde::Serialize;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use super::{
    args::{CableArgs, CaptureArgs, Cli, OnOff, UpDown},
    client,
};
use crate::{
    lab::{
        cable::{EcnThreshold, QueueLimit},
        nearest,
        units::Span,
    },
    report::{
        cable::{delay, faults, queue, rate},
        file::OutFile,
        table::{self, Columns},
    },
    supervisor::{client::Client, protocol::Request},
    vnicd_client::{
        Ends,
        report::{CoalescingChange, CoalescingSettings, Counts, LinkChange, LinkSettings, PortInfo, PortStats},
    },
};

pub(super) use watchdog::watchdog;

/// The cards that are meant: `n1.eth0` is one, `n1` all of a node, nothing all of the lab.
pub(super) fn ports(client: &Client, target: Option<&str>) -> Result<Vec<PortInfo>> {
    let all = client.vnicd()?.info()?.ports;
    let Some(target) = target else { return Ok(all) };
    let names: Vec<_> = all.iter().map(|port| port.name.clone()).collect();
    let of_node = format!("{target}.");
    let found: Vec<_> = all
        .into_iter()
        .filter(|port| port.name == target || port.name.starts_with(&of_node))
        .collect();
    if found.is_empty() {
        let near = nearest(target, names.iter().map(String::as_str));
        let hint = near.map_or_else(String::new, |near| format!(", did you mean {near}?"));
        bail!(
            "there is no NIC {target} in the lab {}{hint} (its NICs: {})",
            client.state().lab(),
            names.join(", ")
        );
    }
    Ok(found)
}

/// Of a node's cards, those that have a cable; one that is named alone is told why it has none.
pub(super) fn with_cable(mut ports: Vec<PortInfo>) -> Vec<PortInfo> {
    if ports.len() > 1 {
        ports.retain(|port| !port.is_loopback());
    }
    ports
}

pub(super) fn stats(cli: &Cli, target: Option<&str>) -> Result<()> {
    let client = client(cli)?;
    let mut rows = Vec::new();
    for port in ports(&client, target)? {
        rows.extend(client.vnicd()?.stats(Some(&port.name))?);
    }
    let dropped = |counts: &Counts| counts.values().sum::<u64>();
    let columns = Columns::<PortStats>::default()
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
    table::print(cli.json, &rows, &columns)
}

/// `rx no_buffer 2, tx too_long 3`: towards the guest and from it, without the reasons that never applied. What a cable lost is under
/// the cable's own reasons.
fn drop_reasons(row: &PortStats) -> String {
    let each = [
        ("rx", with_cables_reasons(&row.rx.dropped, &row.link.to_guest)),
        ("tx", with_cables_reasons(&row.tx.dropped, &row.link.from_guest)),
    ];
    let both = each.into_iter().flat_map(|(way, counts)| {
        counts
            .into_iter()
            .map(move |(reason, count)| (format!("{way} {reason}"), count))
    });
    table::counts(&both.collect())
}

/// The card counts what its cable lost as one number, the cable by reason. What the cable does not explain stays `link`.
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

pub(super) fn info(cli: &Cli, target: Option<&str>) -> Result<()> {
    let rows = ports(&client(cli)?, target)?;
    let columns = Columns::<PortInfo>::default()
        .words("NIC", |row| row.name.clone())
        .words("SWITCH", |row| row.switch.clone())
        .words("MAC", |row| {
            row.mac.map_or_else(|| "-".to_owned(), |mac| mac.to_string())
        })
        .words("IN USE", |row| {
            row.mac_in_use.map_or_else(|| "-".to_owned(), |mac| mac.to_string())
        })
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
    table::print(cli.json, &rows, &columns)
}

/// Settings with the name of their card, flat in JSON.
#[derive(Serialize)]
pub(super) struct Named<T> {
    pub(super) nic: String,
    #[serde(flatten)]
    pub(super) settings: T,
}

pub(super) fn coalesce(
    cli: &Cli,
    target: &str,
    strategy: Option<&str>,
    delay: Option<Span>,
    frames: Option<u32>,
    marks: Option<OnOff>,
) -> Result<()> {
    let mut change = CoalescingChange::default();
    change.all.strategy = strategy.map(str::to_owned);
    change.all.delay_ns = delay.map(|delay| delay.0);
    change.all.frames_max = frames;
    change.all.marks = marks.map(|marks| marks == OnOff::On);
    let client = client(cli)?;
    let mut rows = Vec::new();
    for port in ports(&client, Some(target))? {
        let request = Request::Coalesce {
            port: port.name.clone(),
            change: change.clone(),
        };
        rows.push(Named {
            nic: port.name,
            settings: client.request::<CoalescingSettings>(&request)?,
        });
    }
    if !cli.json {
        rows = rows.into_iter().flat_map(with_its_queues).collect();
    }
    let columns = Columns::<Named<CoalescingSettings>>::default()
        .words("NIC", |row| row.nic.clone())
        .words("STRATEGY", |row| row.settings.all.strategy.clone())
        .numbers("DELAY", |row| Span(row.settings.all.delay_ns).to_string())
        .numbers("FRAMES", |row| match row.settings.all.frames_max {
            0 => "-".to_owned(),
            frames => frames.to_string(),
        })
        .words("MARKS", |row| {
            if row.settings.all.marks { "on" } else { "off" }.to_owned()
        });
    table::print(cli.json, &rows, &columns)
}

/// The settings of a card, and those of each queue that has others, in rows of their own.
fn with_its_queues(row: Named<CoalescingSettings>) -> Vec<Named<CoalescingSettings>> {
    let queues = row.settings.queues.iter().map(|queue| Named {
        nic: format!("{} queue {}", row.nic, queue.queue),
        settings: CoalescingSettings {
            all: queue.coalescing.clone(),
            watchdog_ns: queue.watchdog_ns,
            queues: Vec::new(),
        },
    });
    let queues: Vec<_> = queues.collect();
    std::iter::once(row).chain(queues).collect()
}

/// What a command line asks to change of a cable.
pub(super) fn link_change(state: Option<UpDown>, args: &CableArgs) -> LinkChange {
    let on = |value: Option<OnOff>| value.map(|value| value == OnOff::On);
    let mut change = LinkChange {
        up: state.map(|state| state == UpDown::Up),
        rate_bps: args.rate.map(|rate| rate.0),
        burst_bytes: args.burst.map(|burst| burst.0),
        delay_ns: args.delay.map(|delay| delay.0),
        jitter_ns: args.jitter.map(|jitter| jitter.0),
        jitter_distribution: args.jitter_distribution.map(Into::into),
        jitter_reorders: on(args.jitter_reorders),
        mtu: args.mtu,
        loss_every: args.loss_every,
        reorder_ppm: args.reorder.map(|share| share.0),
        reorder_delay_ns: args.reorder_delay.map(|delay| delay.0),
        duplicate_ppm: args.duplicate.map(|share| share.0),
        corrupt_ppm: args.corrupt.map(|share| share.0),
        corrupt_past_fcs: on(args.corrupt_past_fcs),
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

/// The columns about one direction of any cable.
pub(super) fn cable_columns<R: 'static>(columns: Columns<R>, settings: fn(&R) -> &LinkSettings) -> Columns<R> {
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

pub(super) fn capture(client: &Client, args: &CaptureArgs) -> Result<()> {
    let mut names = Vec::new();
    for nic in &args.nics {
        names.extend(ports(client, Some(nic))?.into_iter().map(|port| port.name));
    }
    // Before anything begins: a file that cannot be written shall not cost others their capture.
    let mut file = args.write.as_deref().map(OutFile::open).transpose()?;
    let captured = capture_into(client, args, &names, file.as_mut());
    // What was captured before a failure is whole.
    if let Some(file) = file {
        file.keep_unless_empty();
    }
    captured
}

fn capture_into(client: &Client, args: &CaptureArgs, names: &[String], file: Option<&mut OutFile>) -> Result<()> {
    let mut capture = client.vnicd()?.capture(names, args.snaplen)?;
    let ends = Arc::new(Ends::default());
    ends.set(capture.handle()?);
    let reader_gone = Arc::new(AtomicBool::new(false));
    let mut out: Box<dyn Write> = match file {
        Some(file) => Box::new(file.writer()?),
        None => {
            let (ends, gone) = (Arc::clone(&ends), Arc::clone(&reader_gone));
            std::thread::Builder::new().name("reader".to_owned()).spawn(move || {
                wait_until_nobody_reads(&io::stdout());
                gone.store(true, Ordering::SeqCst);
                // What was captured until now has nowhere to go.
                ends.end();
                ends.end();
            })?;
            Box::new(io::stdout())
        }
    };
    // Ctrl-C is the usual end of a capture, and what was captured until then is whole.
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot ask for signals")?;
    let asked = Arc::clone(&ends);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            asked.end();
        }
    })?;
    let missing = loop {
        match capture.write_to(&mut out) {
            Ok(missing) => break missing,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !ends.is_asked() => {
                // A section of its own in the file: the next vnicd has another clock.
                let next = client.in_next_vnicd(&ends, |vnicd| Ok(vnicd.capture(names, args.snaplen)?));
                capture = next.map_err(|_| error)?;
                ends.set(capture.handle()?);
            }
            Err(error) => return Err(error.into()),
        }
    };
    if reader_gone.load(Ordering::SeqCst) {
        return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
    }
    ensure!(
        missing == 0,
        "{missing} frames are missing: they came faster than they were taken (`--snaplen` makes them shorter)"
    );
    Ok(())
}

/// Returns when `out` is a pipe, socket or terminal whose other end is gone; for anything else never. A silent lab gives
/// nothing to write, so that writing would not tell.
fn wait_until_nobody_reads(out: &impl AsFd) {
    loop {
        // Errors and hang-ups are told without being asked for.
        let mut fds = [PollFd::new(out, PollFlags::empty())];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => {}
            Ok(_) if fds[0].revents().is_empty() => {}
            Ok(_) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vnicd_client::report::{JitterDistribution, QueueLevel};

    #[test]
    fn a_reader_that_leaves_is_noticed_without_writing_to_it() {
        let (reading, writing) = io::pipe().expect("a pipe");
        let (told, heard) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn(move || {
            told.send(()).expect("somebody listens");
            wait_until_nobody_reads(&writing);
        });
        heard.recv().expect("it waits");
        assert!(!waiting.is_finished());
        drop(reading);
        waiting.join().expect("no panic");
    }

    #[test]
    fn only_faults_that_are_on_are_shown() {
        assert_eq!(faults(&LinkSettings::default()), "-");
        let settings = LinkSettings {
            loss_ppm: 1_000,
            reorder_ppm: 50_000,
            reorder_delay_ns: 1_000_000,
            ..LinkSettings::default()
        };
        assert_eq!(faults(&settings), "loss 1000ppm, reorder 5% by 1ms");
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
