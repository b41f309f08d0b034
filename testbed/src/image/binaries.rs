//! Finds Weft's programs and libraries for guests. Programs must be static, so that they run in any guest, unless a recipe says
//! otherwise; the libraries that a library or such a program needs are taken from a recipe's packages. This module builds nothing.

use std::fs;
use std::path::{Path, PathBuf};

use super::{ImageError, Recipe, elf};
use crate::programs;

/// Instructions to build what is missing.
const HOW: &str = "build the guest programs with RUSTFLAGS='-C target-feature=+crt-static' and \
                   --target x86_64-unknown-linux-gnu (scripts/weft does), or name their folder in WEFT_BIN_DIR";

/// The folders that may contain Weft's programs for guests.
#[derive(Clone, Debug)]
pub struct GuestBinaries {
    folders: Vec<PathBuf>,
}

/// A program or library of Weft with its place in the guest.
#[derive(Clone, Debug)]
pub(super) struct OwnFile {
    pub path: String,
    pub contents: Vec<u8>,
}

impl GuestBinaries {
    /// Returns the usual folders, in this order: `guest/` in the folder of all programs and that folder itself; both beside the
    /// running program; where cargo puts static programs built from this tree.
    ///
    /// # Errors
    /// Fails when the path of the running program is not known.
    pub fn locate() -> Result<Self, ImageError> {
        let mut folders = Vec::new();
        let mut add = |folder: &Path| folders.extend([folder.join("guest"), folder.to_path_buf()]);
        if let Ok(folder) = programs::folder() {
            add(&folder);
        }
        let exe = std::env::current_exe().map_err(|error| ImageError::io(Path::new("/proc/self/exe"), error))?;
        let mut beside = exe.parent().unwrap_or(Path::new("/"));
        // Test programs are one folder below the others.
        if beside.file_name().is_some_and(|name| name == "deps") {
            beside = beside.parent().unwrap_or(beside);
        }
        add(beside);
        if let (Some(target), Some(profile)) = (beside.parent(), beside.file_name()) {
            folders.push(target.join("x86_64-unknown-linux-gnu").join(profile));
        }
        Ok(Self { folders })
    }

    /// Uses exactly these folders.
    #[must_use]
    pub fn in_folders(folders: Vec<PathBuf>) -> Self {
        Self { folders }
    }

    /// Finds the static program or shared library called `name`.
    ///
    /// # Errors
    /// Fails when there is none; the error mentions a dynamic one of that name.
    pub fn find(&self, name: &str) -> Result<PathBuf, ImageError> {
        let mut dynamic = None;
        for path in self.named(name) {
            let bytes = fs::read(&path).map_err(|error| ImageError::io(&path, error))?;
            match elf::is_static(&bytes) {
                Some(true) => return Ok(path),
                _ => dynamic = dynamic.or(Some(path)),
            }
        }
        Err(ImageError::Binary(match dynamic {
            Some(path) => format!(
                "{} is not a static program, so no guest can run it: {HOW}",
                path.display()
            ),
            None => format!("the program {name} for guests was not found: {HOW}"),
        }))
    }

    /// Lists the files called `name`, those in the first folder first.
    fn named(&self, name: &str) -> impl Iterator<Item = PathBuf> {
        let paths = self.folders.iter().map(move |folder| folder.join(name));
        paths.filter(|path| path.is_file())
    }

    pub(super) fn for_recipe(&self, recipe: &Recipe) -> Result<Vec<OwnFile>, ImageError> {
        let read = |own: &super::recipe::Own| {
            let path = match self.named(&own.name).next() {
                Some(path) if own.dynamic => path,
                _ => self.find(&own.name)?,
            };
            let contents = fs::read(&path).map_err(|error| ImageError::io(&path, error))?;
            Ok(OwnFile {
                path: own.path.clone(),
                contents,
            })
        };
        recipe.own.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_dynamic_program_is_one_sentence_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let binaries = GuestBinaries::in_folders(vec![dir.path().into()]);
        let missing = binaries.find("weft-agent").unwrap_err().to_string();
        assert!(
            missing.starts_with("the program weft-agent for guests was not found: build"),
            "{missing}"
        );
        fs::copy(std::env::current_exe().unwrap(), dir.path().join("weft-agent")).unwrap();
        let dynamic = binaries.find("weft-agent").unwrap_err().to_string();
        assert!(dynamic.contains("weft-agent is not a static program"), "{dynamic}");
    }
}
