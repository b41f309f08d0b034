//! Two guests with two cards each, shared by the comparisons with guests: `eth0` on `vnicd`, `eth1` on a tap device or
//! on `vnicd` behind a trunk. This module starts them and `vnicd`, restarts `vnicd` with other arguments on request,
//! and ends everything when dropped. It measures nothing.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;
use testbed::{
    accel::Accel,
    guest_channel::{GuestChannel, Running},
    guest_tools::{output, start_server},
    image::{self, Cache, GuestBinaries, Image, Recipe, Step},
    programs,
    qemu::{Boot, Machine, Nic, NicBackend, OnReboot, Qemu, QemuProcess, SocketMode, spawn_bound},
    report::progress::Progress,
    supervisor::memory_available_mib,
    vnicd_client::{VnicdClient, report::PortStats},
};
use weft_agent::config::{GuestConfig, Interface};

use testbed::harness::Stop;

/// Names of the guests, and of their ports on `vnicd`.
pub const NAMES: [&str; 2] = ["n1", "n2"];

/// Names of the switches at the ends of the trunk between the second cards.
pub const TRUNK: [&str; 2] = ["t1", "t2"];

/// Names of the tap devices of the guests' second cards.
pub const TAPS: [&str; 2] = ["tap1", "tap2"];

/// What the second card of each guest is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Second {
    /// A tap device for each guest, on a bridge.
    Tap,
    /// A switch for each guest on one `vnicd`, with a trunk between the two.
    Trunk,
}

/// Number of processors, as in a lab whose file says nothing else.
const GUEST_CPUS: u32 = 1;
/// Memory of a guest, as in a lab whose file says nothing else.
const GUEST_MEMORY_MIB: u32 = 128;

/// Memory that both guests with their QEMUs and `vnicd` need.
const MEMORY_NEEDED_MIB: u64 = 480;

/// Time for a boot on a machine that is busy with other work.
const BOOT_TIMEOUT: Duration = Duration::from_secs(180);

/// Time for a `vnicd` to start or end, and for both guests to be connected to it again.
const VNICD_TIMEOUT: Duration = Duration::from_secs(30);

/// Receive buffer in bytes of sockets that choose none themselves: about a thousand small frames. TCP chooses its
/// buffer itself.
const UDP_BUFFER_LEN: u32 = 1 << 20;

/// Time between two checks of something that is about to happen.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Returns the image that both guests boot, which may have to be downloaded and built.
pub fn guest_image() -> Result<Image> {
    programs::find("vnicd")?;
    Qemu::discover()?;
    let progress = Progress::new(0);
    let mut say = |step: Step| progress.say(&step.to_string());
    Ok(image::build(
        &Recipe::minimal(),
        &Cache::open_default()?,
        &GuestBinaries::locate()?,
        &mut say,
    )?)
}

/// Two guests and the `vnicd` between them.
pub struct GuestPair {
    // The fields are dropped in this order: a server outlives its clients.
    guests: Vec<Guest>,
    vnicd: Option<Vnicd>,
    qemu: Qemu,
    second: Second,
    folder: TempDir,
}

struct Guest {
    process: QemuProcess,
    channel: GuestChannel,
}

struct Vnicd {
    child: Child,
    arguments: String,
    client: VnicdClient,
}

impl GuestPair {
    /// Boots both guests, with a `vnicd` that has its defaults.
    pub fn boot(kernel: &Path, initramfs: &Path, second: Second, stop: &Stop) -> Result<Self> {
        let available = memory_available_mib()?;
        if available < MEMORY_NEEDED_MIB {
            bail!("two guests need about {MEMORY_NEEDED_MIB} MiB of memory and {available} MiB are available");
        }
        let progress = Progress::new(0);
        progress.say("booting two guests");
        let folder = tempfile::Builder::new().prefix("weft-bench-").tempdir()?;
        let mut rig = Self {
            guests: Vec::new(),
            vnicd: None,
            qemu: Qemu::discover()?,
            second,
            folder,
        };
        rig.start_vnicd("", stop)?;
        let mut starting = Vec::new();
        for (index, name) in NAMES.iter().enumerate() {
            let machine = rig.machine(index, kernel, initramfs)?;
            let process = rig.qemu.spawn(&machine, &rig.file(&format!("{name}.qemu.log")))?;
            stop.also_end(process.pid())?;
            starting.push((process, rig.file(&format!("{name}.agent"))));
        }
        for (name, (process, agent)) in NAMES.iter().zip(starting) {
            let channel = GuestChannel::connect(&agent, VNICD_TIMEOUT)
                .with_context(|| format!("QEMU of {name} did not start: {}", process.last_words()))?;
            channel
                .wait_ready(BOOT_TIMEOUT)
                .with_context(|| format!("{name} did not boot: {}", process.last_words()))?;
            rig.guests.push(Guest { process, channel });
        }
        // The default buffer of a socket holds fewer frames than arrive while an emulated guest is kept from its core.
        let room = format!("echo {UDP_BUFFER_LEN} >/proc/sys/net/core/rmem_default");
        output(rig.receiver(), &["sh", "-c", &room])?;
        Ok(rig)
    }

    /// Returns the channel to the guest that sends.
    pub fn sender(&self) -> &GuestChannel {
        &self.guests[0].channel
    }

    /// Returns the channel to the guest that receives.
    pub fn receiver(&self) -> &GuestChannel {
        &self.guests[1].channel
    }

    /// Starts a server in the receiving guest for a single `iperf3` client in the other one; [`Running::collect`] waits
    /// until it has ended. A server for several clients would still be busy with the last one while its end travels
    /// over a delayed cable.
    pub fn iperf3_server(&self) -> Result<Running> {
        start_server(self.receiver(), &["iperf3", "-s", "-1", "--forceflush"], "listening")
    }

    /// Returns the processes of both guests.
    pub fn qemus(&self) -> Vec<u32> {
        self.guests.iter().map(|guest| guest.process.pid()).collect()
    }

    /// Returns the version of QEMU.
    pub fn qemu_version(&self) -> String {
        self.qemu.version().to_string()
    }

    /// Returns the process of the current `vnicd`.
    pub fn vnicd(&self) -> Result<u32> {
        Ok(self.vnicd.as_ref().context("no vnicd runs")?.child.id())
    }

    /// Returns a client of the current `vnicd`.
    pub fn client(&mut self) -> Result<&mut VnicdClient> {
        Ok(&mut self.vnicd.as_mut().context("no vnicd runs")?.client)
    }

    /// Reads the counters of both cards, the sender's first.
    pub fn card_stats(&mut self) -> Result<Vec<PortStats>> {
        let client = self.client()?;
        let mut stats = client.stats(None)?;
        stats.sort_by_key(|port| NAMES.iter().position(|name| *name == port.name));
        Ok(stats)
    }

    /// Returns the receiver's address on its card number `interface`.
    pub fn receiver_address(interface: usize) -> String {
        address(1, interface)
    }

    /// Replaces `vnicd` by one with these further arguments, and waits until both guests are connected to it.
    pub fn use_vnicd(&mut self, arguments: &str, stop: &Stop) -> Result<()> {
        if self.vnicd.as_ref().is_some_and(|vnicd| vnicd.arguments == arguments) {
            return Ok(());
        }
        self.vnicd = None;
        self.start_vnicd(arguments, stop)?;
        let deadline = Instant::now() + VNICD_TIMEOUT;
        let client = &mut self.vnicd.as_mut().context("no vnicd runs")?.client;
        // Each card has two rings: receive and transmit.
        while !client
            .info()?
            .ports
            .iter()
            .all(|port| port.connected && port.rings_started >= 2)
        {
            stop.check()?;
            if Instant::now() > deadline {
                bail!(
                    "the guests did not connect to the new vnicd within {} s",
                    VNICD_TIMEOUT.as_secs()
                );
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
        Ok(())
    }

    fn start_vnicd(&mut self, arguments: &str, stop: &Stop) -> Result<()> {
        let control = self.file("control.sock");
        let log_path = self.file("vnicd.log");
        let log = File::create(&log_path).with_context(|| format!("cannot write {}", log_path.display()))?;
        let mut command = Command::new(programs::find("vnicd")?);
        match self.second {
            Second::Tap => NAMES.iter().for_each(|name| {
                command.arg("--listen").arg(self.socket(name));
            }),
            Second::Trunk => {
                command.arg("--config").arg(self.write_config()?);
            }
        }
        command
            .arg("--control")
            .arg(&control)
            .args(arguments.split_whitespace());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = spawn_bound(command).context("cannot start vnicd")?;
        stop.also_end(child.id())?;
        let deadline = Instant::now() + VNICD_TIMEOUT;
        let client = loop {
            if let Ok(client) = VnicdClient::connect(&control) {
                break client;
            }
            let ended = child.try_wait()?;
            if ended.is_some() || Instant::now() > deadline {
                // The process may be alive without answering.
                _ = child.kill();
                _ = child.wait();
                let said = fs::read_to_string(&log_path).unwrap_or_default();
                bail!(
                    "vnicd {arguments} did not start: {}",
                    said.trim().lines().last().unwrap_or("it printed nothing")
                );
            }
            std::thread::sleep(CHECK_INTERVAL);
        };
        self.vnicd = Some(Vnicd {
            child,
            arguments: arguments.to_owned(),
            client,
        });
        Ok(())
    }

    /// Writes the configuration of a `vnicd` with a switch for the first cards, and two switches joined by a trunk for
    /// the second ones.
    fn write_config(&self) -> Result<PathBuf> {
        let first = NAMES.map(|name| json!({ "name": name, "switch": "s1", "listen": self.socket(name) }));
        let second = std::array::from_fn::<_, 2, _>(|index| {
            let name = format!("{}.{}", NAMES[index], TRUNK[index]);
            json!({ "name": name, "switch": TRUNK[index], "listen": self.socket(&name) })
        });
        let ports = [first, second].concat();
        let config = json!({
            "switches": [{ "name": "s1" }, { "name": TRUNK[0] }, { "name": TRUNK[1] }],
            "ports": ports,
            "trunks": [{ "a": TRUNK[0], "b": TRUNK[1] }],
        });
        let file = self.file("vnicd.json");
        fs::write(&file, config.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(file)
    }

    /// Returns the socket of a port of `vnicd`.
    fn socket(&self, port: &str) -> PathBuf {
        self.file(&format!("{port}.sock"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn machine(&self, index: usize, kernel: &Path, initramfs: &Path) -> Result<Machine> {
        let name = NAMES[index];
        let config = self.file(&format!("{name}.json"));
        let interfaces = (0..2).map(|interface| Interface {
            mac: mac(index, interface).to_string(),
            name: format!("eth{interface}"),
            addresses: vec![format!("{}/24", address(index, interface))],
            ..Interface::default()
        });
        let guest = GuestConfig {
            hostname: name.to_owned(),
            interfaces: interfaces.collect(),
            ..GuestConfig::default()
        };
        fs::write(&config, serde_json::to_vec(&guest)?)
            .with_context(|| format!("cannot write {}", config.display()))?;
        let on_vnicd = |port: &str| NicBackend::VhostUser {
            socket: self.socket(port),
            mode: SocketMode::BackendListens,
        };
        let nic = |interface, backend| Nic {
            mac: mac(index, interface),
            backend,
            queue_pairs: 1,
            iommu: false,
            has_known_slot: false,
            speed_mbps: Nic::SPEED_MBPS_DEFAULT,
            host_mtu: None,
        };
        Ok(Machine {
            name: format!("weft-bench.{name}"),
            cpus: GUEST_CPUS,
            memory_mib: GUEST_MEMORY_MIB,
            accel: Accel::Tcg,
            boot: Boot {
                kernel: Some(kernel.to_owned()),
                initramfs: Some(initramfs.to_owned()),
                ..Boot::default()
            },
            nics: vec![
                nic(0, on_vnicd(name)),
                nic(
                    1,
                    match self.second {
                        Second::Tap => NicBackend::Tap {
                            interface: TAPS[index].to_owned(),
                        },
                        Second::Trunk => on_vnicd(&format!("{name}.{}", TRUNK[index])),
                    },
                ),
            ],
            uplink: None,
            agent_socket: Some(self.file(&format!("{name}.agent"))),
            qmp_socket: self.file(&format!("{name}.qmp")),
            event_socket: None,
            serial_log: self.file(&format!("{name}.log")),
            serial_socket: None,
            guest_config: Some(config),
            on_reboot: OnReboot::Exit,
            incoming: false,
        })
    }
}

impl Drop for Vnicd {
    fn drop(&mut self) {
        // SIGTERM comes first, since `vnicd` then removes its sockets. Both calls fail only when it has ended already.
        _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + VNICD_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                _ = self.child.kill();
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
    }
}

/// Each path has its own subnet, so that the guests' kernels cannot choose between paths.
fn address(guest: usize, interface: usize) -> String {
    format!("10.77.{}.{}", 100 + interface, 1 + guest)
}

fn mac(guest: usize, interface: usize) -> ether::MacAddr {
    // Both numbers are 0 or 1.
    ether::MacAddr([0x52, 0x54, 0x00, 0x62, interface as u8, 1 + guest as u8])
}
