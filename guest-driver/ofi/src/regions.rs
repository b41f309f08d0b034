//! Memory of the program that others may access, and the checks of what they ask for: the key, which is random, the right, and that every
//! byte is inside.

use std::{
    collections::HashMap,
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak},
    thread,
    time::{Duration, Instant},
};

use omx::Segment;

use crate::{abi::*, bound::Progress};

/// Accesses that go on when a region is closed may take so long.
const USED_LIMIT: Duration = Duration::from_secs(10);
/// A region that is closed looks so often whether it is in use.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Memory of the program that others may read or write.
pub(crate) struct Region {
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) rights: u64,
}

impl Region {
    /// Returns the memory at a place, if all of it is inside and the region gives this right.
    pub(crate) fn memory(&self, address: u64, len: u64, right: u64) -> Option<Segment> {
        let offset = usize::try_from(address).ok()?.checked_sub(self.start)?;
        let len = usize::try_from(len).ok()?;
        let is_inside = offset.checked_add(len)? <= self.len;
        (is_inside && self.rights & right == right).then_some(Segment {
            ptr: ptr::with_exposed_provenance_mut(self.start + offset),
            len: u32::try_from(len).ok()?,
        })
    }
}

/// An endpoint that lets others access the regions of its domain.
pub(crate) trait ServesRegions: Progress {
    /// Ends what goes on with a region that is closed, as far as it can be: data that have not begun to come are not taken any more.
    fn leave(&self, region: &Arc<Region>);

    /// Ends the conversations with those that still use a region that is closed.
    fn break_off(&self, region: &Arc<Region>);
}

/// The regions of a domain that others may access.
#[derive(Default)]
pub(crate) struct Regions {
    /// By their keys.
    table: RwLock<HashMap<u64, Arc<Region>>>,
    /// The endpoints that are open.
    endpoints: Mutex<Vec<Weak<dyn ServesRegions>>>,
    /// Locked for an atomic operation: the endpoints of the domain make one after the other.
    atomics: Mutex<()>,
}

impl Regions {
    /// Returns the region that has a key.
    pub(crate) fn get(&self, key: u64) -> Option<Arc<Region>> {
        self.table
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .map(Arc::clone)
    }

    /// As long as the value lives, no other atomic operation is made on the regions.
    pub(crate) fn alone(&self) -> MutexGuard<'_, ()> {
        self.atomics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a region, and returns its key. `None`: the system gives no random numbers.
    pub(crate) fn add(&self, region: Region) -> Option<u64> {
        let mut regions = self.table.write().unwrap_or_else(PoisonError::into_inner);
        loop {
            let key = random()?;
            if key != FI_KEY_NOTAVAIL && !regions.contains_key(&key) {
                regions.insert(key, Arc::new(region));
                return Some(key);
            }
        }
    }

    /// Notes an endpoint that is open.
    pub(crate) fn add_endpoint(&self, endpoint: Weak<dyn ServesRegions>) {
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.retain(|other| other.strong_count() > 0);
        endpoints.push(endpoint);
    }

    /// Removes a region, and waits until no endpoint uses it. Peers that do not end an access in time are left.
    pub(crate) fn remove(&self, key: u64) {
        let removed = self.table.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
        let Some(region) = removed else { return };
        let endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        let endpoints: Vec<_> = endpoints.iter().filter_map(Weak::upgrade).collect();
        let until = Instant::now() + USED_LIMIT;
        let mut is_late = false;
        while Arc::strong_count(&region) > 1 {
            for endpoint in &endpoints {
                endpoint.leave(&region);
                if is_late {
                    endpoint.break_off(&region);
                }
            }
            if Arc::strong_count(&region) == 1 {
                return;
            }
            is_late = Instant::now() >= until;
            match endpoints.as_slice() {
                [one] => one.wait(one.wakes(), Some(LOOK_INTERVAL)),
                _ => thread::sleep(LOOK_INTERVAL),
            }
        }
    }
}

/// Returns a number that cannot be guessed.
fn random() -> Option<u64> {
    let mut bytes = [0_u8; 8];
    // SAFETY: the bytes are this function's.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    (got == bytes.len() as isize).then(|| u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_inside_a_region_and_allowed_is_its_memory() {
        let region = Region {
            start: 0x1000,
            len: 100,
            rights: FI_REMOTE_READ,
        };
        let found = |address, len, right| {
            region
                .memory(address, len, right)
                .map(|memory| (memory.ptr.addr(), memory.len))
        };
        assert_eq!(found(0x1000, 100, FI_REMOTE_READ), Some((0x1000, 100)));
        assert_eq!(found(0x1063, 1, FI_REMOTE_READ), Some((0x1063, 1)));
        assert_eq!(found(0x1064, 0, FI_REMOTE_READ), Some((0x1064, 0)));
        for (address, len) in [
            (0xfff, 1),
            (0x1000, 101),
            (0x1064, 1),
            (0x1065, 0),
            (0x1001, u64::MAX),
            (u64::MAX, 1),
            (0, 0),
        ] {
            assert_eq!(found(address, len, FI_REMOTE_READ), None, "{len} at {address:#x}");
        }
        assert_eq!(found(0x1000, 1, FI_REMOTE_WRITE), None, "it may be read alone");
    }

    #[test]
    fn a_key_names_one_region_until_it_is_closed() {
        let regions = Regions::default();
        let keys: Vec<_> = (0..100)
            .map(|start| {
                let region = Region {
                    start,
                    len: 1,
                    rights: 0,
                };
                regions.add(region).unwrap()
            })
            .collect();
        assert!(
            keys.iter().any(|key| *key > u64::from(u32::MAX)),
            "they cannot be guessed"
        );
        for (start, key) in keys.iter().enumerate() {
            assert_eq!(regions.get(*key).unwrap().start, start);
        }
        regions.remove(keys[5]);
        assert!(regions.get(keys[5]).is_none());
    }
}
