//! Connections by the peer's address and the two ports.

use core::hash::{BuildHasher, Hash, Hasher};

use ether::MacAddr;
use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// What names a connection on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) mac: MacAddr,
    pub(crate) peer_port: u16,
    pub(crate) local_port: u16,
}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.mac.to_u64() << 16 | u64::from(self.peer_port));
        state.write_u16(self.local_port);
    }
}

/// Slots by key. The hash has a key of its own, so that peers cannot choose collisions. It is never walked through: the order of
/// events must not depend on it.
#[derive(Debug)]
pub(crate) struct Table {
    table: HashTable<(Key, u32)>,
    state: FixedState,
}

impl Table {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            table: HashTable::new(),
            state: FixedState::with_seed(seed),
        }
    }

    #[inline]
    pub(crate) fn get(&self, key: &Key) -> Option<u32> {
        let hash = self.state.hash_one(key);
        self.table.find(hash, |entry| entry.0 == *key).map(|entry| entry.1)
    }

    /// Adds a key that is not there.
    pub(crate) fn insert(&mut self, key: Key, slot: u32) {
        debug_assert!(self.get(&key).is_none());
        let Self { table, state } = self;
        let hash = state.hash_one(key);
        table.insert_unique(hash, (key, slot), |entry| state.hash_one(entry.0));
    }

    /// Removes a key if it is that of `slot`.
    pub(crate) fn remove(&mut self, key: &Key, slot: u32) {
        let hash = self.state.hash_one(key);
        if let Ok(entry) = self.table.find_entry(hash, |entry| entry == &(*key, slot)) {
            entry.remove();
        }
    }
}
