//! `omx_endpoint_info`: shows which programs have which endpoints of a board open.

use std::{fmt::Write as _, process::ExitCode};

use clap::Parser;
use serde_json::json;

use super::{chosen, title};
use crate::run::print_line;

/// Shows which programs have which endpoints open.
#[derive(Debug, Parser)]
#[command(name = "omx_endpoint_info", version)]
pub struct Arguments {
    /// Only this board
    #[arg(short = 'b', value_name = "NUMBER")]
    board: Option<u32>,
    /// All boards (default)
    #[arg(short = 'a', conflicts_with = "board")]
    all: bool,
    /// Closed endpoints, too
    #[arg(short = 'v')]
    verbose: bool,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs `omx_endpoint_info`.
///
/// # Errors
/// No board, or an authority that cannot be asked.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut text = String::new();
    let mut list = Vec::new();
    for board in chosen(arguments.board)? {
        let (status, _) = board.status()?;
        if arguments.json {
            list.push(json!({
                "board": board.board_number(),
                "endpoints_max": status.endpoints_max,
                "endpoints": status.endpoints,
                "raw": status.raw,
            }));
            continue;
        }
        let title = title(&board, &status.name);
        writeln!(text, "{title}\n{}", "=".repeat(title.chars().count()))?;
        let raw = ("raw".to_owned(), status.raw.as_ref());
        let regular = (0..status.endpoints_max).map(|number| {
            let open = status.endpoints.iter().find(|open| open.endpoint == number);
            (number.to_string(), open)
        });
        for (name, open) in [raw].into_iter().chain(regular) {
            match open {
                Some(open) => writeln!(text, "  {name}\topen by pid {} ({})", open.pid, open.command)?,
                None if arguments.verbose => writeln!(text, "  {name}\tnot open")?,
                None => {}
            }
        }
        writeln!(
            text,
            "{} regular endpoints open (out of {})",
            status.endpoints.len(),
            status.endpoints_max
        )?;
    }
    if arguments.json {
        text = json!({ "boards": list }).to_string();
    }
    print_line(text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}
