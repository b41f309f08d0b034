//! The nodes that an argument names, and their agents.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{failure::did_you_mean, node_pattern};
use crate::{guest_channel::GuestChannel, supervisor_client::client::Client};

/// Time that a guest's agent may take to answer; the guest may just be rebooting.
const AGENT_PATIENCE: Duration = Duration::from_secs(60);

/// Fails for a node that does not exist, with the names of those that do.
pub(in crate::cli) fn check_node(client: &Client, name: &str) -> Result<()> {
    let nodes: Vec<_> = client.status()?.nodes.into_iter().map(|node| node.name).collect();
    if nodes.iter().any(|node| node == name) {
        return Ok(());
    }
    let hint = did_you_mean(name, &nodes);
    bail!(
        "there is no node {name} in the lab {}{hint} (its nodes: {})",
        client.state().lab(),
        nodes.join(", ")
    )
}

/// Returns the nodes of the lab that a word names: one, or several by a pattern.
pub(in crate::cli) fn nodes_meant(client: &Client, text: &str) -> Result<Vec<String>> {
    if !node_pattern::is_pattern(text) {
        check_node(client, text)?;
        return Ok(vec![text.to_owned()]);
    }
    let nodes: Vec<_> = client.status()?.nodes.into_iter().map(|node| node.name).collect();
    node_pattern::matching(text, &nodes).map_err(|part| {
        let lab = client.state().lab();
        anyhow::anyhow!(
            "no node of the lab {lab} is meant by {part} (its nodes: {})",
            nodes.join(", ")
        )
    })
}

/// Returns the agent of a node once it answers.
pub(in crate::cli) fn agent(client: &Client, node: &str) -> Result<GuestChannel> {
    let channel = client.agent(node)?;
    channel
        .wait_ready(AGENT_PATIENCE)
        .with_context(|| format!("the agent of {node}"))?;
    Ok(channel)
}
