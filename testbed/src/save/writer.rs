//! Writes a saved lab into a folder beside the final one, which is renamed when everything is on the disk.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::{
    fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with},
    io::Errno,
};
use sha2::{Digest, Sha256};

use super::{BESIDE_LAB_LEN_MAX, FORMAT, Header, MANIFEST, MANIFEST_LEN_MAX, Manifest, SavedFile};
use crate::digest::hex;
use crate::lab::Lab;

/// Checks whether a lab can be written down, before its guests are stopped.
///
/// # Errors
/// Fails with one sentence when it is so long that [`Saved`](super::Saved) would not read it.
pub fn check_lab(lab: &Lab) -> Result<()> {
    let len = serde_json::to_vec_pretty(lab)?.len() as u64;
    let most = MANIFEST_LEN_MAX - BESIDE_LAB_LEN_MAX;
    ensure!(
        len <= most,
        "the lab {} takes {len} bytes to be written down, and a saved lab has room for {most}: copy long texts from files \
         (`files = [{{ from = … }}]`)",
        lab.name
    );
    Ok(())
}

/// Number of bytes that are read, hashed and written at a time.
const PIECE_LEN: usize = 1 << 20;

/// A saved lab that is being written. Dropped before [`finish`](Self::finish), it leaves nothing.
#[derive(Debug)]
pub struct Writer {
    target: PathBuf,
    partial: PathBuf,
    replace: bool,
    /// Folder, which is locked for as long as it is written.
    folder: File,
    /// Files that were copied, by their paths.
    copied: BTreeMap<PathBuf, SavedFile>,
    bytes: u64,
    finished: bool,
}

impl Writer {
    /// Begins to write the folder `target`; with `replace` also if it is a saved lab already.
    ///
    /// # Errors
    /// Fails with one sentence when the folder exists and may not or cannot be replaced, or cannot be written.
    pub fn begin(target: &Path, replace: bool) -> Result<Self> {
        check_target(target, replace)?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(target.file_name().context("a saved lab needs a name")?);
        hidden.push(".partial");
        let partial = target.with_file_name(hidden);
        let unwritable = || format!("cannot write {}", target.display());
        // Another process was killed and left it, or is writing it now.
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

    /// Writes everything from `from` as the file `name`. `progress` is called after each piece with the number of bytes
    /// so far, and can stop the writing.
    ///
    /// # Errors
    /// Fails when something cannot be read or written, or `progress` fails.
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

    /// Copies a file, unless it was copied before.
    ///
    /// # Errors
    /// Fails when it cannot be read or written, or `progress` fails.
    pub fn copy(&mut self, path: &Path, progress: &mut dyn FnMut(u64) -> Result<()>) -> Result<SavedFile> {
        if let Some(copied) = self.copied.get(path) {
            return Ok(copied.clone());
        }
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let base = path.file_name().and_then(|name| name.to_str()).unwrap_or("file");
        // The name of a restored file begins with the number of an earlier save.
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

    /// Writes the manifest, waits until all is on the disk, checks that the save is still `wanted`, and renames the
    /// folder. Returns the number of bytes in it.
    ///
    /// # Errors
    /// Fails when something cannot be written, or would be too long to be read, or the save is not wanted any more.
    /// Then nothing is left, and a folder that was to be replaced is unchanged.
    pub fn finish(mut self, manifest: &Manifest, wanted: &mut dyn FnMut() -> Result<()>) -> Result<u64> {
        let unwritable = || format!("cannot write {}", self.target.display());
        let body = serde_json::to_vec_pretty(manifest)?;
        let header = Header {
            weft_save: FORMAT,
            sha256: hex(Sha256::digest(&body)),
        };
        let mut text = serde_json::to_vec(&header)?;
        text.push(b'\n');
        text.extend_from_slice(&body);
        ensure!(
            text.len() as u64 <= MANIFEST_LEN_MAX,
            "the lab {} takes more than {MANIFEST_LEN_MAX} bytes to be written down",
            manifest.lab.name
        );
        let mut file = create(&self.partial.join(MANIFEST)).with_context(unwritable)?;
        file.write_all(&text).with_context(unwritable)?;
        for entry in fs::read_dir(&self.partial).with_context(unwritable)? {
            let synced = entry.and_then(|entry| File::open(entry.path())?.sync_all());
            synced.with_context(unwritable)?;
        }
        self.folder.sync_all().with_context(unwritable)?;
        wanted()?;
        let replaces = self.replace && self.target.symlink_metadata().is_ok();
        if replaces {
            check_target(&self.target, true)?;
        }
        self.rename(replaces, &exchange).with_context(unwritable)?;
        self.finished = true;
        // The save exists and is complete. The rest of the work does not affect it.
        if let Err(error) = self.tidy(replaces) {
            tracing::warn!(%error, folder = %self.partial.display(), "the save that was replaced is left");
        }
        Ok(self.bytes + text.len() as u64)
    }

    /// Renames the folder; a folder that it replaces gets the temporary name. Network file systems cannot exchange
    /// names in one step, so for a moment no folder has the final name there.
    fn rename(&self, replaces: bool, in_one_step: &Exchange) -> io::Result<()> {
        let flags = if replaces {
            RenameFlags::EXCHANGE
        } else {
            RenameFlags::NOREPLACE
        };
        match in_one_step(&self.partial, &self.target, flags) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            outcome => return Ok(outcome?),
        }
        if !replaces {
            // A folder with contents is not replaced by this, and an empty one is no loss.
            return fs::rename(&self.partial, &self.target);
        }
        let mut aside = self.partial.clone().into_os_string();
        aside.push(".old");
        fs::rename(&self.target, &aside)?;
        fs::rename(&self.partial, &self.target).inspect_err(|_| {
            // The final name is free.
            _ = fs::rename(&aside, &self.target);
        })?;
        fs::rename(&aside, &self.partial)
    }

    fn tidy(&self, replaces: bool) -> io::Result<()> {
        let parent = self.target.parent().unwrap_or(Path::new("/"));
        File::open(parent)?.sync_all()?;
        if replaces {
            fs::remove_dir_all(&self.partial)
        } else {
            Ok(())
        }
    }
}

/// A function that renames a folder without replacing another one, or exchanges the names of two.
type Exchange = dyn Fn(&Path, &Path, RenameFlags) -> rustix::io::Result<()>;

fn exchange(from: &Path, to: &Path, flags: RenameFlags) -> rustix::io::Result<()> {
    renameat_with(CWD, from, CWD, to, flags)
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished {
            // The next save finds what cannot be removed.
            _ = fs::remove_dir_all(&self.partial);
        }
    }
}

fn create(path: &Path) -> io::Result<File> {
    // Guests' memory may contain secrets.
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
                "{} is not a saved lab, so it is not replaced: choose another name",
                target.display()
            );
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(target: &Path, says: &str) -> Writer {
        let mut writer = Writer::begin(target, true).expect("free, or a save");
        writer
            .write(MANIFEST, says.as_bytes(), &mut |_| Ok(()))
            .expect("written");
        writer
    }

    #[test]
    fn a_file_system_that_cannot_exchange_names_gets_the_save_all_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("pair.save");
        let cannot: &Exchange = &|_, _, _| Err(Errno::INVAL);
        let says = || fs::read_to_string(target.join(MANIFEST)).expect("there");
        let mut writer = begun(&target, "first");
        writer.rename(false, cannot).expect("renamed");
        writer.finished = true;
        assert_eq!(says(), "first");

        let mut writer = begun(&target, "second");
        let refused = writer.rename(false, cannot).expect_err("somebody else's came first");
        assert_eq!(
            (refused.kind(), says()),
            (io::ErrorKind::DirectoryNotEmpty, "first".to_owned())
        );
        writer.rename(true, cannot).expect("exchanged");
        writer.finished = true;
        assert_eq!(says(), "second");
        assert_eq!(
            fs::read_to_string(writer.partial.join(MANIFEST)).expect("there"),
            "first"
        );
        writer.tidy(true).expect("removed");
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1);

        let full: &Exchange = &|_, _, _| Err(Errno::NOSPC);
        let writer = begun(&target, "third");
        assert!(
            writer.rename(true, full).is_err(),
            "only what is unknown there is done otherwise"
        );
        drop(writer);
        assert_eq!(says(), "second");
    }
}
