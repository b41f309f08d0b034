//! `weft graph`: draws a lab as a picture.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::Result;

use super::common::{CommonOptions, client, show};
use crate::{
    graph::{self, Format},
    lab::topology::Topology,
    lab_file,
    report::{file::OutFile, table},
};

/// Draw a lab: its nodes, switches and cables.
#[derive(Debug, clap::Args)]
#[command(add = show(&[
    ("weft graph", "the running lab as text"),
    ("weft graph lab.toml --format mermaid", "a lab file for a web page"),
    ("weft graph --format svg -o lab.svg", "a picture"),
    ("weft graph --format dot | dot -Tpng -o lab.png", "by Graphviz"),
]))]
pub(super) struct GraphArgs {
    /// A lab file (default: the running lab, with its cables as they are set now).
    file: Option<PathBuf>,
    /// Output format.
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    format: Format,
    /// Write to a file instead.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(options: &CommonOptions, args: &GraphArgs) -> Result<()> {
    let topology = match &args.file {
        Some(file) => Topology::of(&lab_file::load(file)?),
        None => client(options)?.topology()?,
    };
    if options.json {
        return table::print_json(&topology);
    }
    let picture = graph::draw(&topology, args.format);
    match &args.out {
        Some(path) => {
            let mut file = OutFile::open(path)?;
            file.writer()?.write_all(picture.as_bytes())?;
            file.keep();
        }
        None => io::stdout().lock().write_all(picture.as_bytes())?,
    }
    Ok(())
}
