//! Several copies at once: they are told to the card together, so that it is woken once for all of them.

use firmware::copy_engine;

use super::Engine;
use crate::{CopyError, Use, backend::Backend, limits::COPIES_MAX};

/// One copy of a list.
#[derive(Clone, Copy, Debug)]
pub struct ListedCopy {
    /// Where it goes.
    pub destination: *mut u8,
    /// Where it comes from.
    pub source: *const u8,
    /// Its length in bytes, at least 1.
    pub len: usize,
}

// SAFETY: an address alone, which is checked where it is used.
unsafe impl Send for ListedCopy {}

impl<B: Backend> Engine<B> {
    /// Copies out of receive buffers, and stores `value` in `variable` behind all of them: as [`Engine::icopy_k2u`] for all but the last
    /// and [`Engine::icopy_k2u_notif`] for that, but with one doorbell for all where the card asks for one, and with as many in a frame as
    /// it holds. So none may read what another one of the list writes.
    ///
    /// # Errors
    /// As [`Engine::icopy`], about any of them; nothing of the list moves then.
    pub fn icopy_k2u_list(&mut self, copies: &[ListedCopy], variable: *mut u64, value: u64) -> Result<(), CopyError> {
        self.alive()?;
        let last = copies.len().checked_sub(1).ok_or(copy_engine::CopyError::Empty)?;
        self.progress()?;
        let before = self.waiting.len();
        if before + copies.len() > COPIES_MAX {
            return Err(copy_engine::CopyError::QueueFull.into());
        }
        for (at, copy) in copies.iter().enumerate() {
            let notification = (at == last).then_some((variable, value));
            let bytes = (copy.destination, copy.source, copy.len);
            match self.checked(bytes, Use::Receive, notification) {
                Ok(mut copy) => {
                    copy.joins = at > 0;
                    self.waiting.push_back(copy);
                }
                Err(error) => {
                    self.waiting.truncate(before);
                    return Err(error);
                }
            }
        }
        for at in before..self.waiting.len() {
            self.accept(at);
        }
        self.post();
        Ok(())
    }
}
