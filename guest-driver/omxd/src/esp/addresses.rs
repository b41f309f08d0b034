//! The IP addresses of this host: those that pings are answered with, and those that decide where an address is.

use std::net::IpAddr;

use esp::wire::Addresses;
use ether::Time;
use netif::HostAddress;

/// So long what was read is good for: a new address is known soon, and a flood of questions does not make the kernel list them each time.
const FRESH_NS: u64 = 200_000_000;

/// What the kernel said last.
#[derive(Debug, Default)]
pub(super) struct HostAddresses {
    all: Vec<HostAddress>,
    read_at: Option<Time>,
}

impl HostAddresses {
    /// Reads them anew where they are old.
    pub(super) fn refresh(&mut self, now: Time) {
        if self.read_at.is_some_and(|at| now.nanos_since(at) < FRESH_NS) {
            return;
        }
        self.read_at = Some(now);
        match HostAddress::list() {
            Ok(all) => self.all = all,
            Err(error) => tracing::debug!("the host's addresses stay as they were: {error}"),
        }
    }

    fn of_interface<'a>(&'a self, interface: &'a str) -> impl Iterator<Item = &'a HostAddress> {
        self.all.iter().filter(move |address| address.interface == interface)
    }

    /// Lists the addresses of an interface.
    pub(super) fn of(&self, interface: &str) -> Vec<IpAddr> {
        self.of_interface(interface).map(|address| address.ip).collect()
    }

    /// Makes the list for a pong, what was asked for first; `None`: the interface does not have that.
    pub(super) fn for_pong(&self, interface: &str, asked: Option<IpAddr>) -> Option<Addresses> {
        let own = self.of(interface);
        if asked.is_some_and(|asked| !own.contains(&asked)) {
            return None;
        }
        let others = own.into_iter().filter(|address| Some(*address) != asked);
        Some(asked.into_iter().chain(others).collect())
    }

    /// Whether this host has an address, on any of its interfaces.
    pub(super) fn is_own(&self, ip: IpAddr) -> bool {
        ip.is_loopback() || self.all.iter().any(|address| address.ip == ip)
    }

    /// Returns the interface's own address in the subnet of another one; `None`: none of its subnets has that.
    pub(super) fn near(&self, interface: &str, ip: IpAddr) -> Option<IpAddr> {
        self.of_interface(interface)
            .find(|address| address.is_near(ip))
            .map(|address| address.ip)
    }

    /// Whether a peer on this Ethernet can have this address.
    pub(super) fn is_plausible(&self, interface: &str, ip: IpAddr) -> bool {
        !ip.is_unspecified() && !ip.is_multicast() && !self.is_own(ip) && self.near(interface, ip).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_peers_may_have_and_what_pings_are_answered_with() {
        let address = |interface: &str, ip: &str, prefix_len| HostAddress {
            interface: interface.to_owned(),
            ip: ip.parse().unwrap(),
            prefix_len,
        };
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let addresses = HostAddresses {
            all: vec![
                address("a", "10.7.0.1", 24),
                address("b", "10.8.0.1", 24),
                address("a", "fd00::1", 64),
            ],
            read_at: None,
        };
        for (text, may) in [
            ("10.7.0.2", true),
            ("fd00::2", true),
            ("10.7.0.1", false),
            ("10.8.0.2", false),
            ("127.0.0.1", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("::1", false),
        ] {
            assert_eq!(addresses.is_plausible("a", ip(text)), may, "{text}");
        }
        let pong = |asked| addresses.for_pong("a", asked).map(|list| list.as_slice().to_vec());
        assert_eq!(pong(None).unwrap(), [ip("10.7.0.1"), ip("fd00::1")]);
        assert_eq!(pong(Some(ip("fd00::1"))).unwrap(), [ip("fd00::1"), ip("10.7.0.1")]);
        assert_eq!(pong(Some(ip("10.8.0.1"))), None);
        assert_eq!(addresses.near("a", ip("10.7.0.9")), Some(ip("10.7.0.1")));
    }
}
