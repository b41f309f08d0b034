//! A switch on the command line: `on` or `off`.

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::cli) enum OnOff {
    /// On.
    On,
    /// Off.
    Off,
}
