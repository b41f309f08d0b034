//! The arguments that several verbs have in common.

/// No arguments.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct NoArgs {}

/// The cards that are shown.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct NicArgs {
    /// `NODE` or `NODE.ethN` (default: all).
    pub(in crate::cli) nic: Option<String>,
}

/// The switches that are shown.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct SwitchArgs {
    /// The switch (default: all).
    pub(in crate::cli) switch: Option<String>,
}

/// The nodes that something is done to.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct NodesArgs {
    /// A node, or several: `all`, `n*`, `n[1-3]`, `n1,n4`.
    #[arg(value_name = "NODES")]
    pub(in crate::cli) node: String,
}
