//! `weft mpirun`: runs an MPI program in the nodes of a lab, and fails if it did not use Weft's libfabric provider.

use std::process::ExitCode;

use anyhow::{Result, bail};

use super::common::{
    CommonOptions, Usage, agent,
    attached_command::{exit_code, stream},
    client, nodes_meant, show,
};
use crate::{
    mpi::{Carried, Mpi, Transport, check_image, collect_carried, is_success, shares, silent_ranks, statistics_path},
    report::{say, table},
};

/// Largest number of ranks: more need more memory than guests have.
const RANKS_MAX: i64 = 1024;

/// Run an MPI program in the nodes of a lab.
///
/// `mpirun` runs in the first node and starts ranks in the others with ssh; all messages take Weft's libfabric provider, also those
/// within a node. The exit status is the program's. If it is 0 but the provider of one of several ranks carried no message, weft fails: the
/// program has used another transport. With `--json`, the program's output is on standard error.
#[derive(Debug, clap::Args)]
#[command(add = show(&[
    ("weft mpirun -n 4 -- /shared/build/heat", "4 ranks, evenly spread over the nodes"),
    ("weft mpirun mpi-4 -n 2 --nodes n1,n3 --mpi mpich -- /shared/build/heat", "with MPICH, in two nodes of the lab mpi-4"),
]))]
pub(super) struct MpirunArgs {
    /// The lab; without it, that of `--lab`, or the only one that runs.
    #[arg(value_name = "LAB")]
    of_lab: Option<String>,
    /// Ranks (default: one for each node).
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=RANKS_MAX))]
    ranks: Option<u32>,
    /// The nodes, which have `image = "mpi"`: `all`, `n*`, `n[1-3]`, `n1,n4`.
    #[arg(long, value_name = "NODES", default_value = "all")]
    nodes: String,
    /// MPI implementation that the program was built for.
    #[arg(long, value_name = "MPI", default_value = "open")]
    mpi: Mpi,
    /// The program, as a path in the nodes, and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Runs the program, and reports by the exit status whether it succeeded over the provider.
pub(super) fn run(options: &CommonOptions, args: &MpirunArgs) -> Result<ExitCode> {
    let client = client(&CommonOptions {
        lab: args.of_lab.clone().or_else(|| options.lab.clone()),
        ..*options
    })?;
    let nodes = nodes_meant(&client, &args.nodes)?;
    let ranks = match args.ranks {
        Some(ranks) => usize::try_from(ranks)?,
        None => nodes.len(),
    };
    let shares = shares(&nodes, ranks);
    let Some((first, _)) = shares.first() else {
        return Err(Usage(format!("no node is meant by {}", args.nodes)).into());
    };
    let channel = agent(&client, first)?;
    check_image(&channel, first, args.mpi)?;
    let statistics = statistics_path();
    let mut exec = args
        .mpi
        .exec(&shares, Transport::Provider, &statistics, &[], &args.command);
    if options.json {
        let to_stderr = ["/bin/sh", "-c", "exec \"$@\" >&2", "sh"].map(str::to_owned);
        exec.argv.splice(0..0, to_stderr);
    }
    let status = stream(&channel, first, &exec)?;
    let carried = collect_carried(&client, &shares, &statistics)?;
    if options.json {
        table::print_json(&carried)?;
    }
    match silent_ranks(&shares, &carried) {
        Some(sentence) if is_success(status) => bail!(sentence),
        // A rank that is aborted says nothing of its provider, which may have worked or not.
        Some(_) if carried.is_empty() => say(format_args!(
            "weft: the program failed before a rank had closed the provider mx; `weft exec {first} -- fi_info -p mx` shows whether it works"
        )),
        _ => {
            let sum = |of: fn(&Carried) -> u64| carried.iter().map(of).sum::<u64>();
            say(format_args!(
                "{ranks} ranks sent {} messages with {} bytes over the provider mx",
                sum(|rank| rank.sent_messages),
                sum(|rank| rank.sent_bytes)
            ));
        }
    }
    Ok(exit_code(status))
}
