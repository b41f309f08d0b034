//! `weft init`: writes an example lab file, and overwrites an existing file only with `--force`.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

use crate::{
    cli::common::{CommonOptions, here},
    report::{file::OutFile, say},
};

/// Write an example lab file.
#[derive(Debug, clap::Args)]
#[command(add = here(&[
    ("weft init", "write lab.toml: two nodes on a switch"),
    ("weft init course.toml", "write another file"),
]))]
pub(in crate::cli) struct InitArgs {
    /// File to write.
    #[arg(default_value = "lab.toml")]
    file: PathBuf,
    /// Overwrite the file if it exists.
    #[arg(long)]
    force: bool,
}

/// Text of the example.
const EXAMPLE: &str = include_str!("example.toml");

/// Writes the example.
pub(in crate::cli) fn run(_: &CommonOptions, args: &InitArgs) -> Result<()> {
    init(&args.file, args.force)
}

fn init(file: &Path, force: bool) -> Result<()> {
    let mut opened = match OutFile::new(file)? {
        Some(new) => new,
        None if force => OutFile::open(file)?,
        None => bail!(
            "{} exists: choose another name, or replace it with --force",
            file.display()
        ),
    };
    opened.writer()?.write_all(EXAMPLE.as_bytes())?;
    opened.keep();
    say(format_args!("{} written: `weft up {0}` starts it", file.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab_file;

    #[test]
    fn the_example_is_a_lab_and_is_never_written_over_something() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let file = folder.path().join("lab.toml");
        init(&file, false).expect("the folder is empty");
        let lab = lab_file::load(&file).expect("the example is right");
        assert_eq!((lab.name.as_str(), lab.nodes.len()), ("pair", 2));
        let refusal = init(&file, false).expect_err("it exists").to_string();
        assert!(
            refusal.ends_with("exists: choose another name, or replace it with --force"),
            "{refusal}"
        );
        init(&file, true).expect("replaced");
    }
}
