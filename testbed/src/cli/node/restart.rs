//! `weft restart`: switches nodes off, by force if necessary, and on again.

use anyhow::Result;

use crate::{
    cli::common::{CommonOptions, NodesArgs, client, nodes_meant},
    supervisor_client::protocol::Request,
};

/// Switches nodes off, by force if necessary, and on again.
pub(in crate::cli) fn run(options: &CommonOptions, args: &NodesArgs) -> Result<()> {
    let client = client(options)?;
    for node in nodes_meant(&client, &args.node)? {
        client.request::<()>(&Request::Restart { node })?;
    }
    Ok(())
}
