//! `omx_counters`: what happened to the frames of a board, over its authority and all endpoints, open and closed.

use std::{fmt::Write as _, process::ExitCode};

use clap::Parser;
use omx::{Board, Counter};
use serde_json::json;
use weft_authority::{Session, esp::EspCounter};

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
        let of_esp = shown_of_esp(arguments, board)?;
        if arguments.json {
            let of_messages = shown
                .into_iter()
                .map(|(_, counter, count)| (counter.name().to_owned(), count.into()));
            let of_esp = of_esp.into_iter().map(|counted| (counted.name, counted.count.into()));
            let counters: serde_json::Map<_, _> = of_messages.chain(of_esp).collect();
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
        for counted in of_esp {
            writeln!(
                text,
                "{:03}: {:10} {}: {}",
                counted.number, counted.count, counted.name, counted.sentence
            )?;
        }
    }
    if arguments.json {
        text = json!({ "boards": list }).to_string();
    }
    print_line(text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// A count of ESP.
struct Counted {
    number: usize,
    name: String,
    sentence: &'static str,
    count: u64,
}

/// Lists the counts of ESP, of the authority and of its engine, behind those of messages.
fn shown_of_esp(arguments: &Arguments, board: &Board) -> anyhow::Result<Vec<Counted>> {
    let Some(session) = Session::connect_to_running(board.interface())?.filter(|_| !arguments.shared) else {
        return Ok(Vec::new());
    };
    let status = session.esp_status()?;
    let own = EspCounter::ALL
        .iter()
        .map(|counter| (counter.name().to_owned(), counter.sentence()));
    let engines = esp::Counter::ALL.iter();
    let engines = engines.map(|counter| (format!("ESP_{}", counter.name().to_uppercase()), counter.sentence()));
    let counts = status.counters.into_iter().chain(status.engine);
    let all = own.chain(engines).zip(counts).zip(Counter::ALL.len()..);
    let all = all.map(|(((name, sentence), count), number)| Counted {
        number,
        name,
        sentence,
        count,
    });
    Ok(all.filter(|counted| arguments.verbose || counted.count != 0).collect())
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
