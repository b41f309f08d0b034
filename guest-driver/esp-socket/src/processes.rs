//! Processes: what happens to connections when the program forks, and when it ends.
//!
//! After a fork both processes have each connection. It is *frozen* in both until one of them uses it: that one has it from then on. The
//! child takes it up in an engine of its own. If it is the parent's in all likelihood, because it waits for it in a set of epoll or has
//! not closed it for a while, the parent has it.

use std::{
    cell::RefCell,
    collections::HashSet,
    ptr,
    sync::{
        Arc, MutexGuard, Once,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    counters::{self, Count},
    finisher,
    host::{Host, now},
    links, rights,
    state::State,
    stream::Stream,
    table::{self, Entry},
};

/// A connection that neither process has used or closed after this time is the parent's.
const UNDECIDED_LIMIT: Duration = Duration::from_millis(300);
/// So long the end of a process waits for its last bytes to be acknowledged, in nanoseconds. Then they are left to a finisher.
const FINISH_WAIT_NS: u64 = 100_000_000;
/// So long it waits where there can be no finisher, in nanoseconds.
const FINISH_LIMIT_NS: u64 = 2_000_000_000;

/// How often this process's ancestors forked with the library in use.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static IS_FINISHED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static STOPPED: RefCell<Vec<StoppedHost>> = const { RefCell::new(Vec::new()) };
}

/// A host whose engine nobody runs, for the time of a fork.
struct StoppedHost {
    // Unlocked before the host is given up.
    _guard: MutexGuard<'static, State>,
    _host: Arc<Host>,
}

impl StoppedHost {
    fn new(host: Arc<Host>) -> Self {
        let guard = host.lock();
        // SAFETY: the host lives as long as the guard, which this value drops first.
        let guard = unsafe { std::mem::transmute::<MutexGuard<'_, State>, MutexGuard<'static, State>>(guard) };
        Self {
            _guard: guard,
            _host: host,
        }
    }
}

/// Returns a number that a forked child does not share with its parent.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Who has a connection that was there when the process forked; in memory that both have.
#[repr(C)]
pub(crate) struct Shared {
    /// The number of the process that has it; 0 while that is open.
    owner: AtomicU32,
    /// Processes that have not closed it.
    holders: AtomicU32,
}

/// Makes memory that is shared with forked children.
fn new_shared(count: usize) -> *mut Shared {
    let len = (count * size_of::<Shared>()).next_multiple_of(4096);
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: makes new memory, which stays.
    let memory = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if memory == libc::MAP_FAILED {
        ptr::null_mut()
    } else {
        memory.cast()
    }
}

/// Returns connections of the table, each once.
fn streams(is_wanted: impl Fn(&Stream) -> bool) -> Vec<Arc<Stream>> {
    let all = table::pick(|entry| match entry {
        Entry::Stream(stream) if is_wanted(stream) => Some(stream.clone()),
        _ => None,
    });
    let mut seen = HashSet::new();
    let streams = all.into_iter().map(|(_, stream)| stream);
    streams.filter(|stream| seen.insert(Arc::as_ptr(stream))).collect()
}

/// Prepares a fork: nothing of the library is in the middle of a change meanwhile.
pub fn before_fork() {
    rights::before_fork();
    let streams = streams(|_| true);
    let undecided: Vec<_> = streams
        .iter()
        .filter(|stream| stream.is_own() && stream.frozen().is_none())
        .collect();
    let memory = if undecided.is_empty() {
        ptr::null_mut()
    } else {
        new_shared(undecided.len())
    };
    if !memory.is_null() {
        for (at, stream) in undecided.iter().enumerate() {
            // SAFETY: the memory has room for all of them.
            let shared = unsafe { memory.add(at) };
            // SAFETY: as above; new memory is zero.
            unsafe { (*shared).holders.store(1, Ordering::Relaxed) };
            stream.set_frozen(shared);
            if stream.is_in_a_set() {
                // SAFETY: as above.
                unsafe { (*shared).owner.store(std::process::id(), Ordering::Relaxed) };
            } else {
                stream.host.await_settled(stream.id);
                stream.host.run(|state, now| state.engine.freeze(stream.id, now).ok());
            }
        }
    }
    for stream in &streams {
        if let Some(shared) = stream.frozen() {
            shared.holders.fetch_add(1, Ordering::Relaxed);
        }
    }
    let stopped = links::hosts().into_iter().map(StoppedHost::new).collect();
    STOPPED.with_borrow_mut(|all| *all = stopped);
}

/// Ends what [`before_fork`] began, in both processes. `child`: what `fork` returned.
pub fn after_fork(child: i32) {
    STOPPED.with_borrow_mut(Vec::clear);
    if child == 0 {
        GENERATION.fetch_add(1, Ordering::Relaxed);
        counters::forget();
        links::forget();
        return;
    }
    let streams = streams(|stream| stream.frozen().is_some());
    for stream in &streams {
        if child < 0
            && let Some(shared) = stream.frozen()
        {
            shared.holders.fetch_sub(1, Ordering::Relaxed);
        }
    }
    if !streams.is_empty() {
        decide_later();
    }
}

/// Makes connections that nobody has used after a while the parent's.
fn decide_later() {
    let decide = || {
        thread::sleep(UNDECIDED_LIMIT);
        for stream in streams(|stream| stream.frozen().is_some() && stream.is_own()) {
            claim(&stream);
        }
    };
    let start = || {
        thread::Builder::new()
            .name("esp-fork".to_owned())
            .stack_size(256 << 10)
            .spawn(decide)
    };
    // Without the thread, they wait for the first call.
    let _ = weft_authority::without_signals(start);
}

/// Makes a connection this process's if no other one has it; `None`: another one has it.
pub(crate) fn claim(stream: &Arc<Stream>) -> Option<Arc<Stream>> {
    let me = std::process::id();
    if let Some(shared) = stream.frozen() {
        let before = shared
            .owner
            .compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire);
        if before.is_err_and(|owner| owner != me) {
            stream.lose();
            return None;
        }
    } else if !stream.is_own() {
        return None;
    }
    if stream.is_own() {
        stream.host.run(|state, now| state.engine.thaw(stream.id, now).ok());
        stream.set_frozen(ptr::null_mut());
        return Some(stream.clone());
    }
    adopt(stream)
}

/// Takes up a connection of the parent in this process's own engine.
fn adopt(stream: &Arc<Stream>) -> Option<Arc<Stream>> {
    let handover = stream.host.detach_copy(stream.id)?;
    let link = links::link(&stream.host.interface.name)?;
    let host = link.host().ok()?;
    let id = host.attach(&handover)?;
    stream.ends().note(&host, id);
    let adopted = Arc::new(stream.adopted_by(host, id)?);
    for (fd, entry) in table::known() {
        if matches!(&entry, Entry::Stream(known) if Arc::ptr_eq(known, stream)) {
            table::replace(fd, Some(Entry::Stream(adopted.clone())));
        }
    }
    stream.is_passed.store(true, Ordering::Relaxed);
    counters::count(Count::Adoptions);
    Some(adopted)
}

/// A process closes a connection that others have, too. Returns whether it is this one's to close.
pub(crate) fn leave(stream: &Stream) -> bool {
    let Some(shared) = stream.frozen() else {
        return stream.is_own();
    };
    let left = shared.holders.fetch_sub(1, Ordering::AcqRel) - 1;
    let me = std::process::id();
    let owner = shared.owner.load(Ordering::Acquire);
    if owner == me {
        return stream.is_own();
    }
    if owner == 0
        && left == 0
        && shared
            .owner
            .compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    {
        // The last one: the peer is told, if this process can still do so.
        return stream.is_own();
    }
    if stream.is_own() {
        stream.host.run(|state, now| {
            state.connections.remove(&stream.id);
            state.engine.forget(stream.id, None, now).ok()
        });
    }
    false
}

/// Has [`finish`] called when the process ends.
pub(crate) fn at_exit() {
    static ONCE: Once = Once::new();
    extern "C" fn end() {
        finish();
    }
    ONCE.call_once(|| {
        // SAFETY: the function lives as long as the program.
        unsafe { libc::atexit(end) };
    });
}

/// Sees to it that what was sent reaches the peers before this process ends.
pub fn finish() {
    if IS_FINISHED.swap(true, Ordering::Relaxed) {
        return;
    }
    if crate::is_in_use() {
        deliver();
    }
    if Count::ALL.iter().any(|what| counters::get(*what) > 0) {
        counters::report();
    }
}

fn deliver() {
    let fds = table::pick(|entry| matches!(entry, Entry::Stream(_)).then_some(()));
    for (fd, ()) in fds {
        drop(table::replace(fd, None));
    }
    for host in links::hosts() {
        if host.generation == generation() {
            let begin = now();
            host.deliver(begin.plus_nanos(FINISH_WAIT_NS));
            finisher::leave_to_one(&host);
            host.deliver(begin.plus_nanos(FINISH_LIMIT_NS));
        }
    }
}

/// The place of a connection for what is shared after a fork.
pub(crate) type Frozen = AtomicPtr<Shared>;
