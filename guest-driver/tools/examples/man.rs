//! Writes the man pages of the tools and of `omxd` to a folder: `cargo run -p tools --example man FOLDER`. They are made from
//! the same definitions as the help texts.

use std::{env, fs, path::PathBuf};

use anyhow::Context;
use clap::CommandFactory;
use clap_mangen::Man;
use tools::{board, info, nicctl, perf};

fn main() -> anyhow::Result<()> {
    let folder = PathBuf::from(env::args_os().nth(1).context("name the folder for the pages")?);
    fs::create_dir_all(&folder)?;
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
    for (section, commands) in [("1", &user_programs[..]), ("8", &administrators_programs[..])] {
        for command in commands {
            let path = folder.join(format!("{}.{section}", command.get_name()));
            let mut page = Vec::new();
            Man::new(command.clone()).section(section).render(&mut page)?;
            fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    // Another name of the same program.
    fs::write(folder.join("omxoed.8"), ".so man8/omxd.8\n").context("cannot write omxoed.8")?;
    Ok(())
}
