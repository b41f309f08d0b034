//! Signals of the threads that the library starts inside a program: they handle no signal of the program's. A thread
//! that took a signal for which the program waits elsewhere (`sigwait`, `signalfd`, a wait that signals end) would keep
//! it from there, or end the program.

use std::ptr;

/// Signals that a thread's own code causes: they are not meant for others, and never blocked.
const OF_ITS_OWN: [libc::c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Runs `act` with signals blocked: a thread that is started meanwhile has them blocked as long as it lives.
pub fn without_signals<T>(act: impl FnOnce() -> T) -> T {
    let before = block();
    let result = act();
    // SAFETY: reads the mask.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    result
}

/// Unblocks every signal: a program that starts another one hands its mask on, including what it had blocked.
pub fn take_all_signals() {
    // SAFETY: plain data that the calls fill and read.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

fn block() -> libc::sigset_t {
    // SAFETY: plain data that the calls fill.
    unsafe {
        let (mut others, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut others);
        for signal in OF_ITS_OWN {
            libc::sigdelset(&raw mut others, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const others, &raw mut before);
        before
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use super::*;

    /// Returns the signals that a thread has blocked, as bits.
    fn blocked() -> u64 {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    const fn bit(signal: libc::c_int) -> u64 {
        1 << (signal - 1)
    }

    #[test]
    fn a_thread_started_so_takes_no_signal_of_others_and_its_starter_has_its_own_mask_again() {
        let before = blocked();
        let of_thread = without_signals(|| thread::spawn(blocked)).join().unwrap();
        assert_eq!(blocked(), before);
        for signal in [
            libc::SIGUSR1,
            libc::SIGTERM,
            libc::SIGCHLD,
            libc::SIGALRM,
            libc::SIGRTMAX(),
        ] {
            assert_ne!(of_thread & bit(signal), 0, "{signal}");
        }
        assert_eq!(of_thread & bit(libc::SIGSEGV), before & bit(libc::SIGSEGV));
    }
}
