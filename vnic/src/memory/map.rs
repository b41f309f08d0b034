//! The sorted table of a guest's memory regions and the translation of guest addresses into host pointers.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use vm_memory::{Address, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

use super::sigbus;

/// What the device wants to do with a piece of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The device reads what the guest wrote.
    Read,
    /// The device writes what the guest will read.
    Write,
}

/// A guest address range that lies wholly or partly outside the memory table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("guest address {addr:#x} with {len} bytes is outside the memory table")]
pub struct OutsideMemory {
    /// First guest address asked for.
    pub addr: u64,
    /// Bytes asked for.
    pub len: u64,
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

// SAFETY: a piece is an address and a length; whoever copies through it holds the map it came from, in whatever thread.
unsafe impl Send for Piece {}

#[derive(Clone, Copy, Debug)]
struct Region {
    start: u64,
    end: u64,
    host: *mut u8,
}

/// A snapshot of one port's memory table.
#[derive(Debug)]
pub struct MemoryMap {
    regions: Vec<Region>,
    last_hit: Cell<usize>,
    _guard: sigbus::Registration,
    _table: Arc<GuestMemoryMmap>,
}

// SAFETY: the pointers are to shared mappings which the held table keeps alive in every thread; nothing in here is tied
// to the thread that made it. `last_hit` is only touched through `&self` by the one thread that holds the shard.
unsafe impl Send for MemoryMap {}

impl MemoryMap {
    /// Takes a snapshot of `table`. `fault` is set when one of its pages turns out not to be backed by the frontend's
    /// file any more.
    pub fn new(table: Arc<GuestMemoryMmap>, fault: Arc<AtomicBool>) -> Self {
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
        );
        Self {
            regions,
            last_hit: Cell::new(0),
            _guard: guard,
            _table: table,
        }
    }

    /// The contiguous piece that starts at guest address `addr`: the only place where guest addresses become pointers.
    ///
    /// The piece may be shorter than `len` where two regions meet; it is never empty for `len` > 0. The access mode is
    /// part of the question so that a translating memory (an IOMMU) can refuse; plain tables allow both.
    ///
    /// # Errors
    /// [`OutsideMemory`] if `addr` is in no region or `addr + len` wraps.
    #[inline]
    pub fn translate(&self, addr: u64, len: u32, _access: Access) -> Result<Piece, OutsideMemory> {
        let outside = OutsideMemory {
            addr,
            len: u64::from(len),
        };
        addr.checked_add(u64::from(len)).ok_or(outside)?;
        let hint = self.last_hit.get();
        let region = match self.regions.get(hint) {
            Some(region) if addr >= region.start && addr < region.end => region,
            _ => self.find(addr).ok_or(outside)?,
        };
        let room = region.end - addr;
        let len = if u64::from(len) > room { room as u32 } else { len };
        // SAFETY: `addr` lies inside the region, so the offset stays inside its mapping.
        let ptr = unsafe { region.host.add((addr - region.start) as usize) };
        Ok(Piece { ptr, len })
    }

    /// The piece of exactly `len` bytes at `addr` if it lies in the region that was asked for last, as almost all do;
    /// `None` says nothing but that [`translate`](Self::translate) must look.
    #[inline(always)]
    pub fn translate_again(&self, addr: u64, len: u32) -> Option<Piece> {
        let region = self.regions.get(self.last_hit.get())?;
        let offset = addr.wrapping_sub(region.start);
        let room = (region.end - region.start).checked_sub(u64::from(len))?;
        if offset > room {
            return None;
        }
        // SAFETY: `offset + len` is at most the region's length, so the pointer stays inside its mapping.
        let ptr = unsafe { region.host.add(offset as usize) };
        Some(Piece { ptr, len })
    }

    #[cold]
    fn find(&self, addr: u64) -> Option<&Region> {
        let index = self
            .regions
            .partition_point(|region| region.start <= addr)
            .checked_sub(1)?;
        let region = &self.regions[index];
        (addr < region.end).then(|| {
            self.last_hit.set(index);
            region
        })
    }

    /// A pointer to `len` bytes that lie in one region, for rings and tables.
    ///
    /// # Errors
    /// [`OutsideMemory`] if the range is not inside one region.
    pub fn contiguous(&self, addr: u64, len: u32, access: Access) -> Result<*mut u8, OutsideMemory> {
        let piece = self.translate(addr, len, access)?;
        if piece.len < len {
            return Err(OutsideMemory {
                addr,
                len: u64::from(len),
            });
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
        MemoryMap::new(Arc::new(GuestMemoryMmap::from_ranges(&ranges).unwrap()), Arc::default())
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
    fn addresses_outside_and_lengths_that_wrap_are_refused() {
        let map = map(&[(0x1000, 0x1000)]);
        assert!(map.translate(0xfff, 1, Access::Read).is_err());
        assert!(map.translate(0x2000, 1, Access::Read).is_err());
        assert!(map.translate(u64::MAX - 3, 8, Access::Read).is_err());
        assert!(map.contiguous(0x1fff, 2, Access::Read).is_err());
        assert!(map.contiguous(0x1fff, 1, Access::Read).is_ok());
    }
}
