//! `weft import`: writes a lab file for a topology of another program.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Result;

use crate::{
    cli::common::{CommonOptions, here},
    containerlab::Translation,
    lab_file,
    report::{file::OutFile, say},
};

/// Write a lab file for a topology of containerlab.
///
/// Nodes of the kinds linux and bridge, links, `binds`, `exec`, `env`, `labels` and `mtu` are translated; the rest is told by line on
/// standard error. Guests boot the image "network" in place of container images.
#[derive(Debug, clap::Args)]
#[command(add = here(&[
    ("weft import containerlab frr.clab.yml > frr.toml", "write the lab file"),
    ("weft import containerlab frr.clab.yml -o frr.toml", "the same"),
]))]
pub(in crate::cli) struct ImportArgs {
    /// The program that the file is of.
    format: Format,
    /// The topology file.
    file: PathBuf,
    /// Write to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The programs whose files are known.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    /// Topologies of containerlab.
    Containerlab,
}

/// Writes the lab file.
pub(in crate::cli) fn run(_: &CommonOptions, args: &ImportArgs) -> Result<()> {
    let Format::Containerlab = args.format;
    let translation = lab_file::translated(&args.file)?;
    tell(&translation, &args.file);
    let text = lab_file::text_of(&translation, &args.file);
    match &args.output {
        None => io::stdout().write_all(text.as_bytes())?,
        Some(path) => {
            let mut file = OutFile::open(path)?;
            file.writer()?.write_all(text.as_bytes())?;
            file.keep();
        }
    }
    // What `weft up` would refuse is said now, and the file is there to be mended.
    lab_file::translated_lab(&text, &args.file, None)?;
    Ok(())
}

/// Says what a translation lacks, line by line.
pub(super) fn tell(translation: &Translation, file: &Path) {
    for note in &translation.notes {
        say(format_args!("{}:{note}", file.display()));
    }
}
