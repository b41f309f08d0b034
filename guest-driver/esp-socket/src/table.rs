//! The table of descriptors: what the library knows of a number of the program's.
//!
//! A number of which nothing is known costs one load. An entry is locked by a bit of its pointer while it is copied, so that `close` on
//! another thread never frees what a call still uses.

use std::{
    hint,
    os::fd::RawFd,
    ptr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicPtr, AtomicUsize, Ordering},
    },
};

use crate::{
    epoll_set::EpollSet, listener::Listener, own_fds::FDS_MAX, passed::Passed, plain::Plain, processes, stream::Stream,
};

/// What is behind a number.
#[derive(Clone)]
pub enum Entry {
    /// A connection over ESP.
    Stream(Arc<Stream>),
    /// A listening TCP socket that the authorities know.
    Listener(Arc<Listener>),
    /// A TCP socket whose place in sets of epoll is remembered, as it may become a connection over ESP.
    Plain(Arc<Plain>),
    /// A set of epoll that connections over ESP are in.
    Epoll(Arc<EpollSet>),
    /// A connection that a keeper serves: the descriptor itself carries the data.
    Passed(Arc<Passed>),
}

const CHUNK: usize = 1024;
type Chunk = [AtomicPtr<Entry>; CHUNK];
static CHUNKS: [AtomicPtr<Chunk>; FDS_MAX / CHUNK] = [const { AtomicPtr::new(ptr::null_mut()) }; FDS_MAX / CHUNK];
/// Numbers are above none of the entries.
static END: AtomicUsize = AtomicUsize::new(0);
/// Chunks are made one at a time.
static GROWTH: Mutex<()> = Mutex::new(());
const LOCKED: usize = 1;

fn slot(fd: RawFd) -> Option<&'static AtomicPtr<Entry>> {
    let at = usize::try_from(fd).ok()?;
    let chunk = CHUNKS.get(at / CHUNK)?.load(Ordering::Acquire);
    // SAFETY: a chunk is never freed once it is in the table.
    Some(unsafe { &(*chunk.as_ref().map(ptr::from_ref)?)[at % CHUNK] })
}

fn slot_or_new(fd: RawFd) -> Option<&'static AtomicPtr<Entry>> {
    let at = usize::try_from(fd).ok()?;
    let place = CHUNKS.get(at / CHUNK)?;
    if place.load(Ordering::Acquire).is_null() {
        let _growth = GROWTH.lock().unwrap_or_else(PoisonError::into_inner);
        if place.load(Ordering::Acquire).is_null() {
            let chunk: Box<Chunk> = Box::new([const { AtomicPtr::new(ptr::null_mut()) }; CHUNK]);
            place.store(Box::into_raw(chunk), Ordering::Release);
        }
    }
    END.fetch_max(at + 1, Ordering::Relaxed);
    slot(fd)
}

/// Takes the lock of a slot and returns its pointer; `None` for an empty slot.
fn lock(slot: &AtomicPtr<Entry>) -> Option<*mut Entry> {
    loop {
        let now = slot.load(Ordering::Acquire);
        if now.is_null() {
            return None;
        }
        if now.addr() & LOCKED == 0
            && slot
                .compare_exchange_weak(now, now.map_addr(|a| a | LOCKED), Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            return Some(now);
        }
        hint::spin_loop();
    }
}

/// Returns what is behind a number.
#[inline]
pub fn get(fd: RawFd) -> Option<Entry> {
    look(fd, Entry::clone)
}

/// Looks at what is behind a number, while it stays there.
#[inline]
fn look<T>(fd: RawFd, at: impl FnOnce(&Entry) -> T) -> Option<T> {
    let slot = slot(fd)?;
    if slot.load(Ordering::Relaxed).is_null() {
        return None;
    }
    let entry = lock(slot)?;
    // SAFETY: the slot is locked, so the entry stays until it is unlocked.
    let seen = at(unsafe { &*entry });
    slot.store(entry, Ordering::Release);
    Some(seen)
}

/// Whether a connection is behind a number.
#[inline]
pub fn has_stream(fd: RawFd) -> bool {
    look(fd, |entry| matches!(entry, Entry::Stream(_))).unwrap_or(false)
}

/// Returns the connection behind a number.
#[inline]
pub fn stream(fd: RawFd) -> Option<Arc<Stream>> {
    match get(fd) {
        Some(Entry::Stream(stream)) if stream.is_settled() => Some(stream),
        // After a fork: the process that uses it first has it.
        Some(Entry::Stream(stream)) => Some(processes::claim(&stream).unwrap_or(stream)),
        _ => None,
    }
}

/// Whether anything is known of the number.
#[inline]
pub fn is_known(fd: RawFd) -> bool {
    slot(fd).is_some_and(|slot| !slot.load(Ordering::Relaxed).is_null())
}

/// Sets what is behind a number, and returns what was.
pub fn replace(fd: RawFd, entry: Option<Entry>) -> Option<Entry> {
    let slot = match &entry {
        Some(_) => slot_or_new(fd)?,
        None => slot(fd)?,
    };
    let new = entry.map_or(ptr::null_mut(), |entry| Box::into_raw(Box::new(entry)));
    loop {
        match lock(slot) {
            Some(old) => {
                slot.store(new, Ordering::Release);
                // SAFETY: it came from a box, and nobody else can reach it any more.
                return Some(*unsafe { Box::from_raw(old) });
            }
            None => {
                if slot
                    .compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
                {
                    return None;
                }
            }
        }
    }
}

/// Returns all numbers of which something is known.
pub fn known() -> Vec<(RawFd, Entry)> {
    pick(|entry| Some(entry.clone()))
}

/// Returns the numbers for which `of` has a value. What it does not copy is closed when the program closes it, not later; it must be quick.
pub fn pick<T>(of: impl Fn(&Entry) -> Option<T>) -> Vec<(RawFd, T)> {
    (0..END.load(Ordering::Relaxed) as RawFd)
        .filter_map(|fd| Some((fd, look(fd, &of)??)))
        .collect()
}

/// Returns a number that is above all that are known.
pub fn end() -> RawFd {
    END.load(Ordering::Relaxed) as RawFd
}
