//! What the connections of an engine share.

use crate::{
    Config, Counters,
    connection::{
        receive::Parked,
        send::{Sent, SpareLists},
    },
    memory::Memory,
    random::Random,
};

/// What connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) memory: Memory,
    pub(crate) counters: Counters,
    pub(crate) random: Random,
    pub(crate) sent_lists: SpareLists<Sent>,
    pub(crate) parked_lists: SpareLists<Parked>,
}
