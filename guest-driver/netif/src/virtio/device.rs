//! How a device is reached, and how memory gets the addresses by which the device knows it: one implementation for each
//! route (`uio`, `vfio`).

use std::{
    fs, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    ptr::NonNull,
    sync::Arc,
};

use rustix::fs::{Access, access};

use super::{
    CardAddress, VirtioError,
    capabilities::{self, Window, Windows},
    interrupts::Unmask,
    memory::{BusAddresses, SharedMemory},
    registers::MappedRegisters,
};
use crate::mapping::Mapping;

/// The command register of a PCI configuration, and its bits for memory, for access to memory by the device, and for silence on the
/// interrupt line.
pub(super) const COMMAND: u64 = 4;
pub(super) const MEMORY: u16 = 1 << 1;
pub(super) const MASTER: u16 = 1 << 2;
pub(super) const INTX_DISABLE: u16 = 1 << 10;

/// PCI's number of the company behind virtio.
const VENDOR: u32 = 0x1af4;
/// Network cards of virtio: those that old drivers know, too, and those of virtio 1.0 alone.
const DEVICES: [u32; 2] = [0x1000, 0x1041];

/// The routes to a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The kernel's `uio_pci_generic`: physical addresses, for root alone.
    Uio,
    /// The kernel's `vfio-pci`: addresses of an IOMMU, for the user who has the group.
    Vfio,
}

impl Route {
    const ALL: [Self; 2] = [Self::Uio, Self::Vfio];

    /// Returns the name of the kernel's driver that gives cards to programs on this route.
    pub const fn driver(self) -> &'static str {
        match self {
            Self::Uio => "uio_pci_generic",
            Self::Vfio => "vfio-pci",
        }
    }

    /// Finds the route by the driver that a card is bound to.
    pub fn of_driver(driver: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|route| route.driver() == driver)
    }
}

/// What keeps memory known to a device.
pub(super) enum Pin {
    /// As long as this socket is open.
    Socket { _open: OwnedFd },
    /// As long as these addresses are mapped for the device.
    Mapped {
        /// The first address for the device.
        address: u64,
        /// Bytes.
        len: u64,
    },
}

/// A device that this process owns.
pub(super) trait Device: Send {
    fn route(&self) -> Route;
    /// Returns where the device has its registers.
    fn windows(&self) -> &Windows;
    /// Returns what the registers are mapped with, from where on, and how many bytes.
    fn registers(&self) -> (BorrowedFd<'_>, u64, usize);
    /// Lets the device read and write memory.
    fn enable(&self) -> io::Result<()>;
    /// Keeps whole pages of this process where they are and makes them known to the device, until [`Device::unpin`].
    fn pin(&mut self, base: NonNull<u8>, len: usize) -> io::Result<(BusAddresses, Pin)>;
    /// Takes back what [`Device::pin`] did.
    fn unpin(&mut self, pin: Pin) -> io::Result<()>;
    /// Makes the memory of queue pairs known to the device, as long as it is open.
    fn attach(&mut self, memory: &SharedMemory) -> io::Result<BusAddresses>;
    /// Returns the path of what must stay open while the device goes on.
    fn path(&self) -> &Path;
    /// Goes on with what another process had open, in place of the own one.
    fn adopt(&mut self, open: OwnedFd);
    /// Has the device's interrupt line make a descriptor readable; returns it, and how the line is unmasked.
    fn interrupts(&self) -> io::Result<(OwnedFd, Unmask)>;
    /// Whether pages that are neighbours here may be anywhere for the device.
    fn scatters(&self) -> bool;
    /// Returns what must stay open while the device uses the memory.
    fn keep(&self) -> Vec<BorrowedFd<'_>>;
}

/// Checks that the kernel describes a virtio network card in this folder.
///
/// # Errors
/// [`VirtioError::NoSuchDevice`], [`VirtioError::NotACard`].
pub fn check_kind(address: CardAddress, folder: &Path) -> Result<(), VirtioError> {
    if !folder.exists() {
        return Err(VirtioError::NoSuchDevice { address });
    }
    let number = |name: &str| {
        let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
        u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).unwrap_or(0)
    };
    let (vendor, device) = (number("vendor"), number("device"));
    if vendor != VENDOR || !DEVICES.contains(&device) {
        return Err(VirtioError::NotACard {
            address,
            vendor,
            device,
        });
    }
    Ok(())
}

/// Returns the driver that a card is bound to.
///
/// # Errors
/// As [`check_kind`].
pub fn driver_of(address: CardAddress) -> Result<Option<String>, VirtioError> {
    let folder = address.folder();
    check_kind(address, &folder)?;
    let driver = fs::read_link(folder.join("driver")).ok();
    Ok(driver.and_then(|link| Some(link.file_name()?.to_str()?.to_owned())))
}

/// Whether this process may drive a card without being root: behind an IOMMU, with a group of its own.
pub fn may_own(address: CardAddress) -> bool {
    route_of(address).is_ok_and(|route| route == Route::Vfio)
        && group_file(address).is_ok_and(|path| access(path, Access::READ_OK | Access::WRITE_OK).is_ok())
}

/// Returns the file that stands for the IOMMU group of a card.
pub(super) fn group_file(address: CardAddress) -> io::Result<PathBuf> {
    let group = fs::canonicalize(address.folder().join("iommu_group"))?;
    Ok(Path::new("/dev/vfio").join(group.file_name().unwrap_or_default()))
}

/// Returns the route to a card.
///
/// # Errors
/// [`VirtioError::NotBound`]; as [`driver_of`].
pub fn route_of(address: CardAddress) -> Result<Route, VirtioError> {
    let driver = driver_of(address)?;
    let route = driver.as_deref().and_then(Route::of_driver);
    route.ok_or(VirtioError::NotBound { address, driver })
}

/// The registers behind a base address register.
pub(super) struct Bar {
    mapping: Arc<Mapping>,
    len: usize,
}

impl Bar {
    pub(super) fn new(mapping: Mapping, len: usize) -> Self {
        Self {
            mapping: Arc::new(mapping),
            len,
        }
    }

    /// Returns the registers of a window of at least `needed` bytes.
    pub(super) fn window(&self, window: Window, needed: usize) -> Option<MappedRegisters> {
        if (window.len as usize) < needed {
            return None;
        }
        MappedRegisters::new(&self.mapping, self.len, window.offset as usize, window.len as usize)
    }
}

/// Finds the windows in a configuration space. All of them must be behind one base address register.
pub(super) fn windows(address: CardAddress, space: &[u8]) -> Result<Windows, VirtioError> {
    let unusable = |what| VirtioError::Unusable { address, what };
    let windows = capabilities::find(space).map_err(unusable)?;
    if windows.common.bar != windows.device.bar || windows.common.bar != windows.notify.bar {
        return Err(unusable("its registers stand in several places"));
    }
    Ok(windows)
}

/// Duplicates descriptors, for another process.
pub(super) fn duplicate(fds: &[BorrowedFd<'_>]) -> io::Result<Vec<OwnedFd>> {
    fds.iter().map(|fd| fd.as_fd().try_clone_to_owned()).collect()
}
