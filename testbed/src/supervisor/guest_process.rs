//! The life of one guest: its QEMU is started, its agent is awaited, its end is noticed; on request it is started
//! again.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::process::{Signal, pidfd_send_signal};
use weft_agent::config::{FILES_DISK, GuestConfig, Host, HostFolder, Interface, ROOT_DISK};

use super::{
    LabState, Shared, boot_watch, cable_carrier, guest_files,
    guest_state::Guest,
    handle_of, lab_key,
    restore::{self, Incoming},
    thread,
    vnicd_process::describe,
};
use crate::{
    guest_channel::{ChannelError, GuestChannel},
    image::{Image, Recipe},
    lab::{Boot, Bypass, Lab, Nic, Node, host_name},
    qemu::{self, Machine, NicBackend, OnReboot, Qmp, SocketMode, Uplink},
    supervisor_client::protocol::LabPhase,
};

/// Time that a new QEMU may take until its sockets listen.
pub(super) const QEMU_START_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval at which a QEMU that has not opened its sockets yet is polled, since it may have ended.
pub(super) const QEMU_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the names of all sockets that guests of this lab need.
pub(super) fn socket_names(lab: &Lab) -> impl Iterator<Item = String> {
    let of_node = |node: &Node| ["agent", "events", "qmp", "serial"].map(|what| format!("{}.{what}", node.name));
    lab.nodes
        .iter()
        .flat_map(of_node)
        .chain(lab.ports().map(|(port, ..)| format!("{port}.sock")))
}

/// Returns whether the node's QEMU runs.
pub(super) fn runs(shared: &Shared, node: &str) -> bool {
    let inner = shared.inner();
    inner.nodes.get(node).is_some_and(|guest| guest.process.is_some())
}

/// Runs the thread of one guest, until the lab ends.
pub(super) fn keep(shared: &Arc<Shared>, node: &Node) {
    let Some(identity) = shared.inner().nodes.get(&node.name).map(Guest::identity) else {
        return;
    };
    loop {
        if shared.restore.is_to_start(&node.name) {
            // A restored guest does not boot, and none continues before all have read their states.
            shared.update_guest(&node.name, Guest::give_turn);
        } else if !boot_watch::wait_for_turn(shared, &node.name, identity) {
            return;
        }
        let started = Instant::now();
        let off = |note: String| shared.update_guest(&node.name, |guest| guest.ended(note));
        match start(shared, node) {
            Err(error) => off(format!("{error:#}")),
            Ok(Started {
                mut process,
                channel,
                number,
            }) => {
                let (listener, own, agent) = (Arc::clone(shared), node.clone(), channel.clone());
                let listen = move || listen_to_agent(&listener, &own, number, &agent, started);
                let listening = thread("agent", listen);
                let (listener, name) = (Arc::clone(shared), node.name.clone());
                let listen = move || listen_to_qemu(&listener, &name, number, &channel);
                let listening = listening.and(thread("events", listen));
                let ended = process.wait();
                let note = match (listening, ended) {
                    (Err(error), _) => format!("{error:#}"),
                    (_, Err(error)) => error.to_string(),
                    (_, Ok(status)) if status.success() => "switched off".to_owned(),
                    (_, Ok(status)) => {
                        let ended = format!("QEMU ended with {}", describe(status));
                        // A killed QEMU was killed on purpose; its last output has nothing to do with that.
                        let why = status.code().map(|_| process.last_words()).unwrap_or_default();
                        match why.lines().last() {
                            Some(why) => format!("{ended}: {why}"),
                            None => ended,
                        }
                    }
                };
                off(note);
            }
        }
        if shared.inner().phase != LabPhase::Stopping {
            cable_carrier::apply_to_far_ends(shared, &node.name);
        }
        let again = shared.wait_for(None, |inner| match (inner.phase, inner.nodes.get_mut(&node.name)) {
            (LabPhase::Stopping, _) | (_, None) => Some(false),
            (_, Some(guest)) => guest.take_restart().then(|| {
                guest.ask_for_turn();
                true
            }),
        });
        if again != Some(true) {
            return;
        }
    }
}

/// A QEMU that was started.
struct Started {
    process: qemu::QemuProcess,
    channel: GuestChannel,
    /// Number of the start, as [`Guest::launched`](super::guest_state::Guest::launched) returned it.
    number: u32,
}

fn start(shared: &Arc<Shared>, node: &Node) -> Result<Started> {
    let incoming = shared.restore.take(&node.name);
    let machine = machine(shared, node, incoming.as_ref())?;
    shared.restore.note_boot(&node.name, &machine.boot);
    let printed_before = std::fs::metadata(&machine.serial_log).map_or(0, |log| log.len());
    let mut process = shared
        .means()
        .qemu
        .spawn(&machine, &shared.state.file(&format!("{}.qemu.log", node.name)))?;
    shared.watch_child(process.pid());
    let handle = handle_of(process.pid())?;
    let agent = machine
        .agent_socket
        .as_deref()
        .context("a guest without agent socket")?;
    let (number, stopping) = shared.update(|inner| {
        let guest = inner.nodes.get_mut(&node.name);
        let number = guest.map(|guest| guest.launched(handle, process.pid(), printed_before));
        (number, inner.phase == LabPhase::Stopping)
    });
    let number = number.filter(|_| !stopping).context("the lab was ended meanwhile")?;
    if let Some(incoming) = &incoming {
        restore::load(shared, &node.name, incoming, &mut process)?;
    }
    let channel = connect(agent, &mut process)?;
    for card in 0..node.nics.len() {
        if !cable_carrier::has_carrier(shared, &node.name, card) {
            cable_carrier::apply(shared, &node.name, card)?;
        }
    }
    cable_carrier::apply_to_far_ends(shared, &node.name);
    shared.restore.note_loaded(&node.name);
    shared.update_guest(&node.name, |guest| guest.started(channel.clone()));
    Ok(Started {
        process,
        channel,
        number,
    })
}

/// Connects to the agent of a QEMU that was just started; gives up as soon as QEMU has ended.
fn connect(agent: &Path, process: &mut qemu::QemuProcess) -> Result<GuestChannel> {
    let deadline = Instant::now() + QEMU_START_TIMEOUT;
    loop {
        let error = match GuestChannel::connect(agent, QEMU_POLL_INTERVAL) {
            Ok(channel) => return Ok(channel),
            Err(error) => error,
        };
        if let Some(status) = process.try_wait()? {
            anyhow::bail!(
                "QEMU ended immediately ({}): {}",
                describe(status),
                process.last_words()
            );
        }
        if Instant::now() > deadline {
            return Err(error).with_context(|| format!("QEMU did not open its sockets: {}", process.last_words()));
        }
    }
}

/// Notes when the guest's agent answers and when it is gone, for as long as its QEMU lives.
fn listen_to_agent(shared: &Shared, own: &Node, start: u32, channel: &GuestChannel, started: Instant) {
    let node = &*own.name;
    let told = guest_config(&shared.lab(), own).hosts_file();
    let mut seen = 0;
    loop {
        match channel.wait_change(seen) {
            Ok(change) => seen = change,
            Err(ChannelError::Closed) => return,
            Err(error) => return shared.update_guest(node, |guest| guest.agent_failed(start, error.to_string())),
        }
        let boot_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        // The current state counts instead of the state at the change: `listen_to_qemu` changes it under this lock.
        shared.update_guest(node, |guest| match channel.welcome() {
            Some(welcome) => guest.answered(start, &welcome, boot_ms),
            None => guest.boots_again(start),
        });
        // A guest that boots anew reads the configuration that its QEMU was started with.
        if channel.welcome().is_some() && guest_config(&shared.lab(), own).hosts_file() != told {
            tell_hosts_to(shared, own, channel);
        }
    }
}

/// Tells all guests with Weft's agent the current names in the lab.
pub(super) fn tell_hosts(shared: &Shared) {
    for node in &shared.lab().nodes {
        let channel = shared
            .inner()
            .nodes
            .get(&node.name)
            .and_then(|guest| guest.channel.clone());
        if let Some(channel) = channel.filter(|channel| channel.welcome().is_some()) {
            tell_hosts_to(shared, node, &channel);
        }
    }
}

fn tell_hosts_to(shared: &Shared, node: &Node, channel: &GuestChannel) {
    let path = shared.state.file(&format!("{}.hosts", node.name));
    let written = std::fs::write(&path, guest_config(&shared.lab(), node).hosts_file());
    let told = written
        .map_err(Into::into)
        .and_then(|()| channel.copy_in(&path, "/etc/hosts"));
    if let Err(error) = told {
        tracing::warn!(node = node.name, %error, "the guest does not know the names of all nodes");
    }
}

/// Notes when the guest is reset, for as long as its QEMU lives: its agent answers only when it has started again.
fn listen_to_qemu(shared: &Shared, node: &str, start: u32, channel: &GuestChannel) {
    let events = loop {
        let connect = || {
            let socket = shared.state.socket(&format!("{node}.events"))?;
            anyhow::Ok(Qmp::connect(&socket, QEMU_POLL_INTERVAL)?.into_events()?)
        };
        match connect() {
            Ok(events) => break events,
            // QEMU has ended, which `keep` handles.
            Err(_) if channel.is_closed() => return,
            Err(error) => tracing::debug!(node, error = %format!("{error:#}"), "no events from QEMU yet"),
        }
    };
    for event in events {
        match event.as_str() {
            "RESET" => {
                let mut verdict = None;
                // Waits for an answer of the old agent fail when it is visible that the guest boots.
                shared.update_guest(node, |guest| {
                    verdict = guest.was_reset(start, Instant::now());
                    if !guest.has_panicked() {
                        channel.guest_was_reset();
                    }
                });
                if let Some(why) = verdict {
                    boot_watch::end(shared, node, start, why);
                }
            }
            "GUEST_PANICKED" => shared.update_guest(node, |guest| guest.panics(start)),
            _ => {}
        }
    }
}

fn machine(shared: &Shared, node: &Node, incoming: Option<&Incoming>) -> Result<Machine> {
    let state = &shared.state;
    let config_path = state.file(&format!("{}.json", node.name));
    std::fs::write(
        &config_path,
        serde_json::to_vec_pretty(&guest_config(&shared.lab(), node))?,
    )
    .with_context(|| format!("cannot write {}", config_path.display()))?;
    let mut nics = Vec::new();
    for (index, nic) in node.nics.iter().enumerate() {
        nics.push(qemu::Nic {
            mac: nic.mac,
            backend: NicBackend::VhostUser {
                socket: state.socket(&format!("{}.sock", node.port(index)))?,
                mode: SocketMode::QemuListens,
            },
            queue_pairs: nic.queue_pairs,
            iommu: nic.bypass.is_some_and(Bypass::needs_iommu),
            has_known_slot: nic.bypass.is_some(),
            speed_mbps: shared.settings().speed_mbps(&node.port(index), nic),
            // The usual MTU is advertised, too: otherwise a guest may set a larger one, and its frames would be
            // dropped.
            host_mtu: Some(u16::try_from(nic.mtu).unwrap_or(u16::MAX)),
        });
    }
    let mut boot = boot(shared, node, incoming)?;
    boot.seed = seed(shared, node)?;
    Ok(Machine {
        name: format!("{}.{}", shared.lab().name, node.name),
        cpus: node.cpus,
        memory_mib: node.memory_mib,
        accel: shared.means().accel,
        boot,
        nics,
        uplink: node.uplink.then(|| Uplink { mac: uplink_mac(node) }),
        agent_socket: Some(state.socket(&format!("{}.agent", node.name))?),
        qmp_socket: state.socket(&format!("{}.qmp", node.name))?,
        event_socket: Some(state.socket(&format!("{}.events", node.name))?),
        serial_log: state.file(&format!("{}.log", node.name)),
        serial_socket: Some(state.socket(&format!("{}.serial", node.name))?),
        guest_config: Some(config_path),
        on_reboot: OnReboot::BootAgain,
        incoming: incoming.is_some(),
    })
}

/// Returns what a node boots, or continues with.
fn boot(shared: &Shared, node: &Node, incoming: Option<&Incoming>) -> Result<qemu::Boot> {
    Ok(match &node.boot {
        _ if let Some(incoming) = incoming => incoming.boot.clone(),
        Boot::Recipe { image, append } => {
            let means = shared.means();
            let image = means.images.get(image).context("the guest image was not built")?;
            let mut boot = qemu::Boot {
                kernel: Some(image.kernel.clone()),
                initramfs: Some(image.initramfs.clone()),
                append: append.clone(),
                ..qemu::Boot::default()
            };
            attach(shared, node, image, &mut boot)?;
            boot
        }
        Boot::Kernel {
            kernel,
            initramfs,
            append,
        } => {
            let saved = shared.restore.saved(node).unwrap_or_default();
            qemu::Boot {
                kernel: saved.kernel.or_else(|| Some(kernel.clone())),
                initramfs: saved.initramfs.or_else(|| Some(initramfs.clone())),
                append: append.clone(),
                ..qemu::Boot::default()
            }
        }
        Boot::Disk { image, writable } => qemu::Boot {
            disk: Some(disk(image, *writable)?),
            ..qemu::Boot::default()
        },
    })
}

/// Attaches the disks and folders of a node's image and lab.
fn attach(shared: &Shared, node: &Node, image: &Image, boot: &mut qemu::Boot) -> Result<()> {
    let root = image.root.iter().map(|path| qemu::SharedDisk {
        serial: ROOT_DISK,
        path: path.clone(),
    });
    boot.shared_disks.extend(root);
    let saved = shared.restore.saved(node).unwrap_or_default().shared_disks;
    let saved = saved.into_iter().find(|disk| disk.serial == FILES_DISK);
    let key = match has_lab_key(node) {
        true => lab_key::files(&shared.state, &node.name, saved.as_ref().map(|disk| &*disk.path))?,
        false => Vec::new(),
    };
    if !node.setup.files.is_empty() || !key.is_empty() {
        let path = shared.state.file(&format!("{}.files", node.name));
        boot.shared_disks
            .push(match (guest_files::write(node, &key, &path), saved) {
                (Ok(()), _) => qemu::SharedDisk {
                    serial: FILES_DISK,
                    path,
                },
                // Where the lab continues, the sources of its files may be gone.
                (Err(error), Some(saved)) => {
                    let error = format!("{error:#}");
                    tracing::warn!(node = node.name, %error, "the guest gets the files that were saved with it");
                    saved
                }
                (Err(error), None) => return Err(error),
            });
    }
    let folders = node.setup.mount.iter().zip(0..);
    boot.host_folders.extend(folders.map(|(mount, index)| qemu::HostFolder {
        path: mount.from.clone(),
        tag: folder_tag(index),
        readonly: mount.readonly,
    }));
    Ok(())
}

/// Returns whether a node and others of its lab let each other in by a key of the lab.
fn has_lab_key(node: &Node) -> bool {
    matches!(&node.boot, Boot::Recipe { image, .. } if image.has_lab_key())
}

/// Returns the guest's name for its folder of the host with this number.
fn folder_tag(index: usize) -> String {
    format!("weft{index}")
}

/// Writes the seed for cloud-init, if the node uses it.
fn seed(shared: &Shared, node: &Node) -> Result<Option<PathBuf>> {
    let Some(cloud_init) = &node.cloud_init else {
        return Ok(None);
    };
    let read = |path: &PathBuf| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let mut keys = Vec::new();
    for path in &cloud_init.ssh_keys {
        let text =
            String::from_utf8(read(path)?).with_context(|| format!("{} is no public ssh key", path.display()))?;
        keys.extend(
            text.lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
                .map(str::to_owned),
        );
    }
    let means = shared.means();
    let agent = means
        .agent
        .as_ref()
        .filter(|_| cloud_init.agent)
        .map(read)
        .transpose()?;
    let image = crate::seed::image(&guest_config(&shared.lab(), node), cloud_init, &keys, agent.as_deref());
    let path = shared.state.file(&format!("{}.seed.iso", node.name));
    // The file may contain a password.
    std::fs::write(&path, image).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Some(path))
}

fn disk(image: &Path, writable: bool) -> Result<qemu::Disk> {
    let format = qemu::DiskFormat::of(image).with_context(|| format!("cannot read {}", image.display()))?;
    Ok(qemu::Disk {
        path: image.to_owned(),
        format,
        discard_writes: !writable,
    })
}

/// Returns the address of the user-mode NIC; it is alone on its network, so one for all nodes will do.
fn uplink_mac(node: &Node) -> ether::MacAddr {
    let mut mac = [0x52, 0x54, 0x00, 0xff, 0xff, 0x01];
    while node.nics.iter().any(|nic| nic.mac.0 == mac) {
        mac[5] += 1;
    }
    ether::MacAddr(mac)
}

/// Makes the configuration of the guest, with the names of the others.
fn guest_config(lab: &Lab, node: &Node) -> GuestConfig {
    let nics = node.nics.iter().enumerate();
    let mut interfaces: Vec<_> = nics
        .map(|(index, nic)| Interface {
            mac: nic.mac.to_string(),
            name: node.interface(index),
            addresses: addresses(node, nic).map(|(_, text)| text).collect(),
            mtu: Some(nic.mtu),
            // On a copy engine only the card itself would receive what IPv6 asks its neighbours.
            without_ipv6: nic.card.loopback && nic.address6.is_none(),
            gateway: None,
            bypass: nic.bypass.map(|bypass| bypass.name().to_owned()),
        })
        .collect();
    let mut nameservers = Vec::new();
    if node.uplink {
        interfaces.push(Interface {
            mac: uplink_mac(node).to_string(),
            name: "uplink".to_owned(),
            addresses: vec![Uplink::ADDRESS.to_owned()],
            mtu: None,
            // QEMU would announce a network there that leads nowhere on most hosts.
            without_ipv6: true,
            gateway: Uplink::GATEWAY.parse().ok(),
            bypass: None,
        });
        nameservers.extend(Uplink::NAMESERVER.parse::<std::net::IpAddr>());
    }
    let hosts = lab.nodes.iter().flat_map(|other| hosts_of(other, node.ipv6)).collect();
    let folders = node.setup.mount.iter().zip(0..);
    // What the image says comes first, so that the lab file may say otherwise.
    let (mut env, mut exec) = match &node.boot {
        Boot::Recipe { image, .. } => Recipe::of(image).into_env_and_exec(),
        Boot::Kernel { .. } | Boot::Disk { .. } => Default::default(),
    };
    env.extend(node.setup.env.clone());
    exec.extend_from_slice(&node.setup.exec);
    GuestConfig {
        hostname: host_name(&node.name),
        interfaces,
        hosts,
        nameservers,
        ipv6: node.ipv6,
        sysctl: node.setup.sysctl.clone(),
        env,
        mounts: folders
            .map(|(mount, index)| HostFolder {
                tag: folder_tag(index),
                to: mount.to.clone(),
                readonly: mount.readonly,
            })
            .collect(),
        exec,
    }
}

/// Returns the addresses of a node's card, alone and with their prefix length.
fn addresses(node: &Node, nic: &Nic) -> impl Iterator<Item = (IpAddr, String)> {
    let four = nic.address.map(|net| (net.address.into(), net.to_string()));
    let six = nic.address6.filter(|_| node.ipv6);
    four.into_iter()
        .chain(six.map(|net| (net.address.into(), net.to_string())))
}

/// Returns the names of a node, beginning with its host name: `n1` stands for its first address of each kind, and `n1.eth0` for a card. Only for a
/// reader `with_ipv6` are there IPv6 addresses.
fn hosts_of(node: &Node, with_ipv6: bool) -> impl Iterator<Item = Host> {
    let first: [Option<IpAddr>; 2] = [
        node.address().map(|net| net.address.into()),
        node.address6().map(|net| net.address.into()),
    ];
    let cards = node.nics.iter().enumerate();
    let all = cards.flat_map(move |(index, nic)| addresses(node, nic).map(move |(address, _)| (index, address)));
    all.filter(move |(_, address)| with_ipv6 || address.is_ipv4())
        .map(move |(index, address)| {
            let mut names = Vec::new();
            if first.contains(&Some(address)) {
                names.extend([host_name(&node.name), node.name.clone()]);
                names.dedup();
            }
            names.push(node.port(index));
            Host { address, names }
        })
}

/// Sends a signal to every QEMU.
pub(super) fn signal_all(shared: &Shared, signal: Signal) {
    for guest in shared.inner().nodes.values() {
        if let Some(process) = &guest.process {
            // A process that has ended meanwhile needs no signal.
            _ = pidfd_send_signal(process, signal);
        }
    }
}

/// Switches a node off and on again; returns when its new QEMU runs.
pub(super) fn restart(shared: &Shared, node: &str) -> Result<()> {
    let starts = shared.update(|inner| {
        let guest = inner.nodes.get_mut(node)?;
        if let Some(process) = &guest.process {
            // A QEMU that has ended meanwhile is as good as switched off.
            _ = pidfd_send_signal(process, Signal::TERM);
        }
        Some(guest.ask_for_restart())
    });
    let starts = starts.with_context(|| format!("there is no node {node} in this lab"))?;
    let outcome = |inner: &mut LabState| {
        let guest = inner.nodes.get(node)?;
        if inner.phase == LabPhase::Stopping {
            return Some(Err("the lab is being ended".to_owned()));
        }
        guest.restarted(starts)
    };
    match wait_for_start(shared, node, outcome) {
        Some(result) => result.map_err(anyhow::Error::msg),
        None => anyhow::bail!("{node} was not started again within {} s", QEMU_START_TIMEOUT.as_secs()),
    }
}

/// Waits for a condition of a node that is being started, for as long as that may take once its turn to boot has come.
pub(super) fn wait_for_start<T>(
    shared: &Shared,
    node: &str,
    mut outcome: impl FnMut(&mut LabState) -> Option<T>,
) -> Option<T> {
    let may_go_on = |guest: &Guest| {
        let has_time = |since: Instant| since.elapsed() < QEMU_START_TIMEOUT;
        guest.waits_for_turn() || guest.turn_since().is_some_and(has_time)
    };
    loop {
        let found = shared.wait_for(Some(Instant::now() + QEMU_START_TIMEOUT), &mut outcome);
        if found.is_some() || !shared.inner().nodes.get(node).is_some_and(may_go_on) {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_know_their_own_addresses_and_each_other() {
        let text = "name = \"pair\"\n\
            [[node]]\nname = \"n1\"\nuplink = true\nnic = [{}, {address = \"none\"}]\n[[node]]\nname = \"n2\"\n";
        let lab = Lab::parse(text, "lab.toml", "pair", Path::new("/")).expect("valid");
        let config = guest_config(&lab, &lab.nodes[0]);
        let names: Vec<_> = config
            .interfaces
            .iter()
            .map(|interface| interface.name.as_str())
            .collect();
        assert_eq!(names, ["eth0", "eth1", "uplink"]);
        assert_eq!(
            config.interfaces[0].addresses,
            ["10.77.1.1/24", "fd47:d8bd:4687:1::1/64"]
        );
        assert!(config.interfaces[1].addresses.is_empty());
        let n2: Vec<_> = config
            .hosts
            .iter()
            .filter(|host| host.names == ["n2", "n2.eth0"])
            .collect();
        assert_eq!(n2.len(), 2, "by IPv4 and by IPv6");
        assert_eq!(config.nameservers.len(), 1);
        assert_eq!(guest_config(&lab, &lab.nodes[1]).interfaces.len(), 1);

        let without = format!("{text}ipv6 = false\n");
        let lab = Lab::parse(&without, "lab.toml", "pair", Path::new("/")).expect("valid");
        let config = guest_config(&lab, &lab.nodes[1]);
        assert!(!config.ipv6 && config.hosts.iter().all(|host| host.address.is_ipv4()));
        let of_n1 = guest_config(&lab, &lab.nodes[0]).hosts;
        assert!(of_n1.iter().all(|host| host.address.is_ipv4() || host.names[0] == "n1"));
    }
}
