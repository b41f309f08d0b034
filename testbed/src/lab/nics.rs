//! Checks the cards of nodes: switch, MAC address, queues, cable and settings. The module `nic_address` chooses their
//! IP addresses.

use std::collections::BTreeMap;

use ether::MacAddr;
use toml::Spanned;
use vnicd_protocol::PortLinks;

use super::{
    Bypass, Cable, CardSettings, Ipv4Net, Lab, NICS_MAX, Nic, QUEUE_PAIRS_MAX, bypass,
    domains::Domains,
    file::{LabFile, NicFile},
    names::find_switch,
    network::Network,
    nic_address::{nic_address, nic_address6},
    places::seed_directions,
    port_name,
    problems::Problems,
    settings, speed, switch,
};

/// The context and the state of the checks of cards.
pub(super) struct Nics<'a> {
    pub(super) file: &'a LabFile,
    pub(super) before: Option<&'a Lab>,
    pub(super) switches: &'a [String],
    pub(super) cables: &'a [Cable],
    /// Cards by the MAC addresses that are taken.
    pub(super) macs: BTreeMap<MacAddr, String>,
}

impl Nics<'_> {
    /// Takes the stated addresses before any is assigned, so that the order in the file does not matter.
    pub(super) fn take_stated_addresses(&self, domains: &mut Domains, problems: &mut Problems) {
        for nic in self.file.node.iter().flat_map(|node| node.nic.iter().flatten()) {
            let Some(text) = &nic.address else { continue };
            let Some(switch) = self.switch_of(nic) else { continue };
            let Ok(address) = text.get_ref().parse::<Ipv4Net>() else {
                continue;
            };
            if !domains.taken[domains.of_switch[switch]].insert(address.address) {
                let message = format!("the address {} is taken by another NIC", address.address);
                problems.add(
                    text.span(),
                    message,
                    "another address, or none: leave `address` out to get a free one",
                );
            }
        }
    }

    /// Takes the addresses that nodes already have without a statement in the file, so that they are not assigned to
    /// others.
    pub(super) fn take_kept_addresses(&self, domains: &mut Domains) {
        for node in &self.file.node {
            for (index, nic) in node.nic.as_deref().unwrap_or(&[NicFile::default()]).iter().enumerate() {
                if let Some(kept) = self.kept_address(nic, node.name.get_ref(), index, domains) {
                    let domain = self.switch_of(nic).map_or(0, |switch| domains.of_switch[switch]);
                    domains.kept[domain].insert(kept.address);
                }
            }
        }
    }

    /// Returns the address that this NIC has already, if the file states none and no other NIC states that one.
    fn kept_address(&self, nic: &NicFile, node: &str, index: usize, domains: &Domains) -> Option<Ipv4Net> {
        let domain = domains.of_switch[self.switch_of(nic).filter(|_| nic.address.is_none())?];
        let kept = self.before?.node(node)?.nics.get(index)?.address?;
        let is_stated = domains.taken[domain].contains(&kept.address);
        (kept.network() == domains.subnets[domain].0 && !is_stated).then_some(kept)
    }

    fn switch_of(&self, nic: &NicFile) -> Option<usize> {
        match &nic.switch {
            _ if nic.is_loopback() => None,
            _ if nic.cable.is_some() => nic.cable.map(|cable| self.switches.len() + cable),
            Some(name) => self.switches.iter().position(|switch| switch == name.get_ref()),
            None => (self.switches.len() == 1).then_some(0),
        }
    }

    pub(super) fn check(
        &mut self,
        nic: &NicFile,
        node: &Spanned<String>,
        (place, nic_index): (usize, usize),
        domains: &mut Domains,
        problems: &mut Problems,
    ) -> Option<Nic> {
        let switch = self.plugged_into(nic, node, problems)?;
        let domain = domains.of_switch[switch];
        let defaults = &self.file.defaults;
        let mac = self.mac(nic, node, (place, nic_index), problems);
        let kept = self.kept_address(nic, node.get_ref(), nic_index, domains);
        let address = nic_address(nic, node, (domain, kept), domains, problems);
        let address6 = nic_address6(nic, node, (domain, address), domains, problems);
        let queue_pairs = queue_pairs(self.file, nic, problems);
        let mtu = nic.mtu.as_ref().or(defaults.nic.mtu.as_ref());
        let mtu = mtu.map_or(1500, |mtu| settings::mtu_of_nic(mtu, nic, problems));
        let mut link = cable(self.file, nic, (place * NICS_MAX + nic_index, mtu), problems);
        let loopback = settings::loopback(nic, queue_pairs, problems);
        if loopback {
            link = PortLinks::default();
        }
        let coalescing = [defaults.nic.coalescing.as_ref(), nic.coalescing.as_ref()];
        Some(Nic {
            switch: match nic.cable {
                Some(cable) => self.cables[cable].name(),
                None => self.switches[switch].clone(),
            },
            mac,
            address,
            address6,
            queue_pairs,
            mtu,
            offloads: bypass::offloads(nic, defaults.nic.offloads, problems),
            card: CardSettings {
                loopback,
                member_timeout_ns: settings::member_timeout(nic, problems),
                aggregate: switch::aggregate_of(nic, problems),
                speed_mbps: speed::of_nic(nic.speed.as_ref().or(defaults.nic.speed.as_ref()), problems),
            },
            bypass: nic.bypass.as_ref().map(|bypass| *bypass.get_ref()),
            coalescing: settings::coalescing(&coalescing, queue_pairs, problems),
            dma: settings::dma(&[defaults.nic.dma.as_ref(), nic.dma.as_ref()], problems),
            steering: settings::steering(
                &[defaults.nic.steering.as_ref(), nic.steering.as_ref()],
                queue_pairs,
                problems,
            ),
            misorder: settings::misorder(nic.misorder.as_ref().or(defaults.nic.misorder.as_ref()), problems),
            vlans: switch::of_nic(nic, problems),
            link,
        })
    }

    /// Returns the switch, or cable behind all switches, that a card is plugged into; notes a mistake when the file does not say which.
    fn plugged_into(&self, nic: &NicFile, node: &Spanned<String>, problems: &mut Problems) -> Option<usize> {
        if let Some(cable) = nic.cable {
            return Some(self.switches.len() + cable);
        }
        match &nic.switch {
            Some(name) => find_switch(name, self.switches, problems),
            None if self.switches.len() == 1 || nic.is_loopback() => Some(0),
            None => {
                let message = format!(
                    "a NIC of node {} does not say which switch it is plugged into",
                    node.get_ref()
                );
                problems.add(
                    node.span(),
                    message,
                    format!("add switch = … with one of: {}", self.switches.join(", ")),
                );
                None
            }
        }
    }

    fn mac(
        &mut self,
        nic: &NicFile,
        node: &Spanned<String>,
        (place, nic_index): (usize, usize),
        problems: &mut Problems,
    ) -> MacAddr {
        let byte = |n: usize| u8::try_from(n + 1).unwrap_or(u8::MAX);
        let derived = MacAddr([0x52, 0x54, 0x00, 0x00, byte(place), byte(nic_index)]);
        let (mac, span) = match &nic.mac {
            None => (derived, node.span()),
            Some(text) => match text.get_ref().parse::<MacAddr>() {
                Err(_) => {
                    let message = format!("\"{}\" is not a MAC address", text.get_ref());
                    problems.add(
                        text.span(),
                        message,
                        "six two-digit hexadecimal numbers, as in \"52:54:00:00:00:01\"",
                    );
                    return derived;
                }
                Ok(mac) => (mac, text.span()),
            },
        };
        if mac.is_multicast() || mac == MacAddr::default() || mac == MacAddr::CARD {
            let help = "an address with an even first byte, as in \"52:54:00:00:00:01\"; all zeros and the card's own are taken";
            problems.add(span.clone(), format!("{mac} cannot be a NIC's own address"), help);
        }
        let first = self
            .file
            .defaults
            .first_interface
            .as_ref()
            .map_or(0, |first| *first.get_ref());
        let port = port_name(
            node.get_ref(),
            usize::try_from(first).unwrap_or(0).saturating_add(nic_index),
        );
        if let Some(other) = self.macs.insert(mac, port) {
            let message = format!("the MAC address {mac} is taken by {other}");
            problems.add(span, message, "every NIC needs its own: leave `mac` out to get one");
        }
        mac
    }
}

fn queue_pairs(file: &LabFile, nic: &NicFile, problems: &mut Problems) -> u16 {
    let pairs = nic.queue_pairs.as_ref().or(file.defaults.nic.queue_pairs.as_ref());
    let mistake = |pairs| {
        (
            format!("{pairs} queue pairs are not possible"),
            format!("from 1 to {QUEUE_PAIRS_MAX}"),
        )
    };
    let by_default = if nic.is_bypassed() && !nic.is_loopback() {
        Bypass::QUEUE_PAIRS
    } else {
        1
    };
    pairs.map_or(by_default, |pairs| {
        settings::within(pairs, &(1..=QUEUE_PAIRS_MAX), mistake, problems)
    })
}

/// Makes the cable of a card of this MTU, the one numbered `number` in the lab.
fn cable(file: &LabFile, nic: &NicFile, (number, mtu): (usize, u32), problems: &mut Problems) -> PortLinks {
    let layers = [Some(&file.defaults.link), nic.link.as_ref()];
    let mut link = PortLinks {
        to_guest: settings::link(&[layers[0], layers[1], nic.link_to_guest.as_ref()], mtu, problems),
        from_guest: settings::link(&[layers[0], layers[1], nic.link_from_guest.as_ref()], mtu, problems),
    };
    seed_directions(number, &mut link.to_guest.seed, &mut link.from_guest.seed);
    link
}
