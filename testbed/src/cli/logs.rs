//! `weft logs`: shows what a node printed, or what `vnicd` and the supervisor logged, also of a lab that failed.

use std::{
    fs::File,
    io::{self, Write},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::common::{CommonOptions, Usage, act, check_node, client};
use crate::{
    report::say,
    state::{self, StateDir},
};

/// Show a node's serial output, or the log of `vnicd` or of the supervisor (`weft`). Logs of failed labs are kept until `weft
/// clean`.
#[derive(Debug, clap::Args)]
#[command(add = act(&[
    ("weft logs n1", "what n1 printed on its serial line"),
    ("weft logs -f vnicd", "the log of the cards as it grows"),
]))]
pub(super) struct LogsArgs {
    /// A node, `vnicd` or `weft`.
    what: String,
    /// Keep showing new lines, until Ctrl-C.
    #[arg(short, long)]
    follow: bool,
}

/// Interval at which a log that is followed is polled.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// Shows a log of a running lab, or of one that has failed.
pub(super) fn run(options: &CommonOptions, args: &LogsArgs) -> Result<()> {
    let what = args.what.as_str();
    let client = match client(options) {
        Ok(client) => client,
        // Several labs run, and none was named.
        Err(error) if error.is::<Usage>() => return Err(error),
        Err(none) => {
            let kept = state::failed_lab(options.lab.as_deref()).ok_or(none)?;
            return logs_of_failed(&kept, what);
        }
    };
    let name = match what {
        "vnicd" | "weft" => format!("{what}.log"),
        node => {
            check_node(&client, node)?;
            format!("{node}.log")
        }
    };
    let path = client.state().file(&name);
    let mut file = File::open(&path).with_context(|| format!("there is no log {}", path.display()))?;
    let mut stdout = io::stdout();
    let mut shown = 0;
    loop {
        shown += io::copy(&mut file, &mut stdout)?;
        stdout.flush()?;
        if !args.follow || !client.state().is_alive() {
            if shown == 0 {
                say(nothing_printed(what));
            }
            return Ok(());
        }
        std::thread::sleep(FOLLOW_INTERVAL);
    }
}

fn logs_of_failed(kept: &StateDir, what: &str) -> Result<()> {
    say(format_args!(
        "no such lab is running; these are the logs of one that failed, in {}",
        kept.path().display()
    ));
    match File::open(kept.file(&format!("{what}.log"))) {
        Ok(mut file) => io::copy(&mut file, &mut io::stdout()).map(drop).map_err(Into::into),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Each node that was started has the output of its QEMU, even if it is empty.
            ensure!(
                matches!(what, "vnicd" | "weft") || kept.file(&format!("{what}.qemu.log")).exists(),
                "no node {what} was started in it"
            );
            say(nothing_printed(what));
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn nothing_printed(what: &str) -> String {
    match what {
        "vnicd" | "weft" => format!("{what} has logged nothing"),
        node => format!("{node} has printed nothing on its serial line"),
    }
}
