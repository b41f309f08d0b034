//! `omx_tune --check`: says whether an interface is fit for messages, and which commands make it so (papers.md M-OM10).
//! It changes nothing.

use std::{fmt::Write as _, fs, io::Read, path::Path, process::Command};

use anyhow::ensure;
use clap::Parser;
use netif::Interface;
use omx::{Board, BoardPeer, Error};
use serde::Serialize;
use serde_json::json;
use weft_authority::BoardStatus;

use super::{chosen, interrupts_of};
use crate::run::print_line;

/// MTU from which on large messages are fast.
const MTU_ADVISED: usize = 9000;
/// Interrupts that come later than this delay every message noticeably.
const COALESCING_US_MAX: u32 = 10;
/// Processors that take longer to wake up delay every message for which a thread sleeps.
const WAKE_UP_US_MAX: u32 = 10;

/// Says whether an interface is fit for messages, and what would make it so. Changes nothing.
#[derive(Debug, Parser)]
#[command(name = "omx_tune", version)]
pub struct Arguments {
    /// Check; there is nothing else to do
    #[arg(long, required = true)]
    check: bool,
    /// Only this board
    #[arg(short = 'b', value_name = "NUMBER")]
    board: Option<u32>,
    /// Print one line of JSON per board
    #[arg(long)]
    pub json: bool,
}

/// The result of one check.
#[derive(Debug, Serialize, PartialEq, Eq)]
struct Finding {
    what: &'static str,
    /// `None`: it cannot be found out here.
    fit: Option<bool>,
    found: String,
    /// The command that changes it.
    command: Option<String>,
}

impl Finding {
    /// Makes the finding for what cannot be found out here.
    fn unknown(what: &'static str, found: &str) -> Self {
        Self {
            what,
            fit: None,
            found: found.to_owned(),
            command: None,
        }
    }
}

/// Runs `omx_tune`: the exit status is 0 when everything is fit, and 1 when something could be better.
///
/// # Errors
/// No board.
pub fn main(arguments: &Arguments) -> anyhow::Result<std::process::ExitCode> {
    let boards = match arguments.board {
        Some(_) => chosen(arguments.board)?,
        // What makes a board of an interface is asked for, too.
        None => Board::numbered()?,
    };
    ensure!(!boards.is_empty(), "there is no Ethernet interface");
    let mut all_fit = true;
    for board in &boards {
        let findings = look(board);
        all_fit &= findings.iter().all(|finding| finding.fit != Some(false));
        print_line(&if arguments.json {
            json!({ "board": board.board_number(), "interface": board.interface().name, "findings": findings })
                .to_string()
        } else {
            describe(board, &findings)
        })?;
    }
    Ok(if all_fit {
        std::process::ExitCode::SUCCESS
    } else {
        std::process::ExitCode::FAILURE
    })
}

fn describe(board: &Board, findings: &[Finding]) -> String {
    let mut text = format!("board {} ({})", board.board_number(), board.interface().name);
    for finding in findings {
        let mark = match finding.fit {
            Some(true) => "ok",
            Some(false) => "!!",
            None => "??",
        };
        // Writing to a string does not fail.
        let _ = write!(text, "\n  {mark}  {}: {}", finding.what, finding.found);
        if let Some(command) = finding.command.as_ref().filter(|_| finding.fit != Some(true)) {
            let _ = write!(text, "\n        {command}");
        }
    }
    text
}

fn look(board: &Board) -> Vec<Finding> {
    let interface = board.interface();
    let name = &interface.name;
    let status = board.status();
    let preset = status.as_ref().ok().map(|(status, _)| &*status.preset);
    let too_small = too_small(interface, preset);
    let mtu_wanted = weft_authority::mtu_needed(preset).max(MTU_ADVISED);
    vec![
        Finding {
            what: "link",
            fit: Some(interface.up),
            found: if interface.up { "up" } else { "down" }.to_owned(),
            command: Some(format!("ip link set {name} up")),
        },
        Finding {
            what: "MTU",
            fit: Some(too_small.is_none() && interface.mtu >= MTU_ADVISED),
            found: match too_small {
                Some(needed) => format!("{} bytes, which is too small: {needed}", interface.mtu),
                None => format!("{} bytes; large messages are faster with {MTU_ADVISED}", interface.mtu),
            },
            command: Some(format!(
                "ip link set {name} mtu {mtu_wanted}   (on every host and switch of the network)"
            )),
        },
        privileges(board, &status),
        coalescing_now(name),
        interrupts(name, &fs::read_to_string("/proc/interrupts").unwrap_or_default()),
        governor(Path::new("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        idle_states(
            Path::new("/sys/devices/system/cpu/cpu0/cpuidle"),
            Path::new("/dev/cpu_dma_latency"),
            status.ok().and_then(|(status, _)| status.cpu_latency_us_max),
            name,
        ),
        irqbalance(),
    ]
}

/// Returns the MTU that messages need at all, as text, with the sizes of an authority that runs or the smallest ones;
/// `None` if it is large enough.
pub(crate) fn too_small(interface: &Interface, preset: Option<&str>) -> Option<String> {
    let needed = weft_authority::mtu_needed(preset);
    let what = preset.map_or_else(
        || "messages".to_owned(),
        |preset| format!("omxd's sizes on the wire ({preset})"),
    );
    (interface.mtu < needed).then(|| format!("{what} need {needed}"))
}

/// Returns the output of a program, if it exists and succeeds.
fn run(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn privileges(board: &Board, asked: &Result<(BoardStatus, Vec<BoardPeer>), Error>) -> Finding {
    Finding {
        what: "privileges",
        fit: Some(asked.is_ok()),
        found: match asked {
            Ok((status, _)) => format!("omxd (process {}) serves this user", status.pid),
            Err(error) => error.to_string(),
        },
        command: Some(format!(
            "systemctl enable --now omxd@{}; usermod -aG {} USER",
            board.interface().name,
            weft_authority::group_in_force(board.interface()).unwrap_or_else(|| "omx".to_owned())
        )),
    }
}

/// Returns how late interrupts of an interface come, if that is too late.
pub(crate) fn late_interrupts(name: &str) -> Option<String> {
    let finding = coalescing_now(name);
    (finding.fit == Some(false)).then_some(finding.found)
}

fn coalescing_now(name: &str) -> Finding {
    coalescing(name, run("ethtool", &["-c", name]))
}

/// Judges what `ethtool -c` prints.
fn coalescing(name: &str, printed: Option<String>) -> Finding {
    let what = "interrupt coalescing";
    let command = Some(format!("ethtool -C {name} adaptive-rx off rx-usecs 0"));
    let Some(printed) = printed else {
        return Finding::unknown(what, "the driver says nothing about it, or ethtool is missing");
    };
    let value = |key: &str| {
        printed.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        })
    };
    let adaptive = printed.lines().any(|line| line.starts_with("Adaptive RX: on"));
    let us = value("rx-usecs").and_then(|text| text.parse::<u32>().ok());
    let (fit, found) = match (us, adaptive) {
        (Some(us), true) => (Some(false), format!("{us} µs, adaptive")),
        (Some(us), false) => (Some(us <= COALESCING_US_MAX), format!("{us} µs")),
        (None, true) => (Some(false), "adaptive".to_owned()),
        (None, false) => (None, "the driver does not say".to_owned()),
    };
    Finding {
        what,
        fit,
        found,
        command,
    }
}

/// Judges the lines in the table of interrupts that name the interface.
fn interrupts(name: &str, table: &str) -> Finding {
    let numbers = interrupts_of(name, table);
    let what = "interrupt binding";
    if numbers.is_empty() {
        return Finding::unknown(what, "no interrupt bears the interface's name");
    }
    let bound = numbers.iter().all(|number| {
        let list = fs::read_to_string(format!("/proc/irq/{number}/smp_affinity_list")).unwrap_or_default();
        !list.is_empty() && !list.contains([',', '-'])
    });
    Finding {
        what,
        fit: Some(bound),
        found: format!(
            "{} interrupts, {}",
            numbers.len(),
            if bound {
                "each bound to one processor"
            } else {
                "not all bound to one processor each"
            }
        ),
        command: Some(format!(
            "echo PROCESSOR > /proc/irq/{}/smp_affinity_list   (the processor beside the program's)",
            numbers[0]
        )),
    }
}

fn governor(path: &Path) -> Finding {
    let what = "power saving";
    match fs::read_to_string(path) {
        Ok(text) => Finding {
            what,
            fit: Some(text.trim() == "performance"),
            found: format!("processor frequency governor {}", text.trim()),
            command: Some("cpupower frequency-set -g performance; cpupower idle-set -D 10".to_owned()),
        },
        Err(_) => Finding::unknown(what, "no frequency governor to be seen"),
    }
}

/// Judges the idle states of a processor, by what limits them at the moment and by what `omxd` limits them to while
/// endpoints are open.
fn idle_states(states: &Path, limit: &Path, by_omxd_us: Option<u32>, interface: &str) -> Finding {
    let what = "idle processors";
    let command = Some(format!(
        "mkdir -p /etc/open-mx; echo OMX_CPU_LATENCY_US_MAX=0 >>/etc/open-mx/open-mx.conf; systemctl restart omxd@{interface}   (costs power while endpoints are open)"
    ));
    // Four bytes that only root may read.
    let now_us = fs::File::open(limit)
        .and_then(|mut file| {
            let mut bytes = [0; 4];
            file.read_exact(&mut bytes).map(|()| i32::from_ne_bytes(bytes))
        })
        .map_or(u32::MAX, |us| us.try_into().unwrap_or(0));
    let limit_us = now_us.min(by_omxd_us.unwrap_or(u32::MAX));
    let read = |path: &Path, name: &str| Some(fs::read_to_string(path.join(name)).ok()?.trim().to_owned());
    let deepest = fs::read_dir(states).ok().and_then(|entries| {
        let states = entries.filter_map(|entry| {
            let path = entry.ok()?.path();
            let us = read(&path, "latency")?.parse::<u32>().ok()?;
            let used = us <= limit_us && read(&path, "disable").is_none_or(|disabled| disabled == "0");
            used.then_some((us, read(&path, "name")?))
        });
        states.max()
    });
    match deepest {
        None => Finding::unknown(what, "no idle states to be seen"),
        Some((us, name)) => {
            let while_open = if limit_us < now_us {
                " while endpoints are open"
            } else {
                ""
            };
            let left_to_host = name.starts_with("haltpoll");
            Finding {
                what,
                fit: Some(us <= WAKE_UP_US_MAX && !left_to_host),
                found: if left_to_host {
                    "halt, and this virtual machine's host has to wake them up".to_owned()
                } else if us == 0 {
                    format!("do not halt{while_open}")
                } else {
                    format!("take up to {us} µs to wake up (state {name}){while_open}")
                },
                command,
            }
        }
    }
}

fn irqbalance() -> Finding {
    let runs = fs::read_dir("/proc").is_ok_and(|mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| {
                fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm.trim() == "irqbalance")
            })
        })
    });
    Finding {
        what: "irqbalance",
        fit: Some(!runs),
        found: if runs {
            "runs and moves interrupts about"
        } else {
            "does not run"
        }
        .to_owned(),
        command: Some("systemctl disable --now irqbalance".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coalescing_is_judged_by_delay_and_adaptivity() {
        let fit = |text: &str| coalescing("eth0", Some(text.to_owned())).fit;
        assert_eq!(fit("Adaptive RX: off  TX: off\nrx-usecs:\t0\n"), Some(true));
        assert_eq!(fit("Adaptive RX: off  TX: off\nrx-usecs:\t75\n"), Some(false));
        assert_eq!(fit("Adaptive RX: on  TX: off\nrx-usecs:\t3\n"), Some(false));
        assert_eq!(fit("Adaptive RX: n/a  TX: n/a\nrx-usecs:\tn/a\n"), None);
        assert_eq!(coalescing("eth0", None).fit, None);
    }

    #[test]
    fn interrupts_are_found_by_the_interface_name() {
        let table = "  24:  1  2  PCI-MSI  eth0-rx-0\n  25:  1  2  PCI-MSI  eth01\n";
        assert!(interrupts("eth0", table).found.starts_with("1 interrupts"));
        assert_eq!(interrupts("eth9", table).fit, None);
    }

    #[test]
    fn idle_states_are_judged_by_the_deepest_one_that_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let (states, limit) = (dir.path().join("cpuidle"), dir.path().join("limit"));
        let idle = |by_omxd_us| idle_states(&states, &limit, by_omxd_us, "eth1");
        assert_eq!(idle(None).fit, None);
        let add = |number: u32, name: &str, us: u32| {
            let state = states.join(format!("state{number}"));
            fs::create_dir_all(&state).unwrap();
            for (file, text) in [("name", name), ("latency", &us.to_string()), ("disable", "0")] {
                fs::write(state.join(file), format!("{text}\n")).unwrap();
            }
            state
        };
        add(0, "POLL", 0);
        assert_eq!(idle(None).fit, Some(true));
        let halt = add(1, "haltpoll idle", 1);
        assert_eq!(idle(None).fit, Some(false), "the host takes its time");
        fs::remove_dir_all(halt).unwrap();
        add(1, "C1", 2);
        let deep = add(2, "C6", 133);
        let finding = idle(None);
        assert_eq!(finding.fit, Some(false));
        assert!(finding.found.contains("133 µs") && finding.found.contains("C6"));
        let command = finding.command.unwrap();
        assert!(command.contains("OMX_CPU_LATENCY_US_MAX=0") && command.contains("omxd@eth1"));
        let kept = idle(Some(0));
        assert_eq!(
            (kept.fit, kept.found.as_str()),
            (Some(true), "do not halt while endpoints are open")
        );
        assert_eq!(idle(Some(200)).fit, Some(false));
        for (us, fit) in [(100, true), (2, true), (0, true), (133, false)] {
            fs::write(&limit, i32::to_ne_bytes(us)).unwrap();
            assert_eq!(idle(None).fit, Some(fit), "at most {us} µs");
        }
        fs::remove_file(&limit).unwrap();
        fs::write(deep.join("disable"), "1\n").unwrap();
        assert_eq!(idle(None).fit, Some(true));
    }

    #[test]
    fn what_is_unfit_is_shown_with_the_command_that_changes_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("governor");
        fs::write(&path, "powersave\n").unwrap();
        let finding = governor(&path);
        assert_eq!(finding.fit, Some(false));
        assert!(finding.command.unwrap().contains("performance"));
        assert_eq!(governor(&dir.path().join("none")).fit, None);
    }
}
