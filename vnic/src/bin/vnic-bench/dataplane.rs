//! The measurements of `scripts/bench dataplane`: in every round each forwarder is started, measured
//! and stopped, so that drifts of the machine hit all alike.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use vnic::testing::{
    F_EVENT_IDX, F_INDIRECT_DESC, F_MRG_RXBUF, Frontend, FrontendConfig, HEADER_LEN, Interrupts, load, pin_thread,
};

use crate::backends::{Backend, HugePages, Kind};
use crate::{Options, check_interrupted};

/// Share of tries with a full transmit ring below which a sample measured the generator, not the forwarder.
pub const SENDER_FULL_MIN: f64 = 0.70;
/// Idle ports whose cost is measured.
const IDLE_PORTS: usize = 8;
/// How long the idle ports are left alone before they are watched, and how long they are watched.
const IDLE_SETTLE: Duration = Duration::from_secs(1);
const IDLE_WATCH: Duration = Duration::from_secs(3);
/// Round trips of one ping-pong sample.
const ROUND_TRIPS: u64 = 50_000;
/// Frame of the ping-pong in bytes.
const PING_LEN: usize = 64;

/// A part of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Frames per second one way, the frontends poll.
    OneWay,
    /// The same with receive calls wanted.
    Interrupts,
    /// Round-trip time, all poll.
    PingPong,
    /// CPU time with connected idle ports.
    Idle,
}

/// What a line of the result measures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measure {
    /// Frames per second of this size; `interrupts`: receive calls wanted.
    OneWay {
        /// Frame length in bytes.
        size: usize,
        /// Receive calls wanted.
        interrupts: bool,
    },
    /// Median round trip in nanoseconds.
    PingPong,
    /// 99th percentile of the round trip in nanoseconds.
    PingPongTail,
    /// Share of a core used by idle ports.
    Idle,
}

/// One sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The figure, in the measure's unit.
    pub value: f64,
    /// For one-way streams what the generator saw.
    pub stream: Option<load::OneWaySample>,
}

impl Sample {
    /// Whether the forwarder was the limit.
    pub fn counts(&self) -> bool {
        self.stream.is_none_or(|stream| stream.sender_full >= SENDER_FULL_MIN)
    }
}

/// All samples of one measure, per forwarder in the order of `--backends`.
#[derive(Debug, Clone)]
pub struct Line {
    /// What was measured.
    pub measure: Measure,
    /// Samples per forwarder.
    pub samples: Vec<Vec<Sample>>,
}

impl Line {
    /// Median over the samples that count; `None` without any.
    pub fn median(&self, backend: usize) -> Option<f64> {
        let mut values: Vec<_> = self.samples[backend]
            .iter()
            .filter(|s| s.counts())
            .map(|s| s.value)
            .collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }
}

/// Runs all rounds.
pub fn run(options: &Options) -> anyhow::Result<Vec<Line>> {
    pin_thread(options.frontend_core).context("cannot take the frontends' core")?;
    let folder = tempfile::Builder::new().prefix("vnic-bench-").tempdir()?;
    let uses_dpdk = options.backends.contains(&Kind::Testpmd);
    let pages = if uses_dpdk {
        HugePages::reserve()
    } else {
        HugePages {
            before: None,
            available: false,
        }
    };
    let mut lines = plan(options);
    let steps = u64::from(options.rounds) * options.backends.len() as u64;
    let progress = ProgressBar::new(steps);
    progress.set_style(ProgressStyle::with_template(
        "[{elapsed}] {wide_bar} {pos}/{len} {msg}",
    )?);
    for round in 1..=options.rounds {
        for (index, kind) in options.backends.iter().enumerate() {
            progress.set_message(format!("round {round}, {}", kind.name()));
            progress.tick();
            measure(options, *kind, index, &pages, folder.path(), &mut lines)
                .with_context(|| format!("round {round}, {}", kind.name()))?;
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(lines)
}

fn plan(options: &Options) -> Vec<Line> {
    let mut measures = Vec::new();
    let one_way = |interrupts| {
        options.sizes.iter().map(move |size| Measure::OneWay {
            size: *size,
            interrupts,
        })
    };
    for part in &options.parts {
        match part {
            Part::OneWay => measures.extend(one_way(false)),
            Part::Interrupts => measures.extend(one_way(true)),
            Part::PingPong => measures.extend([Measure::PingPong, Measure::PingPongTail]),
            Part::Idle => measures.push(Measure::Idle),
        }
    }
    let empty = vec![Vec::new(); options.backends.len()];
    measures
        .into_iter()
        .map(|measure| Line {
            measure,
            samples: empty.clone(),
        })
        .collect()
}

/// All measures on one freshly started forwarder (idle ports on another one).
fn measure(
    options: &Options,
    kind: Kind,
    index: usize,
    pages: &HugePages,
    folder: &Path,
    lines: &mut [Line],
) -> anyhow::Result<()> {
    let backend = Backend::start(kind, options, pages, folder, 2)?;
    let mut guests: Option<(Guests, Frontend, Frontend)> = None;
    for line in lines.iter_mut() {
        check_interrupted()?;
        let wanted = match line.measure {
            Measure::OneWay { size, interrupts } => Guests { size, interrupts },
            Measure::PingPong => Guests {
                size: PING_LEN,
                interrupts: false,
            },
            Measure::PingPongTail | Measure::Idle => continue,
        };
        if guests.as_ref().is_none_or(|(have, ..)| *have != wanted) {
            // The old guests leave before the new ones take their sockets.
            drop(guests.take());
            let connect = |socket| wanted.connect(options, socket).with_context(|| backend.last_words());
            let (sender, receiver) = (connect(&backend.sockets[0])?, connect(&backend.sockets[1])?);
            guests = Some((wanted, sender, receiver));
        }
        let Some((_, sender, receiver)) = guests.as_mut() else {
            continue;
        };
        load::prepare(sender, receiver, wanted.size);
        if let Measure::OneWay { size, .. } = line.measure {
            let stream = load::one_way(sender, receiver, size, Duration::from_millis(options.sample_ms));
            line.samples[index].push(Sample {
                value: stream.frames_per_s,
                stream: Some(stream),
            });
        }
    }
    if let Some(at) = lines.iter().position(|line| line.measure == Measure::PingPong) {
        let quiet = Guests {
            size: PING_LEN,
            interrupts: false,
        };
        drop(guests.take());
        let (mut left, mut right) = (
            quiet.connect(options, &backend.sockets[0])?,
            quiet.connect(options, &backend.sockets[1])?,
        );
        load::prepare(&mut left, &mut right, PING_LEN);
        let mut times = Histogram::<u64>::new_with_max(10_000_000_000, 3)?;
        let lost = load::ping_pong(&mut left, &mut right, PING_LEN, ROUND_TRIPS, |ns| {
            times.saturating_record(ns)
        });
        anyhow::ensure!(lost == 0, "{lost} of {ROUND_TRIPS} ping-pong frames were lost");
        lines[at].samples[index].push(Sample {
            value: times.value_at_quantile(0.5) as f64,
            stream: None,
        });
        lines[at + 1].samples[index].push(Sample {
            value: times.value_at_quantile(0.99) as f64,
            stream: None,
        });
    }
    drop(guests);
    drop(backend);
    if let Some(line) = lines.iter_mut().find(|line| line.measure == Measure::Idle) {
        let share = idle(options, kind, pages, folder)?;
        line.samples[index].push(Sample {
            value: share,
            stream: None,
        });
    }
    Ok(())
}

/// Guests of one kind of sample.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Guests {
    size: usize,
    interrupts: bool,
}

impl Guests {
    fn connect(self, options: &Options, socket: &Path) -> anyhow::Result<Frontend> {
        let mut config = FrontendConfig::connect(socket);
        config.ring_size = options.ring;
        config.features = F_MRG_RXBUF | F_INDIRECT_DESC;
        if !options.no_event_idx {
            config.features |= F_EVENT_IDX;
        }
        config.tx_buffer_len = HEADER_LEN + self.size;
        config.rx_buffer_len = match options.rx_buffer {
            0 => (HEADER_LEN + self.size).max(2048),
            bytes => bytes,
        };
        if self.interrupts {
            config.rx_interrupts = Interrupts::Always;
        }
        Ok(Frontend::start(config)?)
    }
}

/// Share of a core that `IDLE_PORTS` connected ports cost when nothing happens.
fn idle(options: &Options, kind: Kind, pages: &HugePages, folder: &Path) -> anyhow::Result<f64> {
    let backend = Backend::start(kind, options, pages, folder, IDLE_PORTS)?;
    let guests = Guests {
        size: PING_LEN,
        interrupts: true,
    };
    let connected: Result<Vec<_>, _> = backend
        .sockets
        .iter()
        .map(|socket| guests.connect(options, socket))
        .collect();
    let connected = connected.with_context(|| backend.last_words())?;
    wait(IDLE_SETTLE)?;
    let (before, start) = (backend.service.usage()?.cpu_ns, Instant::now());
    wait(IDLE_WATCH)?;
    let spent = backend.service.usage()?.cpu_ns - before;
    let share = spent as f64 / start.elapsed().as_nanos() as f64;
    drop(connected);
    Ok(share)
}

fn wait(duration: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + duration;
    while Instant::now() < end {
        check_interrupted()?;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
