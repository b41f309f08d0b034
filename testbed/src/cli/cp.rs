//! `weft cp`: copies files and folders into a node and out of it.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result, bail};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use super::common::{CommonOptions, Usage, act, agent, attached_command::give_up, check_node, client};
use crate::{
    guest_channel::{ChannelError, GuestChannel},
    interrupted::Interrupted,
};

/// Copy a file or folder into a node or out of it.
#[derive(Debug, clap::Args)]
#[command(add = act(&[
    ("weft cp program n1:/root/", "into a node"),
    ("weft cp -r n1:/var/log .", "a folder out of it"),
]))]
pub(super) struct CpArgs {
    /// Accepted for convenience: folders are always copied whole.
    #[arg(short, short_alias = 'R', long)]
    recursive: bool,
    /// What to copy: `PATH` or `NODE:PATH`.
    source: String,
    /// Where to: `PATH` or `NODE:PATH`.
    destination: String,
}

/// One side of a copy.
enum Place<'a> {
    Here(&'a str),
    Node { node: &'a str, path: &'a str },
}

impl<'a> Place<'a> {
    /// Parses a side: `NODE:PATH` is in a node; a path of this machine with a colon is written with a slash before it,
    /// as for scp.
    fn parse(text: &'a str) -> Self {
        match text.split_once(':') {
            Some((node, path)) if !node.is_empty() && !node.contains('/') => Self::Node { node, path },
            _ => Self::Here(text),
        }
    }
}

pub(super) fn run(options: &CommonOptions, args: &CpArgs) -> Result<()> {
    let client = &client(options)?;
    match (Place::parse(&args.source), Place::parse(&args.destination)) {
        (Place::Here(source), Place::Node { node, path }) => {
            check_node(client, node)?;
            let path = if path.is_empty() { "." } else { path };
            let channel = agent(client, node)?;
            endable(&channel, node, |channel| channel.copy_in(Path::new(source), path))
        }
        (Place::Node { node, path }, Place::Here(destination)) => {
            check_node(client, node)?;
            let channel = agent(client, node)?;
            endable(&channel, node, |channel| {
                channel.copy_out(path, Path::new(destination)).map(drop)
            })
        }
        _ => {
            let sentence = "one side of a copy is in a node and the other here: `weft cp FILE n1:/tmp` or `weft cp n1:/tmp/FILE .`";
            Err(Usage(sentence.to_owned()).into())
        }
    }
}

/// Runs a copy that Ctrl-C ends as if the guest had gone, so that no partial copy is left here; a second Ctrl-C ends it
/// immediately.
fn endable(
    channel: &GuestChannel,
    node: &str,
    copy: impl FnOnce(&GuestChannel) -> Result<(), ChannelError>,
) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot catch signals")?;
    let ended = Arc::new(AtomicBool::new(false));
    let (ending, asked) = (channel.clone(), Arc::clone(&ended));
    let name = node.to_owned();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if asked.swap(true, Ordering::SeqCst) {
                give_up(
                    signal,
                    &format!("the copy was told to end twice; {name} may keep a part of it"),
                );
            }
            ending.close();
        }
    })?;
    match copy(channel) {
        Ok(()) => Ok(()),
        Err(_) if ended.load(Ordering::SeqCst) => Err(Interrupted.into()),
        // The guest's sentence is about a path in it.
        Err(ChannelError::Refused(why) | ChannelError::NotStarted { message: why, .. }) => bail!("{node}: {why}"),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_says_that_a_path_is_in_a_node_unless_a_slash_comes_first() {
        assert!(matches!(
            Place::parse("n1:/tmp"),
            Place::Node {
                node: "n1",
                path: "/tmp"
            }
        ));
        assert!(matches!(Place::parse("n1:"), Place::Node { node: "n1", path: "" }));
        assert!(matches!(Place::parse("./a:b"), Place::Here("./a:b")));
        assert!(matches!(Place::parse("file"), Place::Here("file")));
    }
}
