//! The book's page of verbs, generated from the command line; a test compares both.

use clap::{Arg, Command};

use super::{VerbHelp, command};
use crate::lab::reference::{assert_current, cell};

/// Text of the page before the verbs.
const INTRODUCTION: &str = "\
# Verbs of weft

<!-- Made from the command line by a test of `testbed`; WEFT_UPDATE_DOCS=1 writes it. -->

`weft VERB --help` shows the same on a terminal. Examples are for the lab of `weft init`, with the nodes n1 and n2.

";

#[test]
fn the_books_page_of_verbs_is_that_of_the_command_line() {
    assert_current("labs/verbs.md", &page());
}

/// Renders the whole page.
fn page() -> String {
    let mut root = command();
    root.build();
    let mut verbs = Vec::new();
    collect(&root, "", &mut verbs);
    let mut page = INTRODUCTION.to_owned();
    page += "| verb | what it does |\n|---|---|\n";
    for (path, verb) in &verbs {
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        page += &format!(
            "| [`weft {path}`](#weft-{}) | {} |\n",
            path.replace(' ', "-"),
            cell(&sentence(&about))
        );
    }
    page += "\n## Options of all verbs\n\n";
    page += &arguments(root.get_arguments().filter(|argument| argument.is_global_set()));
    let exit_codes = root.get_after_help().map(ToString::to_string).unwrap_or_default();
    let exit_codes = exit_codes
        .strip_prefix("Exit codes:\n")
        .expect("the help ends with them");
    page += &format!("\n## Exit codes\n\n```text\n{exit_codes}\n```\n");
    for (path, verb) in &verbs {
        page += &section(path, verb);
    }
    page
}

/// Collects every verb that does something, with its words.
fn collect<'a>(command: &'a Command, path: &str, verbs: &mut Vec<(String, &'a Command)>) {
    for verb in command.get_subcommands() {
        let path = format!("{path} {}", verb.get_name()).trim().to_owned();
        if verb.has_subcommands() {
            collect(verb, &path, verbs);
        } else {
            verbs.push((path, verb));
        }
    }
}

fn section(path: &str, verb: &Command) -> String {
    let mut text = format!("\n## weft {path}\n\n");
    if let Some(about) = verb.get_long_about().or(verb.get_about()) {
        text += &format!("{}\n\n", sentence(&about.to_string()));
    }
    let usage = verb.clone().render_usage().to_string();
    text += &format!("```text\n{}\n```\n", usage.trim_start_matches("Usage: "));
    let aliases: Vec<_> = verb.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        text += &format!("\nAlso: {}.\n", aliases.join(", "));
    }
    let own = arguments(verb.get_arguments().filter(|argument| !argument.is_global_set()));
    if !own.is_empty() {
        text += &format!("\n{own}");
    }
    let examples = verb.get::<VerbHelp>().map_or(&[][..], |help| help.examples);
    if !examples.is_empty() {
        text += "\n| example | |\n|---|---|\n";
        for (line, what) in examples {
            text += &format!("| `{}` | {} |\n", cell(line), cell(what));
        }
    }
    text
}

/// Renders a table of arguments; nothing if all are hidden.
fn arguments<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    let shown = arguments
        .filter(|argument| !argument.is_hide_set() && !matches!(argument.get_id().as_str(), "help" | "version"));
    let rows: String = shown
        .map(|argument| format!("| `{}` | {} |\n", cell(&spelling(argument)), cell(&meaning(argument))))
        .collect();
    if rows.is_empty() {
        return rows;
    }
    format!("| argument | meaning |\n|---|---|\n{rows}")
}

/// Renders how an argument is typed, such as `-w, --write <FILE>`.
fn spelling(argument: &Arg) -> String {
    let takes_value = argument.get_action().takes_values();
    let names = argument.get_value_names().unwrap_or_default();
    let values: Vec<_> = names.iter().map(|name| format!("<{name}>")).collect();
    let value = values.join(" ");
    if argument.is_positional() {
        return if argument.is_required_set() {
            value
        } else {
            value.replace('<', "[").replace('>', "]")
        };
    }
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    let flags: Vec<_> = short.into_iter().chain(long).collect();
    let flags = flags.join(", ");
    if takes_value { format!("{flags} {value}") } else { flags }
}

fn meaning(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help());
    let mut text = sentence(&help.map(ToString::to_string).unwrap_or_default());
    let takes_value = argument.get_action().takes_values();
    let values: Vec<_> = argument
        .get_possible_values()
        .iter()
        .filter(|value| takes_value && !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !values.is_empty() {
        text += &format!(" One of {}.", values.join(", "));
    }
    let defaults: Vec<_> = argument
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    if takes_value && !defaults.is_empty() {
        text += &format!(" Default: `{}`.", defaults.join(" "));
    }
    if let Some(variable) = argument.get_env() {
        text += &format!(" Also from the environment: `{}`.", variable.to_string_lossy());
    }
    text
}

/// Adds the full stop that `clap` removes from a text.
fn sentence(text: &str) -> String {
    let text = text.trim_end();
    if text.is_empty() || text.ends_with(['.', '!', '?']) {
        return text.to_owned();
    }
    format!("{text}.")
}
