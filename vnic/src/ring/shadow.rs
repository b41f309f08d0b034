//! The ring of a guest behind an IOMMU: its tables are worked on in private memory, and carried over at the moments at which
//! device and driver look at each other's index anyway. Every word of the guest's goes through the translation when it is read or written, no pointer
//! into its tables is kept, and the tables may lie in pages that have nothing to do with each other.
//!
//! Entries and descriptors are copied when the driver has made them available, after which it leaves them alone until they are
//! used; used entries are copied before the index that shows them.

use std::sync::Arc;

use super::chain_walk::{DESC_LEN, next_of};
use super::{Halt, RING_SIZE_MAX, RingAddresses, Rule};
use crate::memory::{Translation, Unreachable};

/// Bytes of the words around the entries of available and used ring: flags and index before them, an event index behind.
const WORDS_LEN: usize = 6;
const USED_LEN: usize = 8;

/// Private copies of a ring's three tables.
#[derive(Debug)]
pub(super) struct Shadow {
    translation: Arc<Translation>,
    addresses: RingAddresses,
    size: u16,
    /// Descriptor table, used ring, available ring, each at a place that is aligned for its words. Only used through pointers,
    /// of which the ring has some, too.
    tables: *mut [u64],
    /// Available index up to which entries and their descriptors were copied.
    fetched: u16,
    /// Used index as the guest's memory has it.
    pushed: u16,
    /// For each descriptor a bit, set while entries are fetched by which it was copied already.
    copied: Box<[u64]>,
}

// SAFETY: the tables are this value's own, and the thread that has it is the only one that uses them.
unsafe impl Send for Shadow {}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw`, and given back once.
        drop(unsafe { Box::from_raw(self.tables) });
    }
}

impl Shadow {
    /// Copies of the ring of `size` entries at the I/O addresses `addresses`, which goes on behind its used index.
    pub fn new(translation: &Arc<Translation>, size: u16, addresses: RingAddresses) -> Result<Self, Halt> {
        let entries = u64::from(size);
        let parts = [
            (addresses.descriptors, entries * DESC_LEN as u64),
            (addresses.available, 2 * entries + WORDS_LEN as u64),
            (addresses.used, USED_LEN as u64 * entries + WORDS_LEN as u64),
        ];
        if size > RING_SIZE_MAX || parts.iter().any(|(addr, len)| addr.checked_add(*len).is_none()) {
            return Err(Rule::RingOutsideMemory.into());
        }
        let used = translation.load(addresses.used + 2).map_err(outside)?;
        let words = 2 * usize::from(size) + usize::from(size) + 1 + (usize::from(size) + 3).div_ceil(4);
        let shadow = Self {
            translation: Arc::clone(translation),
            addresses,
            size,
            tables: Box::into_raw(vec![0u64; words].into_boxed_slice()),
            fetched: used,
            pushed: used,
            copied: vec![0; usize::from(size).div_ceil(64)].into_boxed_slice(),
        };
        shadow.keep_used(2, used);
        shadow.keep_available(2, used);
        Ok(shadow)
    }

    /// Where descriptor table, available ring and used ring are, for as long as this lives.
    pub fn parts(&self) -> (*const u8, *const u8, *mut u8) {
        (self.descriptors(), self.available(), self.used())
    }

    fn descriptors(&self) -> *mut u8 {
        self.tables.cast()
    }

    fn used(&self) -> *mut u8 {
        self.descriptors().wrapping_add(DESC_LEN * usize::from(self.size))
    }

    fn available(&self) -> *mut u8 {
        self.used().wrapping_add(USED_LEN * (usize::from(self.size) + 1))
    }

    /// Writes a word into the private available ring; `at` is even and inside it.
    fn keep_available(&self, at: usize, value: u16) {
        debug_assert!(at + 2 <= WORDS_LEN + 2 * usize::from(self.size));
        // SAFETY: inside the tables, aligned as they are; no reference to them exists.
        unsafe { self.available().add(at).cast::<u16>().write(value.to_le()) };
    }

    /// Writes a word into the private used ring; `at` is even and inside it.
    fn keep_used(&self, at: usize, value: u16) {
        debug_assert!(at + 2 <= WORDS_LEN + USED_LEN * usize::from(self.size));
        // SAFETY: as in `keep_available`.
        unsafe { self.used().add(at).cast::<u16>().write(value.to_le()) };
    }

    /// Goes on over another memory table.
    pub fn move_to(&mut self, translation: &Arc<Translation>) {
        self.translation = Arc::clone(translation);
    }

    /// Copies what the driver made available since the last time. The private index then says how much of it is there.
    ///
    /// # Errors
    /// [`Halt::Untranslated`] if a part of it could not be read; [`Halt::Broken`] if words lie where no ring can have them.
    pub fn fetch(&mut self) -> Result<(), Halt> {
        let index = self.translation.load(self.addresses.available + 2).map_err(outside)?;
        let count = index.wrapping_sub(self.fetched);
        if count > self.size {
            // More than any ring has: the caller sees that by the index, and nothing of it is used.
            self.keep_available(2, index);
            return Ok(());
        }
        self.copied.fill(0);
        let mut outcome = Ok(());
        for _ in 0..count {
            outcome = self.fetch_entry();
            if outcome.is_err() {
                break;
            }
            self.fetched = self.fetched.wrapping_add(1);
        }
        self.keep_available(2, self.fetched);
        outcome
    }

    /// Copies the next entry, and those descriptors of its chain that are not marked as copied.
    fn fetch_entry(&mut self) -> Result<(), Halt> {
        let slot = usize::from(self.fetched & (self.size - 1));
        let at = 4 + 2 * slot;
        let head = self
            .translation
            .load(self.addresses.available + at as u64)
            .map_err(outside)?;
        let mut next = Some(head);
        // What is not in the table breaks a rule, which is found when the chain is walked.
        while let Some(index) = next.filter(|index| *index < self.size) {
            let (word, bit) = (usize::from(index / 64), 1 << (index % 64));
            if self.copied[word] & bit != 0 {
                break;
            }
            let at = DESC_LEN * usize::from(index);
            let mut descriptor = [0; DESC_LEN];
            self.translation
                .read(self.addresses.descriptors + at as u64, &mut descriptor)
                .map_err(outside)?;
            // SAFETY: the index is below the size, so the place is inside the private table.
            unsafe { self.descriptors().add(at).cast::<[u8; DESC_LEN]>().write(descriptor) };
            self.copied[word] |= bit;
            next = next_of(&descriptor);
        }
        self.keep_available(at, head);
        Ok(())
    }

    /// What the driver's words say now: its flags, its index and used_event.
    #[cold]
    pub fn driver_words(&self) -> Result<[u16; 3], Halt> {
        let mut words = [0; 3];
        for (word, at) in words.iter_mut().zip([0, 2, 4 + 2 * usize::from(self.size)]) {
            *word = self
                .translation
                .load(self.addresses.available + at as u64)
                .map_err(outside)?;
        }
        // The wishes are kept for when they cannot be read; the index says how much was copied, and is none of them.
        self.keep_available(0, words[0]);
        self.keep_available(4 + 2 * usize::from(self.size), words[2]);
        Ok(words)
    }

    /// Fetches the driver's wish for a call for what was published up to `published`; says what it is where that is not to be read
    /// from its words.
    #[cold]
    pub fn knows_wish(&self, published: u16) -> Option<bool> {
        if self.is_behind(published) {
            // The driver is signalled when it can see something new.
            return Some(false);
        }
        // One call too many does no harm.
        self.driver_words().is_err().then_some(true)
    }

    /// Whether the guest's memory has another used index than `published`.
    pub fn is_behind(&self, published: u16) -> bool {
        self.pushed != published
    }

    /// Copies used entries up to the index `published` to the guest, and then the index. False if there is no translation for it
    /// now: nothing is lost, and the guest sees it later.
    #[cold]
    pub fn push(&mut self, published: u16) -> bool {
        let mut next = self.pushed;
        while next != published {
            // As many as there are before the ring begins anew.
            let slot = usize::from(next & (self.size - 1));
            let count = usize::from(published.wrapping_sub(next)).min(usize::from(self.size) - slot);
            let at = 4 + USED_LEN * slot;
            let len = USED_LEN * count;
            // SAFETY: the slots are below the ring's size, so the bytes are inside the private ring; they are read only here.
            let entries = unsafe { std::slice::from_raw_parts(self.used().add(at), len) };
            if self
                .translation
                .write(self.addresses.used + at as u64, entries)
                .is_err()
            {
                return false;
            }
            next = next.wrapping_add(count as u16);
        }
        let is_shown = self.translation.store(self.addresses.used + 2, published).is_ok();
        if is_shown {
            self.pushed = published;
        }
        is_shown
    }

    /// Writes a wish about kicks, at an even place in the used ring. If there is no translation for it now, the wish that is there
    /// stays, and is written anew when the translation has come.
    #[cold]
    pub fn push_wish(&self, at: usize, value: u16) {
        _ = self.translation.store(self.addresses.used + at as u64, value);
    }
}

/// A word of a ring that is in no memory, or at a place where no word can be.
fn outside(error: Unreachable) -> Halt {
    Halt::of(error, Rule::RingOutsideMemory)
}
