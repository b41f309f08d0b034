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

use super::common::{CommonOptions, NicArgs, show, verb_list};

verb_list! {
    /// Show and change the programmable cards.
    NicVerb {
        /// Show frames, drops, and interrupts with their reasons.
        #[command(add = show(&[
            ("weft nic stats", "all cards"),
            ("weft nic stats n1.eth0 --json", "every counter of one"),
        ]))]
        Stats(NicArgs) => stats::run,
        Coalesce(coalesce::CoalesceArgs) => coalesce::run,
        Steering(steering::SteeringArgs) => steering::run,
        Misorder(misorder::MisorderArgs) => misorder::run,
        Vlan(vlan::VlanArgs) => vlan::run,
        /// Show the counters of each receive queue.
        #[command(add = show(&[("weft nic queues n1", "counters of each receive queue")]))]
        Queues(NicArgs) => queues::run,
        /// Show what adaptive moderation measured and chose, for each receive queue that uses it.
        #[command(add = show(&[("weft nic adaptive n1", "rate and delay in force")]))]
        Adaptive(NicArgs) => adaptive::run,
        Watchdog(watchdog::WatchdogArgs) => watchdog::run,
        #[command(subcommand)]
        Group(group::GroupVerb) => group::run,
        Trace(trace::TraceArgs) => trace::run,
        Reload(reload::ReloadArgs) => reload::run,
        /// Show the copies of cards that are connected to themselves.
        #[command(add = show(&[("weft nic copy-engine", "copies of cards that are connected to themselves")]))]
        CopyEngine(NicArgs) => copy_engine::run,
        /// Show connection, rings and offloads.
        #[command(add = show(&[
            ("weft nic info", "all cards"),
            ("weft nic info n1", "the cards of a node"),
        ]))]
        Info(NicArgs) => info::run,
    }
}
