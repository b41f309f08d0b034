//! `omx_prepare_binding`: writes which processors the interrupts of each board's queues go to, for `OMX_PROCESS_BINDING=file`.

use std::{fmt::Write as _, fs, path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::Parser;
use omx::{BINDINGS_FILE, Board};

use super::{chosen, interrupts_of};
use crate::run::print_line;

/// Writes, for every board, endpoint number and interrupt, on which processors the interrupt arrives: the file that
/// OMX_PROCESS_BINDING=file reads, which binds the thread that opens an endpoint to the processors of its interrupt.
#[derive(Debug, Parser)]
#[command(name = "omx_prepare_binding", version)]
pub struct Arguments {
    /// Print what is written
    #[arg(short = 'v')]
    verbose: bool,
    /// File
    #[arg(default_value = BINDINGS_FILE)]
    file: PathBuf,
}

/// Runs `omx_prepare_binding`.
///
/// # Errors
/// No board, or a file that cannot be written.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let table = fs::read_to_string("/proc/interrupts").context("cannot read the table of interrupts")?;
    let mask = |number: &str| fs::read_to_string(format!("/proc/irq/{number}/smp_affinity")).unwrap_or_default();
    let mut text = String::new();
    for board in chosen(None)? {
        text += &bindings(&board, &interrupts_of(&board.interface().name, &table), mask);
    }
    if arguments.verbose {
        print_line(text.trim_end())?;
    }
    fs::write(&arguments.file, text).with_context(|| format!("cannot write {}", arguments.file.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Formats a line for each interrupt: the first one serves endpoint 0, and so on.
fn bindings(board: &Board, interrupts: &[&str], mask: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    for (endpoint, number) in interrupts.iter().enumerate() {
        let mask = mask(number).trim().replace(',', "");
        if mask.is_empty() {
            // The interrupt is gone.
            continue;
        }
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "board {} ep {endpoint} irq {number} mask {mask}",
            board.interface().mac
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_interrupt_has_its_mask_however_many_processors_there_are() {
        let board = Board::named("lo").unwrap();
        let mask = |number: &str| match number {
            "24" => "00000001,00000000,00000000\n".to_owned(),
            "26" => "a\n".to_owned(),
            _ => String::new(),
        };
        assert_eq!(
            bindings(&board, &["24", "25", "26"], mask),
            "board 00:00:00:00:00:00 ep 0 irq 24 mask 000000010000000000000000\n\
             board 00:00:00:00:00:00 ep 2 irq 26 mask a\n"
        );
    }
}
