//! Translates topology files of containerlab into lab files: nodes of the kinds linux and bridge, links, `binds`, `exec`, `env`, labels
//! and MTUs. Everything else is told with its line. This module opens no file.

mod links;
mod nodes;
mod yaml;

use std::path::Path;

use serde::Serialize;

use crate::lab::AtPath;
use links::Links;
use nodes::Nodes;
use yaml::Yaml;

/// A lab file, and what of the topology it does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translation {
    /// Text of the lab file.
    pub toml: String,
    /// Notes in the order of the topology file.
    pub notes: Vec<Note>,
}

/// A sentence about a line of the topology file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{line}: {sentence}")]
pub struct Note {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is to be known of it.
    pub sentence: String,
}

/// Translates the text of a topology file; `at_path` tells what is at a path that it names.
///
/// # Errors
/// Fails with one sentence when the text is no topology of containerlab.
pub fn translate(text: &str, at_path: &dyn Fn(&Path) -> AtPath) -> Result<Translation, Note> {
    let file = Yaml::parse(text)?;
    let mut notes = Vec::new();
    let mut topology = None;
    let mut name = None;
    for (key, line, value) in file.entries() {
        match &*key {
            "name" => name = value.text(),
            "topology" => topology = Some(value),
            _ => notes.push(Note::left_out(line, &key)),
        }
    }
    let topology = topology.ok_or_else(|| Note {
        line: 1,
        sentence: "this is no topology of containerlab: there is no `topology`".to_owned(),
    })?;
    for (key, line, _) in topology.entries() {
        if !["defaults", "kinds", "nodes", "links"].contains(&&*key) {
            notes.push(Note::left_out(line, &key));
        }
    }
    let mut nodes = Nodes::of(topology, at_path, &mut notes);
    let links = Links::of(topology, &mut nodes, &mut notes);
    notes.sort();
    notes.dedup();
    let lab = LabText {
        name,
        defaults: Defaults {
            first_interface: links.first_interface,
        },
        switch: links.switches,
        node: nodes.guests.into_values().collect(),
        trunk: links.trunks,
        cable: links.cables,
    };
    let toml = toml::to_string(&lab).map_err(|error| Note {
        line: 1,
        sentence: format!("the topology cannot be written as a lab file: {error}"),
    })?;
    Ok(Translation { toml, notes })
}

impl Note {
    fn left_out(line: usize, key: &str) -> Self {
        let sentence = format!("`{}` is not translated", key.escape_default());
        Self { line, sentence }
    }

    fn other_form(line: usize, key: &str, form: &str) -> Self {
        let sentence = format!("`{key}` is no {form}, and not translated");
        Self { line, sentence }
    }
}

/// The lab file as it is written.
#[derive(Debug, Serialize)]
struct LabText {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    defaults: Defaults,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    switch: Vec<links::Switch>,
    node: Vec<nodes::Guest>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trunk: Vec<links::Trunk>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cable: Vec<links::Cable>,
}

#[derive(Debug, Serialize)]
struct Defaults {
    first_interface: usize,
}

#[cfg(test)]
mod tests;
