//! The folder of a lab file, which the paths in the file are relative to. The model opens no file: whoever reads the lab file says what is
//! at a path.

use std::path::{Path, PathBuf};

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtPath {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// Something else, such as a device.
    Other,
    /// Nothing, or nothing that can be seen.
    Nothing,
}

/// A folder with what is in it.
#[derive(Clone, Copy)]
pub struct LabFolder<'a> {
    path: &'a Path,
    look_up: &'a dyn Fn(&Path) -> AtPath,
}

impl<'a> LabFolder<'a> {
    /// The folder `path`, in which `look_up` says what is at a full path.
    #[must_use]
    pub fn new(path: &'a Path, look_up: &'a dyn Fn(&Path) -> AtPath) -> Self {
        Self { path, look_up }
    }

    /// For a lab file that names no files.
    #[must_use]
    pub fn without_files(path: &'a Path) -> Self {
        Self::new(path, &|_| AtPath::Nothing)
    }

    /// The full path of one that is relative to the folder.
    pub(super) fn join(self, path: &Path) -> PathBuf {
        self.path.join(path)
    }

    pub(super) fn has_file(self, full: &Path) -> bool {
        (self.look_up)(full) == AtPath::File
    }

    pub(super) fn has_folder(self, full: &Path) -> bool {
        (self.look_up)(full) == AtPath::Folder
    }

    pub(super) fn has_anything(self, full: &Path) -> bool {
        (self.look_up)(full) != AtPath::Nothing
    }
}
