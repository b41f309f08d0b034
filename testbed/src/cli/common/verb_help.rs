//! The help of a verb beside its arguments: examples, and which of the options of all verbs apply to it.

/// The help of a verb beside its arguments.
pub(in crate::cli) struct VerbHelp {
    /// Words of the verb, such as `nic stats`.
    pub(in crate::cli) path: &'static str,
    /// Whether the verb is about a running lab, so that `--lab` applies.
    pub(in crate::cli) lab: bool,
    /// Whether the verb can print JSON.
    pub(in crate::cli) json: bool,
    /// Example command lines, each with a description.
    pub(in crate::cli) examples: &'static [(&'static str, &'static str)],
}

/// Describes a verb about the files and programs of this machine.
pub(in crate::cli) const fn here(path: &'static str, examples: &'static [(&'static str, &'static str)]) -> VerbHelp {
    VerbHelp {
        path,
        lab: false,
        json: false,
        examples,
    }
}

/// Describes a verb that does something in a running lab.
pub(in crate::cli) const fn act(path: &'static str, examples: &'static [(&'static str, &'static str)]) -> VerbHelp {
    VerbHelp {
        lab: true,
        ..here(path, examples)
    }
}

/// Describes a verb that shows something of a running lab.
pub(in crate::cli) const fn show(path: &'static str, examples: &'static [(&'static str, &'static str)]) -> VerbHelp {
    VerbHelp {
        json: true,
        ..act(path, examples)
    }
}
