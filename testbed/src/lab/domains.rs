//! Which switches form one broadcast domain, and the networks of each. This module assigns no address itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, Ipv6Addr},
};

use toml::Spanned;

use super::{
    Ipv4Net, Ipv6Net,
    file::{LabFile, NicFile, SwitchFile},
    network::Network,
    problems::Problems,
};

/// Switches joined by trunks form one broadcast domain and share one IPv4 network; a cable between two cards is one of its own.
pub(super) struct Domains {
    /// Domain of each switch, by position, and of each cable between cards.
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
    /// The domains of so many switches and, behind them, cables between cards.
    pub(super) fn new(count: usize) -> Self {
        let default = |number: usize| (Ipv4Net::default_for(u8::try_from(number + 1).unwrap_or(u8::MAX)), false);
        Self {
            of_switch: (0..count).collect(),
            subnets: (0..count).map(default).collect(),
            taken: vec![BTreeSet::new(); count],
            subnets6: Vec::new(),
            taken6: vec![BTreeMap::new(); count],
            kept: vec![BTreeSet::new(); count],
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
        let keys = Keys {
            name: "subnet",
            example: "10.0.0.0/24",
            remedy: "switches joined by trunks share one network: name the same for both, or for one only",
            of_switch: |switch| switch.subnet.as_ref(),
            of_nic: |nic| nic.address.as_ref(),
        };
        set_networks(&mut self.subnets, &keys, &self.of_switch, (file, switches), problems);
    }

    /// Sets the IPv6 networks of the domains, in the lab called `lab`.
    pub(super) fn set_subnets6(&mut self, lab: &str, file: &LabFile, switches: &[String], problems: &mut Problems) {
        let default = |number: usize| Ipv6Net::default_for(lab, u16::try_from(number + 1).unwrap_or(u16::MAX));
        self.subnets6 = (0..self.of_switch.len())
            .map(|number| (default(number), false))
            .collect();
        let keys = Keys {
            name: "subnet6",
            example: "fd00:1::/64",
            remedy: "switches joined by trunks share one network",
            of_switch: |switch| switch.subnet6.as_ref(),
            of_nic: |nic| nic.address6.as_ref().filter(|_| !nic.is_loopback()),
        };
        set_networks(&mut self.subnets6, &keys, &self.of_switch, (file, switches), problems);
    }
}

/// The keys of a lab file about the networks of one address family.
struct Keys {
    /// Name of a switch's key.
    name: &'static str,
    example: &'static str,
    /// What to do when two switches of a domain state different networks.
    remedy: &'static str,
    of_switch: fn(&SwitchFile) -> Option<&Spanned<String>>,
    of_nic: fn(&NicFile) -> Option<&Spanned<String>>,
}

/// Sets the networks that the file states, or that its addresses imply, and finds those that contradict each other.
fn set_networks<N: Network>(
    networks: &mut [(N, bool)],
    keys: &Keys,
    of_switch: &[usize],
    (file, switches): (&LabFile, &[String]),
    problems: &mut Problems,
) {
    for (index, switch) in file.switch.iter().enumerate() {
        let Some(text) = (keys.of_switch)(switch) else { continue };
        let (known, stated) = &mut networks[of_switch[index]];
        match text.get_ref().parse::<N>() {
            Err(message) => problems.add(text.span(), message, format!("write it as \"{}\"", keys.example)),
            Ok(net) if net.network() != net => {
                let help = format!("the network is \"{}\"", net.network());
                problems.add(text.span(), format!("{net} is an address in a network"), help);
            }
            Ok(net) if *stated && *known != net => {
                let message = format!("a switch joined to this one by a trunk says the network is {known}");
                problems.add(text.span(), message, keys.remedy);
            }
            Ok(net) => (*known, *stated) = (net, true),
        }
    }
    // An address of the file implies the network where no switch states one. An address in a VLAN may belong to the
    // VLAN's network.
    let nics = file.node.iter().flat_map(|node| node.nic.iter().flatten());
    for nic in nics.filter(|nic| !nic.has_vlans()) {
        let switch = match (nic.cable, &nic.switch) {
            (Some(cable), _) => Some(switches.len() + cable),
            (None, None) => Some(0),
            (None, Some(name)) => switches.iter().position(|switch| switch == name.get_ref()),
        };
        let address = (keys.of_nic)(nic).and_then(|text| text.get_ref().parse::<N>().ok());
        if let (Some(switch), Some(address)) = (switch, address) {
            let (known, stated) = &mut networks[of_switch[switch]];
            if !*stated {
                (*known, *stated) = (address.network(), true);
            }
        }
    }
    let span = file.switch.last().map_or(0..0, |switch| switch.name.span());
    let used: BTreeSet<usize> = of_switch.iter().copied().collect();
    for (position, &a) in used.iter().enumerate() {
        for &b in used.iter().skip(position + 1) {
            let (a, b) = (networks[a].0, networks[b].0);
            if a.overlaps(b) {
                let name = keys.name;
                let help = format!("switches that no trunk joins need networks that do not overlap: set `{name}`");
                problems.add(span.clone(), format!("the networks {a} and {b} overlap"), help);
            }
        }
    }
}
