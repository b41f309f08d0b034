//! Verbs that switch nodes: stop, start, restart.

use std::time::Duration;

use anyhow::{Context, Result};

use super::guest::{agent, nodes_meant};
use crate::{
    guest_channel::Power,
    report::say,
    supervisor::{
        client::Client,
        protocol::{NodePhase, Request},
    },
};

/// How long a guest may take to switch itself off.
const OFF_TIMEOUT: Duration = Duration::from_secs(60);

/// Switches nodes off in an orderly way: their agents are asked to, or their power buttons are pressed; with `force`, their plugs
/// are pulled.
pub(super) fn stop(client: &Client, nodes: &str, force: bool) -> Result<()> {
    for node in nodes_meant(client, nodes)? {
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
        let is_off = |status: &crate::supervisor::protocol::LabStatus| {
            let node = status.nodes.iter().find(|node| node.name == name);
            node.is_none_or(|node| node.phase == NodePhase::Stopped).then_some(())
        };
        // Nobody listens any more after the time is up.
        _ = sender.send(watching.watch(is_off).map(drop));
    })?;
    let seconds = OFF_TIMEOUT.as_secs();
    receiver.recv_timeout(OFF_TIMEOUT).with_context(|| {
        format!("{node} is not stopped after {seconds} s: `weft stop --force {node}` pulls its plug")
    })?
}

/// Switches nodes on that are off.
pub(super) fn start(client: &Client, nodes: &str) -> Result<()> {
    for node in nodes_meant(client, nodes)? {
        if phase(client, &node)? == NodePhase::Stopped {
            client.request::<()>(&Request::Restart { node })?;
        } else {
            say(format_args!("{node} runs"));
        }
    }
    Ok(())
}

/// Switches nodes off, however that is, and on again.
pub(super) fn restart(client: &Client, nodes: &str) -> Result<()> {
    for node in nodes_meant(client, nodes)? {
        client.request::<()>(&Request::Restart { node })?;
    }
    Ok(())
}

fn phase(client: &Client, node: &str) -> Result<NodePhase> {
    let status = client.status()?;
    let found = status.nodes.iter().find(|status| status.name == node);
    found
        .map(|status| status.phase)
        .with_context(|| format!("{node} is gone"))
}
