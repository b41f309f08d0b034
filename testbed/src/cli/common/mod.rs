//! The shared parts of verbs: the options of all of them, the meaning of their arguments in the running lab, and how
//! they fail. Each file is named for its contents; none knows a verb.

pub(super) mod attached_command;
pub(super) mod cable;
pub(super) mod failure;
pub(super) mod guest_options;
pub(super) mod nic_target;
pub(super) mod node_pattern;
pub(super) mod node_target;
pub(super) mod on_off;
pub(super) mod options;
pub(super) mod running_lab;
pub(super) mod terminal;
pub(super) mod verb_help;
