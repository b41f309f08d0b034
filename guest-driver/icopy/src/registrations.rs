//! Memory that the card knows: what programs registered, and a cache of what they registered before (M-OM7).
//!
//! Keeping pages where they are and looking up their addresses takes the kernel longer than a small copy takes. So memory that is
//! unregistered stays known for a while, and is found again when it is registered again. Whether it is still the same memory
//! is looked up then: a program may have unmapped it, and mapped other memory there.

use std::{ops::Range, ptr::NonNull};

use netif::virtio::PAGE;

use crate::{
    CopyError, Memory, REGISTRATIONS_MAX, Use,
    backend::Backend,
    runs::{Cursor, Runs},
};

/// Pages that are kept where they are.
struct Pinned<H> {
    /// Addresses in this process, whole pages.
    pages: Range<usize>,
    runs: Runs,
    /// What [`Backend::physical_pages`] said when they were pinned.
    physical: Option<Vec<u64>>,
    hold: H,
    /// Registrations that are in it.
    users: u32,
    /// The number of the last frame that touches it, and copies that are not posted yet.
    last_frame: u64,
    waiting: u32,
    /// When it was used last, in registrations.
    used: u64,
    /// Memory of the engine's own.
    _memory: Option<Memory>,
}

/// What a program registered.
struct Registration {
    bytes: Range<usize>,
    kind: Use,
    pinned: usize,
}

/// Counts of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Registrations that found their pages known.
    pub hits: u64,
    /// Those that did not.
    pub misses: u64,
    /// Of these, registrations whose pages were known and had been replaced since.
    pub stale: u64,
    /// Pages that were let go to make room, in bytes.
    pub evicted_len: u64,
}

/// A place in registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pinned: usize,
    pub(crate) cursor: Cursor,
}

/// All registrations of an engine.
pub(crate) struct Registrations<H> {
    pinned: Vec<Option<Pinned<H>>>,
    registrations: Vec<Registration>,
    cache_len_max: usize,
    clock: u64,
    counters: CacheCounters,
}

fn whole_pages(bytes: &Range<usize>) -> Option<Range<usize>> {
    let end = bytes.end.checked_next_multiple_of(PAGE)?;
    Some(bytes.start / PAGE * PAGE..end)
}

fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

impl<H> Registrations<H> {
    pub(crate) const fn new(cache_len_max: usize) -> Self {
        Self {
            pinned: Vec::new(),
            registrations: Vec::new(),
            cache_len_max,
            clock: 0,
            counters: CacheCounters {
                hits: 0,
                misses: 0,
                stale: 0,
                evicted_len: 0,
            },
        }
    }

    pub(crate) const fn counters(&self) -> CacheCounters {
        self.counters
    }

    fn entry(&self, index: usize) -> &Pinned<H> {
        self.pinned[index]
            .as_ref()
            .expect("registrations and places name pages that are there")
    }

    fn entry_mut(&mut self, index: usize) -> &mut Pinned<H> {
        self.pinned[index]
            .as_mut()
            .expect("registrations and places name pages that are there")
    }

    /// Registers bytes of this process.
    ///
    /// # Safety
    /// See [`crate::Engine::register`].
    pub(crate) unsafe fn register<B: Backend<Hold = H>>(
        &mut self,
        card: &mut B,
        bytes: Range<usize>,
        kind: Use,
        memory: Option<Memory>,
        frames_done: u64,
    ) -> Result<(), CopyError> {
        if self.registrations.len() >= REGISTRATIONS_MAX {
            return Err(CopyError::TooManyRegistrations);
        }
        let pages = whole_pages(&bytes).ok_or(CopyError::NoMemory {
            address: bytes.start,
            len: bytes.len(),
        })?;
        self.clock += 1;
        let index = match self.find_known(card, &pages, frames_done)? {
            Some(index) => {
                self.counters.hits += 1;
                index
            }
            None => {
                self.counters.misses += 1;
                self.pin(card, pages, memory)?
            }
        };
        let clock = self.clock;
        let entry = self.entry_mut(index);
        entry.users += 1;
        entry.used = clock;
        self.registrations.push(Registration {
            bytes,
            kind,
            pinned: index,
        });
        Ok(())
    }

    /// Finds known pages that contain these, if they are still the same.
    fn find_known<B: Backend<Hold = H>>(
        &mut self,
        card: &mut B,
        pages: &Range<usize>,
        frames_done: u64,
    ) -> Result<Option<usize>, CopyError> {
        for index in 0..self.pinned.len() {
            let Some(entry) = self.pinned[index]
                .as_ref()
                .filter(|entry| contains(&entry.pages, pages))
            else {
                continue;
            };
            let now = physical(card, pages);
            let at = (pages.start - entry.pages.start) / PAGE;
            let then = entry.physical.as_ref().map(|all| &all[at..at + (pages.len() / PAGE)]);
            if then.is_some() && then == now.as_deref() {
                return Ok(Some(index));
            }
            // Without the privilege to look them up, registered pages are believed to be what the program promised.
            if then.is_none() && entry.users > 0 {
                return Ok(Some(index));
            }
            if entry.users > 0 {
                return Err(CopyError::Replaced { address: pages.start });
            }
            self.counters.stale += 1;
            if is_idle(entry, frames_done) {
                self.let_go(card, index);
            }
        }
        Ok(None)
    }

    fn pin<B: Backend<Hold = H>>(
        &mut self,
        card: &mut B,
        pages: Range<usize>,
        memory: Option<Memory>,
    ) -> Result<usize, CopyError> {
        let fail = |reason| CopyError::Pin {
            address: pages.start,
            len: pages.len(),
            reason,
        };
        let base = NonNull::new(pages.start as *mut u8).ok_or_else(|| fail(std::io::ErrorKind::InvalidInput.into()))?;
        let (addresses, hold) = card.pin(base, pages.len()).map_err(fail)?;
        let entry = Pinned {
            runs: Runs::of_pages(&addresses),
            physical: physical(card, &pages),
            pages,
            hold,
            users: 0,
            last_frame: 0,
            waiting: 0,
            used: self.clock,
            _memory: memory,
        };
        let free = self.pinned.iter().position(Option::is_none);
        let index = free.unwrap_or(self.pinned.len());
        if index == self.pinned.len() {
            self.pinned.push(None);
        }
        self.pinned[index] = Some(entry);
        Ok(index)
    }

    fn let_go<B: Backend<Hold = H>>(&mut self, card: &mut B, index: usize) {
        if let Some(entry) = self.pinned[index].take() {
            self.counters.evicted_len += entry.pages.len() as u64;
            // Where the system refuses, the memory stays known to the card until it is closed: no harm but the memory.
            let _ = card.unpin(entry.hold);
        }
    }

    /// Which entry the registration of exactly these bytes is in.
    pub(crate) fn of_bytes(&self, bytes: &Range<usize>) -> Option<usize> {
        self.registrations
            .iter()
            .position(|registration| registration.bytes == *bytes)
    }

    /// Whether copies of a registration run.
    pub(crate) fn is_busy(&self, registration: usize, frames_done: u64) -> bool {
        !is_idle(self.entry(self.registrations[registration].pinned), frames_done)
    }

    /// Removes a registration. Its pages stay known, if others have the same or the cache has room.
    pub(crate) fn remove<B: Backend<Hold = H>>(&mut self, card: &mut B, registration: usize, frames_done: u64) {
        let index = self.registrations.swap_remove(registration).pinned;
        let entry = self.entry_mut(index);
        entry.users -= 1;
        // What cannot be looked up again cannot be known to be the same, and memory of the engine's own is unmapped.
        let keeps = entry.physical.is_some() && entry._memory.is_none();
        if entry.users == 0 && !keeps && is_idle(entry, frames_done) {
            self.let_go(card, index);
        }
        self.shrink(card, frames_done);
    }

    /// Lets pages go that are not registered, those first that were used longest ago, until the rest fits into the cache.
    fn shrink<B: Backend<Hold = H>>(&mut self, card: &mut B, frames_done: u64) {
        loop {
            let unused = || {
                let entries = self.pinned.iter().enumerate();
                entries
                    .filter_map(|(index, entry)| Some((index, entry.as_ref()?)).filter(|(_, entry)| entry.users == 0))
            };
            let len: usize = unused().map(|(_, entry)| entry.pages.len()).sum();
            let oldest = unused()
                .filter(|(_, entry)| is_idle(entry, frames_done))
                .min_by_key(|(_, entry)| entry.used);
            match oldest.map(|(index, _)| index) {
                Some(index) if len > self.cache_len_max => self.let_go(card, index),
                _ => return,
            }
        }
    }

    /// Finds bytes in registered memory.
    pub(crate) fn find(&self, what: &'static str, address: usize, len: usize, kind: Use) -> Result<Place, CopyError> {
        let missing = CopyError::NotRegistered { what, address, len };
        let Some(end) = address.checked_add(len) else {
            return Err(missing);
        };
        let bytes = address..end;
        let mut other = None;
        for registration in &self.registrations {
            if contains(&registration.bytes, &bytes) {
                if registration.kind == kind {
                    let pinned = self.entry(registration.pinned);
                    return Ok(Place {
                        pinned: registration.pinned,
                        cursor: pinned.runs.cursor(address - pinned.pages.start),
                    });
                }
                other = Some(registration.kind);
            }
        }
        Err(other.map_or(missing, |is| CopyError::WrongUse { what, is }))
    }

    pub(crate) fn runs(&self, place: Place) -> &Runs {
        &self.entry(place.pinned).runs
    }

    pub(crate) fn address(&self, place: Place) -> u64 {
        self.runs(place).address(place.cursor)
    }

    /// A copy waits that touches this place.
    pub(crate) fn begin(&mut self, place: Place) {
        self.entry_mut(place.pinned).waiting += 1;
    }

    /// All frames of a copy are posted that touches this place, the last of them with this number.
    pub(crate) fn posted(&mut self, place: Place, frame: u64) {
        let entry = self.entry_mut(place.pinned);
        entry.waiting -= 1;
        entry.last_frame = entry.last_frame.max(frame);
    }
}

fn physical<B: Backend>(card: &B, pages: &Range<usize>) -> Option<Vec<u64>> {
    card.physical_pages(NonNull::new(pages.start as *mut u8)?, pages.len())
}

fn is_idle<H>(entry: &Pinned<H>, frames_done: u64) -> bool {
    entry.waiting == 0 && entry.last_frame <= frames_done
}
