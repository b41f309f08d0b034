//! The argument list of a machine that works on every supported QEMU (`docs/spec/qemu.md`, section 2). This module
//! checks what QEMU would answer with an obscure message; it starts nothing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::guest_memory::MEMORY_MIB_MIN;

use super::{Accel, Qemu, QemuError, SOCKET_PATH_LEN_MAX, accel::accel_argument};

/// Largest number of processors of a guest that Debian's QEMU and the q35 machine accept without further options.
pub const CPUS_MAX: u32 = 255;

/// Largest number of NICs of a guest, uplink included: the free slots of the q35 root bus.
pub const NICS_MAX: usize = 24;

/// The slots of the q35 root bus for cards whose place is known. The chipset has the slot behind the last one.
const FIRST_KNOWN_SLOT: usize = 0x10;
const LAST_SLOT: usize = 0x1e;

/// Largest number of queue pairs of a NIC, which is within QEMU's 1024 vectors.
pub use vnicd_protocol::QUEUE_PAIRS_MAX;

/// Kernel command line of every guest that boots one of Weft's kernels: console on the serial line, restart at a panic,
/// no mitigations and no clearing of allocated memory (they cost time under TCG and protect nothing here), no
/// self-tests of ciphers (a sixth of the time that a kernel takes under TCG), no test whether the timer interrupts (which
/// panics where a busy machine gives an emulated guest no processor in time), and a root file system that may use all memory
/// instead of half of it.
pub const KERNEL_COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 mitigations=off init_on_alloc=0 cryptomgr.notests \
                                       no_timer_check tsc=reliable rootfstype=ramfs";

/// The machine of a guest.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Name of the process (`-name`).
    pub name: String,
    /// Number of processors, 1 to [`CPUS_MAX`].
    pub cpus: u32,
    /// Memory in MiB, at least `MEMORY_MIB_MIN`. The host needs about 70 MiB more.
    pub memory_mib: u32,
    /// Accelerator that runs the guest's instructions.
    pub accel: Accel,
    /// What the guest boots.
    pub boot: Boot,
    /// Cards in the order of `eth0`, `eth1`, ….
    pub nics: Vec<Nic>,
    /// Card on QEMU's user-mode network behind the others.
    pub uplink: Option<Uplink>,
    /// Socket on which QEMU listens for the client of `weft-agent`; `None` means no agent port.
    pub agent_socket: Option<PathBuf>,
    /// Socket on which QEMU listens for QMP, for one client at a time.
    pub qmp_socket: PathBuf,
    /// Socket on which QEMU listens for a second QMP client, which receives events all the time.
    pub event_socket: Option<PathBuf>,
    /// File that all output of the serial line is appended to.
    pub serial_log: PathBuf,
    /// Socket on which QEMU listens for input on the serial line (a guest without agent has no other console).
    pub serial_socket: Option<PathBuf>,
    /// File with the [`weft_agent::config::GuestConfig`] as JSON; read once, when QEMU starts.
    pub guest_config: Option<PathBuf>,
    /// What a reboot of the guest does.
    pub on_reboot: OnReboot,
    /// Whether QEMU waits for a saved state ([`super::Qmp::begin_restore`]) instead of booting, and then for the order
    /// to continue.
    pub incoming: bool,
}

impl Machine {
    /// Returns the paths at which QEMU listens, except those of the cards.
    pub(super) fn listening_sockets(&self) -> impl Iterator<Item = &PathBuf> {
        let optional = [&self.agent_socket, &self.event_socket, &self.serial_socket];
        [&self.qmp_socket].into_iter().chain(optional.into_iter().flatten())
    }
}

/// The action when the guest reboots or its kernel panics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnReboot {
    /// The guest boots again in the running QEMU, as a real machine does.
    #[default]
    BootAgain,
    /// QEMU exits.
    Exit,
}

/// What a guest boots: a kernel, a disk, or a kernel with its root on the disk. At least one of them is required.
#[derive(Clone, Debug, Default)]
pub struct Boot {
    /// Kernel image.
    pub kernel: Option<PathBuf>,
    /// Initramfs; only with a kernel.
    pub initramfs: Option<PathBuf>,
    /// Words added to [`KERNEL_COMMAND_LINE`]; only with a kernel.
    pub append: String,
    /// First disk, `/dev/vda`.
    pub disk: Option<Disk>,
    /// Image with the settings for cloud-init: a read-only disk behind the first.
    pub seed: Option<PathBuf>,
    /// Raw disks that the guest finds by their serial numbers and only reads; several guests may share one.
    pub shared_disks: Vec<SharedDisk>,
    /// Folders of the host.
    pub host_folders: Vec<HostFolder>,
}

/// A disk that is only read.
#[derive(Clone, Debug)]
pub struct SharedDisk {
    /// Serial number of at most 20 characters.
    pub serial: &'static str,
    /// Path of the image file.
    pub path: PathBuf,
}

/// A folder of the host, by virtio-9p. The guest has the rights of QEMU's own user there; owners of files cannot be
/// changed.
#[derive(Clone, Debug)]
pub struct HostFolder {
    /// Path of the folder.
    pub path: PathBuf,
    /// Name that the guest mounts.
    pub tag: String,
    /// Whether QEMU refuses every change.
    pub readonly: bool,
}

/// A disk image.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Path of the image file.
    pub path: PathBuf,
    /// Format of the image; QEMU never guesses it, since a guest can write a raw image that looks like another format.
    pub format: DiskFormat,
    /// Whether the guest's writes are discarded at its end.
    pub discard_writes: bool,
}

/// The formats of a disk image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFormat {
    /// The raw format: bytes without structure.
    Raw,
    /// The qcow2 format of QEMU.
    Qcow2,
}

impl DiskFormat {
    /// Detects the format from the file's first bytes.
    ///
    /// # Errors
    /// Fails when the file cannot be read.
    pub fn of(path: &Path) -> std::io::Result<Self> {
        use std::io::Read;
        let mut magic = Vec::new();
        std::fs::File::open(path)?.take(4).read_to_end(&mut magic)?;
        Ok(if magic == b"QFI\xfb" { Self::Qcow2 } else { Self::Raw })
    }
}

/// The side that listens on a vhost-user socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SocketMode {
    /// The backend (`vnicd`) listens, QEMU connects and reconnects.
    #[default]
    BackendListens,
    /// QEMU listens, and the backend connects. The guest does not boot before that.
    QemuListens,
}

/// The backends that move a card's frames.
#[derive(Clone, Debug)]
pub enum NicBackend {
    /// A vhost-user device such as `vnicd`: a programmable card.
    VhostUser {
        /// Path of the vhost-user socket.
        socket: PathBuf,
        /// Side that listens there.
        mode: SocketMode,
    },
    /// QEMU itself, with a tap device of the host: an ordinary card for comparison.
    Tap {
        /// Name of the device; it exists, is up, and is in the network namespace that QEMU is started in.
        interface: String,
    },
}

/// A card of the machine.
#[derive(Clone, Debug)]
pub struct Nic {
    /// MAC address.
    pub mac: ether::MacAddr,
    /// Backend that moves the frames.
    pub backend: NicBackend,
    /// Number of queue pairs, 1 to [`QUEUE_PAIRS_MAX`].
    pub queue_pairs: u16,
    /// Whether the card reaches the guest's memory through an IOMMU, for a program of the guest that drives it.
    pub iommu: bool,
    /// Whether the card's place on the PCI bus follows from its number ([`Nic::slot`]), for a program of the guest that
    /// drives it.
    pub has_known_slot: bool,
    /// Speed that the card tells the guest, in Mbit/s, full duplex. Without one a guest's driver says `Unknown!`, and bonding with
    /// LACP takes no port into its aggregate.
    pub speed_mbps: u32,
    /// MTU that the card tells the guest; it needs a backend that supports VIRTIO_NET_F_MTU.
    pub host_mtu: Option<u16>,
}

impl Nic {
    /// Speed of a card whose cable has no rate.
    pub const SPEED_MBPS_DEFAULT: u32 = 10_000;

    /// Returns the slot on the PCI bus of card number `index`, if its place is known: behind all that QEMU puts there by
    /// itself, from the lowest free slot on.
    #[must_use]
    pub fn slot(index: usize) -> Option<usize> {
        Some(FIRST_KNOWN_SLOT + index).filter(|slot| *slot <= LAST_SLOT)
    }

    /// Returns QEMU's name for the link of card number `index`, as [`super::Qmp::set_link`] needs it.
    #[must_use]
    pub fn link_name(index: usize) -> String {
        format!("nic{index}")
    }

    /// Returns QEMU's name for the vhost-user socket of card number `index`, as [`super::Qmp::socket_is_connected`]
    /// needs it.
    #[must_use]
    pub fn socket_name(index: usize) -> String {
        format!("nicsocket{index}")
    }
}

/// A card on QEMU's user-mode network: the guest reaches what the host's user reaches, and cannot be reached itself.
/// The guest's address there is [`Uplink::ADDRESS`].
#[derive(Clone, Debug)]
pub struct Uplink {
    /// MAC address.
    pub mac: ether::MacAddr,
}

impl Uplink {
    /// Address of the guest with prefix length.
    pub const ADDRESS: &str = "10.0.2.15/24";
    /// Address of the router.
    pub const GATEWAY: &str = "10.0.2.2";
    /// Address of the name server.
    pub const NAMESERVER: &str = "10.0.2.3";
}

impl Qemu {
    /// Makes the whole argument list (without the binary) for `machine`.
    ///
    /// # Errors
    /// Fails with one sentence about the first impossible value.
    pub fn arguments(&self, machine: &Machine) -> Result<Vec<OsString>, QemuError> {
        check(machine)?;
        let mut list = List(self.data_arguments().collect());
        list.text("-name", &format!("{0},process={0}", escape(&machine.name)));
        // Without graphics, the firmware and boot loaders of a disk use the serial line. With a kernel they print
        // nothing.
        let graphics = if machine.boot.kernel.is_none() {
            ",graphics=off"
        } else {
            ""
        };
        list.text("-M", &format!("q35{graphics}"));
        list.text("-accel", accel_argument(machine.accel));
        list.text("-cpu", cpu(machine.accel));
        list.text("-smp", &machine.cpus.to_string());
        list.text("-m", &format!("{}M", machine.memory_mib));
        list.text(
            "-object",
            &format!("memory-backend-memfd,id=memory0,size={}M,share=on", machine.memory_mib),
        );
        list.text("-machine", "memory-backend=memory0");
        for flag in ["-nodefaults", "-no-user-config"] {
            list.0.push(flag.into());
        }
        list.text("-display", "none");
        if machine.on_reboot == OnReboot::Exit {
            list.text("-action", "reboot=shutdown");
        }
        if machine.incoming {
            list.text("-incoming", "defer");
            list.0.push("-S".into());
        }
        let has_iommu = machine.nics.iter().any(|nic| nic.iommu);
        boot(&mut list, &machine.boot, machine.accel, has_iommu);
        console(&mut list, machine);
        if has_iommu {
            // Before the cards that it is for.
            list.text("-device", "intel-iommu,caching-mode=on");
        }
        for (index, nic) in machine.nics.iter().enumerate() {
            self.nic(&mut list, index, nic);
        }
        if let Some(uplink) = &machine.uplink {
            list.text("-netdev", "user,id=uplink0");
            list.text(
                "-device",
                &format!("virtio-net-pci,id=uplink,netdev=uplink0,mac={},romfile=", uplink.mac),
            );
        }
        Ok(list.0)
    }

    fn nic(&self, list: &mut List, index: usize, nic: &Nic) {
        let pairs = nic.queue_pairs;
        let queues = if pairs > 1 {
            format!(",queues={pairs}")
        } else {
            String::new()
        };
        match &nic.backend {
            NicBackend::VhostUser { socket, mode } => {
                let name = Nic::socket_name(index);
                let mode = match mode {
                    SocketMode::BackendListens => self.reconnect(),
                    SocketMode::QemuListens => "server=on",
                };
                list.file(
                    "-chardev",
                    &format!("socket,id={name},path="),
                    socket,
                    &format!(",{mode}"),
                );
                list.text(
                    "-netdev",
                    &format!("vhost-user,id=nicback{index},chardev={name}{queues}"),
                );
            }
            NicBackend::Tap { interface } => {
                let interface = escape(interface);
                list.text(
                    "-netdev",
                    &format!("tap,id=nicback{index},ifname={interface},script=no,downscript=no{queues}"),
                );
            }
        }
        let mut device = format!(
            "virtio-net-pci,id={},netdev=nicback{index},mac={},romfile=",
            Nic::link_name(index),
            nic.mac
        );
        if pairs > 1 {
            device += ",mq=on";
        }
        let is_vhost_user = matches!(nic.backend, NicBackend::VhostUser { .. });
        if is_vhost_user && !self.queue_interrupts() {
            device += ",vectors=0";
        } else if pairs > 1 {
            device += &format!(",vectors={}", 2 * pairs + 2);
        }
        if is_vhost_user {
            // Else QEMU kicks each ring itself as soon as its backend is gone, and throws the frames in it away (docs/spec/qemu.md, section
            // 4). The backend gets its kicks by eventfds all the same.
            device += ",ioeventfd=off";
            // The backend never hears what a guest would choose by it.
            device += ",ctrl_guest_offloads=off";
        }
        device += &format!(",speed={},duplex=full", nic.speed_mbps);
        if let Some(slot) = Nic::slot(index).filter(|_| nic.has_known_slot) {
            device += &format!(",addr={slot:#04x}");
        }
        if nic.iommu {
            device += ",disable-legacy=on,iommu_platform=on";
        }
        if let Some(mtu) = nic.host_mtu {
            device += &format!(",host_mtu={mtu}");
        }
        list.text("-device", &device);
    }
}

/// Returns the model of the processor. An emulated one with fast string instructions makes Linux and the C library copy
/// and clear memory byte by byte, each of which TCG emulates. Both flags belong together: with `fsrm` alone, as newer
/// QEMUs have it, Linux takes short moves for long ones and hangs soon after its start.
fn cpu(accel: Accel) -> &'static str {
    match accel {
        Accel::Kvm => "max",
        Accel::Tcg => "max,erms=off,fsrm=off",
    }
}

fn boot(list: &mut List, boot: &Boot, accel: Accel, has_iommu: bool) {
    if let Some(kernel) = &boot.kernel {
        list.file("-kernel", "", kernel, "");
        if let Some(initramfs) = &boot.initramfs {
            // QEMU takes this value literally, commas included.
            list.0.extend(["-initrd".into(), initramfs.clone().into_os_string()]);
        }
        let clock = match (accel, super::tsc::host_tsc_khz()) {
            (Accel::Tcg, Some(khz)) => format!(" tsc_early_khz={khz}"),
            _ => String::new(),
        };
        let iommu = if has_iommu { " intel_iommu=on" } else { "" };
        let command_line = format!("{KERNEL_COMMAND_LINE}{clock}{iommu} {}", boot.append);
        list.text("-append", command_line.trim_end());
    }
    if let Some(disk) = &boot.disk {
        let format = match disk.format {
            DiskFormat::Raw => "raw",
            DiskFormat::Qcow2 => "qcow2",
        };
        let snapshot = if disk.discard_writes { "on" } else { "off" };
        list.file(
            "-drive",
            "if=none,id=disk0,file=",
            &disk.path,
            &format!(",format={format},snapshot={snapshot},discard=unmap"),
        );
        // This disk comes before a seed, which is a disk, too. A kernel that QEMU loads has this index itself.
        let index = if boot.kernel.is_none() { ",bootindex=0" } else { "" };
        list.text("-device", &format!("virtio-blk-pci,drive=disk0{index}"));
    }
    if let Some(seed) = &boot.seed {
        list.file("-drive", "if=none,id=seed0,file=", seed, ",format=raw,readonly=on");
        list.text("-device", "virtio-blk-pci,drive=seed0");
    }
    for (index, disk) in boot.shared_disks.iter().enumerate() {
        list.file(
            "-drive",
            &format!("if=none,id=shared{index},file="),
            &disk.path,
            ",format=raw,readonly=on",
        );
        list.text(
            "-device",
            &format!("virtio-blk-pci,drive=shared{index},serial={}", disk.serial),
        );
    }
    for (index, folder) in boot.host_folders.iter().enumerate() {
        let readonly = if folder.readonly { ",readonly=on" } else { "" };
        list.file(
            "-fsdev",
            &format!("local,id=folder{index},path="),
            &folder.path,
            &format!(",security_model=none,multidevs=remap{readonly}"),
        );
        let tag = escape(&folder.tag);
        list.text("-device", &format!("virtio-9p-pci,fsdev=folder{index},mount_tag={tag}"));
    }
}

fn console(list: &mut List, machine: &Machine) {
    let log = |prefix: &str| format!("{prefix}logappend=on,logfile=");
    match &machine.serial_socket {
        Some(socket) => {
            let mut argument = OsString::from("socket,id=serial0,path=");
            argument.push(escape_path(socket));
            argument.push(log(",server=on,wait=off,"));
            argument.push(escape_path(&machine.serial_log));
            list.0.extend(["-chardev".into(), argument]);
        }
        None => list.file("-chardev", &log("null,id=serial0,"), &machine.serial_log, ""),
    }
    list.text("-serial", "chardev:serial0");
    list.file(
        "-chardev",
        "socket,id=qmp0,path=",
        &machine.qmp_socket,
        ",server=on,wait=off",
    );
    list.text("-mon", "chardev=qmp0,mode=control");
    if let Some(socket) = &machine.event_socket {
        list.file("-chardev", "socket,id=events0,path=", socket, ",server=on,wait=off");
        list.text("-mon", "chardev=events0,mode=control");
        // A guest whose kernel knows this device reports its panic; the receiver of the event ends it.
        list.text("-device", "pvpanic");
        list.text("-action", "panic=none");
    }
    if let Some(socket) = &machine.agent_socket {
        list.text("-device", "virtio-serial-pci");
        list.file("-chardev", "socket,id=agent0,path=", socket, ",server=on,wait=off");
        list.text(
            "-device",
            &format!("virtserialport,chardev=agent0,name={}", weft_agent::message::PORT_NAME),
        );
    }
    if let Some(config) = &machine.guest_config {
        list.file(
            "-fw_cfg",
            &format!("name={},file=", weft_agent::config::FW_CFG_ITEM),
            config,
            "",
        );
    }
}

fn check(machine: &Machine) -> Result<(), QemuError> {
    let wrong = |why: String| Err(QemuError::Machine(format!("guest {}: {why}", machine.name)));
    if machine.cpus == 0 || machine.cpus > CPUS_MAX {
        return wrong(format!(
            "{} processors are not possible, 1 to {CPUS_MAX} are",
            machine.cpus
        ));
    }
    if machine.memory_mib < MEMORY_MIB_MIN {
        return wrong(format!(
            "{} MiB of memory are too little, {MEMORY_MIB_MIN} are needed",
            machine.memory_mib
        ));
    }
    if machine.nics.len() + usize::from(machine.uplink.is_some()) > NICS_MAX {
        return wrong(format!(
            "{} cards are too many, {NICS_MAX} are possible",
            machine.nics.len()
        ));
    }
    if machine.boot.kernel.is_none() && (machine.boot.initramfs.is_some() || !machine.boot.append.is_empty()) {
        return wrong("an initramfs or a command line needs a kernel".into());
    }
    if machine.boot.kernel.is_none() && machine.boot.disk.is_none() {
        return wrong("it has neither a kernel nor a disk to boot".into());
    }
    for nic in &machine.nics {
        if nic.queue_pairs == 0 || nic.queue_pairs > QUEUE_PAIRS_MAX {
            return wrong(format!(
                "{} queue pairs are not possible, 1 to {QUEUE_PAIRS_MAX} are",
                nic.queue_pairs
            ));
        }
    }
    for socket in sockets(machine) {
        let len = socket.as_os_str().len();
        if len > SOCKET_PATH_LEN_MAX {
            let path = socket.display();
            return wrong(format!(
                "socket path of {len} bytes, {SOCKET_PATH_LEN_MAX} are possible: {path}"
            ));
        }
    }
    for file in files(machine) {
        if let Err(error) = std::fs::File::open(file) {
            return wrong(format!("{} cannot be read: {error}", file.display()));
        }
    }
    Ok(())
}

/// Returns the paths of all sockets of a machine.
fn sockets(machine: &Machine) -> impl Iterator<Item = &PathBuf> {
    let of_nics = machine.nics.iter().filter_map(|nic| match &nic.backend {
        NicBackend::VhostUser { socket, .. } => Some(socket),
        NicBackend::Tap { .. } => None,
    });
    of_nics.chain(machine.listening_sockets())
}

/// Returns the paths of the files that QEMU reads.
fn files(machine: &Machine) -> impl Iterator<Item = &PathBuf> {
    let boot = &machine.boot;
    let files = [
        boot.kernel.as_ref(),
        boot.initramfs.as_ref(),
        boot.disk.as_ref().map(|disk| &disk.path),
        boot.seed.as_ref(),
        machine.guest_config.as_ref(),
    ];
    let shared = boot.shared_disks.iter().map(|disk| &disk.path);
    files.into_iter().flatten().chain(shared)
}

/// The argument list under construction.
struct List(Vec<OsString>);

impl List {
    fn text(&mut self, option: &str, value: &str) {
        self.0.extend([option.into(), value.into()]);
    }

    /// Adds `option before<path>after`, with the path escaped as QEMU expects it inside an option.
    fn file(&mut self, option: &str, before: &str, path: &Path, after: &str) {
        // A separate value (nothing before or after it) is taken literally.
        let mut value = OsString::from(before);
        value.push(if before.is_empty() {
            path.as_os_str().to_owned()
        } else {
            escape_path(path)
        });
        value.push(after);
        self.0.extend([option.into(), value]);
    }
}

/// Escapes a text: a comma ends a value in QEMU's options, and doubled it stands for itself.
fn escape(text: &str) -> String {
    text.replace(',', ",,")
}

fn escape_path(path: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut escaped = Vec::new();
    for &byte in path.as_os_str().as_bytes() {
        escaped.push(byte);
        if byte == b',' {
            escaped.push(byte);
        }
    }
    OsString::from_vec(escaped)
}

#[cfg(test)]
mod tests;
