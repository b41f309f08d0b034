//! `weft restart`: switches nodes off, by force if necessary, and on again.

use anyhow::Result;

use crate::{
    cli::common::{CommonOptions, VerbHelp, act, client, nodes_meant},
    supervisor_client::protocol::Request,
};

/// Shut nodes down and start them again.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct RestartArgs {
    /// A node, or several: `all`, `n*`, `n[1-3]`, `n1,n4`.
    #[arg(value_name = "NODES")]
    node: String,
}

pub(in crate::cli) const HELP: VerbHelp = act("restart", &[("weft restart n1", "shut n1 down and start it")]);

/// Switches nodes off, by force if necessary, and on again.
pub(in crate::cli) fn run(options: &CommonOptions, args: &RestartArgs) -> Result<()> {
    let client = client(options)?;
    for node in nodes_meant(&client, &args.node)? {
        client.request::<()>(&Request::Restart { node })?;
    }
    Ok(())
}
