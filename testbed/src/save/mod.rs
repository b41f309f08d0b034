//! A saved lab on disk: a folder with the state of each guest, the files that its QEMU is started with, and a manifest.
//! This module writes, reads and checks such folders; it stops and starts nothing.
//!
//! A folder is written under another name and renamed when all of it is on the disk, so that a partial folder never has
//! the final name. Sizes and checksums are compared before anything is started from a folder.

mod reader;
mod writer;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{
    accel::Accel,
    lab::{Boot, Lab, Node},
    settings_in_force::Settings,
};

pub use reader::Saved;
pub use writer::{Writer, check_lab};

/// Version of the format; others are refused.
pub const FORMAT: u32 = 1;

/// Name of the manifest, which describes the other files.
const MANIFEST: &str = "save.json";

/// Length of the manifest in bytes. Texts that a lab file gives its guests are in it once for each guest: a file of 1
/// MiB, the largest, and 64 nodes make 64 MiB.
const MANIFEST_LEN_MAX: u64 = 128 << 20;

/// Number of bytes of the manifest for everything but the lab: settings, and names and checksums of files.
const BESIDE_LAB_LEN_MAX: u64 = 16 << 20;

/// First line of the manifest, which is followed by a [`Manifest`].
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    weft_save: u32,
    sha256: String,
}

/// The manifest describes the contents of a saved lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the `weft` that wrote the save.
    pub weft: String,
    /// Time when the guests were stopped, in milliseconds since 1970.
    pub saved_unix_ms: u64,
    /// Version of the QEMU that wrote the guests' states.
    pub qemu: String,
    /// Accelerator that ran the guests' instructions.
    pub accel: Accel,
    /// Features of the host's processor, if the guests ran on it.
    pub cpu_flags: Vec<String>,
    /// Path of the lab file that `weft up` would reconcile with.
    pub file: Option<PathBuf>,
    /// Lab as the lab file described it.
    pub lab: Lab,
    /// Settings in force on cards and cables.
    pub settings: Settings,
    /// Guests in the order of the lab.
    pub nodes: Vec<SavedNode>,
}

/// A saved guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedNode {
    /// Name of the node.
    pub name: String,
    /// State of the QEMU: memory, processors, devices.
    pub state: SavedFile,
    /// Kernel that the guest booted, and boots again.
    pub kernel: SavedFile,
    /// Initramfs that the guest booted.
    pub initramfs: Option<SavedFile>,
    /// Read-only disks.
    pub disks: Vec<SavedDisk>,
    /// Release of the kernel and hash of the image, if the guest boots an image of Weft.
    pub image: Option<(String, String)>,
}

/// A read-only disk of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedDisk {
    /// Serial number of the disk.
    pub serial: String,
    /// File with the contents of the disk.
    pub contents: SavedFile,
}

/// A file of a saved lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedFile {
    /// Name of the file in the folder.
    pub name: String,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// SHA-256 of the contents, in hexadecimal.
    pub sha256: String,
}

impl SavedNode {
    /// Returns all files of the guest. Guests share equal files.
    pub fn files(&self) -> impl Iterator<Item = &SavedFile> {
        let disks = self.disks.iter().map(|disk| &disk.contents);
        [&self.state, &self.kernel]
            .into_iter()
            .chain(&self.initramfs)
            .chain(disks)
    }
}

/// Returns why a guest like this cannot be saved: one clause that names the node.
#[must_use]
pub fn why_not(node: &Node) -> Option<String> {
    match &node.boot {
        Boot::Disk { .. } => Some(format!(
            "{} boots a disk of its own, and what it writes there is not saved with its memory",
            node.name
        )),
        _ if node.cloud_init.is_some() => Some(format!(
            "{} is set up by cloud-init (`cloud_init`), whose disk is not saved with its memory",
            node.name
        )),
        _ if !node.setup.mount.is_empty() => Some(format!(
            "{} has folders of this machine (`mount`), and QEMU cannot save a guest that uses them",
            node.name
        )),
        _ => None,
    }
}

/// Returns the features of the host's processor, in the kernel's words.
#[must_use]
pub fn cpu_flags() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags"));
    let flags = flags
        .and_then(|rest| rest.split_once(':'))
        .map_or("", |(_, flags)| flags);
    flags.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
