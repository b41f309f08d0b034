//! The folder of a lab file, which the paths in the file are relative to. The model opens no file: the reader of the
//! lab file reports what is at a path, and which strategies `vnicd` has.

use std::path::{Path, PathBuf};

use firmware::StrategyKind;

/// The kinds of things at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtPath {
    /// A file is at the path.
    File,
    /// A folder is at the path.
    Folder,
    /// Something else is at the path, such as a device.
    Other,
    /// Nothing is at the path, or nothing that can be seen.
    Nothing,
}

/// A folder with its contents.
#[derive(Clone, Copy)]
pub struct LabFolder<'a> {
    path: &'a Path,
    look_up: &'a dyn Fn(&Path) -> AtPath,
    strategies: &'a dyn Fn() -> Vec<String>,
}

impl<'a> LabFolder<'a> {
    /// Makes a folder at `path`, in which `look_up` reports what is at a full path.
    #[must_use]
    pub fn new(path: &'a Path, look_up: &'a dyn Fn(&Path) -> AtPath) -> Self {
        Self {
            path,
            look_up,
            strategies: &|| StrategyKind::NAMES.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    /// Lets `strategies` report the names of those that `vnicd` has; otherwise it is taken to have those of this program.
    #[must_use]
    pub fn with_strategies(self, strategies: &'a dyn Fn() -> Vec<String>) -> Self {
        Self { strategies, ..self }
    }

    pub(super) fn strategies(self) -> Vec<String> {
        (self.strategies)()
    }

    /// Makes a folder for a lab file that names no files.
    #[must_use]
    pub fn without_files(path: &'a Path) -> Self {
        Self::new(path, &|_| AtPath::Nothing)
    }

    /// Returns the full path of one that is relative to the folder.
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
