//! `weft nic reload`: replaces the running `vnicd` by a rebuilt one.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::{
    cli::common::{CommonOptions, act, client},
    programs,
    report::say,
    supervisor_client::protocol::{ReloadReport, Request, VnicdBuild},
};

/// Replace vnicd under running guests; links, rings and settings stay.
///
/// The new vnicd is tried first; if it does not start, the running one continues. Guests have no network until their QEMU has
/// reconnected, a second at most.
#[derive(Debug, clap::Args)]
#[command(add = act(&[("weft nic reload", "replace vnicd with the one just built")]))]
pub(in crate::cli) struct ReloadArgs {
    /// The new vnicd, such as target/release/vnicd (default: the one beside this weft, or in $WEFT_BIN_DIR).
    program: Option<PathBuf>,
}

/// Swaps in `program`, or the `vnicd` beside this `weft` (or in `$WEFT_BIN_DIR`), and reports the cost.
pub(in crate::cli) fn run(options: &CommonOptions, args: &ReloadArgs) -> Result<()> {
    let client = client(options)?;
    let program = match &args.program {
        Some(program) if !program.is_file() => bail!("there is no program {}", program.display()),
        Some(program) => std::path::absolute(program)?,
        None => {
            programs::provide(["vnicd"])?;
            std::path::absolute(programs::find("vnicd")?)?
        }
    };
    let report: ReloadReport = client.request(&Request::Reload { program })?;
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        let build = |build: &VnicdBuild| {
            format!(
                "vnicd {} (build {}, process {})",
                build.version, build.digest, build.pid
            )
        };
        let same = if report.old.digest == report.new.digest {
            ", the same program"
        } else {
            ""
        };
        println!("before  {}", build(&report.old));
        println!("now     {}{same}", build(&report.new));
        println!(
            "guests  {} of {} cards are back, after {} ms; settings are as before, counters start at 0",
            report.cards - report.missing.len(),
            report.cards,
            report.pause_ms
        );
        println!(
            "lost    {} frames that were on links, in cards or in a modelled DMA",
            report.lost_frames
        );
    }
    if let Some(why) = report.went_back {
        bail!("the new vnicd did not start with the lab's sockets, so the old one runs again: {why}");
    }
    if !report.missing.is_empty() {
        say(format_args!(
            "weft: not back yet: {} (`weft nic info` shows them)",
            report.missing.join(", ")
        ));
    }
    Ok(())
}
