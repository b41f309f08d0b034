//! Interrupts of a card that a program drives itself, by the line that every PCI device has. (Messages, MSI-X, come by one of the two
//! routes alone, and not on every QEMU.)
//!
//! The kernel masks the line when it delivers an interrupt, so a device that goes on asking stops nothing. The program takes the interrupt, makes
//! the device let go of the line, and has it unmasked; what the device asked for meanwhile comes then.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
};

use super::{
    device::{COMMAND, INTX_DISABLE},
    layout::RingPlace,
    memory::SharedMemory,
    registers::{MappedRegisters, Registers},
    ring::Ring,
    vfio,
};
use crate::NetifError;

/// How the line is unmasked.
pub(super) enum Unmask {
    /// In the PCI configuration.
    Configuration(File),
    /// By a request to the device.
    Vfio(OwnedFd),
}

/// The interrupts of a card for frames that arrive at one of its pairs.
pub struct Interrupts {
    event: OwnedFd,
    unmask: Unmask,
    reasons: MappedRegisters,
    memory: SharedMemory,
    ring: RingPlace,
}

impl Interrupts {
    pub(super) fn new(
        (event, unmask): (OwnedFd, Unmask),
        reasons: MappedRegisters,
        memory: SharedMemory,
        ring: RingPlace,
    ) -> Self {
        Self {
            event,
            unmask,
            reasons,
            memory,
            ring,
        }
    }

    /// Has the card interrupt when frames arrive, or no more; it does not at first. What arrived before is to be looked at.
    pub fn want(&self, wanted: bool) {
        Ring::want_interrupts(&self.memory, self.ring, wanted);
    }

    /// Takes an interrupt, if there is one, so that the next one comes. What the card has done is to be looked at after this.
    ///
    /// # Errors
    /// [`NetifError::Io`]: no interrupt comes any more.
    pub fn take(&self) -> Result<(), NetifError> {
        self.try_take().map_err(NetifError::io("take an interrupt of the card"))
    }

    pub(super) fn try_take(&self) -> io::Result<()> {
        // uio counts in 4 bytes, and an event descriptor in 8; each tells no other number of bytes.
        let mut count = [0; 8];
        let len = match &self.unmask {
            Unmask::Configuration(_) => 4,
            Unmask::Vfio(_) => 8,
        };
        match rustix::io::read(&self.event, &mut count[..len]) {
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Reading the reasons makes the device let go of the line.
        self.reasons.read(0, 1);
        match &self.unmask {
            Unmask::Configuration(configuration) => {
                let mut command = [0; 2];
                configuration.read_exact_at(&mut command, COMMAND)?;
                let command = u16::from_le_bytes(command) & !INTX_DISABLE;
                configuration.write_all_at(&command.to_le_bytes(), COMMAND)
            }
            Unmask::Vfio(device) => vfio::unmask(device.as_fd()),
        }
    }
}

impl AsFd for Interrupts {
    /// Readable when there is an interrupt.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
