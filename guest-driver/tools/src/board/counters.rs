//! `omx_counters`: what happened to the frames of a board, over its authority and all endpoints, open and closed.

use std::{fmt::Write as _, process::ExitCode};

use clap::Parser;
use omx::{Board, Counter};
use serde_json::json;

use super::{chosen, title};
use crate::run::print_line;

/// Shows the counters of boards, as far as they are not 0.
#[derive(Debug, Parser)]
#[command(name = "omx_counters", version)]
pub struct Arguments {
    /// Only this board
    #[arg(short = 'b', value_name = "NUMBER")]
    board: Option<u32>,
    /// All boards (default)
    #[arg(short = 'a', conflicts_with = "board")]
    all: bool,
    /// Only messages within the host
    #[arg(short = 's')]
    shared: bool,
    /// Count from 0 from now on; only root may
    #[arg(short = 'c')]
    clear: bool,
    /// Only counters that are not 0 (default)
    #[arg(short = 'q', conflicts_with = "verbose")]
    quiet: bool,
    /// Those that are 0, too
    #[arg(short = 'v')]
    verbose: bool,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs `omx_counters`.
///
/// # Errors
/// No board, an authority that cannot be asked, no permission to clear.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let boards = chosen(arguments.board)?;
    if arguments.clear {
        for board in &boards {
            board.clear_counters()?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    let mut list = Vec::new();
    for board in &boards {
        let shown = shown(arguments, board)?;
        if arguments.json {
            let counters: serde_json::Map<_, _> = shown
                .into_iter()
                .map(|(_, counter, count)| (counter.name().to_owned(), count.into()))
                .collect();
            list.push(json!({ "board": board.board_number(), "counters": counters }));
            continue;
        }
        let title = title(board, &board.status()?.0.name);
        writeln!(text, "{title}\n{}", "=".repeat(title.chars().count()))?;
        for (number, counter, count) in shown {
            writeln!(
                text,
                "{number:03}: {count:10} {}: {}",
                counter.name(),
                counter.sentence()
            )?;
        }
    }
    if arguments.json {
        text = json!({ "boards": list }).to_string();
    }
    print_line(text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

fn shown(arguments: &Arguments, board: &Board) -> anyhow::Result<Vec<(usize, Counter, u32)>> {
    let counters = board.counters()?;
    let all = Counter::ALL.iter().enumerate();
    let wanted = all.filter(|(_, counter)| {
        let shared = counter.name().starts_with("SHARED_");
        (shared || !arguments.shared) && (arguments.verbose || counters.get(**counter) != 0)
    });
    Ok(wanted
        .map(|(number, counter)| (number, *counter, counters.get(*counter)))
        .collect())
}
