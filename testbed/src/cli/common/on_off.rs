//! An option with the values `on` and `off`.

/// The state of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::cli) enum OnOff {
    /// On.
    On,
    /// Off.
    Off,
}
