//! The names of labs, nodes and switches: which are valid, which are taken, and which switch a name refers to.

use std::collections::BTreeMap;

use toml::Spanned;

use super::{NAME_LEN_MAX, error::nearest, problems::Problems};

/// Returns whether a lab, node or switch may have this name.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=NAME_LEN_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
}

pub(super) fn checked_name(name: &Spanned<String>, what: &str, problems: &mut Problems) -> String {
    if !is_name(name.get_ref()) {
        problems.add(
            name.span(),
            format!("\"{}\" cannot be the name of a {what}", name.get_ref()),
            format!("up to {NAME_LEN_MAX} lower-case letters, digits and dashes, a letter first"),
        );
    }
    name.get_ref().clone()
}

/// Checks that a name is unique. Nodes and switches share one name space, so that a name is never ambiguous to `weft`.
pub(super) fn check_unique(
    name: &Spanned<String>,
    what: &'static str,
    taken: &mut BTreeMap<String, &'static str>,
    problems: &mut Problems,
) {
    if let Some(other) = taken.insert(name.get_ref().clone(), what) {
        let article = if other == what { "another" } else { "a" };
        problems.add(
            name.span(),
            format!("the name \"{}\" is taken by {article} {other}", name.get_ref()),
            "nodes and switches need names of their own",
        );
    }
}

/// Returns the position of the switch of that name; notes a mistake when there is none.
pub(super) fn find_switch(name: &Spanned<String>, switches: &[String], problems: &mut Problems) -> Option<usize> {
    let found = switches.iter().position(|switch| switch == name.get_ref());
    if found.is_none() {
        let near = nearest(name.get_ref(), switches.iter().map(String::as_str));
        let hint = near.map_or(String::new(), |near| format!("did you mean \"{near}\"? "));
        problems.add(
            name.span(),
            format!("there is no switch \"{}\"", name.get_ref()),
            format!("{hint}The switches of this lab: {}", switches.join(", ")),
        );
    }
    found
}
