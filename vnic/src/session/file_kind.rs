//! Finds out what kind of file a frontend sends along, without asking a process that could keep this one waiting.
//!
//! The server of a FUSE or network file system is asked nothing: the answer is what the kernel says. What follows from it is in
//! `rules` and `regions`.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, StatxFlags, fcntl_get_seals, fstat, statx};

use super::regions::FileKind;

/// Disk file systems whose pages come without a process outside the kernel: not FUSE, not fuseblk, no network. Memory files need
/// not be named, they are told by their seals.
const LOCAL: [&str; 10] = [
    "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "zfs", "overlay", "ramfs",
];

/// What an attached file is.
pub fn kind_of(file: BorrowedFd<'_>) -> FileKind {
    // Other than fstat(2), this takes what is known already.
    let Ok(known) = statx(
        file,
        "",
        AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC,
        StatxFlags::TYPE,
    ) else {
        return FileKind::Other;
    };
    match FileType::from_raw_mode(known.stx_mode.into()) {
        FileType::RegularFile if !is_prompt(file, known.stx_dev_major != 0) => FileKind::Slow,
        FileType::RegularFile => match fstat(file) {
            Ok(stat) => FileKind::Regular {
                device: stat.st_dev,
                inode: stat.st_ino,
                len: u64::try_from(stat.st_size).unwrap_or(0),
            },
            Err(_) => FileKind::Other,
        },
        FileType::Fifo => FileKind::Pipe,
        FileType::Socket => FileKind::Socket,
        _ => match std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) {
            Ok(target) if target.as_os_str() == "anon_inode:[eventfd]" => FileKind::Event,
            _ => FileKind::Other,
        },
    }
}

/// Whether a page of the file comes without asking a process outside the kernel and its disks. One that does not would keep the thread that
/// touches it waiting for as long as its server likes, and with it every port of the process.
fn is_prompt(file: BorrowedFd<'_>, on_block_device: bool) -> bool {
    // Only files of tmpfs (memfds, too) and hugetlbfs have seals.
    fcntl_get_seals(file).is_ok()
        || match file_system(file) {
            Some(name) => LOCAL.contains(&name.as_str()),
            // Not mounted where this process sees it: in a chroot, or the frontend has mounts of its own. On a block device only
            // fuseblk asks a server, and that takes the rights to mount a block device.
            None => on_block_device,
        }
}

/// The type of the file system that the file is on, if it is mounted where this process sees it.
fn file_system(file: BorrowedFd<'_>) -> Option<String> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    // proc(5): the mount's number comes first, the type behind a lone dash.
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(mount))?;
    let (_, rest) = line.split_once(" - ")?;
    rest.split(' ').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn memory_files_are_told_from_files_that_may_wait() {
        let memory = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        assert!(matches!(kind_of(memory.as_fd()), FileKind::Regular { len: 0, .. }));
        let proc = std::fs::File::open("/proc/self/maps").unwrap();
        assert_eq!(kind_of(proc.as_fd()), FileKind::Slow);
        assert_eq!(file_system(proc.as_fd()).as_deref(), Some("proc"));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(kind_of(null.as_fd()), FileKind::Other);
    }

    #[test]
    fn files_of_the_usual_places_of_guest_memory_are_taken() {
        for folder in [std::env::temp_dir(), "/dev/shm".into(), "/var/tmp".into()] {
            // Not every machine has every one of them.
            let Ok(file) = tempfile::tempfile_in(&folder) else {
                continue;
            };
            let kind = kind_of(file.as_fd());
            let known = file_system(file.as_fd());
            let device = fstat(&file).unwrap().st_dev;
            if known.is_none() && rustix::fs::major(device) == 0 {
                // Neither its mount nor a disk can be seen.
                continue;
            }
            assert!(
                matches!(kind, FileKind::Regular { .. }),
                "{}: {kind:?} on {known:?}",
                folder.display()
            );
        }
    }
}
