//! The memory that a copy engine knows (papers.md M-OM7): that of running receives. When a receive is over the program may unmap
//! its memory and map other memory at the same place, so the next receive registers anew; an engine that keeps what it
//! knew must look whether it is still the same memory. Without an engine nothing is registered: packet sockets copy.

use std::ops::Range;

use crate::CopyEngine;

/// At most this many registrations exist at once, which are pieces of running receives. Beyond, the one not used for longest
/// ends. A card knows 256 parts of memory, some of which are others'.
const REGISTRATIONS_MAX: usize = 224;

#[derive(Debug)]
struct Registration {
    memory: Range<usize>,
    name: u64,
    used: u64,
    /// The number of the last copy to it; it may not have been submitted.
    last_copy: u64,
}

impl Registration {
    const fn shares(&self, memory: &Range<usize>) -> bool {
        self.memory.start < memory.end && memory.start < self.memory.end
    }
}

/// The registrations that the engine of one endpoint has.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    list: Vec<Registration>,
    uses: u64,
}

impl Registrations {
    pub(crate) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether the next memory that is added takes the place of another.
    pub(crate) const fn is_full(&self) -> bool {
        self.list.len() >= REGISTRATIONS_MAX
    }

    /// Returns the number of the last copy to registrations that share a byte with this memory; `None`: there are none.
    pub(crate) fn last_copy(&self, memory: &Range<usize>) -> Option<u64> {
        let sharing = self.list.iter().filter(|known| known.shares(memory));
        sharing.map(|known| known.last_copy).max()
    }

    /// Sees to it that the engine knows this memory, for the copy with this number. False: it cannot. No copy may be running if the
    /// list [is full](Self::is_full).
    ///
    /// # Safety
    /// The memory can be written until [`Registrations::clean`] is called for it.
    pub(crate) unsafe fn add(&mut self, engine: &mut dyn CopyEngine, to: *mut u8, len: usize, copy: u64) -> bool {
        let memory = to.addr()..to.addr() + len;
        let contains = |known: &&mut Registration| known.memory.start <= memory.start && memory.end <= known.memory.end;
        self.uses += 1;
        if let Some(known) = self.list.iter_mut().find(contains) {
            known.used = self.uses;
            known.last_copy = copy;
            return true;
        }
        if self.is_full() {
            let oldest = self.list.iter().enumerate().min_by_key(|(_, known)| known.used);
            if let Some((at, _)) = oldest {
                engine.unregister(self.list.swap_remove(at).name);
            }
        }
        // SAFETY: the caller's promise.
        let Some(name) = (unsafe { engine.register(to, len) }) else {
            return false;
        };
        let used = self.uses;
        self.list.push(Registration {
            memory,
            name,
            used,
            last_copy: copy,
        });
        true
    }

    /// Ends the registrations that share a byte with this memory, to which no copy may be running.
    pub(crate) fn clean(&mut self, engine: &mut dyn CopyEngine, memory: &Range<usize>) {
        for over in self.list.extract_if(.., |known| known.shares(memory)) {
            engine.unregister(over.name);
        }
    }
}
