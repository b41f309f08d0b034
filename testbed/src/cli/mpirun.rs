//! `weft mpirun`: runs an MPI program in the nodes of a lab, and fails if it did not use Weft's libfabric provider.

use std::{
    collections::BTreeMap,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use super::common::{
    CommonOptions, Usage, agent,
    attached_command::{exit_code, stream},
    client, nodes_meant, show,
};
use crate::{
    guest_channel::{Exec, ExitStatus, GuestChannel},
    report::{say, table},
    supervisor_client::client::Client,
};

/// Time that a guest may take to say what its ranks have carried.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// Largest number of ranks: more need more memory than guests have.
const RANKS_MAX: i64 = 1024;

/// Run an MPI program in the nodes of a lab.
///
/// `mpirun` runs in the first node and starts ranks in the others with ssh; all messages take Weft's libfabric provider, also those
/// within a node. The exit status is the program's. If it is 0 but the provider of a rank carried no message, weft fails: the program has
/// used another transport. With `--json`, the program's output is on standard error.
#[derive(Debug, clap::Args)]
#[command(add = show(&[
    ("weft mpirun -n 4 -- /shared/build/heat", "4 ranks, evenly spread over the nodes"),
    ("weft mpirun -n 2 --nodes n1,n3 --mpi mpich -- /shared/build/heat", "with MPICH, in two nodes"),
]))]
pub(super) struct MpirunArgs {
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
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// An MPI implementation of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mpi {
    /// Open MPI 4.1 of Debian.
    Open,
    /// MPICH 5.0 out of its Python wheel.
    Mpich,
}

/// A node with the number of ranks that it runs.
type Share = (String, usize);

/// What the provider of one rank has carried.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Carried {
    node: String,
    /// Process identifier in the node.
    process: u64,
    sent_messages: u64,
    sent_bytes: u64,
    received_messages: u64,
    received_bytes: u64,
    resent_messages: u64,
}

/// Runs the program, and reports by the exit status whether it succeeded over the provider.
pub(super) fn run(options: &CommonOptions, args: &MpirunArgs) -> Result<ExitCode> {
    let client = client(options)?;
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
    let mut exec = args.mpi.exec(&shares, &statistics, &args.command);
    if options.json {
        let to_stderr = ["/bin/sh", "-c", "exec \"$@\" >&2", "sh"].map(str::to_owned);
        exec.argv.splice(0..0, to_stderr);
    }
    let status = stream(&channel, first, &exec)?;
    let carried = carried(&client, &shares, &statistics)?;
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

fn is_success(status: ExitStatus) -> bool {
    status.shell_code() == 0
}

/// Spreads ranks evenly over nodes, in their order; nodes without ranks are left out.
fn shares(nodes: &[String], ranks: usize) -> Vec<Share> {
    let (each, more) = (ranks / nodes.len().max(1), ranks % nodes.len().max(1));
    let shares = nodes
        .iter()
        .enumerate()
        .map(|(index, node)| (node.clone(), each + usize::from(index < more)));
    shares.filter(|(_, ranks)| *ranks > 0).collect()
}

/// Fails unless the node has the MPI implementation.
fn check_image(channel: &GuestChannel, node: &str, mpi: Mpi) -> Result<()> {
    let exec = Exec {
        argv: ["/bin/sh", "-c", "test -x \"$1\"", "sh", mpi.launcher()]
            .map(str::to_owned)
            .to_vec(),
        ..Exec::default()
    };
    let output = channel.exec(&exec)?.collect(ANSWER_TIME)?;
    ensure!(
        is_success(output.status),
        "{node} has no {}: nodes for MPI have `image = \"mpi\"` in the lab file",
        mpi.launcher()
    );
    Ok(())
}

/// Returns the path of a file in the nodes that no other run uses.
fn statistics_path() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("/tmp/weft-mpirun-{}-{}", std::process::id(), since.as_nanos())
}

impl Mpi {
    /// Returns the path of its `mpirun` in a node.
    fn launcher(self) -> &'static str {
        match self {
            Self::Open => "/usr/bin/mpirun",
            Self::Mpich => "/opt/mpich/bin/mpirun",
        }
    }

    /// Returns the command that runs a program over the provider. Each endpoint adds a line to the file `statistics`.
    fn exec(self, shares: &[Share], statistics: &str, command: &[String]) -> Exec {
        let ranks: usize = shares.iter().map(|(_, ranks)| ranks).sum();
        let hosts: Vec<_> = shares.iter().map(|(node, ranks)| format!("{node}:{ranks}")).collect();
        let (hosts, ranks) = (hosts.join(","), ranks.to_string());
        let (options, env): (Vec<&str>, &[(&str, &str)]) = match self {
            Self::Open => (
                vec![
                    "-n",
                    &ranks,
                    "--host",
                    &hosts,
                    "--bind-to",
                    "none",
                    "-x",
                    "FI_MX_STATISTICS",
                ],
                // Ranks that share a processor let each other run. Windows are emulated on messages.
                &[
                    ("OMPI_MCA_pml", "cm"),
                    ("OMPI_MCA_mtl", "ofi"),
                    ("OMPI_MCA_mtl_ofi_provider_include", "mx"),
                    ("OMPI_MCA_osc", "pt2pt"),
                    ("OMPI_MCA_mpi_yield_when_idle", "1"),
                ],
            ),
            // Without `NOLOCAL`, the ranks of a node would use memory that they share.
            Self::Mpich => (
                vec!["-n", &ranks, "-hosts", &hosts],
                &[
                    ("FI_PROVIDER", "mx"),
                    ("MPIR_CVAR_CH4_NETMOD", "ofi"),
                    ("MPIR_CVAR_NOLOCAL", "1"),
                ],
            ),
        };
        let env = env.iter().copied().chain([("FI_MX_STATISTICS", statistics)]);
        let argv = [self.launcher()].into_iter().chain(options).map(str::to_owned);
        Exec {
            argv: argv.chain(command.iter().cloned()).collect(),
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            ..Exec::default()
        }
    }
}

/// Returns what the providers of all ranks have carried, in the order of the nodes, and removes the files that say so.
fn carried(client: &Client, shares: &[Share], statistics: &str) -> Result<Vec<Carried>> {
    let mut all = Vec::new();
    for (node, _) in shares {
        let script = "if test -e \"$1\"; then cat \"$1\" && rm \"$1\"; fi";
        let exec = Exec {
            argv: ["/bin/sh", "-c", script, "sh", statistics].map(str::to_owned).to_vec(),
            ..Exec::default()
        };
        let output = agent(client, node)?.exec(&exec)?.collect(ANSWER_TIME);
        let output = output.with_context(|| format!("{node} does not say what its ranks have carried"))?;
        all.extend(of_node(node, &String::from_utf8_lossy(&output.stdout)));
    }
    Ok(all)
}

/// Parses the lines of a node's endpoints; those of one process are added up.
fn of_node(node: &str, text: &str) -> Vec<Carried> {
    let mut ranks = BTreeMap::<u64, Carried>::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("mx ")) {
        let fields: BTreeMap<_, _> = line.split(' ').filter_map(|word| word.split_once('=')).collect();
        let number = |name| fields.get(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let process = number("process");
        let rank = ranks.entry(process).or_insert_with(|| Carried {
            node: node.to_owned(),
            process,
            sent_messages: 0,
            sent_bytes: 0,
            received_messages: 0,
            received_bytes: 0,
            resent_messages: 0,
        });
        rank.sent_messages += number("sent_messages");
        rank.sent_bytes += number("sent_bytes");
        rank.received_messages += number("received_messages");
        rank.received_bytes += number("received_bytes");
        rank.resent_messages += number("resent_messages");
    }
    ranks.into_values().collect()
}

impl Carried {
    fn is_nothing(&self) -> bool {
        self.sent_messages + self.received_messages == 0
    }
}

/// Returns a sentence if the provider of some rank carried nothing. One rank alone has no other to send to.
fn silent_ranks(shares: &[Share], carried: &[Carried]) -> Option<String> {
    let of = |node: &str| {
        carried
            .iter()
            .filter(|rank| rank.node == node && !rank.is_nothing())
            .count()
    };
    let silent: Vec<_> = shares
        .iter()
        .map(|(node, ranks)| (node, ranks.saturating_sub(of(node))))
        .filter(|(_, silent)| *silent > 0)
        .collect();
    let ranks: usize = shares.iter().map(|(_, ranks)| ranks).sum();
    if silent.is_empty() || ranks == 1 {
        return None;
    }
    let total: usize = silent.iter().map(|(_, silent)| silent).sum();
    let places: Vec<_> = silent
        .iter()
        .map(|(node, silent)| format!("{node}: {silent}"))
        .collect();
    Some(format!(
        "{total} of {ranks} ranks carried no message over the provider mx ({}): the program used another transport, or none",
        places.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(nodes: &[&str], ranks: usize) -> Vec<Share> {
        let nodes: Vec<_> = nodes.iter().map(|&node| node.to_owned()).collect();
        shares(&nodes, ranks)
    }

    #[test]
    fn ranks_are_spread_evenly_over_the_nodes() {
        let share = |node: &str, ranks| (node.to_owned(), ranks);
        assert_eq!(
            spread(&["n1", "n2", "n3"], 4),
            [share("n1", 2), share("n2", 1), share("n3", 1)]
        );
        assert_eq!(spread(&["n1", "n2", "n3"], 2), [share("n1", 1), share("n2", 1)]);
        assert!(spread(&[], 2).is_empty());
    }

    #[test]
    fn both_implementations_are_given_hosts_the_provider_and_the_program() {
        let shares = spread(&["n1", "n2"], 3);
        let command = ["/shared/ring".to_owned(), "-v".to_owned()];
        let open = Mpi::Open.exec(&shares, "/tmp/s", &command);
        assert_eq!(
            open.argv.join(" "),
            "/usr/bin/mpirun -n 3 --host n1:2,n2:1 --bind-to none -x FI_MX_STATISTICS /shared/ring -v"
        );
        let has = |exec: &Exec, name: &str, value: &str| {
            let wanted = (name.to_owned(), value.to_owned());
            assert!(exec.env.contains(&wanted), "{:?}", exec.env);
        };
        has(&open, "OMPI_MCA_mtl_ofi_provider_include", "mx");
        has(&open, "FI_MX_STATISTICS", "/tmp/s");
        let mpich = Mpi::Mpich.exec(&shares, "/tmp/s", &command);
        assert_eq!(
            mpich.argv.join(" "),
            "/opt/mpich/bin/mpirun -n 3 -hosts n1:2,n2:1 /shared/ring -v"
        );
        has(&mpich, "FI_PROVIDER", "mx");
    }

    #[test]
    fn a_rank_whose_provider_carried_nothing_is_told_with_its_node() {
        let line = |process, messages| {
            format!(
                "mx process={process} endpoint=02:00:00:00:0a:01/0 sent_messages={messages} sent_bytes=80 \
                 received_messages=0 received_bytes=0 resent_messages=0\n"
            )
        };
        let shares = spread(&["n1", "n2"], 3);
        let mut carried = of_node("n1", &(line(7, 2) + &line(7, 3) + &line(8, 1) + "nonsense\n"));
        assert_eq!(
            (carried.len(), carried[0].sent_messages, carried[0].sent_bytes),
            (2, 5, 160)
        );
        carried.extend(of_node("n2", &line(7, 0)));
        assert_eq!(
            silent_ranks(&shares, &carried).as_deref(),
            Some(
                "1 of 3 ranks carried no message over the provider mx (n2: 1): the program used another transport, or none"
            )
        );
        carried.extend(of_node("n2", &line(9, 1)));
        assert_eq!(silent_ranks(&shares, &carried), None);
        assert_eq!(
            silent_ranks(&spread(&["n1"], 1), &[]),
            None,
            "it has no other rank to send to"
        );
    }
}
