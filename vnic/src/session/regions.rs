//! The front's picture of the guest memory that a frontend shares: which regions there are, so that repeats are known, and
//! whether each is sound before it is mapped. Nothing is mapped here.

use super::refusal::{Refusal, SessionRule};

/// Most regions of one guest: what the published backend says when it is asked (GET_MAX_MEM_SLOTS). A DPDK virtio-user port
/// with 512 MiB in pages of 2 MiB uses 256.
pub const REGIONS_MAX: usize = 509;

/// Most guest memory of one port. Well beyond real guests, and 32 such ports fit in the 47 bits of a process's address space.
pub const MEMORY_BYTES_MAX: u64 = 4 << 40;

/// Smallest page of the host: regions are mapped at such offsets.
const PAGE_LEN: u64 = 4096;

/// What an attached file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file (a memfd and files of hugetlbfs are such), with its identity and length.
    Regular {
        /// Device number of its file system.
        device: u64,
        /// Number within its file system.
        inode: u64,
        /// Bytes at the time of the message.
        len: u64,
    },
    /// A regular file of a file system that may keep a thread that touches a page of it waiting.
    Slow,
    /// An eventfd.
    Event,
    /// A pipe.
    Pipe,
    /// A socket.
    Socket,
    /// Anything else.
    Other,
}

/// One region as the frontend describes it, with the identity of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Guest physical address.
    pub guest: u64,
    /// Bytes.
    pub len: u64,
    /// Address in the frontend's own process.
    pub user: u64,
    /// Where the region starts in its file.
    pub offset: u64,
    /// Device and inode number of the file; none where the message carries no file.
    pub file: Option<(u64, u64)>,
}

impl Region {
    /// The region from its four words, in the order of the message.
    pub fn new(words: [u64; 4], kind: Option<FileKind>) -> Region {
        let [guest, len, user, offset] = words;
        let file = match kind {
            Some(FileKind::Regular { device, inode, .. }) => Some((device, inode)),
            _ => None,
        };
        Region {
            guest,
            len,
            user,
            offset,
            file,
        }
    }

    /// Whether it can be mapped from a file of this kind: nothing wraps and the file is as large as the region says.
    pub fn check(&self, kind: FileKind) -> Result<(), Refusal> {
        let Region {
            guest,
            len,
            user,
            offset,
            ..
        } = *self;
        let file_len = match kind {
            FileKind::Regular { len, .. } => len,
            FileKind::Slow => {
                return Err(SessionRule::MemoryFileSystem.broken(format!(
                    "the memory region at {guest:#x} comes with a file whose file system may keep its readers waiting (FUSE, network): \
                     share a memfd or a file on tmpfs, hugetlbfs or a local disk"
                )));
            }
            _ => {
                return Err(SessionRule::FileKind.broken(format!(
                    "the memory region at {guest:#x} comes with something that is no memory file"
                )));
            }
        };
        if len == 0 {
            return Err(SessionRule::MemoryRegion.broken(format!("the memory region at {guest:#x} is empty")));
        }
        if guest.checked_add(len).is_none() || user.checked_add(len).is_none() {
            return Err(SessionRule::MemoryRegion.broken(format!(
                "the memory region at {guest:#x} goes beyond the end of the address space"
            )));
        }
        if !offset.is_multiple_of(PAGE_LEN) {
            return Err(SessionRule::MemoryRegion.broken(format!(
                "the memory region at {guest:#x} starts at {offset:#x} of its file, which is no page border"
            )));
        }
        if offset.checked_add(len).is_none_or(|end| end > file_len) {
            return Err(SessionRule::MemoryFileTooSmall.broken(format!(
                "the memory region at {guest:#x} needs {len:#x} bytes from {offset:#x} of a file that has {file_len:#x}"
            )));
        }
        Ok(())
    }

    fn overlaps(&self, other: &Region) -> bool {
        self.guest < other.guest + other.len && other.guest < self.guest + self.len
    }
}

/// What is to be done with a message about a region.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// Pass it on.
    New,
    /// It says what is so already.
    Repeat,
}

/// All regions in force.
#[derive(Debug, Default)]
pub struct Regions {
    present: Vec<Region>,
    /// Removed since the last addition: a second removal of one region is a repeat, not a mistake.
    removed: Vec<Region>,
}

impl Regions {
    /// True while the frontend has shared no memory.
    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// Guest address and length of each region.
    pub fn spans(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.present.iter().map(|region| (region.guest, region.len))
    }

    /// The guest address of the frontend's address `user`, and how many bytes behind it are in the same region.
    pub fn guest_of(&self, user: u64) -> Option<(u64, u64)> {
        let within = |region: &&Region| (region.user..region.user + region.len).contains(&user);
        let region = self.present.iter().find(within)?;
        let offset = user - region.user;
        Some((region.guest + offset, region.len - offset - 1))
    }

    /// True if some region holds the frontend's address `user`.
    pub fn holds(&self, user: u64) -> bool {
        self.guest_of(user).is_some()
    }

    /// Replaces all regions. They must have passed [`Region::check`].
    pub fn replace(&mut self, regions: &[Region]) -> Result<(), Refusal> {
        let mut fresh = Regions::default();
        for region in regions {
            fresh.insert(*region)?;
        }
        *self = fresh;
        Ok(())
    }

    /// Adds a region that passed [`Region::check`].
    pub fn add(&mut self, region: Region) -> Result<Change, Refusal> {
        if self.present.contains(&region) {
            return Ok(Change::Repeat);
        }
        self.insert(region)?;
        self.removed.clear();
        Ok(Change::New)
    }

    /// Removes the region that matches `region` in all but its file.
    pub fn remove(&mut self, region: Region) -> Result<Change, Refusal> {
        let same = |other: &Region| (other.guest, other.len, other.user) == (region.guest, region.len, region.user);
        if let Some(at) = self.present.iter().position(same) {
            let region = self.present.swap_remove(at);
            if self.removed.len() < REGIONS_MAX {
                self.removed.push(region);
            }
            return Ok(Change::New);
        }
        if self.removed.iter().any(same) {
            return Ok(Change::Repeat);
        }
        Err(SessionRule::MemoryNotShared.broken(format!(
            "there is no memory region of {:#x} bytes at {:#x} to remove",
            region.len, region.guest
        )))
    }

    fn insert(&mut self, region: Region) -> Result<(), Refusal> {
        if self.present.len() >= REGIONS_MAX {
            return Err(SessionRule::MemoryTooMuch.broken(format!("more than {REGIONS_MAX} memory regions")));
        }
        if let Some(other) = self.present.iter().find(|other| other.overlaps(&region)) {
            return Err(SessionRule::MemoryOverlap.broken(format!(
                "the memory region at {:#x} overlaps the one at {:#x}",
                region.guest, other.guest
            )));
        }
        // The sum cannot wrap: present regions do not overlap and their ends lie within 64 bits.
        let total: u64 = self.present.iter().map(|other| other.len).sum();
        if region.len > MEMORY_BYTES_MAX - total {
            return Err(
                SessionRule::MemoryTooMuch.broken(format!("more than {} GiB of guest memory", MEMORY_BYTES_MAX >> 30))
            );
        }
        self.present.push(region);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(guest: u64, len: u64) -> Region {
        Region {
            guest,
            len,
            user: guest + (1 << 40),
            offset: 0,
            file: Some((1, 2)),
        }
    }

    #[test]
    fn files_smaller_than_their_region_are_refused() {
        let file = |len| FileKind::Regular {
            device: 1,
            inode: 2,
            len,
        };
        assert!(region(0, 0x2000).check(file(0x2000)).is_ok());
        assert!(
            region(0, 0x2000)
                .check(file(0x1fff))
                .unwrap_err()
                .sentence
                .contains("a file that has 0x1fff")
        );
        let high = Region {
            offset: !0xfff,
            ..region(0, 0x2000)
        };
        assert!(high.check(file(u64::MAX)).unwrap_err().sentence.contains("needs"));
        assert!(region(0, 0).check(file(1)).unwrap_err().sentence.contains("empty"));
        assert!(
            Region {
                guest: u64::MAX,
                ..region(0, 2)
            }
            .check(file(8))
            .unwrap_err()
            .sentence
            .contains("address space")
        );
        assert!(
            Region {
                offset: 8,
                ..region(0, 2)
            }
            .check(file(80))
            .unwrap_err()
            .sentence
            .contains("page border")
        );
        assert!(
            region(0, 2)
                .check(FileKind::Pipe)
                .unwrap_err()
                .sentence
                .contains("no memory file")
        );
    }

    #[test]
    fn repeats_are_told_from_overlaps() {
        let mut regions = Regions::default();
        assert_eq!(regions.add(region(0, 0x1000)), Ok(Change::New));
        assert_eq!(regions.add(region(0, 0x1000)), Ok(Change::Repeat));
        assert!(
            regions
                .add(Region {
                    file: Some((1, 3)),
                    ..region(0, 0x1000)
                })
                .unwrap_err()
                .sentence
                .contains("overlaps")
        );
        assert!(
            regions
                .add(region(0xfff, 0x1000))
                .unwrap_err()
                .sentence
                .contains("overlaps")
        );
        assert_eq!(regions.add(region(0x1000, 0x1000)), Ok(Change::New));
        assert!(regions.holds(0x1fff + (1 << 40)) && !regions.holds(0x2000 + (1 << 40)));
        assert_eq!(regions.remove(region(0, 0x1000)), Ok(Change::New));
        assert_eq!(regions.remove(region(0, 0x1000)), Ok(Change::Repeat));
        assert!(
            regions
                .remove(region(0x5000, 0x1000))
                .unwrap_err()
                .sentence
                .contains("no memory region")
        );
    }

    #[test]
    fn number_and_sum_of_regions_are_limited() {
        let mut regions = Regions::default();
        for index in 0..REGIONS_MAX as u64 {
            regions.add(region(index * 0x1000, 0x1000)).unwrap();
        }
        assert!(
            regions
                .add(region(1 << 50, 0x1000))
                .unwrap_err()
                .sentence
                .contains("more than 509")
        );
        let mut regions = Regions::default();
        regions.add(region(0, MEMORY_BYTES_MAX)).unwrap();
        assert!(
            regions
                .add(region(1 << 50, 1))
                .unwrap_err()
                .sentence
                .contains("more than 4096 GiB")
        );
        assert!(regions.replace(&[region(0, 1), region(0, 1)]).is_err());
        assert!(regions.holds(1 << 40), "a refused table changes nothing");
    }
}
