//! Reads a saved lab: its contents, whether it is complete, and whether this machine can continue it.

use std::{
    collections::BTreeSet,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};
use weft_agent::config::{FILES_DISK, ROOT_DISK};

use super::{FORMAT, Header, MANIFEST, MANIFEST_LEN_MAX, Manifest, SavedFile, cpu_flags, why_not};
use crate::{
    accel::{Accel, AccelChoice},
    digest::{digest_of, hex},
    lab::{self, Boot},
    qemu::{self, Version},
};

/// A saved lab that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    folder: PathBuf,
    manifest: Manifest,
}

impl Saved {
    /// Reads the manifest in the folder, and checks everything but the contents of its files.
    ///
    /// # Errors
    /// Fails with one sentence when it is not a saved lab, or a damaged one.
    pub fn open(folder: &Path) -> Result<Self> {
        let folder = std::path::absolute(folder)?;
        let manifest = read_manifest(&folder)?;
        check(&manifest).map_err(|why| anyhow::anyhow!("the saved lab {} is not valid: {why}", folder.display()))?;
        let saved = Self { folder, manifest };
        for file in saved.files() {
            let path = saved.path(file);
            let found = path.symlink_metadata();
            let found =
                found.with_context(|| format!("the saved lab is incomplete: cannot read {}", path.display()))?;
            ensure!(
                found.is_file() && found.len() == file.bytes,
                "the saved lab is damaged: {} has {} bytes instead of {}",
                path.display(),
                found.len(),
                file.bytes
            );
        }
        Ok(saved)
    }

    /// Returns the manifest.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of a file of the save.
    #[must_use]
    pub fn path(&self, file: &SavedFile) -> PathBuf {
        self.folder.join(&file.name)
    }

    /// Returns the files of the save, each once.
    fn files(&self) -> impl Iterator<Item = &SavedFile> {
        let mut seen = BTreeSet::new();
        let all = self.manifest.nodes.iter().flat_map(super::SavedNode::files);
        all.filter(move |file| seen.insert(&file.name))
    }

    /// Reads all files and compares their checksums; `progress` is called with each file.
    ///
    /// # Errors
    /// Fails with one sentence about the first file that is damaged.
    pub fn verify(&self, progress: &mut dyn FnMut(&SavedFile)) -> Result<()> {
        for file in self.files() {
            progress(file);
            let path = self.path(file);
            let digest = File::open(&path).and_then(digest_of);
            let digest = digest.with_context(|| format!("cannot read {}", path.display()))?;
            ensure!(
                digest == file.sha256,
                "the saved lab is damaged: the checksum of {} is wrong",
                path.display()
            );
        }
        Ok(())
    }

    /// Checks whether this machine can continue the lab: it needs a matching QEMU and the accelerator that ran the
    /// guests' instructions.
    ///
    /// # Errors
    /// Fails with one sentence about what is missing.
    pub fn check_means(&self, qemu: Version, asked_for: AccelChoice) -> Result<()> {
        let (manifest, here) = (&self.manifest, qemu.to_string());
        let series = |version: &str| version.rsplit_once('.').map(|(series, _)| series.to_owned());
        ensure!(
            series(&manifest.qemu) == series(&here),
            "the lab was saved by QEMU {} and this is QEMU {here}, which cannot continue it: name the other one in WEFT_QEMU",
            manifest.qemu
        );
        let accel = manifest.accel;
        if asked_for != AccelChoice::Auto && asked_for != accel.into() {
            let asked_for = AccelChoice::name(asked_for);
            bail!("the lab was saved under {accel} and cannot continue under {asked_for}");
        }
        if accel == Accel::Tcg {
            return Ok(());
        }
        let device = File::options().read(true).write(true).open("/dev/kvm");
        device.context("the lab was saved under kvm, which cannot be used here")?;
        let here = cpu_flags();
        if let Some(missing) = manifest.cpu_flags.iter().find(|flag| !here.contains(flag)) {
            bail!("the lab was saved under kvm, on a processor that has {missing}, which the one here has not");
        }
        Ok(())
    }

    /// Returns what the QEMU of that node is started with.
    #[must_use]
    pub fn boot(&self, node: &str) -> Option<qemu::Boot> {
        let saved = self.manifest.nodes.iter().find(|saved| saved.name == node)?;
        let append = match &self.manifest.lab.node(node)?.boot {
            Boot::Recipe { append, .. } | Boot::Kernel { append, .. } => append.clone(),
            Boot::Disk { .. } => return None,
        };
        let disks = saved.disks.iter().filter_map(|disk| {
            Some(qemu::SharedDisk {
                serial: known_serial(&disk.serial)?,
                path: self.path(&disk.contents),
            })
        });
        Some(qemu::Boot {
            kernel: Some(self.path(&saved.kernel)),
            initramfs: saved.initramfs.as_ref().map(|file| self.path(file)),
            append,
            shared_disks: disks.collect(),
            ..qemu::Boot::default()
        })
    }
}

/// Returns the serial number if Weft's guests know it.
fn known_serial(serial: &str) -> Option<&'static str> {
    [ROOT_DISK, FILES_DISK].into_iter().find(|known| *known == serial)
}

fn read_manifest(folder: &Path) -> Result<Manifest> {
    let path = folder.join(MANIFEST);
    let unreadable = || format!("cannot read {}", path.display());
    // A pipe of that name is not opened, since that would wait for its writer.
    if !path.is_file() {
        bail!("{} is not a saved lab: there is no {MANIFEST} in it", folder.display());
    }
    let file = File::open(&path).with_context(unreadable)?;
    let mut text = Vec::new();
    file.take(MANIFEST_LEN_MAX + 1)
        .read_to_end(&mut text)
        .with_context(unreadable)?;
    let damaged = |why: &str| anyhow::anyhow!("{} is damaged: {why}", path.display());
    if text.len() as u64 > MANIFEST_LEN_MAX {
        return Err(damaged("it is too long"));
    }
    let end = text.iter().position(|byte| *byte == b'\n');
    let (first, body) = text.split_at(end.ok_or_else(|| damaged("it has no first line"))?);
    let body = body.get(1..).unwrap_or_default();
    let header: Header =
        serde_json::from_slice(first).map_err(|_| damaged("its first line is not that of a saved lab"))?;
    ensure!(
        header.weft_save == FORMAT,
        "{} has the format {} and this weft reads the format {FORMAT}",
        folder.display(),
        header.weft_save
    );
    if hex(Sha256::digest(body)) != header.sha256 {
        return Err(damaged("its checksum is wrong"));
    }
    serde_json::from_slice(body).map_err(|error| {
        // The file is intact, and still not what this weft writes.
        anyhow::anyhow!("{} was written by another version of weft: {error}", path.display())
    })
}

/// Checks what must hold for any manifest, since names become paths and numbers become memory.
fn check(manifest: &Manifest) -> Result<(), String> {
    let Manifest { lab, nodes, .. } = manifest;
    let mut names = lab.nodes.iter().map(|node| &node.name);
    let wrong = names.find(|name| !lab::is_name(name));
    if let Some(name) = wrong.or((!lab::is_lab_name(&lab.name)).then_some(&lab.name)) {
        return Err(format!("{name:?} is no name"));
    }
    let saved = nodes.iter().map(|node| &node.name);
    if !lab.nodes.iter().map(|node| &node.name).eq(saved.clone()) {
        return Err("the nodes of the lab and those that were saved differ".to_owned());
    }
    if nodes.is_empty() || nodes.len() > lab::NODES_MAX || saved.collect::<BTreeSet<_>>().len() != nodes.len() {
        return Err("it has no nodes, too many, or two of one name".to_owned());
    }
    for (node, saved) in lab.nodes.iter().zip(nodes) {
        if node.nics.len() > lab::NICS_MAX || node.cpus > lab::CPUS_MAX {
            let name = &node.name;
            return Err(format!("{name} has more cards or processors than a node can have"));
        }
        if let Some(why) = why_not(node) {
            return Err(why);
        }
        if let Some(file) = saved.files().find(|file| !is_file_name(&file.name)) {
            return Err(format!("{:?} is no name of a file", file.name));
        }
        if let Some(disk) = saved.disks.iter().find(|disk| known_serial(&disk.serial).is_none()) {
            return Err(format!(
                "no guest knows a disk with the serial number {:?}",
                disk.serial
            ));
        }
    }
    Ok(())
}

fn is_file_name(name: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=255).contains(&name.len()) && !name.starts_with('.') && name.chars().all(known)
}
