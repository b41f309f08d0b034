//! The command line of `nicctl`.

use std::{os::fd::AsFd, process::ExitCode};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use firmware::{CoalescingChange, Reason, control::Request};
use netif::Interface;
use weft_card_control::{Card, ask};

use super::{
    bind::{self, Bind, Unbind},
    copy_engine::CopyEngineOutput,
    group::Group,
    port::ControlPort,
    report::{AdaptiveOutput, CoalescingOutput, InfoOutput, StatsOutput},
    steering::{self, Steering},
    strategies::Strategies,
    timed::{Timer, Watchdog, timer, watchdog},
};
use crate::{
    Stop,
    run::{Switch, print, print_line, text_of},
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
    pub json: bool,
    #[command(subcommand)]
    command: Command,
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
    /// Give a card to programs that drive it themselves; needs root
    Bind(Bind),
    /// Give a card back to the kernel's driver; needs root
    Unbind(Unbind),
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
    let json = arguments.json;
    match &arguments.command {
        Command::Bind(bind) => return print(json, &bind::bind(bind)?).map(|()| ExitCode::SUCCESS),
        Command::Unbind(unbind) => return print(json, &bind::unbind(unbind)?).map(|()| ExitCode::SUCCESS),
        _ => {}
    }
    let stop = Stop::on_signals().context("cannot take over signals")?;
    let mut port = ControlPort::open(&arguments.interface)?;
    let mut card = Card::new(&mut port, stop.as_fd());
    let answered = answer(arguments, &mut card, &stop).with_context(|| arguments.interface.clone())?;
    answered.map_or(Ok(()), |text| print_line(&text))?;
    Ok(ExitCode::SUCCESS)
}

/// Does what the command says, and returns what is still to be printed.
fn answer(arguments: &Arguments, card: &mut Card<'_, ControlPort>, stop: &Stop) -> anyhow::Result<Option<String>> {
    let json = arguments.json;
    let text = match &arguments.command {
        Command::Info => {
            let abilities = card.hello()?;
            let mut info = InfoOutput::new(abilities, &Strategies::of(card)?);
            info.driver = Interface::find(&arguments.interface)?.driver();
            text_of(json, &info)
        }
        Command::Coalesce(change) => {
            let strategies = Strategies::of(card)?;
            let request = coalesce(change, &strategies)?;
            let report = ask!(card, &request, GetCoalescing | SetCoalescing)?;
            text_of(json, &CoalescingOutput::new(report, &strategies))
        }
        Command::Steering(change) => text_of(json, &steering::run(card, change)?),
        Command::Adaptive { queue } => {
            let strategies = Strategies::of(card)?;
            let report = ask!(card, &Request::GetAdaptive { queue: *queue }, GetAdaptive)?;
            text_of(json, &AdaptiveOutput::new(report, &strategies))
        }
        Command::Stats { queue, strategy } => text_of(json, &stats(card, *queue, strategy.as_deref())?),
        Command::CopyEngine => {
            let report = ask!(card, &Request::GetCopyEngine, GetCopyEngine)?;
            text_of(json, &CopyEngineOutput::from(report))
        }
        Command::Group(group) => return group.run(card, &arguments.interface, json, stop).map(|()| None),
        // They are done before there is a conversation with the card.
        Command::Bind(_) | Command::Unbind(_) => return Ok(None),
        Command::Watchdog(change) => return watchdog(card, json, change).map(|()| None),
        Command::Timer(verb) => return timer(card, json, verb).map(|()| None),
    };
    text.map(Some)
}

/// Counters, and of the interrupts that strategies decided for reasons of their own which ones did.
fn stats(card: &mut Card<'_, ControlPort>, queue: Option<u16>, strategy: Option<&str>) -> anyhow::Result<StatsOutput> {
    let strategies = Strategies::of(card)?;
    let mut counters = |strategy| ask!(card, &Request::GetCounters { queue, strategy }, GetCounters);
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
