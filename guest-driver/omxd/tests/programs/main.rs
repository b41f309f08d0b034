//! Promises of authority and library together, with real programs over veth. Needs root; a test that cannot make its network
//! fails with a sentence.

mod addresses;
mod authority;
mod away;
mod card;
mod closing;
mod cpu_latency;
mod crowd;
mod data_socket;
mod descriptors;
mod direct;
mod endings;
mod esp;
mod full;
mod hung;
mod liar;
mod rig;
mod rough;
mod same_host;
mod set_up;
mod settings;
mod strangers;
mod two_hosts;
