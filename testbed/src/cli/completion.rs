//! Completion in shells: the words of the command line, and the names in the running lab. On any failure it completes
//! nothing and prints nothing, since it runs while the user is typing.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io::{self, Write},
    sync::mpsc,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::{
    CompleteEnv,
    engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter},
    env::Shells,
};

use super::{
    common::{CommonOptions, here},
    help,
};
use crate::{
    lab::{Strategy, topology::Topology},
    state::{self, StateDir},
    supervisor_client::client::Client,
};

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(add = here(&[
    ("weft completion bash >> ~/.bashrc", "for bash"),
    ("weft completion zsh >> ~/.zshrc", "for zsh"),
    ("weft completion fish > ~/.config/fish/completions/weft.fish", "for fish"),
]))]
pub(super) struct CompletionArgs {
    /// The shell.
    shell: clap_complete::Shell,
}

/// Variable by which a shell's script requests completion.
const VARIABLE: &str = "WEFT_COMPLETE";

/// Time that a lab may take to answer: with a longer wait the shell seems to hang.
const PATIENCE: Duration = Duration::from_millis(300);

/// Answers a shell's script if it called this process, whose work is then done.
pub(super) fn answered() -> bool {
    if std::env::var_os(VARIABLE).is_none() {
        return false;
    }
    let asked = CompleteEnv::with_factory(|| with_names(help::command()))
        .var(VARIABLE)
        .bin("weft");
    // A shell would show an error in the middle of the line.
    asked
        .try_complete(std::env::args_os(), std::env::current_dir().ok().as_deref())
        .unwrap_or(true)
}

/// Writes the script for a shell to standard output.
pub(super) fn run(_: &CommonOptions, args: &CompletionArgs) -> Result<()> {
    let weft = std::env::current_exe().context("cannot find the running weft")?;
    let weft = weft.to_str().context("the folder of weft is not named in UTF-8")?;
    let shells = Shells::builtins();
    let name = args.shell.to_string();
    let writer = shells
        .completer(&name)
        .with_context(|| format!("there is no completion for {name}"))?;
    // The script is not written to standard output directly, which may be closed.
    let mut script = Vec::new();
    writer.write_registration(VARIABLE, "weft", "weft", weft, &mut script)?;
    io::stdout().lock().write_all(&script)?;
    Ok(())
}

/// The kinds of names by which an argument is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    Labs,
    Nodes,
    NodesOrNics,
    Switches,
    Logs,
    Strategies,
    Files,
    NodesOrFiles,
}

/// Returns what the argument `id` of the verb `path` names.
fn named(path: &str, id: &str) -> Option<Names> {
    Some(match (path, id) {
        (_, "lab") => Names::Labs,
        ("nic trace", "node") | (_, "nic" | "nics") => Names::NodesOrNics,
        (_, "node" | "nodes") => Names::Nodes,
        (_, "from" | "to") if path.starts_with("trunk") => Names::Switches,
        (_, "switch") => Names::Switches,
        ("logs", "what") => Names::Logs,
        ("nic coalesce", "strategy") => Names::Strategies,
        ("cp", "source" | "destination") => Names::NodesOrFiles,
        (_, "file" | "folder" | "restore" | "topo" | "out" | "write" | "capture" | "output") => Names::Files,
        _ => return None,
    })
}

/// Adds the completion of names to the command line.
fn with_names(command: Command) -> Command {
    walk(command, "")
}

fn walk(mut command: Command, path: &str) -> Command {
    let verbs: Vec<_> = command
        .get_subcommands()
        .map(|verb| verb.get_name().to_owned())
        .collect();
    for verb in verbs {
        let path = format!("{path} {verb}").trim().to_owned();
        command = command.mut_subcommand(verb, |verb| walk(verb, &path));
    }
    command.mut_args(|argument| match named(path, argument.get_id().as_str()) {
        Some(names) => argument.add(ArgValueCompleter::new(move |begun: &OsStr| candidates(names, begun))),
        None => argument,
    })
}

fn candidates(names: Names, begun: &OsStr) -> Vec<CompletionCandidate> {
    let mut found = Vec::new();
    if matches!(names, Names::Files | Names::NodesOrFiles) {
        found = PathCompleter::any().complete(begun);
    }
    let Some(begun) = begun.to_str() else { return found };
    // Of several names separated by commas, the last one is being typed.
    let (before, last) = match begun.rfind(',') {
        Some(comma) if names == Names::Nodes => begun.split_at(comma + 1),
        _ => ("", begun),
    };
    let fitting = words(names).into_iter().filter(|word| word.starts_with(last));
    found.extend(fitting.map(|word| CompletionCandidate::new(format!("{before}{word}"))));
    found
}

fn words(names: Names) -> Vec<String> {
    if names == Names::Labs {
        return state::running_labs().unwrap_or_default();
    }
    if names == Names::Files {
        return Vec::new();
    }
    let labs = match std::env::var("WEFT_LAB") {
        Ok(lab) if !lab.is_empty() => vec![lab],
        _ => state::running_labs().unwrap_or_default(),
    };
    if names == Names::Strategies {
        return strategies(labs.first());
    }
    let mut words = BTreeMap::new();
    for topology in labs.iter().filter_map(|lab| topology(lab)) {
        for word in of_topology(names, &topology) {
            let place = words.len();
            words.entry(word).or_insert(place);
        }
    }
    let mut words: Vec<_> = words.into_iter().collect();
    words.sort_by_key(|(_, place)| *place);
    words.into_iter().map(|(word, _)| word).collect()
}

fn of_topology(names: Names, topology: &Topology) -> Vec<String> {
    let nodes = topology.nodes.iter().map(|node| node.name.clone());
    let nics = topology.nics().map(|nic| nic.name.clone());
    match names {
        Names::Nodes => nodes.chain(["all".to_owned()]).collect(),
        Names::NodesOrNics => nodes.chain(nics).collect(),
        Names::Switches => topology.switches.clone(),
        Names::Logs => nodes.chain(["vnicd", "weft"].map(str::to_owned)).collect(),
        Names::NodesOrFiles => nodes.map(|node| node + ":").collect(),
        Names::Labs | Names::Strategies | Names::Files => Vec::new(),
    }
}

/// Returns the topology of the lab, if the lab answers soon.
fn topology(lab: &str) -> Option<Topology> {
    let client = Client::new(StateDir::of(lab));
    soon(move || client.topology())
}

/// Returns the strategies of the lab's cards, or without a lab those that are shipped.
fn strategies(lab: Option<&String>) -> Vec<String> {
    let of_lab = lab.and_then(|lab| {
        let client = Client::new(StateDir::of(lab));
        soon(move || Ok(client.vnicd()?.info()?.strategies))
    });
    of_lab.unwrap_or_else(|| Strategy::NAMES.iter().map(ToString::to_string).collect())
}

/// Returns an answer, if it comes soon.
fn soon<T: Send + 'static>(ask: impl FnOnce() -> Result<T> + Send + 'static) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    // A thread that takes too long is abandoned; this process ends anyway.
    let asking = std::thread::Builder::new().spawn(move || sender.send(ask()));
    asking.ok()?;
    receiver.recv_timeout(PATIENCE).ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects every argument of every verb, as `verb: argument`.
    fn arguments(command: &Command, path: &str, found: &mut Vec<(String, String)>) {
        for verb in command.get_subcommands() {
            arguments(verb, format!("{path} {}", verb.get_name()).trim(), found);
        }
        found.extend(
            command
                .get_arguments()
                .map(|argument| (path.to_owned(), argument.get_id().to_string())),
        );
    }

    #[test]
    fn what_names_a_node_a_card_a_switch_or_a_lab_is_completed() {
        let mut found = Vec::new();
        arguments(&help::command(), "", &mut found);
        for (path, id) in [
            ("exec", "node"),
            ("wait", "nodes"),
            ("console", "node"),
            ("stop", "node"),
            ("nic coalesce", "nic"),
            ("nic trace", "node"),
            ("nic group join", "nic"),
            ("capture", "nics"),
            ("link set", "nic"),
            ("link ls", "nic"),
            ("trunk set", "from"),
            ("trunk set", "to"),
            ("logs", "what"),
            ("cp", "source"),
            ("graph", "file"),
            ("up", "file"),
        ] {
            assert!(
                found.contains(&(path.to_owned(), id.to_owned())),
                "{path} has no {id} any more"
            );
            assert!(named(path, id).is_some(), "{path} {id}");
        }
        for (path, id) in found
            .iter()
            .filter(|(_, id)| ["node", "nodes", "nic", "nics", "lab", "switch"].contains(&id.as_str()))
        {
            assert!(named(path, id).is_some(), "{path} {id}");
        }
    }
}
