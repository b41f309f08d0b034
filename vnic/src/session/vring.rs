//! The published crate's vring with the two accesses to the frontend's eventfds replaced by ones that cannot wait. It
//! changes nothing else.
//!
//! O_NONBLOCK would not do: it belongs to the open file description, which the frontend shares and changes at will. A write
//! into a full counter, or a read from an empty one, would then stop a thread that has a lock which all threads need.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use vhost_user_backend::{VringRwLock, VringStateGuard, VringStateMutGuard, VringT};
use virtio_queue::Error as QueueError;
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

type Memory = GuestMemoryAtomic<GuestMemoryMmap>;

/// A ring of a session, as the daemon and the data plane share it. Clones share one ring.
#[derive(Clone)]
pub struct SessionVring {
    inner: VringRwLock,
    /// Not those inside `inner`: a thread that reads or signals must not wait for the lock there either. Held for one call of the
    /// kernel that does not wait.
    files: Arc<Mutex<Files>>,
}

#[derive(Default)]
struct Files {
    kick: Option<File>,
    call: Option<File>,
    /// The driver was signalled in this connection, perhaps by a file that no driver listened to.
    was_signalled: bool,
}

impl Files {
    fn signal(&mut self) -> io::Result<()> {
        self.was_signalled = true;
        match &self.call {
            Some(call) => Signaller::get()?.signal(call.as_raw_fd()),
            None => Ok(()),
        }
    }
}

impl SessionVring {
    fn files(&self) -> std::sync::MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> VringStateGuard<'a, Memory> for SessionVring {
    type G = <VringRwLock as VringStateGuard<'a, Memory>>::G;
}

impl<'a> VringStateMutGuard<'a, Memory> for SessionVring {
    type G = <VringRwLock as VringStateMutGuard<'a, Memory>>::G;
}

impl VringT<Memory> for SessionVring {
    fn new(memory: Memory, queue_size_max: u16) -> Result<Self, QueueError> {
        Ok(Self {
            inner: VringRwLock::new(memory, queue_size_max)?,
            files: Arc::default(),
        })
    }

    fn get_ref(&self) -> <Self as VringStateGuard<'_, Memory>>::G {
        self.inner.get_ref()
    }

    fn get_mut(&self) -> <Self as VringStateMutGuard<'_, Memory>>::G {
        self.inner.get_mut()
    }

    fn add_used(&self, head: u16, len: u32) -> Result<(), QueueError> {
        self.inner.add_used(head, len)
    }

    /// Never waits. A counter that is full stays so: the frontend has 2⁶⁴ signals to read.
    fn signal_used_queue(&self) -> io::Result<()> {
        self.files().signal()
    }

    fn enable_notification(&self) -> Result<bool, QueueError> {
        self.inner.enable_notification()
    }

    fn disable_notification(&self) -> Result<(), QueueError> {
        self.inner.disable_notification()
    }

    fn needs_notification(&self) -> Result<bool, QueueError> {
        self.inner.needs_notification()
    }

    fn set_enabled(&self, enabled: bool) {
        self.inner.set_enabled(enabled);
    }

    fn set_queue_info(&self, descriptors: u64, available: u64, used: u64) -> Result<(), QueueError> {
        self.inner.set_queue_info(descriptors, available, used)
    }

    fn queue_next_avail(&self) -> u16 {
        self.inner.queue_next_avail()
    }

    fn set_queue_next_avail(&self, base: u16) {
        self.inner.set_queue_next_avail(base);
    }

    fn set_queue_next_used(&self, index: u16) {
        self.inner.set_queue_next_used(index);
    }

    fn queue_used_idx(&self) -> Result<u16, QueueError> {
        self.inner.queue_used_idx()
    }

    fn set_queue_size(&self, size: u16) {
        self.inner.set_queue_size(size);
    }

    fn set_queue_event_idx(&self, enabled: bool) {
        self.inner.set_queue_event_idx(enabled);
    }

    fn set_queue_ready(&self, ready: bool) {
        self.inner.set_queue_ready(ready);
    }

    /// The daemon waits for this file; what is read is a second descriptor of it.
    fn set_kick(&self, file: Option<File>) {
        self.files().kick = file.as_ref().and_then(|file| file.try_clone().ok());
        self.inner.set_kick(file);
    }

    /// Never waits. A kick that its own frontend has read already is a kick nevertheless.
    fn read_kick(&self) -> io::Result<bool> {
        if let Some(kick) = &self.files().kick {
            match read_at_once(kick) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.inner.get_ref().is_enabled())
    }

    /// A running ring's new file is signalled if the one before was: QEMU gives a ring its kick, by which it runs, before the
    /// file that it listens to, and throws away what came by the one that it gave at first. The driver, which waits for the
    /// signal of a certain entry, would get no other for the next 65 535. One too many costs it one check of its ring.
    fn set_call(&self, file: Option<File>) {
        let mut files = self.files();
        files.call = file;
        if files.was_signalled
            && let Err(error) = files.signal()
        {
            tracing::debug!(%error, "new call eventfd not signalled");
        }
    }

    fn set_err(&self, file: Option<File>) {
        self.inner.set_err(file);
    }
}

/// Room asked for the results of requests: all end within `io_submit`, and their results are thrown away together. The kernel
/// makes it some more (a page full), but counts this against `fs.aio-max-nr` (65 536 by default, for all programs together).
const RESULTS_MAX: usize = 8;
const IOCB_CMD_PREAD: u16 = 0;
const IOCB_FLAG_RESFD: u32 = 1;

/// `struct iocb` of `linux/aio_abi.h`. The two words that change places with the byte order are both 0.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    signalled: u32,
}

/// Adds 1 to eventfds without ever waiting: asks the kernel for an asynchronous read of nothing and to signal the eventfd when it
/// is done, which is at once. The kernel signals by its own `eventfd_signal`, which stops at the counter's end, whereas write(2)
/// waits there unless the file is non-blocking, and knows no RWF_NOWAIT for eventfds. To check before writing, or to interrupt a
/// write from a watchdog, leaves the frontend a gap to race for; this has none. Costs about 0.4 µs more than write(2).
struct Signaller {
    context: libc::c_ulong,
    /// An empty file to read nothing from.
    empty: OwnedFd,
}

impl Signaller {
    /// The one of this process, which lives as long as the process: an asynchronous-I/O context serves all threads.
    fn get() -> io::Result<&'static Signaller> {
        static SIGNALLER: OnceLock<Result<Signaller, i32>> = OnceLock::new();
        let made = SIGNALLER.get_or_init(|| Self::new().map_err(|error| error.raw_os_error().unwrap_or(libc::ENOSYS)));
        made.as_ref().map_err(|&code| io::Error::from_raw_os_error(code))
    }

    fn new() -> io::Result<Signaller> {
        let empty = memfd_create("empty", MemfdFlags::CLOEXEC)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one word, the context's handle, to a valid place.
        match unsafe { libc::syscall(libc::SYS_io_setup, RESULTS_MAX, &raw mut context) } {
            0 => Ok(Signaller { context, empty }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Signals the eventfd `call`.
    fn signal(&self, call: RawFd) -> io::Result<()> {
        let mut request = Request {
            opcode: IOCB_CMD_PREAD,
            file: self.empty.as_raw_fd().cast_unsigned(),
            flags: IOCB_FLAG_RESFD,
            signalled: call.cast_unsigned(),
            ..Request::default()
        };
        let mut submit = || {
            let requests = [&raw mut request];
            // SAFETY: one pointer to one valid request, of which the kernel keeps nothing; it reads 0 bytes into no buffer.
            match unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, requests.as_ptr()) } {
                1 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        submit().or_else(|error| {
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(error);
            }
            // No room for one more result.
            self.forget_results();
            submit()
        })
    }

    /// Takes all results out of the context, without waiting for more.
    fn forget_results(&self) {
        /// `struct io_event`.
        type Outcome = [u64; 4];
        let mut results = [Outcome::default(); 256];
        let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes at most as many results as there are places, and reads one time.
        unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                0,
                results.len(),
                results.as_mut_ptr(),
                &raw const no_time,
            );
        }
    }
}

/// Sets up what all signals need; whether ports can be served at all.
///
/// # Errors
/// See [`NoSignals`].
pub fn can_signal() -> Result<(), NoSignals> {
    Signaller::get().map(|_| ()).map_err(NoSignals::new)
}

/// Why no interrupt could be signalled, and what would help.
#[derive(Debug, thiserror::Error)]
pub enum NoSignals {
    /// Other programs use all there is.
    #[error(
        "vnicd signals interrupts by asynchronous I/O, and other programs use all that the system allows (fs.aio-max-nr): raise it, \
         for instance with \"sysctl -w fs.aio-max-nr=1048576\""
    )]
    UsedUp,
    /// The kernel was built without it, or this process may not use it.
    #[error(
        "vnicd signals interrupts by asynchronous I/O, which this kernel or container does not allow (io_setup: {reason}): it needs a \
         kernel with CONFIG_AIO and no seccomp filter against it"
    )]
    Denied {
        /// The system's reason.
        reason: io::Error,
    },
}

impl NoSignals {
    fn new(error: io::Error) -> NoSignals {
        match error.kind() {
            io::ErrorKind::WouldBlock => NoSignals::UsedUp,
            _ => NoSignals::Denied { reason: error },
        }
    }
}

/// Attempts to tell a semaphore from a counter: another reader (a ring that runs with this kick, too) may spoil one, not all.
const SEMAPHORE_ATTEMPTS: usize = 16;

/// True for an eventfd that gives one signal per read (EFD_SEMAPHORE). A counter of 2⁶³ in it would keep the thread that reads it
/// busy for ever at no cost to the process that wrote it. Found out by trying, since kernels tell only since Linux 6.5: two signals that
/// no read takes together. Signals that were there before are there afterwards, as one.
///
/// # Errors
/// The eventfd can be neither signalled nor read.
pub fn is_semaphore(kick: impl AsFd) -> io::Result<bool> {
    let kick = kick.as_fd();
    let signaller = Signaller::get()?;
    for _ in 0..SEMAPHORE_ATTEMPTS {
        signaller.signal(kick.as_raw_fd())?;
        signaller.signal(kick.as_raw_fd())?;
        match read_at_once(kick) {
            // One of them, or none: another process may have been quicker.
            Ok(0 | 1) | Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(2) => return Ok(false),
            Ok(_) => return signaller.signal(kick.as_raw_fd()).map(|()| false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// Reads an eventfd without ever waiting: RWF_NOWAIT counts for this one read, whatever the file's flags say.
fn read_at_once(event: impl AsFd) -> Result<u64, Errno> {
    let mut count = [0; 8];
    // The offset -1 stands for the file's own position, which an eventfd does not have.
    preadv2(
        event,
        &mut [IoSliceMut::new(&mut count)],
        u64::MAX,
        ReadWriteFlags::NOWAIT,
    )?;
    Ok(u64::from_ne_bytes(count))
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn vring() -> SessionVring {
        SessionVring::new(Memory::new(GuestMemoryMmap::new()), 256).expect("a vring")
    }

    fn blocking() -> (File, File) {
        let file = File::from(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"));
        (file.try_clone().expect("a second descriptor"), file)
    }

    #[test]
    fn a_full_blocking_call_is_signalled_without_waiting() {
        let (vring, (ours, theirs)) = (vring(), blocking());
        vring.set_call(Some(ours));
        rustix::io::write(&theirs, &(u64::MAX - 1).to_ne_bytes()).expect("room in the counter");
        for _ in 0..10 * RESULTS_MAX {
            vring.signal_used_queue().expect("signalled");
        }
    }

    #[test]
    fn every_signal_is_counted_once() {
        let (vring, (ours, theirs)) = (vring(), blocking());
        vring.set_call(Some(ours));
        let count = 100 * RESULTS_MAX as u64;
        for _ in 0..count {
            vring.signal_used_queue().expect("signalled");
        }
        let mut read = [0; 8];
        rustix::io::read(&theirs, &mut read).expect("signals");
        assert_eq!(u64::from_ne_bytes(read), count);
    }

    #[test]
    fn a_signal_by_a_file_that_was_replaced_is_given_by_the_new_one() {
        let (vring, (masked, _keep), (ours, theirs)) = (vring(), blocking(), blocking());
        vring.set_call(Some(masked));
        vring.set_call(Some(ours.try_clone().expect("a second descriptor")));
        assert_eq!(read_at_once(&theirs), Err(Errno::AGAIN), "nothing was signalled");
        vring.set_call(None);
        vring.signal_used_queue().expect("the call has no receiver");
        vring.set_call(Some(ours));
        assert_eq!(read_at_once(&theirs), Ok(1));
    }

    #[test]
    fn an_empty_blocking_kick_is_read_without_waiting() {
        let (vring, (ours, theirs)) = (vring(), blocking());
        vring.set_kick(Some(ours));
        vring.read_kick().expect("nothing to read");
        rustix::io::write(&theirs, &7u64.to_ne_bytes()).expect("a kick");
        vring.read_kick().expect("a kick");
        vring.read_kick().expect("nothing left");
    }

    #[test]
    fn who_may_not_signal_is_told_what_helps() {
        let sentence = |errno: Errno| NoSignals::new(errno.into()).to_string();
        assert!(sentence(Errno::AGAIN).contains("sysctl -w fs.aio-max-nr="));
        let denied = sentence(Errno::PERM);
        assert!(
            denied.contains("CONFIG_AIO") && denied.matches("os error").count() == 1,
            "{denied}"
        );
    }

    #[test]
    fn a_semaphore_is_told_from_a_counter_on_any_kernel_and_pending_kicks_stay() {
        for flags in [EventfdFlags::CLOEXEC, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK] {
            for pending in [0, 1, 77, u64::MAX - 1] {
                let plain = eventfd(0, flags).expect("an eventfd");
                let semaphore = eventfd(0, flags | EventfdFlags::SEMAPHORE).expect("an eventfd");
                if pending > 0 {
                    rustix::io::write(&plain, &pending.to_ne_bytes()).expect("room in the counter");
                    rustix::io::write(&semaphore, &pending.to_ne_bytes()).expect("room in the counter");
                }
                assert!(is_semaphore(&semaphore).expect("an answer"), "{pending} pending");
                assert!(!is_semaphore(&plain).expect("an answer"), "{pending} pending");
                assert_eq!(read_at_once(&plain).is_ok(), pending > 0);
            }
        }
    }
}
