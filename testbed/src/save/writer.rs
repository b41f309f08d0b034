//! Writes a saved lab: into a folder beside the one that is wanted, which gets its name when everything is on the disk.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use sha2::{Digest, Sha256};

use super::{FORMAT, Header, MANIFEST, Manifest, SavedFile, hex};

/// Bytes that are read, hashed and written at once.
const PIECE_LEN: usize = 1 << 20;

/// A saved lab that is being written. Dropped before [`finish`](Self::finish), it leaves nothing.
#[derive(Debug)]
pub struct Writer {
    target: PathBuf,
    partial: PathBuf,
    replace: bool,
    /// The folder, locked for as long as it is written.
    folder: File,
    /// Files that were copied, by their paths.
    copied: BTreeMap<PathBuf, SavedFile>,
    bytes: u64,
    finished: bool,
}

impl Writer {
    /// Begins to write what will be the folder `target`; with `replace` also if it is a saved lab already.
    ///
    /// # Errors
    /// One sentence when it is there and may not or cannot be replaced, or cannot be written.
    pub fn begin(target: &Path, replace: bool) -> Result<Self> {
        check_target(target, replace)?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(target.file_name().context("a saved lab needs a name")?);
        hidden.push(".partial");
        let partial = target.with_file_name(hidden);
        let unwritable = || format!("cannot write {}", target.display());
        // Left by one that was killed, or being written just now.
        if let Ok(left) = File::open(&partial) {
            ensure!(
                flock(&left, FlockOperation::NonBlockingLockExclusive).is_ok(),
                "another weft is writing {}",
                target.display()
            );
            fs::remove_dir_all(&partial).with_context(unwritable)?;
        }
        DirBuilder::new()
            .mode(0o700)
            .create(&partial)
            .with_context(unwritable)?;
        let folder = File::open(&partial).with_context(unwritable)?;
        flock(&folder, FlockOperation::NonBlockingLockExclusive).with_context(unwritable)?;
        Ok(Self {
            target: target.to_owned(),
            partial,
            replace,
            folder,
            copied: BTreeMap::new(),
            bytes: 0,
            finished: false,
        })
    }

    /// Writes what `from` gives, to its end, as the file `name`. `progress` hears after each piece how much there is by now, and
    /// can stop it.
    ///
    /// # Errors
    /// When something cannot be read or written, or `progress` says so.
    pub fn write(
        &mut self,
        name: &str,
        mut from: impl Read,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<SavedFile> {
        let unwritable = || format!("cannot write {}", self.target.join(name).display());
        let mut file = create(&self.partial.join(name)).with_context(unwritable)?;
        let (mut hash, mut bytes) = (Sha256::new(), 0);
        let mut piece = vec![0; PIECE_LEN];
        loop {
            let len = match from.read(&mut piece) {
                Ok(0) => break,
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("cannot read what is to be saved"),
            };
            hash.update(&piece[..len]);
            file.write_all(&piece[..len]).with_context(unwritable)?;
            bytes += len as u64;
            progress(bytes)?;
        }
        self.bytes += bytes;
        Ok(SavedFile {
            name: name.to_owned(),
            bytes,
            sha256: hex(hash.finalize()),
        })
    }

    /// Copies a file, unless it is there already.
    ///
    /// # Errors
    /// When it cannot be read or written, or `progress` says so.
    pub fn copy(&mut self, path: &Path, progress: &mut dyn FnMut(u64) -> Result<()>) -> Result<SavedFile> {
        if let Some(copied) = self.copied.get(path) {
            return Ok(copied.clone());
        }
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let base = path.file_name().and_then(|name| name.to_str()).unwrap_or("file");
        // One that was restored has a number of the save that it is from.
        let base = base
            .strip_prefix("file")
            .and_then(|rest| rest.split_once('-'))
            .filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()))
            .map_or(base, |(_, base)| base);
        let known = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
        let base: String = base.chars().filter(known).take(64).collect();
        let saved = self.write(&format!("file{}-{base}", self.copied.len()), file, progress)?;
        self.copied.insert(path.to_owned(), saved.clone());
        Ok(saved)
    }

    /// Writes down what the files are, waits until all is on the disk, and gives the folder its name. Says how many bytes it holds.
    ///
    /// # Errors
    /// When something cannot be written. Then nothing is left, and a folder that was to be replaced is as it was.
    pub fn finish(mut self, manifest: &Manifest) -> Result<u64> {
        let unwritable = || format!("cannot write {}", self.target.display());
        let body = serde_json::to_vec_pretty(manifest)?;
        let header = Header {
            weft_save: FORMAT,
            sha256: hex(Sha256::digest(&body)),
        };
        let mut text = serde_json::to_vec(&header)?;
        text.push(b'\n');
        text.extend_from_slice(&body);
        let mut file = create(&self.partial.join(MANIFEST)).with_context(unwritable)?;
        file.write_all(&text).with_context(unwritable)?;
        for entry in fs::read_dir(&self.partial).with_context(unwritable)? {
            let synced = entry.and_then(|entry| File::open(entry.path())?.sync_all());
            synced.with_context(unwritable)?;
        }
        self.folder.sync_all().with_context(unwritable)?;
        self.rename().with_context(unwritable)?;
        self.finished = true;
        Ok(self.bytes + text.len() as u64)
    }

    fn rename(&self) -> Result<()> {
        let replaces = self.replace && self.target.symlink_metadata().is_ok();
        if replaces {
            check_target(&self.target, true)?;
        }
        let flags = if replaces {
            RenameFlags::EXCHANGE
        } else {
            RenameFlags::NOREPLACE
        };
        renameat_with(CWD, &self.partial, CWD, &self.target, flags)?;
        if replaces {
            // The former save has the other name now.
            fs::remove_dir_all(&self.partial)?;
        }
        let parent = self.target.parent().unwrap_or(Path::new("/"));
        Ok(File::open(parent)?.sync_all()?)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished {
            // What cannot be removed is found by the next one.
            _ = fs::remove_dir_all(&self.partial);
        }
    }
}

fn create(path: &Path) -> io::Result<File> {
    // Guests' memory may hold secrets.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn check_target(target: &Path, replace: bool) -> Result<()> {
    match fs::symlink_metadata(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot write {}", target.display())),
        Ok(_) if !replace => bail!(
            "{} exists: choose another name, or replace it with --force",
            target.display()
        ),
        Ok(found) => {
            ensure!(
                found.is_dir() && target.join(MANIFEST).is_file(),
                "{} is no saved lab, so it is not replaced: choose another name",
                target.display()
            );
            Ok(())
        }
    }
}
