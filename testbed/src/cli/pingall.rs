//! `weft pingall`: lets every node ping every other one.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Write},
    net::IpAddr,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use serde::Serialize;

use super::common::{CommonOptions, agent, client, show};
use crate::{
    guest_channel::Exec,
    lab::{topology::Topology, units::Span},
    report::{progress::Progress, say, table},
    supervisor_client::{client::Client, protocol::NodePhase},
};

/// Number of pings that run at a time in one guest: each is a process, and small guests have little memory.
const PARALLEL_PINGS: usize = 8;

/// Time that a guest may take to report, in addition to the time of its pings.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// Ping between all pairs of nodes; fail unless all answer.
#[derive(Debug, clap::Args)]
#[command(add = show(&[
    ("weft pingall", "all pairs of nodes"),
    ("weft pingall --count 10 --timeout 1s", "more requests, a shorter timeout"),
]))]
pub(super) struct PingallArgs {
    /// Requests from each node to each address of every other node.
    #[arg(short, long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    count: u32,
    /// How long to wait for an answer: whole seconds, at least one.
    #[arg(short = 'W', long, value_name = "TIME", default_value = "2s")]
    timeout: Span,
}

/// The result of the requests from one node to one address.
#[derive(Debug, PartialEq, Serialize)]
struct Cell {
    from: String,
    to: String,
    /// Address family: `ipv4` or `ipv6`.
    family: &'static str,
    address: IpAddr,
    sent: u32,
    received: u32,
    /// Round-trip times in milliseconds; none without an answer.
    min_ms: Option<f64>,
    avg_ms: Option<f64>,
    max_ms: Option<f64>,
    /// Reason why no request was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Pings, shows the answers, and reports by the exit status whether all requests were answered.
pub(super) fn run(options: &CommonOptions, args: &PingallArgs) -> Result<ExitCode> {
    let client = client(options)?;
    let topology = client.topology()?;
    let addresses = addresses(&topology);
    ensure!(
        addresses
            .iter()
            .map(|(node, _)| node)
            .collect::<std::collections::BTreeSet<_>>()
            .len()
            > 1,
        "there are no two nodes with an address in the lab {}",
        topology.lab
    );
    let seconds = u32::try_from(args.timeout.0.div_ceil(1_000_000_000))
        .unwrap_or(u32::MAX)
        .clamp(1, 3600);
    let askers = askers(&client, &topology)?;
    let cells = ask(&client, &askers, &addresses, (args.count, seconds));
    let answered = cells.iter().filter(|cell| cell.received > 0).count();
    if options.json {
        table::print_json(&cells)?;
    } else {
        let mut text = String::new();
        for family in ["ipv4", "ipv6"] {
            text += &matrix(family, &cells);
        }
        io::stdout().lock().write_all(text.as_bytes())?;
        for node in topology.nodes.iter().filter(|node| !askers.contains(&node.name)) {
            say(format_args!(
                "{} has no agent that answers, so it sent no requests",
                node.name
            ));
        }
        let asked = |name: &str| cells.iter().any(|cell| cell.from == name);
        for name in askers.iter().filter(|name| !asked(name)) {
            say(format_args!(
                "{name} shares no address family with another node, so it sent no requests"
            ));
        }
        for why in failures(&cells) {
            say(format_args!("{why}"));
        }
        let (sent, received) = cells
            .iter()
            .fold((0, 0), |sum, cell| (sum.0 + cell.sent, sum.1 + cell.received));
        say(format_args!(
            "{answered} of {} paths work, {received} of {sent} requests were answered",
            cells.len()
        ));
    }
    // Without any request, nothing was shown to work.
    Ok(if answered == cells.len() && answered > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns the nodes whose agent answers.
fn askers(client: &Client, topology: &Topology) -> Result<Vec<String>> {
    let status = client.status()?;
    let ready = |name: &str| {
        status
            .nodes
            .iter()
            .any(|node| node.name == name && node.phase == NodePhase::Ready)
    };
    let askers: Vec<_> = topology
        .nodes
        .iter()
        .filter(|node| ready(&node.name))
        .map(|node| node.name.clone())
        .collect();
    if askers.is_empty() {
        bail!("no node of the lab {} has an agent that answers", topology.lab);
    }
    Ok(askers)
}

/// Returns the first address of each family of each node.
fn addresses(topology: &Topology) -> Vec<(String, IpAddr)> {
    let of_node = |node: &crate::lab::topology::NodeView| {
        let both = [node.address(false), node.address(true)];
        both.into_iter()
            .flatten()
            .map(|address| (node.name.clone(), address))
            .collect::<Vec<_>>()
    };
    topology.nodes.iter().flat_map(of_node).collect()
}

/// Pings along all paths, in the order of the lab: with a thread for each node that sends.
fn ask(client: &Client, askers: &[String], addresses: &[(String, IpAddr)], (count, seconds): (u32, u32)) -> Vec<Cell> {
    let progress = Progress::new(0);
    let done = std::sync::atomic::AtomicUsize::new(0);
    let all = std::thread::scope(|scope| {
        let threads: Vec<_> = askers
            .iter()
            .map(|from| {
                let (done, progress) = (&done, &progress);
                scope.spawn(move || {
                    let cells = ask_from(client, from, addresses, (count, seconds));
                    let done = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
                    progress.say(&format!("{done} of {} nodes have asked all others", askers.len()));
                    cells
                })
            })
            .collect();
        let cells = threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default());
        cells.collect()
    });
    progress.finish();
    all
}

/// Returns the addresses that a node pings: those of the others, in the families that it has itself (`ipv6 = false`
/// switches one off).
fn others<'a>(from: &str, addresses: &'a [(String, IpAddr)]) -> Vec<&'a (String, IpAddr)> {
    let own = addresses.iter().filter(|(node, _)| node == from);
    let families: Vec<_> = own.map(|(_, address)| address.is_ipv6()).collect();
    let of_family = |address: &IpAddr| families.contains(&address.is_ipv6());
    let others = addresses
        .iter()
        .filter(|(to, address)| to != from && of_family(address));
    others.collect()
}

fn ask_from(client: &Client, from: &str, addresses: &[(String, IpAddr)], (count, seconds): (u32, u32)) -> Vec<Cell> {
    let others = others(from, addresses);
    let mut cells = Vec::new();
    for some in others.chunks(PARALLEL_PINGS) {
        let texts: Vec<_> = some.iter().map(|(_, address)| address.to_string()).collect();
        let said = ping(client, from, &texts, (count, seconds));
        for ((to, address), text) in some.iter().zip(&texts) {
            let mut cell = Cell {
                from: from.to_owned(),
                to: to.clone(),
                family: if address.is_ipv6() { "ipv6" } else { "ipv4" },
                address: *address,
                sent: 0,
                received: 0,
                min_ms: None,
                avg_ms: None,
                max_ms: None,
                error: None,
            };
            match &said {
                Ok(said) => read_ping(&mut cell, said.get(text).map_or("", String::as_str)),
                Err(error) => cell.error = Some(format!("{error:#}")),
            }
            cells.push(cell);
        }
    }
    cells
}

/// Returns what `ping` in a guest printed about each address.
fn ping(client: &Client, from: &str, to: &[String], (count, seconds): (u32, u32)) -> Result<BTreeMap<String, String>> {
    // Each line has the address that it is about before it.
    const SCRIPT: &str =
        "c=$1 w=$2; shift 2; for a; do ping -q -c \"$c\" -i 0.2 -W \"$w\" \"$a\" 2>&1 | sed \"s|^|$a |\" & done; wait";
    let mut argv = ["/bin/sh", "-c", SCRIPT, "ping"].map(str::to_owned).to_vec();
    argv.extend([count.to_string(), seconds.to_string()]);
    argv.extend_from_slice(to);
    let exec = Exec {
        argv,
        ..Exec::default()
    };
    let patience = ANSWER_TIME + Duration::from_secs(u64::from(count) + u64::from(seconds));
    let output = agent(client, from)?.exec(&exec)?.collect(patience)?;
    let mut said = BTreeMap::<String, String>::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some((address, line)) = line.split_once(' ') {
            let text = said.entry(address.to_owned()).or_default();
            *text += line;
            text.push('\n');
        }
    }
    Ok(said)
}

/// Parses the summary of `ping`, that of busybox or of iputils.
fn read_ping(cell: &mut Cell, said: &str) {
    let number = |words: &str| words.split_whitespace().next().and_then(|word| word.parse().ok());
    let mut counted = false;
    for line in said.lines() {
        if line.contains("packets transmitted") {
            let mut parts = line.split(',');
            cell.sent = parts.next().and_then(number).unwrap_or(0);
            cell.received = parts.next().and_then(number).unwrap_or(0).min(cell.sent);
            counted = true;
        } else if let Some((_, times)) = line
            .split_once("min/avg/max")
            .and_then(|(_, rest)| rest.split_once(" = "))
        {
            let mut times = times.split(['/', ' ']).map(|time| time.parse::<f64>().ok());
            (cell.min_ms, cell.avg_ms, cell.max_ms) =
                (times.next().flatten(), times.next().flatten(), times.next().flatten());
        }
    }
    if !counted {
        cell.error = Some(said.lines().next_back().unwrap_or("ping said nothing").to_owned());
    }
}

/// Renders a matrix of senders (rows) and receivers (columns); nothing when the family has no address.
fn matrix(family: &str, cells: &[Cell]) -> String {
    let mut names: Vec<&str> = Vec::new();
    let of_family: Vec<_> = cells.iter().filter(|cell| cell.family == family).collect();
    for name in of_family.iter().flat_map(|cell| [cell.from.as_str(), cell.to.as_str()]) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return String::new();
    }
    let heading = format!("{} FROM", if family == "ipv4" { "IPv4" } else { "IPv6" });
    let mut rows = vec![
        std::iter::once(heading)
            .chain(names.iter().map(|name| (*name).to_owned()))
            .collect::<Vec<_>>(),
    ];
    for from in &names {
        let shown = |to: &&str| {
            let cell = of_family
                .iter()
                .find(|cell| (cell.from.as_str(), cell.to.as_str()) == (*from, *to));
            table::or_dash(cell.map(|cell| shown(cell)))
        };
        rows.push(
            std::iter::once((*from).to_owned())
                .chain(names.iter().map(shown))
                .collect(),
        );
    }
    let mut out = String::new();
    for row in &rows {
        for (column, text) in row.iter().enumerate() {
            let width = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            // Writing to a string does not fail.
            _ = if column == 0 {
                write!(out, "{text:width$}")
            } else {
                write!(out, "  {text:>width$}")
            };
        }
        out.push('\n');
    }
    out
}

/// Number of sentences about pings that could not be sent.
const FAILURES_MAX: usize = 8;

/// Lists why pings could not be sent: one sentence for each reason of each sender.
fn failures(cells: &[Cell]) -> Vec<String> {
    let mut of_reason = BTreeMap::<(&str, &str), Vec<&str>>::new();
    for cell in cells {
        if let Some(why) = &cell.error {
            of_reason.entry((&cell.from, why)).or_default().push(&cell.to);
        }
    }
    let left = of_reason.len().saturating_sub(FAILURES_MAX);
    let sentence = |((from, why), to): (&(&str, &str), &Vec<&str>)| {
        let mut to = to.clone();
        to.dedup();
        format!("{from} could not ask {}: {why}", to.join(", "))
    };
    let mut said: Vec<_> = of_reason.iter().take(FAILURES_MAX).map(sentence).collect();
    if left > 0 {
        said.push(format!("{left} more reasons: --json has them all"));
    }
    said
}

/// Renders a cell such as `1.24 ms`, with the lost requests, or the reason why there is no time.
fn shown(cell: &Cell) -> String {
    match (cell.received, cell.avg_ms) {
        _ if cell.error.is_some() => "error".to_owned(),
        (0, _) => "no answer".to_owned(),
        (received, time) => {
            let time = time.map_or_else(|| "answers".to_owned(), |ms| format!("{ms:.2} ms"));
            match 100 * (cell.sent - received) / cell.sent.max(1) {
                0 => time,
                lost => format!("{time}, {lost} % lost"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_not_asked_for_pings_of_a_family_that_it_has_no_address_of() {
        let address = |node: &str, address: &str| (node.to_owned(), address.parse().unwrap());
        let all = [
            address("n1", "10.77.1.1"),
            address("n1", "fd00::1"),
            address("n2", "10.77.1.2"),
            address("n3", "10.77.1.3"),
            address("n3", "fd00::3"),
        ];
        assert_eq!(others("n1", &all), [&all[2], &all[3], &all[4]]);
        assert_eq!(others("n2", &all), [&all[0], &all[3]]);
    }

    fn cell(from: &str, to: &str, said: &str) -> Cell {
        let mut cell = Cell {
            from: from.to_owned(),
            to: to.to_owned(),
            family: "ipv4",
            address: IpAddr::from([10, 77, 1, 1]),
            sent: 0,
            received: 0,
            min_ms: None,
            avg_ms: None,
            max_ms: None,
            error: None,
        };
        read_ping(&mut cell, said);
        cell
    }

    #[test]
    fn both_kinds_of_ping_are_read() {
        let busybox = "PING 10.77.1.2 (10.77.1.2): 56 data bytes\n\n--- 10.77.1.2 ping statistics ---\n\
             2 packets transmitted, 2 packets received, 0% packet loss\nround-trip min/avg/max = 0.904/1.244/1.585 ms\n";
        let read = cell("n1", "n2", busybox);
        assert_eq!(
            (read.sent, read.received, read.avg_ms, read.max_ms),
            (2, 2, Some(1.244), Some(1.585))
        );
        let iputils = "PING 10.77.1.2 (10.77.1.2) 56(84) bytes of data.\n--- 10.77.1.2 ping statistics ---\n\
             4 packets transmitted, 3 received, 25% packet loss, time 1001ms\nrtt min/avg/max/mdev = 0.9/1.2/1.5/0.3 ms\n";
        let read = cell("n1", "n2", iputils);
        assert_eq!(
            (read.sent, read.received, read.min_ms, shown(&read).as_str()),
            (4, 3, Some(0.9), "1.20 ms, 25 % lost")
        );
        let lost = cell(
            "n1",
            "n2",
            "2 packets transmitted, 0 packets received, 100% packet loss\n",
        );
        assert_eq!((shown(&lost).as_str(), lost.avg_ms), ("no answer", None));
        let broken = cell("n1", "n2", "ping: sendto: Network is unreachable\n");
        assert_eq!(broken.error.as_deref(), Some("ping: sendto: Network is unreachable"));
        assert_eq!(
            failures(&[read, broken]),
            ["n1 could not ask n2: ping: sendto: Network is unreachable"]
        );
    }

    #[test]
    fn the_matrix_has_a_row_for_who_asks_and_a_column_for_who_answers() {
        let ok = "2 packets transmitted, 2 packets received, 0% packet loss\nround-trip min/avg/max = 1/2.5/3 ms\n";
        let cells = [
            cell("n1", "n2", ok),
            cell("n2", "n1", "2 packets transmitted, 0 packets received\n"),
        ];
        assert_eq!(
            matrix("ipv4", &cells),
            "IPv4 FROM         n1       n2\nn1                 -  2.50 ms\nn2         no answer        -\n"
        );
        assert_eq!(matrix("ipv6", &cells), "");
    }
}
