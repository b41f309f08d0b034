//! The doorbells of a queue pair: registers that tell the card that there is work in a ring. Ringing one leaves an
//! emulated processor for microseconds, so it is rung only when the card asks for it.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use super::layout::PAGE;
use crate::mapping::Mapping;

/// Doorbells of one pair stand near each other; a card whose do not is not understood.
const LEN_MAX: u64 = 64 << 10;

/// The doorbells of the receive and the transmit ring.
pub(super) struct Doorbells {
    mapping: Mapping,
    offsets: [usize; 2],
    rung: u64,
}

impl Doorbells {
    /// Maps the doorbells that stand at these offsets.
    pub(super) fn map(registers: &OwnedFd, at: [u64; 2]) -> io::Result<Self> {
        let [first, last] = [at[0].min(at[1]), at[0].max(at[1])];
        let begin = first & !(PAGE as u64 - 1);
        if at.iter().any(|at| !at.is_multiple_of(2)) || last - begin > LEN_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let len = (last - begin + 2).next_multiple_of(PAGE as u64) as usize;
        Ok(Self {
            mapping: Mapping::shared(registers.as_fd(), begin, len)?,
            offsets: at.map(|at| (at - begin) as usize),
            rung: 0,
        })
    }

    /// Rings one.
    #[inline]
    pub(super) fn ring(&mut self, which: usize, queue: u16) {
        self.rung += 1;
        // SAFETY: inside the mapping and even (`map`); a device's register is written in one access.
        unsafe {
            let at = self.mapping.base().add(self.offsets[which]).cast::<u16>();
            at.as_ptr().write_volatile(queue.to_le());
        }
    }

    /// Returns how often doorbells were rung.
    #[cfg(test)]
    pub(super) const fn rung(&self) -> u64 {
        self.rung
    }
}
