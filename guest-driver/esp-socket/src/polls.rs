//! `poll` and `select` with connections among the descriptors: what those are ready for is known here, and the kernel is asked for the
//! others.

use std::{cell::Cell, mem, os::fd::RawFd, slice, sync::Arc};

use libc::{c_int, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use crate::{
    errno::Errno,
    host::{Host, now},
    mirror::Readiness,
    own_fds::FDS_MAX,
    spin::{self, Spin},
    stream::Stream,
    system, table,
};

/// Returns the limit of a call in nanoseconds; `None`: for ever.
///
/// # Safety
/// `limit` points to a time or is null.
///
/// # Errors
/// `EINVAL` for what is no time.
pub unsafe fn limit_of(limit: *const timespec) -> Result<Option<u64>, Errno> {
    // SAFETY: the caller's promise.
    unsafe { limit.as_ref() }.map(|limit| system::ns_of(*limit)).transpose()
}

/// Whether a connection is among the descriptors.
///
/// # Safety
/// `fds` points to `count` of them or is null.
pub unsafe fn concerns(fds: *const pollfd, count: nfds_t) -> bool {
    // The kernel refuses more than there can be, before it looks at any.
    if !crate::is_in_use() || fds.is_null() || count > FDS_MAX as nfds_t {
        return false;
    }
    // SAFETY: the caller's promise.
    let fds = unsafe { slice::from_raw_parts(fds, count as usize) };
    fds.iter()
        .any(|one| table::is_known(one.fd) && table::has_stream(one.fd))
}

/// What `poll` says about a connection.
const fn events_of(ready: Readiness, wanted: i16) -> i16 {
    let mut events = 0;
    if ready.readable {
        events |= libc::POLLIN | libc::POLLRDNORM;
    }
    if ready.writable {
        events |= libc::POLLOUT | libc::POLLWRNORM;
    }
    if ready.finished {
        events |= libc::POLLRDHUP;
    }
    events &= wanted;
    if ready.hung_up {
        events |= libc::POLLHUP;
    }
    if ready.failed {
        events |= libc::POLLERR;
    }
    events
}

/// Room for a call's lists, which the thread's next call uses again: programs look thousands of times before something comes.
#[derive(Default)]
struct Lists {
    streams: Vec<(usize, Arc<Stream>)>,
    hosts: Vec<Arc<Host>>,
    /// All descriptors for the kernel, with -1 for connections.
    others: Vec<pollfd>,
}

thread_local! {
    static LISTS: Cell<Lists> = const {
        Cell::new(Lists {
            streams: Vec::new(),
            hosts: Vec::new(),
            others: Vec::new(),
        })
    };
}

impl Lists {
    /// Takes the thread's; new ones where a signal came into a call, or the thread ends.
    fn take() -> Self {
        LISTS.try_with(Cell::take).unwrap_or_default()
    }

    fn put_back(mut self) {
        self.streams.clear();
        self.hosts.clear();
        self.others.clear();
        let _ = LISTS.try_with(|lists| lists.set(self));
    }
}

/// One call: the program's descriptors, apart by kind.
struct Poll<'a> {
    fds: &'a mut [pollfd],
    lists: Lists,
    has_others: bool,
}

impl<'a> Poll<'a> {
    fn new(fds: &'a mut [pollfd]) -> Self {
        let mut lists = Lists::take();
        let mut has_others = false;
        for (at, one) in fds.iter().enumerate() {
            let mut other = *one;
            if table::is_known(one.fd)
                && let Some(stream) = table::stream(one.fd)
            {
                other.fd = -1;
                if !lists.hosts.iter().any(|host| Arc::ptr_eq(host, &stream.host)) {
                    lists.hosts.push(stream.host.clone());
                }
                lists.streams.push((at, stream));
            }
            has_others |= other.fd >= 0;
            lists.others.push(other);
        }
        Self { fds, lists, has_others }
    }

    /// Finds out what is ready now; how many are.
    fn look(&mut self, ask_kernel: bool, mask: *const sigset_t) -> Result<usize, Errno> {
        for one in &mut *self.fds {
            one.revents = 0;
        }
        for host in &self.lists.hosts {
            host.run(|state, _| {
                for (at, stream) in self
                    .lists
                    .streams
                    .iter()
                    .filter(|(_, stream)| Arc::ptr_eq(&stream.host, host))
                {
                    let ready = state.readiness(stream.id);
                    let one = &mut self.fds[*at];
                    if one.events & libc::POLLOUT != 0 && !ready.writable {
                        // Then there is an event when there is room.
                        let _ = state.engine.want_room(stream.id);
                    }
                    one.revents = events_of(ready, one.events);
                }
            });
        }
        if self.has_others && ask_kernel {
            system::poll(&mut self.lists.others, Some(0), mask)?;
            self.take_others();
        }
        Ok(self.fds.iter().filter(|one| one.revents != 0).count())
    }

    fn take_others(&mut self) {
        for (one, other) in self.fds.iter_mut().zip(&mut self.lists.others) {
            if other.fd >= 0 {
                one.revents = other.revents;
            }
            other.revents = 0;
        }
    }

    /// Sleeps until something may be ready.
    fn sleep(&mut self, seen: u64, limit_ns: Option<u64>, mask: *const sigset_t) -> Result<(), Errno> {
        let Some(host) = self.lists.hosts.first().cloned() else {
            return Ok(());
        };
        let of_first = self
            .lists
            .streams
            .iter()
            .filter(|(_, stream)| Arc::ptr_eq(&stream.host, &host));
        let ids: Vec<_> = of_first.map(|(_, stream)| stream.id).collect();
        let mut fds = self.lists.others.clone();
        let others = &self.lists.hosts[1..];
        fds.extend(others.iter().flat_map(|host| host.frame_fds()).map(system::readable));
        let slept = host.sleep(seen, &ids, &mut fds, limit_ns, mask);
        others.iter().for_each(|host| host.note_polled(&fds));
        slept
    }

    fn run(&mut self, limit_ns: Option<u64>, mask: *const sigset_t) -> Result<c_int, Errno> {
        let seen = self.lists.hosts.first().map_or(0, |host| host.changes());
        let ready = self.look(true, mask)?;
        if ready > 0 || limit_ns == Some(0) {
            return Ok(ready as c_int);
        }
        self.wait(seen, limit_ns, mask)
    }

    /// Looks for a while, and sleeps then. `seen`: the changes before a poll that found nothing.
    fn wait(&mut self, mut seen: u64, limit_ns: Option<u64>, mask: *const sigset_t) -> Result<c_int, Errno> {
        let begin = now();
        let first = self.lists.hosts.first().cloned();
        let spin_ns = first.as_ref().map_or(0, |host| host.spin.next(host.spin_ns()));
        let (mut has_slept, mut yielded_ns) = (spin_ns == 0, 0);
        let note = |what: fn(&Spin)| first.iter().for_each(|host| what(&host.spin));
        loop {
            let waited = now().nanos_since(begin);
            if limit_ns.is_some_and(|limit| limit <= waited) {
                return Ok(0);
            }
            let looks = waited < spin_ns;
            if looks {
                spin::give_way(waited, &mut yielded_ns);
            } else {
                if !mem::replace(&mut has_slept, true) {
                    note(Spin::failed);
                }
                let left = limit_ns.map(|limit| limit - waited);
                if let Err(interrupted) = self.sleep(seen, left, mask) {
                    return match self.look(true, mask)? {
                        0 => Err(interrupted),
                        ready => Ok(ready as c_int),
                    };
                }
            }
            seen = first.as_ref().map_or(0, |host| host.changes());
            let mut ready = self.look(!looks, mask)?;
            if ready > 0 && looks {
                ready = self.look(true, mask)?;
            }
            if ready > 0 {
                if !has_slept {
                    note(Spin::succeeded);
                }
                return Ok(ready as c_int);
            }
        }
    }
}

impl Drop for Poll<'_> {
    fn drop(&mut self) {
        mem::take(&mut self.lists).put_back();
    }
}

/// Waits for descriptors.
///
/// # Safety
/// `fds` points to `count` of them; `mask` is a mask or null.
///
/// # Errors
/// As `ppoll(2)`.
pub unsafe fn poll(
    fds: *mut pollfd,
    count: nfds_t,
    limit_ns: Option<u64>,
    mask: *const sigset_t,
) -> Result<c_int, Errno> {
    // SAFETY: the caller's promise.
    let fds = unsafe { slice::from_raw_parts_mut(fds, count as usize) };
    Poll::new(fds).run(limit_ns, mask)
}

/// A set of numbers as `select` has it; the program may have made it longer than the C library does.
fn has(set: *const fd_set, fd: RawFd) -> bool {
    if set.is_null() {
        return false;
    }
    // SAFETY: the caller of `select` promises as many bits as its count says.
    let word = unsafe { set.cast::<u64>().add(fd as usize / 64).read_unaligned() };
    word & 1 << (fd % 64) != 0
}

fn put(set: *mut fd_set, fd: RawFd, value: bool) {
    if set.is_null() {
        return;
    }
    // SAFETY: as in `has`.
    unsafe {
        let word = set.cast::<u64>().add(fd as usize / 64);
        let bit = 1 << (fd % 64);
        let now = word.read_unaligned();
        word.write_unaligned(if value { now | bit } else { now & !bit });
    }
}

/// Whether a connection is in the sets.
///
/// # Safety
/// Each set has `count` bits or is null.
pub unsafe fn select_concerns(count: c_int, read: *const fd_set, write: *const fd_set, other: *const fd_set) -> bool {
    crate::is_in_use()
        && (0..count).any(|fd| {
            table::is_known(fd) && (has(read, fd) || has(write, fd) || has(other, fd)) && table::has_stream(fd)
        })
}

/// What `select` calls ready, by set.
const READY: [i16; 3] = [
    libc::POLLIN | libc::POLLRDNORM | libc::POLLHUP | libc::POLLERR,
    libc::POLLOUT | libc::POLLWRNORM | libc::POLLERR,
    libc::POLLPRI,
];
const ASKED: [i16; 3] = [
    libc::POLLIN | libc::POLLRDNORM,
    libc::POLLOUT | libc::POLLWRNORM,
    libc::POLLPRI,
];

/// Waits for descriptors in sets.
///
/// # Safety
/// Each set has `count` bits or is null; `mask` is a mask or null.
///
/// # Errors
/// As `pselect(2)`.
pub unsafe fn pselect(
    count: c_int,
    sets: [*mut fd_set; 3],
    limit_ns: Option<u64>,
    mask: *const sigset_t,
) -> Result<c_int, Errno> {
    let mut fds = Vec::new();
    for fd in 0..count {
        let events = (0..3)
            .filter(|at| has(sets[*at], fd))
            .fold(0, |all, at| all | ASKED[at]);
        if events != 0 {
            fds.push(pollfd { fd, events, revents: 0 });
        }
    }
    Poll::new(&mut fds).run(limit_ns, mask)?;
    if fds.iter().any(|one| one.revents & libc::POLLNVAL != 0) {
        return Err(Errno(libc::EBADF));
    }
    let mut ready = 0;
    for one in &fds {
        for at in 0..3 {
            let is_ready = has(sets[at], one.fd) && one.revents & READY[at] != 0;
            put(sets[at], one.fd, is_ready);
            ready += c_int::from(is_ready);
        }
    }
    Ok(ready)
}

/// Waits for descriptors in sets, and leaves in `limit` what is left of it.
///
/// # Safety
/// Each set has `count` bits or is null; `limit` is a time or null.
///
/// # Errors
/// As `select(2)`.
pub unsafe fn select(count: c_int, sets: [*mut fd_set; 3], limit: *mut timeval) -> Result<c_int, Errno> {
    // SAFETY: the caller's promise.
    let limit = unsafe { limit.as_mut() };
    let limit_ns = match &limit {
        Some(limit) => Some(
            u64::try_from(limit.tv_sec).map_err(|_| Errno(libc::EINVAL))? * 1_000_000_000
                + u64::try_from(limit.tv_usec).map_err(|_| Errno(libc::EINVAL))? * 1000,
        ),
        None => None,
    };
    let begin = now();
    // SAFETY: the caller's promise.
    let result = unsafe { pselect(count, sets, limit_ns, std::ptr::null()) };
    if let (Some(limit), Some(ns)) = (limit, limit_ns) {
        let left = ns.saturating_sub(now().nanos_since(begin));
        limit.tv_sec = (left / 1_000_000_000) as i64;
        limit.tv_usec = (left % 1_000_000_000 / 1000) as i64;
    }
    result
}
