//! A saved lab on disk: a folder with the state of each guest, the files that its QEMU is started with, and a file that says
//! what they are. Writes, reads and checks such folders; freezes and starts nothing.
//!
//! A folder is written under another name and renamed when all of it is on the disk, so that there is never a half-written one.
//! What is read is not trusted to be whole: sizes and checksums are compared before anything is started.

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

/// The file that says what the others are.
const MANIFEST: &str = "save.json";

/// Bytes of that file. Texts that a lab file gives its guests are in it once for each guest: a file of 1 MiB, the largest, and 64
/// nodes make 64 MiB.
const MANIFEST_LEN_MAX: u64 = 128 << 20;

/// Bytes of it that what is not the lab may take: settings, and names and checksums of files.
const BESIDE_LAB_LEN_MAX: u64 = 16 << 20;

/// First line of that file. What follows it is a [`Manifest`].
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    weft_save: u32,
    sha256: String,
}

/// What is in a saved lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the `weft` that wrote it.
    pub weft: String,
    /// When the guests were stopped, in milliseconds since 1970.
    pub saved_unix_ms: u64,
    /// Version of the QEMU that wrote the guests' states.
    pub qemu: String,
    /// What ran the guests' instructions.
    pub accel: Accel,
    /// What the host's processor can do, if the guests ran on it.
    pub cpu_flags: Vec<String>,
    /// The lab file, as `weft up` would follow it.
    pub file: Option<PathBuf>,
    /// What the lab file said.
    pub lab: Lab,
    /// What was in force on cards and cables.
    pub settings: Settings,
    /// The guests, in the order of the lab.
    pub nodes: Vec<SavedNode>,
}

/// A saved guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedNode {
    /// Its name.
    pub name: String,
    /// The state of its QEMU: memory, processors, devices.
    pub state: SavedFile,
    /// Kernel that it was booted with, and boots again.
    pub kernel: SavedFile,
    /// Initramfs.
    pub initramfs: Option<SavedFile>,
    /// Read-only disks.
    pub disks: Vec<SavedDisk>,
    /// If it boots an image of weft's own: the kernel's release and the image's hash.
    pub image: Option<(String, String)>,
}

/// A read-only disk of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedDisk {
    /// Serial number.
    pub serial: String,
    /// Contents.
    pub contents: SavedFile,
}

/// A file of a saved lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedFile {
    /// Its name in the folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// SHA-256 of its contents, in hexadecimal.
    pub sha256: String,
}

impl SavedNode {
    /// All files of the guest. Guests share those that are the same.
    pub fn files(&self) -> impl Iterator<Item = &SavedFile> {
        let disks = self.disks.iter().map(|disk| &disk.contents);
        [&self.state, &self.kernel]
            .into_iter()
            .chain(&self.initramfs)
            .chain(disks)
    }
}

/// Why a guest like this cannot be saved: one clause that names the node.
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

/// What the host's processor can do, in the kernel's words.
#[must_use]
pub fn cpu_flags() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags"));
    let flags = flags
        .and_then(|rest| rest.split_once(':'))
        .map_or("", |(_, flags)| flags);
    flags.split_whitespace().map(str::to_owned).collect()
}

fn hex(digest: impl AsRef<[u8]>) -> String {
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
