//! Which switches form one broadcast domain, and the networks of each. This module assigns no address itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, Ipv6Addr},
    ops::Range,
};

use super::{Ipv4Net, Ipv6Net, file::LabFile, problems::Problems};

/// Switches joined by trunks form one broadcast domain and share one IPv4 network.
pub(super) struct Domains {
    /// Domain of each switch, by position.
    pub(super) of_switch: Vec<usize>,
    /// Network of each domain, and whether the file stated it (or an address implied it).
    pub(super) subnets: Vec<(Ipv4Net, bool)>,
    /// Addresses in use, by domain.
    pub(super) taken: Vec<BTreeSet<Ipv4Addr>>,
    /// IPv6 network of each domain, and whether the file stated it (or an address implied it).
    pub(super) subnets6: Vec<(Ipv6Net, bool)>,
    /// IPv6 addresses in use, by domain, and whether the file states them.
    pub(super) taken6: Vec<BTreeMap<Ipv6Addr, bool>>,
    /// Addresses that nodes of a running lab have and keep, by domain.
    pub(super) kept: Vec<BTreeSet<Ipv4Addr>>,
}

impl Domains {
    pub(super) fn new(switches: &[String]) -> Self {
        let default = |number: usize| (Ipv4Net::default_for(u8::try_from(number + 1).unwrap_or(u8::MAX)), false);
        Self {
            of_switch: (0..switches.len()).collect(),
            subnets: (0..switches.len()).map(default).collect(),
            taken: vec![BTreeSet::new(); switches.len()],
            subnets6: Vec::new(),
            taken6: vec![BTreeMap::new(); switches.len()],
            kept: vec![BTreeSet::new(); switches.len()],
        }
    }

    /// Joins two domains; returns false when they were joined before.
    pub(super) fn join(&mut self, a: usize, b: usize) -> bool {
        let (keep, drop) = (
            self.of_switch[a].min(self.of_switch[b]),
            self.of_switch[a].max(self.of_switch[b]),
        );
        for domain in &mut self.of_switch {
            if *domain == drop {
                *domain = keep;
            }
        }
        keep != drop
    }

    pub(super) fn set_subnets(&mut self, file: &LabFile, switches: &[String], problems: &mut Problems) {
        for (index, switch) in file.switch.iter().enumerate() {
            let Some(text) = &switch.subnet else { continue };
            match text.get_ref().parse::<Ipv4Net>() {
                Err(message) => problems.add(text.span(), message, "write it as \"10.0.0.0/24\""),
                Ok(net) if net.network() != net => {
                    problems.add(
                        text.span(),
                        format!("{net} is an address in a network"),
                        format!("the network is \"{}\"", net.network()),
                    );
                }
                Ok(net) => self.state(self.of_switch[index], net, text.span(), problems),
            }
        }
        // An address of the file implies the network where no switch states one. An address in a VLAN may belong to the
        // VLAN's network.
        let nics = file.node.iter().flat_map(|node| node.nic.iter().flatten());
        for nic in nics.filter(|nic| !nic.has_vlans()) {
            let switch = match &nic.switch {
                None => Some(0),
                Some(name) => switches.iter().position(|switch| switch == name.get_ref()),
            };
            let address = nic
                .address
                .as_ref()
                .and_then(|text| text.get_ref().parse::<Ipv4Net>().ok());
            if let (Some(switch), Some(address)) = (switch, address) {
                let (subnet, stated) = &mut self.subnets[self.of_switch[switch]];
                if !*stated {
                    (*subnet, *stated) = (address.network(), true);
                }
            }
        }
        let span = file.switch.last().map_or(0..0, |switch| switch.name.span());
        let used: BTreeSet<usize> = self.of_switch.iter().copied().collect();
        for (position, &a) in used.iter().enumerate() {
            for &b in used.iter().skip(position + 1) {
                let (a, b) = (self.subnets[a].0, self.subnets[b].0);
                if a.overlaps(b) {
                    let help = "switches that no trunk joins need networks that do not overlap: set `subnet`";
                    problems.add(span.clone(), format!("the networks {a} and {b} overlap"), help);
                }
            }
        }
    }

    /// Sets the IPv6 networks of the domains, in the lab called `lab`.
    pub(super) fn set_subnets6(&mut self, lab: &str, file: &LabFile, switches: &[String], problems: &mut Problems) {
        let default = |number: usize| Ipv6Net::default_for(lab, u16::try_from(number + 1).unwrap_or(u16::MAX));
        self.subnets6 = (0..switches.len()).map(|number| (default(number), false)).collect();
        for (index, switch) in file.switch.iter().enumerate() {
            let Some(text) = &switch.subnet6 else { continue };
            let (subnet, stated) = &mut self.subnets6[self.of_switch[index]];
            match text.get_ref().parse::<Ipv6Net>() {
                Err(message) => problems.add(text.span(), message, "write it as \"fd00:1::/64\""),
                Ok(net) if net.network() != net => {
                    let help = format!("the network is \"{}\"", net.network());
                    problems.add(text.span(), format!("{net} is an address in a network"), help);
                }
                Ok(net) if *stated && *subnet != net => {
                    let message = format!("a switch joined to this one by a trunk says the network is {subnet}");
                    problems.add(text.span(), message, "switches joined by trunks share one network");
                }
                Ok(net) => (*subnet, *stated) = (net, true),
            }
        }
        // An address of the file implies the network where no switch states one. An address in a VLAN may belong to the
        // VLAN's network.
        let nics = file.node.iter().flat_map(|node| node.nic.iter().flatten());
        for nic in nics.filter(|nic| !nic.has_vlans()) {
            let switch = match &nic.switch {
                _ if nic.loopback.as_ref().is_some_and(|on| *on.get_ref()) => None,
                None => Some(0),
                Some(name) => switches.iter().position(|switch| switch == name.get_ref()),
            };
            let address = nic
                .address6
                .as_ref()
                .and_then(|text| text.get_ref().parse::<Ipv6Net>().ok());
            if let (Some(switch), Some(address)) = (switch, address) {
                let (subnet, stated) = &mut self.subnets6[self.of_switch[switch]];
                if !*stated {
                    (*subnet, *stated) = (address.network(), true);
                }
            }
        }
        let span = file.switch.last().map_or(0..0, |switch| switch.name.span());
        let used: BTreeSet<usize> = self.of_switch.iter().copied().collect();
        for (position, &a) in used.iter().enumerate() {
            for &b in used.iter().skip(position + 1) {
                let (a, b) = (self.subnets6[a].0, self.subnets6[b].0);
                if a.overlaps(b) {
                    let help = "switches that no trunk joins need networks that do not overlap: set `subnet6`";
                    problems.add(span.clone(), format!("the networks {a} and {b} overlap"), help);
                }
            }
        }
    }

    fn state(&mut self, domain: usize, net: Ipv4Net, span: Range<usize>, problems: &mut Problems) {
        let (subnet, stated) = &mut self.subnets[domain];
        if *stated && *subnet != net {
            let message = format!("a switch joined to this one by a trunk says the network is {subnet}");
            problems.add(
                span,
                message,
                "switches joined by trunks share one network: name the same for both, or for one only",
            );
        } else {
            (*subnet, *stated) = (net, true);
        }
    }
}
