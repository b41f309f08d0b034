//! The address vector: the peers of a program, each under the number of its insertion.

use std::{
    collections::HashMap,
    ffi::{c_char, c_int, c_void},
    ptr, slice,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use omx::SourceKey;

use crate::{
    abi::*,
    address::{ADDRESS_LEN, PeerAddress},
    log::{Level, log},
    object,
};

/// The peers that were inserted.
#[derive(Default)]
pub(crate) struct Peers {
    /// `None`: not an address, or removed.
    entries: Vec<Option<PeerAddress>>,
    /// The lowest number of each peer.
    numbers: HashMap<SourceKey, FiAddr>,
}

impl Peers {
    pub(crate) fn get(&self, number: FiAddr) -> Option<PeerAddress> {
        *self.entries.get(usize::try_from(number).ok()?)?
    }

    /// Returns the number of the peer that a message came from.
    pub(crate) fn number(&self, source: SourceKey) -> FiAddr {
        self.numbers.get(&source).copied().unwrap_or(FI_ADDR_NOTAVAIL)
    }

    fn insert(&mut self, address: Option<PeerAddress>) -> FiAddr {
        let number = self.entries.len() as FiAddr;
        self.entries.push(address);
        let Some(address) = address else {
            return FI_ADDR_NOTAVAIL;
        };
        self.numbers.entry(key(address)).or_insert(number);
        number
    }

    fn remove(&mut self, number: FiAddr) -> bool {
        let Some(entry) = usize::try_from(number).ok().and_then(|at| self.entries.get_mut(at)) else {
            return false;
        };
        let Some(address) = entry.take() else { return false };
        let key = key(address);
        if self.numbers.get(&key) == Some(&number) {
            self.numbers.remove(&key);
            // Another entry may stand for this peer, too.
            let other = self.entries.iter().position(|entry| *entry == Some(address));
            if let Some(other) = other {
                self.numbers.insert(key, other as FiAddr);
            }
        }
        true
    }
}

/// Returns the key by which messages of a peer are told from others'.
pub(crate) const fn key(address: PeerAddress) -> SourceKey {
    SourceKey::new(address.mac, address.endpoint)
}

/// An address vector, which endpoints share.
#[derive(Default)]
pub(crate) struct AddressVector {
    peers: RwLock<Peers>,
    changes: AtomicU64,
}

impl AddressVector {
    pub(crate) fn peers(&self) -> RwLockReadGuard<'_, Peers> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how often peers were inserted or removed: what an endpoint knows of them is to be looked up again.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Changes the peers.
    fn change<T>(&self, change: impl FnOnce(&mut Peers) -> T) -> T {
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut peers);
        self.changes.fetch_add(1, Ordering::Release);
        result
    }
}

#[repr(C)]
struct Object {
    fid: FidAv,
    vector: Arc<AddressVector>,
}

static FID_OPS: FidOps = object::closes_by(close);

static OPS: AvOps = AvOps {
    size: size_of::<AvOps>(),
    insert,
    insertsvc: unsupported,
    insertsym: unsupported,
    remove,
    lookup,
    straddr,
    av_set: unsupported,
};

/// # Safety
/// `fid` is an address vector that the program has opened and not closed.
pub(crate) unsafe fn of_fid(fid: *mut Fid) -> Arc<AddressVector> {
    // SAFETY: the caller's promise; `open` made it.
    Arc::clone(unsafe { &(*fid.cast::<Object>()).vector })
}

/// Opens an address vector. The number of an entry is the number of its insertion, whatever type is asked for.
///
/// # Safety
/// As libfabric calls it.
pub(crate) unsafe extern "C" fn open(
    _domain: *mut FidDomain,
    attributes: *mut FiAvAttr,
    out: *mut *mut FidAv,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    if let Some(attributes) = unsafe { attributes.as_mut() } {
        // A vector with a name is shared between processes.
        if !attributes.name.is_null() || attributes.rx_ctx_bits != 0 || attributes.flags != 0 {
            return -FI_ENOSYS;
        }
        if attributes.type_ == 0 {
            attributes.type_ = FI_AV_TABLE;
        }
        if ![FI_AV_MAP, FI_AV_TABLE].contains(&attributes.type_) {
            return -FI_EINVAL;
        }
    }
    let object = Box::new(Object {
        fid: FidAv {
            fid: Fid {
                fclass: FI_CLASS_AV,
                context,
                ops: &raw const FID_OPS,
            },
            ops: &raw const OPS,
        },
        vector: Arc::default(),
    });
    // SAFETY: the caller's promise.
    unsafe { ptr::write(out, Box::into_raw(object).cast()) };
    0
}

/// # Safety
/// `av` is valid, as libfabric promises.
unsafe fn vector<'a>(av: *mut FidAv) -> &'a AddressVector {
    // SAFETY: the caller's promise; `open` made it.
    unsafe { &(*av.cast::<Object>()).vector }
}

unsafe extern "C" fn insert(
    av: *mut FidAv,
    addresses: *const c_void,
    count: usize,
    numbers: *mut FiAddr,
    flags: u64,
    _context: *mut c_void,
) -> c_int {
    if flags & !FI_MORE != 0 {
        return -FI_EBADFLAGS;
    }
    if addresses.is_null() && count > 0 {
        return -FI_EINVAL;
    }
    // SAFETY: libfabric's promise for this call: `count` addresses of our length, and as many numbers or null.
    let (vector, addresses) = unsafe {
        let addresses = if count == 0 {
            &[]
        } else {
            slice::from_raw_parts(addresses.cast::<[u8; ADDRESS_LEN]>(), count)
        };
        (vector(av), addresses)
    };
    vector.change(|peers| {
        let mut inserted = 0;
        for (at, bytes) in addresses.iter().enumerate() {
            let address = PeerAddress::from_bytes(bytes);
            if address.is_none() {
                log(Level::Warn, || {
                    format!("address {at} of {count} names no endpoint of this provider: {bytes:02x?}")
                });
            }
            inserted += c_int::from(address.is_some());
            let number = peers.insert(address);
            if !numbers.is_null() {
                // SAFETY: as above.
                unsafe { numbers.add(at).write(number) };
            }
        }
        inserted
    })
}

unsafe extern "C" fn remove(av: *mut FidAv, numbers: *mut FiAddr, count: usize, _flags: u64) -> c_int {
    if numbers.is_null() && count > 0 {
        return -FI_EINVAL;
    }
    // SAFETY: libfabric's promise for this call.
    let vector = unsafe { vector(av) };
    vector.change(|peers| {
        let mut result = 0;
        for at in 0..count {
            // SAFETY: as above.
            if !peers.remove(unsafe { numbers.add(at).read() }) {
                result = -FI_EINVAL;
            }
        }
        result
    })
}

unsafe extern "C" fn lookup(av: *mut FidAv, number: FiAddr, out: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: libfabric's promise for this call.
    let Some(address) = unsafe { vector(av) }.peers().get(number) else {
        return -FI_EINVAL;
    };
    // SAFETY: as above: `out` has `len` bytes.
    unsafe {
        let room = len.replace(ADDRESS_LEN);
        ptr::copy_nonoverlapping(address.to_bytes().as_ptr(), out.cast(), room.min(ADDRESS_LEN));
    }
    0
}

unsafe extern "C" fn straddr(
    _av: *mut FidAv,
    address: *const c_void,
    out: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: libfabric's promise for this call.
    let bytes = unsafe { address.cast::<[u8; ADDRESS_LEN]>().read_unaligned() };
    let text = PeerAddress::from_bytes(&bytes).map_or_else(|| "no address".to_owned(), |address| address.to_string());
    // SAFETY: as above: `out` has `len` bytes.
    unsafe {
        let room = len.replace(text.len() + 1);
        if room > 0 {
            let shown = text.len().min(room - 1);
            ptr::copy_nonoverlapping(text.as_ptr().cast(), out, shown);
            out.add(shown).write(0);
        }
    }
    out
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: `open` made it, and the program closes it once. Endpoints that use the vector keep it.
    drop(unsafe { Box::from_raw(fid.cast::<Object>()) });
    0
}

#[cfg(test)]
mod tests {
    use ether::MacAddr;

    use super::*;

    fn peer(last: u8) -> PeerAddress {
        PeerAddress {
            mac: MacAddr([2, 0, 0, 0, 0, last]),
            endpoint: 0,
            session: 1,
        }
    }

    #[test]
    fn numbers_count_insertions_and_a_source_is_the_lowest_of_its_entries() {
        let mut peers = Peers::default();
        let inserted: Vec<_> = [Some(peer(1)), Some(peer(2)), None, Some(peer(1))]
            .into_iter()
            .map(|address| peers.insert(address))
            .collect();
        assert_eq!(inserted, [0, 1, FI_ADDR_NOTAVAIL, 3]);
        assert_eq!(peers.number(key(peer(1))), 0);
        assert!(peers.remove(0));
        assert!(!peers.remove(0), "removed already");
        assert_eq!(peers.number(key(peer(1))), 3, "the other entry stands for it now");
        assert_eq!(peers.get(0), None);
        assert_eq!(peers.get(FI_ADDR_UNSPEC), None);
        assert_eq!(peers.number(key(peer(9))), FI_ADDR_NOTAVAIL);
    }
}
