//! `omx_init_peers`: puts hosts into the peer tables, for networks whose hosts are known beforehand.

use std::{fs, path::Path, process::ExitCode};

use anyhow::{Context, bail};
use clap::Parser;
use ether::MacAddr;

use super::chosen;
use crate::run::print_line;

/// Adds peers: from a file with an address and a name per line, or the one that is given, on all boards. Only root may.
#[derive(Debug, Parser)]
#[command(name = "omx_init_peers", version)]
pub struct Arguments {
    /// Only on this board
    #[arg(short = 'b', value_name = "NUMBER")]
    board: Option<u32>,
    /// Forget the names that are known first; peers keep their numbers
    #[arg(short = 'c')]
    replace: bool,
    /// Keep the known peers (default)
    #[arg(short = 'a', conflicts_with = "replace")]
    append: bool,
    /// Mark the table as configured. Nothing to do: it is as soon as it has a peer, and where there is discovery
    #[arg(short = 'd')]
    done: bool,
    /// Print what is being done
    #[arg(short = 'v')]
    verbose: bool,
    /// A file, or address and name of one peer
    #[arg(value_name = "FILE | ADDRESS NAME", num_args = 0..=2)]
    peers: Vec<String>,
}

/// Runs `omx_init_peers`.
///
/// # Errors
/// A file that cannot be read or has a line that is none, a full table, no permission.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let peers = match &arguments.peers[..] {
        [] => Vec::new(),
        [file] => read(Path::new(file))?,
        [address, name, ..] => vec![(parse_address(address)?, name.clone())],
    };
    for board in chosen(arguments.board)? {
        if arguments.replace {
            board.clear_names()?;
        }
        for (mac, name) in &peers {
            board.set_name(Some(*mac), name)?;
            if arguments.verbose {
                print_line(&format!("{}: {mac} is {name}", board.interface().name))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn parse_address(text: &str) -> anyhow::Result<MacAddr> {
    text.parse()
        .ok()
        .with_context(|| format!("{text:?} is no address like 02:00:00:00:00:01"))
}

pub(super) fn read(path: &Path) -> anyhow::Result<Vec<(MacAddr, String)>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut peers = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some(address), Some(name), None) => {
                let address = parse_address(address).with_context(|| format!("{} line {number}", path.display()))?;
                peers.push((address, name.to_owned()));
            }
            _ => bail!("{} line {number}: expected an address and a name", path.display()),
        }
    }
    Ok(peers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_an_address_and_a_name_per_line_and_comments() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("peers");
        fs::write(
            &path,
            "# all\n02:00:00:00:00:01 one:0\n\n02:00:00:00:00:02\ttwo:0 # second\n",
        )
        .unwrap();
        let peers = read(&path).unwrap();
        assert_eq!(peers.len(), 2);
        assert_eq!(peers[1], (MacAddr([2, 0, 0, 0, 0, 2]), "two:0".to_owned()));
        for bad in ["02:00:00:00:00:01", "x y", "02:00:00:00:00:01 a b"] {
            fs::write(&path, bad).unwrap();
            assert!(read(&path).unwrap_err().to_string().contains("line 1"), "{bad}");
        }
    }
}
