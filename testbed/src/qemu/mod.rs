//! QEMU as weft uses it: binary and version, the argument list of a machine, the process, and its monitor (QMP). This
//! module knows nothing of labs: the caller names every socket and file.

mod accel;
pub mod arguments;
pub mod discover;
pub mod process;
pub mod qmp;
mod tsc;

use std::io;
use std::path::PathBuf;

use thiserror::Error;

pub use accel::Accel;
pub use arguments::{
    Boot, Disk, DiskFormat, HostFolder, Machine, Nic, NicBackend, OnReboot, SharedDisk, SocketMode, Uplink,
};
pub use discover::Version;
pub use process::{QemuProcess, spawn_bound};
pub use qmp::{Qmp, Transfer};

/// Length of the longest path of a Unix socket in bytes (`sun_path` without its closing zero).
pub const SOCKET_PATH_LEN_MAX: usize = 107;

/// A QEMU binary whose version is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qemu {
    binary: PathBuf,
    version: Version,
    data_directories: Vec<PathBuf>,
}

/// The errors of QEMU, with their remedies. Each message is complete and is not followed by a cause.
#[derive(Debug, Error)]
pub enum QemuError {
    /// There is no binary.
    #[error("{} was not found: install the package qemu-system-x86, or name a binary in WEFT_QEMU", .0.display())]
    NotFound(PathBuf),
    /// A binary is no QEMU, or too old.
    #[error("{} cannot be used: {why}", .binary.display())]
    Unusable {
        /// Path of the binary.
        binary: PathBuf,
        /// Reason in one clause.
        why: String,
    },
    /// A machine is impossible.
    #[error("{0}")]
    Machine(String),
    /// The process could not be started.
    #[error("QEMU could not be started: {0}")]
    Spawn(io::Error),
    /// The monitor refused a command.
    #[error("QEMU refused {command}: {why}")]
    Refused {
        /// Name of the QMP command.
        command: String,
        /// Reason that QEMU gave.
        why: String,
    },
    /// The monitor does not answer, or not in QMP.
    #[error("QEMU's monitor does not answer: {0}")]
    Monitor(io::Error),
}
