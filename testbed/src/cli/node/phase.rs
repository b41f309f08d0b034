//! The phase of a node's life.

use anyhow::{Context, Result};

use crate::supervisor_client::{client::Client, protocol::NodePhase};

pub(super) fn phase(client: &Client, node: &str) -> Result<NodePhase> {
    let status = client.status()?;
    let found = status.nodes.iter().find(|status| status.name == node);
    found
        .map(|status| status.phase)
        .with_context(|| format!("{node} is gone"))
}
