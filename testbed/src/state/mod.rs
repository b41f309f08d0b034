//! The folders of running labs: one per lab with its sockets and logs, removed with the lab. A lock in it proves that a
//! lab is alive. This module starts and ends no process.

mod ended_labs;
mod failed_labs;
mod stale_files;

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FlockOperation, flock};

use self::{ended_labs::forget_end, failed_labs::is_of_failure};

pub use self::{
    ended_labs::{ended_labs, forget_ended_labs},
    failed_labs::failed_lab,
};

/// Length of the longest path of a Unix socket that the kernel accepts, without the closing zero byte.
pub const SOCKET_PATH_LEN_MAX: usize = 107;

/// Name of the lock file in a lab's folder, which the supervisor keeps locked as long as it lives.
const LOCK: &str = "lock";

/// Returns the folder of all labs of this user: `$XDG_RUNTIME_DIR/weft`, or `/tmp/weft-UID`.
#[must_use]
pub fn root() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_absolute()) {
        Some(dir) => Path::new(&dir).join("weft"),
        None => PathBuf::from(format!("/tmp/weft-{}", rustix::process::getuid().as_raw())),
    }
}

/// The folder of one lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir {
    path: PathBuf,
}

/// Proof that this process is the lab's only supervisor (or the process that cleans up after it). It is released when
/// dropped, and by the kernel when the process dies.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl StateDir {
    /// Returns the folder of the lab named `lab` (a checked name); nothing is created.
    #[must_use]
    pub fn of(lab: &str) -> Self {
        Self { path: root().join(lab) }
    }

    /// Uses a folder at another path.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Returns the path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of the lab.
    #[must_use]
    pub fn lab(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or("lab")
    }

    /// Returns the path of a file or socket in the folder.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the path of a socket in the folder.
    ///
    /// # Errors
    /// Fails with one sentence when the path is longer than the kernel accepts.
    pub fn socket(&self, name: &str) -> Result<PathBuf> {
        let path = self.file(name);
        let length = path.as_os_str().len();
        ensure!(
            length <= SOCKET_PATH_LEN_MAX,
            "the socket path {} has {length} bytes and the kernel takes {SOCKET_PATH_LEN_MAX}: set XDG_RUNTIME_DIR to a \
             folder with a shorter path",
            path.display()
        );
        Ok(path)
    }

    /// Returns the socket of the supervisor.
    ///
    /// # Errors
    /// Fails as [`StateDir::socket`] does.
    pub fn supervisor_socket(&self) -> Result<PathBuf> {
        self.socket("weft.sock")
    }

    /// Returns the control socket of `vnicd`.
    ///
    /// # Errors
    /// Fails as [`StateDir::socket`] does.
    pub fn vnicd_socket(&self) -> Result<PathBuf> {
        self.socket("vnicd.sock")
    }

    /// Takes the lab for a new supervisor: creates the folder (mode 0700), locks it and removes the files of an earlier
    /// supervisor.
    ///
    /// # Errors
    /// Fails with one sentence when the lab is running already, or the folder cannot be created or belongs to another
    /// user.
    pub fn claim(&self) -> Result<Lock> {
        own_folder(self.path.parent().unwrap_or(Path::new("/")))?;
        own_folder(&self.path)?;
        let Some(lock) = self.try_lock()? else {
            bail!(
                "the lab {} is running already: `weft down --lab {0}` ends it",
                self.lab()
            );
        };
        self.clear()?;
        forget_end(&self.note_of_end())?;
        Ok(lock)
    }

    /// Returns whether the lab has a supervisor.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.path.join(LOCK).exists() && matches!(self.try_lock(), Ok(None))
    }

    /// Takes the lock, or returns `None` when another process has it.
    fn try_lock(&self) -> Result<Option<Lock>> {
        let path = self.file(LOCK);
        loop {
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(&path)
                .with_context(|| format!("cannot create {}", path.display()))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error).with_context(|| format!("cannot lock {}", path.display())),
            }
            // The former owner of the lock may have removed the file with the lab: then this is a lock on nothing.
            let locked = file.metadata()?.ino();
            if fs::metadata(&path).is_ok_and(|now| now.ino() == locked) {
                return Ok(Some(Lock { _file: file }));
            }
            own_folder(&self.path)?;
        }
    }
}

/// Creates a folder that only this user can enter, or checks that an existing one is such a folder.
fn own_folder(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error).with_context(|| format!("cannot create the folder {}", path.display())),
    }
    let found = fs::symlink_metadata(path)?;
    ensure!(
        found.is_dir() && found.uid() == rustix::process::getuid().as_raw(),
        "{} is not a folder of this user: remove it, or set XDG_RUNTIME_DIR",
        path.display()
    );
    if found.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Returns the names of the running labs, sorted. Stale files of dead labs are removed at the same time.
///
/// # Errors
/// Fails when a stale file cannot be removed.
pub fn running_labs() -> Result<Vec<String>> {
    let mut labs = Vec::new();
    let entries = match fs::read_dir(root()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(labs),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", root().display())),
    };
    for entry in entries {
        let entry = entry?;
        if !entry.file_type()?.is_dir() || is_of_failure(&entry.path()) {
            continue;
        }
        let state = StateDir::at(&entry.path());
        if !state.remove_if_dead()? {
            labs.push(state.lab().to_owned());
        }
    }
    labs.sort();
    Ok(labs)
}

#[cfg(test)]
mod tests {
    use super::{failed_labs::LOG_KEPT_LEN_MAX, *};

    #[test]
    fn a_lab_has_one_supervisor_and_leaves_nothing() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let state = StateDir::at(&folder.path().join("weft").join("pair"));
        let lock = state.claim().expect("free");
        assert!(state.is_alive());
        let refusal = state.claim().expect_err("locked").to_string();
        assert_eq!(
            refusal,
            "the lab pair is running already: `weft down --lab pair` ends it"
        );
        assert!(!state.remove_if_dead().expect("readable"));
        fs::write(state.file("n1.log"), "text").expect("writable");
        assert_eq!(
            fs::metadata(state.path()).expect("there").permissions().mode() & 0o777,
            0o700
        );
        state.remove(lock).expect("removable");
        assert!(!folder.path().join("weft").exists());
    }

    #[test]
    fn what_a_killed_supervisor_left_is_cleared_by_the_next() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let state = StateDir::at(&folder.path().join("pair"));
        drop(state.claim().expect("free"));
        fs::write(state.file("n1.eth0.sock"), "").expect("writable");
        let lock = state.claim().expect("free again");
        assert!(!state.file("n1.eth0.sock").exists());
        drop(lock);
        assert!(state.remove_if_dead().expect("removable"));
        assert!(!state.path().exists());
    }

    #[test]
    fn the_ends_of_a_failed_labs_logs_outlive_it_and_are_bounded() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let state = StateDir::at(&folder.path().join("pair"));
        let lock = state.claim().expect("free");
        fs::write(state.file("vnicd.log"), "text").expect("writable");
        assert_eq!(state.keep_logs(), None, "no guest ran");
        fs::write(state.file("n1.qemu.log"), "").expect("writable");
        fs::remove_file(state.file("vnicd.log")).expect("there");
        fs::write(state.file("n1.log"), [&[b'x'; 1 << 20][..], b"panic"].concat()).expect("writable");
        fs::write(state.file("n2.log"), "").expect("writable");
        fs::write(state.file("n1.json"), "{}").expect("writable");
        let kept = state.keep_logs().expect("something was logged");
        state.remove(lock).expect("removable");
        let names: Vec<_> = fs::read_dir(&kept)
            .expect("there")
            .map(|entry| entry.expect("there").file_name())
            .collect();
        assert_eq!(
            (kept, names),
            (folder.path().join("pair.failed"), vec!["n1.log".into()])
        );
        let log = fs::read(state.failed().file("n1.log")).expect("kept");
        assert!(log.len() as u64 == LOG_KEPT_LEN_MAX && log.ends_with(b"panic"));
        // The next failure takes its place.
        let lock = state.claim().expect("free");
        assert_eq!(state.keep_logs(), None);
        assert!(!state.failed().path().exists());
        drop(lock);
    }

    #[test]
    fn a_socket_path_too_long_for_the_kernel_is_answered_with_a_sentence() {
        let state = StateDir::at(Path::new(&format!("/tmp/{}", "x".repeat(100))));
        let sentence = state.socket("weft.sock").expect_err("too long").to_string();
        assert!(sentence.contains("115 bytes and the kernel takes 107"), "{sentence}");
    }
}
