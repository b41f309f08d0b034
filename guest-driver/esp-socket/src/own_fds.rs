//! Descriptors of the library itself: kept at high numbers, out of the way of the program's own, and protected from a program that
//! closes every number it can think of.

use std::{
    os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{errno::Errno, system};

/// Numbers below this are known to the library; the kernel's default for the highest number is the same.
pub const FDS_MAX: usize = 1 << 20;

/// Numbers of standard input, output and error, which the library never takes.
const STANDARD_FDS: RawFd = 3;

static OWN: [AtomicU64; FDS_MAX / 64] = [const { AtomicU64::new(0) }; FDS_MAX / 64];
/// Numbers from here on are preferred for the library.
static FIRST: OnceLock<RawFd> = OnceLock::new();

/// Returns the number from which the library's descriptors are placed. The soft limit is raised to the hard one, so that the program
/// has as many numbers as before.
pub(crate) fn first() -> RawFd {
    *FIRST.get_or_init(|| {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: `limit` outlives both calls.
        unsafe { libc::prlimit(0, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut limit) };
        let soft = limit.rlim_cur.min(FDS_MAX as u64 / 2);
        if limit.rlim_max <= soft {
            return (soft / 2).max(64) as RawFd;
        }
        limit.rlim_cur = limit.rlim_max.min(FDS_MAX as u64);
        // SAFETY: as above.
        unsafe { libc::prlimit(0, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) };
        soft as RawFd
    })
}

/// A descriptor of the library.
#[derive(Debug)]
pub struct OwnFd(RawFd);

fn bit(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let at = usize::try_from(fd).ok()?;
    Some((OWN.get(at / 64)?, 1 << (at % 64)))
}

/// Whether the number belongs to the library.
#[inline]
pub fn is_own(fd: RawFd) -> bool {
    bit(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// Protects a descriptor that another crate keeps for the library, such as that of an Ethernet port.
pub fn protect(fd: RawFd) {
    if let Some((word, bit)) = bit(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Ends what [`protect`] began.
pub fn release(fd: RawFd) {
    if let Some((word, bit)) = bit(fd) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// Closes a number without any of the library's checks.
pub(crate) fn close_raw(fd: RawFd) {
    // SAFETY: the caller owns the number.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// Looks whether the program may have so many descriptors more.
///
/// # Errors
/// `EMFILE`.
pub(crate) fn check_room(count: usize) -> Result<(), Errno> {
    let taken: Result<Vec<_>, _> = (0..count).map(|_| system::event()).collect();
    taken.map(drop)
}

/// Copies a descriptor to the first free number from `least` on.
fn copy_from(fd: RawFd, least: RawFd) -> Option<RawFd> {
    // SAFETY: a plain call; the kernel checks the numbers.
    let copy = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, least) } as RawFd;
    (copy >= 0).then_some(copy)
}

impl OwnFd {
    /// Moves a descriptor to a number of the library's; it stays where it is if there is none.
    pub fn new(fd: OwnedFd) -> Self {
        let old = fd.into_raw_fd();
        let number = match copy_from(old, first()) {
            Some(moved) => {
                close_raw(old);
                moved
            }
            None => old,
        };
        protect(number);
        Self(number)
    }

    /// Copies a descriptor of the program to a number of the library's, or to any if those are used up.
    pub fn copy_of(fd: RawFd) -> Option<Self> {
        let copy = copy_from(fd, first()).or_else(|| copy_from(fd, STANDARD_FDS))?;
        protect(copy);
        Some(Self(copy))
    }

    /// Becomes a copy of another descriptor, with the number that it has. What it was is closed.
    ///
    /// # Errors
    /// The kernel's, for what is no descriptor.
    pub(crate) fn become_copy_of(&self, fd: RawFd) -> Result<(), Errno> {
        // SAFETY: a plain call; this value owns the number.
        let result = unsafe { libc::syscall(libc::SYS_dup3, fd, self.0, libc::O_CLOEXEC) };
        if result < 0 { Err(Errno::last()) } else { Ok(()) }
    }

    /// Gives the descriptor up, with its number.
    pub fn into_owned(self) -> OwnedFd {
        let fd = self.0;
        std::mem::forget(self);
        release(fd);
        // SAFETY: this value owned it.
        unsafe { OwnedFd::from_raw_fd(fd) }
    }
}

impl AsRawFd for OwnFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl Drop for OwnFd {
    fn drop(&mut self) {
        release(self.0);
        close_raw(self.0);
    }
}

/// Protects the socket of a session.
pub(crate) fn protect_session(session: &weft_authority::Session) {
    protect(std::os::fd::AsFd::as_fd(session).as_raw_fd());
}

/// Ends what [`protect_session`] began, before the socket is closed.
pub(crate) fn release_session(session: &weft_authority::Session) {
    release(std::os::fd::AsFd::as_fd(session).as_raw_fd());
}

/// Returns all numbers of the library, in order.
pub fn all() -> Vec<RawFd> {
    let mut all = Vec::new();
    for (at, word) in OWN.iter().enumerate() {
        let mut word = word.load(Ordering::Relaxed);
        while word != 0 {
            all.push((at * 64) as RawFd + word.trailing_zeros() as RawFd);
            word &= word - 1;
        }
    }
    all
}
