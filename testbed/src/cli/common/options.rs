//! The options that every verb has.

/// Options of all verbs.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct CommonOptions {
    /// The lab. Needed only if more than one is running.
    #[arg(short, long, global = true, env = "WEFT_LAB", value_name = "NAME")]
    pub(in crate::cli) lab: Option<String>,
    /// Print tables as JSON.
    #[arg(long, global = true)]
    pub(in crate::cli) json: bool,
    /// Log more (twice: everything).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(in crate::cli) verbose: u8,
}
