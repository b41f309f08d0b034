//! The end of a file, such as of a log.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

/// Reads at most the last `length_max` bytes of a file, and none of its first `start`.
pub(crate) fn read_tail(file: &Path, start: u64, length_max: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(length_max).max(start)))?;
    let mut tail = Vec::new();
    file.take(length_max).read_to_end(&mut tail)?;
    Ok(tail)
}
