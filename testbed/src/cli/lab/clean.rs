//! `weft clean`: removes the stale files of dead labs and, on request, the cache of images.

use anyhow::Result;

use crate::{
    cli::common::{CommonOptions, here},
    image::Cache,
    report::say,
    state,
};

/// Remove stale files of dead labs, logs of failed labs and, with --cache, built images.
#[derive(Debug, clap::Args)]
#[command(add = here(&[
    ("weft clean", "remove files of dead and failed labs"),
    ("weft clean --cache", "remove built images too"),
]))]
pub(in crate::cli) struct CleanArgs {
    /// Remove the built images too.
    #[arg(long)]
    cache: bool,
}

pub(in crate::cli) fn run(_: &CommonOptions, args: &CleanArgs) -> Result<()> {
    let running = state::running_labs()?;
    state::forget_ended_labs()?;
    if !running.is_empty() {
        say(format_args!(
            "still running, and left alone: {} (`weft down` ends a lab)",
            running.join(", ")
        ));
    }
    if args.cache {
        let cache = Cache::open_default()?;
        cache.clear()?;
        say(format_args!("removed {}", cache.root().display()));
    }
    Ok(())
}
