//! The name of a card that programs drive themselves: its place on the PCI bus.

use std::{fmt, path::PathBuf, str::FromStr};

use crate::card_error::VirtioError;

/// What names of such cards begin with, where names of interfaces stand, too.
const PREFIX: &str = "virtio:";
/// The folder of all PCI devices.
const DEVICES: &str = "/sys/bus/pci/devices";
/// Domains above it have no number among interfaces; machines number theirs from 0.
const DOMAIN_MAX: u16 = 0x7fff;

/// The place of a device on the PCI bus, as in `0000:00:04.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CardAddress {
    domain: u16,
    bus: u8,
    /// Device and function, as PCI packs them.
    slot: u8,
}

impl CardAddress {
    /// Reads the name of a card where interfaces are named, such as `virtio:0000:00:04.0`; `None` for the name of an
    /// interface of the kernel.
    ///
    /// # Errors
    /// [`VirtioError::BadAddress`] behind the prefix.
    pub fn of_interface(name: &str) -> Result<Option<Self>, VirtioError> {
        name.starts_with(PREFIX).then(|| name.parse()).transpose()
    }

    /// Returns the name by which the card stands among interfaces.
    pub fn interface_name(self) -> String {
        format!("{PREFIX}{self}")
    }

    /// Returns the number that stands for the card where interfaces have their index: a negative one, which no
    /// interface of the kernel has.
    pub fn index(self) -> i32 {
        -1 - (i32::from(self.domain) << 16 | i32::from(self.bus) << 8 | i32::from(self.slot))
    }

    /// Returns the card that this number stands for; `None` for an interface of the kernel.
    pub fn of_index(index: i32) -> Option<Self> {
        let packed = (-1i32).wrapping_sub(index);
        (index < 0).then_some(Self {
            domain: (packed >> 16) as u16,
            bus: (packed >> 8) as u8,
            slot: packed as u8,
        })
    }

    /// Returns the folder in which the kernel describes the device.
    pub fn folder(self) -> PathBuf {
        PathBuf::from(DEVICES).join(self.to_string())
    }
}

impl fmt::Display for CardAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (device, function) = (self.slot >> 3, self.slot & 7);
        write!(f, "{:04x}:{:02x}:{device:02x}.{function}", self.domain, self.bus)
    }
}

impl FromStr for CardAddress {
    type Err = VirtioError;

    /// Reads `DDDD:BB:DD.F`; the domain may be left out, as `lspci` leaves it out, and `virtio:` may stand before it, as in
    /// [`CardAddress::interface_name`].
    fn from_str(text: &str) -> Result<Self, VirtioError> {
        let place = text.strip_prefix(PREFIX).unwrap_or(text);
        let read = || {
            let hexadecimal = |part: &str, digits_max: usize| {
                let plain = part.bytes().all(|byte| byte.is_ascii_hexdigit());
                (plain && (1..=digits_max).contains(&part.len())).then(|| u16::from_str_radix(part, 16).ok())?
            };
            let (rest, function) = place.rsplit_once('.')?;
            let mut parts = rest.rsplit(':');
            let device = hexadecimal(parts.next()?, 2).filter(|device| *device < 32)?;
            let bus = hexadecimal(parts.next()?, 2)?;
            let domain = match parts.next() {
                Some(domain) => hexadecimal(domain, 4).filter(|domain| *domain <= DOMAIN_MAX)?,
                None => 0,
            };
            let function = hexadecimal(function, 1).filter(|function| *function < 8)?;
            parts.next().is_none().then_some(Self {
                domain,
                bus: bus as u8,
                slot: (device << 3 | function) as u8,
            })
        };
        read().ok_or_else(|| VirtioError::BadAddress { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_domain_and_nothing_else_is() {
        for (text, shown) in [
            ("0000:00:04.0", "0000:00:04.0"),
            ("00:04.0", "0000:00:04.0"),
            ("7fff:ff:1f.7", "7fff:ff:1f.7"),
            ("0:3:a.1", "0000:03:0a.1"),
            ("virtio:0000:00:04.0", "0000:00:04.0"),
        ] {
            assert_eq!(text.parse::<CardAddress>().unwrap().to_string(), shown, "{text}");
        }
        for text in [
            "",
            "4",
            "04.0",
            "8000:00:04.0",
            "00:20.0",
            "00:04.8",
            "1:0:00:04.0",
            "+0:04.0",
            "00:04.0 ",
            "eth0",
            "virtio:virtio:00:04.0",
            "00:04",
            "../../etc:00:04.0",
        ] {
            assert!(text.parse::<CardAddress>().is_err(), "{text}");
        }
        assert_eq!(CardAddress::of_interface("eth0").unwrap(), None);
        assert!(CardAddress::of_interface("virtio:eth0").is_err());
    }

    proptest! {
        #[test]
        fn every_card_has_a_number_of_its_own(domain in 0..=DOMAIN_MAX, bus: u8, slot: u8) {
            let card = CardAddress { domain, bus, slot };
            prop_assert!(card.index() < 0);
            prop_assert_eq!(CardAddress::of_index(card.index()), Some(card));
            prop_assert_eq!(CardAddress::of_interface(&card.interface_name()).unwrap(), Some(card));
        }

        #[test]
        fn interfaces_of_the_kernel_are_no_cards(index in 0..=i32::MAX) {
            prop_assert_eq!(CardAddress::of_index(index), None);
        }
    }
}
