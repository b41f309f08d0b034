//! TCP over a cable with a delay against an equal delay by `netem` in the sending guest: on the sender's cable, the
//! receiver's, and a trunk. The guests are those of [`guest_pair`](crate::scenarios::guest_pair).

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;
use testbed::guest_tools::{TOOL_PATIENCE, output};
use testbed::lab::units::Span;
use testbed::report::chart::short;
use testbed::vnicd_client::{
    TrunkDirection,
    report::{Direction, LinkChange},
};

use crate::scenarios::guest_pair::{GuestPair, NAMES, Second, TRUNK, guest_image};
use crate::scenarios::iperf3;
use testbed::harness::table::{RivalColumn, Style, across, numbers, words};
use testbed::harness::{
    Bar, Cell, Limit, Measurement, Plan, Record, Report, Sample, Scenario, Turn, Unit, conclude, fields, run,
    until_stopped,
};

/// Rounds that it takes to judge a bar.
const ROUNDS_MIN: u32 = 7;

/// Share of TCP's throughput over `netem` that it must reach over a cable.
const RATIO_MIN: f64 = 0.9;

/// Packets that `netem` may delay at a time: more than any window of these guests.
const NETEM_LIMIT: &str = "100000";

/// Seconds at the beginning of each stream that are not counted, since windows are growing.
const OMITTED_S: &str = "1";

/// Compares TCP over cables and trunks that have a delay with TCP over netem in the sending guest.
///
/// Both guests boot once. In every round each combination of delay, number of connections and place is measured with
/// both; figures are medians over the rounds. The comparison needs two otherwise idle cores.
///
/// Exit status: 0 when every bar is met, 3 when one is missed or there are fewer than 7 rounds, 1 on failure.
#[derive(Args, Debug)]
pub struct Options {
    /// Alternating rounds
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of each stream that count
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Delays
    #[arg(long, value_delimiter = ',', default_value = "1ms,10ms,100ms")]
    delays: Vec<Span>,
    /// Numbers of connections at a time
    #[arg(long, value_delimiter = ',', default_value = "1,8", value_parser = clap::value_parser!(u32).range(1..=64))]
    flows: Vec<u32>,
    /// Places that delay
    #[arg(long, value_delimiter = ',', default_value = "from-guest,to-guest,trunk")]
    places: Vec<Place>,
    /// Print JSON with every sample instead of the table
    #[arg(long)]
    json: bool,
}

/// The places that a delay is set on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Place {
    /// The cable of the sender.
    FromGuest,
    /// The cable of the receiver.
    ToGuest,
    /// The trunk between two switches.
    Trunk,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::FromGuest => "from-guest",
            Self::ToGuest => "to-guest",
            Self::Trunk => "trunk",
        }
    }

    /// Returns the number of the guests' card that leads to the place.
    fn interface(self) -> usize {
        match self {
            Self::FromGuest | Self::ToGuest => 0,
            Self::Trunk => 1,
        }
    }

    /// Delays frames from the first guest to the second.
    fn set_delay(self, guests: &mut GuestPair, delay_ns: u64) -> Result<()> {
        let change = LinkChange {
            delay_ns: Some(delay_ns),
            ..LinkChange::default()
        };
        let client = guests.client()?;
        match self {
            Self::FromGuest => _ = client.link(NAMES[0], Direction::FromGuest, &change)?,
            Self::ToGuest => _ = client.link(NAMES[1], Direction::ToGuest, &change)?,
            Self::Trunk => _ = client.trunk((TRUNK[0], TRUNK[1]), None, TrunkDirection::AToB, &change)?,
        }
        Ok(())
    }
}

/// A table row: a delay at a place, with a number of connections.
struct Line {
    place: Place,
    delay: Span,
    flows: u32,
}

/// The number of the rival that delays by a cable.
const CABLE: usize = 0;
const NETEM: usize = 1;

const THROUGHPUT: Unit = Unit {
    name: "bit/s",
    show: |value| short(value / 1e6),
};

fn lines(options: &Options) -> Vec<Line> {
    let mut lines = Vec::new();
    for place in &options.places {
        for delay in &options.delays {
            lines.extend(options.flows.iter().map(|flows| Line {
                place: *place,
                delay: *delay,
                flows: *flows,
            }));
        }
    }
    lines
}

fn plan(options: &Options, lines: &[Line]) -> Plan {
    let mut plan = Plan::new(options.rounds, ROUNDS_MIN);
    plan.rivals = ["cable", "netem"].map(str::to_owned).to_vec();
    plan.measurements = lines
        .iter()
        .map(|line| Measurement {
            labels: vec![
                line.place.name().to_owned(),
                line.delay.to_string(),
                line.flows.to_string(),
            ],
            unit: THROUGHPUT,
            more: fields(json!({ "place": line.place.name(), "delay_ns": line.delay.0, "flows": line.flows })),
        })
        .collect();
    for measurement in 0..lines.len() {
        let [cable, netem] = [CABLE, NETEM].map(|rival| Cell { measurement, rival });
        plan.groups.push(vec![vec![cable], vec![netem]]);
        plan.bars.push(Bar::must(cable, netem, Limit::RatioMin(RATIO_MIN)));
    }
    plan
}

/// Measures, prints the result, and returns whether every bar is met.
pub fn compare(options: &Options) -> Result<bool> {
    until_stopped(|stop| {
        let image = guest_image()?;
        let mut delays = Delays {
            lines: lines(options),
            guests: GuestPair::boot(&image.kernel, &image.initramfs, Second::Trunk, stop)?,
            seconds: options.seconds,
        };
        output(delays.guests.sender(), &["modprobe", "sch_netem"])?;
        let record = run(plan(options, &delays.lines), &mut delays, stop)?;
        let qemu = delays.guests.qemu_version();
        drop(delays);
        conclude(&record, report(&record, &qemu), options.json)
    })
}

struct Delays {
    lines: Vec<Line>,
    guests: GuestPair,
    seconds: u32,
}

impl Scenario for Delays {
    fn measure(&mut self, _round: u32, turn: &Turn) -> Result<Vec<(Cell, Sample)>> {
        let mut samples = Vec::new();
        for cell in turn {
            let line = &self.lines[cell.measurement];
            let figure = sample(&mut self.guests, line, cell.rival == CABLE, self.seconds)?;
            samples.push((*cell, Sample::new(figure)));
        }
        Ok(samples)
    }
}

/// Measures the bits per second that arrive with the delay made by the cable or by netem.
fn sample(guests: &mut GuestPair, line: &Line, is_cable: bool, seconds: u32) -> Result<f64> {
    let interface = line.place.interface();
    let peer = GuestPair::receiver_address(interface);
    let device = format!("eth{interface}");
    let tc = |guests: &GuestPair, verb: &[&str]| output(guests.sender(), &[&["/sbin/tc", "qdisc"], verb].concat());
    if is_cable {
        line.place.set_delay(guests, line.delay.0)?;
    } else {
        let delay = format!("{}us", line.delay.0 / 1000);
        let netem = [
            "add",
            "dev",
            &device,
            "root",
            "netem",
            "delay",
            &delay,
            "limit",
            NETEM_LIMIT,
        ];
        tc(guests, &netem)?;
    }
    // The pings resolve addresses and let the switch learn.
    output(guests.sender(), &["ping", "-c", "2", "-i", "0.2", &peer])?;
    let (seconds, flows) = (seconds.to_string(), line.flows.to_string());
    let server = guests.iperf3_server()?;
    let text = output(
        guests.sender(),
        &[
            "iperf3", "-c", &peer, "-t", &seconds, "-O", OMITTED_S, "-P", &flows, "-J",
        ],
    )?;
    server.collect(TOOL_PATIENCE).context("iperf3 in the receiving guest")?;
    if is_cable {
        line.place.set_delay(guests, 0)?;
    } else {
        tc(guests, &["del", "dev", &device, "root"])?;
    }
    let received = iperf3::received(&text)?;
    Ok(received.bytes as f64 * 8.0 / received.seconds)
}

fn report(record: &Record, qemu: &str) -> Report {
    let rivals = [
        RivalColumn {
            heading: str::to_owned,
            cell: Record::median_text,
        },
        RivalColumn {
            heading: |_| "least … most".to_owned(),
            cell: |record, cell| record.spread_text(cell, [0.0, 1.0]),
        },
    ];
    let labels = [words("place"), numbers("delay"), numbers("flows")];
    let table = across(record, Style::Plain, &labels, &rivals, CABLE);
    let text = format!(
        "{table}\nTCP in Mbit/s between two guests under TCG on QEMU {qemu}, medians of {} alternating rounds, data in the delayed direction.\n\
         NETEM: the same delay by netem in the sending guest, with a limit of {NETEM_LIMIT} packets. RATIO: median of the rounds' ratios.\n",
        record.plan.rounds,
    );
    Report {
        text,
        conditions: fields(json!({ "accel": "tcg", "qemu": qemu })),
    }
}
