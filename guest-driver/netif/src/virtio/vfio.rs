//! Route B: a card that is bound to `vfio-pci`, behind an IOMMU. The card reaches only memory that was mapped for it, so
//! that any user who has the group's device may drive it. Its registers are mapped through the device's descriptor.

use std::{
    ffi::CString,
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::{Path, PathBuf},
    ptr::NonNull,
    thread,
    time::{Duration, Instant},
};

use libc::{c_int, c_ulong};
use rustix::event::{EventfdFlags, eventfd};

use super::{
    CardAddress, Holder, Route, VirtioError,
    capabilities::Windows,
    device::{self, COMMAND, Device, MASTER, MEMORY, Pin},
    interrupts::Unmask,
    layout::PAGE,
    memory::{BusAddresses, SharedMemory},
};

/// The file that makes containers: address spaces for devices.
const CONTAINER: &str = "/dev/vfio/vfio";

/// Requests of linux/vfio.h: `_IO(';', 100 + n)`.
const fn request(number: c_ulong) -> c_ulong {
    (b';' as c_ulong) << 8 | (100 + number)
}

const GET_API_VERSION: c_ulong = request(0);
const CHECK_EXTENSION: c_ulong = request(1);
const SET_IOMMU: c_ulong = request(2);
const GROUP_GET_STATUS: c_ulong = request(3);
const GROUP_SET_CONTAINER: c_ulong = request(4);
const GROUP_GET_DEVICE_FD: c_ulong = request(6);
const DEVICE_GET_REGION_INFO: c_ulong = request(8);
const DEVICE_SET_IRQS: c_ulong = request(10);
const IOMMU_MAP_DMA: c_ulong = request(13);
const IOMMU_UNMAP_DMA: c_ulong = request(14);

const API_VERSION: c_int = 0;
const TYPE1V2: c_ulong = 3;
const GROUP_IS_VIABLE: u32 = 1;
const MAP_READ: u32 = 1;
const MAP_WRITE: u32 = 2;
/// The region with the configuration space; those of base address registers have their numbers.
const CONFIGURATION_REGION: u32 = 7;
/// The interrupts of the line, and what is done with them: an event descriptor is named, or nothing.
const LINE: u32 = 0;
const NAME_EVENT: u32 = 1 << 2 | 1 << 5;
const UNMASK: u32 = 1 << 0 | 1 << 4;

const CONFIGURATION_LEN: usize = 256;

/// The first address that memory gets for a card: behind those of old devices, far before those of interrupts.
const FIRST_ADDRESS: u64 = 0x1000_0000;

/// A group that another process has is waited for this long: one that looks at the card has it for a millisecond, and
/// one that was killed until the kernel has taken down what it mapped.
const RELEASE_LIMIT: Duration = Duration::from_secs(1);
/// The pause between two attempts in that time: no descriptor becomes readable when a group is released.
const RELEASE_PAUSE: Duration = Duration::from_millis(5);

/// `struct vfio_group_status`.
#[repr(C)]
struct GroupStatus {
    len: u32,
    flags: u32,
}

/// `struct vfio_region_info`.
#[repr(C)]
struct RegionInfo {
    len: u32,
    flags: u32,
    index: u32,
    capability: u32,
    size: u64,
    offset: u64,
}

/// `struct vfio_irq_set` for the line, with its event descriptor.
#[repr(C)]
struct Line {
    len: u32,
    flags: u32,
    index: u32,
    start: u32,
    count: u32,
    event: c_int,
}

/// `struct vfio_iommu_type1_dma_map`.
#[repr(C)]
struct Map {
    len: u32,
    flags: u32,
    process_address: u64,
    card_address: u64,
    size: u64,
}

/// `struct vfio_iommu_type1_dma_unmap`.
#[repr(C)]
struct Unmap {
    len: u32,
    flags: u32,
    card_address: u64,
    size: u64,
}

/// A card with `vfio-pci`.
pub(super) struct Vfio {
    // The device goes first, then its group, then the address space.
    device: File,
    group: OwnedFd,
    container: OwnedFd,
    path: PathBuf,
    windows: Windows,
    configuration_offset: u64,
    registers_offset: u64,
    registers_len: usize,
    next_address: u64,
}

/// Makes a request with a number or a pointer; fails as the system says.
///
/// # Safety
/// `argument` is what the request takes: where that is a pointer, to a structure of its kind that outlives the call.
unsafe fn ioctl(fd: BorrowedFd<'_>, request: c_ulong, argument: c_ulong) -> io::Result<c_int> {
    // SAFETY: the descriptor is open; the argument is this function's contract.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request as _, argument) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

impl Vfio {
    /// Opens a card, to drive it alone: its group has one owner. Waits for another one that is about to release it, for a
    /// second, or until the caller needs the card no more.
    pub(super) fn open_patiently(address: CardAddress, is_needless: impl Fn() -> bool) -> Result<Self, VirtioError> {
        let begin = Instant::now();
        loop {
            match Self::open(address) {
                Err(VirtioError::InUse { .. }) if begin.elapsed() < RELEASE_LIMIT && !is_needless() => {
                    thread::sleep(RELEASE_PAUSE);
                }
                result => return result,
            }
        }
    }

    fn open(address: CardAddress) -> Result<Self, VirtioError> {
        let fail = |what| VirtioError::io(address, what);
        let unusable = |what| VirtioError::Unusable { address, what };
        let path = device::group_file(address).map_err(|_| unusable("it is behind no IOMMU, which vfio needs"))?;
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let group: OwnedFd = match options.open(&path) {
            Ok(group) => group.into(),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                let by = Holder::of(&path);
                return Err(VirtioError::InUse { address, by });
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(VirtioError::NotOwner { address, path });
            }
            Err(error) => return Err(fail("open the group")(error)),
        };
        let container: OwnedFd = options.open(CONTAINER).map_err(fail("open the container"))?.into();
        let device = Self::device(address, &container, &group)?;
        let region = |index| region(device.as_fd(), index).map_err(fail("find the registers"));
        let configuration = region(CONFIGURATION_REGION)?;
        let mut space = vec![0; CONFIGURATION_LEN];
        device
            .read_exact_at(&mut space, configuration.offset)
            .map_err(fail("read the PCI configuration"))?;
        let windows = device::windows(address, &space)?;
        let registers = region(windows.common.bar.into())?;
        Ok(Self {
            device,
            group,
            container,
            path,
            windows,
            configuration_offset: configuration.offset,
            registers_offset: registers.offset,
            registers_len: usize::try_from(registers.size).unwrap_or(0),
            next_address: FIRST_ADDRESS,
        })
    }

    /// Gives the group an address space, and opens the device.
    fn device(address: CardAddress, container: &OwnedFd, group: &OwnedFd) -> Result<File, VirtioError> {
        let fail = |what| VirtioError::io(address, what);
        let unusable = |what| VirtioError::Unusable { address, what };
        let mut status = GroupStatus {
            len: size_of::<GroupStatus>() as u32,
            flags: 0,
        };
        // SAFETY: the first two take nothing and a number, the third a structure of this kind.
        let (version, has_type, told) = unsafe {
            (
                ioctl(container.as_fd(), GET_API_VERSION, 0),
                ioctl(container.as_fd(), CHECK_EXTENSION, TYPE1V2),
                ioctl(group.as_fd(), GROUP_GET_STATUS, (&raw mut status) as c_ulong),
            )
        };
        if version.map_err(fail("ask for the version of vfio"))? != API_VERSION {
            return Err(unusable("the kernel has another version of vfio"));
        }
        if has_type.map_err(fail("ask for the kind of IOMMU"))? == 0 {
            return Err(unusable("the module vfio_iommu_type1 is not loaded"));
        }
        told.map_err(fail("ask for the state of the group"))?;
        if status.flags & GROUP_IS_VIABLE == 0 {
            return Err(unusable(
                "other devices of its IOMMU group are with the kernel's drivers",
            ));
        }
        let name = CString::new(address.to_string()).unwrap_or_default();
        let number = container.as_raw_fd();
        // SAFETY: a pointer to a number, a number, and a text that ends with a zero; all outlive the calls.
        let device = unsafe {
            ioctl(group.as_fd(), GROUP_SET_CONTAINER, (&raw const number) as c_ulong)
                .and_then(|_| ioctl(container.as_fd(), SET_IOMMU, TYPE1V2))
                .and_then(|_| ioctl(group.as_fd(), GROUP_GET_DEVICE_FD, name.as_ptr() as c_ulong))
                .map_err(fail("take the IOMMU"))?
        };
        // SAFETY: the call above made this descriptor, and it is in no other hands.
        Ok(File::from(unsafe { OwnedFd::from_raw_fd(device) }))
    }
}

fn region(device: BorrowedFd<'_>, index: u32) -> io::Result<RegionInfo> {
    let mut info = RegionInfo {
        len: size_of::<RegionInfo>() as u32,
        flags: 0,
        index,
        capability: 0,
        size: 0,
        offset: 0,
    };
    // SAFETY: a structure of the kind that the request takes, with its length.
    unsafe { ioctl(device, DEVICE_GET_REGION_INFO, (&raw mut info) as c_ulong)? };
    Ok(info)
}

/// Sets the interrupts of a device's line.
fn set_line(device: BorrowedFd<'_>, flags: u32, event: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let line = Line {
        len: (size_of::<Line>() - if event.is_none() { size_of::<c_int>() } else { 0 }) as u32,
        flags,
        index: LINE,
        start: 0,
        count: 1,
        event: event.map_or(-1, |event| event.as_raw_fd()),
    };
    // SAFETY: a structure of the kind that the request takes, with its length.
    unsafe { ioctl(device, DEVICE_SET_IRQS, (&raw const line) as c_ulong)? };
    Ok(())
}

/// Unmasks a device's line, which the kernel masks at each interrupt.
pub(super) fn unmask(device: BorrowedFd<'_>) -> io::Result<()> {
    set_line(device, UNMASK, None)
}

impl Device for Vfio {
    fn route(&self) -> Route {
        Route::Vfio
    }

    fn windows(&self) -> &Windows {
        &self.windows
    }

    fn registers(&self) -> (BorrowedFd<'_>, u64, usize) {
        (self.device.as_fd(), self.registers_offset, self.registers_len)
    }

    fn enable(&self) -> io::Result<()> {
        let at = self.configuration_offset + COMMAND;
        let mut command = [0; 2];
        self.device.read_exact_at(&mut command, at)?;
        let command = u16::from_le_bytes(command) | MEMORY | MASTER;
        self.device.write_all_at(&command.to_le_bytes(), at)
    }

    fn pin(&mut self, base: NonNull<u8>, len: usize) -> io::Result<(BusAddresses, Pin)> {
        let first = self.next_address;
        let map = Map {
            len: size_of::<Map>() as u32,
            flags: MAP_READ | MAP_WRITE,
            process_address: base.as_ptr() as u64,
            card_address: first,
            size: len as u64,
        };
        // SAFETY: a structure of the kind that the request takes. The kernel pins the memory until it is unmapped for the card, or the
        // container closed.
        unsafe { ioctl(self.container.as_fd(), IOMMU_MAP_DMA, (&raw const map) as c_ulong)? };
        self.next_address += len as u64;
        let pages = (0..len / PAGE).map(|page| first + (page * PAGE) as u64);
        let pin = Pin::Mapped {
            address: first,
            len: len as u64,
        };
        Ok((BusAddresses::of_pages(pages.collect()), pin))
    }

    fn unpin(&mut self, pin: Pin) -> io::Result<()> {
        let Pin::Mapped { address, len } = pin else {
            return Ok(());
        };
        let mut unmap = Unmap {
            len: size_of::<Unmap>() as u32,
            flags: 0,
            card_address: address,
            size: len,
        };
        // SAFETY: a structure of the kind that the request takes, into which the kernel writes how much it unmapped.
        unsafe { ioctl(self.container.as_fd(), IOMMU_UNMAP_DMA, (&raw mut unmap) as c_ulong)? };
        Ok(())
    }

    fn attach(&mut self, memory: &SharedMemory) -> io::Result<BusAddresses> {
        // It stays mapped at least until the card is reset.
        Ok(self.pin(memory.base(), memory.len())?.0)
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn adopt(&mut self, _open: OwnedFd) {
        // A group has one owner, so a second one never gets here.
    }

    fn interrupts(&self) -> io::Result<(OwnedFd, Unmask)> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        set_line(self.device.as_fd(), NAME_EVENT, Some(event.as_fd()))?;
        Ok((event, Unmask::Vfio(self.device.try_clone()?.into())))
    }

    fn scatters(&self) -> bool {
        false
    }

    fn keep(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.group.as_fd(), self.container.as_fd()]
    }
}
