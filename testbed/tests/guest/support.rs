//! The guest of a test: image, sockets, QEMU and channel, all removed with its handle.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use testbed::accel::Accel;
use testbed::guest_channel::{GuestChannel, Welcome};
use testbed::image::{self, Cache, GuestBinaries, Image, Recipe};
use testbed::qemu::{Boot, Machine, OnReboot, Qemu, QemuProcess};
use weft_agent::config::GuestConfig;

/// Time within which a guest under TCG on a busy machine boots.
pub const BOOT_TIME_MAX: Duration = Duration::from_secs(180);

/// Time within which a command in such a guest ends.
pub const COMMAND_TIME_MAX: Duration = Duration::from_secs(60);

pub fn image() -> Image {
    let cache = Cache::open_default().unwrap();
    image::build(
        &Recipe::minimal(),
        &cache,
        &GuestBinaries::locate().unwrap(),
        &mut |step| println!("{step}"),
    )
    .unwrap_or_else(|error| panic!("{error}"))
}

pub struct Guest {
    pub dir: TempDir,
    pub machine: Machine,
    pub process: QemuProcess,
    pub channel: GuestChannel,
    pub welcome: Welcome,
}

impl Guest {
    pub fn boot(config: &GuestConfig) -> Self {
        Self::boot_with(config, |_| {})
    }

    pub fn boot_with(config: &GuestConfig, change: impl FnOnce(&mut Machine)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut machine = machine(dir.path(), &image());
        std::fs::write(
            machine.guest_config.as_ref().unwrap(),
            serde_json::to_vec(config).unwrap(),
        )
        .unwrap();
        change(&mut machine);
        let process = Qemu::discover()
            .unwrap()
            .spawn(&machine, &dir.path().join("qemu.log"))
            .unwrap();
        let channel = GuestChannel::connect(&agent_socket(&machine), COMMAND_TIME_MAX)
            .unwrap_or_else(|error| panic!("{error}: {}", process.last_words()));
        let welcome = channel.wait_ready(BOOT_TIME_MAX).unwrap_or_else(|error| {
            panic!(
                "{error}: {} {}",
                process.last_words(),
                std::fs::read_to_string(&machine.serial_log).unwrap()
            )
        });
        Self {
            dir,
            machine,
            process,
            channel,
            welcome,
        }
    }

    /// Returns what a command prints; it must succeed.
    pub fn sh(&self, script: &str) -> String {
        let output = self.channel.output(&["sh", "-c", script], COMMAND_TIME_MAX).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {}: {stderr}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }
}

pub fn agent_socket(machine: &Machine) -> PathBuf {
    machine.agent_socket.clone().unwrap()
}

pub fn machine(dir: &Path, image: &Image) -> Machine {
    Machine {
        name: "test".into(),
        cpus: 1,
        memory_mib: 192,
        accel: Accel::Tcg,
        boot: Boot {
            kernel: Some(image.kernel.clone()),
            initramfs: Some(image.initramfs.clone()),
            ..Boot::default()
        },
        nics: Vec::new(),
        uplink: None,
        agent_socket: Some(dir.join("agent")),
        qmp_socket: dir.join("qmp"),
        event_socket: None,
        serial_log: dir.join("serial.log"),
        serial_socket: None,
        guest_config: Some(dir.join("config.json")),
        on_reboot: OnReboot::BootAgain,
        incoming: false,
    }
}
