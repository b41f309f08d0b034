//! `scripts/bench links`, the part with guests: TCP over a cable with a delay against the same delay by `netem` in the
//! sending guest, from the sender's cable, the receiver's, and a trunk. Measures and shows; the guests are `rig`'s.

use std::io::{self, Write};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::{
    measure::{Cost, stream},
    rig::{NAMES, Rig, Second, TRUNK},
    stop::Stop,
};
use crate::{
    demo::median,
    guest_tools::{TOOL_PATIENCE, output},
    lab::units::Span,
    report::{
        chart::short,
        progress::Progress,
        table::{self, Columns, print_json},
    },
    vnicd_client::{
        TrunkDirection,
        report::{Direction, LinkChange},
    },
};

/// Rounds that it takes to judge a bar.
const ROUNDS_MIN: usize = 7;

/// What TCP over a cable must carry of what it does over `netem`.
const RATIO_MIN: f64 = 0.9;

/// Packets that `netem` may hold back: more than any window of these guests has.
const NETEM_LIMIT: &str = "100000";

/// Seconds at the beginning of each stream that are not counted: windows grow.
const OMITTED_S: &str = "1";

/// Compares TCP over cables and trunks with a delay with the same delay by netem in the sending guest.
///
/// Both guests boot once. In every round each delay, number of connections and place has a turn with either; figures are
/// medians over the rounds. Needs two cores that have nothing else to do.
///
/// Exit status: 0 when every bar is met, 3 when one is missed or there are fewer than 7 rounds, 1 on failure.
#[derive(Args, Debug)]
pub(super) struct DelayOptions {
    /// Alternating rounds
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds that count of each stream
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Delays
    #[arg(long, value_delimiter = ',', default_value = "1ms,10ms,100ms")]
    delays: Vec<Span>,
    /// Numbers of connections at a time
    #[arg(long, value_delimiter = ',', default_value = "1,8", value_parser = clap::value_parser!(u32).range(1..=64))]
    flows: Vec<u32>,
    /// What delays
    #[arg(long, value_delimiter = ',', default_value = "from-guest,to-guest,trunk")]
    places: Vec<Place>,
    /// Print JSON with every sample instead of the table
    #[arg(long)]
    json: bool,
}

/// What the delay is set on.
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

    /// Number of the guests' card that leads this way.
    fn interface(self) -> usize {
        match self {
            Self::FromGuest | Self::ToGuest => 0,
            Self::Trunk => 1,
        }
    }

    /// Delays frames from the first guest to the second.
    fn set_delay(self, rig: &mut Rig, delay_ns: u64) -> Result<()> {
        let change = LinkChange {
            delay_ns: Some(delay_ns),
            ..LinkChange::default()
        };
        let client = rig.client()?;
        match self {
            Self::FromGuest => _ = client.link(NAMES[0], Direction::FromGuest, &change)?,
            Self::ToGuest => _ = client.link(NAMES[1], Direction::ToGuest, &change)?,
            Self::Trunk => _ = client.trunk((TRUNK[0], TRUNK[1]), None, TrunkDirection::AToB, &change)?,
        }
        Ok(())
    }
}

/// All rounds of one delay, number of connections and place, in bits per second.
struct Line {
    place: Place,
    delay: Span,
    flows: u32,
    cable: Vec<f64>,
    netem: Vec<f64>,
}

impl Line {
    /// Median over the rounds of the cable's figure divided by netem's in the same round.
    fn ratio(&self) -> Option<f64> {
        median(
            self.cable
                .iter()
                .zip(&self.netem)
                .map(|(cable, netem)| cable / netem)
                .collect(),
        )
    }

    /// Whether the bar is met; `None` with fewer rounds than it takes to judge it.
    fn met(&self) -> Option<bool> {
        let ratio = self.ratio().filter(|_| self.cable.len() >= ROUNDS_MIN)?;
        Some(ratio >= RATIO_MIN)
    }
}

/// Measures and prints; whether every bar is met.
pub(super) fn compare(options: &DelayOptions, stop: &Stop) -> Result<bool> {
    let image = super::guest_image()?;
    let progress = Progress::new(0);
    progress.say("booting two guests");
    let mut rig = Rig::boot(&image.kernel, &image.initramfs, Second::Trunk, stop)?;
    progress.finish();
    output(rig.sender(), &["modprobe", "sch_netem"])?;
    let mut lines = Vec::new();
    for place in &options.places {
        for delay in &options.delays {
            lines.extend(options.flows.iter().map(|flows| Line {
                place: *place,
                delay: *delay,
                flows: *flows,
                cable: Vec::new(),
                netem: Vec::new(),
            }));
        }
    }
    let progress = Progress::new(u64::from(options.rounds) * lines.len() as u64);
    for round in 0..options.rounds {
        for line in &mut lines {
            let what = format!("{} by {}, {} flows", line.delay, line.place.name(), line.flows);
            progress.say(&format!("round {} of {}: {what}", round + 1, options.rounds));
            // Each round begins with another one.
            for turn in 0..2 {
                stop.check()?;
                let is_cable = (turn + round) % 2 == 0;
                let figure = sample(&mut rig, line, is_cable, options.seconds)
                    .with_context(|| format!("round {}, {what}", round + 1))?;
                if is_cable { &mut line.cable } else { &mut line.netem }.push(figure);
            }
            progress.step();
        }
    }
    progress.finish();
    ensure!(!stop.is_asked(), "interrupted");
    let qemu = rig.qemu_version();
    drop(rig);
    if options.json {
        print_json(&as_json(&lines, &qemu))?;
    } else {
        write!(io::stdout().lock(), "{}", as_text(&lines, &qemu)).context("cannot print the table")?;
    }
    Ok(lines.iter().all(|line| line.met() == Some(true)))
}

/// Bits per second that arrive with the delay made by the cable, or by netem.
fn sample(rig: &mut Rig, line: &Line, is_cable: bool, seconds: u32) -> Result<f64> {
    let interface = line.place.interface();
    let peer = Rig::receiver_address(interface);
    let device = format!("eth{interface}");
    let tc = |rig: &Rig, verb: &[&str]| output(rig.sender(), &[&["/sbin/tc", "qdisc"], verb].concat());
    if is_cable {
        line.place.set_delay(rig, line.delay.0)?;
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
        tc(rig, &netem)?;
    }
    // Addresses are resolved, the switch learns.
    output(rig.sender(), &["ping", "-c", "2", "-i", "0.2", &peer])?;
    let (seconds, flows) = (seconds.to_string(), line.flows.to_string());
    let server = rig.iperf3_server()?;
    let text = output(
        rig.sender(),
        &[
            "iperf3", "-c", &peer, "-t", &seconds, "-O", OMITTED_S, "-P", &flows, "-J",
        ],
    )?;
    server.collect(TOOL_PATIENCE).context("iperf3 in the receiving guest")?;
    if is_cable {
        line.place.set_delay(rig, 0)?;
    } else {
        tc(rig, &["del", "dev", &device, "root"])?;
    }
    let stream = stream(&text, Cost::default())?;
    Ok(stream.bytes as f64 * 8.0 / stream.seconds)
}

fn as_text(lines: &[Line], qemu: &str) -> String {
    let mbits = |values: &[f64]| short(median(values.to_vec()).unwrap_or(f64::NAN) / 1e6);
    let range = |values: &[f64]| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!("{} … {}", short(least / 1e6), short(most / 1e6))
    };
    let columns = Columns::<Line>::default()
        .words("PLACE", |line| line.place.name().to_owned())
        .numbers("DELAY", |line| line.delay.to_string())
        .numbers("FLOWS", |line| line.flows.to_string())
        .numbers("CABLE", move |line| mbits(&line.cable))
        .words("LEAST … MOST", move |line| range(&line.cable))
        .numbers("NETEM", move |line| mbits(&line.netem))
        .words("LEAST … MOST", move |line| range(&line.netem))
        .numbers("RATIO", |line| {
            line.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}"))
        })
        .words("BAR", |_| format!("≥ {RATIO_MIN:.2}"))
        .words("MET", |line| match line.met() {
            Some(true) => "yes".to_owned(),
            Some(false) => "NO".to_owned(),
            None => format!("needs {ROUNDS_MIN} rounds"),
        });
    let rounds = lines.iter().map(|line| line.cable.len()).min().unwrap_or(0);
    format!(
        "{}\nTCP in Mbit/s between two guests under TCG on QEMU {qemu}, medians of {rounds} alternating rounds, data in the delayed direction.\n\
         NETEM: the same delay by netem in the sending guest, with a limit of {NETEM_LIMIT} packets. RATIO: median of the rounds' ratios.\n",
        table::text(lines, &columns)
    )
}

fn as_json(lines: &[Line], qemu: &str) -> Value {
    let lines = lines.iter().map(|line| {
        json!({
            "place": line.place.name(),
            "delay_ns": line.delay.0,
            "flows": line.flows,
            "unit": "bit/s",
            "cable": line.cable,
            "netem": line.netem,
            "ratio": line.ratio(),
            "bar": { "ratio_min": RATIO_MIN },
            "met": line.met(),
        })
    });
    json!({ "accel": "tcg", "qemu": qemu, "lines": lines.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_judged_by_the_rounds_ratios_and_by_enough_of_them() {
        let mut line = Line {
            place: Place::Trunk,
            delay: Span(1_000_000),
            flows: 1,
            cable: vec![90.0, 9.0, 90.0, 9.0, 9.0, 9.0],
            netem: vec![100.0, 10.0, 100.0, 10.0, 10.0, 10.0],
        };
        assert_eq!(line.met(), None);
        line.cable.push(9.0);
        line.netem.push(10.0);
        assert_eq!(line.met(), Some(true), "at the edge, whatever pace the machine had");
        line.cable.iter_mut().for_each(|figure| *figure *= 0.99);
        assert_eq!(line.met(), Some(false));
    }
}
