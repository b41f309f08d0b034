//! Route A: a card that is bound to `uio_pci_generic`, without an IOMMU. Its registers are mapped through sysfs, and it
//! knows memory by physical addresses. Only root can do that, and a process that has a ring of the card reaches all memory.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{FileExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    ptr::NonNull,
};

use libc::xdp_umem_reg;
use rustix::{
    fs::{FlockOperation, flock},
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
};

use super::{
    CardAddress, Holder, Route, VirtioError,
    capabilities::Windows,
    device::{self, Bar, COMMAND, Device, INTX_DISABLE, MASTER, MEMORY, Pin},
    interrupts::Unmask,
    layout::PAGE,
    memory::{BusAddresses, SharedMemory},
};
use crate::{mapping::Mapping, socket_options::set_option_of};

/// Bytes of a configuration space with all capabilities of PCI.
const CONFIGURATION_LEN: usize = 256;
/// Bytes of it that everybody may read.
const PUBLIC_LEN: usize = 64;
/// In an entry of the kernel's page map: the page is there, and its number.
const PRESENT: u64 = 1 << 63;
const NUMBER: u64 = (1 << 55) - 1;

/// A card with `uio_pci_generic`.
pub(super) struct Uio {
    /// Locked by the process that drives the card.
    configuration: File,
    /// As long as it is open in some process the device reaches memory; the kernel ends that with the last one.
    uio: OwnedFd,
    path: PathBuf,
    /// What the kernel says of the device.
    folder: PathBuf,
    windows: Windows,
    registers: File,
    registers_len: usize,
    /// Sockets that keep memory where it is, and what else must stay open.
    pins: Vec<OwnedFd>,
}

impl Uio {
    /// Opens a card, to drive it alone.
    pub(super) fn open(address: CardAddress) -> Result<Self, VirtioError> {
        let configuration = OpenOptions::new()
            .read(true)
            .write(true)
            .open(address.folder().join("config"))
            .map_err(VirtioError::io(address, "open the PCI configuration"))?;
        match flock(&configuration, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let by = Holder::of(&address.folder().join("config"));
                return Err(VirtioError::InUse { address, by });
            }
            Err(error) => return Err(VirtioError::io(address, "lock the PCI configuration")(error)),
        }
        let (uio, path) = open_uio(address).map_err(VirtioError::io(address, "open the uio device"))?;
        let windows = read_windows(address, &configuration)?;
        let (registers, registers_len) = open_registers(address, windows.common.bar, true)?;
        Ok(Self {
            configuration,
            uio,
            path,
            folder: address.folder(),
            windows,
            registers,
            registers_len,
            pins: Vec::new(),
        })
    }
}

fn open_uio(address: CardAddress) -> io::Result<(OwnedFd, PathBuf)> {
    let mut entries = fs::read_dir(address.folder().join("uio"))?;
    let entry = entries.next().ok_or(io::ErrorKind::NotFound)??;
    let path = PathBuf::from("/dev").join(entry.file_name());
    let mut options = OpenOptions::new();
    let uio = options
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&path)?;
    Ok((uio.into(), path))
}

fn read_windows(address: CardAddress, configuration: &File) -> Result<Windows, VirtioError> {
    let mut space = vec![0; CONFIGURATION_LEN];
    let len = configuration
        .read_at(&mut space, 0)
        .map_err(VirtioError::io(address, "read the PCI configuration"))?;
    if len <= PUBLIC_LEN {
        return Err(VirtioError::NoPrivilege { address });
    }
    device::windows(address, &space[..len])
}

fn open_registers(address: CardAddress, bar: u8, write: bool) -> Result<(File, usize), VirtioError> {
    let open = || -> io::Result<_> {
        let path = address.folder().join(format!("resource{bar}"));
        let file = OpenOptions::new().read(true).write(write).open(path)?;
        let len = file.metadata()?.len() as usize;
        Ok((file, len))
    };
    open().map_err(VirtioError::io(address, "open the registers"))
}

/// Maps the registers of a card that another process may be driving, to read them.
pub(super) fn look_at(address: CardAddress) -> Result<(Windows, Bar), VirtioError> {
    let configuration =
        File::open(address.folder().join("config")).map_err(VirtioError::io(address, "open the PCI configuration"))?;
    let windows = read_windows(address, &configuration)?;
    let (registers, len) = open_registers(address, windows.common.bar, false)?;
    let mapping = Mapping::readable(registers.as_fd(), len).map_err(VirtioError::io(address, "map the registers"))?;
    Ok((windows, Bar::new(mapping, len)))
}

/// The command word of a card that may use memory and the interrupt line. The last program may have left the line masked. QEMU
/// looks at that when the driver starts the rings: it then throws the card's interrupts away, until the rings are started again.
fn enabled(command: u16) -> u16 {
    (command | MEMORY | MASTER) & !INTX_DISABLE
}

impl Device for Uio {
    fn route(&self) -> Route {
        Route::Uio
    }

    fn windows(&self) -> &Windows {
        &self.windows
    }

    fn registers(&self) -> (BorrowedFd<'_>, u64, usize) {
        (self.registers.as_fd(), 0, self.registers_len)
    }

    fn enable(&self) -> io::Result<()> {
        let mut command = [0; 2];
        self.configuration.read_exact_at(&mut command, COMMAND)?;
        let command = enabled(u16::from_le_bytes(command));
        self.configuration.write_all_at(&command.to_le_bytes(), COMMAND)
    }

    fn pin(&mut self, base: NonNull<u8>, len: usize) -> io::Result<(BusAddresses, Pin)> {
        let socket = pin(base, len)?;
        let pages = physical(base, len)?;
        Ok((BusAddresses::of_pages(pages), Pin::Socket { _open: socket }))
    }

    fn unpin(&mut self, pin: Pin) -> io::Result<()> {
        drop(pin);
        Ok(())
    }

    fn attach(&mut self, memory: &SharedMemory) -> io::Result<BusAddresses> {
        self.pins.push(pin(memory.base(), memory.len())?);
        physical(memory.base(), memory.len()).map(BusAddresses::of_pages)
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn adopt(&mut self, open: OwnedFd) {
        // The kernel stops the device whenever one descriptor of it is closed for good: the own one stays open, too.
        self.pins.push(std::mem::replace(&mut self.uio, open));
    }

    fn interrupts(&self) -> io::Result<(OwnedFd, Unmask)> {
        let line = fs::read_to_string(self.folder.join("irq"))?;
        if line.trim().parse::<u32>().unwrap_or(0) == 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let configuration = self.configuration.try_clone()?;
        Ok((self.uio.try_clone()?, Unmask::Configuration(configuration)))
    }

    fn scatters(&self) -> bool {
        true
    }

    fn keep(&self) -> Vec<BorrowedFd<'_>> {
        let pins = self.pins.iter().map(AsFd::as_fd);
        [self.uio.as_fd()].into_iter().chain(pins).collect()
    }
}

/// Keeps the pages of memory where they are, as long as the descriptor that comes back is open anywhere. Locked memory
/// (`mlock`) stays present, but the kernel still moves its pages when it looks for contiguous memory; pages that are
/// registered for AF_XDP are pinned.
fn pin(base: NonNull<u8>, len: usize) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    // SAFETY: plain data for which all zeros are valid.
    let mut register: xdp_umem_reg = unsafe { std::mem::zeroed() };
    register.addr = base.as_ptr() as u64;
    register.len = len as u64;
    register.chunk_size = PAGE as u32;
    set_option_of(socket.as_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, &register)?;
    Ok(socket)
}

/// Returns the physical addresses of whole pages of this process.
fn physical(base: NonNull<u8>, len: usize) -> io::Result<Vec<u64>> {
    physical_of(&page_map()?, base, len)
}

/// Opens the map of this process's pages.
pub(super) fn page_map() -> io::Result<File> {
    File::open("/proc/self/pagemap")
}

/// Returns the physical addresses of whole pages of the process that opened the map.
pub(super) fn physical_of(map: &File, base: NonNull<u8>, len: usize) -> io::Result<Vec<u64>> {
    let first = base.as_ptr() as u64 / PAGE as u64;
    let mut entries = vec![0; len / PAGE * 8];
    map.read_exact_at(&mut entries, first * 8)?;
    let entries = entries
        .as_chunks::<8>()
        .0
        .iter()
        .map(|bytes| u64::from_ne_bytes(*bytes));
    entries
        .map(|entry| match entry & NUMBER {
            // Without the privilege the kernel says 0.
            number if entry & PRESENT != 0 && number != 0 => Ok(number * PAGE as u64),
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_bv8_a_card_is_started_with_its_interrupt_line_unmasked_whatever_the_last_program_left() {
        for left in [0, INTX_DISABLE, 0xffff] {
            let command = enabled(left);
            assert_eq!(command & INTX_DISABLE, 0);
            assert_eq!(command & (MEMORY | MASTER), MEMORY | MASTER);
            assert_eq!(
                command | INTX_DISABLE | MEMORY | MASTER,
                left | INTX_DISABLE | MEMORY | MASTER
            );
        }
    }
}
