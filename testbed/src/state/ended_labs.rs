//! Notes of labs that ended by themselves, which the next `weft` shows.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{
    StateDir,
    failed_labs::failures,
    own_folder, root,
    stale_files::{ignore_absent, remove_folder},
};

/// Suffix of the note, behind the lab's name, that explains the end of an unattended lab.
const ENDED_SUFFIX: &str = ".ended";

/// Length of such a note in bytes.
const ENDED_LEN_MAX: usize = 4096;

impl StateDir {
    pub(super) fn note_of_end(&self) -> PathBuf {
        self.path.with_file_name(format!("{}{ENDED_SUFFIX}", self.lab()))
    }

    /// Notes why the lab has ended by itself, for the next user of `weft`. The note is removed with the next lab of
    /// this name, or by `weft clean`.
    ///
    /// # Errors
    /// Fails when the note cannot be written.
    pub fn note_end(&self, why: &str) -> Result<()> {
        own_folder(self.path.parent().unwrap_or(Path::new("/")))?;
        let note = self.note_of_end();
        let why = &why[..why.floor_char_boundary(ENDED_LEN_MAX)];
        fs::write(&note, why).with_context(|| format!("cannot write {}", note.display()))
    }
}

pub(super) fn forget_end(note: &Path) -> Result<()> {
    fs::remove_file(note)
        .or_else(ignore_absent)
        .with_context(|| format!("cannot remove {}", note.display()))
}

/// Returns the paths of notes of labs that ended by themselves.
fn notes_of_ends() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(root()).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .map(|entry| entry.path())
        .filter(|path| path.to_str().is_some_and(|path| path.ends_with(ENDED_SUFFIX)))
}

/// Returns a clause for each lab that ended by itself unattended.
#[must_use]
pub fn ended_labs() -> String {
    let mut ends: Vec<_> = notes_of_ends()
        .filter_map(|note| {
            let lab = note.file_stem()?.to_str()?;
            Some(format!(
                "; {lab} ended by itself: {}",
                fs::read_to_string(&note).ok()?.trim()
            ))
        })
        .collect();
    ends.sort();
    ends.concat()
}

/// Removes the notes of labs that ended by themselves, and the logs of those that failed.
///
/// # Errors
/// Fails when one cannot be removed.
pub fn forget_ended_labs() -> Result<()> {
    for note in notes_of_ends() {
        forget_end(&note)?;
    }
    for kept in failures() {
        remove_folder(&kept.path)?;
    }
    // The folder of all labs is removed with the last of them.
    _ = fs::remove_dir(root());
    Ok(())
}
