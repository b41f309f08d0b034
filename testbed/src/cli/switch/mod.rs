//! `weft switch`: shows the switches. Each verb has a file.

mod groups;
mod ls;
mod macs;
mod ports;
mod stats;
mod stp;
mod vlans;

use super::common::{CommonOptions, NoArgs, SwitchArgs, show, verb_list};

verb_list! {
    /// Show the switches: ports, addresses, counters and drops.
    SwitchVerb {
        /// Show the switches of the lab.
        #[command(add = show(&[("weft switch ls", "all switches")]))]
        Ls(NoArgs) => ls::run,
        /// Show the learned addresses, and behind which port they are.
        #[command(add = show(&[
            ("weft switch macs", "all stations"),
            ("weft switch macs s1", "the stations behind one switch"),
        ]))]
        Macs(SwitchArgs) => macs::run,
        /// Show the VLANs of each port, untagged and tagged.
        #[command(add = show(&[("weft switch vlans", "the VLANs of all ports")]))]
        Vlans(SwitchArgs) => vlans::run,
        /// Show the spanning tree: the root, and the role and state of each port.
        #[command(add = show(&[("weft switch stp", "root, roles and states")]))]
        Stp(SwitchArgs) => stp::run,
        /// Show the IP multicast groups with members behind each port of switches that snoop.
        #[command(add = show(&[("weft switch groups", "multicast groups and their members")]))]
        Groups(SwitchArgs) => groups::run,
        /// Show the counters of each port, and drops with their reasons.
        #[command(add = show(&[("weft switch stats", "counters and drops of all ports")]))]
        Stats(SwitchArgs) => stats::run,
    }
}
