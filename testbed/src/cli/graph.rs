//! `weft graph`: a lab as a picture.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::Result;
use clap::Args;

use super::{args::Cli, client};
use crate::{
    graph::{self, Format},
    lab::{Lab, topology::Topology},
    report::{file::OutFile, table},
};

/// Options of `graph`.
#[derive(Args, Debug)]
pub struct GraphArgs {
    /// A lab file (default: the running lab, with its cables as they are set now).
    pub file: Option<PathBuf>,
    /// Output format.
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub format: Format,
    /// Write to a file instead.
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

pub(super) fn graph(cli: &Cli, args: &GraphArgs) -> Result<()> {
    let topology = match &args.file {
        Some(file) => Topology::of(&Lab::load(file)?),
        None => client(cli)?.topology()?,
    };
    if cli.json {
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
