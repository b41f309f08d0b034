//! The buffers in which a card keeps multicast packets until the credits of their next receivers arrive.
//!
//! The firmware says which buffer holds which packet for how long; the bytes are here.

use firmware::multicast::BufferId;

use crate::dataplane::frames::pool::Pooled;

/// The buffers by number; they are made when the first is used.
#[derive(Default)]
pub struct ForwardingBuffers(Vec<Option<Pooled>>);

impl ForwardingBuffers {
    /// Puts a packet into `buffer`, one of `total`; none if there was no memory for it.
    pub fn put(&mut self, buffer: BufferId, packet: Option<Pooled>, total: usize) {
        if self.0.len() <= buffer.index() {
            self.0.resize_with(total, || None);
        }
        self.0[buffer.index()] = packet;
    }

    /// The packet in `buffer`.
    pub fn get(&self, buffer: BufferId) -> Option<&Pooled> {
        self.0.get(buffer.index())?.as_ref()
    }

    /// Empties `buffer`.
    pub fn take(&mut self, buffer: BufferId) -> Option<Pooled> {
        self.0.get_mut(buffer.index())?.take()
    }
}
