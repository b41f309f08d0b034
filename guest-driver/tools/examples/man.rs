//! Writes the man pages of the tools and of `omxd` to a folder: `cargo run -p tools --example man FOLDER`. They are made from
//! the same definitions as the help texts.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use tools::{board, info, nicctl, perf};

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
        info::Arguments::command(),
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
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    command
        .get_subcommands()
        .try_for_each(|inner| write_page(folder, section, inner))
}
