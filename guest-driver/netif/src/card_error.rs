//! What can go wrong with a card that a program drives itself.

use std::{io, path::PathBuf};

use crate::{card_address::CardAddress, card_holder::Holder};

/// Why a card cannot be driven from user space.
#[derive(Debug, thiserror::Error)]
pub enum VirtioError {
    /// It is not the address of a PCI device.
    #[error("{text:?} is no PCI address; one looks like 0000:00:04.0 (`ls /sys/bus/pci/devices` lists them)")]
    BadAddress {
        /// What was given.
        text: String,
    },
    /// The machine has no such device.
    #[error("there is no PCI device {address} (`ls /sys/bus/pci/devices` lists those that exist)")]
    NoSuchDevice {
        /// Its address.
        address: CardAddress,
    },
    /// The device is something else.
    #[error(
        "the device {address} is no virtio network card (vendor {vendor:#06x}, device {device:#06x}); choose another"
    )]
    NotACard {
        /// Its address.
        address: CardAddress,
        /// The vendor's number.
        vendor: u32,
        /// The vendor's number for the kind of device.
        device: u32,
    },
    /// A driver of the kernel has the card, or none.
    #[error(
        "the card {address} is {}; `nicctl bind --driver uio {address}` gives it to programs",
        .driver.as_ref().map_or_else(|| "with no driver".to_owned(), |driver| format!("with the kernel's driver {driver}"))
    )]
    NotBound {
        /// Its address.
        address: CardAddress,
        /// The driver.
        driver: Option<String>,
    },
    /// The card has no line for interrupts.
    #[error("the card {address} has no interrupts")]
    NoInterrupts {
        /// Its address.
        address: CardAddress,
    },
    /// Another process drives the card.
    #[error(
        "another program drives the card {address} already{}; end it first",
        .by.as_ref().map_or_else(String::new, |holder| format!(" ({holder})"))
    )]
    InUse {
        /// Its address.
        address: CardAddress,
        /// That process, where it can be found.
        by: Option<Holder>,
    },
    /// The process may not drive cards.
    #[error("driving the card {address} through uio needs root, because its rings reach all memory")]
    NoPrivilege {
        /// Its address.
        address: CardAddress,
    },
    /// The IOMMU group of the card belongs to another user.
    #[error("{} belongs to another user: root gives it away with `nicctl bind --driver vfio --user UID {address}`", path.display())]
    NotOwner {
        /// The card.
        address: CardAddress,
        /// The file of the group.
        path: PathBuf,
    },
    /// The card lacks something, or answers nonsense.
    #[error("the card {address} cannot be used: {what}")]
    Unusable {
        /// Its address.
        address: CardAddress,
        /// What is wrong.
        what: &'static str,
    },
    /// The card broke the rules of its rings, which are not used any more.
    #[error("the card {address} broke the rules of its rings ({what}); open it anew")]
    Broken {
        /// Its address.
        address: CardAddress,
        /// Which rule.
        what: &'static str,
    },
    /// The operating system refused something.
    #[error("cannot {what} of the card {address}: {source}")]
    Io {
        /// Its address.
        address: CardAddress,
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl VirtioError {
    /// Makes the error for what the system refused while this was tried with a card: for `map_err`.
    pub(crate) fn io<E: Into<io::Error>>(address: CardAddress, what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| match source.into() {
            source if matches!(source.kind(), io::ErrorKind::PermissionDenied) => Self::NoPrivilege { address },
            source => Self::Io { address, what, source },
        }
    }
}
