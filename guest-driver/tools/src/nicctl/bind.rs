//! `nicctl bind` and `nicctl unbind`: give a card to programs that drive it themselves, and back to the kernel's driver.

use std::{
    ffi::OsStr,
    fmt, fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use netif::{
    Interface,
    virtio::{Card, CardAddress, Holder, VirtioError, check_kind},
};
use serde::Serialize;

/// The kernel's own driver of virtio cards.
const KERNEL_DRIVER: &str = "virtio-pci";

/// How a program is to reach the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Driver {
    /// uio_pci_generic: for root, without interrupts
    Uio,
    /// vfio-pci: behind an IOMMU, also for other users
    Vfio,
}

impl Driver {
    const fn of_kernel(self) -> &'static str {
        match self {
            Self::Uio => "uio_pci_generic",
            Self::Vfio => "vfio-pci",
        }
    }

    /// Returns the kernel's modules, of which one brings the others.
    const fn modules(self) -> &'static [&'static str] {
        match self {
            Self::Uio => &["uio_pci_generic"],
            Self::Vfio => &["vfio_iommu_type1", "vfio_pci"],
        }
    }
}

/// Options of `nicctl bind`.
#[derive(Debug, Args)]
pub(super) struct Bind {
    /// How programs reach the card
    #[arg(long, value_enum)]
    driver: Driver,
    /// User who may drive the card, by number (with vfio); root otherwise
    // The largest number stands for no user.
    #[arg(long, value_name = "UID", value_parser = clap::value_parser!(u32).range(..i64::from(u32::MAX)))]
    user: Option<u32>,
    /// Take the card also from an interface that is up
    #[arg(long)]
    force: bool,
    /// The card: its PCI address, such as 0000:00:04.0, or its interface, such as eth1
    device: String,
}

/// Options of `nicctl unbind`.
#[derive(Debug, Args)]
pub(super) struct Unbind {
    /// The card: its PCI address, such as 0000:00:04.0
    device: String,
}

/// What a card is bound to now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BindOutput {
    /// The card's PCI address.
    pub device: String,
    /// The kernel's driver that has it.
    pub driver: String,
    /// Its name where programs name interfaces, such as in `OMX_IFACES`; `None` while the kernel drives it.
    pub interface: Option<String>,
}

impl fmt::Display for BindOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is with {}", self.device, self.driver)?;
        match &self.interface {
            Some(name) => write!(f, "; programs reach it as {name}"),
            None => Ok(()),
        }
    }
}

/// The folders of the kernel: elsewhere in tests.
struct Kernel {
    root: PathBuf,
}

impl Kernel {
    fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    fn device(&self, address: CardAddress) -> PathBuf {
        self.path("sys/bus/pci/devices").join(address.to_string())
    }

    /// Finds the card by its address, its name or its interface.
    fn find(&self, device: &str) -> anyhow::Result<CardAddress> {
        let interface = self.path("sys/class/net").join(device).join("device");
        let address = if let Some(address) = CardAddress::of_interface(device)? {
            address
        } else if !device.contains('/') && interface.exists() {
            // The interface belongs to a virtio device, which belongs to the PCI device.
            let own = fs::canonicalize(interface)?;
            let address = own.parent().and_then(Path::file_name).and_then(OsStr::to_str);
            let address = address.and_then(|name| name.parse().ok());
            address.with_context(|| format!("{device} is no card on the PCI bus; choose another"))?
        } else {
            device.parse::<CardAddress>().with_context(|| {
                format!("there is no interface named {device:?} (`ip link` lists them), and it is no PCI address")
            })?
        };
        check_kind(address, &self.device(address))?;
        Ok(address)
    }

    fn driver_of(&self, address: CardAddress) -> Option<String> {
        let link = fs::read_link(self.device(address).join("driver")).ok()?;
        Some(link.file_name()?.to_str()?.to_owned())
    }

    /// Returns the interface that the kernel has on the card.
    fn interface_of(&self, address: CardAddress) -> Option<String> {
        let virtio = fs::read_dir(self.device(address)).ok()?.flatten();
        let mut nets = virtio.filter_map(|entry| fs::read_dir(entry.path().join("net")).ok());
        nets.next()?.flatten().next()?.file_name().into_string().ok()
    }

    fn write(&self, path: &Path, text: &str) -> anyhow::Result<()> {
        fs::write(path, text).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => anyhow::anyhow!("giving cards to programs, and back, needs root"),
            _ => anyhow::anyhow!("cannot write {text:?} to {}: {error}", path.display()),
        })
    }

    /// Has this driver take the card; an empty name stands for the kernel's own choice.
    fn hand_over(&self, address: CardAddress, driver: &str) -> anyhow::Result<String> {
        let device = self.device(address);
        let name = address.to_string();
        self.write(&device.join("driver_override"), &format!("{driver}\n"))?;
        if device.join("driver").exists() {
            self.write(&device.join("driver/unbind"), &name)?;
        }
        self.write(&self.path("sys/bus/pci/drivers_probe"), &name)?;
        self.driver_of(address)
            .with_context(|| format!("no driver of the kernel took {address}; `dmesg` may say why"))
    }
}

fn load(modules: &[&str]) -> anyhow::Result<()> {
    for module in modules {
        let loaded = Command::new("modprobe").arg(module).stdin(Stdio::null()).output();
        let why = match loaded {
            Ok(output) if output.status.success() => continue,
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "),
            Err(error) => error.to_string(),
        };
        bail!("the kernel's module {module} cannot be loaded: {why}; install the kernel's modules, or root is needed");
    }
    Ok(())
}

/// Gives a card to programs.
///
/// # Errors
/// One sentence: no such card, in use, no root, no module, no IOMMU.
pub(super) fn bind(arguments: &Bind) -> anyhow::Result<BindOutput> {
    let kernel = Kernel { root: "/".into() };
    bind_in(&kernel, arguments, load)
}

fn bind_in(
    kernel: &Kernel,
    arguments: &Bind,
    load: impl FnOnce(&[&str]) -> anyhow::Result<()>,
) -> anyhow::Result<BindOutput> {
    let address = kernel.find(&arguments.device)?;
    let wanted = arguments.driver.of_kernel();
    if arguments.user.is_some() && arguments.driver == Driver::Uio {
        bail!("with uio only root can drive a card, because its rings reach all memory; leave --user out, or use vfio");
    }
    let before = kernel.driver_of(address);
    if before.as_deref() != Some(wanted) {
        if let Some(name) = kernel.interface_of(address)
            && !arguments.force
            && Interface::find(&name).is_ok_and(|interface| interface.up)
        {
            bail!("{name} is up, so the kernel uses {address}; `ip link set {name} down` ends that, or say --force");
        }
        is_free(kernel, address)?;
        load(arguments.driver.modules())?;
        if arguments.driver == Driver::Vfio && !kernel.device(address).join("iommu_group").exists() {
            bail!(
                "{address} is behind no IOMMU, which vfio needs: QEMU has one with `-device intel-iommu`, and the kernel uses it \
                 with `intel_iommu=on`; in a lab file `bypass = \"vfio\"` sets both"
            );
        }
        let taken = kernel.hand_over(address, wanted)?;
        if taken != wanted {
            bail!("{taken} took {address} instead of {wanted}; `dmesg` may say why");
        }
    }
    if let Some(user) = arguments.user {
        let group = fs::canonicalize(kernel.device(address).join("iommu_group"))?;
        let number = group.file_name().unwrap_or_default();
        let path = kernel.path("dev/vfio").join(number);
        std::os::unix::fs::chown(&path, Some(user), None)
            .with_context(|| format!("cannot give {} to user {user}", path.display()))?;
    }
    Ok(BindOutput {
        device: address.to_string(),
        driver: wanted.to_owned(),
        interface: Some(address.interface_name()),
    })
}

/// Refuses a card that a program drives.
fn is_free(kernel: &Kernel, address: CardAddress) -> anyhow::Result<()> {
    let path = kernel.device(address).join("config");
    match Card::is_driven(&path) {
        Ok(false) => Ok(()),
        Ok(true) => {
            let by = Holder::of(&path);
            Err(VirtioError::InUse { address, by }.into())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot find out whether a program drives {address}")),
    }
}

/// Gives a card back to the kernel's driver.
///
/// # Errors
/// One sentence: no such card, in use, no root, or no driver took it.
pub(super) fn unbind(arguments: &Unbind) -> anyhow::Result<BindOutput> {
    unbind_in(&Kernel { root: "/".into() }, arguments)
}

fn unbind_in(kernel: &Kernel, arguments: &Unbind) -> anyhow::Result<BindOutput> {
    let address = kernel.find(&arguments.device)?;
    let mut driver = kernel.driver_of(address);
    if driver.as_deref() != Some(KERNEL_DRIVER) {
        is_free(kernel, address)?;
        driver = Some(kernel.hand_over(address, "")?);
    }
    Ok(BindOutput {
        device: address.to_string(),
        driver: driver.unwrap_or_default(),
        interface: None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const CARD: &str = "0000:00:04.0";

    /// A kernel with a card, bound to `driver`, whose interface is `weft-none`.
    fn kernel(driver: &str) -> (tempfile::TempDir, Kernel) {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("sys/bus/pci/devices").join(CARD);
        let drivers = dir.path().join("sys/bus/pci/drivers").join(driver);
        let net = device.join("virtio3/net/weft-none");
        for folder in [&net, &drivers, &dir.path().join("sys/class/net/weft-none")] {
            fs::create_dir_all(folder).unwrap();
        }
        symlink(&drivers, device.join("driver")).unwrap();
        symlink(
            device.join("virtio3"),
            dir.path().join("sys/class/net/weft-none/device"),
        )
        .unwrap();
        for (file, text) in [("config", ""), ("vendor", "0x1af4\n"), ("device", "0x1041\n")] {
            fs::write(device.join(file), text).unwrap();
        }
        // Something else.
        fs::create_dir_all(dir.path().join("sys/bus/pci/devices/0000:00:00.0")).unwrap();
        let root = dir.path().to_owned();
        (dir, Kernel { root })
    }

    fn arguments(driver: Driver, device: &str) -> Bind {
        Bind {
            driver,
            user: None,
            force: false,
            device: device.to_owned(),
        }
    }

    fn sentence(kernel: &Kernel, arguments: &Bind) -> String {
        bind_in(kernel, arguments, |_| Ok(())).unwrap_err().to_string()
    }

    #[test]
    fn a_card_is_found_by_its_address_its_name_and_its_interface() {
        let (_dir, kernel) = kernel("virtio-pci");
        for device in [CARD, "00:04.0", "virtio:0000:00:04.0", "weft-none"] {
            assert_eq!(kernel.find(device).unwrap().to_string(), CARD, "{device}");
        }
        assert_eq!(
            kernel.find("00:05.0").unwrap_err().to_string(),
            "there is no PCI device 0000:00:05.0 (`ls /sys/bus/pci/devices` lists those that exist)"
        );
        let other = kernel.find("00:00.0").unwrap_err().to_string();
        assert!(other.contains("is no virtio network card"), "{other}");
        let unknown = kernel.find("eth9").unwrap_err().to_string();
        assert!(unknown.contains("no interface named \"eth9\""), "{unknown}");
        assert_eq!(kernel.interface_of(CARD.parse().unwrap()).as_deref(), Some("weft-none"));
    }

    #[test]
    fn a_driver_that_does_not_take_the_card_and_one_without_iommu_are_named() {
        let (_dir, kernel) = kernel("virtio-pci");
        // Nothing in this kernel binds: the former driver stays.
        let stays = sentence(&kernel, &arguments(Driver::Uio, CARD));
        assert!(
            stays.starts_with("virtio-pci took 0000:00:04.0 instead of uio_pci_generic"),
            "{stays}"
        );
        let device = kernel.device(CARD.parse().unwrap());
        assert_eq!(
            fs::read_to_string(device.join("driver_override")).unwrap(),
            "uio_pci_generic\n"
        );
        let iommu = sentence(&kernel, &arguments(Driver::Vfio, CARD));
        assert!(iommu.contains("behind no IOMMU"), "{iommu}");
        let user = Bind {
            user: Some(1000),
            ..arguments(Driver::Uio, CARD)
        };
        assert!(sentence(&kernel, &user).contains("only root"));
    }

    #[test]
    fn a_card_that_is_there_already_stays_and_one_that_a_program_drives_is_refused() {
        let (_dir, kernel) = kernel("uio_pci_generic");
        let bound = bind_in(&kernel, &arguments(Driver::Uio, CARD), |_| panic!("nothing to load")).unwrap();
        assert_eq!(
            bound.to_string(),
            "0000:00:04.0 is with uio_pci_generic; programs reach it as virtio:0000:00:04.0"
        );
        let config = fs::File::open(kernel.device(CARD.parse().unwrap()).join("config")).unwrap();
        config.lock().unwrap();
        let device = CARD.to_owned();
        let refused = unbind_in(&kernel, &Unbind { device }).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "another program drives the card 0000:00:04.0 already; end it first"
        );
    }

    #[test]
    fn a_card_is_given_to_users_that_exist() {
        let command = Bind::augment_args(clap::Command::new("bind"));
        let parse = |user| {
            let words = ["bind", "--driver", "vfio", "--user", user, CARD];
            command.clone().try_get_matches_from(words)
        };
        assert!(parse("4294967294").is_ok());
        assert!(parse("4294967295").is_err(), "it means no change of the owner");
    }

    #[test]
    fn a_missing_module_is_named() {
        let (_dir, kernel) = kernel("virtio-pci");
        let missing = bind_in(&kernel, &arguments(Driver::Uio, CARD), |_| {
            load(&["weft_no_such_module"])
        });
        let sentence = missing.unwrap_err().to_string();
        assert!(
            sentence.contains("the kernel's module weft_no_such_module cannot be loaded"),
            "{sentence}"
        );
    }
}
