//! `weft switch`: shows the switches. Each verb has a file.

mod groups;
mod ls;
mod macs;
mod ports;
mod stats;
mod stp;
mod vlans;

use anyhow::Result;

use super::common::{CommonOptions, VerbHelp};

/// Show the switches: ports, addresses, counters and drops.
#[derive(Debug, clap::Subcommand)]
pub(super) enum SwitchVerb {
    Ls(ls::LsArgs),
    Macs(macs::MacsArgs),
    Vlans(vlans::VlansArgs),
    Stp(stp::StpArgs),
    Groups(groups::GroupsArgs),
    Stats(stats::StatsArgs),
}

/// Help of the verbs about switches.
pub(super) const HELP: &[VerbHelp] = &[ls::HELP, macs::HELP, vlans::HELP, stp::HELP, groups::HELP, stats::HELP];

/// Runs a verb about switches.
pub(super) fn run(options: &CommonOptions, verb: &SwitchVerb) -> Result<()> {
    match verb {
        SwitchVerb::Ls(_) => ls::run(options),
        SwitchVerb::Macs(args) => macs::run(options, args),
        SwitchVerb::Vlans(args) => vlans::run(options, args),
        SwitchVerb::Stp(args) => stp::run(options, args),
        SwitchVerb::Groups(args) => groups::run(options, args),
        SwitchVerb::Stats(args) => stats::run(options, args),
    }
}
