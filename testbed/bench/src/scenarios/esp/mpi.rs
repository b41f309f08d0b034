//! Open MPI's own TCP transport between the two hosts, by sockets of ESP and of TCP: operations, and kernels of computations whose
//! results are checked. The ranks of one host use shared memory with all rivals.

use std::fs;

use anyhow::{Context, Result, bail, ensure};

use super::figure::{Figure, Kernel, Kind, Rival};
use crate::scenarios::mpi::{
    frames::Frames,
    hosts::{Hosts, NAMES, built},
    launch::{last_lines, mpirun_command, options_of_tcp},
};
use testbed::{
    harness::Sample,
    mpi::imb::{self, Row},
};

/// Hosts of the ranks, in turns, so that the first two ranks are apart: those that go back and forth.
const HOSTS_OF_RANKS: [usize; 4] = [0, 1, 0, 1];
/// Frames that a kernel exchanges at least.
const FRAMES_OF_KERNEL_MIN: u64 = 200;

/// Measures figures of one rival: operations, or a kernel.
pub fn measure(hosts: &Hosts, frames: &mut Frames, rival: Rival, figures: &[Figure]) -> Result<Vec<Sample>> {
    match figures.first().context("nothing to measure")?.kind {
        Kind::Kernel(kernel) => Ok(vec![run_kernel(hosts, frames, rival, kernel)?]),
        _ => run_operations(hosts, frames, rival, figures),
    }
}

/// Runs a program on four ranks, and returns what it said.
fn run(hosts: &Hosts, rival: Rival, program: &str, arguments: &[String]) -> Result<String> {
    let program = built(&format!("mpi/{program}"))?;
    let mut command = mpirun_command(hosts, true);
    command.args(["--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp"]);
    command.args(options_of_tcp());
    for (rank, host) in HOSTS_OF_RANKS.into_iter().enumerate() {
        command.args((rank > 0).then_some(":"));
        command.args(["--host", &format!("{}:2", NAMES[host]), "-np", "1"]);
        command.args(["taskset", "-c", &hosts.core(host)]);
        if rival == Rival::Esp {
            command.arg(built("esp-run")?).arg("--never-fall-back");
        }
        command.arg(&program).args(arguments);
    }
    let output = hosts.output(&mut command)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let why = [said.as_bytes(), &output.stderr].concat();
        bail!(
            "mpirun over {} failed ({}): {}",
            rival.name(),
            output.status,
            last_lines(&why)
        );
    }
    Ok(said)
}

fn arguments_of_imb(figures: &[Figure], json: &str) -> Vec<String> {
    let operations = figures.iter().filter_map(|figure| match figure.kind {
        Kind::Operation { benchmark, bytes } => Some((benchmark, bytes)),
        _ => None,
    });
    let (mut benchmarks, mut lengths): (Vec<_>, Vec<_>) = operations.unzip();
    benchmarks.dedup();
    lengths.sort_unstable();
    lengths.dedup();
    let lengths: Vec<_> = lengths.iter().map(ToString::to_string).collect();
    let lengths = lengths.join(",");
    let options = [
        "--sizes",
        &lengths,
        "--rounds",
        "3",
        "--seconds",
        "0.03",
        "--json",
        json,
    ];
    benchmarks.into_iter().chain(options).map(str::to_owned).collect()
}

fn run_operations(hosts: &Hosts, frames: &mut Frames, rival: Rival, figures: &[Figure]) -> Result<Vec<Sample>> {
    let before = frames.so_far()?;
    let json = Hosts::file("imb.json");
    if json.exists() {
        fs::remove_file(&json).context("cannot remove an earlier result")?;
    }
    run(hosts, rival, "imb", &arguments_of_imb(figures, &json.to_string_lossy()))?;
    let rows = imb::rows(&fs::read_to_string(&json).context("imb wrote no result")?)?;
    let there_and_back = rows.iter().filter(|row| row.benchmark() == "PingPong");
    let least = there_and_back.map(Row::operations).sum();
    frames.check(before, rival.frames_of(), rival.name(), least)?;
    figures.iter().map(|figure| sample_of(*figure, &rows)).collect()
}

fn sample_of(figure: Figure, rows: &[Row]) -> Result<Sample> {
    let Kind::Operation { benchmark, bytes } = figure.kind else {
        bail!("imb does not measure this");
    };
    let is_it = |row: &&Row| row.benchmark() == benchmark && row.bytes() == bytes as f64;
    let row = rows.iter().find(is_it);
    let (row, us) = row
        .and_then(|row| Some((row, row.number("median_us")?)))
        .with_context(|| format!("the result of {benchmark} at {bytes} bytes is missing"))?;
    Ok(Sample {
        more: row.fields().clone(),
        ..Sample::new(us * 1e3)
    })
}

fn run_kernel(hosts: &Hosts, frames: &mut Frames, rival: Rival, kernel: Kernel) -> Result<Sample> {
    let before = frames.so_far()?;
    let [program, class] = kernel.program();
    let said = run(hosts, rival, program, &[class.to_owned()])?;
    frames.check(before, rival.frames_of(), rival.name(), FRAMES_OF_KERNEL_MIN)?;
    Ok(Sample::new(
        operations_per_second(&said).with_context(|| format!("the kernel {program}"))?,
    ))
}

/// Reads what a kernel printed, which must say that its result is right.
fn operations_per_second(said: &str) -> Result<f64> {
    let field = |name: &str| {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(name));
        line.and_then(|rest| rest.trim_start().strip_prefix('=')).map(str::trim)
    };
    let verdict = field("Verification").context("printed no verification")?;
    ensure!(
        verdict == "SUCCESSFUL",
        "computed something else than a serial run: {verdict}"
    );
    let speed = field("Mop/s total").context("printed no speed")?;
    Ok(speed.parse::<f64>().context("printed no number")? * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_whose_result_is_wrong_has_no_speed() {
        let said = |verdict: &str| {
            format!(" Mop/s total     =                   505.16\n Verification    =               {verdict}\n")
        };
        assert_eq!(operations_per_second(&said("SUCCESSFUL")).unwrap(), 505.16e6);
        let wrong = operations_per_second(&said("UNSUCCESSFUL")).unwrap_err().to_string();
        assert!(wrong.contains("something else than a serial run"), "{wrong}");
        assert!(operations_per_second("").is_err());
    }

    #[test]
    fn one_program_measures_all_lengths_of_all_operations() {
        let figures = ["PingPong", "Alltoall"].map(|benchmark| {
            [16, 1024].map(|bytes| Figure {
                kind: Kind::Operation { benchmark, bytes },
                mtu: 1500,
            })
        });
        assert_eq!(
            arguments_of_imb(figures.as_flattened(), "f").join(" "),
            "PingPong Alltoall --sizes 16,1024 --rounds 3 --seconds 0.03 --json f"
        );
    }
}
