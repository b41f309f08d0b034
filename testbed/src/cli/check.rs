//! `weft check`: whether this machine can run labs, and what would improve it. It installs nothing; the guest image and
//! the verdict on KVM stay in the cache, where the first lab would put them.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use anyhow::Result;
use serde::Serialize;

use crate::{
    accel::{self, Accel, AccelChoice},
    image::{self, Cache, GuestBinaries, MissingTool, Recipe},
    programs,
    qemu::Qemu,
    report::{progress::Progress, say, table},
};

use super::common::{CommonOptions, NoArgs};

/// A finding is the result of one check.
#[derive(Debug, Serialize)]
struct Finding {
    /// Subject of the check.
    what: String,
    /// State of the subject.
    state: State,
    /// Result in words.
    found: String,
    /// Remedy, if there is one; else empty.
    remedy: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Ok,
    /// It works, and could be better.
    Note,
    Missing,
}

/// Prints the findings; fails when a lab could not run.
pub(super) fn run(options: &CommonOptions, _: &NoArgs) -> Result<ExitCode> {
    let mut findings = vec![processors(), memory()];
    let (qemu, of_qemu) = qemu();
    findings.extend(of_qemu);
    findings.extend(image::missing_tools().into_iter().map(missing_tool));
    findings.push(program("vnicd"));
    findings.extend(["weft-agent", "guest-tools", "libopen-mx.so.0", "libesp-preload.so"].map(guest_program));
    // The image, and the guest that tests KVM, need everything that was checked before.
    let all_built = GuestBinaries::locate().is_ok_and(|binaries| binaries.find("guest-tools").is_ok());
    if let Some(qemu) = qemu.filter(|_| all_built && findings.iter().all(|finding| finding.state != State::Missing)) {
        findings.extend(image_and_accel(&qemu));
    }
    if options.json {
        table::print_json(&findings)?;
    } else {
        io::stdout().lock().write_all(text(&findings).as_bytes())?;
    }
    let able = findings.iter().all(|finding| finding.state != State::Missing);
    if !options.json {
        say(if able {
            "this machine can run labs"
        } else {
            "something is missing: see the remedies"
        });
    }
    Ok(if able { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Renders one line per finding with the remedy below it, since sentences do not fit into columns.
fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let state = match finding.state {
            State::Ok => "ok",
            State::Note => "note",
            State::Missing => "MISSING",
        };
        text += &format!("{state:8}{}: {}\n", finding.what, finding.found);
        if !finding.remedy.is_empty() {
            text += &format!("{:8}  {}\n", "", finding.remedy);
        }
    }
    text
}

fn finding(what: &str, state: State, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding {
        what: what.to_owned(),
        state,
        found: found.into(),
        remedy: remedy.into(),
    }
}

fn processors() -> Finding {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    if count < 2 {
        return finding(
            "processors",
            State::Note,
            "1",
            "two guests and their switch are slow on one processor",
        );
    }
    finding("processors", State::Ok, count.to_string(), "")
}

/// Memory in MiB for two guests of the usual size, `vnicd`, and some reserve.
const MEMORY_MIB_WANTED: u64 = 600;

fn memory() -> Finding {
    match crate::supervisor::memory_available_mib() {
        Ok(mib) if mib >= MEMORY_MIB_WANTED => finding("memory", State::Ok, format!("{mib} MiB available"), ""),
        Ok(mib) => finding(
            "memory",
            State::Missing,
            format!("{mib} MiB available"),
            format!("two guests need about {MEMORY_MIB_WANTED} MiB: end other programs"),
        ),
        Err(error) => finding("memory", State::Note, format!("{error:#}"), ""),
    }
}

fn qemu() -> (Option<Qemu>, Vec<Finding>) {
    let qemu = match Qemu::discover() {
        Ok(qemu) => qemu,
        Err(error) => {
            let remedy = "apt-get install --no-install-recommends qemu-system-x86 seabios";
            return (None, vec![finding("QEMU", State::Missing, error.to_string(), remedy)]);
        }
    };
    let found = format!("{} ({})", qemu.version(), qemu.binary().display());
    let mut findings = vec![finding("QEMU", State::Ok, found, "")];
    for gain in qemu.newer_would_add() {
        let remedy = "a newer QEMU, such as that of Debian 13 or Debian 12 backports";
        findings.push(finding("QEMU's age", State::Note, format!("without {gain}"), remedy));
    }
    (Some(qemu), findings)
}

fn image_and_accel(qemu: &Qemu) -> Vec<Finding> {
    let progress = Progress::new(0);
    let mut findings = Vec::new();
    let image = Cache::open_default().and_then(|cache| {
        let mut say = |step: image::Step| progress.say(&step.to_string());
        image::build(&Recipe::minimal(), &cache, &GuestBinaries::locate()?, &mut say).map(|image| (cache, image))
    });
    let (cache, image) = match image {
        Ok(found) => found,
        Err(error) => {
            findings.push(finding("guest image", State::Missing, error.to_string(), ""));
            return findings;
        }
    };
    findings.push(finding(
        "guest image",
        State::Ok,
        format!("kernel {}", image.kernel_release),
        "",
    ));
    progress.say("finding out what runs the guests");
    findings.push(match accel::resolve(AccelChoice::Auto, qemu, &image, &cache) {
        Ok(verdict) if verdict.accel == Accel::Kvm => finding("accelerator", State::Ok, "kvm", verdict.reason),
        Ok(verdict) => finding(
            "accelerator",
            State::Note,
            format!("tcg: {}", verdict.reason),
            "labs run, about ten times slower than with a KVM that works",
        ),
        Err(error) => finding("accelerator", State::Missing, error.to_string(), ""),
    });
    findings
}

fn missing_tool(missing: MissingTool) -> Finding {
    let remedy = format!("apt-get install --no-install-recommends {}", missing.package);
    finding(missing.tool, State::Missing, "guest images are made with it", remedy)
}

fn guest_program(name: &str) -> Finding {
    built(name, GuestBinaries::locate().and_then(|binaries| binaries.find(name)))
}

fn program(name: &str) -> Finding {
    built(name, programs::find(name))
}

/// Checks for one of Weft's programs. One that is built when it is needed is not missing.
fn built<E: std::fmt::Display>(name: &str, found: Result<std::path::PathBuf, E>) -> Finding {
    match found {
        Ok(path) => finding(name, State::Ok, path.display().to_string(), ""),
        Err(_) if programs::are_built_on_demand() => finding(
            name,
            State::Note,
            "not built yet".to_owned(),
            "it is built with the first lab",
        ),
        Err(error) => finding(name, State::Missing, error.to_string(), "scripts/weft builds it"),
    }
}
