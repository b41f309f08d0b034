//! Tells a process from its children: these have the same memory, but for what the kernel leaves out.

use std::{
    io,
    ptr::NonNull,
    sync::atomic::{AtomicU8, Ordering},
};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::layout::PAGE;

/// Memory that a child finds empty. Looking costs no system call.
pub struct ForkMark {
    page: NonNull<u8>,
}

// SAFETY: the page belongs to this value, is not tied to a thread, and is read and written atomically.
unsafe impl Send for ForkMark {}
// SAFETY: as above.
unsafe impl Sync for ForkMark {}

impl ForkMark {
    /// Makes the mark of this process.
    ///
    /// # Errors
    /// The system's, if it has no memory or cannot leave it out.
    pub fn new() -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let page = unsafe { mmap_anonymous(std::ptr::null_mut(), PAGE, protection, flags)? };
        let page = NonNull::new(page.cast::<u8>()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mark = Self { page };
        // SAFETY: exactly the mapping that was just made.
        unsafe { madvise(page.as_ptr().cast(), PAGE, Advice::LinuxWipeOnFork)? };
        mark.byte().store(1, Ordering::Relaxed);
        Ok(mark)
    }

    fn byte(&self) -> &AtomicU8 {
        // SAFETY: mapped as long as this value is there.
        unsafe { AtomicU8::from_ptr(self.page.as_ptr()) }
    }

    /// Whether this is the process that made the mark.
    #[inline]
    pub fn is_own(&self) -> bool {
        self.byte().load(Ordering::Relaxed) != 0
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that was made.
        let _ = unsafe { munmap(self.page.as_ptr().cast(), PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_sees_that_it_is_one() {
        let mark = ForkMark::new().unwrap();
        assert!(mark.is_own());
        // SAFETY: the child makes one load and ends.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(i32::from(mark.is_own()));
            }
            let mut status = -1;
            libc::waitpid(child, &raw mut status, 0);
            status
        };
        assert_eq!(status, 0, "the child is none of its own");
        assert!(mark.is_own());
    }
}
