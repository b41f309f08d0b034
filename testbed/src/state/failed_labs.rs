//! The logs of labs that failed, which are kept until `weft clean`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{StateDir, own_folder, root, stale_files::remove_folder};
use crate::log_tail::read_tail;

/// Suffix of the folder with the logs of a failed lab, behind the lab's name. No lab has a dot in its name.
const FAILED_SUFFIX: &str = ".failed";

/// Number of bytes that are kept of one log: its end, which contains the reason.
pub(super) const LOG_KEPT_LEN_MAX: u64 = 256 << 10;

/// Number of bytes that are kept of all logs of a lab: the folder may be in memory.
const LOGS_KEPT_LEN_MAX: u64 = 16 << 20;

/// Number of failed labs whose logs are kept: the oldest are removed.
const FAILED_LABS_MAX: usize = 8;

impl StateDir {
    /// Returns the folder for the logs of this lab when it has failed.
    #[must_use]
    pub fn failed(&self) -> Self {
        Self::at(&self.path.with_file_name(format!("{}{FAILED_SUFFIX}", self.lab())))
    }

    /// Keeps the ends of the lab's logs until `weft clean`, in place of those of an earlier failure. Returns their
    /// folder; `None` when no guest ran, or there is no room for them.
    #[must_use]
    pub fn keep_logs(&self) -> Option<PathBuf> {
        let kept = self.failed();
        let copied = remove_folder(&kept.path).and_then(|()| self.copy_logs(&kept));
        match copied {
            Ok(true) => Some(kept.path),
            Ok(false) => None,
            Err(error) => {
                // The reason of the failure matters most now; half of its logs would mislead.
                tracing::info!(error = %format!("{error:#}"), "the logs cannot be kept");
                _ = remove_folder(&kept.path);
                None
            }
        }
    }

    fn copy_logs(&self, kept: &Self) -> Result<bool> {
        let of_guest = |path: &Path| path.to_str().is_some_and(|path| path.ends_with(".qemu.log"));
        let mut logs: Vec<_> = fs::read_dir(&self.path)
            .with_context(|| format!("cannot read {}", self.path.display()))?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
            .collect();
        logs.sort();
        if !logs.iter().any(|log| of_guest(log)) {
            return Ok(false);
        }
        let mut room = LOGS_KEPT_LEN_MAX;
        for log in logs {
            let end = read_tail(&log, 0, LOG_KEPT_LEN_MAX.min(room));
            let end = end.with_context(|| format!("cannot read {}", log.display()))?;
            if end.is_empty() {
                continue;
            }
            own_folder(&kept.path)?;
            room -= end.len() as u64;
            let copy = kept.path.join(log.file_name().unwrap_or_default());
            fs::write(&copy, end).with_context(|| format!("cannot write {}", copy.display()))?;
        }
        forget_oldest_failures()?;
        Ok(kept.path.is_dir())
    }
}

pub(super) fn is_of_failure(folder: &Path) -> bool {
    folder.to_str().is_some_and(|path| path.ends_with(FAILED_SUFFIX))
}

/// Returns the folders with logs of labs that failed, the newest first.
pub(super) fn failures() -> Vec<StateDir> {
    let entries = fs::read_dir(root()).into_iter().flatten().flatten();
    let folders = entries.map(|entry| entry.path()).filter(|path| is_of_failure(path));
    let mut folders: Vec<_> = folders
        .filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)))
        .collect();
    folders.sort();
    folders.iter().rev().map(|(_, path)| StateDir::at(path)).collect()
}

fn forget_oldest_failures() -> Result<()> {
    for old in failures().iter().skip(FAILED_LABS_MAX) {
        remove_folder(&old.path)?;
    }
    Ok(())
}

/// Returns the logs of the failed lab of this name, or of the last one.
#[must_use]
pub fn failed_lab(name: Option<&str>) -> Option<StateDir> {
    failures()
        .into_iter()
        .find(|kept| name.is_none_or(|name| kept.lab() == format!("{name}{FAILED_SUFFIX}")))
}
