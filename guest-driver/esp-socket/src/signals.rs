//! Whether calls that a signal interrupts go on: programs say so for each signal (`SA_RESTART`), and the kernel does not say which one
//! woke a thread.

use std::ptr;

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// Whether a call goes on after a signal: if every handler of the program asks for it.
pub(crate) fn restart_calls() -> bool {
    (1..=64).all(|signal| {
        let mut action = KernelAction {
            handler: 0,
            flags: 0,
            restorer: 0,
            mask: 0,
        };
        // SAFETY: the kernel writes one action; a mask has eight bytes.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                ptr::null::<KernelAction>(),
                &raw mut action,
                8_usize,
            )
        };
        action.handler == libc::SIG_DFL
            || action.handler == libc::SIG_IGN
            || action.flags & libc::SA_RESTART as u64 != 0
            // The C library's own: it cancels threads.
            || signal == 32
            || signal == 33
    })
}
