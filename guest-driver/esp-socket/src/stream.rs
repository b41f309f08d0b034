//! A connection over ESP behind a descriptor of the program.

use std::{
    os::fd::{AsRawFd, RawFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use esp::ConnectionId;
use ether::Time;

use crate::{
    address::RawAddress,
    errno::Errno,
    host::{Host, now},
    mirror::{Mirror, Pair},
    own_fds::OwnFd,
    processes::{self, Frozen, Shared},
    report::Ends,
    signals,
    spin::{self, Spin},
    state::State,
    system,
};

/// A connection. Its last copy closes it, as the last copy of a descriptor does: a call that is under way on another thread keeps it.
pub struct Stream {
    pub(crate) host: Arc<Host>,
    pub(crate) id: ConnectionId,
    /// The program's descriptor is an end of it.
    pub(crate) pair: Arc<Pair>,
    /// The TCP socket that the program made, which keeps its options.
    pub(crate) plain: OwnFd,
    /// Own address and the peer's.
    pub(crate) names: (RawAddress, RawAddress),
    /// The number of the program's end of the pair, as `fstat` says it.
    pub(crate) socket: u64,
    pub(crate) nonblocking: AtomicBool,
    /// `SO_RCVTIMEO` in nanoseconds, 0 for none.
    pub(crate) receive_limit_ns: AtomicU64,
    /// `SO_SNDTIMEO` in nanoseconds, 0 for none.
    pub(crate) send_limit_ns: AtomicU64,
    /// The program was told that the connection is being made; its next `connect` says that it is.
    pub(crate) is_announced: AtomicBool,
    /// It was given to another process.
    pub(crate) is_passed: AtomicBool,
    /// Who has it, while that may be another process.
    pub(crate) frozen: Frozen,
    pub(crate) spin: Spin,
}

impl Stream {
    /// Returns what tools call it.
    pub(crate) fn ends(&self) -> Ends {
        Ends {
            own: self.names.0.ip(),
            peer: self.names.1.ip(),
            socket: self.socket,
        }
    }

    /// Whether its engine is this process's.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.host.generation == processes::generation()
    }

    /// Whether this process uses it without a question to others.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.is_own() && self.frozen.load(Ordering::Relaxed).is_null()
    }

    pub(crate) fn frozen(&self) -> Option<&Shared> {
        let shared = self.frozen.load(Ordering::Acquire);
        // SAFETY: null, or memory that stays.
        unsafe { shared.as_ref() }
    }

    pub(crate) fn set_frozen(&self, shared: *mut Shared) {
        self.frozen.store(shared, Ordering::Release);
    }

    /// Whether it is in a set of epoll.
    pub(crate) fn is_in_a_set(&self) -> bool {
        self.host.lock().connection(self.id).mirror.is_some()
    }

    /// Another process has it: nothing can be done with it here any more.
    pub(crate) fn lose(&self) {
        if self.is_own() && !self.is_passed.swap(true, Ordering::Relaxed) {
            self.host.run(|state, now| {
                state.connection(self.id).is_ended = true;
                state.engine.forget(self.id, None, now).ok()
            });
        }
    }

    /// Returns the same connection in another engine.
    pub(crate) fn adopted_by(&self, host: Arc<Host>, id: ConnectionId) -> Option<Self> {
        let copy = |flag: &AtomicBool| AtomicBool::new(flag.load(Ordering::Relaxed));
        let copy_ns = |ns: &AtomicU64| AtomicU64::new(ns.load(Ordering::Relaxed));
        Some(Self {
            host,
            id,
            pair: self.pair.clone(),
            plain: OwnFd::copy_of(self.plain.as_raw_fd())?,
            names: self.names,
            socket: self.socket,
            nonblocking: copy(&self.nonblocking),
            receive_limit_ns: copy_ns(&self.receive_limit_ns),
            send_limit_ns: copy_ns(&self.send_limit_ns),
            is_announced: copy(&self.is_announced),
            is_passed: AtomicBool::new(false),
            frozen: Frozen::default(),
            spin: Spin::default(),
        })
    }

    /// Takes the options that matter here from the TCP socket.
    pub(crate) fn take_options(&self) {
        for (option, limit) in [
            (libc::SO_RCVTIMEO, &self.receive_limit_ns),
            (libc::SO_SNDTIMEO, &self.send_limit_ns),
        ] {
            let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
            let mut len = size_of::<libc::timeval>() as libc::socklen_t;
            let (plain, value) = (self.plain.as_raw_fd(), &raw mut time);
            // SAFETY: pointer and length describe `time`.
            unsafe {
                libc::syscall(
                    libc::SYS_getsockopt,
                    plain,
                    libc::SOL_SOCKET,
                    option,
                    value,
                    &raw mut len,
                )
            };
            limit.store(crate::options::ns_of(time), Ordering::Relaxed);
        }
    }

    /// Runs a part of a call until it has a result: at once, or when something happened.
    ///
    /// # Errors
    /// `EAGAIN` where the call must not wait, or waited long enough; `EINTR`; `EBADF` where another process has the connection; those of
    /// `attempt`.
    #[inline]
    pub(crate) fn until<T>(
        &self,
        waits: bool,
        limit_ns: u64,
        mut attempt: impl FnMut(&mut State, Time) -> Option<Result<T, Errno>>,
    ) -> Result<T, Errno> {
        if let Some(result) = self.host.run(&mut attempt) {
            return result;
        }
        if !waits {
            // Nothing will ever come where another process has the connection.
            return Err(Errno(if self.is_settled() { libc::EAGAIN } else { libc::EBADF }));
        }
        self.wait(limit_ns, attempt)
    }

    fn wait<T>(
        &self,
        limit_ns: u64,
        mut attempt: impl FnMut(&mut State, Time) -> Option<Result<T, Errno>>,
    ) -> Result<T, Errno> {
        let begin = now();
        let deadline = (limit_ns > 0).then(|| begin.plus_nanos(limit_ns));
        let spin_ns = self.spin.next(self.host.spin_ns());
        let (mut has_slept, mut yielded_ns) = (spin_ns == 0, 0);
        loop {
            let seen = self.host.changes();
            if let Some(result) = self.host.run(&mut attempt) {
                if !has_slept {
                    self.spin.succeeded();
                }
                return result;
            }
            if !self.is_settled() {
                // Another process took it meanwhile.
                return Err(Errno(libc::EBADF));
            }
            let time = now();
            if deadline.is_some_and(|deadline| deadline <= time) {
                return Err(Errno(libc::EAGAIN));
            }
            if time.nanos_since(begin) < spin_ns {
                spin::give_way(time.nanos_since(begin), &mut yielded_ns);
                continue;
            }
            if !std::mem::replace(&mut has_slept, true) {
                self.spin.failed();
            }
            let left = deadline.map(|deadline| deadline.nanos_since(time));
            if let Err(interrupted) = self
                .host
                .sleep(seen, &[self.id], &mut Vec::new(), left, std::ptr::null())
            {
                if let Some(result) = self.host.run(&mut attempt) {
                    return result;
                }
                if deadline.is_some() || !signals::restart_calls() {
                    return Err(interrupted);
                }
            }
        }
    }

    /// Whether a call with these flags waits.
    #[inline]
    pub(crate) fn waits(&self, flags: i32) -> bool {
        flags & libc::MSG_DONTWAIT == 0 && !self.nonblocking.load(Ordering::Relaxed)
    }

    /// Has the kernel know from now on what the connection is ready for.
    pub(crate) fn reflect(&self) -> Result<(), Errno> {
        let mut state = self.host.lock();
        if state.connection(self.id).mirror.is_none() {
            let mirror = Mirror::new(self.pair.clone())?;
            state.connection(self.id).mirror = Some(mirror);
        }
        state.show(self.id, false);
        Ok(())
    }

    /// Seconds that `close` waits for the peer, if the program set that.
    fn linger(&self) -> Option<u64> {
        let mut linger = libc::linger {
            l_onoff: 0,
            l_linger: 0,
        };
        let mut len = size_of::<libc::linger>() as libc::socklen_t;
        let plain = self.plain.as_raw_fd();
        let value = &raw mut linger;
        // SAFETY: pointer and length describe `linger`.
        unsafe {
            libc::syscall(
                libc::SYS_getsockopt,
                plain,
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                value,
                &raw mut len,
            )
        };
        (linger.l_onoff != 0).then(|| u64::try_from(linger.l_linger).unwrap_or(0))
    }

    /// Copies the flags that a descriptor has from the TCP socket's.
    pub(crate) fn take_flags(&self, fd: RawFd) {
        if let Ok(flags) = system::control(self.plain.as_raw_fd(), libc::F_GETFL, 0)
            && flags as i32 & libc::O_NONBLOCK != 0
        {
            let _ = system::control(fd, libc::F_SETFL, flags & (libc::O_NONBLOCK as usize));
            self.nonblocking.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.is_passed.load(Ordering::Relaxed) || !processes::leave(self) {
            return;
        }
        let id = self.id;
        let linger = self.linger();
        if let Some(seconds @ 1..) = linger {
            self.host.run(|state, now| state.engine.shutdown_write(id, now).ok());
            let delivered = |state: &mut State, _: Time| {
                let info = state.engine.info(id);
                let waits = info.is_ok_and(|info| info.unsent + info.unacknowledged > 0);
                (!waits).then_some(Ok(()))
            };
            // A limit that is over is no error of `close`.
            let _ = self.until(true, seconds * 1_000_000_000, delivered);
        }
        self.host.run(|state, now| state.close(id, linger == Some(0), now));
    }
}
