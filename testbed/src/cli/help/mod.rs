//! The command line as it is shown and parsed: examples for every verb, and the options of all verbs only where they
//! apply. Examples are written for the lab of `weft init`, with nodes n1 and n2.

use anyhow::Result;
use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches,
    error::{ContextKind, ContextValue},
    parser::ValueSource,
};

use super::{
    command_line::Cli,
    common::{Usage, VerbHelp},
};

/// Options by which `weft` starts itself.
const HIDDEN_OPTIONS: &[&str] = &["--supervise"];

/// Makes the command line with all of its help.
pub(super) fn command() -> Command {
    Cli::command().mut_subcommands(dressed)
}

/// Adds examples to a verb and those below it, and removes options that do not apply there.
fn dressed(command: Command) -> Command {
    let mut command = command.mut_subcommands(dressed);
    let Some(&help) = command.get::<VerbHelp>() else {
        // A group of verbs shows the first example of each.
        let verbs = command.get_subcommands();
        let firsts: Vec<_> = verbs
            .filter_map(|verb| verb.get::<VerbHelp>()?.examples.first())
            .collect();
        return command.after_long_help(examples(firsts.into_iter()));
    };
    // Hidden options replace those that all verbs have, so that they can be refused with a sentence.
    if !help.json {
        command = command.arg(Arg::new("json").long("json").action(ArgAction::SetTrue).hide(true));
    }
    if !help.lab {
        command = command.arg(Arg::new("lab").short('l').long("lab").hide(true));
    }
    let before = command
        .get_after_help()
        .map(|text| format!("{text}\n\n"))
        .unwrap_or_default();
    command.after_long_help(before + &examples(help.examples.iter()))
}

/// Renders `Examples:` and a line for each, with its description beside it.
fn examples<'a>(of: impl Iterator<Item = &'a (&'a str, &'a str)> + Clone) -> String {
    let width = of.clone().map(|(line, _)| line.chars().count()).max().unwrap_or(0);
    let lines = of.map(|(line, what)| format!("\n  {line:width$}   {what}"));
    "Examples:".to_owned() + &lines.collect::<String>()
}

/// Parses the command line; ends the process as `clap` does when that fails. The result says whether the options apply
/// to the verb.
pub(super) fn parse() -> (Cli, Result<()>) {
    let matches = command()
        .try_get_matches()
        .unwrap_or_else(|error| without_hidden(error).exit());
    match Cli::from_arg_matches(&matches) {
        Ok(cli) => (cli, check_options(&matches)),
        Err(error) => error.format(&mut command()).exit(),
    }
}

/// Removes from an error the suggestion of an option that is hidden from users.
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

/// Refuses options that do not apply to the verb.
fn check_options(matches: &ArgMatches) -> Result<()> {
    let mut path = Vec::new();
    let mut given = Vec::new();
    let root = Cli::command();
    let (mut command, mut level) = (Some(&root), Some(matches));
    while let Some(matches) = level {
        for option in ["json", "lab"] {
            let typed = matches.try_contains_id(option).is_ok()
                && matches.value_source(option) == Some(ValueSource::CommandLine);
            given.extend(typed.then_some(option));
        }
        level = matches.subcommand().map(|(verb, below)| {
            path.push(verb);
            command = command.and_then(|command| command.find_subcommand(verb));
            below
        });
    }
    let Some(help) = command.and_then(Command::get::<VerbHelp>) else {
        return Ok(());
    };
    for (option, is_meant, why) in [
        ("json", help.json, "prints nothing as JSON"),
        ("lab", help.lab, "is about no running lab"),
    ] {
        if given.contains(&option) && !is_meant {
            return Err(Usage(format!("`weft {}` {why}: leave --{option} out", path.join(" "))).into());
        }
    }
    Ok(())
}

/// Splits an example into words as a shell does, up to a redirection of its output.
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

/// Collects the help of each verb below a command that is no group of verbs.
fn verbs(command: &Command) -> Vec<VerbHelp> {
    let below = command.get_subcommands().flat_map(verbs);
    command.get::<VerbHelp>().copied().into_iter().chain(below).collect()
}

/// Returns examples that show something as JSON in the lab of `weft init`, for the tests of whole labs: the words after
/// `weft`.
#[must_use]
pub fn json_examples() -> Vec<&'static str> {
    let shown = verbs(&Cli::command()).into_iter().filter(|verb| verb.json && verb.lab);
    shown
        .filter_map(|verb| verb.examples.first()?.0.strip_prefix("weft "))
        .collect()
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects every verb that has none below it, with its command.
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
            let verb = command.get::<VerbHelp>();
            let verb = *verb.unwrap_or_else(|| panic!("add an example to the arguments of `{path}`"));
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
                check_options(&matches).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
    }

    #[test]
    fn options_are_refused_where_they_mean_nothing_wherever_they_stand() {
        let said = |line: &str| {
            let matches = command().try_get_matches_from(line.split(' ')).expect("it can be read");
            check_options(&matches).map_err(|error| error.to_string())
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
        assert!(cli.options.json && cli.options.lab.as_deref() == Some("a"));
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
