//! The verb `nic reload`: a rebuilt `vnicd` in the place of the running one.

use std::path::Path;

use anyhow::{Result, bail};

use super::{args::Cli, client};
use crate::{
    programs,
    report::say,
    supervisor::protocol::{ReloadReport, Request},
};

/// Swaps `program`, or the `vnicd` beside this `weft` (or in `$WEFT_BIN_DIR`), in and says what that cost.
pub(super) fn reload(cli: &Cli, program: Option<&Path>) -> Result<()> {
    let client = client(cli)?;
    let program = match program {
        Some(program) if !program.is_file() => bail!("there is no program {}", program.display()),
        Some(program) => std::path::absolute(program)?,
        None => std::path::absolute(programs::find("vnicd")?)?,
    };
    let report: ReloadReport = client.request(&Request::Reload { program })?;
    if cli.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        let build = |build: &crate::supervisor::protocol::VnicdBuild| {
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
            "guests  {} of {} cards are back, after {} ms; settings are as before, counters begin anew",
            report.cards - report.missing.len(),
            report.cards,
            report.pause_ms
        );
        println!(
            "lost    {} frames that were on links or in a modelled DMA",
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
