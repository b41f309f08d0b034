//! Writes the man pages of the tools and of `omxd` to a folder: `cargo run -p weft-guest-tools --example man FOLDER`. They are made from
//! the same definitions as the help texts.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{Arg, Command, CommandFactory};
use clap_mangen::Man;
use lci_programs::cli as lci_program;
use tools::{board, copies, esp_ping, esp_ss, info, nicctl, perf};

// The crate of these programs puts its functions in the place of the C library's, so only their command lines are taken from it.
#[path = "../../esp-preload/src/bin/esp_perf/arguments.rs"]
mod esp_perf;
#[path = "../../esp-preload/src/arguments.rs"]
mod esp_run;

fn main() -> anyhow::Result<()> {
    let folder = PathBuf::from(env::args_os().nth(1).context("name the folder for the pages")?);
    fs::create_dir_all(&folder)?;
    write_pages(&folder)
}

/// Writes a page for each program, and for each of its commands.
pub fn write_pages(folder: &Path) -> anyhow::Result<()> {
    let user_programs = [
        board::binding::Arguments::command(),
        board::check::Arguments::command(),
        board::counters::Arguments::command(),
        board::endpoints::Arguments::command(),
        board::hostname::Arguments::command(),
        board::peers::Arguments::command(),
        board::tune::Arguments::command(),
        copies::Arguments::command(),
        esp_perf::Arguments::command(),
        esp_ping::Arguments::command(),
        esp_run::Arguments::command(),
        esp_ss::Arguments::command(),
        info::Arguments::command(),
        lci_program::Arguments::command(),
        nicctl::Arguments::command(),
        perf::Arguments::command(),
    ];
    let administrators_programs = [omxd::Arguments::command(), board::init::Arguments::command()];
    for (section, programs) in [("1", &user_programs[..]), ("8", &administrators_programs[..])] {
        for program in programs {
            let mut program = program.clone().disable_help_subcommand(true);
            program.build();
            write_page(folder, section, &program)?;
        }
    }
    // Another name of the same program.
    fs::write(folder.join("omxoed.8"), ".so man8/omxd.8\n").context("cannot write omxoed.8")
}

fn write_page(folder: &Path, section: &str, command: &Command) -> anyhow::Result<()> {
    let man = Man::new(command.clone()).section(section);
    let path = folder.join(man.get_filename());
    let mut page = Vec::new();
    man.render(&mut page)?;
    let page = String::from_utf8(page)?;
    // The one that is made leaves out what options take.
    let (before, after) = page.split_once(SYNOPSIS).context("a page without a synopsis")?;
    let after = after.split_once("\n.SH ").map_or("", |(_, after)| after);
    let page = format!("{before}{SYNOPSIS}{}\n.SH {after}", synopsis(command));
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    command
        .get_subcommands()
        .try_for_each(|inner| write_page(folder, section, inner))
}

const SYNOPSIS: &str = "\n.SH SYNOPSIS\n";

fn bold(text: &str) -> String {
    format!(r"\fB{}\fR", text.replace('-', r"\-"))
}

/// How a program is called: its options with what they take, its arguments, and that a command follows.
fn synopsis(command: &Command) -> String {
    let mut words = vec![bold(command.get_bin_name().unwrap_or(command.get_name()))];
    let shown = || command.get_arguments().filter(|argument| !argument.is_hide_set());
    let options = shown().filter(|argument| !argument.is_positional()).map(option);
    words.extend(options.chain(shown().filter(|argument| argument.is_positional()).map(argument)));
    if command.has_subcommands() {
        let name = command.get_subcommand_value_name().unwrap_or("COMMAND");
        words.push(format!(r"\fI{name}\fR"));
    }
    words.join(" ")
}

/// The values of an option or argument, as its help names them.
fn values(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let names: Vec<_> = names.iter().map(|name| format!(r"\fI{name}\fR")).collect();
    let more = argument
        .get_num_args()
        .is_some_and(|range| range.max_values() > names.len());
    format!("{}{}", names.join(r"\ "), if more { "..." } else { "" })
}

fn bracketed(argument: &Arg, text: String) -> String {
    if argument.is_required_set() {
        text
    } else {
        format!("[{text}]")
    }
}

fn option(argument: &Arg) -> String {
    let short = argument.get_short().map(|short| bold(&format!("-{short}")));
    let long = argument.get_long().map(|long| bold(&format!("--{long}")));
    let names: Vec<_> = short.into_iter().chain(long).collect();
    let values = match argument.get_num_args().filter(|range| range.takes_values()) {
        None => String::new(),
        Some(range) if range.min_values() > 0 => format!(r"\ {}", values(argument)),
        Some(_) if argument.is_require_equals_set() => format!("[={}]", values(argument)),
        Some(_) => format!(r"\ [{}]", values(argument)),
    };
    bracketed(argument, format!("{}{values}", names.join("|")))
}

fn argument(argument: &Arg) -> String {
    bracketed(argument, values(argument))
}
