//! A process that is gone at once when it is killed, although asynchronous I/O takes its time to end.
//!
//! The kernel tears an asynchronous-I/O context down with the address space that it belongs to, and waits some 30 ms for that before it
//! closes the files of the last process there: for so long no guest knows that its card is gone. So a second process, which has no files
//! and does nothing, shares the address space, and is the last one there.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

/// Bytes of the second process's stack.
const STACK_LEN: usize = 32 << 10;

/// Starts the second process, which ends with the calling thread: this is to be the main one. Without it a killed process takes longer
/// to end, and nothing else is different.
///
/// # Errors
/// The system allows no further process.
pub fn prepare() -> io::Result<()> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at a place of the kernel's choice. It is never unmapped: the other process has it for ever.
    let stack = unsafe { mmap_anonymous(std::ptr::null_mut(), STACK_LEN, protection, flags)? };
    // No handler of this process is to run there.
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    let parent = getpid().as_raw_nonzero().get() as usize as *mut c_void;
    // SAFETY: the sets are written before they are read; the stack is writable up to its end and for the new process alone; `stay` keeps what is
    // asked of code that shares memory with running threads: it has no locals that they know, and takes no lock.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let started = libc::clone(stay, stack.byte_add(STACK_LEN), libc::CLONE_VM, parent);
        let outcome = if started < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        };
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        outcome
    }
}

/// What the second process does. The calls are the kernel's own: those of the C library would write to the calling thread's `errno`, which
/// is the same place in memory as the first process's.
extern "C" fn stay(parent: *mut c_void) -> c_int {
    // It ends with its parent, whatever else it does not do.
    _ = set_parent_process_death_signal(Some(Signal::KILL));
    let is_parent = |pid: Pid| pid.as_raw_nonzero().get() as usize == parent as usize;
    if !getppid().is_some_and(is_parent) {
        return 0;
    }
    // SAFETY: these are copies of the first process's descriptors, which nothing here uses. It fails on no kernel that has it.
    unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
    _ = rustix::thread::set_name(c"vnicd-end");
    // Every signal that can be blocked is.
    while rustix::event::poll(&mut [], None).is_ok() {}
    0
}
