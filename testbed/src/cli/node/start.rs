//! `weft start`: switches nodes on that are off.

use anyhow::Result;

use super::phase::phase;
use crate::{
    cli::common::{CommonOptions, VerbHelp, act, client, nodes_meant},
    report::say,
    supervisor_client::protocol::{NodePhase, Request},
};

/// Start stopped nodes.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct StartArgs {
    /// A node, or several: `all`, `n*`, `n[1-3]`, `n1,n4`.
    #[arg(value_name = "NODES")]
    node: String,
}

pub(in crate::cli) const HELP: VerbHelp = act(
    "start",
    &[
        ("weft start n1", "start it again"),
        ("weft start all", "all stopped nodes"),
    ],
);

/// Switches nodes on that are off.
pub(in crate::cli) fn run(options: &CommonOptions, args: &StartArgs) -> Result<()> {
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
