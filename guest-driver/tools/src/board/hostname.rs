//! `omx_hostname`: the name under which other hosts know a board.

use std::process::ExitCode;

use clap::Parser;

use super::{one, title};
use crate::run::print_line;

/// Shows or changes the name of a board, or forgets the names of other hosts.
#[derive(Debug, Parser)]
#[command(name = "omx_hostname", version)]
pub struct Arguments {
    /// Board [default: the first that is switched on]
    #[arg(short = 'b', value_name = "NUMBER")]
    board: Option<u32>,
    /// Its name from now on, until its omxd ends; only root may
    #[arg(short = 'n', value_name = "NAME", conflicts_with = "clear")]
    name: Option<String>,
    /// Forget the names of other hosts and ask for them again; only root may
    #[arg(short = 'c')]
    clear: bool,
    /// Print what is being done
    #[arg(short = 'v')]
    verbose: bool,
}

/// Runs `omx_hostname`.
///
/// # Errors
/// No board, an authority that cannot be asked, no permission to change names.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let board = one(arguments.board)?;
    if let Some(name) = &arguments.name {
        anyhow::ensure!(
            !name.is_empty() && name.len() < 80,
            "a name has 1 to 79 bytes; this one has {}",
            name.len()
        );
        board.set_name(None, name)?;
    }
    if arguments.clear {
        board.clear_names()?;
    }
    if arguments.verbose || (arguments.name.is_none() && !arguments.clear) {
        let (status, _) = board.status()?;
        print_line(&title(&board, &status.name))?;
    }
    Ok(ExitCode::SUCCESS)
}
