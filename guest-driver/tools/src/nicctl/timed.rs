//! `nicctl watchdog` and `nicctl timer`: the functions of the card that depend on its clock.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::bail;
use clap::{Args, Subcommand};
use firmware::{
    Lateness, TimerKind,
    control::{RefusalCode, Request, TimerReport, WatchdogReport},
    watchdog::WATCHDOG_DELAY_NS_MAX,
};
use netif::Netif;
use serde::Serialize;
use weft_card_control::{Card, CardError, ask};

use super::report::Bucket;
use crate::run::{print, print_line};

/// A doorbell is waited for until this long after it is due, longer than a busy machine is late.
const DOORBELL_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(super) struct Watchdog {
    /// New delay, such as 100us or 1ms; `off` for none
    #[arg(value_name = "TIME|off", value_parser = delay)]
    delay: Option<u64>,
    /// One receive queue only; all are changed or added up otherwise
    #[arg(long)]
    queue: Option<u16>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Timer {
    /// Arm a timer, and return
    Arm {
        #[command(flatten)]
        timer: Armed,
    },
    /// Disarm a timer
    Disarm {
        /// Number of the timer
        timer: u16,
    },
    /// What the timers counted
    Show,
    /// Arm a timer, wait for its doorbells, and disarm it
    Wait {
        #[command(flatten)]
        timer: Armed,
        /// Doorbells to wait for; a one-shot timer is armed anew after each
        #[arg(long, default_value_t = 1)]
        rings: u32,
    },
}

#[derive(Debug, Args)]
pub(super) struct Armed {
    /// Number of the timer, of your choice
    timer: u16,
    /// When it rings, such as 500us, 20ms or 1s
    #[arg(value_parser = time)]
    time: u64,
    /// Ring at the end of each such period in which this machine took no packet, until disarmed
    #[arg(long)]
    clock: bool,
}

impl Armed {
    fn request(&self) -> Request {
        let kind = if self.clock { TimerKind::Clock } else { TimerKind::Once };
        Request::ArmTimer {
            timer: self.timer,
            kind,
            time_ns: self.time,
        }
    }
}

/// Parses a time with its unit, as nanoseconds. The card knows its own limits; this one is what a control frame can
/// say.
fn time(text: &str) -> Result<u64, String> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let number = |(unit, ns): &(&str, f64)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * ns);
    match units.iter().find_map(number) {
        Some(ns) if (0.0..=f64::from(u32::MAX)).contains(&ns) => Ok(ns.round() as u64),
        _ => Err("not a time such as 100us, 1ms or 2s, up to 4 s".to_owned()),
    }
}

fn delay(text: &str) -> Result<u64, String> {
    match text {
        "off" => Ok(0),
        text => (time(text).ok())
            .filter(|delay_ns| *delay_ns <= WATCHDOG_DELAY_NS_MAX)
            .ok_or_else(|| "neither `off` nor a time such as 100us or 2ms, up to 1 s".to_owned()),
    }
}

pub(super) fn watchdog<N: Netif>(card: &mut Card<'_, N>, json: bool, arguments: &Watchdog) -> anyhow::Result<()> {
    let queue = arguments.queue;
    let request = match arguments.delay {
        None => Request::GetWatchdog { queue },
        Some(delay_ns) => Request::SetWatchdog { queue, delay_ns },
    };
    let report = match ask!(card, &request, GetWatchdog | SetWatchdog) {
        Ok(report) => report,
        // The card says that it is too short, not how long it must be.
        Err(CardError::Refused(refusal)) if refusal.code == RefusalCode::Range.code() => {
            let Ok(WatchdogReport { delay_ns_min, .. }) = ask!(card, &Request::GetWatchdog { queue }, GetWatchdog)
            else {
                bail!(refusal);
            };
            bail!(
                "the delay of this card's watchdog is at least {} us",
                delay_ns_min / 1_000
            )
        }
        Err(error) => bail!(error),
    };
    let mut output = WatchdogOutput::from(report);
    if queue.is_none() {
        // The card tells the first queue's delay for all.
        for queue in 1..card.hello()?.queue_pairs {
            let WatchdogReport { delay_ns, .. } =
                ask!(card, &Request::GetWatchdog { queue: Some(queue) }, GetWatchdog)?;
            if delay_ns != output.delay_ns {
                output.others.push(QueueDelay { queue, delay_ns });
            }
        }
    }
    print(json, &output)
}

pub(super) fn timer<N: Netif>(card: &mut Card<'_, N>, json: bool, verb: &Timer) -> anyhow::Result<()> {
    let report = match verb {
        Timer::Arm { timer } => ask!(card, &timer.request(), ArmTimer)?,
        Timer::Disarm { timer } => disarm(card, Some(*timer))?,
        Timer::Show => disarm(card, None)?,
        Timer::Wait { timer, rings } => wait(card, json, timer, *rings)?,
    };
    print(json, &TimerOutput::from(report))
}

fn disarm<N: Netif>(card: &mut Card<'_, N>, timer: Option<u16>) -> Result<TimerReport, CardError> {
    ask!(card, &Request::DisarmTimer { timer }, DisarmTimer)
}

fn wait<N: Netif>(card: &mut Card<'_, N>, json: bool, timer: &Armed, rings: u32) -> anyhow::Result<TimerReport> {
    let mut since = Instant::now();
    ask!(card, &timer.request(), ArmTimer)?;
    for ring in 1..=rings {
        let limit = Instant::now() + Duration::from_nanos(timer.time) + DOORBELL_PATIENCE;
        let doorbell = loop {
            match card.doorbell(limit)? {
                Some(doorbell) if doorbell.timer == timer.timer => break doorbell,
                Some(_) => {}
                None => bail!(
                    "timer {} did not ring in time: either it was lost, or (a clock) this machine takes packets all the time",
                    timer.timer
                ),
            }
        };
        let elapsed = since.elapsed();
        since = Instant::now();
        if !json {
            print_line(&format!(
                "timer {} rang after {:.1} us as seen here; the card was {:.1} us late (ring {})",
                doorbell.timer,
                elapsed.as_nanos() as f64 / 1e3,
                f64::from(doorbell.late_ns) / 1e3,
                doorbell.sequence
            ))?;
        }
        if ring < rings && !timer.clock {
            since = Instant::now();
            ask!(card, &timer.request(), ArmTimer)?;
        }
    }
    Ok(disarm(card, Some(timer.timer))?)
}

/// `nicctl watchdog`; names as those of `vnicd`'s control socket.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct WatchdogOutput {
    /// The receive queue; absent for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<u16>,
    /// 0 = off; of queue 0, if all were asked for.
    delay_ns: u32,
    /// If all were asked for, those that have another delay than queue 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<QueueDelay>,
    delay_ns_min: u32,
    delay_ns_max: u32,
    started: u64,
    cancelled: u64,
    restarted_disabled: u64,
    restarted_progress: u64,
    restarted_pending: u64,
    fired: u64,
    late_max_ns: u64,
    /// By lateness in microseconds; classes without any are left out.
    lateness: Vec<Bucket>,
}

impl From<WatchdogReport> for WatchdogOutput {
    fn from(report: WatchdogReport) -> Self {
        let counters = report.counters;
        Self {
            queue: report.queue,
            delay_ns: report.delay_ns,
            others: Vec::new(),
            delay_ns_min: report.delay_ns_min,
            delay_ns_max: report.delay_ns_max,
            started: counters.started,
            cancelled: counters.cancelled,
            restarted_disabled: counters.restarted_disabled,
            restarted_progress: counters.restarted_progress,
            restarted_pending: counters.restarted_pending,
            fired: counters.fired,
            late_max_ns: counters.lateness.max_ns(),
            lateness: classes(&counters.lateness),
        }
    }
}

/// The watchdog of a receive queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct QueueDelay {
    queue: u16,
    /// 0 = off.
    delay_ns: u32,
}

fn write_delay(f: &mut fmt::Formatter<'_>, delay_ns: u32) -> fmt::Result {
    match delay_ns {
        0 => write!(f, "no watchdog"),
        delay_ns => write!(f, "watchdog after {} us", f64::from(delay_ns) / 1e3),
    }
}

impl fmt::Display for WatchdogOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.queue {
            Some(queue) => write!(f, "queue {queue}: ")?,
            None if self.others.is_empty() => write!(f, "all queues: ")?,
            None => write!(f, "most queues: ")?,
        }
        write_delay(f, self.delay_ns)?;
        for other in &self.others {
            write!(f, ", queue {}: ", other.queue)?;
            write_delay(f, other.delay_ns)?;
        }
        writeln!(
            f,
            " (possible: {} us to {} ms)",
            self.delay_ns_min / 1_000,
            self.delay_ns_max / 1_000_000
        )?;
        writeln!(f, "timer started      {} times", self.started)?;
        writeln!(f, "all was processed  {} times: stopped", self.cancelled)?;
        writeln!(f, "interrupts off     {} times: started anew", self.restarted_disabled)?;
        writeln!(f, "progress           {} times: started anew", self.restarted_progress)?;
        writeln!(f, "DMA unfinished     {} times: started anew", self.restarted_pending)?;
        write!(f, "interrupted        {} times", self.fired)?;
        write_lateness(f, &self.lateness, self.late_max_ns)
    }
}

/// `nicctl timer`.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct TimerOutput {
    /// The timer that was named; absent if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    timer: Option<u16>,
    is_armed: bool,
    armed_now: u8,
    shortest_ns: u32,
    longest_ns: u32,
    armed: u64,
    disarmed: u64,
    rung_once: u64,
    clock_idle: u64,
    clock_polled: u64,
    clock_rung: u64,
    clock_missed: u64,
    lost: u64,
    late_max_ns: u64,
    /// By lateness in microseconds; classes without any are left out.
    lateness: Vec<Bucket>,
}

impl From<TimerReport> for TimerOutput {
    fn from(report: TimerReport) -> Self {
        let counters = report.counters;
        Self {
            timer: report.timer,
            is_armed: report.is_armed,
            armed_now: report.armed,
            shortest_ns: report.shortest_ns,
            longest_ns: report.longest_ns,
            armed: counters.armed,
            disarmed: counters.disarmed,
            rung_once: counters.rung_once,
            clock_idle: counters.clocks.idle,
            clock_polled: counters.clocks.polled,
            clock_rung: counters.clocks.rung,
            clock_missed: counters.clocks.missed,
            lost: counters.lost,
            late_max_ns: counters.lateness.max_ns(),
            lateness: classes(&counters.lateness),
        }
    }
}

impl fmt::Display for TimerOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(timer) = self.timer {
            let state = if self.is_armed { "armed" } else { "not armed" };
            writeln!(f, "timer {timer}: {state}")?;
        }
        writeln!(
            f,
            "timers             {} armed now (possible: {} us to {} s); {} armed so far, {} disarmed",
            self.armed_now,
            self.shortest_ns / 1_000,
            self.longest_ns / 1_000_000_000,
            self.armed,
            self.disarmed
        )?;
        writeln!(f, "one-shot           rang {} times", self.rung_once)?;
        write!(
            f,
            "clocks             rang {} times, spared {} polls and {} idle ticks, missed {}",
            self.clock_rung, self.clock_polled, self.clock_idle, self.clock_missed
        )?;
        if self.lost > 0 {
            write!(f, "\nlost               {} rings, without a receive buffer", self.lost)?;
        }
        write_lateness(f, &self.lateness, self.late_max_ns)
    }
}

fn classes(lateness: &Lateness) -> Vec<Bucket> {
    let counts = lateness.counts().iter().enumerate();
    let us = |bucket: usize| Lateness::bound_ns(bucket).map_or(0, |ns| ns / 1_000);
    counts
        .filter(|(_, count)| **count > 0)
        .map(|(bucket, &count)| Bucket {
            from: bucket.checked_sub(1).map_or(0, |below| us(below) as u32),
            to: u32::try_from(us(bucket)).ok(),
            count,
        })
        .collect()
}

fn write_lateness(f: &mut fmt::Formatter<'_>, lateness: &[Bucket], late_max_ns: u64) -> fmt::Result {
    for bucket in lateness {
        match bucket.to {
            Some(to) => write!(f, "\n  late             up to {to} us: {}", bucket.count)?,
            None => write!(f, "\n  late             more than {} us: {}", bucket.from, bucket.count)?,
        }
    }
    if !lateness.is_empty() {
        write!(f, "\n  latest           {:.1} us", late_max_ns as f64 / 1e3)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_need_a_unit_and_fit_a_control_frame() {
        assert_eq!(time("100us"), Ok(100_000));
        assert_eq!(time("1.5ms"), Ok(1_500_000));
        assert_eq!(time("4s"), Ok(4_000_000_000));
        assert_eq!(delay("off"), Ok(0));
        for bad in ["", "us", "100", "5s", "-1us", "one ms", "NaNs"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
