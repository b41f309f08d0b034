//! `weft start`: switches nodes on that are off.

use anyhow::Result;

use super::phase::phase;
use crate::{
    cli::common::{CommonOptions, NodesArgs, client, nodes_meant},
    report::say,
    supervisor_client::protocol::{NodePhase, Request},
};

/// Switches nodes on that are off.
pub(in crate::cli) fn run(options: &CommonOptions, args: &NodesArgs) -> Result<()> {
    let client = client(options)?;
    for node in nodes_meant(&client, &args.node)? {
        if phase(&client, &node)? == NodePhase::Stopped {
            client.request::<()>(&Request::Restart { node })?;
        } else {
            say(format_args!("{node} runs"));
        }
    }
    Ok(())
}
