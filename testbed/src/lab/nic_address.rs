//! The IP addresses of a card: as the file says, or the next free one of its network.

use std::ops::Range;

use toml::Spanned;

use super::{Ipv4Net, Ipv6Net, domains::Domains, file::NicFile, network::Network, problems::Problems};

/// Chooses the IPv4 address of a card: as the file says, the one that it has in the running lab (`kept`), or a free
/// one.
pub(super) fn nic_address(
    nic: &NicFile,
    node: &Spanned<String>,
    (domain, kept): (usize, Option<Ipv4Net>),
    domains: &mut Domains,
    problems: &mut Problems,
) -> Option<Ipv4Net> {
    let subnet = domains.subnets[domain].0;
    let stated = [&nic.address, &nic.address6].into_iter().flatten();
    if nic.is_bypassed()
        && let Some(text) = stated.into_iter().find(|text| text.get_ref() != "none")
    {
        let message = "a NIC that programs drive themselves has no IP address".to_owned();
        problems.add(text.span(), message, "leave out bypass, or the address");
        return None;
    }
    let Some(text) = &nic.address else {
        // A NIC that is connected to itself has no peer that could answer.
        if nic.is_loopback() || nic.is_bypassed() {
            return None;
        }
        let owned = domains.taken[domain].union(&domains.kept[domain]).copied().collect();
        let free = kept.or_else(|| subnet.first_free(&owned));
        match free {
            Some(free) => _ = domains.taken[domain].insert(free.address),
            None => {
                let message = format!("the network {subnet} has no address left for node {}", node.get_ref());
                problems.add(
                    node.span(),
                    message,
                    "a larger `subnet` for the switch, such as \"10.77.0.0/16\"",
                );
            }
        }
        return free;
    };
    if text.get_ref() == "none" {
        return None;
    }
    match text.get_ref().parse::<Ipv4Net>() {
        Err(message) => problems.add(text.span(), message, "write it as \"10.0.0.7/24\", or \"none\""),
        Ok(address) if address.network() != subnet && !nic.is_loopback() && !nic.has_vlans() => {
            let message = format!("{address} is not in the network {subnet} of this switch");
            problems.add(
                text.span(),
                message,
                "the same network for every NIC on a switch, with the same prefix length",
            );
        }
        Ok(address) if !address.is_host() => {
            let message = format!("{address} is the network's own or its broadcast address");
            problems.add(text.span(), message, "an address in between");
        }
        Ok(address) => return Some(address),
    }
    None
}

/// Chooses the IPv6 address of a NIC: as the file says, or with the host number of its IPv4 address.
pub(super) fn nic_address6(
    nic: &NicFile,
    node: &Spanned<String>,
    (domain, address): (usize, Option<Ipv4Net>),
    domains: &mut Domains,
    problems: &mut Problems,
) -> Option<Ipv6Net> {
    let (found, span) = match &nic.address6 {
        None if nic.is_loopback() || nic.is_bypassed() => return None,
        None => (derived6(node, (domain, address?), domains, problems)?, node.span()),
        Some(text) if text.get_ref() == "none" => return None,
        Some(text) => (stated6(nic, text, domains.subnets6[domain].0, problems)?, text.span()),
    };
    if !nic.is_loopback() {
        take6((domain, found), nic.address6.is_some(), span, domains, problems);
    }
    Some(found)
}

/// Derives the IPv6 address with the host number of an IPv4 address.
fn derived6(
    node: &Spanned<String>,
    (domain, address): (usize, Ipv4Net),
    domains: &Domains,
    problems: &mut Problems,
) -> Option<Ipv6Net> {
    if address.network() != domains.subnets[domain].0 {
        // The address belongs to a VLAN with a network of its own.
        return None;
    }
    let subnet = domains.subnets6[domain].0;
    let number = u32::from(address.address) - u32::from(address.network().address);
    let found = subnet.host(number);
    if found.is_none() {
        let message = format!(
            "the network {subnet} has no address for host {number}, node {}",
            node.get_ref()
        );
        problems.add(
            node.span(),
            message,
            "a larger `subnet6`, such as \"fd00:1::/64\", or `address6`",
        );
    }
    found
}

/// Returns the IPv6 address that the file states, if it is valid in `subnet`.
fn stated6(nic: &NicFile, text: &Spanned<String>, subnet: Ipv6Net, problems: &mut Problems) -> Option<Ipv6Net> {
    let (message, help) = match text.get_ref().parse::<Ipv6Net>() {
        Err(message) => (message, "write it as \"fd00::7/64\", or \"none\""),
        Ok(stated) if stated.network() != subnet && !nic.is_loopback() && !nic.has_vlans() => (
            format!("{stated} is not in the network {subnet} of this switch"),
            "the same network for every NIC on a switch: set its `subnet6`",
        ),
        Ok(stated) if !stated.is_host() => (
            format!("{stated} is not an address of a host"),
            "such as \"fd00::7/64\"",
        ),
        Ok(stated) => return Some(stated),
    };
    problems.add(text.span(), message, help);
    None
}

/// Notes that an IPv6 address is in use, and a mistake if it was in use before.
fn take6(
    (domain, found): (usize, Ipv6Net),
    is_stated: bool,
    span: Range<usize>,
    domains: &mut Domains,
    problems: &mut Problems,
) {
    let was_stated = domains.taken6[domain].insert(found.address, is_stated);
    // Two addresses that are both derived from an IPv4 address are equal because that one was taken twice, which was
    // reported.
    if was_stated.is_some_and(|was_stated| was_stated || is_stated) {
        let message = format!("the address {} is taken by another NIC", found.address);
        let help = "another one; those that no `address6` states have the host number of the IPv4 address";
        problems.add(span, message, help);
    }
}
