//! `weft stop`: shuts nodes down, or switches them off by force.

use std::time::Duration;

use anyhow::{Context, Result};

use super::phase::phase;
use crate::{
    cli::common::{CommonOptions, act, agent, client, nodes_meant},
    guest_channel::Power,
    report::say,
    supervisor_client::{
        client::Client,
        protocol::{LabStatus, NodePhase, Request},
    },
};

/// Shut nodes down, through their agent or with the power button.
#[derive(Debug, clap::Args)]
#[command(add = act(&[
    ("weft stop n1", "shut n1 down"),
    ("weft stop --force n1", "power it off immediately"),
]))]
pub(in crate::cli) struct StopArgs {
    /// A node, or several: `all`, `n*`, `n[1-3]`, `n1,n4`.
    #[arg(value_name = "NODES")]
    node: String,
    /// Power off immediately, without a shutdown.
    #[arg(short, long)]
    force: bool,
}

/// Time that a guest may take to switch itself off.
const OFF_TIMEOUT: Duration = Duration::from_secs(60);

/// Shuts nodes down through their agents or with their power buttons; with `force`, pulls their plugs.
pub(in crate::cli) fn run(options: &CommonOptions, args: &StopArgs) -> Result<()> {
    let (client, force) = (&client(options)?, args.force);
    for node in nodes_meant(client, &args.node)? {
        match phase(client, &node)? {
            NodePhase::Stopped => {
                say(format_args!("{node} is stopped"));
                continue;
            }
            NodePhase::Ready if !force => agent(client, &node)?
                .power(Power::Off)
                .with_context(|| format!("{node} does not switch itself off"))?,
            _ => {
                if !force {
                    say(format_args!(
                        "{node} has no agent that answers: its power button is pressed"
                    ));
                }
                let node = node.clone();
                client.request::<()>(&Request::PowerOff { node, force })?;
            }
        }
        wait_off(client, &node)?;
    }
    Ok(())
}

/// Waits until the node's QEMU has ended.
fn wait_off(client: &Client, node: &str) -> Result<()> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let (watching, name) = (client.clone(), node.to_owned());
    std::thread::Builder::new().name("watch".to_owned()).spawn(move || {
        let is_off = |status: &LabStatus| {
            let node = status.nodes.iter().find(|node| node.name == name);
            node.is_none_or(|node| node.phase == NodePhase::Stopped).then_some(())
        };
        // The receiver is gone after the time is up.
        _ = sender.send(watching.watch(is_off).map(drop));
    })?;
    let seconds = OFF_TIMEOUT.as_secs();
    receiver.recv_timeout(OFF_TIMEOUT).with_context(|| {
        format!("{node} is not stopped after {seconds} s: `weft stop --force {node}` pulls its plug")
    })?
}
