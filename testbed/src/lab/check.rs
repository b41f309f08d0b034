//! From the file as written to a checked lab: names, references, limits, addresses. Collects every mistake instead of
//! stopping at the first. Values of single keys are checked where they are read (`units`, `settings`).

use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
};

use ether::MacAddr;
use toml::Spanned;

use super::{
    Boot, CPUS_MAX, CloudInit, ImageSpec, Ipv4Net, Ipv6Net, Lab, NAME_LEN_MAX, NICS_MAX, NODES_MAX, Nic, Node,
    OwnKernel, Problem, QUEUE_PAIRS_MAX, SWITCHES_MAX, Setup, Trunk, count, domains::Domains, error::nearest, file::*,
    settings, setup, switch,
};
use crate::vnicd_client::report::{PortLinks, TrunkLinks};

/// Smallest guest memory.
const MEMORY_MIB_MIN: u64 = crate::qemu::arguments::MEMORY_MIB_MIN as u64;
/// Longest name of a user, as Debian's tools take it.
const USER_NAME_LEN_MAX: usize = 32;
/// Largest guest memory.
const MEMORY_MIB_MAX: u64 = 64 << 10;
/// Memory of a node that says nothing.
const MEMORY_MIB_DEFAULT: u32 = crate::qemu::arguments::MEMORY_MIB_MIN;
/// The same with folders of the host.
const MEMORY_MIB_HOST_FOLDERS_DEFAULT: u32 = 192;
/// The same with a root file system on a disk.
const MEMORY_MIB_ON_DISK_DEFAULT: u32 = 256;

/// Mistakes found so far.
#[derive(Default)]
pub(super) struct Problems(Vec<Problem>);

impl Problems {
    /// Notes a mistake; the same one at the same place (a default used many times) counts once.
    pub(super) fn add(&mut self, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        let problem = Problem {
            span,
            message: message.into(),
            help: help.into(),
        };
        if !self.0.contains(&problem) {
            self.0.push(problem);
        }
    }
}

/// Checks `file`. What it does not state stays as it is with the nodes and trunks that are in `before`, too.
pub(super) fn check(file: LabFile, stem: &str, folder: &Path, before: Option<&Lab>) -> Result<Lab, Vec<Problem>> {
    let mut problems = Problems::default();
    let file = &LabFile {
        node: count::expand(&file.node, &mut problems),
        ..file
    };
    let name = match &file.name {
        Some(name) => checked_name(name, "lab", &mut problems),
        None if name_is_valid(stem) => stem.to_owned(),
        None => "lab".to_owned(),
    };
    let (switches, first_named) = check_switches(file, &mut problems);
    let switch_settings = switch::settings(file, &mut problems);
    let mut domains = Domains::new(&switches);
    let trunks = check_trunks(file, &switches, before, &mut domains, &mut problems);
    domains.set_subnets(file, &switches, &mut problems);
    domains.set_subnets6(&name, file, &switches, &mut problems);
    let nodes = Nodes {
        file,
        folder,
        before,
        switches: &switches,
        names: first_named,
        macs: BTreeMap::new(),
    }
    .check(&mut domains, &mut problems);
    if problems.0.is_empty() {
        Ok(Lab {
            name,
            switches,
            switch_settings,
            nodes,
            trunks,
        })
    } else {
        Err(problems.0)
    }
}

/// Whether a lab, node or switch may have this name.
pub(crate) fn name_is_valid(name: &str) -> bool {
    (1..=NAME_LEN_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
}

fn checked_name(name: &Spanned<String>, what: &str, problems: &mut Problems) -> String {
    if !name_is_valid(name.get_ref()) {
        problems.add(
            name.span(),
            format!("\"{}\" cannot be the name of a {what}", name.get_ref()),
            format!("up to {NAME_LEN_MAX} lower-case letters, digits and dashes, a letter first"),
        );
    }
    name.get_ref().clone()
}

/// Names of nodes and switches share one space, so that `weft` never has to ask which is meant.
fn check_unique(
    name: &Spanned<String>,
    what: &'static str,
    taken: &mut BTreeMap<String, &'static str>,
    problems: &mut Problems,
) {
    if let Some(other) = taken.insert(name.get_ref().clone(), what) {
        let article = if other == what { "another" } else { "a" };
        problems.add(
            name.span(),
            format!("the name \"{}\" is taken by {article} {other}", name.get_ref()),
            "nodes and switches need names of their own",
        );
    }
}

fn check_switches(file: &LabFile, problems: &mut Problems) -> (Vec<String>, BTreeMap<String, &'static str>) {
    let mut taken = BTreeMap::new();
    if file.switch.is_empty() {
        return (vec!["s1".to_owned()], taken);
    }
    for switch in &file.switch {
        checked_name(&switch.name, "switch", problems);
        check_unique(&switch.name, "switch", &mut taken, problems);
    }
    if let Some(first_too_many) = file.switch.get(SWITCHES_MAX) {
        problems.add(
            first_too_many.name.span(),
            format!("a lab of {} switches is too large", file.switch.len()),
            format!("at most {SWITCHES_MAX} switches"),
        );
    }
    (
        file.switch.iter().map(|switch| switch.name.get_ref().clone()).collect(),
        taken,
    )
}

/// Position of the switch of that name; notes a mistake when there is none.
fn find_switch(name: &Spanned<String>, switches: &[String], problems: &mut Problems) -> Option<usize> {
    let found = switches.iter().position(|switch| switch == name.get_ref());
    if found.is_none() {
        let near = nearest(name.get_ref(), switches.iter().map(String::as_str));
        let hint = near.map_or(String::new(), |near| format!("did you mean \"{near}\"? "));
        problems.add(
            name.span(),
            format!("there is no switch \"{}\"", name.get_ref()),
            format!("{hint}The switches of this lab: {}", switches.join(", ")),
        );
    }
    found
}

/// Places for things of these `keys`: who had one `before` keeps it, others get the lowest that are free.
fn places<K: PartialEq>(keys: &[K], before: &[(K, usize)]) -> Vec<usize> {
    let mut left: Vec<_> = before.iter().collect();
    let kept: Vec<_> = keys
        .iter()
        .map(|key| {
            let found = left.iter().position(|(other, _)| other == key)?;
            Some(left.remove(found).1)
        })
        .collect();
    let mut free = (0..).filter(|place| !kept.contains(&Some(*place)));
    let place = |kept: &Option<usize>| kept.or_else(|| free.next()).unwrap_or_default();
    kept.iter().map(place).collect()
}

fn check_trunks(
    file: &LabFile,
    switches: &[String],
    before: Option<&Lab>,
    domains: &mut Domains,
    problems: &mut Problems,
) -> Vec<Trunk> {
    let mut trunks = Vec::new();
    let mut loops = switch::Loops::new(file, switches);
    let between = |trunk: &TrunkFile| trunk.between.get_ref().0.each_ref().map(|end| end.get_ref().clone());
    let keys: Vec<_> = file.trunk.iter().map(between).collect();
    let known = before.iter().flat_map(|lab| &lab.trunks);
    let known: Vec<_> = known
        .map(|trunk| ([trunk.a.clone(), trunk.b.clone()], trunk.place))
        .collect();
    for (trunk, place) in file.trunk.iter().zip(places(&keys, &known)) {
        let ends = trunk
            .between
            .get_ref()
            .0
            .each_ref()
            .map(|end| find_switch(end, switches, problems));
        let defaults = Some(&file.defaults.link);
        let link = TrunkLinks {
            a_to_b: settings::link(&[defaults, trunk.link.as_ref(), trunk.link_forth.as_ref()], problems),
            b_to_a: settings::link(&[defaults, trunk.link.as_ref(), trunk.link_back.as_ref()], problems),
        };
        let [Some(a), Some(b)] = ends else { continue };
        if !loops.allows(a, b, trunk) {
            problems.add(trunk.between.span(), switch::LOOP.0, switch::LOOP.1);
        }
        _ = domains.join(a, b);
        let mut link = link;
        // Seeds of trunks start where those of any number of NICs have ended.
        let number = NODES_MAX * NICS_MAX + place;
        seed_directions(number, &mut link.a_to_b.seed, &mut link.b_to_a.seed);
        trunks.push(Trunk {
            place,
            a: switches[a].clone(),
            b: switches[b].clone(),
            vlans: switch::of_trunk(trunk, problems),
            aggregate: trunk
                .aggregate
                .as_ref()
                .map(|name| checked_name(name, "aggregate", problems)),
            stp_cost: switch::cost_of(trunk, problems),
            link,
        });
    }
    trunks
}

/// Gives both directions of the `index`-th cable seeds unlike those of all other cables.
fn seed_directions(index: usize, one: &mut u64, other: &mut u64) {
    let number = index as u64 * 2;
    *one = one.wrapping_add(number);
    *other = other.wrapping_add(number + 1);
}

/// What the checks of nodes look at and remember.
struct Nodes<'a> {
    file: &'a LabFile,
    folder: &'a Path,
    before: Option<&'a Lab>,
    switches: &'a [String],
    names: BTreeMap<String, &'static str>,
    macs: BTreeMap<MacAddr, String>,
}

impl Nodes<'_> {
    fn check(mut self, domains: &mut Domains, problems: &mut Problems) -> Vec<Node> {
        if self.file.node.is_empty() {
            problems.add(
                0..0,
                "this lab has no node",
                "add at least one: [[node]] with name = \"n1\"",
            );
        }
        if let Some(first_too_many) = self.file.node.get(NODES_MAX) {
            let message = format!("a lab of more than {NODES_MAX} nodes is too large");
            problems.add(
                first_too_many.name.span(),
                message,
                format!("at most {NODES_MAX} nodes"),
            );
            return Vec::new();
        }
        self.take_stated_addresses(domains, problems);
        self.take_kept_addresses(domains);
        let file = self.file;
        let mut nodes = Vec::new();
        let names: Vec<_> = file.node.iter().map(|node| node.name.get_ref().clone()).collect();
        let known = self.before.iter().flat_map(|lab| &lab.nodes);
        let known: Vec<_> = known.map(|node| (node.name.clone(), node.place)).collect();
        for (place, node) in places(&names, &known).into_iter().zip(&file.node) {
            let name = checked_name(&node.name, "node", problems);
            check_unique(&node.name, "node", &mut self.names, problems);
            let one_nic = [NicFile::default()];
            let written = node.nic.as_deref().unwrap_or(&one_nic);
            if written.len() > NICS_MAX {
                let message = format!("node {name} has {} NICs", written.len());
                problems.add(node.name.span(), message, format!("at most {NICS_MAX}"));
            }
            let nics = (0..).zip(written.iter().take(NICS_MAX));
            let nics = nics
                .filter_map(|(index, nic)| self.check_nic(nic, &node.name, (place, index), domains, problems))
                .collect();
            let nics: Vec<Nic> = nics;
            let subnets = domains.subnets.iter().map(|(net, _)| *net);
            // With VLANs a NIC may be of a network that is no switch's.
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
            let boot = self.boot(node, problems);
            let own = match &boot {
                Boot::Recipe { .. } => setup::setup(&file.defaults, node, self.folder, problems),
                Boot::Kernel { .. } | Boot::Disk { .. } => {
                    setup::refuse(node, problems);
                    Setup::default()
                }
            };
            nodes.push(Node {
                place,
                cpus: self.cpus(node, problems),
                memory_mib: self.memory_mib(node, &boot, problems),
                nics,
                uplink: node.uplink.unwrap_or(false),
                ipv6: node.ipv6.or(file.defaults.ipv6).unwrap_or(true),
                cloud_init: self.cloud_init(node, &boot, problems),
                boot,
                setup: own,
                labels: setup::labels(&file.defaults, node, problems),
                name,
            });
        }
        nodes
    }

    fn cpus(&self, node: &NodeFile, problems: &mut Problems) -> u32 {
        let Some(cpus) = node.cpus.as_ref().or(self.file.defaults.cpus.as_ref()) else {
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

    fn memory_mib(&self, node: &NodeFile, boot: &Boot, problems: &mut Problems) -> u32 {
        let (min, default, why) = match boot {
            Boot::Recipe { image, .. } if image.root_is_on_disk() => (
                setup::DISK_MEMORY_MIB_MIN,
                MEMORY_MIB_ON_DISK_DEFAULT,
                " (with `packages`, or `image = \"network\"`)",
            ),
            Boot::Recipe { image, .. } if image.host_folders => (
                setup::HOST_FOLDERS_MEMORY_MIB_MIN,
                MEMORY_MIB_HOST_FOLDERS_DEFAULT,
                " (with `mount`)",
            ),
            _ => (MEMORY_MIB_MIN, MEMORY_MIB_DEFAULT, ""),
        };
        let Some(memory) = node.memory.as_ref().or(self.file.defaults.memory.as_ref()) else {
            return default;
        };
        let size = *memory.get_ref();
        let mib = size.0 >> 20;
        if !(min..=MEMORY_MIB_MAX).contains(&mib) || size.0 % (1 << 20) != 0 {
            let help = format!("whole MiB from {min}M{why} to {}G", MEMORY_MIB_MAX >> 10);
            problems.add(memory.span(), format!("a guest cannot have {size} of memory"), help);
        }
        u32::try_from(mib).unwrap_or(u32::MAX)
    }

    fn cloud_init(&self, node: &NodeFile, boot: &Boot, problems: &mut Problems) -> Option<CloudInit> {
        let key = node.cloud_init.as_ref()?;
        let written = match key.get_ref() {
            CloudInitKey::Flag(false) => return None,
            CloudInitKey::Flag(true) => CloudInitFile::default(),
            CloudInitKey::Table(table) => table.clone(),
        };
        if matches!(boot, Boot::Recipe { .. }) {
            let help = "it is for images of your own: name one with `disk` or `initramfs`, or leave `cloud_init` out";
            problems.add(
                key.span(),
                "`cloud_init` has no effect without `disk` or `initramfs`",
                help,
            );
        }
        let name_is_plain = |name: &String| {
            name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.len() <= USER_NAME_LEN_MAX
                && name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
        };
        if let Some(name) = written.user.as_ref().filter(|name| !name_is_plain(name)) {
            let help =
                format!("up to {USER_NAME_LEN_MAX} lower-case letters, digits, dashes and underscores, a letter first");
            problems.add(key.span(), format!("\"{name}\" cannot be the name of a user"), help);
        }
        let mut ssh_keys = Vec::new();
        for path in &written.ssh_keys {
            let full = self.folder.join(path);
            if !full.is_file() {
                let help = "a path to a public key, such as id_ed25519.pub, relative to the lab file";
                problems.add(key.span(), format!("there is no ssh key {}", full.display()), help);
            }
            ssh_keys.push(full);
        }
        Some(CloudInit {
            user: written.user,
            password: written.password,
            ssh_keys,
            agent: written.agent.unwrap_or(true),
        })
    }

    fn boot(&self, node: &NodeFile, problems: &mut Problems) -> Boot {
        let append = node
            .append
            .as_ref()
            .map(|text| text.get_ref().clone())
            .unwrap_or_default();
        let path = |path: &Spanned<PathBuf>, what: &str, problems: &mut Problems| {
            let full = self.folder.join(path.get_ref());
            if !full.is_file() {
                let message = format!("there is no {what} {}", full.display());
                problems.add(path.span(), message, "a path to a file, relative to the lab file");
            }
            full
        };
        let disk = node.disk.as_ref().map(|disk| path(disk, "disk image", problems));
        let kernel = node.kernel.as_ref().map(|kernel| path(kernel, "kernel", problems));
        let initramfs = node
            .initramfs
            .as_ref()
            .map(|initramfs| path(initramfs, "initramfs", problems));
        if let (None, Some(writable)) = (&disk, &node.disk_writable) {
            problems.add(
                writable.span(),
                "`disk_writable` without a `disk`",
                "name the image: disk = \"image.qcow2\"",
            );
        }
        let modules = node.modules.as_ref().map(|modules| {
            let full = self.folder.join(modules.get_ref());
            if !full.is_dir() {
                let message = format!("there is no folder {}", full.display());
                problems.add(modules.span(), message, "a folder like /lib/modules/VERSION");
            }
            if node.kernel.is_none() {
                problems.add(
                    modules.span(),
                    "`modules` without a `kernel`",
                    "name both, or neither for our recipe's",
                );
            }
            full
        });
        match (disk, kernel, initramfs) {
            (Some(image), None, None) => {
                if let Some(append) = &node.append {
                    let help = "a disk image boots with its own command line: leave `append` out";
                    problems.add(append.span(), "`append` has no effect with `disk`", help);
                }
                let writable = node.disk_writable.as_ref().is_some_and(|writable| *writable.get_ref());
                Boot::Disk { image, writable }
            }
            (None, Some(kernel), Some(initramfs)) => Boot::Kernel {
                kernel,
                initramfs,
                append,
            },
            (None, kernel, None) => {
                let kernel = kernel.map(|kernel| OwnKernel { kernel, modules });
                let image = setup::image(&self.file.defaults, node, kernel, problems);
                Boot::Recipe { image, append }
            }
            (disk, ..) => {
                let keys = [&node.kernel, &node.initramfs];
                let span = keys.into_iter().flatten().next().map_or(0..0, Spanned::span);
                let message = match disk {
                    Some(_) => "a node boots either from `disk` or from `kernel`",
                    None => "`initramfs` needs its `kernel`",
                };
                let help = "name `kernel` with or without `initramfs`, or only `disk`, or nothing for our recipe";
                problems.add(span, message, help);
                Boot::Recipe {
                    image: ImageSpec::default(),
                    append,
                }
            }
        }
    }

    /// Stated addresses are taken before any is given out, so that the order in the file does not matter.
    fn take_stated_addresses(&self, domains: &mut Domains, problems: &mut Problems) {
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

    /// Addresses that nobody states but that nodes have already are not given to others.
    fn take_kept_addresses(&self, domains: &mut Domains) {
        for node in &self.file.node {
            for (index, nic) in node.nic.as_deref().unwrap_or(&[NicFile::default()]).iter().enumerate() {
                if let Some(kept) = self.kept_address(nic, node.name.get_ref(), index, domains) {
                    let domain = self.switch_of(nic).map_or(0, |switch| domains.of_switch[switch]);
                    domains.kept[domain].insert(kept.address);
                }
            }
        }
    }

    /// The address that this NIC has already, if the file states none and nobody else states that one.
    fn kept_address(&self, nic: &NicFile, node: &str, index: usize, domains: &Domains) -> Option<Ipv4Net> {
        let domain = domains.of_switch[self.switch_of(nic).filter(|_| nic.address.is_none())?];
        let kept = self.before?.node(node)?.nics.get(index)?.address?;
        let is_stated = domains.taken[domain].contains(&kept.address);
        (kept.network() == domains.subnets[domain].0 && !is_stated).then_some(kept)
    }

    fn switch_of(&self, nic: &NicFile) -> Option<usize> {
        match &nic.switch {
            _ if is_loopback(nic) => None,
            Some(name) => self.switches.iter().position(|switch| switch == name.get_ref()),
            None => (self.switches.len() == 1).then_some(0),
        }
    }

    fn check_nic(
        &mut self,
        nic: &NicFile,
        node: &Spanned<String>,
        (place, nic_index): (usize, usize),
        domains: &mut Domains,
        problems: &mut Problems,
    ) -> Option<Nic> {
        let switch = match &nic.switch {
            Some(name) => find_switch(name, self.switches, problems)?,
            None if self.switches.len() == 1 || is_loopback(nic) => 0,
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
                return None;
            }
        };
        let domain = domains.of_switch[switch];
        let defaults = &self.file.defaults;
        let mac = self.mac(nic, node, (place, nic_index), problems);
        let kept = self.kept_address(nic, node.get_ref(), nic_index, domains);
        let address = nic_address(nic, node, (domain, kept), domains, problems);
        let address6 = nic_address6(nic, node, (domain, address), domains, problems);
        let queue_pairs = nic.queue_pairs.as_ref().or(defaults.nic.queue_pairs.as_ref());
        let mistake = |pairs| {
            (
                format!("{pairs} queue pairs are not possible"),
                format!("from 1 to {QUEUE_PAIRS_MAX}"),
            )
        };
        let queue_pairs = queue_pairs.map_or(1, |pairs| {
            settings::within(pairs, &(1..=QUEUE_PAIRS_MAX), mistake, problems)
        });
        let mtu = nic
            .mtu
            .as_ref()
            .or(defaults.nic.mtu.as_ref())
            .map_or(1500, |mtu| settings::mtu_within(mtu, problems));
        let cable = [Some(&defaults.link), nic.link.as_ref()];
        let mut link = PortLinks {
            to_guest: settings::link(&[cable[0], cable[1], nic.link_to_guest.as_ref()], problems),
            from_guest: settings::link(&[cable[0], cable[1], nic.link_from_guest.as_ref()], problems),
        };
        seed_directions(
            place * NICS_MAX + nic_index,
            &mut link.to_guest.seed,
            &mut link.from_guest.seed,
        );
        let loopback = settings::loopback(nic, queue_pairs, problems);
        if loopback {
            link = PortLinks::default();
        }
        let coalescing = [defaults.nic.coalescing.as_ref(), nic.coalescing.as_ref()];
        Some(Nic {
            switch: self.switches[switch].clone(),
            mac,
            address,
            address6,
            queue_pairs,
            mtu,
            offloads: nic.offloads.or(defaults.nic.offloads).unwrap_or(true),
            loopback,
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
        let port = super::port_name(node.get_ref(), nic_index);
        if let Some(other) = self.macs.insert(mac, port) {
            let message = format!("the MAC address {mac} is taken by {other}");
            problems.add(span, message, "every NIC needs its own: leave `mac` out to get one");
        }
        mac
    }
}

fn is_loopback(nic: &NicFile) -> bool {
    nic.loopback.as_ref().is_some_and(|on| *on.get_ref())
}

fn nic_address(
    nic: &NicFile,
    node: &Spanned<String>,
    (domain, kept): (usize, Option<Ipv4Net>),
    domains: &mut Domains,
    problems: &mut Problems,
) -> Option<Ipv4Net> {
    let subnet = domains.subnets[domain].0;
    let Some(text) = &nic.address else {
        if is_loopback(nic) {
            // Nobody could answer.
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
        Ok(address) if address.network() != subnet && !is_loopback(nic) && !nic.has_vlans() => {
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

/// The IPv6 address of a NIC: as the file says, or with the host number of its IPv4 address.
fn nic_address6(
    nic: &NicFile,
    node: &Spanned<String>,
    (domain, address): (usize, Option<Ipv4Net>),
    domains: &mut Domains,
    problems: &mut Problems,
) -> Option<Ipv6Net> {
    let subnet = domains.subnets6[domain].0;
    let (found, span) = match &nic.address6 {
        None if is_loopback(nic) => return None,
        None => {
            let address = address?;
            if address.network() != domains.subnets[domain].0 {
                // A VLAN with a network of its own.
                return None;
            }
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
            (found?, node.span())
        }
        Some(text) if text.get_ref() == "none" => return None,
        Some(text) => match text.get_ref().parse::<Ipv6Net>() {
            Err(message) => {
                problems.add(text.span(), message, "write it as \"fd00::7/64\", or \"none\"");
                return None;
            }
            Ok(stated) if stated.network() != subnet && !is_loopback(nic) && !nic.has_vlans() => {
                let message = format!("{stated} is not in the network {subnet} of this switch");
                problems.add(
                    text.span(),
                    message,
                    "the same network for every NIC on a switch: set its `subnet6`",
                );
                return None;
            }
            Ok(stated) if !stated.is_host() => {
                problems.add(
                    text.span(),
                    format!("{stated} is not an address of a host"),
                    "such as \"fd00::7/64\"",
                );
                return None;
            }
            Ok(stated) => (stated, text.span()),
        },
    };
    if is_loopback(nic) {
        return Some(found);
    }
    let is_stated = nic.address6.is_some();
    let was_stated = domains.taken6[domain].insert(found.address, is_stated);
    // Two that are both made from an IPv4 address are alike because that one was taken twice, which was said.
    if was_stated.is_some_and(|was_stated| was_stated || is_stated) {
        let message = format!("the address {} is taken by another NIC", found.address);
        let help = "another one; those that no `address6` states have the host number of the IPv4 address";
        problems.add(span, message, help);
    }
    Some(found)
}
