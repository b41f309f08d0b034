//! The bytes of all packets of a node: one buffer for each number of the engine.

use std::cell::UnsafeCell;

use lci::{BufferId, PACKET_LEN_MAX};

type Buffer = UnsafeCell<[u8; PACKET_LEN_MAX]>;

/// Buffers in one piece of memory that never moves.
///
/// Who may use which bytes is the engine's to say: a buffer is the program's, or the library's, never both. The arena hands out
/// pointers, and those who make references of them say why that is right.
pub(crate) struct Arena {
    buffers: Box<[Buffer]>,
}

// SAFETY: a buffer is only ever used by the one that the engine says has it; the engine is behind a lock, which orders the uses.
unsafe impl Sync for Arena {}
// SAFETY: as above; nothing here belongs to a thread.
unsafe impl Send for Arena {}

impl Arena {
    pub(crate) fn new(buffers: usize) -> Self {
        // Zeroed memory of the system takes no pages before it is used, and most buffers never are.
        let zeroed = Box::<[Buffer]>::new_zeroed_slice(buffers);
        // SAFETY: all zeros are bytes.
        let buffers = unsafe { zeroed.assume_init() };
        Self { buffers }
    }

    /// The first byte of a buffer.
    #[inline]
    pub(crate) fn pointer(&self, buffer: BufferId) -> *mut u8 {
        self.buffers[buffer.index()].get().cast()
    }

    /// The buffer that begins at this byte, if one does.
    pub(crate) fn buffer_at(&self, pointer: *const u8) -> Option<BufferId> {
        let offset = (pointer as usize).checked_sub(self.buffers.as_ptr() as usize)?;
        let index = offset / PACKET_LEN_MAX;
        let is_first = offset % PACKET_LEN_MAX == 0 && index < self.buffers.len();
        is_first.then(|| BufferId::from_index(index as u32))
    }

    /// Copies bytes to the beginning of a buffer.
    ///
    /// # Safety
    /// The buffer is the library's, and nothing else uses it now.
    #[inline]
    pub(crate) unsafe fn store(&self, buffer: BufferId, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(PACKET_LEN_MAX)];
        // SAFETY: the buffer has that many bytes, and they are not the frame's.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer(buffer), bytes.len()) };
    }

    /// The first bytes of a buffer.
    ///
    /// # Safety
    /// Nothing writes to the buffer as long as the result lives.
    #[inline]
    pub(crate) unsafe fn bytes(&self, buffer: BufferId, len: usize) -> &[u8] {
        // SAFETY: the buffer has that many bytes, initialised; the caller promises the rest.
        unsafe { std::slice::from_raw_parts(self.pointer(buffer), len.min(PACKET_LEN_MAX)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_a_buffer_only_where_one_begins() {
        let arena = Arena::new(3);
        let buffer = BufferId::from_index(2);
        // SAFETY: nothing else uses the arena.
        unsafe { arena.store(buffer, b"abc") };
        // SAFETY: nothing writes to it any more.
        assert_eq!(unsafe { arena.bytes(buffer, 4) }, b"abc\0");
        let pointer = arena.pointer(buffer);
        assert_eq!(arena.buffer_at(pointer), Some(buffer));
        assert_eq!(arena.buffer_at(pointer.wrapping_add(1)), None);
        assert_eq!(arena.buffer_at(pointer.wrapping_add(PACKET_LEN_MAX)), None);
        assert_eq!(arena.buffer_at(std::ptr::null()), None);
    }
}
