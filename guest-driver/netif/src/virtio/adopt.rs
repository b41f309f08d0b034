//! Going on with a card whose owner was killed: programs that drive its queue pairs live, and have what the card uses.
//!
//! The memory is found among the descriptors of those programs, and with it what keeps the card going: the kernel takes
//! its access to memory away when a descriptor of the device is closed by the last process that has it. That the memory
//! is the card's is checked by the addresses that the card itself states.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::atomic::Ordering,
};

use rustix::{
    fs::fstat,
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};

use super::{PairLayout, memory::SharedMemory};

/// Where the description stands in the first page of a card's memory, behind the control queue.
const DESCRIPTION: usize = 3584;
/// It begins with this: `weftcard`, and a version.
const MAGIC: u64 = u64::from_le_bytes(*b"weftcrd1");
/// The name of a card's memory among a program's open files.
pub(super) const MEMORY_NAME: &str = "weft-card";
/// At most this many descriptors of a program are looked at.
const DESCRIPTORS_MAX: usize = 4096;

/// What a card's memory says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) layout: PairLayout,
    pub(super) pairs: u16,
    /// Features that were agreed on.
    pub(super) features: u64,
}

impl Description {
    pub(super) fn write(&self, memory: &SharedMemory) {
        let halves = [self.pairs, self.layout.ring_size, self.layout.slots, self.layout.pieces];
        for (number, half) in halves.into_iter().enumerate() {
            let at = DESCRIPTION + 16 + 2 * number;
            memory.half(at).store(half.to_le(), Ordering::Relaxed);
        }
        memory
            .word(DESCRIPTION + 24)
            .store(self.layout.slot_len.to_le(), Ordering::Relaxed);
        memory
            .long(DESCRIPTION + 8)
            .store(self.features.to_le(), Ordering::Relaxed);
        memory.long(DESCRIPTION).store(MAGIC.to_le(), Ordering::Release);
    }

    /// Reads what another process wrote; `None` for what makes no sense.
    pub(super) fn read(memory: &SharedMemory) -> Option<Self> {
        let half = |number: usize| u16::from_le(memory.half(DESCRIPTION + 16 + 2 * number).load(Ordering::Relaxed));
        let layout = PairLayout {
            ring_size: half(1),
            slots: half(2),
            pieces: half(3),
            slot_len: u32::from_le(memory.word(DESCRIPTION + 24).load(Ordering::Relaxed)),
        };
        let is_one = u64::from_le(memory.long(DESCRIPTION).load(Ordering::Acquire)) == MAGIC;
        (is_one && layout.is_sound() && half(0) > 0).then(|| Self {
            layout,
            pairs: half(0),
            features: u64::from_le(memory.long(DESCRIPTION + 8).load(Ordering::Relaxed)),
        })
    }
}

/// What a program has of a card.
pub(super) struct Found {
    pub(super) memory: OwnedFd,
    pub(super) memory_len: usize,
    /// The descriptors of the device.
    pub(super) device: OwnedFd,
}

/// Looks for memory of this name, and for the device at the path `device`, among what a program has.
///
/// # Errors
/// The system's, where the program is gone or cannot be looked at; [`io::ErrorKind::NotFound`].
pub(super) fn search(program: u32, memory_name: &str, device: &Path) -> io::Result<Found> {
    let pid = i32::try_from(program).ok().and_then(Pid::from_raw);
    let pidfd = pidfd_open(pid.ok_or(io::ErrorKind::NotFound)?, PidfdFlags::empty())?;
    let memory_link = format!("/memfd:{memory_name} (deleted)");
    let (mut memory, mut own) = (None, None);
    for entry in fs::read_dir(format!("/proc/{program}/fd"))?.take(DESCRIPTORS_MAX) {
        let entry = entry?;
        let Ok(link) = fs::read_link(entry.path()) else {
            continue;
        };
        let place = if link.as_os_str() == memory_link.as_str() {
            &mut memory
        } else if link == device {
            &mut own
        } else {
            continue;
        };
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let number = number.ok_or(io::ErrorKind::InvalidData)?;
        *place = Some(pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty())?);
    }
    let (Some(memory), Some(device)) = (memory, own) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let memory_len = usize::try_from(fstat(memory.as_fd())?.st_size).unwrap_or(0);
    Ok(Found {
        memory,
        memory_len,
        device,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtio::layout::PAGE;

    #[test]
    fn a_card_s_memory_is_found_with_what_it_says_of_itself() {
        let name = "weft-test-adopt";
        let memory = SharedMemory::new(name, 2 * PAGE).unwrap();
        assert_eq!(Description::read(&memory), None);
        let description = Description {
            layout: PairLayout::new(9000, 256, true),
            pairs: 5,
            features: 1 << 32 | 7,
        };
        description.write(&memory);
        let device = fs::File::open("/dev/null").unwrap();
        let found = search(std::process::id(), name, Path::new("/dev/null")).unwrap();
        drop(device);
        let again = SharedMemory::of_file(found.memory, 0, found.memory_len).unwrap();
        assert_eq!(Description::read(&again), Some(description));
        assert!(search(std::process::id(), name, Path::new("/dev/weft-none")).is_err());
        memory.half(DESCRIPTION + 18).store(3, Ordering::Relaxed);
        assert_eq!(Description::read(&memory), None, "a ring of three entries");
    }
}
