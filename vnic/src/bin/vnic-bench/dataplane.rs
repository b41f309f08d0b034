//! The measurements of `scripts/bench dataplane`: in every round each forwarder is started, measured
//! and stopped, so that drifts of the machine hit all alike.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use weft_vnic_testkit::{
    F_EVENT_IDX, F_INDIRECT_DESC, F_MRG_RXBUF, Frontend, FrontendConfig, HEADER_LEN, Interrupts, ProcessUse, load,
    pin_thread,
};

use crate::backends::{Backend, HugePages, Kind};
use crate::{Options, check_interrupted, virtio_user};

/// Share of tries with a full transmit ring below which a sample measured the generator, not the forwarder.
pub const SENDER_FULL_MIN: f64 = 0.70;
/// Rounds that must count before a bar is judged.
pub const COUNTED_MIN: usize = 5;
/// Idle ports whose cost is measured.
const IDLE_PORTS: usize = 8;
/// How long the idle ports are left alone before they are watched, and how long they are watched.
const IDLE_SETTLE: Duration = Duration::from_secs(1);
const IDLE_WATCH: Duration = Duration::from_secs(3);
/// Round trips of one ping-pong sample.
const ROUND_TRIPS: u64 = 50_000;
/// Frame of the ping-pong in bytes.
const PING_LEN: usize = 64;

/// Who plays the guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Guest {
    /// The test frontends.
    Weft,
    /// DPDK's virtio-user ports: only frames per second, both ways together, without bars.
    VirtioUser,
}

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
    /// Frames of this size per second between virtio-user ports, both ways together.
    Circulating {
        /// Frame length in bytes.
        size: usize,
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
    /// Share of the sample in which this process or the forwarder wanted a core that another program had.
    pub disturbed: f64,
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
        median(self.samples[backend].iter().filter(|s| s.counts()).map(|s| s.value))
    }

    /// Rounds that count for all of these forwarders.
    pub fn counted(&self, backends: &[usize]) -> usize {
        let rounds = backends.iter().map(|backend| self.samples[*backend].len()).min();
        (0..rounds.unwrap_or(0))
            .filter(|round| backends.iter().all(|backend| self.samples[*backend][*round].counts()))
            .count()
    }

    /// Median over the rounds of one forwarder's figure divided by another's in the same round, where both count; `None`
    /// without any.
    pub fn median_ratio(&self, backend: usize, rival: usize) -> Option<f64> {
        let rounds = self.samples[backend].iter().zip(&self.samples[rival]);
        median(
            rounds
                .filter(|(ours, theirs)| ours.counts() && theirs.counts())
                .map(|(ours, theirs)| ours.value / theirs.value),
        )
    }
}

/// The middle one; `None` of none.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Runs all rounds.
pub fn run(options: &Options) -> anyhow::Result<Vec<Line>> {
    pin_thread(options.frontend_core).context("cannot take the frontends' core")?;
    let folder = tempfile::Builder::new().prefix("vnic-bench-").tempdir()?;
    let as_forwarder = u64::from(options.backends.contains(&Kind::Testpmd));
    let as_guests = u64::from(options.frontend == Guest::VirtioUser);
    let pages = HugePages::reserve(as_forwarder + as_guests);
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
    if options.frontend == Guest::VirtioUser {
        measures.extend(options.sizes.iter().map(|size| Measure::Circulating { size: *size }));
    }
    let parts = if measures.is_empty() { &options.parts[..] } else { &[] };
    let one_way = |interrupts| {
        options.sizes.iter().map(move |size| Measure::OneWay {
            size: *size,
            interrupts,
        })
    };
    for part in parts {
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
    if options.frontend == Guest::VirtioUser {
        return circulate(options, kind, index, pages, folder, lines);
    }
    let backend = Backend::start(kind, options, pages, folder, 2)?;
    for line in lines.iter_mut() {
        check_interrupted()?;
        if let Measure::OneWay { size, interrupts } = line.measure {
            line.samples[index].push(one_way(options, &backend, Guests { size, interrupts })?);
        }
    }
    if let Some(at) = lines.iter().position(|line| line.measure == Measure::PingPong) {
        let [median, tail] = ping_pong(options, &backend)?;
        lines[at].samples[index].push(median);
        lines[at + 1].samples[index].push(tail);
    }
    drop(backend);
    if let Some(line) = lines.iter_mut().find(|line| line.measure == Measure::Idle) {
        line.samples[index].push(idle(options, kind, pages, folder)?);
    }
    Ok(())
}

/// Both ends' wish for a core while a sample is taken.
pub struct Watch<'a> {
    backend: &'a Backend,
    waited_ns: [u64; 2],
    start: Instant,
}

impl<'a> Watch<'a> {
    fn waited_ns(backend: &Backend) -> anyhow::Result<[u64; 2]> {
        Ok([
            backend.service.usage()?.waited_ns,
            ProcessUse::of(std::process::id())?.waited_ns,
        ])
    }

    /// Begins a sample.
    pub fn begin(backend: &'a Backend) -> anyhow::Result<Self> {
        Ok(Watch {
            backend,
            waited_ns: Self::waited_ns(backend)?,
            start: Instant::now(),
        })
    }

    /// The larger of the two shares of time without a core.
    pub fn disturbed(&self) -> anyhow::Result<f64> {
        let elapsed_ns = self.start.elapsed().as_nanos() as f64;
        let now = Self::waited_ns(self.backend)?;
        let shares = now
            .iter()
            .zip(self.waited_ns)
            .map(|(now, before)| now.saturating_sub(before) as f64 / elapsed_ns);
        Ok(shares.fold(0.0, f64::max))
    }
}

fn one_way(options: &Options, backend: &Backend, guests: Guests) -> anyhow::Result<Sample> {
    let (mut sender, mut receiver) = guests.connect_two(options, backend)?;
    load::prepare(&mut sender, &mut receiver, guests.size);
    let touch = if options.touch_all {
        load::Touch::Whole
    } else {
        load::Touch::FirstLine
    };
    let duration = Duration::from_millis(options.sample_ms);
    let watch = Watch::begin(backend)?;
    let stream = load::one_way(&mut sender, &mut receiver, guests.size, touch, duration);
    Ok(Sample {
        value: stream.frames_per_s,
        disturbed: watch.disturbed()?,
        stream: Some(stream),
    })
}

/// Median and 99th percentile of the round trip.
fn ping_pong(options: &Options, backend: &Backend) -> anyhow::Result<[Sample; 2]> {
    let guests = Guests {
        size: PING_LEN,
        interrupts: false,
    };
    let (mut left, mut right) = guests.connect_two(options, backend)?;
    load::prepare(&mut left, &mut right, PING_LEN);
    let mut times = Histogram::<u64>::new_with_max(10_000_000_000, 3)?;
    let watch = Watch::begin(backend)?;
    let lost = load::ping_pong(&mut left, &mut right, PING_LEN, ROUND_TRIPS, |ns| {
        times.saturating_record(ns)
    });
    anyhow::ensure!(lost == 0, "{lost} of {ROUND_TRIPS} ping-pong frames were lost");
    let disturbed = watch.disturbed()?;
    Ok([0.5, 0.99].map(|quantile| Sample {
        value: times.value_at_quantile(quantile) as f64,
        disturbed,
        stream: None,
    }))
}

/// The measures with virtio-user ports, each on a forwarder of its own.
fn circulate(
    options: &Options,
    kind: Kind,
    index: usize,
    pages: &HugePages,
    folder: &Path,
    lines: &mut [Line],
) -> anyhow::Result<()> {
    for line in lines {
        let Measure::Circulating { size } = line.measure else {
            continue;
        };
        let backend = Backend::start(kind, options, pages, folder, 2)?;
        backend.wait_for_sockets()?;
        let value = virtio_user::frames_per_s(options, pages, &backend.sockets, size, folder)?;
        line.samples[index].push(Sample {
            value,
            disturbed: 0.0,
            stream: None,
        });
    }
    Ok(())
}

/// Guests of one kind of sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guests {
    /// Longest frame in bytes.
    pub size: usize,
    /// Receive calls wanted.
    pub interrupts: bool,
}

impl Guests {
    /// Sender and receiver, on the forwarder's first two ports.
    pub fn connect_two(self, options: &Options, backend: &Backend) -> anyhow::Result<(Frontend, Frontend)> {
        let connect = |port: usize| {
            let guest = self.connect(options, &backend.sockets[port]);
            guest.with_context(|| format!("the forwarder's last words: {}", backend.last_words()))
        };
        Ok((connect(0)?, connect(1)?))
    }

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
        config.buffer_pool = options.buffers;
        if self.interrupts {
            config.rx_interrupts = Interrupts::Always;
        }
        Ok(Frontend::start(config)?)
    }
}

/// Share of a core that `IDLE_PORTS` connected ports cost when nothing happens.
fn idle(options: &Options, kind: Kind, pages: &HugePages, folder: &Path) -> anyhow::Result<Sample> {
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
    let (before, watch) = (backend.service.usage()?.cpu_ns, Watch::begin(&backend)?);
    wait(IDLE_WATCH)?;
    let spent_ns = (backend.service.usage()?.cpu_ns - before) as f64;
    let value = spent_ns / watch.start.elapsed().as_nanos() as f64;
    let disturbed = watch.disturbed()?;
    drop(connected);
    Ok(Sample {
        value,
        disturbed,
        stream: None,
    })
}

/// Waits, unless somebody interrupts.
pub fn wait(duration: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + duration;
    while Instant::now() < end {
        check_interrupted()?;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
