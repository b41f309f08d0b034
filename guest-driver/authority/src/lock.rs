//! The file lock by which a process becomes the authority of an interface.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::{FlockOperation, flock};

use crate::OmxdError;

/// At most this many attempts are made to lock a file that is being removed at the same time: each makes a new one.
const TRIES: usize = 8;

/// Opens the file whose lock makes an authority, or makes it, and locks it. `None`: another process has the lock. Other
/// users cannot open the file, since a process that can read a file can lock it.
///
/// # Errors
/// [`OmxdError::Io`].
pub fn own_file(path: &Path) -> Result<Option<File>, OmxdError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    for _ in 0..TRIES {
        let file = options
            .open(path)
            .map_err(OmxdError::io("open the lock of the interface"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(OmxdError::io("lock the interface")(error)),
        }
        // The file may have been removed between the two.
        let own = file
            .metadata()
            .map_err(OmxdError::io("check the lock of the interface"))?;
        if fs::metadata(path).is_ok_and(|there| there.ino() == own.ino()) {
            return Ok(Some(file));
        }
    }
    Ok(None)
}
