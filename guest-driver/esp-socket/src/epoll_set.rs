//! Sets of epoll with connections in them. The kernel does what it does with any descriptor, since a connection's descriptor is readable
//! and writable as the connection is. A thread that waits for such a set also waits for the Ethernet port, and runs the engine itself
//! when a frame came.

use std::{
    os::fd::RawFd,
    ptr,
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::Ordering},
};

use libc::{c_int, epoll_event, sigset_t};

use crate::{
    errno::Errno,
    host::{Host, now},
    plain::Plain,
    spin,
    stream::Stream,
    system,
    table::{self, Entry},
};

/// A set that connections are in.
#[derive(Default)]
pub struct EpollSet {
    hosts: Mutex<Vec<Arc<Host>>>,
}

/// Returns what stands for the Ethernet port in a set; no program has it for a descriptor of its own, but by a chance of 2⁻⁶⁴.
fn port_data() -> u64 {
    static DATA: OnceLock<u64> = OnceLock::new();
    *DATA.get_or_init(crate::random)
}

/// What stands for the descriptor of packets that are some of many.
fn bulk_data() -> u64 {
    !port_data()
}

fn control(set: RawFd, operation: c_int, fd: RawFd, event: Option<&mut epoll_event>) -> Result<(), Errno> {
    let event = event.map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the event lives as long as the call.
    let result = unsafe { libc::syscall(libc::SYS_epoll_ctl, set, operation, fd, event) };
    if result < 0 { Err(Errno::last()) } else { Ok(()) }
}

/// Before a descriptor's place in a set is changed: a connection's is made to show what it is ready for.
pub fn before_control(set: RawFd, operation: c_int, fd: RawFd) {
    if operation == libc::EPOLL_CTL_DEL {
        return;
    }
    if let Some(stream) = table::stream(fd) {
        prepare(set, &stream);
    }
}

/// After a descriptor's place in a set was changed: where it may become a connection, that is remembered.
///
/// # Safety
/// `event` is what the kernel read.
pub unsafe fn after_control(set: RawFd, operation: c_int, fd: RawFd, event: *const epoll_event) {
    let known = match table::get(fd) {
        Some(Entry::Plain(plain)) => plain,
        Some(_) => return,
        None if operation == libc::EPOLL_CTL_ADD && is_unconnected(fd) => {
            let plain = Arc::new(Plain::default());
            table::replace(fd, Some(Entry::Plain(plain.clone())));
            plain
        }
        None => return,
    };
    if operation == libc::EPOLL_CTL_DEL {
        known.take(set);
    } else {
        // SAFETY: the caller's promise; the structure is packed.
        known.put(set, unsafe { event.read_unaligned() });
    }
}

fn is_unconnected(fd: RawFd) -> bool {
    system::option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP)
        && system::option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(0)
        && crate::connect::is_fresh(fd)
}

/// Puts a new connection into the sets in which the descriptor was before.
pub(crate) fn move_in(fd: RawFd, stream: &Arc<Stream>, places: &[(RawFd, epoll_event)]) {
    for (set, event) in places {
        prepare(*set, stream);
        // A set that was closed meanwhile has no place.
        let _ = control(*set, libc::EPOLL_CTL_ADD, fd, Some(&mut { *event }));
    }
}

fn prepare(set: RawFd, stream: &Arc<Stream>) {
    // The kernel refuses nothing of this to a pair that it made.
    let _ = stream.reflect();
    let known = match table::get(set) {
        Some(Entry::Epoll(known)) => known,
        _ => {
            let known = Arc::new(EpollSet::default());
            table::replace(set, Some(Entry::Epoll(known.clone())));
            known
        }
    };
    known.add_port(set, &stream.host);
}

impl EpollSet {
    fn hosts(&self) -> Vec<Arc<Host>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add_port(&self, set: RawFd, host: &Arc<Host>) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.iter().any(|known| Arc::ptr_eq(known, host)) {
            return;
        }
        for (fd, data) in host.frame_fds().zip([port_data(), bulk_data()]) {
            let mut event = epoll_event {
                events: (libc::EPOLLIN | libc::EPOLLEXCLUSIVE) as u32,
                u64: data,
            };
            // Without it, the thread in the background takes the frames.
            let _ = control(set, libc::EPOLL_CTL_ADD, fd, Some(&mut event));
        }
        hosts.push(host.clone());
    }

    /// Waits for events of the set.
    ///
    /// # Safety
    /// `events` has room for `count` of them; `mask` is a mask or null.
    ///
    /// # Errors
    /// As `epoll_pwait(2)`.
    pub unsafe fn wait(
        &self,
        set: RawFd,
        events: *mut epoll_event,
        count: c_int,
        limit_ns: Option<u64>,
        mask: *const sigset_t,
    ) -> Result<c_int, Errno> {
        let hosts = self.hosts();
        let begin = now();
        let first = hosts.first();
        let spin_ns = first.map_or(0, |host| host.spin.next(host.spin_ns()));
        let mut has_slept = spin_ns == 0;
        loop {
            let dues: Vec<_> = hosts.iter().map(|host| host.serve_once()).collect();
            // SAFETY: the caller's promise.
            let ready = unsafe { take(set, &hosts, events, count, Some(0), mask) }?;
            if ready > 0 || ready == 0 && limit_ns == Some(0) {
                return Ok(ready);
            }
            if ready < 0 {
                // A frame has come meanwhile.
                continue;
            }
            let waited = now().nanos_since(begin);
            if limit_ns.is_some_and(|limit| limit <= waited) {
                return Ok(0);
            }
            if !has_slept && look(&hosts, spin_ns.saturating_sub(waited)) {
                first.iter().for_each(|host| host.spin.succeeded());
                continue;
            }
            if !std::mem::replace(&mut has_slept, true) {
                first.iter().for_each(|host| host.spin.failed());
            }
            let left = limit_ns.map(|limit| limit.saturating_sub(now().nanos_since(begin)));
            let sleep_ns = dues.into_iter().chain([left]).flatten().min();
            for host in &hosts {
                host.serving.fetch_add(1, Ordering::SeqCst);
            }
            // SAFETY: the caller's promise.
            let ready = unsafe { take(set, &hosts, events, count, sleep_ns, mask) };
            for host in &hosts {
                host.serving.fetch_sub(1, Ordering::SeqCst);
                host.note_activity();
            }
            match ready? {
                ready @ 1.. => return Ok(ready),
                _ => continue,
            }
        }
    }
}

/// Looks for frames for a while; whether there is one.
fn look(hosts: &[Arc<Host>], spin_ns: u64) -> bool {
    let (begin, mut yielded_ns) = (now(), 0);
    loop {
        if hosts.iter().any(|host| host.has_frame()) {
            return true;
        }
        let looked_ns = now().nanos_since(begin);
        if looked_ns >= spin_ns {
            return false;
        }
        spin::give_way(looked_ns, &mut yielded_ns);
    }
}

/// Takes events from the kernel, without those of Ethernet ports: how many are left, -1 if there were only such.
///
/// # Safety
/// As [`EpollSet::wait`].
unsafe fn take(
    set: RawFd,
    hosts: &[Arc<Host>],
    events: *mut epoll_event,
    count: c_int,
    limit_ns: Option<u64>,
    mask: *const sigset_t,
) -> Result<c_int, Errno> {
    let limit = limit_ns.map(system::time_of);
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the caller's promise.
    let got = unsafe { libc::syscall(libc::SYS_epoll_pwait2, set, events, count, limit, mask, 8_usize) } as c_int;
    if got < 0 {
        return Err(Errno::last());
    }
    let mut kept = 0;
    for at in 0..got as usize {
        // SAFETY: the kernel wrote `got` events; the structure is packed.
        unsafe {
            let event = events.add(at).read_unaligned();
            if { event.u64 } == bulk_data() {
                hosts.iter().for_each(|host| host.note_bulk());
            } else if { event.u64 } != port_data() {
                events.add(kept).write_unaligned(event);
                kept += 1;
            }
        }
    }
    Ok(if kept == 0 && got > 0 { -1 } else { kept as c_int })
}
