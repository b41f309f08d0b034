//! Finds the QEMU binary and what its version supports (`docs/spec/qemu.md`, section 1). This module starts no guest.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Qemu, QemuError};

/// Name of the binary that is searched for in `PATH`.
const BINARY: &str = "qemu-system-x86_64";

/// The oldest version whose command line weft knows.
const OLDEST: Version = version(7, 0, 0);

/// The first version in which a vhost-user NIC under TCG may have MSI-X; 7.2 crashes with it. Versions between 7.2 and
/// this one were not tried, so they are treated like 7.2.
const WITH_VECTORS: Version = version(9, 0, 0);

/// The first version that takes the reconnect time of a socket in milliseconds.
const WITH_RECONNECT_MS: Version = version(9, 2, 0);

/// A QEMU version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major version number.
    pub major: u32,
    /// Minor version number.
    pub minor: u32,
    /// Micro version number.
    pub micro: u32,
}

const fn version(major: u32, minor: u32, micro: u32) -> Version {
    Version { major, minor, micro }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

impl Qemu {
    /// Finds the binary in `$WEFT_QEMU` (with the folders in `$WEFT_QEMU_DATA`, separated by colons, as its `-L`), else
    /// `qemu-system-x86_64` in `PATH`. QEMU inherits `QEMU_MODULE_DIR` unchanged.
    ///
    /// # Errors
    /// Fails when there is none, or it cannot be used.
    pub fn discover() -> Result<Self, QemuError> {
        let data = std::env::var_os("WEFT_QEMU_DATA").unwrap_or_default();
        let data = std::env::split_paths(&data)
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
        match std::env::var_os("WEFT_QEMU").filter(|path| !path.is_empty()) {
            Some(binary) => Self::at(&PathBuf::from(binary), data),
            None => Self::at(Path::new(BINARY), data),
        }
    }

    /// Uses the binary at `binary` (or found in `PATH` by that name), with `data_directories` as its `-L`.
    ///
    /// # Errors
    /// Fails as [`Qemu::discover`] does.
    pub fn at(binary: &Path, data_directories: Vec<PathBuf>) -> Result<Self, QemuError> {
        let unusable = |why: String| QemuError::Unusable {
            binary: binary.to_path_buf(),
            why,
        };
        let output = Command::new(binary)
            .arg("-version")
            .output()
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => QemuError::NotFound(binary.to_path_buf()),
                _ => unusable(error.to_string()),
            })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = parse_version(&text).ok_or_else(|| {
            let said = String::from_utf8_lossy(&output.stderr);
            unusable(format!(
                "it does not say its version ({})",
                said.lines().next().unwrap_or("no output")
            ))
        })?;
        if version < OLDEST {
            return Err(unusable(format!(
                "it is version {version}, {OLDEST} is the oldest that works"
            )));
        }
        Ok(Self {
            binary: binary.to_path_buf(),
            version,
            data_directories,
        })
    }

    /// Returns the path by which the binary is started.
    #[must_use]
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Returns the version of the binary.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns whether a NIC has a separate interrupt for each queue, visible in the guest's `/proc/interrupts`.
    #[must_use]
    pub fn queue_interrupts(&self) -> bool {
        self.version >= WITH_VECTORS
    }

    /// Returns the reconnect option of a client socket.
    pub(super) fn reconnect(&self) -> &'static str {
        if self.version >= WITH_RECONNECT_MS {
            "reconnect-ms=500"
        } else {
            "reconnect=1"
        }
    }

    /// Returns what a newer QEMU would add to this one, one clause each; empty when nothing.
    #[must_use]
    pub fn newer_would_add(&self) -> Vec<&'static str> {
        let mut gains = Vec::new();
        if !self.queue_interrupts() {
            gains.push("an interrupt of its own for each queue of a card (MSI-X), and so steering to processors");
        }
        gains
    }

    /// Makes one from its version alone, to test argument lists.
    #[cfg(test)]
    pub(super) fn of_version(version: Version) -> Self {
        Self {
            binary: BINARY.into(),
            version,
            data_directories: Vec::new(),
        }
    }

    /// Returns the `-L` arguments.
    pub(super) fn data_arguments(&self) -> impl Iterator<Item = OsString> {
        self.data_directories
            .iter()
            .flat_map(|path| [OsString::from("-L"), path.clone().into_os_string()])
    }
}

/// Parses `QEMU emulator version 7.2.22 (Debian …)`.
fn parse_version(text: &str) -> Option<Version> {
    let words = text.strip_prefix("QEMU emulator version ")?;
    let number = words.split(|c: char| c.is_whitespace()).next()?;
    let mut parts = number.split('.').map(|part| part.parse().ok());
    let version = Version {
        major: parts.next()??,
        minor: parts.next()??,
        micro: parts.next().flatten().unwrap_or(0),
    };
    Some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_debian_and_upstream_print_them() {
        let version = |major, minor, micro| Some(Version { major, minor, micro });
        let debian = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright";
        assert_eq!(parse_version(debian), version(7, 2, 22));
        assert_eq!(parse_version("QEMU emulator version 10.0.2 (v)\n"), version(10, 0, 2));
        assert_eq!(parse_version("QEMU emulator version 11.1.0-rc2\n"), version(11, 1, 0));
        assert_eq!(parse_version("qemu-img version 7.2.0"), None);
    }

    #[test]
    fn a_missing_or_wrong_binary_is_one_sentence() {
        let missing = Qemu::at(Path::new("/no/such/qemu"), Vec::new())
            .unwrap_err()
            .to_string();
        assert!(missing.starts_with("/no/such/qemu was not found: install"), "{missing}");
        let wrong = Qemu::at(Path::new("/bin/true"), Vec::new()).unwrap_err().to_string();
        assert!(wrong.contains("does not say its version"), "{wrong}");
    }
}
