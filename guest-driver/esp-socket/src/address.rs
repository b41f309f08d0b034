//! IP addresses as programs and the kernel exchange them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

use crate::errno::Errno;

/// An address as the kernel has it.
#[derive(Clone, Copy)]
pub struct RawAddress {
    storage: sockaddr_storage,
    len: socklen_t,
}

impl RawAddress {
    /// Makes the address for a socket of a family: one of IPv6 sees addresses of IPv4 as mapped ones.
    pub(crate) fn new(address: SocketAddr, is_v6: bool) -> Self {
        // SAFETY: all zeros is a valid storage.
        let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
        let place = &raw mut storage;
        let len = match (address.ip(), is_v6) {
            (IpAddr::V4(ip), false) => {
                let raw = sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(ip.octets()),
                    },
                    sin_zero: [0; 8],
                };
                // SAFETY: a storage has room for every address, and its alignment.
                unsafe { place.cast::<sockaddr_in>().write(raw) };
                size_of::<sockaddr_in>()
            }
            (ip, _) => {
                let ip = match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                let scope = match address {
                    SocketAddr::V6(address) => address.scope_id(),
                    SocketAddr::V4(_) => 0,
                };
                let raw = sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as u16,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                    sin6_scope_id: scope,
                };
                // SAFETY: as above.
                unsafe { place.cast::<sockaddr_in6>().write(raw) };
                size_of::<sockaddr_in6>()
            }
        };
        Self {
            storage,
            len: len as socklen_t,
        }
    }

    /// Room for an address that the kernel is going to write.
    pub(crate) const fn room() -> Self {
        Self {
            // SAFETY: all zeros is a valid storage.
            storage: unsafe { std::mem::zeroed() },
            len: size_of::<sockaddr_storage>() as socklen_t,
        }
    }

    pub(crate) const fn pointer(&self) -> *const sockaddr {
        (&raw const self.storage).cast()
    }

    pub(crate) const fn len(&self) -> socklen_t {
        self.len
    }

    pub(crate) fn parts_mut(&mut self) -> (*mut libc::c_void, *mut socklen_t) {
        ((&raw mut self.storage).cast(), &raw mut self.len)
    }

    /// Returns the IP address; `None` for another family.
    pub(crate) fn ip(&self) -> Option<SocketAddr> {
        // SAFETY: the storage is initialised and has the length that is given.
        unsafe { read(self.pointer(), self.len) }
    }

    /// Whether it is of IPv6.
    pub(crate) const fn is_v6(&self) -> bool {
        self.storage.ss_family == libc::AF_INET6 as u16
    }

    /// Writes it where a program wants it, cut to the room there.
    ///
    /// # Safety
    /// `to` has the room that `len` says, or either is null.
    ///
    /// # Errors
    /// `EFAULT`, `EINVAL` as the kernel has them.
    pub(crate) unsafe fn give(&self, to: *mut sockaddr, len: *mut socklen_t) -> Result<(), Errno> {
        if len.is_null() || to.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the caller's promise.
        unsafe {
            if (*len).cast_signed() < 0 {
                return Err(Errno(libc::EINVAL));
            }
            let room = (*len).min(self.len) as usize;
            std::ptr::copy_nonoverlapping(self.pointer().cast::<u8>(), to.cast::<u8>(), room);
            *len = self.len;
        }
        Ok(())
    }
}

/// Reads an address of a program; `None` for another family than IP's.
///
/// # Safety
/// `from` points to `len` bytes, or is null.
pub(crate) unsafe fn read(from: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    if from.is_null() || (len as usize) < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: the length was checked; the program's address may be unaligned.
    let family = i32::from(unsafe { (&raw const (*from).sa_family).read_unaligned() });
    match family {
        libc::AF_INET if len as usize >= size_of::<sockaddr_in>() => {
            // SAFETY: as above.
            let raw = unsafe { from.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(ip.into(), u16::from_be(raw.sin_port)))
        }
        libc::AF_INET6 if len as usize >= size_of::<sockaddr_in6>() => {
            // SAFETY: as above.
            let raw = unsafe { from.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            let port = u16::from_be(raw.sin6_port);
            match ip.to_ipv4_mapped() {
                Some(ip) => Some(SocketAddr::new(ip.into(), port)),
                None => Some(SocketAddrV6::new(ip, port, 0, raw.sin6_scope_id).into()),
            }
        }
        _ => None,
    }
}
