//! A turn of one transport: one `mpirun` with all that is measured of it, and the check that its messages went over it.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context, Result, bail, ensure};

use super::{
    figure::Figure,
    frames::{Frames, PORTS, Protocol},
    hosts::{Hosts, NAMES, built},
    plan::Part,
    results,
    rival::Rival,
};
use testbed::mpi::imb::{self, Row};

/// The network between the hosts, so that Open MPI's TCP uses no other interface.
const NETWORK: &str = "10.77.9.0/24";
/// Frames that a turn of Open MPI's own TCP transport exchanges at least.
const FRAMES_OF_TURN_MIN: u64 = 200;
/// Time that `mpirun` may take, in seconds.
const PATIENCE_S: &str = "300";
/// Lines of what a program said that are shown where it fails.
const LINES_SHOWN: usize = 12;

/// Some ranks on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ranks {
    host: usize,
    /// The core that they share.
    core: usize,
    count: usize,
}

/// Returns where the ranks of a part run; `memory` of them measure memory.
fn placed(part: Part, memory: usize) -> [Ranks; 2] {
    let count = match part {
        Part::PingPong | Part::Inside | Part::Overlap | Part::Threads => 2,
        Part::Operations | Part::Sizes | Part::SizesInside => 4,
        Part::Memory => memory,
    };
    [0, 1].map(|core| Ranks {
        host: if is_inside(part) { 0 } else { core },
        core,
        count: if core == 0 { count.div_ceil(2) } else { count / 2 },
    })
}

/// Returns whether all ranks are on one host.
const fn is_inside(part: Part) -> bool {
    matches!(part, Part::Inside | Part::SizesInside)
}

/// Returns whether ranks that wait let others run: where there are more of them, or of their threads, than cores, or where the
/// helper thread of a rank that computes needs the core of one that waits.
const fn yields(part: Part) -> bool {
    !matches!(part, Part::PingPong | Part::Inside)
}

/// Computations that are to hide a transfer take so many times as long. Beside the one that computes there is one core for all that
/// moves the message on both hosts, which alone take more than the time of a transfer there.
const COMPUTATION_LONGER: &str = "4";

/// Returns the cores that a rank and its threads may use. Ranks that measure overlap bind their threads themselves.
fn cores(hosts: &Hosts, part: Part, core: usize) -> String {
    match part {
        Part::Overlap => hosts.all_cores(),
        _ => hosts.core(core),
    }
}

/// Returns the arguments of `imb` for these figures.
fn arguments_of_imb(part: Part, figures: &[Figure]) -> Vec<String> {
    let mut benchmarks: Vec<_> = figures.iter().map(|figure| figure.asked().0).collect();
    let mut lengths: Vec<_> = figures.iter().map(|figure| figure.asked().1).collect();
    benchmarks.dedup();
    lengths.sort_unstable();
    lengths.dedup();
    if part == Part::Operations {
        // That is the length of the operation without messages.
        lengths.retain(|length| *length > 0);
    }
    let lengths: Vec<_> = lengths.iter().map(ToString::to_string).collect();
    // Rounds within a turn, and seconds of each.
    let (rounds, seconds) = match part {
        Part::Operations | Part::Sizes | Part::SizesInside => ("3", "0.03"),
        Part::Overlap => ("15", "0.1"),
        _ => ("5", "0.05"),
    };
    let mut arguments: Vec<_> = match part {
        Part::Overlap => vec!["--overlap".to_owned()],
        _ => benchmarks.into_iter().map(str::to_owned).collect(),
    };
    let lengths = lengths.join(",");
    let options = ["--sizes", &lengths, "--rounds", rounds, "--seconds", seconds];
    arguments.extend(options.map(str::to_owned));
    arguments
}

/// Measures figures of one transport, and returns what the program reported. The frames of Open MPI's own TCP transport are counted.
pub fn measure(
    hosts: &Hosts,
    frames: &mut Frames,
    rival: Rival,
    figures: &[Figure],
    memory_ranks: usize,
) -> Result<Vec<Row>> {
    let part = figures.first().context("nothing to measure")?.part;
    let before = frames.so_far()?;
    let rows = run(hosts, rival, part, figures, &placed(part, memory_ranks))?;
    if let Some(protocol) = rival.frames_of().filter(|_| part != Part::Memory) {
        let there_and_back = rows.iter().filter(|row| row.benchmark() == "PingPong");
        let least: u64 = there_and_back.map(Row::operations).sum();
        frames.check(before, protocol, rival.name(), least.max(FRAMES_OF_TURN_MIN))?;
    }
    Ok(rows)
}

/// Runs the ranks of one transport, and returns what the program reported.
fn run(hosts: &Hosts, rival: Rival, part: Part, figures: &[Figure], ranks: &[Ranks]) -> Result<Vec<Row>> {
    let [json, statistics] = ["imb.json", "statistics"].map(Hosts::file);
    for file in [&json, &statistics] {
        if file.exists() {
            fs::remove_file(file).context("cannot remove an earlier result")?;
        }
    }
    let (program, arguments) = match part {
        Part::Memory => (built("mpi/memory")?, Vec::new()),
        Part::Threads => (built("mpi/threads")?, vec![json.to_string_lossy().into_owned()]),
        _ => {
            let mut arguments = arguments_of_imb(part, figures);
            if part == Part::Overlap {
                let beside = ["--cores", &hosts.all_cores(), "--longer", COMPUTATION_LONGER];
                arguments.extend(beside.map(str::to_owned));
            }
            arguments.extend(["--json".to_owned(), json.to_string_lossy().into_owned()]);
            (built("mpi/imb")?, arguments)
        }
    };
    let mut command = mpirun(hosts, rival, part)?;
    for (index, ranks) in ranks.iter().enumerate() {
        let slots = if is_inside(part) { 2 * ranks.count } else { ranks.count };
        command.args((index > 0).then_some(":"));
        command.args(["--host", &format!("{}:{slots}", NAMES[ranks.host])]);
        command.args(["-np", &ranks.count.to_string()]);
        command.args(["taskset", "-c", &cores(hosts, part, ranks.core)]);
        if rival.frames_of() == Some(Protocol::Esp) {
            command.arg(built("esp-run")?).arg("--never-fall-back");
        }
        command.arg(&program).args(&arguments);
    }
    if rival.is_mx() {
        command.env("FI_MX_STATISTICS", &statistics);
    }
    let output = hosts.output(&mut command)?;
    if !output.status.success() {
        bail!("mpirun failed ({}): {}", output.status, last_lines(&output.stderr));
    }
    let rows = match part {
        Part::Memory => results::of_memory(&String::from_utf8_lossy(&output.stdout))?,
        _ => imb::rows(&fs::read_to_string(&json).context("imb wrote no result")?)?,
    };
    if rival.is_mx() {
        let said = fs::read_to_string(&statistics).unwrap_or_default();
        let count = ranks.iter().map(|ranks| ranks.count).sum();
        results::check_carried(&said, count, &rows)?;
    }
    Ok(rows)
}

/// Makes the command with all but the ranks. What is started by it has its environment: nothing goes over ssh.
fn mpirun(hosts: &Hosts, rival: Rival, part: Part) -> Result<Command> {
    let mut command = mpirun_command(hosts, yields(part));
    command
        .args(rival.transport())
        .env_remove("FI_PROVIDER")
        .env_remove("FI_PROVIDER_PATH")
        .env_remove("FI_MX_STATISTICS")
        .env_remove("OMX_PROGRESS");
    if rival.frames_of().is_some() {
        command.args(options_of_tcp());
    }
    if rival.is_mx() {
        command.env("FI_PROVIDER_PATH", provider()?);
    }
    if rival == Rival::MxWithoutHelper {
        command.env("OMX_PROGRESS", "0");
    }
    Ok(command)
}

/// Returns the arguments with which Open MPI's own TCP uses the network between the hosts, and ports whose segments are counted.
pub fn options_of_tcp() -> Vec<String> {
    let range = (PORTS.end - PORTS.start).to_string();
    let options = [
        ("btl_tcp_if_include", NETWORK),
        ("btl_tcp_port_min_v4", &PORTS.start.to_string()),
        ("btl_tcp_port_range_v4", &range),
    ];
    let words = options.iter().flat_map(|(name, value)| ["--mca", *name, *value]);
    words.map(str::to_owned).collect()
}

/// Makes the command `mpirun` with what every run between the hosts needs.
pub fn mpirun_command(hosts: &Hosts, yields: bool) -> Command {
    let mut command = hosts.command_on_all_cores("mpirun");
    command
        .args(["--bind-to", "none", "--timeout", PATIENCE_S, "--mca", "plm_rsh_agent"])
        .arg(Hosts::agent())
        .args(["--mca", "mpi_yield_when_idle", if yields { "1" } else { "0" }])
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("TMPDIR", Hosts::file(""));
    command
}

/// Returns the folder of the provider.
fn provider() -> Result<PathBuf> {
    let folder = built("libfabric")?;
    ensure!(
        folder.join("libmx-fi.so").exists(),
        "the provider is missing: `scripts/provider` builds it"
    );
    Ok(folder)
}

/// Returns the end of what a program said, on one line.
pub fn last_lines(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let is_text = |line: &&str| line.chars().any(char::is_alphanumeric);
    let lines: Vec<_> = said.lines().map(str::trim).filter(is_text).collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].join("; ")
}

/// Returns the versions of Open MPI and libfabric.
pub fn versions() -> Result<[String; 2]> {
    let first_of = |program: &str, line_with: &str| {
        let output = Command::new(program)
            .arg("--version")
            .output()
            .with_context(|| format!("cannot run {program}"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = said.lines().find(|line| line.contains(line_with));
        let version = line.and_then(|line| line.split_whitespace().last());
        Ok::<_, anyhow::Error>(version.unwrap_or("of an unknown version").to_owned())
    };
    Ok([first_of("mpirun", "mpirun")?, first_of("fi_info", "libfabric:")?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::mpi::plan::{LENGTHS, OPERATIONS, operation};

    #[test]
    fn ranks_are_spread_over_hosts_and_cores() {
        let placed = |part, memory| placed(part, memory).map(|ranks| (ranks.host, ranks.core, ranks.count));
        assert_eq!(placed(Part::PingPong, 64), [(0, 0, 1), (1, 1, 1)]);
        assert_eq!(placed(Part::Inside, 64), [(0, 0, 1), (0, 1, 1)]);
        assert_eq!(placed(Part::Operations, 64), [(0, 0, 2), (1, 1, 2)]);
        assert_eq!(placed(Part::SizesInside, 64), [(0, 0, 2), (0, 1, 2)]);
        assert_eq!(placed(Part::Memory, 63), [(0, 0, 32), (1, 1, 31)]);
    }

    #[test]
    fn one_program_measures_all_lengths_of_all_operations() {
        let figures: Vec<_> = OPERATIONS
            .iter()
            .flat_map(|(name, _)| LENGTHS.map(|length| operation(name, length)))
            .collect();
        let arguments = arguments_of_imb(Part::Operations, &figures).join(" ");
        assert_eq!(
            arguments,
            "SendRecv Exchange Allreduce Reduce Allgather Gather Scatter Alltoall Bcast Barrier --sizes 16,4096,131072 \
             --rounds 3 --seconds 0.03"
        );
    }

    #[test]
    fn failures_show_the_end_of_what_was_said() {
        let said: String = (0..20).map(|line| format!("line {line}\n----\n")).collect();
        let shown = last_lines(said.as_bytes());
        assert!(
            shown.starts_with("line 8; line 9") && shown.ends_with("line 19"),
            "{shown}"
        );
    }
}
