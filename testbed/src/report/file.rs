//! Files and folders for results: known to be writable before the work begins, named in every error, and removed when
//! the work fails, so that no partial result stays.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// A file to be written. Unless [kept](Self::keep) it is removed with this handle, if the handle created or changed it.
#[derive(Debug)]
pub struct OutFile {
    path: PathBuf,
    file: File,
    remove: bool,
}

impl OutFile {
    /// Creates the file; `None` if there is one already.
    ///
    /// # Errors
    /// Fails when it cannot be created.
    pub fn new(path: &Path) -> Result<Option<Self>> {
        match OpenOptions::new().write(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            new => Self::of(path, new, true).map(Some),
        }
    }

    /// Opens or creates the file; its contents stay until [`writer`](Self::writer).
    ///
    /// # Errors
    /// Fails when it cannot be written.
    pub fn open(path: &Path) -> Result<Self> {
        match Self::new(path)? {
            Some(new) => Ok(new),
            None => Self::of(path, OpenOptions::new().write(true).open(path), false),
        }
    }

    fn of(path: &Path, opened: io::Result<File>, remove: bool) -> Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            file: opened.with_context(|| format!("cannot write {}", path.display()))?,
            remove,
        })
    }

    /// Checks whether the file can be written, and leaves everything unchanged.
    ///
    /// # Errors
    /// Fails when it cannot.
    pub fn check(path: &Path) -> Result<()> {
        Self::open(path).map(drop)
    }

    /// Empties the file and returns a writer to it.
    ///
    /// # Errors
    /// Fails when it cannot be emptied.
    pub fn writer(&mut self) -> Result<impl Write + Send + use<>> {
        let mut empty = || {
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
                self.remove = true;
            }
            self.file.try_clone()
        };
        let file = empty().with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(Writer {
            path: self.path.clone(),
            file,
        })
    }

    /// Keeps the file if something was written to it.
    pub fn keep_unless_empty(self) {
        if self.file.metadata().is_ok_and(|file| file.len() > 0) {
            self.keep();
        }
    }

    /// Keeps the file in any case.
    pub fn keep(mut self) {
        self.remove = false;
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if self.remove {
            // A file that cannot be removed had an error that was reported already.
            _ = fs::remove_file(&self.path);
        }
    }
}

/// A writer that names the file in its errors.
struct Writer {
    path: PathBuf,
    file: File,
}

impl Writer {
    fn named(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("cannot write {}: {error}", self.path.display()))
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|error| self.named(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|error| self.named(&error))
    }
}

/// A folder with files to be written. Unless [kept](Self::keep), the files are removed with this handle, and the
/// folders that it created.
#[derive(Debug)]
pub struct OutFolder {
    path: PathBuf,
    /// Folders that were created, the innermost first.
    made: Vec<PathBuf>,
    written: Vec<PathBuf>,
}

impl OutFolder {
    /// Creates the folder, and those above it.
    ///
    /// # Errors
    /// Fails when it cannot be created.
    pub fn make(path: &Path) -> Result<Self> {
        let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let folder = Self {
            path: path.to_owned(),
            made: path.ancestors().take_while(missing).map(Path::to_owned).collect(),
            written: Vec::new(),
        };
        fs::create_dir_all(path).with_context(|| format!("cannot make the folder {}", path.display()))?;
        Ok(folder)
    }

    /// Checks whether files can be written there, and leaves everything unchanged.
    ///
    /// # Errors
    /// Fails when they cannot.
    pub fn check(path: &Path) -> Result<()> {
        let mut folder = Self::make(path)?;
        folder
            .write(".weft", b"weft")
            .with_context(|| format!("nothing can be kept in {}", path.display()))
    }

    /// Writes a file.
    ///
    /// # Errors
    /// Fails when it cannot be written.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path.join(name);
        self.written.push(path.clone());
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Keeps everything.
    pub fn keep(mut self) {
        self.made.clear();
        self.written.clear();
    }
}

impl Drop for OutFolder {
    fn drop(&mut self) {
        for file in &self.written {
            // The file may never have been created.
            _ = fs::remove_file(file);
        }
        for folder in &self.made {
            // A folder in which another program has created something stays.
            _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_checked_without_a_trace_and_named_in_every_error() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        fs::write(&old, "kept").expect("written");
        OutFile::check(&old).expect("writable");
        OutFile::check(&new).expect("writable");
        assert_eq!(fs::read_to_string(&old).expect("there"), "kept");
        assert!(!new.exists());
        let error = OutFile::check(&dir.path().join("none/file")).expect_err("no folder");
        assert!(format!("{error:#}").starts_with("cannot write /"), "{error:#}");
        let mut full = OutFile::open(Path::new("/dev/full")).expect("it opens");
        let error = full.writer().expect("no file").write_all(b"x").expect_err("full");
        assert_eq!(
            error.to_string(),
            "cannot write /dev/full: No space left on device (os error 28)"
        );
        drop(full);
        assert!(Path::new("/dev/full").exists(), "only files are removed");
    }

    #[test]
    fn what_was_not_kept_is_gone_and_what_was_there_before_is_not() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let (path, outer) = (dir.path().join("a/b"), dir.path().join("a"));
        OutFolder::check(&path).expect("writable");
        assert!(!outer.exists());
        fs::create_dir(&outer).expect("made");
        let mut folder = OutFolder::make(&path).expect("made");
        folder.write("x", b"1").expect("written");
        drop(folder);
        assert!(outer.exists() && !path.exists());
        let mut folder = OutFolder::make(&path).expect("made");
        folder.write("x", b"1").expect("written");
        folder.keep();
        assert_eq!(fs::read(path.join("x")).expect("kept"), b"1");
        assert!(
            OutFile::new(&path.join("x")).expect("a folder").is_none(),
            "it is there"
        );
        let mut file = OutFile::open(&path.join("x")).expect("there");
        file.writer().expect("emptied").write_all(b"half").expect("written");
        drop(file);
        assert!(!path.join("x").exists(), "half-made");
        let mut file = OutFile::open(&path.join("x")).expect("made");
        let mut writer = file.writer().expect("empty");
        OutFile::open(&path.join("y")).expect("made").keep_unless_empty();
        assert!(!path.join("y").exists(), "empty");
        writer.write_all(b"something").expect("written");
        file.keep_unless_empty();
        assert!(path.join("x").exists());
    }
}
