//! Rights that a program gives up. Servers that root starts have workers that become an ordinary user, or lock themselves in a folder,
//! before they accept anything. None of them reaches an authority from there, so each takes what it needs of it while it can. What can
//! no longer be served by ESP is left to TCP, since a connection that has been announced cannot go back there.

use std::{
    ptr,
    sync::atomic::{AtomicBool, AtomicPtr, Ordering},
};

use crate::{
    links, listener,
    table::{self, Entry},
};

/// Whether a process that has the listeners, too, cannot reach an authority any more; in memory that forked children share.
static IS_CUT_OFF: AtomicPtr<AtomicBool> = AtomicPtr::new(ptr::null_mut());

/// Makes the memory that this process shares with children of its own, once it has a listener.
pub(crate) fn share() {
    if !IS_CUT_OFF.load(Ordering::Relaxed).is_null() {
        return;
    }
    let (access, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_SHARED | libc::MAP_ANONYMOUS,
    );
    // SAFETY: makes new memory, which stays.
    let memory = unsafe { libc::mmap(ptr::null_mut(), size_of::<AtomicBool>(), access, flags, -1, 0) };
    if memory != libc::MAP_FAILED {
        // Without it, nothing is known of others. New memory is zero, which is `false`.
        IS_CUT_OFF.store(memory.cast(), Ordering::Relaxed);
    }
}

fn is_cut_off() -> Option<&'static AtomicBool> {
    // SAFETY: null, or memory of `share`, which stays.
    unsafe { IS_CUT_OFF.load(Ordering::Relaxed).as_ref() }
}

/// Whether the connections of this process's listeners may come to another one that cannot take them up.
pub(crate) fn are_missing() -> bool {
    is_cut_off().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Before this process gives up rights: it gets wire ports for the connections that it has, or may accept.
pub fn before_giving_up() {
    let needs_ports = |entry: &Entry| matches!(entry, Entry::Stream(_) | Entry::Listener(_)).then_some(());
    if table::pick(needs_ports).is_empty() {
        return;
    }
    for link in links::all() {
        // Without ports, the process is as one for which no ports are left.
        let _ = link.host();
    }
}

/// After this process gave up rights: others are told if it cannot come back to an authority.
pub fn after_giving_up() {
    if let Some(flag) = is_cut_off()
        && links::present().iter().any(|link| !link.can_be_reached())
    {
        flag.store(true, Ordering::Relaxed);
    }
}

/// Before a fork: listeners are left to TCP if the child could not take up their connections.
pub(crate) fn before_fork() {
    if !are_missing() || links::present().iter().all(|link| link.can_be_reached()) {
        return;
    }
    for (fd, ()) in table::pick(|entry| matches!(entry, Entry::Listener(_)).then_some(())) {
        listener::shut_down(fd);
    }
}
