//! `weft bench mpi`: the operations of `imb` over the libfabric provider, over ESP and over TCP, on the same cards of the same guests, in
//! turns.

mod plan;
mod report;
mod turn;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

pub(crate) use self::plan::Operation;

use self::{
    plan::{ESP, Figure, MX},
    report::Conditions,
    turn::Ranks,
};
use super::{Mpi, Transport, check_image, shares};
use crate::{
    accel::AccelChoice,
    harness::{Cell, Record, Sample, Scenario, Stop, Turn, conclude, others::Times, run, until_stopped},
    lab::Lab,
    report::progress::Progress,
    supervisor::Supervisor,
    supervisor_client::client::Client,
};

/// Lab file of the comparison's own lab.
const LAB: &str = include_str!("lab.toml");

/// Time that a guest may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// The options of the comparison.
pub(crate) struct Options {
    /// Rounds, in which the transports take turns.
    pub rounds: u32,
    /// MPI implementation that the program was built for.
    pub mpi: Mpi,
    /// The program `imb` on this machine.
    pub program: PathBuf,
    /// Number of ranks, or one for each node.
    pub ranks: Option<usize>,
    /// Operations to measure.
    pub operations: Vec<Operation>,
    /// Lengths of messages.
    pub lengths: Vec<usize>,
    /// Further variables of all ranks.
    pub variables: Vec<(String, String)>,
    /// How the guests of the comparison's own lab run.
    pub accel: AccelChoice,
    /// How long a booting node may show no sign of life.
    pub boot_timeout: Duration,
}

/// Returns whether there is a figure for one of these operations with messages of one of these lengths.
pub(crate) fn measures_something(operations: &[Operation], lengths: &[usize]) -> bool {
    !plan::figures(operations, lengths).is_empty()
}

/// Measures, prints the result, and returns whether the bar is met. `nodes` names the nodes for ranks of a lab: of the running one, or
/// of one that is started for the comparison and ended with it.
pub(crate) fn compare(
    options: Options,
    running: Option<Client>,
    nodes: impl Fn(&Client) -> Result<Vec<String>> + Send + 'static,
    json: bool,
) -> Result<bool> {
    let figures = plan::figures(&options.operations, &options.lengths);
    ensure!(
        options.program.is_file(),
        "there is no program {}: `scripts/mpi-workloads MPICC FOLDER` builds it, with the compiler wrapper of the MPI; --imb names it",
        options.program.display()
    );
    let (record, conditions) = match running {
        Some(client) => until_stopped(|stop| measure(&options, client, &nodes, stop))?,
        None => in_own_lab(options, nodes)?,
    };
    conclude(&record, report::report(&record, &conditions, &figures), json)
}

/// Measures in a lab that is started and ended here.
fn in_own_lab(
    options: Options,
    nodes: impl Fn(&Client) -> Result<Vec<String>> + Send + 'static,
) -> Result<(Record, Conditions)> {
    let lab = Lab::parse(LAB, "lab.toml", "bench-mpi", Path::new("/"))?;
    let progress = Progress::new(0);
    let means = crate::prepare::means(&lab, options.accel, &progress)?;
    // Until here Ctrl-C ends the process immediately; from here on everything that was made is removed.
    let supervisor = Supervisor::start(lab, means, None)?;
    let measured = supervisor
        .wait_up(options.boot_timeout, |_| progress.say("booting four guests"))
        .and_then(|_| {
            progress.finish();
            // A signal ends the lab, and with it whatever waits for a guest.
            supervisor.run_beside(move |client| measure(&options, client, &nodes, &Stop::default()))
        });
    let stopped = supervisor.stop();
    let result = measured?;
    stopped?;
    Ok(result)
}

/// Runs all rounds in a running lab.
fn measure(
    options: &Options,
    client: Client,
    nodes: &impl Fn(&Client) -> Result<Vec<String>>,
    stop: &Stop,
) -> Result<(Record, Conditions)> {
    let nodes = nodes(&client)?;
    let shares = shares(&nodes, options.ranks.unwrap_or_else(|| nodes.len().max(2)));
    for (node, _) in &shares {
        let channel = client.agent(node)?;
        let silent = || format!("the agent of {node}");
        channel.wait_ready(ANSWER_TIME).with_context(silent)?;
        check_image(&channel, node, options.mpi)?;
    }
    let status = client.status()?;
    let conditions = Conditions {
        mpi: options.mpi,
        ranks: shares.iter().map(|(_, ranks)| ranks).sum(),
        nodes: shares.len(),
        accel: status.accel,
        qemu: status.qemu,
        build: crate::programs::build()?,
        variables: options.variables.clone(),
    };
    let figures = plan::figures(&options.operations, &options.lengths);
    let variables = options.variables.clone();
    let ranks = Ranks::prepare(client.clone(), options.mpi, shares, variables, &options.program, stop)?;
    let plan = plan::plan(options.rounds, &figures);
    let mut transports = Transports { client, ranks, figures };
    Ok((run(plan, &mut transports, stop)?, conditions))
}

/// The transports that take turns.
struct Transports {
    client: Client,
    ranks: Ranks,
    figures: Vec<Figure>,
}

impl Scenario for Transports {
    fn measure(&mut self, _round: u32, turn: &Turn) -> Result<Vec<(Cell, Sample)>> {
        let first = turn.first().context("an empty turn")?;
        let transport = match first.rival {
            MX => Transport::Provider,
            ESP => Transport::Esp,
            _ => Transport::Tcp,
        };
        let (begin, before) = (Instant::now(), Times::of_lab(&self.client)?);
        let samples = self.ranks.measure(transport, &self.figures)?;
        let (elapsed, after) = (begin.elapsed(), Times::of_lab(&self.client)?);
        let of_others = after.others_since(before);
        let disturbed = of_others as f64 / elapsed.as_nanos().max(1) as f64;
        let samples = turn.iter().zip(samples);
        Ok(samples
            .map(|(cell, sample)| (*cell, Sample { disturbed, ..sample }))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lab_of_the_comparison_is_that_of_the_example() {
        let own = Lab::parse(LAB, "lab.toml", "bench-mpi", Path::new("/")).expect("valid");
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/mpi-4.toml");
        let example = crate::lab_file::load(&example).expect("valid");
        assert_eq!(own.nodes.len(), 4);
        for (own, example) in own.nodes.iter().zip(&example.nodes) {
            // The example has a folder of this machine besides.
            let same = |node: &crate::lab::Node| (node.name.clone(), node.memory_mib, node.cpus);
            assert_eq!(same(own), same(example));
        }
    }
}
