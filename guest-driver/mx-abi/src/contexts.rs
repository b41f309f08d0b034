//! Pointers that programs attach to addresses (`set_endpoint_addr_context`).

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

use omx::Address;

use crate::types::CAddress;

/// The pointers that programs attached to addresses; those of an endpoint go with it.
static CONTEXTS: LazyLock<Mutex<HashMap<Address, u64>>> = LazyLock::new(Mutex::default);

fn contexts() -> MutexGuard<'static, HashMap<Address, u64>> {
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Attaches a pointer to an address.
pub(crate) fn set(address: CAddress, context: u64) {
    let mut contexts = contexts();
    if context == 0 {
        contexts.remove(&address.address());
    } else {
        contexts.insert(address.address(), context);
    }
}

/// Returns the pointer attached to an address; NULL at first.
pub(crate) fn get(address: CAddress) -> u64 {
    contexts().get(&address.address()).copied().unwrap_or(0)
}

/// Forgets the addresses of an endpoint that was closed: they mean nothing any more.
pub(crate) fn forget(opened_by: u8) {
    contexts().retain(|address, _| address.opened_by() != opened_by);
}
