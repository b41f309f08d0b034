//! Name, index, address, MTU and state of a network interface, asked of the kernel without any privilege.

use std::{
    ffi::CStr,
    fs, io,
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
};

use ether::MacAddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::{
    NetifError, egress,
    virtio::{self, CardAddress, CardFacts},
};

/// Asks for [`DriverInfo`] (linux/ethtool.h).
const ETHTOOL_GDRVINFO: u32 = 3;

/// The kernel's `struct ethtool_drvinfo`, of which only the name is of interest.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    /// Versions, the place on its bus, lengths of tables.
    _rest: [u8; 160],
}

/// Returns the folder in which owners of cards publish what other programs cannot see: that of `omxd`.
fn published_in() -> PathBuf {
    let named = std::env::var_os("OMX_RUN_DIR").filter(|path| !path.is_empty());
    named.map_or_else(|| PathBuf::from("/run/omx"), PathBuf::from)
}

/// An Ethernet interface as it is at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number in its network namespace; stays when it is renamed.
    pub index: i32,
    /// Its address.
    pub mac: MacAddr,
    /// Longest payload of a frame in bytes.
    pub mtu: usize,
    /// Whether it is switched on.
    pub up: bool,
    /// Whether it is the loopback interface.
    pub loopback: bool,
}

impl Interface {
    /// Looks `name` up; it must exist and carry Ethernet frames. A card that programs drive themselves is named by its
    /// place, as in `virtio:0000:00:04.0`.
    ///
    /// # Errors
    /// [`NetifError::NoSuchInterface`], [`NetifError::NotEthernet`], [`NetifError::Virtio`], [`NetifError::Io`].
    pub fn find(name: &str) -> Result<Self, NetifError> {
        if let Some(card) = CardAddress::of_interface(name)? {
            return Ok(Self::of_card(virtio::look_at(card, &published_in())?));
        }
        // Any socket answers these requests; a local one exists on every kernel.
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .map_err(NetifError::io("open a socket"))?;
        let no_such = || NetifError::NoSuchInterface { name: name.to_owned() };
        // The kernel's names are shorter than this and have no zero inside; others cannot exist.
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
            return Err(no_such());
        }
        let ask = |request| {
            Self::request(&socket, name, request).map_err(|source| match source.raw_os_error() {
                Some(libc::ENODEV | libc::ENXIO) => no_such(),
                _ => NetifError::io("ask the kernel about the interface")(source),
            })
        };
        let index = ask(libc::SIOCGIFINDEX)?;
        let hardware = ask(libc::SIOCGIFHWADDR)?;
        let mtu = ask(libc::SIOCGIFMTU)?;
        let flags = ask(libc::SIOCGIFFLAGS)?;
        // SAFETY: each request above fills exactly the member of the union that is read here.
        let (index, hardware, mtu, flags) = unsafe {
            (
                index.ifr_ifru.ifru_ifindex,
                hardware.ifr_ifru.ifru_hwaddr,
                mtu.ifr_ifru.ifru_mtu,
                flags.ifr_ifru.ifru_flags,
            )
        };
        if hardware.sa_family != libc::ARPHRD_ETHER && hardware.sa_family != libc::ARPHRD_LOOPBACK {
            return Err(NetifError::NotEthernet {
                name: name.to_owned(),
                hardware_type: hardware.sa_family,
            });
        }
        Ok(Self {
            name: name.to_owned(),
            index,
            mac: MacAddr(core::array::from_fn(|i| hardware.sa_data[i] as u8)),
            mtu: usize::try_from(mtu).unwrap_or(0),
            up: i32::from(flags) & libc::IFF_UP != 0,
            loopback: i32::from(flags) & libc::IFF_LOOPBACK != 0,
        })
    }

    /// Returns the interface that stands for a card that programs drive themselves.
    pub fn of_card(card: CardFacts) -> Self {
        Self {
            name: card.address.interface_name(),
            index: card.address.index(),
            mac: card.mac,
            mtu: card.mtu,
            up: card.up,
            loopback: false,
        }
    }

    /// Returns the place of the card where it is one that programs drive themselves.
    pub fn card(&self) -> Option<CardAddress> {
        CardAddress::of_index(self.index)
    }

    /// Returns the length of the longest frame in bytes.
    pub const fn frame_len_max(&self) -> usize {
        self.mtu.saturating_add(ether::ETHERNET_HEADER_LEN)
    }

    /// Returns the name of the driver behind the interface, such as `virtio_net` or `veth`; `None` if it does not say
    /// or is gone.
    pub fn driver(&self) -> Option<String> {
        if let Some(card) = self.card() {
            return virtio::driver_of(card).ok().flatten();
        }
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
        let mut info = DriverInfo {
            command: ETHTOOL_GDRVINFO,
            driver: [0; 32],
            _rest: [0; 160],
        };
        let mut ifreq = Self::named(&self.name);
        ifreq.ifr_ifru.ifru_data = (&raw mut info).cast();
        // SAFETY: the descriptor is open; the request reads and writes one ifreq and the structure that it points to, which has
        // the kernel's length. Both outlive the call.
        if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut ifreq) } < 0 {
            return None;
        }
        let driver = CStr::from_bytes_until_nul(&info.driver).ok()?.to_str().ok()?;
        (!driver.is_empty()).then(|| driver.to_owned())
    }

    /// Returns the NUMA node of the card behind the interface, if it has one.
    pub fn numa_node(&self) -> Option<u32> {
        let path = match self.card() {
            Some(card) => card.folder().join("numa_node"),
            None => format!("/sys/class/net/{}/device/numa_node", self.name).into(),
        };
        let text = fs::read_to_string(path).ok()?;
        // The kernel has -1 for a card that is as near to all.
        text.trim().parse().ok()
    }

    /// Whether a frame that a socket sends passes no queueing discipline before the driver, and no filter of traffic
    /// control. Interfaces without hardware, such as veth and bridges, have no queueing discipline until one is added.
    ///
    /// # Errors
    /// The kernel's error; [`io::ErrorKind::InvalidData`] for an answer of an unknown form.
    pub fn has_no_queue(&self) -> io::Result<bool> {
        // Nothing of the kernel is on the path of a card that programs drive themselves, and no socket either.
        Ok(!self.loopback && self.card().is_none() && egress::has_no_queue(self.index)?)
    }

    /// Whether a frame passes nothing at all: no queueing discipline, and no program that listens to all that the
    /// interface sends, such as `tcpdump`. Hooks of netfilter, and BPF programs without such a filter, are not checked.
    ///
    /// # Errors
    /// As [`Interface::has_no_queue`].
    pub fn egress_is_bare(&self) -> io::Result<bool> {
        Ok(!egress::has_listener(self.index)? && self.has_no_queue()?)
    }

    /// Looks up the interface with this number, under its present name.
    ///
    /// # Errors
    /// As [`Interface::find`].
    pub fn find_by_index(index: i32) -> Result<Self, NetifError> {
        if let Some(card) = CardAddress::of_index(index) {
            return Ok(Self::of_card(virtio::look_at(card, &published_in())?));
        }
        let mut name = [0u8; libc::IFNAMSIZ];
        // SAFETY: the buffer has the length that the call demands.
        let found = unsafe { libc::if_indextoname(index as libc::c_uint, name.as_mut_ptr().cast()) };
        if found.is_null() {
            let source = io::Error::last_os_error();
            return Err(match source.raw_os_error() {
                Some(libc::ENXIO | libc::ENODEV) => NetifError::NoSuchInterface {
                    name: format!("number {index}"),
                },
                _ => NetifError::io("ask the kernel about the interface")(source),
            });
        }
        let text = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy();
        Self::find(&text)
    }

    /// Lists every Ethernet interface of this network namespace, by index.
    ///
    /// # Errors
    /// [`NetifError::Io`] if the kernel does not tell.
    pub fn list() -> Result<Vec<Self>, NetifError> {
        // SAFETY: takes nothing; the result is checked before use.
        let first = unsafe { libc::if_nameindex() };
        if first.is_null() {
            return Err(NetifError::io("list the interfaces")(io::Error::last_os_error()));
        }
        let mut names = Vec::new();
        let mut at = first;
        // SAFETY: the list ends with an entry of index 0 and no name; names end with a zero. It is freed once, below.
        unsafe {
            while (*at).if_index != 0 && !(*at).if_name.is_null() {
                names.push(CStr::from_ptr((*at).if_name).to_string_lossy().into_owned());
                at = at.add(1);
            }
            libc::if_freenameindex(first);
        }
        // One that vanished in between or is no Ethernet is left out.
        let mut found: Vec<Self> = names.iter().filter_map(|name| Self::find(name).ok()).collect();
        found.sort_by_key(|interface| interface.index);
        Ok(found)
    }

    /// Makes the beginning of a request about an interface. The name ends with a zero if it is shorter than the array.
    fn named(name: &str) -> libc::ifreq {
        // SAFETY: ifreq is plain data for which all zeros are a valid value.
        let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in ifreq.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
            *to = from as libc::c_char;
        }
        ifreq
    }

    fn request(socket: &OwnedFd, name: &str, request: libc::Ioctl) -> io::Result<libc::ifreq> {
        let mut ifreq = Self::named(name);
        // SAFETY: the descriptor is open, and the four requests used read and write one ifreq, which outlives the call;
        // its name ends with a zero because `name` is shorter than the array.
        if unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw mut ifreq) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(ifreq)
    }
}
