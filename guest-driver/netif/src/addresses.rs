//! The IP addresses of this host, asked of the kernel without any privilege.

use std::{
    ffi::CStr,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// An IP address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// Name of the interface that has it.
    pub interface: String,
    /// The address.
    pub ip: IpAddr,
    /// Bits of the address that all hosts of its subnet share.
    pub prefix_len: u8,
}

impl HostAddress {
    /// Lists the addresses of all interfaces of this network namespace, as the kernel orders them.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn list() -> io::Result<Vec<Self>> {
        let mut first = std::ptr::null_mut();
        // SAFETY: stores the list's beginning, or fails.
        if unsafe { libc::getifaddrs(&raw mut first) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut found = Vec::new();
        let mut at = first;
        while !at.is_null() {
            // SAFETY: an entry of the list, which is freed below.
            let entry = unsafe { &*at };
            // SAFETY: as above.
            found.extend(unsafe { Self::of(entry) });
            at = entry.ifa_next;
        }
        // SAFETY: the list, once; nothing borrowed from it is left.
        unsafe { libc::freeifaddrs(first) };
        Ok(found)
    }

    /// Reads an entry of the kernel's list; `None` where it is no IP address.
    ///
    /// # Safety
    /// The entry's pointers are null or those of a list of `getifaddrs`.
    unsafe fn of(entry: &libc::ifaddrs) -> Option<Self> {
        // SAFETY: as the caller promises.
        let (ip, mask) = unsafe { (ip_of(entry.ifa_addr)?, ip_of(entry.ifa_netmask)?) };
        // SAFETY: as the caller promises; a name ends with a zero.
        let name = unsafe { entry.ifa_name.as_ref() }.map(|name| unsafe { CStr::from_ptr(name) })?;
        let name = name.to_str().ok()?;
        Some(Self {
            // An address may have a label: the interface's name, a colon, and more.
            interface: name.split_once(':').map_or(name, |(name, _)| name).to_owned(),
            ip,
            prefix_len: match mask {
                IpAddr::V4(mask) => mask.to_bits().leading_ones() as u8,
                IpAddr::V6(mask) => mask.to_bits().leading_ones() as u8,
            },
        })
    }

    /// Whether another address is of this one's subnet.
    pub fn is_near(&self, other: IpAddr) -> bool {
        let shift = |bits: u32| bits.saturating_sub(self.prefix_len.into());
        match (self.ip, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differs = own.to_bits() ^ other.to_bits();
                differs.checked_shr(shift(32)).is_none_or(|differs| differs == 0)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differs = own.to_bits() ^ other.to_bits();
                differs.checked_shr(shift(128)).is_none_or(|differs| differs == 0)
            }
            _ => false,
        }
    }
}

/// Reads an IP address.
///
/// # Safety
/// The pointer is null or points to an address of the family that it names.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: as the caller promises; every address begins with its family.
    let family = unsafe { address.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the family says so.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from_bits(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says so.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use weft_guest_driver_testkit::{Veth, in_private_network};

    use super::*;

    #[test]
    fn addresses_are_listed_with_their_interfaces_and_subnets() {
        let test = "addresses::tests::addresses_are_listed_with_their_interfaces_and_subnets";
        in_private_network(test, || {
            let veth = Veth::new(1500);
            let add = |words: &[&str]| {
                let added = Command::new("ip").args(["address", "add"]).args(words).status();
                assert!(added.unwrap().success());
            };
            add(&["10.7.0.1/24", "dev", &veth.a, "label", &format!("{}:x", veth.a)]);
            add(&["fd00:7::1/64", "dev", &veth.b, "nodad"]);
            let found = HostAddress::list().unwrap();
            let expected = |interface: &str, ip: &str, prefix_len| HostAddress {
                interface: interface.to_owned(),
                ip: ip.parse().unwrap(),
                prefix_len,
            };
            for address in [
                expected("lo", "127.0.0.1", 8),
                expected(&veth.a, "10.7.0.1", 24),
                expected(&veth.b, "fd00:7::1", 64),
            ] {
                assert!(found.contains(&address), "{address:?} in {found:?}");
            }
        });
    }

    #[test]
    fn an_address_is_near_those_of_its_subnet() {
        let near = |own: &str, prefix_len, other: &str| {
            let own = HostAddress {
                interface: String::new(),
                ip: own.parse().unwrap(),
                prefix_len,
            };
            own.is_near(other.parse().unwrap())
        };
        assert!(near("10.7.0.1", 24, "10.7.0.255") && !near("10.7.0.1", 24, "10.7.1.1"));
        assert!(near("10.7.0.1", 32, "10.7.0.1") && !near("10.7.0.1", 32, "10.7.0.2"));
        assert!(near("10.7.0.1", 0, "9.9.9.9") && !near("10.7.0.1", 0, "fd00::1"));
        assert!(near("fd00:7::1", 64, "fd00:7::2") && !near("fd00:7::1", 64, "fd00:8::2"));
        assert!(near("fd00:7::1", 0, "2001::1") && !near("fd00:7::1", 128, "fd00:7::2"));
    }
}
