//! The choice of the accelerator that runs the guests. A `/dev/kvm` that opens proves nothing (kernels that hang under
//! it exist), so KVM is used only after a guest has booted under it; the verdict is kept until the host boots again.

use std::fs::{self, File};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::guest_memory::MEMORY_MIB_MIN;
use crate::image::{Cache, Image, ImageError};
use crate::qemu::{Boot, Machine, OnReboot, Qemu, QemuError};

const DEVICE: &str = "/dev/kvm";

/// Time that the test guest may take under KVM. It needs about a second; where KVM hangs, the user waits this long once
/// per boot of the machine.
const PROBE_TIME_MAX: Duration = Duration::from_secs(20);

/// Text that the test guest prints when it has booted.
const PROBE_SIGN: &str = "weft-agent: booted";

pub use crate::qemu::Accel;

/// The accelerator that the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccelChoice {
    /// KVM if a guest boots under it, else TCG.
    #[default]
    Auto,
    /// KVM without a test.
    Kvm,
    /// TCG.
    Tcg,
}

impl AccelChoice {
    /// Returns the word for the choice on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

impl From<Accel> for AccelChoice {
    fn from(accel: Accel) -> Self {
        match accel {
            Accel::Kvm => Self::Kvm,
            Accel::Tcg => Self::Tcg,
        }
    }
}

impl FromStr for AccelChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "kvm" => Ok(Self::Kvm),
            "tcg" => Ok(Self::Tcg),
            other => Err(format!("unknown accelerator {other:?}: auto, kvm and tcg are known")),
        }
    }
}

/// A verdict is the accelerator that was chosen, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Accelerator that runs the guests.
    pub accel: Accel,
    /// Reason as one clause, such as "a test guest did not boot under KVM within 20 s".
    pub reason: String,
}

/// The reasons why no accelerator could be chosen.
#[derive(Debug, Error)]
pub enum AccelError {
    /// KVM was asked for and is not available.
    #[error("KVM cannot be used: {0}")]
    NoKvm(String),
    /// The test guest could not be started.
    #[error("the test guest for KVM could not be started: {0}")]
    Probe(QemuError),
    /// The verdict cannot be stored.
    #[error(transparent)]
    Cache(#[from] ImageError),
}

/// Chooses the accelerator: as `choice` says, or after a test of `image` under KVM, whose verdict is stored in `cache`
/// until the machine boots again. This takes up to 20 s when KVM hangs.
///
/// # Errors
/// Fails when KVM was asked for and the device cannot be opened, or when the test could not be started.
pub fn resolve(choice: AccelChoice, qemu: &Qemu, image: &Image, cache: &Cache) -> Result<Verdict, AccelError> {
    let device = File::options().read(true).write(true).open(DEVICE);
    let closed = device.err().map(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("there is no {DEVICE}"),
        _ => format!("{DEVICE} cannot be opened: {error}"),
    });
    match (choice, closed) {
        (AccelChoice::Tcg, _) => Ok(Verdict {
            accel: Accel::Tcg,
            reason: "it was asked for".into(),
        }),
        (AccelChoice::Kvm, None) => Ok(Verdict {
            accel: Accel::Kvm,
            reason: "it was asked for".into(),
        }),
        (AccelChoice::Kvm, Some(why)) => Err(AccelError::NoKvm(why)),
        (AccelChoice::Auto, Some(why)) => Ok(Verdict {
            accel: Accel::Tcg,
            reason: why,
        }),
        (AccelChoice::Auto, None) => tested(qemu, image, cache),
    }
}

/// Returns the stored verdict for this boot, QEMU and kernel, or a new one.
fn tested(qemu: &Qemu, image: &Image, cache: &Cache) -> Result<Verdict, AccelError> {
    let path = verdict_path(qemu, image, cache)?;
    if let Some(verdict) = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
        return Ok(verdict);
    }
    let verdict = match probe(qemu, image)? {
        Ok(()) => Verdict {
            accel: Accel::Kvm,
            reason: "a test guest booted under KVM".into(),
        },
        Err(why) => Verdict {
            accel: Accel::Tcg,
            reason: format!("a test guest did not boot under KVM: {why}"),
        },
    };
    cache.write(&path, &serde_json::to_vec(&verdict).expect("plain strings become JSON"))?;
    Ok(verdict)
}

fn verdict_path(qemu: &Qemu, image: &Image, cache: &Cache) -> Result<PathBuf, AccelError> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let binary = qemu.binary().display();
    let key = Sha256::digest(format!(
        "{boot}\n{binary}\n{}\n{}",
        qemu.version(),
        image.kernel_release
    ));
    let folder = cache.folder("accel")?;
    Ok(folder.join(format!("{}.json", crate::digest::hex(key))))
}

/// Boots a guest that switches itself off immediately; the inner error says in one clause why that failed.
fn probe(qemu: &Qemu, image: &Image) -> Result<Result<(), String>, AccelError> {
    let dir = tempfile::tempdir()
        .map_err(QemuError::Spawn)
        .map_err(AccelError::Probe)?;
    let serial_log = dir.path().join("serial.log");
    let machine = Machine {
        name: "weft-probe".into(),
        cpus: 1,
        memory_mib: MEMORY_MIB_MIN,
        accel: Accel::Kvm,
        boot: Boot {
            kernel: Some(image.kernel.clone()),
            initramfs: Some(image.initramfs.clone()),
            append: "weft.probe".into(),
            ..Boot::default()
        },
        nics: Vec::new(),
        uplink: None,
        agent_socket: None,
        qmp_socket: dir.path().join("qmp"),
        event_socket: None,
        serial_log: serial_log.clone(),
        serial_socket: None,
        guest_config: None,
        on_reboot: OnReboot::Exit,
        incoming: false,
    };
    let spawned = qemu.spawn(&machine, &dir.path().join("qemu.log"));
    let mut process = spawned.map_err(AccelError::Probe)?;
    let status = process
        .wait_timeout(PROBE_TIME_MAX)
        .map_err(QemuError::Spawn)
        .map_err(AccelError::Probe)?;
    let said = fs::read_to_string(&serial_log).unwrap_or_default();
    Ok(match status {
        None => Err(format!("it hung for {} s", PROBE_TIME_MAX.as_secs())),
        Some(status) if status.success() && said.contains(PROBE_SIGN) => Ok(()),
        Some(status) => {
            let words = process.last_words();
            Err(words.lines().last().map_or_else(|| status.to_string(), str::to_owned))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_and_mistakes_answered() {
        assert_eq!("auto".parse(), Ok(AccelChoice::Auto));
        assert!("hvf".parse::<AccelChoice>().unwrap_err().contains("auto, kvm and tcg"));
        assert_eq!(Accel::Tcg.to_string(), "tcg");
    }
}
