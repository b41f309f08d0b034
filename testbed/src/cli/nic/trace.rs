//! `weft nic trace`: switches the flight recorders of a node's cards on for a while, and shows what they recorded.

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{
    cli::common::{CommonOptions, client, ports, show},
    lab::port_name,
    report::{file::OutFile, say},
    supervisor_client::client::Client,
    trace::{CardTrace, perfetto, write_text},
    vnicd_client::{
        Ends,
        trace::{TRACE_RECORDS_MAX, Trace, TraceEnd},
    },
};

/// Record what a node's cards do, event by event.
///
/// Switches the cards' flight recorders on, and off again after --seconds or with Ctrl-C. Then writes the events to standard
/// output.
#[derive(Debug, clap::Args)]
#[command(add = show(&[
    ("weft nic trace n1 --seconds 1", "one second, as JSON"),
    ("weft nic trace n1 --seconds 5 --out n1.json", "for https://ui.perfetto.dev"),
    ("weft nic trace n1 --card 0 --format text", "as lines, until Ctrl-C"),
]))]
pub(in crate::cli) struct TraceArgs {
    /// `NODE`, or `NODE.ethN`.
    node: String,
    /// Only this card of the node: 0 is eth0.
    #[arg(long, value_name = "N")]
    card: Option<usize>,
    /// Write to a file instead.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    // This is an attribute instead of a doc comment: a doc comment has brackets around an address, which the help would
    // show.
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "perfetto",
        help = "`perfetto` is JSON for https://ui.perfetto.dev, `text` is a line per event"
    )]
    format: TraceFormat,
    /// Stop after this many seconds.
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
}

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TraceFormat {
    /// Chrome's trace event format.
    Perfetto,
    /// Lines of text.
    Text,
}

/// Records until the time is over, Ctrl-C, or a card has recorded as many events as are kept; then writes them.
pub(in crate::cli) fn run(options: &CommonOptions, args: &TraceArgs) -> Result<()> {
    if options.json && args.format == TraceFormat::Text {
        bail!("`--json` and `--format text` contradict each other; `--format perfetto` is JSON");
    }
    let target = match args.card {
        Some(card) if args.node.contains('.') => {
            bail!("{} is a card already: leave out `--card {card}`", args.node)
        }
        Some(card) => port_name(&args.node, card),
        None => args.node.clone(),
    };
    let client = client(options)?;
    let names = ports(&client, Some(&target))?.into_iter().map(|port| port.name);
    // The file is opened before the recording begins, so that an unwritable file costs no time.
    let mut file = args.out.as_deref().map(OutFile::open).transpose()?;
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot catch signals")?;
    let (enough, ended) = mpsc::channel();
    let mut readers = Vec::new();
    for nic in names {
        let trace = client.vnicd()?.trace(&nic)?;
        let ends = Arc::new(Ends::default());
        ends.set(trace.handle()?);
        let (client, enough, asked, card) = (client.clone(), enough.clone(), Arc::clone(&ends), nic.clone());
        let reader = thread::Builder::new().name("trace".to_owned()).spawn(move || {
            let read = read(&client, &card, trace, &asked);
            // The receiver is gone when all are asked to end.
            _ = enough.send(());
            read
        })?;
        readers.push((nic, ends, reader));
    }
    if args.seconds.is_none() {
        let names: Vec<_> = readers.iter().map(|(nic, ..)| nic.as_str()).collect();
        say(format_args!("weft: recording {}; Ctrl-C ends it", names.join(", ")));
    }
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            _ = enough.send(());
        }
    })?;
    let patience = args.seconds.map_or(Duration::MAX, Duration::from_secs);
    // A timeout and a signal end the recording alike.
    _ = ended.recv_timeout(patience);
    readers.iter().for_each(|(_, ends, _)| ends.end());
    let mut traces = Vec::new();
    for (nic, _, reader) in readers {
        let read = reader
            .join()
            .map_err(|_| anyhow::anyhow!("an internal error while reading the trace of {nic}"))?;
        let (of_card, end) = read.with_context(|| format!("the trace of {nic} broke"))?;
        match end {
            TraceEnd::Asked => {}
            TraceEnd::Full => say(format_args!(
                "weft: {nic} recorded {TRACE_RECORDS_MAX} events, and its trace ends there"
            )),
            TraceEnd::Gone => say(format_args!("weft: vnicd has ended, and the trace of {nic} with it")),
        }
        traces.extend(of_card);
    }
    match &mut file {
        Some(file) => write(&traces, args.format, file.writer()?)?,
        None => write(&traces, args.format, io::stdout().lock())?,
    }
    if let Some(file) = file {
        file.keep();
    }
    Ok(())
}

/// Reads the events of a card, also of the `vnicd` that replaces this one: a trace for each of them, all on the first
/// one's clock.
fn read(client: &Client, nic: &str, mut trace: Trace, ends: &Ends) -> Result<(Vec<CardTrace>, TraceEnd)> {
    let origin_unix_ns = trace.origin_unix_ns;
    let (mut traces, mut known) = (Vec::new(), 0);
    loop {
        let strategies = std::mem::take(&mut trace.strategies);
        let later_ns = trace.origin_unix_ns.saturating_sub(origin_unix_ns);
        let (mut records, end) = trace.read_to_end()?;
        known += records.len();
        for record in &mut records {
            record.at = record.at.plus_nanos(later_ns);
        }
        let mut read = CardTrace {
            nic: nic.to_owned(),
            origin_unix_ns,
            strategies,
            records,
        };
        read.sort();
        traces.push(read);
        if end != TraceEnd::Gone || ends.is_asked() || known >= TRACE_RECORDS_MAX {
            return Ok((traces, end));
        }
        match client.in_next_vnicd(ends, |vnicd| Ok(vnicd.trace(nic)?)) {
            Ok(next) => trace = next,
            Err(_) => return Ok((traces, end)),
        }
        ends.set(trace.handle()?);
    }
}

fn write(traces: &[CardTrace], format: TraceFormat, out: impl Write) -> Result<()> {
    let mut out = BufWriter::new(out);
    match format {
        TraceFormat::Perfetto => perfetto::write_json(traces, &mut out)?,
        TraceFormat::Text => write_text(traces, &mut out)?,
    }
    Ok(out.flush()?)
}
