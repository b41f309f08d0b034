//! `esp_ss`: shows the ESP connections of this host, as `ss` shows those of the kernel.

mod holders;
mod socket;
mod table;

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use netif::Interface;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use weft_authority::{
    OmxdError, Refusal, Session,
    esp::{EspProgram, EspReport},
};

use self::{
    holders::Holders,
    socket::{Connection, Listener},
};
use crate::run::print_line;

/// Shows the ESP connections of this host, as `ss -ti` shows those of TCP
///
/// Shown are those of all users: state, queues, both ends, and a line of figures. Programs report theirs through omxd, a fifth of a second
/// late at most (with thousands of connections, a second); connections that no program has accepted yet are omxd's. What is counted in the
/// whole is shown by omx_counters, each counter with a sentence.
///
/// The figures: round trip and its variation, its shortest, the retransmission time-out, lastsnd and lastrcv in milliseconds; mss: bytes of
/// a packet; cwnd and peer_wnd: packets that may be in flight for the network and for the peer; retrans: time-outs in a row, and packets
/// sent again since the beginning; segs: packets of every kind.
#[derive(Debug, Parser)]
#[command(name = "esp_ss", version)]
pub struct Arguments {
    /// Listeners and connections in all states
    #[arg(short = 'a', long)]
    all: bool,
    /// Only listeners
    #[arg(short = 'l', long, overrides_with = "all")]
    listening: bool,
    /// The programs that have the socket: root sees all, others their own
    #[arg(short = 'p', long)]
    processes: bool,
    /// No line with the names of the columns
    #[arg(short = 'H', long)]
    no_header: bool,
    /// Interface [default: all that an omxd serves]
    #[arg(short = 'I', value_name = "IFACE")]
    interface: Option<String>,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs `esp_ss`.
///
/// # Errors
/// No such interface, no authority with ESP, one that cannot be asked.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let holders = if arguments.processes {
        Holders::of_this_host()
    } else {
        Holders::default()
    };
    let now = clock_gettime(ClockId::Monotonic);
    let now_ns = now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned();
    let (mut connections, mut listeners, mut omitted) = (Vec::new(), Vec::new(), 0);
    for (interface, session) in sessions(arguments.interface.as_deref())? {
        if !arguments.listening {
            for report in reports(&session)? {
                omitted += u64::from(report.omitted);
                let shown = report
                    .connections
                    .iter()
                    .filter(|connection| arguments.all || socket::is_open(connection));
                connections.extend(shown.map(|connection| Connection::new(&interface, connection, now_ns, &holders)));
            }
        }
        if arguments.listening || arguments.all {
            let known = session.esp_listeners()?;
            listeners.extend(
                known
                    .iter()
                    .map(|listener| Listener::new(&interface, listener, &holders)),
            );
        }
    }
    connections.sort_by_key(Connection::key);
    let text = if arguments.json {
        json!({ "connections": connections, "listeners": listeners, "omitted": omitted }).to_string()
    } else {
        table::text(&listeners, &connections, omitted, !arguments.no_header)
    };
    // Without names of columns and without sockets there is not even an empty line, which a script would count.
    if !text.is_empty() {
        print_line(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Connects to all authorities with ESP, or to that of one interface.
fn sessions(interface: Option<&str>) -> anyhow::Result<Vec<(String, Session)>> {
    let interfaces = match interface {
        Some(name) => {
            let interface = Interface::find(name)?;
            if let Some(sentence) = omxd::why_no_esp(&interface) {
                bail!(sentence);
            }
            vec![interface]
        }
        None => Interface::list().context("cannot list the interfaces of this host")?,
    };
    let mut sessions = Vec::new();
    let mut why_not = None;
    for interface in interfaces.into_iter().filter(|interface| !interface.loopback) {
        match Session::connect_to_running(&interface) {
            Ok(None) => {}
            Ok(Some(session)) => match session.esp_status()?.off {
                None => sessions.push((interface.name, session)),
                Some(sentence) => why_not = Some(sentence),
            },
            Err(error) => why_not = Some(error.to_string()),
        }
    }
    match (sessions.is_empty(), why_not) {
        (false, _) => Ok(sessions),
        (true, Some(sentence)) => bail!(sentence),
        (true, None) => bail!(
            "no omxd serves {}, so there is no ESP: `omxd IFACE` starts one, and so does root's `esp-run`",
            interface.unwrap_or("an interface of this host")
        ),
    }
}

/// Reads what all programs and the authority report.
fn reports(session: &Session) -> anyhow::Result<Vec<EspReport>> {
    let mut reports = vec![session.esp_handshakes()?];
    for EspProgram { session: number, .. } in session.esp_programs()? {
        match session.esp_report(number) {
            Ok(report) => reports.push(report),
            // The program has ended meanwhile.
            Err(OmxdError::Refused {
                reason: Refusal::NotOpen,
                ..
            }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(reports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_all_and_listening_decides_as_with_ss() {
        for (words, all, listening) in [
            (&["esp_ss", "-al"][..], false, true),
            (&["esp_ss", "-la"], true, false),
            (&["esp_ss", "--all", "--listening"], false, true),
            (&["esp_ss", "-a"], true, false),
        ] {
            let arguments = Arguments::try_parse_from(words).unwrap();
            assert_eq!((arguments.all, arguments.listening), (all, listening), "{words:?}");
        }
    }
}
