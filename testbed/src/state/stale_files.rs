//! Stale-file cleanup: removes the folder of a lab, also one that a killed supervisor could not remove.

use std::{fs, io, path::Path};

use anyhow::{Context, Result};

use super::{LOCK, Lock, StateDir};

impl StateDir {
    /// Removes everything in the folder but the lock.
    pub(super) fn clear(&self) -> Result<()> {
        for entry in fs::read_dir(&self.path).with_context(|| format!("cannot read {}", self.path.display()))? {
            let entry = entry?;
            if entry.file_name() == LOCK {
                continue;
            }
            let path = entry.path();
            let removed = if entry.file_type()?.is_dir() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            removed.with_context(|| format!("cannot remove the left-over {}", path.display()))?;
        }
        Ok(())
    }

    /// Removes the folder, including the lock.
    ///
    /// # Errors
    /// Fails when a file cannot be removed.
    pub fn remove(&self, lock: Lock) -> Result<()> {
        self.clear()?;
        fs::remove_file(self.file(LOCK))
            .and_then(|()| fs::remove_dir(&self.path))
            .or_else(ignore_absent)?;
        drop(lock);
        // The folder of all labs is removed with the last of them.
        if let Some(root) = self.path.parent() {
            _ = fs::remove_dir(root);
        }
        Ok(())
    }

    /// Removes the folder if no process has locked it; returns whether it did.
    ///
    /// # Errors
    /// Fails when a file cannot be removed.
    pub fn remove_if_dead(&self) -> Result<bool> {
        if !self.path.is_dir() {
            return Ok(false);
        }
        match self.try_lock()? {
            Some(lock) => self.remove(lock).map(|()| true),
            None => Ok(false),
        }
    }
}

pub(super) fn remove_folder(folder: &Path) -> Result<()> {
    fs::remove_dir_all(folder)
        .or_else(ignore_absent)
        .with_context(|| format!("cannot remove {}", folder.display()))
}

pub(super) fn ignore_absent(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound {
        Ok(())
    } else {
        Err(error)
    }
}
