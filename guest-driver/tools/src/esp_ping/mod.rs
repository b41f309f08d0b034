//! `esp_ping`: asks a host whether it speaks ESP, as `ping` asks whether it is there.

mod report;
mod target;

use std::{
    os::fd::AsFd,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::{
    report::{Pong, Report},
    target::Target,
};
use crate::{Stop, run::print_line};

/// Exit code when no answer came, as `ping` has it.
const UNANSWERED: u8 = 1;

/// Asks a host whether it speaks ESP, as ping asks whether it is there
///
/// EDP pings are sent, and the answers shown. They go through omxd, so ordinary users of its group can use it. Ends with 0 if an answer
/// came, 1 if none came, and 2 when something is wrong.
#[derive(Debug, Parser)]
#[command(name = "esp_ping", version)]
pub struct Arguments {
    /// The host: a name, an IP address, or an Ethernet address
    #[arg(value_name = "HOST|MAC")]
    host: String,
    /// Stop after so many pings [default: at Ctrl-C]
    #[arg(short = 'c', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Seconds from one ping to the next, at least 0.002
    #[arg(short = 'i', value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Seconds to wait for an answer, at most 60
    #[arg(short = 'W', value_name = "SECONDS", default_value = "1", value_parser = patience)]
    wait: Duration,
    /// Interface [default: the one on whose network the host is]
    #[arg(short = 'I', value_name = "IFACE")]
    interface: Option<String>,
    /// Only the summary at the end
    #[arg(short = 'q')]
    quiet: bool,
    /// Print one line of JSON at the end
    #[arg(long)]
    pub json: bool,
}

fn seconds(text: &str, min: f64, max: f64) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "a number of seconds, such as 0.2".to_owned())?;
    if (min..=max).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("{min} to {max} seconds"))
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    seconds(text, 0.002, 86_400.0)
}

fn patience(text: &str) -> Result<Duration, String> {
    seconds(text, 0.001, 60.0)
}

/// Runs `esp_ping`.
///
/// # Errors
/// No such host or interface, no network on which the host is, an authority that cannot be asked.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let target = Target::find(&arguments.host, arguments.interface.as_deref())?;
    let session = target.session()?;
    let shows = !arguments.quiet && !arguments.json;
    if shows {
        print_line(&target.to_string())?;
    }
    let mut report = Report::new(&arguments.host, &target);
    let begin = Instant::now();
    for number in 1.. {
        report.transmitted += 1;
        let sent = Instant::now();
        match session.ping_esp(target.to, arguments.wait, stop.as_fd())? {
            Some(pong) => {
                let pong = Pong::new(number, &pong);
                if shows {
                    print_line(&pong.to_string())?;
                }
                report.received(pong);
            }
            // A ping whose answer the user did not wait for is none.
            None if is_stopped(&stop, Duration::ZERO) => {
                report.transmitted -= u64::from(sent.elapsed() < arguments.wait);
                break;
            }
            None => {}
        }
        let is_last = arguments.count.is_some_and(|count| number >= count);
        if is_last || is_stopped(&stop, arguments.interval.saturating_sub(sent.elapsed())) {
            break;
        }
    }
    report.time = begin.elapsed();
    print_line(&if arguments.json {
        report.to_json()
    } else {
        report.to_string()
    })?;
    Ok(if report.has_answers() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(UNANSWERED)
    })
}

/// Sleeps, and says whether the user has asked for the end.
fn is_stopped(stop: &Stop, time: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
    let until = Instant::now() + time;
    loop {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
        match poll(&mut fds, left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return ready.is_ok_and(|count| count > 0),
        }
    }
}
