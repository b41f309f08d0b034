//! QEMU as weft uses it: which binary and version there is, the argument list of a machine, the process, and its
//! monitor (QMP). It knows nothing of labs: the caller names every socket and file.

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
pub use discover::{Qemu, Version};
pub use process::{QemuProcess, spawn_bound};
pub use qmp::{Qmp, Transfer};

/// Longest path of a Unix socket, in bytes (`sun_path` with its ending zero).
pub const SOCKET_PATH_LEN_MAX: usize = 107;

/// What can go wrong with QEMU, and what follows. Each sentence is whole: no cause stands behind it a second time.
#[derive(Debug, Error)]
pub enum QemuError {
    /// No binary.
    #[error("{} was not found: install the package qemu-system-x86, or name a binary in WEFT_QEMU", .0.display())]
    NotFound(PathBuf),
    /// A binary that is no QEMU, or one too old.
    #[error("{} cannot be used: {why}", .binary.display())]
    Unusable {
        /// The binary.
        binary: PathBuf,
        /// One clause.
        why: String,
    },
    /// A machine that cannot be.
    #[error("{0}")]
    Machine(String),
    /// The process could not be started.
    #[error("QEMU could not be started: {0}")]
    Spawn(io::Error),
    /// The monitor refused a command.
    #[error("QEMU refused {command}: {why}")]
    Refused {
        /// The QMP command.
        command: String,
        /// What QEMU said.
        why: String,
    },
    /// The monitor does not answer, or not as QMP.
    #[error("QEMU's monitor does not answer: {0}")]
    Monitor(io::Error),
}
