//! The names of labs, nodes and switches: which are valid, which are taken, which host name a node has, and which switch a name
//! refers to.

use std::collections::BTreeMap;

use toml::Spanned;

use super::{NAME_LEN_MAX, error::nearest, problems::Problems};

/// Returns whether a node or switch may have this name. One like `n1.eth0` is that of a NIC.
pub(crate) fn is_name(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_nic = last
        .strip_prefix("eth")
        .is_some_and(|number| number.parse::<u32>().is_ok());
    (1..=NAME_LEN_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric())
        && !name.contains("..")
        && !(name.contains('.') && is_nic)
}

/// Returns whether a lab may have this name. What is behind a dot belongs to other files beside the lab's.
pub(crate) fn is_lab_name(name: &str) -> bool {
    is_name(name) && !name.contains('.')
}

/// Returns the host name of a node: its name with `-` for what host names have not.
#[must_use]
pub fn host_name(node: &str) -> String {
    node.replace(['_', '.'], "-")
}

/// Checks the name of a lab.
pub(super) fn checked_lab_name(name: &Spanned<String>, problems: &mut Problems) -> String {
    if !is_lab_name(name.get_ref()) {
        problems.add(
            name.span(),
            format!("\"{}\" cannot be the name of a lab", name.get_ref()),
            format!("up to {NAME_LEN_MAX} letters, digits, dashes and underscores, a letter first"),
        );
    }
    name.get_ref().clone()
}

pub(super) fn checked_name(name: &Spanned<String>, what: &str, problems: &mut Problems) -> String {
    if !is_name(name.get_ref()) {
        let article = if what.starts_with('a') { "an" } else { "a" };
        problems.add(
            name.span(),
            format!("\"{}\" cannot be the name of {article} {what}", name.get_ref()),
            format!("up to {NAME_LEN_MAX} letters, digits, dashes, underscores and dots, a letter first; not like \"n1.eth0\", which is a NIC"),
        );
    }
    name.get_ref().clone()
}

/// Checks that a name is unique. Nodes and switches share one name space, so that a name is never ambiguous to `weft`; names that would
/// be one host name, in which capitals do not count, are the same.
pub(super) fn check_unique(
    name: &Spanned<String>,
    what: &'static str,
    taken: &mut BTreeMap<String, &'static str>,
    problems: &mut Problems,
) {
    if let Some(other) = taken.insert(host_name(name.get_ref()).to_lowercase(), what) {
        let article = if other == what { "another" } else { "a" };
        problems.add(
            name.span(),
            format!("the name \"{}\" is taken by {article} {other}", name.get_ref()),
            "nodes and switches need names of their own, which differ in more than capitals, `-`, `_` and `.`",
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
