//! The split virtqueue (virtio 1.2 section 2.7): descriptor table, available ring, used ring.
//!
//! The available index is read once per batch, each available entry once; used entries are written as buffers come
//! back and published together. Both notification schemes (flags and EVENT_IDX) are here as questions and settings; the
//! eventfds are not.

use std::sync::atomic::{AtomicU16, Ordering, fence};

use super::chain_walk::{DESC_LEN, Table, single, walk};
use super::shadow::Shadow;
use super::{Direction, Halt, Rule};
use crate::memory::{Access, CACHE_LINE, MemoryMap, Piece, prefetch, prefetch_for_write};

/// Bytes of a used entry.
const USED_LEN: usize = 8;

const AVAIL_NO_INTERRUPT: u16 = 1;
const USED_NO_NOTIFY: u16 = 1;

/// Where the frontend placed a ring, in guest addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingAddresses {
    /// The descriptor table (16 bytes an entry).
    pub descriptors: u64,
    /// The available ring, which the driver writes.
    pub available: u64,
    /// The used ring, which the device writes.
    pub used: u64,
}

/// What the driver agreed on.
#[derive(Clone, Copy, Debug)]
struct Negotiated {
    event_idx: bool,
    /// EVENT_IDX is on, and its words can be read in place.
    event_idx_in_place: bool,
    indirect: bool,
}

/// A started split ring.
///
/// All indices are free-running 16-bit counters, as in guest memory.
#[derive(Debug)]
pub struct SplitRing {
    size: u16,
    negotiated: Negotiated,
    addresses: RingAddresses,
    descriptors: *const u8,
    available: *const u8,
    used: *mut u8,
    /// Behind an IOMMU, where the three pointers lead: private copies of the tables, and what carries them over.
    shadow: Option<Box<Shadow>>,
    /// Next available entry to take.
    next_avail: u16,
    /// The available index as last read.
    avail_seen: u16,
    /// Next used entry to write.
    next_used: u16,
    /// The used index as last published.
    published: u16,
    /// The published index at the last decision about a notification.
    decided: u16,
    /// Entries taken and not yet published as used. A driver cannot make more available than the rest of the ring.
    outstanding: u16,
    /// Entries published since the driver was last signalled.
    unsignalled: u32,
    /// Whether the driver is currently asked to kick.
    kicks_wanted: bool,
}

/// What the driver's side of a ring says, each word read once, and how far the device's side is.
#[derive(Clone, Copy, Debug)]
pub struct DriverWords {
    /// Entries of the ring.
    pub size: u16,
    /// The used index as last published.
    pub published: u16,
    /// The available index.
    pub available: u16,
    /// used_event, if EVENT_IDX was negotiated.
    pub event: Option<u16>,
    /// The flag that asks for no calls, which counts without EVENT_IDX.
    pub no_interrupt: bool,
    /// Entries published since the driver was last signalled; stops at its greatest value.
    pub unsignalled: u32,
}

// SAFETY: the pointers point into mappings that the card's memory map keeps alive in every thread; the data plane's lock
// makes sure that one thread at a time uses them.
unsafe impl Send for SplitRing {}

impl SplitRing {
    /// A ring of `size` entries at `addresses`. `event_idx` and `indirect` say what was negotiated. The ring goes on behind the
    /// used index in guest memory: all entries before it were given back, in order, and none behind it was.
    ///
    /// # Errors
    /// [`Rule::RingMisaligned`], [`Rule::RingOutsideMemory`]; [`Halt::Untranslated`] behind an IOMMU. `size` must be a power of
    /// two up to [`RING_SIZE_MAX`](super::RING_SIZE_MAX), which the frontend's messages were checked for.
    pub fn new(
        map: &MemoryMap,
        size: u16,
        addresses: RingAddresses,
        event_idx: bool,
        indirect: bool,
    ) -> Result<Self, Halt> {
        let entries = u32::from(size);
        if !addresses.descriptors.is_multiple_of(16)
            || !addresses.available.is_multiple_of(2)
            || !addresses.used.is_multiple_of(4)
            || !size.is_power_of_two()
        {
            return Err(Rule::RingMisaligned.into());
        }
        let mut shadow = None;
        let (descriptors, available, used);
        if let Some(translation) = map.translation() {
            let shadow = shadow.insert(Shadow::new(translation, size, addresses)?);
            (descriptors, available, used) = shadow.parts();
        } else {
            let place = |addr, len, access| {
                map.contiguous(addr, len, access)
                    .map_err(|error| Halt::of(error, Rule::RingOutsideMemory))
            };
            descriptors = place(addresses.descriptors, entries * DESC_LEN as u32, Access::Read)?;
            available = place(addresses.available, 6 + 2 * entries, Access::Read)?;
            used = place(addresses.used, 6 + 8 * entries, Access::Write)?;
        }
        let mut ring = Self {
            size,
            negotiated: Negotiated {
                event_idx,
                event_idx_in_place: event_idx && shadow.is_none(),
                indirect,
            },
            addresses,
            descriptors,
            available,
            used,
            shadow: shadow.map(Box::new),
            next_avail: 0,
            avail_seen: 0,
            next_used: 0,
            published: 0,
            decided: 0,
            outstanding: 0,
            unsignalled: 0,
            kicks_wanted: true,
        };
        // A region may start at an odd guest address, so it is the host's pointers that count for aligned access.
        if !ring.available.cast::<u16>().is_aligned() || !ring.used.cast::<u32>().is_aligned() {
            return Err(Rule::RingMisaligned.into());
        }
        // SAFETY: aligned as just checked, and offset 2 is inside the used ring.
        let used = u16::from_le(unsafe { ring.used_word(2).load(Ordering::Relaxed) });
        ring.next_avail = used;
        ring.avail_seen = used;
        ring.next_used = used;
        ring.published = used;
        ring.decided = used;
        Ok(ring)
    }

    /// Goes on in another memory table, with its indices.
    ///
    /// # Errors
    /// Those of [`SplitRing::new`]; the ring stays where it is.
    pub fn move_to(&mut self, map: &MemoryMap) -> Result<(), Halt> {
        if let (Some(shadow), Some(translation)) = (&mut self.shadow, map.translation()) {
            shadow.move_to(translation);
            return Ok(());
        }
        let mut ring = Self::new(
            map,
            self.size,
            self.addresses,
            self.negotiated.event_idx,
            self.negotiated.indirect,
        )?;
        ring.next_avail = self.next_avail;
        ring.avail_seen = self.avail_seen;
        ring.next_used = self.next_used;
        ring.published = self.published;
        ring.decided = self.decided;
        ring.outstanding = self.outstanding;
        ring.unsignalled = self.unsignalled;
        ring.kicks_wanted = self.kicks_wanted;
        *self = ring;
        Ok(())
    }

    /// Entries of the ring.
    #[inline]
    pub fn size(&self) -> u16 {
        self.size
    }

    /// The index that the frontend must be told when the ring stops: the first entry that was not taken.
    #[inline]
    pub fn next_avail(&self) -> u16 {
        self.next_avail
    }

    /// Entries written to the used ring since the ring was new, modulo 2¹⁶.
    #[inline]
    pub fn next_used(&self) -> u16 {
        self.next_used
    }

    /// # Safety
    /// `offset` must be even and inside the ring's mapping.
    #[inline]
    unsafe fn used_word(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: inside the mapping and aligned by contract; shared words are only accessed atomically.
        unsafe { AtomicU16::from_ptr(self.used.add(offset).cast()) }
    }

    /// # Safety
    /// `offset` must be even and inside the ring's mapping.
    #[inline]
    unsafe fn avail_word(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: inside the mapping and aligned by contract; the mapping is writable although we only read.
        unsafe { AtomicU16::from_ptr(self.available.cast_mut().add(offset).cast()) }
    }

    /// Entries that can be taken, without looking at guest memory when some are known.
    #[inline]
    pub fn known_available(&self) -> u16 {
        self.avail_seen.wrapping_sub(self.next_avail)
    }

    /// Reads the available index and returns the entries that can be taken.
    ///
    /// # Errors
    /// [`Rule::AvailIndexJump`] if that would be more than the ring holds beside what was taken and not given back;
    /// [`Halt::Untranslated`] if there may be some behind an IOMMU.
    #[inline]
    pub fn refresh(&mut self) -> Result<u16, Halt> {
        if self.shadow.is_some() {
            return self.refresh_behind_iommu();
        }
        Ok(self.refresh_here()?)
    }

    #[cold]
    fn refresh_behind_iommu(&mut self) -> Result<u16, Halt> {
        let fetched = self.shadow.as_mut().map_or(Ok(()), |shadow| shadow.fetch());
        let available = self.refresh_here()?;
        if available == 0 {
            fetched?;
        }
        Ok(available)
    }

    #[inline(always)]
    fn refresh_here(&mut self) -> Result<u16, Rule> {
        // SAFETY: offset 2 of the available ring is its index. Acquire: the entries and descriptors behind the index
        // are read after it.
        let index = u16::from_le(unsafe { self.avail_word(2).load(Ordering::Acquire) });
        let available = index.wrapping_sub(self.next_avail);
        if available > self.size.saturating_sub(self.outstanding) {
            return Err(Rule::AvailIndexJump);
        }
        self.avail_seen = index;
        Ok(available)
    }

    /// Takes the next available entry and returns the head of its chain, unchecked. Call only when
    /// [`known_available`](Self::known_available) is not 0.
    #[inline]
    pub fn take_head(&mut self) -> u16 {
        debug_assert!(self.known_available() > 0);
        let slot = usize::from(self.next_avail & (self.size - 1));
        self.next_avail = self.next_avail.wrapping_add(1);
        self.outstanding = self.outstanding.wrapping_add(1);
        // SAFETY: the slot is below the ring size.
        u16::from_le(unsafe { self.avail_word(4 + 2 * slot).load(Ordering::Relaxed) })
    }

    /// Takes the next available entries into `heads`, as many as it has, and asks for their descriptors and for the used
    /// entries in which they will come back, so that all are being fetched while the first ones are walked. There must be
    /// as many.
    #[inline]
    pub fn take_heads(&mut self, heads: &mut [u16]) {
        let first_used = self.published.wrapping_add(self.outstanding);
        for step in (0..heads.len() as u16).step_by(CACHE_LINE / USED_LEN) {
            let slot = usize::from(first_used.wrapping_add(step) & (self.size - 1));
            prefetch_for_write(self.used.wrapping_add(4 + USED_LEN * slot));
        }
        for head in &mut *heads {
            *head = self.take_head();
            prefetch(self.descriptors.wrapping_add(usize::from(*head) * DESC_LEN));
        }
    }

    /// Gives the last `count` taken entries back; they will be read anew.
    #[inline]
    pub fn untake(&mut self, count: u16) {
        self.next_avail = self.next_avail.wrapping_sub(count);
        self.outstanding = self.outstanding.wrapping_sub(count);
    }

    /// Entries that were taken, and neither given back nor written to the used ring.
    pub fn taken_unused(&self) -> u16 {
        let unpublished = self.next_used.wrapping_sub(self.published);
        self.outstanding.wrapping_sub(unpublished)
    }

    fn table(&self) -> Table {
        Table {
            base: self.descriptors,
            len: self.size,
        }
    }

    /// The only buffer of the chain at `head` if that is easy to see; otherwise, nothing was decided, and
    /// [`walk`](Self::walk) must be used (it reads the chain anew, and what it reads then is what counts).
    #[inline(always)]
    pub fn single(&self, map: &MemoryMap, head: u16, direction: Direction) -> Option<Piece> {
        single(self.table(), head, map, direction)
    }

    /// Appends the buffers of the chain at `head` to `pieces`.
    ///
    /// # Errors
    /// Why the chain cannot be used; `pieces` may then hold a part of it.
    pub fn walk(&self, map: &MemoryMap, head: u16, direction: Direction, pieces: &mut Vec<Piece>) -> Result<(), Halt> {
        walk(self.table(), head, self.negotiated.indirect, map, direction, pieces)
    }

    /// As [`walk`](Self::walk) for the chain at the first of `heads`. If a translation is missing for it, what is missing for the chains
    /// behind it is noted as well, so that all is asked for at once; `pieces` then is as it was.
    ///
    /// # Errors
    /// Those of [`walk`](Self::walk).
    #[inline(never)]
    pub fn walk_first(
        &self,
        map: &MemoryMap,
        heads: &[u16],
        direction: Direction,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), Halt> {
        let before = pieces.len();
        let mut outcome = Ok(());
        for head in heads {
            let walked = self.walk(map, *head, direction, pieces);
            if outcome == Ok(()) {
                outcome = walked;
                if outcome != Err(Halt::Untranslated) {
                    break;
                }
            }
            pieces.truncate(before);
        }
        outcome
    }

    /// Writes a used entry: the chain at `head` comes back with `len` bytes written. Not visible before
    /// [`publish_to`](Self::publish_to).
    #[inline]
    pub fn push_used(&mut self, head: u16, len: u32) {
        let slot = usize::from(self.next_used & (self.size - 1));
        self.next_used = self.next_used.wrapping_add(1);
        let entry = u64::from(head) | u64::from(len) << 32;
        // SAFETY: the slot is below the ring size. Entries are aligned to 4 bytes only. The write is seen by the driver
        // after the index is published, which orders it.
        unsafe {
            self.used
                .add(4 + USED_LEN * slot)
                .cast::<u64>()
                .write_unaligned(entry.to_le())
        };
    }

    /// Writes used entries as [`push_used`](Self::push_used) does, each a head and the bytes written. Returns how many.
    #[inline(always)]
    pub fn push_used_each(&mut self, entries: impl Iterator<Item = (u16, u32)>) -> usize {
        // What a write through a pointer could change is kept out of memory.
        let (used, mask) = (self.used, self.size - 1);
        let first = self.next_used;
        let mut next = first;
        for (head, len) in entries {
            let slot = usize::from(next & mask);
            next = next.wrapping_add(1);
            let entry = u64::from(head) | u64::from(len) << 32;
            // SAFETY: as in `push_used`.
            unsafe {
                used.add(4 + USED_LEN * slot)
                    .cast::<u64>()
                    .write_unaligned(entry.to_le())
            };
        }
        self.next_used = next;
        usize::from(next.wrapping_sub(first))
    }

    /// Makes used entries visible up to (not including) the free-running index `index`.
    #[inline]
    pub fn publish_to(&mut self, index: u16) {
        if index != self.published {
            let entries = index.wrapping_sub(self.published);
            self.outstanding = self.outstanding.wrapping_sub(entries);
            self.unsignalled = self.unsignalled.saturating_add(u32::from(entries));
            self.published = index;
            // SAFETY: offset 2 of the used ring is its index. Release: entries and data are written before it.
            unsafe { self.used_word(2).store(index.to_le(), Ordering::Release) };
            if let Some(shadow) = &mut self.shadow {
                shadow.push(index);
            }
        }
    }

    /// Makes used entries visible that could not be for want of a translation. True if there were such, which the driver is to
    /// be told.
    pub fn catch_up(&mut self) -> bool {
        let published = self.published;
        let shadow = self.shadow.as_mut().filter(|shadow| shadow.is_behind(published));
        shadow.is_some_and(|shadow| shadow.push(published))
    }

    /// Makes every used entry visible.
    #[inline]
    pub fn publish(&mut self) {
        self.publish_to(self.next_used);
    }

    /// Asks once per decision whether the driver wants a notification for what was published since the last one.
    #[inline]
    pub fn driver_wants_notification(&mut self) -> bool {
        let old = self.decided;
        let new = self.published;
        self.decided = new;
        // The driver publishes its wish, then reads the used index; the device published the index and now reads the wish.
        fence(Ordering::SeqCst);
        if self.negotiated.event_idx_in_place {
            return self.event_is_among(old, new);
        }
        if let Some(shadow) = &self.shadow {
            if let Some(wanted) = shadow.knows_wish(new) {
                return wanted;
            }
            if self.negotiated.event_idx {
                return self.event_is_among(old, new);
            }
        }
        // SAFETY: offset 0 of the available ring is its flags.
        let flags = u16::from_le(unsafe { self.avail_word(0).load(Ordering::Relaxed) });
        flags & AVAIL_NO_INTERRUPT == 0
    }

    /// Whether the driver wants to hear of an entry from the used index `old` on and before `new`.
    #[inline(always)]
    fn event_is_among(&self, old: u16, new: u16) -> bool {
        let at = 4 + 2 * usize::from(self.size);
        // SAFETY: used_event stands behind the available entries and was included in the ring's length.
        let event = u16::from_le(unsafe { self.avail_word(at).load(Ordering::Relaxed) });
        new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
    }

    /// Reads what the driver's side says now; behind an IOMMU and for want of a translation, what it said last.
    pub fn driver_words(&self) -> DriverWords {
        // What was published must be visible before the wish for calls is read.
        fence(Ordering::SeqCst);
        // SAFETY: flags, index and used_event are inside the ring's length, at even offsets.
        let word = |at: usize| u16::from_le(unsafe { self.avail_word(at).load(Ordering::Relaxed) });
        let own = || [0, 2, 4 + 2 * usize::from(self.size)].map(word);
        let [flags, available, event] = match &self.shadow {
            Some(shadow) => shadow.driver_words().unwrap_or_else(|_| own()),
            None => own(),
        };
        DriverWords {
            size: self.size,
            published: self.published,
            available,
            event: self.negotiated.event_idx.then_some(event),
            no_interrupt: flags & AVAIL_NO_INTERRUPT != 0,
            unsignalled: self.unsignalled,
        }
    }

    /// The driver was signalled.
    #[inline]
    pub fn note_signalled(&mut self) {
        self.unsignalled = 0;
    }

    /// Tells the driver that it need not kick: the ring is polled.
    #[inline]
    pub fn kicks_off(&mut self) {
        if self.kicks_wanted {
            self.kicks_wanted = false;
            if !self.negotiated.event_idx {
                // SAFETY: offset 0 of the used ring is its flags.
                unsafe { self.used_word(0).store(USED_NO_NOTIFY.to_le(), Ordering::Relaxed) };
                if let Some(shadow) = &self.shadow {
                    shadow.push_wish(0, USED_NO_NOTIFY);
                }
            }
            // With EVENT_IDX the old event index stays where it is, behind what the driver will add next.
        }
    }

    /// Tells the driver not to kick whatever it adds: no process may be there to take the kick. Returns the entries that it may have added
    /// before it could know, and that it may kick for yet.
    ///
    /// # Errors
    /// Those of [`refresh`](Self::refresh).
    pub fn refuse_kicks(&mut self) -> Result<u16, Halt> {
        self.kicks_wanted = true;
        self.kicks_off();
        if self.negotiated.event_idx {
            // The driver kicks when it passes this index. No ring is so long that it does.
            self.store_avail_event(self.next_avail.wrapping_add(1 << 15));
        }
        // The driver adds entries, then reads the wish; the device wrote the wish and now reads the index. So what the driver decides to
        // kick for is there.
        fence(Ordering::SeqCst);
        self.refresh()
    }

    /// Writes the index of the entry at which a driver with EVENT_IDX kicks.
    fn store_avail_event(&self, event: u16) {
        let at = self.avail_event_offset();
        // SAFETY: avail_event stands behind the used entries and was included in the ring's length.
        unsafe { self.used_word(at).store(event.to_le(), Ordering::Relaxed) };
        if let Some(shadow) = &self.shadow {
            shadow.push_wish(at, event);
        }
    }

    fn avail_event_offset(&self) -> usize {
        4 + USED_LEN * usize::from(self.size)
    }

    /// Asks the driver to kick when it adds the next entry and returns the entries that are there already.
    ///
    /// # Errors
    /// Those of [`refresh`](Self::refresh).
    pub fn kicks_on(&mut self) -> Result<u16, Halt> {
        self.kicks_wanted = true;
        if self.negotiated.event_idx {
            self.store_avail_event(self.next_avail);
        } else {
            if let Some(shadow) = &self.shadow {
                shadow.push_wish(0, 0);
            }
            // SAFETY: offset 0 of the used ring is its flags.
            unsafe { self.used_word(0).store(0, Ordering::Relaxed) };
        }
        fence(Ordering::SeqCst);
        self.refresh()
    }
}
