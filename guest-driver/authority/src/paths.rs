//! The files of an interface's authority: a place in the file system for each (network namespace, interface).

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use crate::{OmxdError, settings::path_variable};

/// Authorities are found here unless `OMX_RUN_DIR` says otherwise.
const RUN_DIR: &str = "/run/omx";

/// Returns the folder of authorities. It is looked up once: some servers clear their environment when they have started, and a library
/// in them is to find the same authorities as before.
pub fn run_dir() -> &'static PathBuf {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| path_variable("OMX_RUN_DIR").unwrap_or_else(|| PathBuf::from(RUN_DIR)))
}

/// The files of one interface's authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    dir: PathBuf,
    namespace: u64,
    base: String,
}

impl Place {
    /// Finds the place of the interface with this index in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`OmxdError::Io`] without `/proc`.
    pub fn of(interface_index: i32) -> Result<Self, OmxdError> {
        let namespace = fs::metadata("/proc/thread-self/ns/net")
            .map_err(OmxdError::io("find out the network namespace"))?
            .ino();
        Ok(Self {
            dir: run_dir().clone(),
            namespace,
            base: Self::base_of(namespace, interface_index),
        })
    }

    #[cfg(test)]
    pub(crate) fn at(dir: &Path, namespace: u64, interface_index: i32) -> Self {
        Self {
            dir: dir.to_path_buf(),
            namespace,
            base: Self::base_of(namespace, interface_index),
        }
    }

    /// What the names of these files end with; the lock comes last.
    pub const KINDS: [&str; 5] = ["sock", "sock-new", "set-up", "peers", "lock"];

    /// Returns the beginning of the names of an interface's files.
    pub fn base_of(namespace: u64, interface_index: i32) -> String {
        format!("net-{namespace}-if-{interface_index}")
    }

    /// Returns the beginning of the names of these files.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Returns the number of the network namespace.
    pub const fn namespace(&self) -> u64 {
        self.namespace
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the socket on which the authority listens.
    pub fn socket(&self) -> PathBuf {
        self.dir.join(format!("{}.sock", self.base))
    }

    /// Returns the socket's path until the authority is ready.
    pub fn socket_made(&self) -> PathBuf {
        self.dir.join(format!("{}.sock-new", self.base))
    }

    /// Returns the mark of an authority with settings ([`crate::set_up`]).
    pub fn set_up(&self) -> PathBuf {
        self.dir.join(format!("{}.set-up", self.base))
    }

    /// Returns the peer table, which outlives the authority.
    pub fn table(&self) -> PathBuf {
        self.dir.join(format!("{}.peers", self.base))
    }

    /// Returns the lock: the process that has it is the authority.
    pub fn lock(&self) -> PathBuf {
        self.dir.join(format!("{}.lock", self.base))
    }
}
