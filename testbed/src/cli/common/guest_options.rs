//! The options for how the guests of a lab run, shared by the verbs that boot some.

use crate::{accel::AccelChoice, lab::units::Span};

/// How guests run.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct GuestArgs {
    /// Accelerator: auto, kvm or tcg. `auto` uses KVM only after a guest has booted under it.
    #[arg(long, default_value = "auto", value_parser = parse_accel)]
    pub(in crate::cli) accel: AccelChoice,
    /// Give up on a booting node that shows no sign of life for this time: no output, no reset, no answer of its agent. A node that
    /// is not ready after ten times as long is given up as well.
    #[arg(long, default_value = "180s", value_name = "TIME")]
    pub(in crate::cli) boot_timeout: Span,
}

fn parse_accel(text: &str) -> Result<AccelChoice, String> {
    text.parse()
}
