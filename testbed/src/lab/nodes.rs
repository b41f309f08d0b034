//! Checks the nodes of a lab. Their cards are checked in `nics`, what they boot in `boot`, `setup` and `cloud_init`.

use std::collections::BTreeMap;

use super::{
    Boot, CPUS_MAX, Cable, FIRST_INTERFACE_MAX, Ipv4Net, Lab, NICS_MAX, NODES_MAX, Nic, Node, Setup, boot, bypass,
    cloud_init,
    domains::Domains,
    file::{LabFile, NicFile, NodeFile},
    lab_folder::LabFolder,
    memory::memory_mib,
    names::{check_unique, checked_name},
    network::Network,
    nics::Nics,
    places::places,
    problems::Problems,
    settings, setup,
};

/// The context and the state of the checks of nodes.
pub(super) struct Nodes<'a> {
    file: &'a LabFile,
    folder: LabFolder<'a>,
    /// Names of nodes and switches that are taken, with the kind of their owners.
    names: BTreeMap<String, &'static str>,
    nics: Nics<'a>,
}

impl<'a> Nodes<'a> {
    pub(super) fn new(
        file: &'a LabFile,
        folder: LabFolder<'a>,
        before: Option<&'a Lab>,
        (switches, cables): (&'a [String], &'a [Cable]),
        names: BTreeMap<String, &'static str>,
    ) -> Self {
        Self {
            file,
            folder,
            names,
            nics: Nics {
                file,
                before,
                switches,
                cables,
                macs: BTreeMap::new(),
            },
        }
    }

    pub(super) fn check(mut self, domains: &mut Domains, problems: &mut Problems) -> Vec<Node> {
        let file = self.file;
        if file.node.is_empty() {
            problems.add(
                0..0,
                "this lab has no node",
                "add at least one: [[node]] with name = \"n1\"",
            );
        }
        if let Some(first_too_many) = file.node.get(NODES_MAX) {
            let message = format!("a lab of more than {NODES_MAX} nodes is too large");
            problems.add(
                first_too_many.name.span(),
                message,
                format!("at most {NODES_MAX} nodes"),
            );
            return Vec::new();
        }
        self.nics.take_stated_addresses(domains, problems);
        self.nics.take_kept_addresses(domains);
        let names: Vec<_> = file.node.iter().map(|node| node.name.get_ref().clone()).collect();
        let known = self.nics.before.iter().flat_map(|lab| &lab.nodes);
        let known: Vec<_> = known.map(|node| (node.name.clone(), node.place)).collect();
        let places = places(&names, &known).into_iter().zip(&file.node);
        places
            .map(|(place, node)| self.check_node(place, node, domains, problems))
            .collect()
    }

    fn check_node(&mut self, place: usize, node: &NodeFile, domains: &mut Domains, problems: &mut Problems) -> Node {
        let defaults = &self.file.defaults;
        let name = checked_name(&node.name, "node", problems);
        check_unique(&node.name, "node", &mut self.names, problems);
        let nics = self.check_nics(place, node, domains, problems);
        check_uplink(node, &nics, domains, problems);
        let boot = boot::check(defaults, self.folder, node, problems);
        bypass::check(node, &boot, problems);
        let own = match &boot {
            Boot::Recipe { .. } => setup::setup(defaults, node, self.folder, problems),
            Boot::Kernel { .. } | Boot::Disk { .. } => {
                setup::refuse(node, problems);
                Setup::default()
            }
        };
        Node {
            place,
            cpus: cpus(self.file, node, problems),
            memory_mib: memory_mib(defaults, node, &boot, problems),
            nics,
            first_interface: first_interface(self.file, problems),
            uplink: node.uplink.unwrap_or(false),
            ipv6: node.ipv6.or(defaults.ipv6).unwrap_or(true),
            cloud_init: cloud_init::check(self.folder, node, &boot, problems),
            boot,
            setup: own,
            labels: setup::labels(defaults, node, problems),
            name,
        }
    }

    fn check_nics(
        &mut self,
        place: usize,
        node: &NodeFile,
        domains: &mut Domains,
        problems: &mut Problems,
    ) -> Vec<Nic> {
        let one_nic = [NicFile::default()];
        let written = node.nic.as_deref().unwrap_or(&one_nic);
        if written.len() > NICS_MAX {
            let message = format!("node {} has {} NICs", node.name.get_ref(), written.len());
            problems.add(node.name.span(), message, format!("at most {NICS_MAX}"));
        }
        let nics = (0..).zip(written.iter().take(NICS_MAX));
        nics.filter_map(|(index, nic)| self.nics.check(nic, &node.name, (place, index), domains, problems))
            .collect()
    }
}

/// Notes a mistake when a node has an uplink and the lab uses the uplink's network.
fn check_uplink(node: &NodeFile, nics: &[Nic], domains: &Domains, problems: &mut Problems) {
    let subnets = domains.subnets.iter().map(|(net, _)| *net);
    // With VLANs a NIC may have an address of a network that belongs to no switch.
    let own = nics
        .iter()
        .filter_map(|nic| nic.address.map(|address| address.network()));
    if node.uplink == Some(true) && subnets.chain(own).any(|net| net.overlaps(Ipv4Net::UPLINK)) {
        let message = format!("the lab uses {}, which `uplink` needs for itself", Ipv4Net::UPLINK);
        problems.add(
            node.name.span(),
            message,
            "choose another `subnet` for the switch, or `address` for the NIC",
        );
    }
}

/// Returns the number of each node's first NIC.
pub(super) fn first_interface(file: &LabFile, problems: &mut Problems) -> usize {
    let mistake = |number| {
        (
            format!("a first interface eth{number} is not possible"),
            format!("from 0 to {FIRST_INTERFACE_MAX}"),
        )
    };
    let number = file.defaults.first_interface.as_ref();
    number.map_or(0, |number| {
        settings::within(number, &(0..=FIRST_INTERFACE_MAX), mistake, problems)
    })
}

fn cpus(file: &LabFile, node: &NodeFile, problems: &mut Problems) -> u32 {
    let Some(cpus) = node.cpus.as_ref().or(file.defaults.cpus.as_ref()) else {
        return 1;
    };
    let mistake = |cpus| {
        (
            format!("{cpus} processors are not possible"),
            format!("from 1 to {CPUS_MAX}"),
        )
    };
    settings::within(cpus, &(1..=CPUS_MAX), mistake, problems)
}
