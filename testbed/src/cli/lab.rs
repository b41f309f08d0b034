//! Verbs about whole labs: init, up, wait, ps, down, clean.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use super::{
    args::{Cli, UpArgs},
    check_node, client, save,
};
use crate::{
    image::Cache,
    lab::{
        Lab,
        plan::{self, Action, Plan},
        units::Span,
    },
    prepare,
    report::{
        file::OutFile,
        progress::Progress,
        say,
        table::{self, Columns},
    },
    state::{self, StateDir},
    supervisor::{
        BOOT_PATIENCE_FACTOR, Supervisor,
        client::Client,
        protocol::{LabStatus, NodePhase, NodeStatus, Request},
    },
};

/// What `weft init` writes.
const EXAMPLE: &str = include_str!("example.toml");

/// What the supervisor behind `up --detach` says when all is well.
const UP_WORD: &str = "up";

pub(super) fn init(file: &Path, force: bool) -> Result<()> {
    let mut opened = match OutFile::new(file)? {
        Some(new) => new,
        None if force => OutFile::open(file)?,
        None => bail!(
            "{} exists: choose another name, or replace it with --force",
            file.display()
        ),
    };
    opened.writer()?.write_all(EXAMPLE.as_bytes())?;
    opened.keep();
    say(format_args!("{} written: `weft up {0}` starts it", file.display()));
    Ok(())
}

/// Starts a lab, or makes one that runs what its file says now.
pub(super) fn up(cli: &Cli, args: &UpArgs) -> Result<()> {
    if let Some(folder) = &args.restore {
        return save::restore(cli, args, folder);
    }
    let lab = Lab::load(&args.file)?;
    let running = Client::new(StateDir::of(&lab.name));
    if !args.supervise && running.state().is_alive() {
        return reconcile(cli, args, &running, &lab);
    }
    if args.dry_run {
        let nothing = Lab {
            nodes: Vec::new(),
            switches: Vec::new(),
            trunks: Vec::new(),
            ..lab.clone()
        };
        return show_plan(
            cli,
            &plan::between(&nothing, &lab, &[]),
            "it is not running; `weft up` starts",
        );
    }
    if args.detach {
        return up_detached(cli, args, &lab.name);
    }
    leave_terminal(args)?;
    let progress = Progress::new(0);
    let means = prepare::means(&lab, args.guests.accel, &progress)?;
    let supervisor = Supervisor::start(lab, means, Some(std::path::absolute(&args.file)?))?;
    keep(cli, args, supervisor, &progress)
}

/// The supervisor behind `up --detach` gets a session of its own: the terminal it was started from may close.
pub(super) fn leave_terminal(args: &UpArgs) -> Result<()> {
    if args.supervise {
        rustix::process::setsid().context("cannot leave the terminal")?;
    }
    Ok(())
}

/// Waits until a lab that was started is up, and keeps it until its end.
pub(super) fn keep(cli: &Cli, args: &UpArgs, supervisor: Supervisor, progress: &Progress) -> Result<()> {
    let name = supervisor.state().lab().to_owned();
    let patience = Duration::from_nanos(args.guests.boot_timeout.0);
    let status = match supervisor.wait_up(patience, |status| {
        progress.say(&boot_progress(status, args.restore.is_some()))
    }) {
        Ok(status) => status,
        Err(error) => {
            progress.finish();
            return Err(supervisor.give_up(error));
        }
    };
    progress.finish();
    if args.supervise {
        return serve_detached(supervisor);
    }
    show_up(cli, status, "Ctrl-C")?;
    supervisor.wait_for_end();
    say(format_args!("ending lab {name}"));
    supervisor.stop()
}

/// Makes a running lab what its file says now.
fn reconcile(cli: &Cli, args: &UpArgs, client: &Client, lab: &Lab) -> Result<()> {
    let file = std::path::absolute(&args.file)?;
    let request = |dry_run| Request::Apply {
        file: file.clone(),
        dry_run,
        other_file: args.reconcile,
    };
    let plan: Plan = client.request(&request(true))?;
    show_plan(cli, &plan, "changes of the running lab")?;
    if args.dry_run || plan.is_empty() {
        return Ok(());
    }
    let progress = Progress::new(0);
    let accel = client.status()?.accel;
    // What is long about this is done here, where it can be seen.
    prepare::means(lab, accel.into(), &progress)?;
    progress.finish();
    let done: Plan = client.request(&request(false))?;
    ensure!(
        done == plan,
        "the lab changed meanwhile, and other things were done:\n{}",
        done.text()
    );
    let come = [Action::Add, Action::Restart, Action::Start];
    let names: Vec<String> = come
        .into_iter()
        .flat_map(|action| plan.nodes(action).map(str::to_owned))
        .filter(|name| lab.node(name).is_some_and(|node| node.has_agent()))
        .collect();
    if !names.is_empty() {
        wait(client, &names, Patience::Silence(args.guests.boot_timeout))?;
    }
    if !cli.json {
        say(format_args!("lab {} is as {} says", lab.name, args.file.display()));
    }
    Ok(())
}

fn show_plan(cli: &Cli, plan: &Plan, what: &str) -> Result<()> {
    if cli.json {
        return table::print_json(plan);
    }
    let text = if plan.is_empty() {
        format!("lab {}: nothing to do\n", plan.lab)
    } else {
        format!("lab {}: {what}:\n{}", plan.lab, plan.text())
    };
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// The supervisor behind `up --detach`, once the lab is up: it lets go of the verb that started it.
fn serve_detached(supervisor: Supervisor) -> Result<()> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(supervisor.state().file("weft.log"))?;
    let mut stdout = io::stdout();
    writeln!(stdout, "{UP_WORD}")?;
    stdout.flush()?;
    rustix::stdio::dup2_stdout(&log)?;
    rustix::stdio::dup2_stderr(&log)?;
    supervisor.wait_for_end();
    let state = supervisor.state().clone();
    let ended = supervisor.stop();
    if let Err(why) = &ended {
        // Its log is gone with its folder, and nobody reads what it prints.
        state.note_end(&format!("{why:#}"))?;
    }
    ended
}

/// Starts the supervisor of `lab` as a process of its own, and waits until the lab is up.
pub(super) fn up_detached(cli: &Cli, args: &UpArgs, lab: &str) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot ask for signals")?;
    let mut command = Command::new(std::env::current_exe().context("cannot find the running weft")?);
    command.args(["up", "--supervise", "--accel", prepare::choice_name(args.guests.accel)]);
    command.args(["--boot-timeout", &args.guests.boot_timeout.to_string()]);
    match &args.restore {
        Some(folder) => command.arg("--restore").arg(folder),
        None => command.arg(&args.file),
    };
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the supervisor")?;
    let said = child.stdout.take().context("the supervisor has no output")?;
    let pid = rustix::process::Pid::from_child(&child);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            // It ends everything that it has started so far, and then this process ends too.
            _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    })?;
    let mut line = String::new();
    BufReader::new(said).read_line(&mut line)?;
    if line.trim() != UP_WORD {
        // Its sentence is on standard error already.
        let status = child.wait()?;
        std::process::exit(status.code().unwrap_or(super::EXIT_INTERRUPTED.into()));
    }
    let status = Client::new(StateDir::of(lab)).status()?;
    show_up(cli, status, "`weft down`")
}

fn boot_progress(status: &LabStatus, restored: bool) -> String {
    let of = |phase| status.nodes.iter().filter(|node| node.phase == phase).count();
    let count = status.nodes.len();
    let nodes = if count == 1 { "node" } else { "nodes" };
    let what = if restored { "restoring" } else { "booting" };
    let mut text = format!(
        "{what} {count} {nodes} under {}: {} ready",
        status.accel,
        of(NodePhase::Ready)
    );
    for phase in [NodePhase::NoAgent, NodePhase::Booting] {
        if of(phase) > 0 {
            text += &format!(", {} {}", of(phase), phase.name());
        }
    }
    text
}

fn nodes_text(status: &LabStatus) -> String {
    let columns = Columns::<NodeStatus>::default()
        .words("NODE", |row| row.name.clone())
        .words("STATE", |row| row.phase.name().to_owned())
        .words("ADDRESS", |row| row.address.clone().unwrap_or_else(|| "-".to_owned()))
        .numbers("BOOT", |row| {
            row.boot_ms
                .map_or_else(|| "-".to_owned(), |ms| format!("{:.1} s", ms as f64 / 1e3))
        })
        .words("NOTE", |row| row.note.clone().unwrap_or_default());
    table::text(&status.nodes, &columns)
}

/// How long nodes are waited for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// In all.
    Total(Span),
    /// As long as each that boots shows something within this time, and is ready within ten times as much.
    Silence(Span),
}

/// Waits until nodes are ready.
///
/// # Errors
/// When one is stopped, or takes too long.
pub(super) fn wait(client: &Client, nodes: &[String], patience: Patience) -> Result<()> {
    for node in nodes {
        check_node(client, node)?;
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    let (watching, names) = (client.clone(), nodes.to_vec());
    std::thread::Builder::new().name("watch".to_owned()).spawn(move || {
        let progress = Progress::new(0);
        let end = watching.watch(|status| readiness(status, &names, &progress));
        drop(progress);
        let end = end.and_then(|end| end.unwrap_or_else(|| Err(anyhow::anyhow!("the lab has ended"))));
        // Nobody listens any more after the time is up.
        _ = sender.send(end);
    })?;
    let (Patience::Total(each) | Patience::Silence(each)) = patience;
    let (each, began) = (Duration::from_nanos(each.0), Instant::now());
    let most = match patience {
        Patience::Total(_) => each,
        Patience::Silence(_) => each * BOOT_PATIENCE_FACTOR,
    };
    let mut left = each;
    loop {
        if let Ok(result) = receiver.recv_timeout(left) {
            return result;
        }
        let status = client.status()?;
        let waiting: Vec<_> = wanted(&status, nodes)
            .into_iter()
            .filter(|node| node.phase != NodePhase::Ready)
            .collect();
        let silent = waiting.iter().filter_map(|node| node.silent_ms).max().unwrap_or(0);
        let silent = Duration::from_millis(silent);
        if began.elapsed() >= most || silent >= each {
            let names: Vec<_> = waiting
                .iter()
                .map(|node| format!("{} ({})", node.name, node.phase.name()))
                .collect();
            bail!("not ready after {} s: {}", began.elapsed().as_secs(), names.join(", "));
        }
        left = (each - silent).min(most.saturating_sub(began.elapsed()));
    }
}

/// How waiting for these nodes ends; `None` while it goes on.
fn readiness(status: &LabStatus, names: &[String], progress: &Progress) -> Option<Result<()>> {
    let wanted = wanted(status, names);
    if let Some(off) = wanted.iter().find(|node| node.phase == NodePhase::Stopped) {
        let why = off.note.as_deref().unwrap_or("-");
        return Some(Err(anyhow::anyhow!("{} is stopped: {why}", off.name)));
    }
    let ready = wanted.iter().filter(|node| node.phase == NodePhase::Ready).count();
    progress.say(&format!("{ready} of {} nodes ready", wanted.len()));
    (ready == wanted.len()).then_some(Ok(()))
}

/// The nodes that are waited for: those named, or all that run our agent for certain.
fn wanted<'a>(status: &'a LabStatus, names: &[String]) -> Vec<&'a NodeStatus> {
    let is_wanted = |node: &&NodeStatus| {
        if names.is_empty() {
            node.recipe
        } else {
            names.contains(&node.name)
        }
    };
    status.nodes.iter().filter(is_wanted).collect()
}

/// A node with what it shares with the others of its lab.
#[derive(Serialize)]
struct PsRow {
    lab: String,
    #[serde(flatten)]
    node: NodeStatus,
    accel: crate::accel::Accel,
    qemu: String,
    supervisor_pid: u32,
    vnicd_pid: Option<u32>,
    vnicd_restarts: u32,
}

fn ps_rows(status: LabStatus) -> impl Iterator<Item = PsRow> {
    status.nodes.into_iter().map(move |node| PsRow {
        lab: status.lab.clone(),
        node,
        accel: status.accel,
        qemu: status.qemu.clone(),
        supervisor_pid: status.pid,
        vnicd_pid: status.vnicd_pid,
        vnicd_restarts: status.vnicd_restarts,
    })
}

/// A lab that has just come up, and what ends it: a table for people, or what `weft ps --json` prints of it.
fn show_up(cli: &Cli, status: LabStatus, what_ends_it: &str) -> Result<()> {
    if !cli.json {
        say(nodes_text(&status).trim_end());
    }
    say(format_args!(
        "lab {} is up ({}, QEMU {}); {what_ends_it} ends it",
        status.lab, status.accel, status.qemu
    ));
    if cli.json {
        table::print_json(&ps_rows(status).collect::<Vec<_>>())?;
    }
    Ok(())
}

pub(super) fn ps(cli: &Cli) -> Result<()> {
    let mut rows = Vec::new();
    let labs = match &cli.lab {
        Some(_) => vec![super::client(cli)?.state().lab().to_owned()],
        None => state::running_labs()?,
    };
    for lab in labs {
        // One that ends just now is not there any more, which is what `ps` says.
        let Ok(status) = Client::new(StateDir::of(&lab)).status() else {
            continue;
        };
        rows.extend(ps_rows(status));
    }
    if rows.is_empty() && !cli.json {
        say(format_args!("no lab is running{}", state::ended_labs()));
        return Ok(());
    }
    let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let columns = Columns::<PsRow>::default()
        .words("LAB", |row| row.lab.clone())
        .words("NODE", |row| row.node.name.clone())
        .words("STATE", |row| row.node.phase.name().to_owned())
        .words("ADDRESS", move |row| dash(row.node.address.clone()))
        .numbers("CPUS", |row| row.node.cpus.to_string())
        .numbers("MEMORY", |row| format!("{}M", row.node.memory_mib))
        .words("ACCEL", |row| row.accel.to_string())
        .numbers("PID", move |row| dash(row.node.pid.map(|pid| pid.to_string())))
        .numbers("VNICD", move |row| dash(row.vnicd_pid.map(|pid| pid.to_string())))
        .words("NOTE", |row| row.node.note.clone().unwrap_or_default());
    table::print(cli.json, &rows, &columns)
}

pub(super) fn down(cli: &Cli, all: bool) -> Result<()> {
    let clients = if all {
        state::running_labs()?
            .iter()
            .map(|lab| Client::new(StateDir::of(lab)))
            .collect()
    } else {
        vec![client(cli)?]
    };
    for client in clients {
        client.down()?;
        // Whatever kept the supervisor from clearing up, the lab is gone now.
        client.state().remove_if_dead()?;
        ensure!(
            !client.state().path().exists(),
            "the lab {} did not end",
            client.state().lab()
        );
        say(format_args!("lab {} has ended", client.state().lab()));
    }
    Ok(())
}

pub(super) fn clean(cache: bool) -> Result<()> {
    let running = state::running_labs()?;
    state::forget_ended_labs()?;
    if !running.is_empty() {
        say(format_args!(
            "still running, and left alone: {} (`weft down` ends a lab)",
            running.join(", ")
        ));
    }
    if cache {
        let cache = Cache::open_default()?;
        cache.clear()?;
        say(format_args!("removed {}", cache.root().display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_a_lab_and_is_never_written_over_something() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let file = folder.path().join("lab.toml");
        init(&file, false).expect("the folder is empty");
        let lab = Lab::load(&file).expect("the example is right");
        assert_eq!((lab.name.as_str(), lab.nodes.len()), ("pair", 2));
        let refusal = init(&file, false).expect_err("it exists").to_string();
        assert!(
            refusal.ends_with("exists: choose another name, or replace it with --force"),
            "{refusal}"
        );
        init(&file, true).expect("replaced");
    }
}
