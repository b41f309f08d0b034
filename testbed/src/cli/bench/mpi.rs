//! `weft bench mpi`: the options of the comparison, which itself is the module `mpi::comparison` of this crate.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;

use crate::{
    cli::common::{CommonOptions, GuestArgs, Usage, client, nodes_meant, show},
    mpi::{
        Mpi,
        comparison::{self, Operation},
    },
    programs,
};

/// Exit code when the bar is missed, or too few pairs count to judge it.
const EXIT_BAR_MISSED: u8 = 3;

/// Longest messages: longer ones take too long on emulated processors.
const LENGTH_MAX: i64 = 1 << 22;

/// The variable that says whether the provider has a helper thread.
const HELPER_THREAD: &str = "OMX_PROGRESS";

/// Compare MPI over Weft's libfabric provider with MPI over ESP and over TCP, on the same cards.
///
/// Ranks run `imb` over the provider, over TCP and, under esp-run, over ESP in turns: Open MPI with its own TCP, MPICH with that of libfabric. The comparison starts
/// a lab of four nodes and ends it; with --lab, it is in a running lab. `imb` is built for Debian's Open MPI; `scripts/mpi-workloads`
/// does for any MPI. Exit status 3: an empty message takes longer than over TCP, or fewer than 5 rounds were measured.
#[derive(Debug, clap::Args)]
#[command(add = show(&[
    ("weft bench mpi", "4 ranks in a lab of its own"),
    ("weft bench mpi --lab mpi-4 --rounds 1 --operations PingPong", "one round in a running lab"),
    ("weft bench mpi --mpi mpich --imb mpich/imb", "with MPICH; imb was built with its compiler wrapper"),
]))]
pub(in crate::cli) struct BenchMpiArgs {
    /// Rounds, in which the transports take turns.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Ranks (default: one for each node).
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=64))]
    ranks: Option<u32>,
    /// The nodes, which have `image = "mpi"`: `all`, `n*`, `n[1-3]`, `n1,n4`.
    #[arg(long, value_name = "NODES", default_value = "all")]
    nodes: String,
    /// What to measure.
    #[arg(
        long,
        value_name = "OPERATION,…",
        value_delimiter = ',',
        default_value = "PingPong,SendRecv,Alltoall,Allreduce,Bcast,Barrier"
    )]
    operations: Vec<Operation>,
    /// Lengths of messages in bytes; only PingPong has empty ones.
    #[arg(
        long,
        value_name = "BYTES,…",
        value_delimiter = ',',
        default_value = "0,16,4096,65536",
        value_parser = clap::value_parser!(u32).range(0..=LENGTH_MAX)
    )]
    sizes: Vec<u32>,
    /// MPI implementation that imb was built for.
    #[arg(long, value_name = "MPI", default_value = "open")]
    mpi: Mpi,
    /// The program imb on this machine (default for Open MPI: mpi/imb beside weft).
    #[arg(long, value_name = "PATH")]
    imb: Option<PathBuf>,
    /// A variable for the ranks of all rivals; can be given several times. OMX_PROGRESS is 0 unless it is given: TCP has no helper
    /// thread either, and in a node with one processor it takes time from the ranks.
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// How guests run.
    #[command(flatten)]
    guests: GuestArgs,
}

/// Parses a variable; its name is one that a shell takes.
fn variable(text: &str) -> Result<(String, String), String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && name.chars().all(is_part) => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a variable is NAME=VALUE, the name of letters, digits and _".to_owned()),
    }
}

/// Adds the variable by which the provider has no helper thread, unless the user has chosen.
fn with_default(chosen: &[(String, String)]) -> Vec<(String, String)> {
    let mut variables = chosen.to_vec();
    if !variables.iter().any(|(name, _)| name == HELPER_THREAD) {
        variables.push((HELPER_THREAD.to_owned(), "0".to_owned()));
    }
    variables
}

/// Runs the comparison, and reports by the exit status whether its bar is met.
pub(in crate::cli) fn run(options: &CommonOptions, args: &BenchMpiArgs) -> Result<ExitCode> {
    let running = match &options.lab {
        Some(_) => Some(client(options)?),
        None => None,
    };
    if args.imb.is_none() && args.mpi == Mpi::Mpich {
        let sentence = "MPICH needs an imb that its compiler wrapper has built: `scripts/mpi-workloads MPICC FOLDER` builds it, --imb names it";
        return Err(Usage(sentence.to_owned()).into());
    }
    let lengths: Vec<_> = args.sizes.iter().map(|bytes| *bytes as usize).collect();
    if !comparison::measures_something(&args.operations, &lengths) {
        let sentence = "nothing is measured: of all operations, only PingPong has messages of 0 bytes";
        return Err(Usage(sentence.to_owned()).into());
    }
    programs::want_full_profile();
    let program = match &args.imb {
        Some(path) => path.clone(),
        None => {
            programs::provide(["imb"])?;
            programs::folder()?.join("mpi/imb")
        }
    };
    let wanted = comparison::Options {
        rounds: args.rounds,
        mpi: args.mpi,
        program,
        ranks: args.ranks.map(|ranks| ranks as usize),
        operations: args.operations.clone(),
        lengths,
        variables: with_default(&args.env),
        accel: args.guests.accel,
        boot_timeout: Duration::from_nanos(args.guests.boot_timeout.0),
    };
    let pattern = args.nodes.clone();
    let nodes = move |client: &_| nodes_meant(client, &pattern);
    Ok(match comparison::compare(wanted, running, nodes, options.json)? {
        true => ExitCode::SUCCESS,
        false => EXIT_BAR_MISSED.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_a_name_and_a_value() {
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(variable("A_1=b=c"), pair("A_1", "b=c"));
        assert_eq!(variable("A="), pair("A", ""));
        for wrong in ["", "A", "=b", "A B=c"] {
            assert!(variable(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_provider_has_no_helper_thread_unless_the_user_wants_it() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            with_default(&[pair("A", "b")]),
            [pair("A", "b"), pair("OMX_PROGRESS", "0")]
        );
        assert_eq!(with_default(&[pair("OMX_PROGRESS", "1")]), [pair("OMX_PROGRESS", "1")]);
    }
}
