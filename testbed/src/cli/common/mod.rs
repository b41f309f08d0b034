//! The shared parts of verbs: the options of all of them, the meaning of their arguments in the running lab, and how
//! they fail. Each file is named for its contents; none knows a verb.

pub(super) mod attached_command;
pub(super) mod cable;
pub(super) mod failure;
mod guest_options;
mod nic_target;
pub(super) mod node_pattern;
mod node_target;
mod options;
mod running_lab;
mod shared_arguments;
pub(super) mod terminal;
mod verb_help;
mod verb_list;
mod words;

pub(super) use failure::Usage;
pub(super) use guest_options::GuestArgs;
pub(super) use nic_target::{Named, ports, stats, with_cable};
pub(super) use node_target::{agent, check_node, nodes_meant};
pub(super) use options::CommonOptions;
pub(super) use running_lab::client;
pub(super) use shared_arguments::{NicArgs, NoArgs, NodesArgs, SwitchArgs};
pub(super) use verb_help::{VerbHelp, act, here, here_as_json, show};
pub(super) use verb_list::verb_list;
pub(super) use words::{ON_OFF, Words, one_of};
