//! Packets as the program has them.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use lci::{BufferId, GroupId, PACKET_LEN_MAX};

use crate::core::Shared;

/// A packet to be filled and launched. Dropping it gives it back.
pub struct SendPacket {
    shared: Arc<Shared>,
    buffer: BufferId,
}

impl SendPacket {
    pub(crate) fn new(shared: Arc<Shared>, buffer: BufferId) -> Self {
        Self { shared, buffer }
    }

    pub(crate) fn buffer(&self) -> BufferId {
        self.buffer
    }

    /// The packet is the engine's now.
    pub(crate) fn launched(self) {
        // Only the reference to the node is to be dropped.
        let mut this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is never used again, nor dropped.
        unsafe { std::ptr::drop_in_place(&raw mut this.shared) };
    }
}

impl Deref for SendPacket {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer is the program's until it is launched, which takes the packet; only this value writes to it.
        unsafe { self.shared.arena.bytes(self.buffer, PACKET_LEN_MAX) }
    }
}

impl DerefMut for SendPacket {
    fn deref_mut(&mut self) -> &mut [u8] {
        let pointer = self.shared.arena.pointer(self.buffer);
        // SAFETY: as above, and `self` is borrowed mutably; the buffer has that many bytes, initialised.
        unsafe { std::slice::from_raw_parts_mut(pointer, PACKET_LEN_MAX) }
    }
}

impl Drop for SendPacket {
    fn drop(&mut self) {
        self.shared.lock().engine.release(self.buffer);
    }
}

/// A packet that was received: its bytes, and where it is from. Dropping it gives its buffer back.
pub struct Packet {
    shared: Arc<Shared>,
    delivery: lci::Delivery,
}

impl Packet {
    pub(crate) fn new(shared: Arc<Shared>, delivery: lci::Delivery) -> Self {
        Self { shared, delivery }
    }

    /// The node that launched it.
    pub fn source(&self) -> usize {
        self.delivery.source
    }

    /// The group that it was for; none if it was for this node alone.
    pub fn group(&self) -> Option<GroupId> {
        self.delivery.group
    }

    /// The first byte of the buffer. Who has the packet may write to all of the buffer.
    pub fn as_ptr(&self) -> *mut u8 {
        self.shared.arena.pointer(self.delivery.buffer)
    }

    /// Forgets the value: the buffer stays the program's until [`crate::Lci::free`].
    pub fn into_raw(self) -> *mut u8 {
        let pointer = self.as_ptr();
        let mut this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is never used again, nor dropped.
        unsafe { std::ptr::drop_in_place(&raw mut this.shared) };
        pointer
    }
}

impl Deref for Packet {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer is the program's until this value is dropped; the library only reads it, to pass it on.
        unsafe { self.shared.arena.bytes(self.delivery.buffer, self.delivery.length) }
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        self.shared.lock().engine.release(self.delivery.buffer);
    }
}
