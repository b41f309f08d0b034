//! The sorted table of a guest's memory regions and the translation of guest addresses into host pointers. Guests behind an
//! IOMMU of their own are looked up elsewhere (`translation`), off the short path.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use vm_memory::{Address, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

use super::misses::Misses;
use super::sigbus::{self, TooManyRegions};
use super::translation::Translation;

/// What the device wants to do with a piece of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The device reads what the guest wrote.
    Read,
    /// The device writes what the guest will read.
    Write,
}

/// Why a range of addresses cannot be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    /// It lies wholly or partly outside the memory table, now and for good.
    #[error("the addresses are outside the memory table")]
    Outside,
    /// The IOTLB does not have it; the miss was noted, and it may be there later.
    #[error("the I/O addresses are not translated yet")]
    Untranslated,
}

/// A contiguous piece of guest memory in this process.
///
/// The pointer is valid for `len` bytes while the [`MemoryMap`] it came from lives. The guest may change the bytes at
/// any time, so a piece is only ever copied from or to, never borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Where the piece starts in this process.
    pub ptr: *mut u8,
    /// Its length in bytes.
    pub len: u32,
}

impl Piece {
    /// Nothing.
    pub const EMPTY: Self = Self {
        ptr: std::ptr::null_mut(),
        len: 0,
    };
}

// SAFETY: a piece is an address and a length; a thread that copies through it keeps the map it came from alive.
unsafe impl Send for Piece {}

/// A region of guest memory in this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub start: u64,
    pub end: u64,
    pub host: *mut u8,
}

impl Region {
    /// The piece of up to `len` bytes that starts at `addr`, which must be below the region's end; none below its start.
    #[inline(always)]
    pub fn piece(&self, addr: u64, len: u32) -> Option<Piece> {
        if addr < self.start {
            return None;
        }
        let room = self.end - addr;
        let len = if u64::from(len) > room { room as u32 } else { len };
        // SAFETY: `addr` lies inside the region, so the offset stays inside its mapping.
        let ptr = unsafe { self.host.add((addr - self.start) as usize) };
        Some(Piece { ptr, len })
    }
}

// SAFETY: addresses and a length; whoever uses them keeps the mapping alive, which belongs to no thread.
unsafe impl Send for Region {}
// SAFETY: as above; nothing is written through a shared region but by the rules of shared guest memory.
unsafe impl Sync for Region {}

/// Asks for the cache line at `ptr`, which will be read soon. Any address will do.
#[inline(always)]
pub fn prefetch(ptr: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint; it faults on no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(ptr.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ptr;
}

/// Asks for the cache line at `ptr`, which will be written soon. Any address will do.
#[inline(always)]
pub fn prefetch_for_write(ptr: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: a prefetch is a hint; it faults on no address.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(ptr.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ptr;
}

/// Bytes of a cache line on the machines this is tuned for; others lose a prefetch, nothing more.
pub const CACHE_LINE: usize = 64;

/// Guest addresses are looked up in steps of 2 MiB, the size of the pages that some frontends share one by one.
const GRANULE_SHIFT: u32 = 21;
/// Steps that the index has at most (128 GiB of guest addresses); a table that spans more is searched by halves.
const GRANULES_MAX: u64 = 1 << 16;

/// The regions of a memory table, mapped and guarded against truncated files for as long as this lives.
#[derive(Debug)]
pub(super) struct Mapped {
    /// In the order of guest addresses.
    pub regions: Vec<Region>,
    _guard: sigbus::Registration,
    table: Arc<GuestMemoryMmap>,
}

impl Mapped {
    /// The memory table itself.
    pub fn table(&self) -> Arc<GuestMemoryMmap> {
        Arc::clone(&self.table)
    }

    fn new(table: Arc<GuestMemoryMmap>, fault: Arc<AtomicBool>) -> Result<Self, TooManyRegions> {
        let mut regions: Vec<Region> = table
            .iter()
            .map(|region| {
                let start = region.start_addr().raw_value();
                Region {
                    start,
                    end: start.saturating_add(region.len()),
                    host: region.as_ptr(),
                }
            })
            .collect();
        regions.sort_by_key(|region| region.start);
        let guard = sigbus::register(
            regions.iter().map(|r| (r.host as usize, (r.end - r.start) as usize)),
            fault,
        )?;
        Ok(Self {
            regions,
            _guard: guard,
            table,
        })
    }

    /// The region that holds `addr`.
    pub fn search(&self, addr: u64) -> Option<&Region> {
        let at = self.regions.partition_point(|region| region.end <= addr);
        self.regions.get(at).filter(|region| addr >= region.start)
    }
}

/// A snapshot of one port's memory table, and where the guest is behind an IOMMU of its own, its translations.
#[derive(Debug)]
pub struct MemoryMap {
    /// None behind an IOMMU: every address is looked up off the short path.
    regions: Vec<Region>,
    /// For each granule from `base` on: the first region that ends behind the granule's start.
    index: Vec<u32>,
    /// The number of the first granule.
    base: u64,
    beyond: Beyond,
}

/// What is asked for addresses that the index does not have.
#[derive(Debug)]
enum Beyond {
    /// Addresses are the guest's.
    Plain(Mapped),
    /// Addresses are I/O addresses.
    Translated(Arc<Translation>),
}

impl MemoryMap {
    /// Takes a snapshot of `table`. `fault` is set when one of its pages turns out not to be backed by the frontend's
    /// file any more.
    ///
    /// # Errors
    /// `TooManyRegions` if they cannot be guarded against that.
    pub fn new(table: Arc<GuestMemoryMmap>, fault: Arc<AtomicBool>) -> Result<Self, TooManyRegions> {
        let mapped = Mapped::new(table, fault)?;
        let regions = mapped.regions.clone();
        let base = regions.first().map_or(0, |region| region.start >> GRANULE_SHIFT);
        let end = regions.last().map_or(0, |region| (region.end - 1) >> GRANULE_SHIFT) + 1;
        let granules = end.saturating_sub(base);
        let first_behind = |granule: u64| regions.partition_point(|region| region.end <= granule << GRANULE_SHIFT);
        let index = if granules <= GRANULES_MAX {
            (base..end).map(|granule| first_behind(granule) as u32).collect()
        } else {
            Vec::new()
        };
        Ok(Self {
            regions,
            index,
            base,
            beyond: Beyond::Plain(mapped),
        })
    }

    /// As [`new`](Self::new) for a guest behind an IOMMU: addresses are I/O addresses, none of them is translated yet, and
    /// what is missing is noted in `misses`.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn translated(
        table: Arc<GuestMemoryMmap>,
        fault: Arc<AtomicBool>,
        misses: Arc<Misses>,
    ) -> Result<Self, TooManyRegions> {
        let translation = Translation::new(Mapped::new(table, fault)?, misses);
        Ok(Self {
            regions: Vec::new(),
            index: Vec::new(),
            base: 0,
            beyond: Beyond::Translated(Arc::new(translation)),
        })
    }

    /// The translations of the guest's IOMMU, if it is behind one.
    pub fn translation(&self) -> Option<&Arc<Translation>> {
        match &self.beyond {
            Beyond::Plain(_) => None,
            Beyond::Translated(translation) => Some(translation),
        }
    }

    /// The memory table that this is a snapshot of.
    pub fn into_table(self) -> Arc<GuestMemoryMmap> {
        match &self.beyond {
            Beyond::Plain(mapped) => mapped.table(),
            Beyond::Translated(translation) => translation.table(),
        }
    }

    /// The contiguous piece that starts at `addr`: with [`Translation::translate`], to which it leads behind an IOMMU, the only
    /// place where the guest's addresses become pointers.
    ///
    /// The piece may be shorter than `len` where two regions or translations adjoin; it is never empty for `len` > 0. The
    /// access mode is part of the question so that an IOMMU can refuse; plain tables allow both.
    ///
    /// # Errors
    /// [`Unreachable`] if `addr` is in no region or not translated, or `addr + len` wraps.
    #[inline(always)]
    pub fn translate(&self, addr: u64, len: u32, access: Access) -> Result<Piece, Unreachable> {
        addr.checked_add(u64::from(len)).ok_or(Unreachable::Outside)?;
        let granule = (addr >> GRANULE_SHIFT)
            .checked_sub(self.base)
            .ok_or(Unreachable::Outside)?;
        let Some(&first) = self.index.get(granule as usize) else {
            return self.translate_beyond(addr, len, access);
        };
        let mut at = first as usize;
        loop {
            let region = self.regions.get(at).ok_or(Unreachable::Outside)?;
            if addr < region.end {
                return region.piece(addr, len).ok_or(Unreachable::Outside);
            }
            at += 1;
        }
    }

    #[cold]
    fn translate_beyond(&self, addr: u64, len: u32, access: Access) -> Result<Piece, Unreachable> {
        match &self.beyond {
            Beyond::Plain(mapped) => mapped
                .search(addr)
                .and_then(|region| region.piece(addr, len))
                .ok_or(Unreachable::Outside),
            Beyond::Translated(translation) => translation.translate(addr, len, access),
        }
    }

    /// A pointer to `len` bytes that lie in one region, for what can be done without: behind an IOMMU a translation that is missing
    /// is not asked for.
    pub fn look_up(&self, addr: u64, len: u32) -> Option<*mut u8> {
        let piece = match &self.beyond {
            Beyond::Plain(_) => self.translate(addr, len, Access::Read).ok(),
            Beyond::Translated(translation) => translation.look_up(addr, len),
        };
        piece.filter(|piece| piece.len == len).map(|piece| piece.ptr)
    }

    /// A pointer to `len` bytes that lie in one region, for rings and tables.
    ///
    /// # Errors
    /// [`Unreachable`] if the range is not inside one region.
    pub fn contiguous(&self, addr: u64, len: u32, access: Access) -> Result<*mut u8, Unreachable> {
        let piece = self.translate(addr, len, access)?;
        if piece.len < len {
            return Err(Unreachable::Outside);
        }
        Ok(piece.ptr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_memory::GuestAddress;

    fn map(ranges: &[(u64, usize)]) -> MemoryMap {
        let ranges: Vec<_> = ranges.iter().map(|&(start, len)| (GuestAddress(start), len)).collect();
        MemoryMap::new(Arc::new(GuestMemoryMmap::from_ranges(&ranges).unwrap()), Arc::default()).unwrap()
    }

    #[test]
    fn a_range_across_two_regions_comes_in_pieces() {
        let map = map(&[(0x1000, 0x1000), (0x2000, 0x1000), (0x8000, 0x1000)]);
        let first = map.translate(0x1ff0, 0x20, Access::Read).unwrap();
        assert_eq!(first.len, 0x10);
        let second = map.translate(0x2000, 0x10, Access::Read).unwrap();
        assert_eq!(second.len, 0x10);
        assert!(map.contiguous(0x1ff0, 0x20, Access::Write).is_err());
    }

    #[test]
    fn every_address_of_many_small_regions_is_found_and_no_other() {
        let ranges: Vec<_> = (0..300u64)
            .map(|n| (n * 0x20_0000 + (n % 3) * 0x1000, 0x1f_0000))
            .collect();
        let far = [(0x1000, 0x1000), (1 << 40, 0x1000)];
        for ranges in [&ranges[..], &far[..]] {
            let map = map(ranges);
            for &(start, len) in ranges {
                let end = start + len as u64;
                let first = map.translate(start, 8, Access::Read).unwrap().ptr;
                let last = map.translate(end - 8, 8, Access::Read).unwrap();
                assert_eq!((last.ptr as u64 - first as u64, last.len), (len as u64 - 8, 8));
                assert!(map.translate(end, 1, Access::Read).is_err());
                assert!(start == 0 || map.translate(start - 1, 1, Access::Read).is_err());
            }
        }
    }

    #[test]
    fn addresses_outside_and_lengths_that_wrap_are_refused() {
        let map = map(&[(0x1000, 0x1000)]);
        assert!(map.translate(0xfff, 1, Access::Read).is_err());
        assert!(map.translate(0x2000, 1, Access::Read).is_err());
        assert!(map.translate(u64::MAX - 3, 8, Access::Read).is_err());
        assert!(map.contiguous(0x1fff, 2, Access::Read).is_err());
        assert!(map.contiguous(0x1fff, 1, Access::Read).is_ok());
    }
}
