//! A thread that the scheduler lets run soon after it was woken, for a short while: the helper thread, which answers peers while the
//! program's threads keep the processor.

use std::mem::size_of;

/// The time that the thread asks for at once, in nanoseconds: the shortest that the kernel grants. It answers a peer in less.
const SLICE_NS: u64 = 100_000;

/// `struct sched_attr` of the kernel, as of its first version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Asks for short slices for this thread, whose share of the processor stays the same. Kernels before 6.12 have none, and nothing
/// changes.
pub(crate) fn ask() -> bool {
    let mut attributes = Attributes::default();
    let len = size_of::<Attributes>();
    // SAFETY: the kernel writes at most `len` bytes to the structure, which is this function's.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, len, 0) } == 0;
    if !got || attributes.policy != libc::SCHED_OTHER.cast_unsigned() {
        return false;
    }
    attributes.runtime_ns = SLICE_NS;
    // SAFETY: the kernel reads the structure, whose length is in it.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_the_processor_stays() {
        std::thread::spawn(|| {
            let nice = || rustix::process::nice(0).unwrap();
            let before = nice();
            assert!(ask());
            assert_eq!(nice(), before);
        })
        .join()
        .unwrap();
    }
}
