//! The registers of a virtio device: those that all devices have, and those of network cards (virtio 1.2 sections
//! 4.1.4.3 and 5.1.4). Reading and writing them is behind a trait, so that a model of a device can answer.

use std::{ptr::NonNull, sync::Arc};

use crate::mapping::Mapping;

/// Access to a part of a device's registers. Offsets and widths are this module's, which fit the part.
pub(super) trait Registers: Send {
    /// Reads 1, 2 or 4 bytes.
    fn read(&self, offset: usize, width: usize) -> u32;
    /// Writes 1, 2 or 4 bytes.
    fn write(&self, offset: usize, width: usize, value: u32);
}

/// Registers behind a mapped base address register.
pub(super) struct MappedRegisters {
    mapping: Arc<Mapping>,
    /// Where the part begins in the mapping, and its length.
    offset: usize,
    len: usize,
}

impl MappedRegisters {
    /// Takes a part of a mapping of `mapped` bytes; `None` where it is not inside or not aligned.
    pub(super) fn new(mapping: &Arc<Mapping>, mapped: usize, offset: usize, len: usize) -> Option<Self> {
        let end = offset.checked_add(len)?;
        (end <= mapped && offset.is_multiple_of(8)).then(|| Self {
            mapping: Arc::clone(mapping),
            offset,
            len,
        })
    }

    fn pointer(&self, offset: usize, width: usize) -> NonNull<u8> {
        assert!(offset + width <= self.len && offset.is_multiple_of(width));
        // SAFETY: inside the part, as was just checked, which is inside the mapping (`new`).
        unsafe { self.mapping.base().add(self.offset + offset) }
    }
}

impl Registers for MappedRegisters {
    fn read(&self, offset: usize, width: usize) -> u32 {
        let at = self.pointer(offset, width).as_ptr();
        // SAFETY: mapped and aligned (`pointer`); a device's registers are read in one access each.
        unsafe {
            match width {
                1 => at.read_volatile().into(),
                2 => u16::from_le(at.cast::<u16>().read_volatile()).into(),
                _ => u32::from_le(at.cast::<u32>().read_volatile()),
            }
        }
    }

    fn write(&self, offset: usize, width: usize, value: u32) {
        let at = self.pointer(offset, width).as_ptr();
        // SAFETY: as for reading.
        unsafe {
            match width {
                1 => at.write_volatile(value as u8),
                2 => at.cast::<u16>().write_volatile((value as u16).to_le()),
                _ => at.cast::<u32>().write_volatile(value.to_le()),
            }
        }
    }
}

/// Bytes of the registers that all devices have.
pub(super) const COMMON_LEN: usize = 56;
/// Bytes of a network card's own registers up to the MTU.
pub(super) const NETWORK_LEN: usize = 12;

/// Bits of the status.
pub(super) mod status {
    pub(crate) const ACKNOWLEDGE: u8 = 1;
    pub(crate) const DRIVER: u8 = 2;
    pub(crate) const DRIVER_OK: u8 = 4;
    pub(crate) const FEATURES_OK: u8 = 8;
    pub(crate) const NEEDS_RESET: u8 = 64;
    pub(crate) const FAILED: u8 = 128;
}

/// What a queue is told at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueAddresses {
    pub(super) descriptors: u64,
    pub(super) available: u64,
    pub(super) used: u64,
}

/// The registers that all devices have.
pub(super) struct Common<R>(pub(super) R);

impl<R: Registers> Common<R> {
    pub(super) fn features(&self) -> u64 {
        let half = |number: u32| {
            self.0.write(0, 4, number);
            u64::from(self.0.read(4, 4))
        };
        half(0) | half(1) << 32
    }

    pub(super) fn accept(&self, features: u64) {
        for number in [0, 1] {
            self.0.write(8, 4, number);
            self.0.write(12, 4, (features >> (32 * number)) as u32);
        }
    }

    pub(super) fn queues(&self) -> u16 {
        self.0.read(18, 2) as u16
    }

    pub(super) fn status(&self) -> u8 {
        self.0.read(20, 1) as u8
    }

    pub(super) fn set_status(&self, status: u8) {
        self.0.write(20, 1, status.into());
    }

    /// Returns how many entries a queue may have; 0: it does not exist.
    pub(super) fn queue_size_max(&self, queue: u16) -> u16 {
        self.0.write(22, 2, queue.into());
        self.0.read(24, 2) as u16
    }

    /// Returns where a queue's parts are, and the number of its doorbell.
    pub(super) fn queue(&self, queue: u16) -> (QueueAddresses, u16) {
        self.0.write(22, 2, queue.into());
        let address = |at: usize| u64::from(self.0.read(at, 4)) | u64::from(self.0.read(at + 4, 4)) << 32;
        let addresses = QueueAddresses {
            descriptors: address(32),
            available: address(40),
            used: address(48),
        };
        (addresses, self.0.read(30, 2) as u16)
    }

    /// Starts a queue, and returns the number of its doorbell.
    pub(super) fn start_queue(&self, queue: u16, size: u16, addresses: QueueAddresses) -> u16 {
        self.0.write(22, 2, queue.into());
        self.0.write(24, 2, size.into());
        for (offset, address) in [
            (32, addresses.descriptors),
            (40, addresses.available),
            (48, addresses.used),
        ] {
            self.0.write(offset, 4, address as u32);
            self.0.write(offset + 4, 4, (address >> 32) as u32);
        }
        let doorbell = self.0.read(30, 2) as u16;
        self.0.write(28, 2, 1);
        doorbell
    }
}

/// A network card's own registers.
pub(super) struct Network<R>(pub(super) R);

impl<R: Registers> Network<R> {
    pub(super) fn mac(&self) -> ether::MacAddr {
        ether::MacAddr(std::array::from_fn(|at| self.0.read(at, 1) as u8))
    }

    pub(super) fn status(&self) -> u16 {
        self.0.read(6, 2) as u16
    }

    pub(super) fn queue_pairs(&self) -> u16 {
        self.0.read(8, 2) as u16
    }

    pub(super) fn mtu(&self) -> u16 {
        self.0.read(10, 2) as u16
    }
}
