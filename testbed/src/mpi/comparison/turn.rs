//! A turn of one transport: `imb` in the nodes, with all that is measured of it, and the check that its messages took the transport.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use super::plan::{Figure, Operation};
use crate::{
    guest_channel::{ChannelError, Event, Exec, GuestChannel, Running},
    harness::{Sample, Stop},
    mpi::{
        Mpi, Share, Transport,
        carried::collect_lines,
        collect_carried,
        imb::{self, Row},
        is_success,
        over_esp::{self, not_over_esp},
        silent_ranks, statistics_path,
    },
    supervisor_client::client::Client,
};

/// Time that one turn may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// Time that a guest's agent may take to answer, or a file to be copied.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// Time that `mpirun` may take to end its ranks once it is told to.
const END_TIME: Duration = Duration::from_secs(10);
/// Interval at which it is checked whether the comparison is to end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes of what the ranks say that are kept.
const SAID_MAX: usize = 1 << 16;
/// Lines of what the ranks say that are shown where they fail.
const LINES_SHOWN: usize = 8;
/// Signal by which `mpirun` ends its ranks and itself.
const SIGTERM: i32 = 15;

/// Rounds within a turn, whose median is the figure of the turn.
const ROUNDS: &str = "3";
/// Seconds of such a round.
const SECONDS: &str = "0.1";

/// The ranks: where they run, and which program.
pub(super) struct Ranks {
    client: Client,
    mpi: Mpi,
    shares: Vec<Share>,
    /// Variables of all ranks.
    variables: Vec<(String, String)>,
    /// Folder of the program in each node, removed with this value.
    folder: String,
    stop: Stop,
}

impl Ranks {
    /// Copies the program to the nodes.
    pub(super) fn prepare(
        client: Client,
        mpi: Mpi,
        shares: Vec<Share>,
        variables: Vec<(String, String)>,
        program: &Path,
        stop: &Stop,
    ) -> Result<Self> {
        let ranks = Self {
            client,
            mpi,
            shares,
            variables,
            folder: statistics_path() + "-imb",
            stop: stop.clone(),
        };
        for (node, _) in &ranks.shares {
            stop.check()?;
            let channel = ranks.channel(node)?;
            run(&channel, node, &["mkdir", "-p", &ranks.folder])?;
            channel
                .copy_in(program, &ranks.program())
                .with_context(|| format!("cannot copy {} to {node}", program.display()))?;
            run(&channel, node, &["chmod", "755", &ranks.program()])?;
        }
        Ok(ranks)
    }

    /// Returns the agent of a node once it answers.
    fn channel(&self, node: &str) -> Result<GuestChannel> {
        let channel = self.client.agent(node)?;
        let silent = || format!("the agent of {node}");
        channel.wait_ready(ANSWER_TIME).with_context(silent)?;
        Ok(channel)
    }

    fn program(&self) -> String {
        self.folder.clone() + "/imb"
    }

    /// Measures figures over a transport: returns a sample of each, in their order.
    pub(super) fn measure(&self, transport: Transport, figures: &[Figure]) -> Result<Vec<Sample>> {
        let (first, _) = self.shares.first().context("there are no ranks")?;
        let channel = self.channel(first)?;
        let json = self.folder.clone() + "/imb.json";
        let statistics = self.folder.clone() + "/statistics";
        let mut command = vec![self.program()];
        command.extend(arguments(figures));
        command.extend(["--json".to_owned(), json.clone()]);
        let over_esp = self.folder.clone() + "/esp";
        let mut variables = self.variables.clone();
        if transport == Transport::Esp {
            variables.push((over_esp::STATISTICS.to_owned(), over_esp.clone()));
        }
        let exec = self
            .mpi
            .exec(&self.shares, transport, &statistics, &variables, &command);
        self.run_ranks(&channel, &exec)?;
        if transport == Transport::Esp {
            let said = collect_lines(&self.client, &self.shares, &over_esp)?;
            if let Some(sentence) = not_over_esp(&self.shares, &said) {
                bail!(sentence);
            }
        }
        let carried = collect_carried(&self.client, &self.shares, &statistics)?;
        match transport {
            Transport::Provider => {
                if let Some(sentence) = silent_ranks(&self.shares, &carried) {
                    bail!(sentence);
                }
            }
            Transport::Tcp | Transport::Esp => ensure!(
                carried.is_empty(),
                "the provider mx was open in {} ranks that were to use TCP's calls",
                carried.len()
            ),
        }
        let rows = imb::rows(&run(&channel, first, &["cat", &json])?)?;
        figures.iter().map(|figure| sample(*figure, &rows)).collect()
    }

    /// Runs `mpirun` to its end, or ends it when the comparison is to end.
    fn run_ranks(&self, channel: &GuestChannel, exec: &Exec) -> Result<()> {
        let mut running = channel.exec(exec)?;
        let deadline = Instant::now() + PATIENCE;
        let mut said = Vec::new();
        let status = loop {
            if self.stop.is_asked() {
                end(&mut running);
                self.stop.check()?;
            }
            if Instant::now() >= deadline {
                // They would go on in a lab that goes on.
                end(&mut running);
                bail!("imb did not end within {} s", PATIENCE.as_secs());
            }
            match running.next(Some(POLL_INTERVAL)) {
                Ok(Event::Started { .. }) | Err(ChannelError::TimedOut(_)) => {}
                Ok(Event::Stdout(bytes) | Event::Stderr(bytes)) => {
                    said.extend(bytes);
                    said.drain(..said.len().saturating_sub(SAID_MAX));
                }
                Ok(Event::Exited(status)) => break status,
                Err(error) => return Err(error.into()),
            }
        };
        ensure!(is_success(status), "imb failed ({status}): {}", last_lines(&said));
        Ok(())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for (node, _) in &self.shares {
            // In a lab that has ended nothing is left to remove.
            if let Ok(channel) = self.channel(node) {
                _ = channel.output(&["rm", "-rf", &self.folder], END_TIME);
            }
        }
    }
}

/// Tells `mpirun` to end, and waits until its ranks have ended, too.
fn end(running: &mut Running) {
    running.control().signal(SIGTERM);
    let deadline = Instant::now() + END_TIME;
    while Instant::now() < deadline {
        match running.next(Some(POLL_INTERVAL)) {
            // The guest is gone, and its ranks with it.
            Ok(Event::Exited(_)) | Err(ChannelError::Closed) => return,
            _ => {}
        }
    }
}

/// Runs a short command in a node to its end, and returns what it printed.
fn run(channel: &GuestChannel, node: &str, argv: &[&str]) -> Result<String> {
    let output = channel.output(argv, ANSWER_TIME)?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(
        is_success(output.status),
        "`{}` in {node}: {}: {}",
        argv.join(" "),
        output.status,
        complaint.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the arguments of `imb`. All operations have one list of lengths: what `imb` measures beyond the figures is not used.
fn arguments(figures: &[Figure]) -> Vec<String> {
    let mut operations: Vec<_> = figures.iter().map(|figure| figure.operation.name()).collect();
    // Barrier has no messages, whatever the lengths are.
    let with_messages = figures.iter().filter(|figure| figure.operation != Operation::Barrier);
    let mut lengths: Vec<_> = with_messages.map(|figure| figure.bytes).collect();
    operations.dedup();
    lengths.sort_unstable();
    lengths.dedup();
    let lengths: Vec<_> = lengths.iter().map(ToString::to_string).collect();
    let lengths = lengths.join(",");
    let sizes = [("--sizes", lengths.as_str())]
        .into_iter()
        .filter(|_| !lengths.is_empty());
    let options = sizes.chain([("--rounds", ROUNDS), ("--seconds", SECONDS)]);
    let options = options.flat_map(|(name, value)| [name, value]);
    operations.into_iter().chain(options).map(str::to_owned).collect()
}

/// Finds a figure in what `imb` reported.
fn sample(figure: Figure, rows: &[Row]) -> Result<Sample> {
    let name = figure.operation.name();
    let is_it = |row: &&Row| row.benchmark() == name && row.bytes() == figure.bytes as f64;
    let row = rows.iter().find(is_it);
    let found = row.and_then(|row| Some((row, row.number("median_us")? * 1e3)));
    let (row, value) = found.with_context(|| format!("the result of {name} at {} bytes is missing", figure.bytes))?;
    Ok(Sample {
        more: row.fields().clone(),
        ..Sample::new(value)
    })
}

/// Returns the end of what the ranks said, on one line.
fn last_lines(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let is_text = |line: &&str| line.chars().any(char::is_alphanumeric);
    let lines: Vec<_> = said.lines().map(str::trim).filter(is_text).collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].join("; ")
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    use crate::mpi::comparison::plan::figures;

    fn asked(operations: &[Operation], lengths: &[usize]) -> String {
        arguments(&figures(operations, lengths)).join(" ")
    }

    #[test]
    fn one_program_measures_all_lengths_of_all_operations() {
        assert_eq!(
            asked(Operation::value_variants(), &[65536, 16]),
            "PingPong SendRecv Alltoall Allreduce Bcast Barrier --sizes 16,65536 --rounds 3 --seconds 0.1"
        );
        assert_eq!(asked(&[Operation::Barrier], &[16]), "Barrier --rounds 3 --seconds 0.1");
    }

    #[test]
    fn figures_are_found_in_what_imb_wrote_and_missed_where_they_are_not() {
        let text = r#"[{"benchmark": "PingPong", "ranks": 2, "bytes": 16, "repetitions": 90, "rounds": 3, "median_us": 431.5}]"#;
        let rows = imb::rows(text).expect("results");
        let figure = |bytes| Figure {
            operation: Operation::PingPong,
            bytes,
        };
        let found = sample(figure(16), &rows).expect("it is there");
        assert_eq!((found.value, found.further("repetitions")), (431_500.0, Some(90.0)));
        assert_eq!(
            sample(figure(0), &rows).expect_err("it is not").to_string(),
            "the result of PingPong at 0 bytes is missing"
        );
    }

    #[test]
    fn failures_show_the_end_of_what_the_ranks_said() {
        let said: String = (0..20).map(|line| format!("line {line}\n----\n")).collect();
        let shown = last_lines(said.as_bytes());
        assert!(
            shown.starts_with("line 12; line 13") && shown.ends_with("line 19"),
            "{shown}"
        );
    }
}
