//! Name, index, address, MTU and state of a network interface, asked of the kernel without any privilege.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use ether::MacAddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::NetifError;

/// What is needed to open a port on an interface.
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) index: i32,
    pub(crate) mac: MacAddr,
    pub(crate) mtu: usize,
}

impl Interface {
    /// Looks `name` up; it must exist, carry Ethernet and be up.
    pub(crate) fn find(name: &str) -> Result<Self, NetifError> {
        // Any socket answers these requests; a local one exists on every kernel.
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).map_err(|e| {
            NetifError::Io {
                what: "open a socket",
                source: e.into(),
            }
        })?;
        let no_such = || NetifError::NoSuchInterface { name: name.to_owned() };
        // The kernel's names are shorter than this and have no zero inside; others cannot exist.
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
            return Err(no_such());
        }
        let ask = |request| {
            Self::request(&socket, name, request).map_err(|source| match source.raw_os_error() {
                Some(libc::ENODEV | libc::ENXIO) => no_such(),
                _ => NetifError::Io {
                    what: "ask the kernel about the interface",
                    source,
                },
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
        if i32::from(flags) & libc::IFF_UP == 0 {
            return Err(NetifError::Down { name: name.to_owned() });
        }
        Ok(Self {
            name: name.to_owned(),
            index,
            mac: MacAddr(core::array::from_fn(|i| hardware.sa_data[i] as u8)),
            mtu: usize::try_from(mtu).unwrap_or(0),
        })
    }

    fn request(socket: &OwnedFd, name: &str, request: libc::Ioctl) -> io::Result<libc::ifreq> {
        // SAFETY: ifreq is plain data for which all zeros are a valid value.
        let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in ifreq.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        // SAFETY: the descriptor is open, and the four requests used read and write one ifreq, which outlives the call;
        // its name ends with a zero because `name` is shorter than the array.
        if unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw mut ifreq) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(ifreq)
    }
}
