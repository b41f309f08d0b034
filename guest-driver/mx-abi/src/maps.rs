//! The states of peer tables that mapping daemons reported (`mx_raw_set_map_version`). They are kept for the process,
//! since the authority has no place for them and its own table grows while it is used.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use ether::MacAddr;
use omx::Board;

/// The state of a board's peer table.
#[derive(Clone, Copy)]
pub(crate) struct Map {
    /// The board whose daemon made the table.
    pub(crate) mapper: MacAddr,
    pub(crate) version: u32,
    pub(crate) hosts: u32,
    pub(crate) complete: bool,
}

/// The states by the number of the board's interface, which stays when others come and go.
static MAPS: Mutex<BTreeMap<i32, Map>> = Mutex::new(BTreeMap::new());

fn maps() -> MutexGuard<'static, BTreeMap<i32, Map>> {
    MAPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records what a mapping daemon made.
pub(crate) fn set(board: &Board, map: Map) {
    maps().insert(board.interface().index, map);
}

/// Returns what was reported last of this board in this process.
pub(crate) fn of(board: &Board) -> Option<Map> {
    maps().get(&board.interface().index).copied()
}
