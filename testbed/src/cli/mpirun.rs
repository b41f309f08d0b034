//! `weft mpirun`: runs an MPI program in the nodes of a lab, and fails if it did not use Weft's libfabric provider.

use std::process::ExitCode;

use anyhow::{Result, bail};

use super::common::{
    CommonOptions, Usage, agent,
    attached_command::{exit_code, stream},
    client, nodes_meant, show,
};
use crate::{
    mpi::{
        Carried, Mpi, Transport, check_image, collect_carried, has_program, is_success, shares, silent_ranks,
        statistics_path,
    },
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
    /// Words without `--` before them, which are answered with how a program is written.
    #[arg(hide = true, value_name = "WORD")]
    stray: Vec<String>,
    /// The program, as a path in the nodes, and its arguments.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Exit code of a program that was not found, as that of a shell.
const EXIT_NOT_FOUND: u8 = 127;

/// Checks that the program stands behind `--`.
fn check_words(args: &MpirunArgs) -> Result<(), Usage> {
    let words: Vec<&str> = args.of_lab.iter().chain(&args.stray).map(String::as_str).collect();
    let (is_lab, program) = match (&*args.command, &*words) {
        ([_, ..], [] | [_]) => return Ok(()),
        ([], []) => (None, vec!["PROGRAM"]),
        // The first word may be the lab, and a path cannot.
        ([], [lab, program @ ..]) if !lab.contains('/') && !program.is_empty() => (Some(*lab), program.to_vec()),
        (program, stray) => (
            None,
            stray
                .iter()
                .copied()
                .chain(program.iter().map(String::as_str))
                .collect(),
        ),
    };
    let lab = is_lab.map_or_else(String::new, |lab| format!(" {lab}"));
    let ranks = args.ranks.map_or_else(String::new, |ranks| format!(" -n {ranks}"));
    let right = program.join(" ");
    Err(Usage(format!(
        "the program and its arguments stand behind `--`: `weft mpirun{lab}{ranks} -- {right}`"
    )))
}

/// Runs the program, and reports by the exit status whether it succeeded over the provider.
pub(super) fn run(options: &CommonOptions, args: &MpirunArgs) -> Result<ExitCode> {
    check_words(args)?;
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
    for (node, _) in &shares {
        if !has_program(&agent(&client, node)?, &args.command[0])? {
            say(format_args!(
                "weft: {node} has no program {}: it is a path in the nodes, or in their PATH",
                args.command[0]
            ));
            return Ok(EXIT_NOT_FOUND.into());
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_dashes_is_answered_with_how_it_is_written() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            mpirun: MpirunArgs,
        }
        let check = |words: &str| {
            let line = <Line as clap::Parser>::try_parse_from(["weft"].into_iter().chain(words.split_whitespace()));
            check_words(&line.unwrap_or_else(|error| panic!("{words}: {error}")).mpirun)
                .map_err(|error| error.to_string())
        };
        assert_eq!(check("-n 2 -- /bin/heat 5"), Ok(()));
        assert_eq!(check("lab -n 2 -- /bin/heat 5"), Ok(()));
        for (words, right) in [
            ("-n 2 /bin/heat", "weft mpirun -n 2 -- /bin/heat`"),
            ("-n 2 /bin/heat 5 6", "weft mpirun -n 2 -- /bin/heat 5 6`"),
            ("lab /bin/heat 5", "weft mpirun lab -- /bin/heat 5`"),
            ("-n 4", "weft mpirun -n 4 -- PROGRAM`"),
        ] {
            let said = check(words).expect_err(words);
            assert!(said.ends_with(right), "{words}: {said}");
        }
    }
}
