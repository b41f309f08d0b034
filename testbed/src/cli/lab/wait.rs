//! `weft wait`: waits until nodes are ready.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{
    cli::common::{CommonOptions, act, check_node, client},
    lab::units::Span,
    report::progress::Progress,
    supervisor_client::{
        client::Client,
        protocol::{BOOT_PATIENCE_FACTOR, LabStatus, NodePhase, NodeStatus},
    },
};

/// Wait until nodes are ready.
#[derive(Debug, clap::Args)]
#[command(add = act(&[
    ("weft wait", "until all nodes with weft-agent are ready"),
    ("weft wait n1 n2 --timeout 300s", "for nodes that boot slowly"),
]))]
pub(in crate::cli) struct WaitArgs {
    /// Nodes (default: all that run weft-agent).
    nodes: Vec<String>,
    /// Give up after this time.
    #[arg(long, default_value = "120s")]
    timeout: Span,
}

/// Waits for the nodes that are named, or for all that run weft-agent.
pub(in crate::cli) fn run(options: &CommonOptions, args: &WaitArgs) -> Result<()> {
    wait(&client(options)?, &args.nodes, Patience::Total(args.timeout))
}

/// The patience says how long nodes are waited for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// The time for all of them together.
    Total(Span),
    /// The time within which each booting node has to show something; it has to be ready within ten times as much.
    Silence(Span),
}

/// Waits until nodes are ready.
///
/// # Errors
/// Fails when a node is stopped or takes too long.
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
        // The receiver is gone after the time is up.
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

/// Returns how waiting for these nodes ends; `None` while it continues.
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

/// Returns the nodes that are waited for: those named, or all that run our agent for certain.
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
