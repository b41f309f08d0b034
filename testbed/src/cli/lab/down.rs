//! `weft down`: stops labs.

use anyhow::{Result, ensure};

use crate::{
    cli::common::{CommonOptions, act, client},
    report::say,
    state::{self, StateDir},
    supervisor_client::client::Client,
};

/// Stop a lab.
#[derive(Debug, clap::Args)]
#[command(add = act(&[
    ("weft down", "stop the lab"),
    ("weft down --all", "stop all labs"),
]))]
#[command(visible_alias = "destroy")]
pub(in crate::cli) struct DownArgs {
    /// Stop all labs.
    #[arg(long)]
    all: bool,
}

pub(in crate::cli) fn run(options: &CommonOptions, args: &DownArgs) -> Result<()> {
    let clients = if args.all {
        state::running_labs()?
            .iter()
            .map(|lab| Client::new(StateDir::of(lab)))
            .collect()
    } else {
        vec![client(options)?]
    };
    for client in clients {
        client.down()?;
        // Whatever kept the supervisor from cleaning up, the lab is gone now.
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
