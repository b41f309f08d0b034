//! `weft nic`: shows and changes the programmable cards. Each verb has a file.

mod adaptive;
mod coalesce;
mod copy_engine;
mod group;
mod info;
mod misorder;
mod queues;
mod reload;
mod stats;
mod steering;
mod trace;
mod vlan;
mod watchdog;

use anyhow::Result;

use super::common::{CommonOptions, VerbHelp};

/// Show and change the programmable cards.
#[derive(Debug, clap::Subcommand)]
pub(super) enum NicVerb {
    Stats(stats::StatsArgs),
    Coalesce(coalesce::CoalesceArgs),
    Steering(steering::SteeringArgs),
    Misorder(misorder::MisorderArgs),
    Vlan(vlan::VlanArgs),
    Queues(queues::QueuesArgs),
    Adaptive(adaptive::AdaptiveArgs),
    Watchdog(watchdog::WatchdogArgs),
    #[command(subcommand)]
    Group(group::GroupVerb),
    Trace(trace::TraceArgs),
    Reload(reload::ReloadArgs),
    CopyEngine(copy_engine::CopyEngineArgs),
    Info(info::InfoArgs),
}

/// Help of the verbs about cards.
pub(super) const HELP: &[&[VerbHelp]] = &[
    &[
        stats::HELP,
        coalesce::HELP,
        steering::HELP,
        misorder::HELP,
        vlan::HELP,
        queues::HELP,
        adaptive::HELP,
        watchdog::HELP,
        trace::HELP,
        reload::HELP,
        copy_engine::HELP,
        info::HELP,
    ],
    group::HELP,
];

/// Runs a verb about cards.
pub(super) fn run(options: &CommonOptions, verb: &NicVerb) -> Result<()> {
    match verb {
        NicVerb::Stats(args) => stats::run(options, args),
        NicVerb::Coalesce(args) => coalesce::run(options, args),
        NicVerb::Steering(args) => steering::run(options, args),
        NicVerb::Misorder(args) => misorder::run(options, args),
        NicVerb::Vlan(args) => vlan::run(options, args),
        NicVerb::Queues(args) => queues::run(options, args),
        NicVerb::Adaptive(args) => adaptive::run(options, args),
        NicVerb::Watchdog(args) => watchdog::run(options, args),
        NicVerb::Group(args) => group::run(options, args),
        NicVerb::Trace(args) => trace::run(options, args),
        NicVerb::Reload(args) => reload::run(options, args),
        NicVerb::CopyEngine(args) => copy_engine::run(options, args),
        NicVerb::Info(args) => info::run(options, args),
    }
}
