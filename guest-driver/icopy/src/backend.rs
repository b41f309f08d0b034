//! What the engine needs of a card; tests have one of their own.

use std::{io, ptr::NonNull};

use ether::MacAddr;
use netif::virtio::{LoopCard, LoopFrame, VirtioError};

pub use netif::virtio::Reaped;

/// A card that is wired to itself.
pub trait Backend {
    /// What keeps memory known to the card.
    type Hold;

    /// Whether this is the process that opened the card, and not a child that it forked.
    fn is_own(&self) -> bool {
        true
    }
    /// Returns the card's Ethernet address.
    fn mac(&self) -> MacAddr;
    /// Returns how many bytes a frame has behind its header at most.
    fn frame_data_max(&self) -> usize;
    /// Keeps whole pages where they are, and returns the card's addresses of them.
    ///
    /// # Errors
    /// The system's.
    fn pin(&mut self, base: NonNull<u8>, len: usize) -> io::Result<(Vec<u64>, Self::Hold)>;
    /// Lets memory go.
    ///
    /// # Errors
    /// The system's.
    fn unpin(&mut self, hold: Self::Hold) -> io::Result<()>;
    /// Returns which pages of the machine are there now; `None` if that cannot be known.
    fn physical_pages(&self, base: NonNull<u8>, len: usize) -> Option<Vec<u64>>;
    /// Returns how many frames can be posted now.
    fn room(&self) -> u16;
    /// Returns the index of the chains of the next frame.
    fn next_number(&self) -> u16;
    /// Gives the card a frame, with the next [`Backend::publish`].
    ///
    /// # Safety
    /// As [`LoopCard::post`].
    unsafe fn post(&mut self, frame: &LoopFrame<'_>);
    /// Lets the card begin.
    fn publish(&mut self);
    /// Tells the card again that there is work.
    fn remind(&mut self);
    /// Sees what the card is done with.
    ///
    /// # Errors
    /// [`VirtioError::Broken`].
    fn reap(&mut self) -> Result<Reaped, VirtioError>;
    /// Stops the card: afterwards it touches no memory.
    fn stop(&mut self);
}

impl Backend for LoopCard {
    type Hold = netif::virtio::Hold;

    fn is_own(&self) -> bool {
        self.is_own()
    }

    fn mac(&self) -> MacAddr {
        self.facts().mac
    }

    fn frame_data_max(&self) -> usize {
        self.frame_data_max()
    }

    fn pin(&mut self, base: NonNull<u8>, len: usize) -> io::Result<(Vec<u64>, Self::Hold)> {
        let pinned = self.pin(base, len)?;
        Ok((pinned.pages, pinned.hold))
    }

    fn unpin(&mut self, hold: Self::Hold) -> io::Result<()> {
        self.unpin(hold)
    }

    fn physical_pages(&self, base: NonNull<u8>, len: usize) -> Option<Vec<u64>> {
        self.physical_pages(base, len)
    }

    fn room(&self) -> u16 {
        self.room()
    }

    fn next_number(&self) -> u16 {
        self.next_number()
    }

    unsafe fn post(&mut self, frame: &LoopFrame<'_>) {
        // SAFETY: this function's contract.
        unsafe { self.post(frame) };
    }

    fn publish(&mut self) {
        self.publish();
    }

    fn remind(&mut self) {
        self.remind();
    }

    fn reap(&mut self) -> Result<Reaped, VirtioError> {
        self.reap()
    }

    fn stop(&mut self) {
        self.stop();
    }
}
