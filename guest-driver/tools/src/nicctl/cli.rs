//! The command line of `nicctl`.

use std::{os::fd::AsFd, process::ExitCode};

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};
use ether::EtherType;
use firmware::{
    CoalescingChange, Reason,
    control::{Reply, Request},
};
use netif::{AfPacket, AfPacketOptions};
use weft_card_control::{CONTROL_RING_LEN, Card, CardError};

use super::{
    copy_engine::CopyEngineOutput,
    group::Group,
    report::{AdaptiveOutput, CoalescingOutput, InfoOutput, StatsOutput},
    steering::{self, Steering},
    strategies::Strategies,
    timed::{Timer, Watchdog, timer, watchdog},
};
use crate::{
    Stop,
    run::{Switch, print},
};

/// Talks to this machine's own programmable network card.
///
/// Needs CAP_NET_RAW. An ordinary card does not answer; nicctl then says so after two seconds.
#[derive(Debug, Parser)]
#[command(name = "nicctl", version)]
pub struct Arguments {
    /// Network interface of the card
    #[arg(short, long, global = true, default_value = "eth0")]
    interface: String,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

impl Arguments {
    /// Whether the result is wanted as JSON.
    pub fn json(&self) -> bool {
        self.json
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what the card can do
    Info,
    /// Show or change interrupt coalescing; takes effect at once
    Coalesce(Coalesce),
    /// Show or change which receive queue a frame goes to; takes effect with the next frame
    Steering(Steering),
    /// Show what adaptive moderation measured and chose
    Adaptive {
        /// The receive queue
        #[arg(long, default_value_t = 0)]
        queue: u16,
    },
    /// Join, leave, list and try multicast groups of the card
    #[command(subcommand)]
    Group(Group),
    /// Show the card's counters of reception
    Stats {
        /// One receive queue only
        #[arg(long)]
        queue: Option<u16>,
        /// Only what was counted under this strategy
        #[arg(long)]
        strategy: Option<String>,
    },
    /// Show or set the polling watchdog, which interrupts this machine only if it does not poll
    Watchdog(Watchdog),
    /// Arm, disarm and show timers of the card, which ring with a frame and an interrupt
    #[command(subcommand)]
    Timer(Timer),
    /// Show what the copy engine of a card that is connected to itself did
    CopyEngine,
}

#[derive(Debug, Args)]
struct Coalesce {
    /// New strategy, by one of the names that `nicctl info` lists
    strategy: Option<String>,
    /// New coalescing delay in microseconds, fractions allowed; 0 turns coalescing off
    #[arg(long, value_name = "US", value_parser = microseconds)]
    delay_us: Option<u64>,
    /// New count limit; 0 for none
    #[arg(long, value_name = "N")]
    frames: Option<u32>,
    /// Whether the card checks the latency-sensitive mark
    #[arg(long, value_enum)]
    marks: Option<Switch>,
    /// One receive queue only; all are changed otherwise, and queue 0 is shown
    #[arg(long)]
    queue: Option<u16>,
}

/// Parses microseconds as nanoseconds. The card knows its own limit; this one is what a control frame can say.
fn microseconds(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(us) if us >= 0.0 && us * 1000.0 <= f64::from(u32::MAX) => Ok((us * 1000.0).round() as u64),
        _ => Err("not a number of microseconds from 0 to 4294967".to_owned()),
    }
}

/// Runs the tool.
///
/// # Errors
/// One sentence that says what is wrong.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let stop = Stop::on_signals().context("cannot take over signals")?;
    let options = AfPacketOptions {
        ring_len: CONTROL_RING_LEN,
        ..AfPacketOptions::default()
    };
    let mut port = AfPacket::open(&arguments.interface, EtherType::CARD_CONTROL, &options)?;
    let mut card = Card::new(&mut port, stop.as_fd());
    let interface = &arguments.interface;
    match &arguments.command {
        Command::Info => {
            let abilities = card.hello().with_context(|| interface.clone())?;
            let strategies = Strategies::of(&mut card).with_context(|| interface.clone())?;
            print(arguments.json, &InfoOutput::new(abilities, &strategies))?;
        }
        Command::Coalesce(change) => {
            let strategies = Strategies::of(&mut card).with_context(|| interface.clone())?;
            let request = coalesce(change, &strategies).with_context(|| interface.clone())?;
            let report = match card.ask(&request).with_context(|| interface.clone())? {
                Reply::GetCoalescing(report) | Reply::SetCoalescing(report) => report,
                _ => bail!(CardError::Unexpected),
            };
            print(arguments.json, &CoalescingOutput::new(report, &strategies))?;
        }
        Command::Steering(change) => {
            let output = steering::run(&mut card, change).with_context(|| interface.clone())?;
            print(arguments.json, &output)?;
        }
        Command::Adaptive { queue } => {
            let strategies = Strategies::of(&mut card).with_context(|| interface.clone())?;
            let request = Request::GetAdaptive { queue: *queue };
            let Reply::GetAdaptive(report) = card.ask(&request).with_context(|| interface.clone())? else {
                bail!(CardError::Unexpected);
            };
            print(arguments.json, &AdaptiveOutput::new(report, &strategies))?;
        }
        Command::Group(group) => {
            group
                .run(&mut card, interface, arguments.json, &stop)
                .with_context(|| interface.clone())?;
        }
        Command::Stats { queue, strategy: name } => {
            let output = stats(&mut card, *queue, name.as_deref()).with_context(|| interface.clone())?;
            print(arguments.json, &output)?;
        }
        Command::Watchdog(change) => watchdog(&mut card, arguments.json, change).with_context(|| interface.clone())?,
        Command::Timer(verb) => timer(&mut card, arguments.json, verb).with_context(|| interface.clone())?,
        Command::CopyEngine => {
            let reply = card.ask(&Request::GetCopyEngine).with_context(|| interface.clone())?;
            let Reply::GetCopyEngine(report) = reply else {
                bail!(CardError::Unexpected);
            };
            print(arguments.json, &CopyEngineOutput::from(report))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Counters, and of the interrupts that strategies decided for reasons of their own which ones did.
fn stats(card: &mut Card<'_, AfPacket>, queue: Option<u16>, strategy: Option<&str>) -> anyhow::Result<StatsOutput> {
    let strategies = Strategies::of(card)?;
    let mut counters = |strategy| match card.ask(&Request::GetCounters { queue, strategy })? {
        Reply::GetCounters(report) => Ok(report),
        _ => bail!(CardError::Unexpected),
    };
    let asked = strategy.map(|name| strategies.code(name)).transpose()?;
    let report = counters(asked)?;
    let mut left = report.counts.decided_for(Reason::Strategy);
    let mut own = Vec::new();
    let candidates = strategies
        .codes()
        .filter(|code| asked.is_none_or(|asked| asked == *code));
    for code in candidates {
        if left == 0 {
            break;
        }
        // Traffic goes on between two questions: what came since is left out.
        let count = counters(Some(code))?.counts.decided_for(Reason::Strategy).min(left);
        left -= count;
        if count > 0 {
            own.push((strategies.name(code), count));
        }
    }
    Ok(StatsOutput::new(&report, &strategies, own))
}

fn coalesce(arguments: &Coalesce, strategies: &Strategies) -> anyhow::Result<Request> {
    let name = arguments.strategy.as_deref();
    let change = CoalescingChange {
        strategy: name.map(|name| strategies.code(name)).transpose()?,
        delay_ns: arguments.delay_us,
        frames_max: arguments.frames,
        marks: arguments.marks.map(Switch::is_on),
    };
    Ok(if change == CoalescingChange::default() {
        Request::GetCoalescing {
            queue: arguments.queue.unwrap_or(0),
        }
    } else {
        Request::SetCoalescing {
            queue: arguments.queue,
            change,
        }
    })
}
