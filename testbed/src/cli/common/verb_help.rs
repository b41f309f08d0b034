//! The help of a verb beside its arguments: examples, and which of the options of all verbs apply to it.

use clap::builder::CommandExt;

/// Example command lines, each with a description.
type Examples = &'static [(&'static str, &'static str)];

/// The help of a verb beside its arguments, which its `clap` command carries.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct VerbHelp {
    /// Whether the verb is about a running lab, so that `--lab` applies.
    pub(in crate::cli) lab: bool,
    /// Whether the verb can print JSON.
    pub(in crate::cli) json: bool,
    pub(in crate::cli) examples: Examples,
}

impl CommandExt for VerbHelp {}

const fn help(lab: bool, json: bool, examples: Examples) -> VerbHelp {
    VerbHelp { lab, json, examples }
}

/// Describes a verb about the files and programs of this machine.
pub(in crate::cli) const fn here(examples: Examples) -> VerbHelp {
    help(false, false, examples)
}

/// Describes a verb about the files and programs of this machine that can print JSON.
pub(in crate::cli) const fn here_as_json(examples: Examples) -> VerbHelp {
    help(false, true, examples)
}

/// Describes a verb that does something in a running lab.
pub(in crate::cli) const fn act(examples: Examples) -> VerbHelp {
    help(true, false, examples)
}

/// Describes a verb that shows something of a running lab.
pub(in crate::cli) const fn show(examples: Examples) -> VerbHelp {
    help(true, true, examples)
}
