//! The log of guest memory that a frontend reads while it copies a running guest elsewhere (VHOST_F_LOG_ALL): a bit for each page
//! of 4096 bytes, set by the backend where it wrote.
//!
//! The data path notes nothing, so that a frame costs equally much with and without a log. Instead every page that the guest shares
//! is marked at the moments after which the card writes no more: when a ring stops, when memory goes, when logging is switched
//! off, when the session ends; and once when the log comes, for what a former backend did.
//!
//! A frontend that copies a guest stops its rings before it reads the log for the last time, and so never keeps a page that the card changed after it was copied; what it pays is that all memory is
//! copied in that last round. What cannot be marked is what a `vnicd` wrote that was killed while a log was in force, if
//! the copy is completed before the frontend finds the next `vnicd`.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use super::refusal::{Refusal, SessionRule};
use super::regions::FileKind;

/// Bytes of a page as the log counts them, on every host.
const LOG_PAGE_LEN: u64 = 4096;

/// Guest memory that one byte of the log stands for.
const BYTE_SPAN: u64 = 8 * LOG_PAGE_LEN;

/// What is written at once.
const PIECE_LEN: usize = 16 << 10;

/// A log that a frontend gave.
#[derive(Debug)]
pub struct DirtyLog {
    file: File,
    /// Where it begins in the file.
    offset: u64,
    /// Bytes.
    len: u64,
}

impl DirtyLog {
    /// The log of SET_LOG_BASE: `len` bytes at `offset` of a file of this kind.
    pub fn new(file: OwnedFd, kind: FileKind, len: u64, offset: u64) -> Result<Self, Refusal> {
        let file_len = match kind {
            FileKind::Regular { len, .. } => len,
            FileKind::Slow => {
                return Err(SessionRule::MemoryFileSystem.broken(
                    "SET_LOG_BASE comes with a file whose file system may keep its writers waiting (FUSE, network): share a memfd",
                ));
            }
            _ => {
                return Err(SessionRule::FileKind.broken("SET_LOG_BASE comes with something that is no memory file"));
            }
        };
        if len == 0 || offset.checked_add(len).is_none_or(|end| end > file_len) {
            return Err(SessionRule::MemoryFileTooSmall.broken(format!(
                "SET_LOG_BASE describes a log of {len:#x} bytes from {offset:#x} of a file that has {file_len:#x}"
            )));
        }
        Ok(Self {
            file: File::from(file),
            offset,
            len,
        })
    }

    /// Marks all pages of these regions (guest address, bytes). Pages beside them that share a byte with their ends are marked,
    /// too: to copy a page once more is always right.
    pub fn mark(&self, regions: impl IntoIterator<Item = (u64, u64)>) -> Result<(), Refusal> {
        const MARKED: [u8; PIECE_LEN] = [0xff; PIECE_LEN];
        for (guest, len) in regions {
            // No region wraps, and none is empty: see `Region::check`.
            let (mut at, end) = (guest / BYTE_SPAN, (guest + len).div_ceil(BYTE_SPAN));
            if end > self.len {
                return Err(SessionRule::NotPossible.broken(format!(
                    "a log of {:#x} bytes does not reach to the end of the memory region at {guest:#x}",
                    self.len
                )));
            }
            while at < end {
                let piece = (end - at).min(PIECE_LEN as u64);
                self.file
                    .write_all_at(&MARKED[..piece as usize], self.offset + at)
                    .map_err(|error| {
                        SessionRule::NotPossible.broken(format!("the log of SET_LOG_BASE cannot be written: {error}"))
                    })?;
                at += piece;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::super::file_kind::kind_of;
    use super::*;

    fn memory_file(len: u64) -> OwnedFd {
        let file = memfd_create("log", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, len).unwrap();
        file
    }

    fn marked(file: &OwnedFd) -> Vec<usize> {
        let file = File::from(file.try_clone().unwrap());
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|byte| [0, 0xff].contains(byte)));
        (0..bytes.len()).filter(|at| bytes[*at] != 0).collect()
    }

    #[test]
    fn every_page_of_a_region_is_marked_and_no_byte_beside_it() {
        let file = memory_file(64);
        let log = DirtyLog::new(file.try_clone().unwrap(), kind_of(file.as_fd()), 32, 16).unwrap();
        log.mark([(0, BYTE_SPAN), (3 * BYTE_SPAN + LOG_PAGE_LEN, LOG_PAGE_LEN)])
            .unwrap();
        assert_eq!(marked(&file), [16, 19]);
        log.mark([(30 * BYTE_SPAN - 1, BYTE_SPAN)]).unwrap();
        assert_eq!(marked(&file), [16, 19, 16 + 29, 16 + 30]);
        let refusal = log.mark([(31 * BYTE_SPAN, BYTE_SPAN + 1)]).unwrap_err();
        assert!(refusal.sentence.contains("does not reach"), "{refusal}");
    }

    #[test]
    fn long_regions_are_marked_in_pieces() {
        let len = 3 * PIECE_LEN as u64 + 7;
        let file = memory_file(len);
        let log = DirtyLog::new(file.try_clone().unwrap(), kind_of(file.as_fd()), len, 0).unwrap();
        log.mark([(0, len * BYTE_SPAN)]).unwrap();
        assert_eq!(marked(&file).len() as u64, len);
    }

    #[test]
    fn logs_that_are_no_memory_or_too_small_are_refused() {
        let file = memory_file(64);
        for (kind, len, offset, expected) in [
            (kind_of(file.as_fd()), 65, 0, "a file that has 0x40"),
            (kind_of(file.as_fd()), 1, u64::MAX, "a file that has 0x40"),
            (kind_of(file.as_fd()), 0, 0, "0x0 bytes"),
            (FileKind::Pipe, 1, 0, "no memory file"),
            (FileKind::Slow, 1, 0, "waiting"),
        ] {
            let refusal = DirtyLog::new(file.try_clone().unwrap(), kind, len, offset).unwrap_err();
            assert!(refusal.sentence.contains(expected), "{refusal}");
        }
    }
}
