//! The command line as it is shown and read: examples for every verb, and the options that belong to all verbs only where they
//! mean something. Examples are written for the lab of `weft init`, nodes n1 and n2.

use anyhow::Result;
use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches,
    error::{ContextKind, ContextValue},
    parser::ValueSource,
};

use super::{Usage, args::Cli};

/// Options by which `weft` starts itself.
const HIDDEN_OPTIONS: &[&str] = &["--supervise"];

/// What is known of a verb beside its arguments.
struct Verb {
    /// Its words, such as `nic stats`.
    path: &'static str,
    /// Whether it is about a running lab, so that `--lab` says which.
    lab: bool,
    /// Whether it prints something as JSON.
    json: bool,
    /// Command lines, each with what it does.
    examples: &'static [(&'static str, &'static str)],
}

/// A verb about the files and programs of this machine.
const fn here(path: &'static str, examples: &'static [(&'static str, &'static str)]) -> Verb {
    Verb {
        path,
        lab: false,
        json: false,
        examples,
    }
}

/// A verb that does something in a running lab.
const fn act(path: &'static str, examples: &'static [(&'static str, &'static str)]) -> Verb {
    Verb {
        lab: true,
        ..here(path, examples)
    }
}

/// A verb that shows something of a running lab.
const fn show(path: &'static str, examples: &'static [(&'static str, &'static str)]) -> Verb {
    Verb {
        json: true,
        ..act(path, examples)
    }
}

/// Every verb. The first example of one that prints JSON is run in a test.
const VERBS: &[Verb] = &[
    Verb {
        json: true,
        ..here("check", &[("weft check", "check this machine")])
    },
    here(
        "init",
        &[
            ("weft init", "write lab.toml: two nodes on a switch"),
            ("weft init course.toml", "write another file"),
        ],
    ),
    Verb {
        json: true,
        ..here(
            "up",
            &[
                ("weft up", "start the lab of lab.toml; Ctrl-C ends it"),
                ("weft up -d course.toml", "leave it running"),
                ("weft up --dry-run", "show what a changed file would change"),
                ("weft up -d --accel tcg", "emulate the guests even if KVM works"),
                ("weft up -d --restore pair.save", "continue a saved lab"),
            ],
        )
    },
    here("deploy", &[("weft deploy lab.toml", "start a lab in the background")]),
    act(
        "wait",
        &[
            ("weft wait", "until all nodes with weft-agent are ready"),
            ("weft wait n1 n2 --timeout 300s", "for nodes that boot slowly"),
        ],
    ),
    show(
        "ps",
        &[("weft ps", "labs and nodes"), ("weft ps --json", "for programs")],
    ),
    act(
        "exec",
        &[
            ("weft exec n1 -- ping -c 3 n2", "a command in a node"),
            ("weft exec -it n1 sh", "a shell on a terminal"),
            ("weft exec all -- ip -br address", "in all nodes at once"),
            ("weft exec 'n[1-2]' -- uname -r", "in some"),
            ("weft exec n1 -- sh -c 'cat > /tmp/x' < file", "with input"),
        ],
    ),
    act(
        "cp",
        &[
            ("weft cp program n1:/root/", "into a node"),
            ("weft cp -r n1:/var/log .", "a folder out of it"),
        ],
    ),
    act(
        "console",
        &[
            ("weft console n1", "a shell; Ctrl-D ends it"),
            ("weft console --serial n1", "the serial line; Ctrl-] leaves it"),
        ],
    ),
    act(
        "logs",
        &[
            ("weft logs n1", "what n1 printed on its serial line"),
            ("weft logs -f vnicd", "the log of the cards as it grows"),
        ],
    ),
    act(
        "stop",
        &[
            ("weft stop n1", "shut n1 down"),
            ("weft stop --force n1", "power it off at once"),
        ],
    ),
    act(
        "start",
        &[
            ("weft start n1", "start it again"),
            ("weft start all", "all stopped nodes"),
        ],
    ),
    act("restart", &[("weft restart n1", "shut n1 down and start it")]),
    show(
        "save",
        &[
            ("weft save", "save to LAB.save and keep running"),
            ("weft save --stop before-the-exam", "save and stop the lab"),
            ("weft save --force", "replace the previous save"),
        ],
    ),
    show(
        "pingall",
        &[
            ("weft pingall", "all pairs of nodes"),
            (
                "weft pingall --count 10 --timeout 1s",
                "more requests, a shorter timeout",
            ),
        ],
    ),
    act(
        "inventory",
        &[
            ("weft inventory", "names and addresses as in /etc/hosts"),
            ("weft inventory --format ssh > lab.ssh", "then: ssh -F lab.ssh n1"),
            (
                "weft inventory --format ansible > lab.yml",
                "then: ansible -i lab.yml all -m ping",
            ),
        ],
    ),
    show(
        "graph",
        &[
            ("weft graph", "the running lab as text"),
            ("weft graph lab.toml --format mermaid", "a lab file for a web page"),
            ("weft graph --format svg -o lab.svg", "a picture"),
            ("weft graph --format dot | dot -Tpng -o lab.png", "by Graphviz"),
        ],
    ),
    show(
        "nic stats",
        &[
            ("weft nic stats", "all cards"),
            ("weft nic stats n1.eth0 --json", "every counter of one"),
        ],
    ),
    show(
        "nic coalesce",
        &[
            ("weft nic coalesce n1", "what is set"),
            ("weft nic coalesce n1 open-mx --delay 1ms", "another strategy"),
            (
                "weft nic coalesce n1.eth0 timeout --delay 75us --frames 32",
                "with a count limit",
            ),
        ],
    ),
    show(
        "nic steering",
        &[
            ("weft nic steering n1", "what is set"),
            ("weft nic steering n1 endpoint --endpoints 0,1", "by MX endpoint"),
        ],
    ),
    show(
        "nic misorder",
        &[
            ("weft nic misorder n1", "settings and counters"),
            ("weft nic misorder n1 3", "mark three fragments early"),
        ],
    ),
    show(
        "nic queues",
        &[("weft nic queues n1", "counters of each receive queue")],
    ),
    show("nic adaptive", &[("weft nic adaptive n1", "rate and delay in force")]),
    show(
        "nic watchdog",
        &[
            ("weft nic watchdog n1", "settings and counters"),
            ("weft nic watchdog n1 100us", "instead of the timeout"),
            ("weft nic watchdog n1 off", "back to the timeout"),
        ],
    ),
    show("nic group list", &[("weft nic group list", "groups and their members")]),
    show(
        "nic group join",
        &[("weft nic group join n1 7", "add n1's card to group 7")],
    ),
    show("nic group leave", &[("weft nic group leave n1 7", "remove it again")]),
    show(
        "nic group tree",
        &[("weft nic group tree 7 chain", "another tree for group 7")],
    ),
    show(
        "nic trace",
        &[
            ("weft nic trace n1 --seconds 1", "one second, as JSON"),
            (
                "weft nic trace n1 --seconds 5 --out n1.json",
                "for https://ui.perfetto.dev",
            ),
            ("weft nic trace n1 --card 0 --format text", "as lines, until Ctrl-C"),
        ],
    ),
    act(
        "nic reload",
        &[("weft nic reload", "replace vnicd with the one just built")],
    ),
    show(
        "nic vlan",
        &[
            ("weft nic vlan n1", "its VLANs"),
            ("weft nic vlan n1 10", "an access port of VLAN 10"),
            ("weft nic vlan n1 none --tagged 10,20", "only frames with tags"),
            ("weft nic vlan n1 default", "as if it had none"),
        ],
    ),
    show(
        "nic copy-engine",
        &[(
            "weft nic copy-engine",
            "copies of cards that are connected to themselves",
        )],
    ),
    show(
        "nic info",
        &[("weft nic info", "all cards"), ("weft nic info n1", "those of a node")],
    ),
    show(
        "link ls",
        &[
            ("weft link ls", "all cables of cards"),
            ("weft link ls n1", "those of a node"),
        ],
    ),
    show(
        "link set",
        &[
            ("weft link set n1 --rate 100Mbit --delay 5ms", "a slow and long cable"),
            (
                "weft link set n1 --loss 1% --direction to-guest",
                "loss towards the guest",
            ),
            ("weft link set n1 down", "pull it out"),
        ],
    ),
    show("trunk ls", &[("weft trunk ls", "cables between switches")]),
    show(
        "trunk set",
        &[
            ("weft trunk set s1 s2 --rate 1Gbit", "a slower trunk"),
            ("weft trunk set s1 s2 down", "pull it out"),
            ("weft trunk set s1 s2 down --number 2", "the second of several"),
        ],
    ),
    show("switch ls", &[("weft switch ls", "all switches")]),
    show(
        "switch macs",
        &[
            ("weft switch macs", "all stations"),
            ("weft switch macs s1", "those of one switch"),
        ],
    ),
    show("switch vlans", &[("weft switch vlans", "the VLANs of all ports")]),
    show("switch stp", &[("weft switch stp", "root, roles and states")]),
    show(
        "switch groups",
        &[("weft switch groups", "multicast groups and their members")],
    ),
    show(
        "switch stats",
        &[("weft switch stats", "counters and drops of all ports")],
    ),
    act(
        "capture",
        &[
            ("weft capture n1 -w n1.pcapng", "into a file, until Ctrl-C"),
            ("weft capture | tshark -r -", "all cards, read by tshark"),
        ],
    ),
    act(
        "down",
        &[("weft down", "stop the lab"), ("weft down --all", "stop all labs")],
    ),
    here(
        "clean",
        &[
            ("weft clean", "leftovers of dead labs"),
            ("weft clean --cache", "and the built images"),
        ],
    ),
    Verb {
        json: true,
        ..here(
            "demo",
            &[
                ("weft demo", "measure and explain; takes minutes"),
                ("weft demo --rounds 1 --output quick", "a short one"),
            ],
        )
    },
    here(
        "completion",
        &[
            ("weft completion bash >> ~/.bashrc", "for bash"),
            ("weft completion zsh >> ~/.zshrc", "for zsh"),
            (
                "weft completion fish > ~/.config/fish/completions/weft.fish",
                "for fish",
            ),
        ],
    ),
];

fn known(path: &str) -> Option<&'static Verb> {
    VERBS.iter().find(|verb| verb.path == path)
}

/// The command line with all that is shown of it.
pub(super) fn command() -> Command {
    dressed(Cli::command(), "")
}

/// A verb, and those below it, with examples and without options that mean nothing there.
fn dressed(mut command: Command, path: &str) -> Command {
    let verbs: Vec<_> = command
        .get_subcommands()
        .map(|verb| verb.get_name().to_owned())
        .collect();
    for verb in &verbs {
        let path = format!("{path} {verb}").trim().to_owned();
        command = command.mut_subcommand(verb, |verb| dressed(verb, &path));
    }
    if !verbs.is_empty() && !path.is_empty() {
        // A group of verbs: the first example of each.
        let firsts = verbs
            .iter()
            .filter_map(|verb| known(&format!("{path} {verb}"))?.examples.first());
        return command.after_long_help(examples(firsts));
    }
    let Some(verb) = known(path).filter(|_| verbs.is_empty()) else {
        return command;
    };
    // Hidden in the place of the ones that all verbs have: so that they can be refused with a sentence.
    if !verb.json {
        command = command.arg(Arg::new("json").long("json").action(ArgAction::SetTrue).hide(true));
    }
    if !verb.lab {
        command = command.arg(Arg::new("lab").short('l').long("lab").hide(true));
    }
    let before = command
        .get_after_help()
        .map(|text| format!("{text}\n\n"))
        .unwrap_or_default();
    command.after_long_help(before + &examples(verb.examples.iter()))
}

/// `Examples:` and a line for each, what they do beside them.
fn examples<'a>(of: impl Iterator<Item = &'a (&'a str, &'a str)> + Clone) -> String {
    let width = of.clone().map(|(line, _)| line.chars().count()).max().unwrap_or(0);
    let lines = of.map(|(line, what)| format!("\n  {line:width$}   {what}"));
    "Examples:".to_owned() + &lines.collect::<String>()
}

/// Reads the command line; ends the process as `clap` does when it cannot be read. The result says whether what it asks for can
/// mean something.
pub(super) fn parse() -> (Cli, Result<()>) {
    let matches = command()
        .try_get_matches()
        .unwrap_or_else(|error| without_hidden(error).exit());
    match Cli::from_arg_matches(&matches) {
        Ok(cli) => (cli, check(&matches)),
        Err(error) => error.format(&mut command()).exit(),
    }
}

/// A mistake without the hint at an option that people are not shown.
fn without_hidden(mut error: clap::Error) -> clap::Error {
    let hidden = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(option)) => HIDDEN_OPTIONS.contains(&option.as_str()),
        _ => false,
    };
    if hidden {
        error.remove(ContextKind::SuggestedArg);
    }
    error
}

/// Refuses options that mean nothing for the verb.
fn check(matches: &ArgMatches) -> Result<()> {
    let mut path = Vec::new();
    let mut given = Vec::new();
    let mut level = Some(matches);
    while let Some(matches) = level {
        for option in ["json", "lab"] {
            let typed = matches.try_contains_id(option).is_ok()
                && matches.value_source(option) == Some(ValueSource::CommandLine);
            given.extend(typed.then_some(option));
        }
        level = matches.subcommand().map(|(verb, below)| {
            path.push(verb);
            below
        });
    }
    let path = path.join(" ");
    let Some(verb) = known(&path) else { return Ok(()) };
    for (option, is_meant, why) in [
        ("json", verb.json, "prints nothing as JSON"),
        ("lab", verb.lab, "is about no running lab"),
    ] {
        if given.contains(&option) && !is_meant {
            return Err(Usage(format!("`weft {path}` {why}: leave --{option} out")).into());
        }
    }
    Ok(())
}

/// The words of an example as a shell reads them, up to where its output goes elsewhere.
#[cfg(test)]
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            (None, '|' | '>' | '<') => break,
            (None, ' ') => words.push(String::new()),
            (_, letter) => words.last_mut().expect("there is one from the start").push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Examples that show something as JSON in the lab of `weft init`, for the tests of whole labs: the words after `weft`.
#[must_use]
pub fn json_examples() -> Vec<&'static str> {
    let shown = VERBS.iter().filter(|verb| verb.json && verb.lab);
    shown
        .filter_map(|verb| verb.examples.first()?.0.strip_prefix("weft "))
        .collect()
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use super::*;

    /// Every verb that has none below it, with its command.
    fn leaves(command: &Command, path: &str, found: &mut Vec<(String, Command)>) {
        for verb in command.get_subcommands() {
            leaves(verb, format!("{path} {}", verb.get_name()).trim(), found);
        }
        if command.get_subcommands().next().is_none() {
            found.push((path.to_owned(), command.clone()));
        }
    }

    #[test]
    fn every_verb_has_examples_that_can_be_read_and_options_that_mean_something() {
        let mut command = command();
        command.build();
        let mut found = Vec::new();
        leaves(&command, "", &mut found);
        for (path, mut command) in found {
            let verb = known(&path).unwrap_or_else(|| panic!("add `{path}` with an example to VERBS"));
            let help = command.render_long_help().to_string();
            assert!(
                !verb.examples.is_empty() && help.contains("\nExamples:\n  weft "),
                "{path}: {help}"
            );
            for (option, is_shown) in [("--json", verb.json), ("--lab", verb.lab)] {
                assert_eq!(
                    help.contains(&format!("      {option}")) || help.contains(&format!(", {option} ")),
                    is_shown,
                    "{path}: {help}"
                );
            }
            for (line, _) in verb.examples {
                let words = words(line);
                let starts: Vec<_> = words
                    .iter()
                    .map(String::as_str)
                    .take(1 + path.split(' ').count())
                    .collect();
                assert_eq!(starts.join(" "), format!("weft {path}"), "{line}");
                let matches = super::command().try_get_matches_from(&words);
                let matches = matches.unwrap_or_else(|error| panic!("{line}: {error}"));
                Cli::from_arg_matches(&matches).unwrap_or_else(|error| panic!("{line}: {error}"));
                check(&matches).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
        for verb in VERBS {
            let mut at = &command;
            for word in verb.path.split(' ') {
                at = at
                    .find_subcommand(word)
                    .unwrap_or_else(|| panic!("there is no verb {} any more", verb.path));
            }
        }
    }

    #[test]
    fn options_are_refused_where_they_mean_nothing_wherever_they_stand() {
        let said = |line: &str| {
            let matches = command().try_get_matches_from(line.split(' ')).expect("it can be read");
            check(&matches).map_err(|error| error.to_string())
        };
        for line in ["weft --json init", "weft init --json"] {
            assert_eq!(
                said(line),
                Err("`weft init` prints nothing as JSON: leave --json out".to_owned()),
                "{line}"
            );
        }
        for line in ["weft --lab a up", "weft up -l a"] {
            assert_eq!(
                said(line),
                Err("`weft up` is about no running lab: leave --lab out".to_owned()),
                "{line}"
            );
        }
        for line in [
            "weft --json ps",
            "weft ps --json",
            "weft nic --json stats",
            "weft --lab a nic stats n1",
        ] {
            assert_eq!(said(line), Ok(()), "{line}");
        }
        let matches = command()
            .try_get_matches_from(["weft", "nic", "stats", "--json", "--lab", "a"])
            .expect("it can be read");
        let cli = Cli::from_arg_matches(&matches).expect("it can be read");
        assert!(cli.json && cli.lab.as_deref() == Some("a"));
    }

    #[test]
    fn nothing_that_is_hidden_is_suggested() {
        for word in ["reap", "deplo", "rea", "supervise"] {
            let error = command()
                .try_get_matches_from(["weft", word])
                .expect_err("no verb")
                .to_string();
            let hints = error.lines().filter(|line| line.contains("tip:"));
            assert!(hints.into_iter().all(|hint| !hint.contains("'reap'")), "{error}");
        }
        let error = command()
            .try_get_matches_from(["weft", "up", "--supervis"])
            .expect_err("no option");
        let said = without_hidden(error).to_string();
        assert!(
            said.contains("unexpected argument '--supervis'") && !said.contains("'--supervise'"),
            "{said}"
        );
        for (alias, verb) in [("destroy", "down"), ("inspect", "ps"), ("ls", "ps")] {
            let matches = command().try_get_matches_from(["weft", alias]).expect("an alias");
            assert_eq!(matches.subcommand_name(), Some(verb));
        }
    }
}
