//! What is shown of a verb beside its arguments: examples, and whether the options of all verbs mean something for it.

/// What is known of a verb beside its arguments.
pub(in crate::cli) struct VerbHelp {
    /// Its words, such as `nic stats`.
    pub(in crate::cli) path: &'static str,
    /// Whether it is about a running lab, so that `--lab` says which.
    pub(in crate::cli) lab: bool,
    /// Whether it prints something as JSON.
    pub(in crate::cli) json: bool,
    /// Command lines, each with what it does.
    pub(in crate::cli) examples: &'static [(&'static str, &'static str)],
}

/// A verb about the files and programs of this machine.
pub(in crate::cli) const fn here(path: &'static str, examples: &'static [(&'static str, &'static str)]) -> VerbHelp {
    VerbHelp {
        path,
        lab: false,
        json: false,
        examples,
    }
}

/// A verb that does something in a running lab.
pub(in crate::cli) const fn act(path: &'static str, examples: &'static [(&'static str, &'static str)]) -> VerbHelp {
    VerbHelp {
        lab: true,
        ..here(path, examples)
    }
}

/// A verb that shows something of a running lab.
pub(in crate::cli) const fn show(path: &'static str, examples: &'static [(&'static str, &'static str)]) -> VerbHelp {
    VerbHelp {
        json: true,
        ..act(path, examples)
    }
}
