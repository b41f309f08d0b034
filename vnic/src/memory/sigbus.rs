//! What happens when a frontend truncates the file behind its guest's memory: the touched region is replaced by private
//! zero pages and its port is told, so that one port fails and the process lives.
//!
//! The handler runs in signal context: it reads a fixed table of atomics and calls `mmap`, nothing else. A SIGBUS
//! outside the registered regions keeps its default meaning.

use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};

/// Regions that can be registered at once: 16 ports of the kind that shares every page of 2 MiB as a region of its own
/// (509 at most), twice while their tables are replaced, or a thousand ordinary ones. Memory that does not fit is not served.
const REGIONS_MAX: usize = 16_384;

struct Slot {
    start: AtomicUsize,
    len: AtomicUsize,
    fault: AtomicPtr<AtomicBool>,
}

static SLOTS: [Slot; REGIONS_MAX] = [const {
    Slot {
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        fault: AtomicPtr::new(ptr::null_mut()),
    }
}; REGIONS_MAX];
static WRITERS: Mutex<()> = Mutex::new(());
static INSTALL: Once = Once::new();

/// Keeps a set of regions registered; dropping it removes them. Drop it before the mappings go.
#[derive(Debug)]
pub struct Registration {
    slots: Vec<usize>,
    _fault: Arc<AtomicBool>,
}

/// There is no room for so many regions; none of them was registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "all ports together share more than {REGIONS_MAX} memory regions, so these cannot be guarded against a truncated file"
)]
pub struct TooManyRegions;

/// Registers `regions` (host address, length in bytes); `fault` becomes true when one of them is hit.
///
/// # Errors
/// [`TooManyRegions`].
pub fn register(
    regions: impl ExactSizeIterator<Item = (usize, usize)>,
    fault: Arc<AtomicBool>,
) -> Result<Registration, TooManyRegions> {
    INSTALL.call_once(install);
    let _writer = WRITERS.lock().unwrap_or_else(|e| e.into_inner());
    let count = regions.len();
    let free = (0..REGIONS_MAX).filter(|&index| SLOTS[index].len.load(Ordering::Relaxed) == 0);
    let slots: Vec<usize> = free.take(count).collect();
    if slots.len() < count {
        return Err(TooManyRegions);
    }
    for ((start, len), &index) in regions.zip(&slots) {
        let slot = &SLOTS[index];
        slot.fault.store(Arc::as_ptr(&fault).cast_mut(), Ordering::Relaxed);
        slot.start.store(start, Ordering::Relaxed);
        // The length is written last: a slot with length 0 is not read.
        slot.len.store(len, Ordering::Release);
    }
    Ok(Registration { slots, _fault: fault })
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _writer = WRITERS.lock().unwrap_or_else(|e| e.into_inner());
        for &index in &self.slots {
            SLOTS[index].len.store(0, Ordering::Release);
        }
    }
}

fn install() {
    // SAFETY: the handler below is async-signal-safe (atomics and mmap only); the structure is fully initialised.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handle as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
    }
}

extern "C" fn handle(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo for SIGBUS.
    let addr = unsafe { (*info).si_addr() } as usize;
    for slot in &SLOTS {
        let len = slot.len.load(Ordering::Acquire);
        let start = slot.start.load(Ordering::Relaxed);
        if len == 0 || addr < start || addr - start >= len {
            continue;
        }
        // SAFETY: the range is a mapping that its registration says is alive; replacing its pages by zero pages keeps
        // every pointer into it valid. The flag outlives the registration, which owns a reference to it.
        unsafe {
            let replaced = libc::mmap(
                start as *mut libc::c_void,
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            );
            if replaced != libc::MAP_FAILED {
                (*slot.fault.load(Ordering::Relaxed)).store(true, Ordering::Release);
                return;
            }
        }
    }
    // SAFETY: restoring the default action is async-signal-safe; the faulting instruction is tried again and ends the
    // process, as it would have without us.
    unsafe {
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn regions_that_do_not_fit_are_refused_and_leave_no_trace() {
        // Addresses that nothing touches.
        let many = |count: usize| (0..count).map(|index| (index << 12, 1));
        assert_eq!(
            register(many(REGIONS_MAX + 1), Arc::default()).err(),
            Some(TooManyRegions)
        );
        let some = register(many(100), Arc::default()).unwrap();
        assert_eq!(
            register(many(REGIONS_MAX - 99), Arc::default()).err(),
            Some(TooManyRegions)
        );
        assert_eq!(some.slots.len(), 100);
    }

    #[test]
    fn a_truncated_file_sets_the_flag_and_reads_as_zero() {
        let file = rustix::fs::memfd_create("sigbus", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 8192).unwrap();
        // SAFETY: a fresh shared mapping of our own file, never unmapped in this test.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                8192,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        let fault = Arc::new(AtomicBool::new(false));
        let _registration = register([(base as usize, 8192)].into_iter(), fault.clone()).unwrap();
        rustix::fs::ftruncate(&file, 0).unwrap();
        // SAFETY: inside the mapping; the handler replaces the missing page.
        let byte = unsafe { base.cast::<u8>().add(5000).read_volatile() };
        assert_eq!(byte, 0);
        assert!(fault.load(Ordering::Acquire));
    }
}
