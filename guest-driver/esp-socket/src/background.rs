//! The thread that serves an engine while no call does: it takes frames, runs timers, and shows the kernel what connections are ready
//! for.
//!
//! While calls are made in short intervals it only looks from time to time whether they still are. It costs the calls nothing then.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    thread,
};

use crate::{host::Host, processes, report::Reporter, system};

/// The first interval in which the thread looks whether calls are made, in nanoseconds: half of the shortest retransmission timer.
/// Each look at which none were made doubles it.
const LOOK_NS: u64 = 500_000;
/// While it finds each time that calls were made, the interval is doubled so often.
const BUSY_DOUBLINGS_MAX: u32 = 1;
/// Looks at which no call was made before the thread serves the engine: programs that make calls every few milliseconds are not
/// disturbed, though a peer may send something again meanwhile.
const LOOKS_MIN: u32 = 3;
/// The interval is doubled so often at most. A timer that a call set meanwhile runs off that much later.
const DOUBLINGS_MAX: u32 = 4;
/// After so many looks, a second, the thread sleeps until the next call wakes it.
const LOOKS_MAX: u32 = 128;
const STACK_LEN: usize = 256 << 10;
/// Its own descriptor, and those of a port.
const FDS_MAX: usize = 3;

/// Starts the thread of a host. It ends with the host.
pub(crate) fn start(host: &Arc<Host>) -> std::io::Result<()> {
    let host = Arc::downgrade(host);
    let start = move || {
        thread::Builder::new()
            .name("esp".to_owned())
            .stack_size(STACK_LEN)
            .spawn(move || serve(&host))
    };
    weft_authority::without_signals(start).map(drop)
}

fn serve(host: &Weak<Host>) {
    let (mut seen, mut looks, mut busy_looks) = (u64::MAX, 0_u32, 0_u32);
    let mut reporter = Reporter::default();
    while let Some(host) = host.upgrade() {
        if host.generation != processes::generation() {
            return;
        }
        let activity = host.activity.load(Ordering::SeqCst);
        if activity != seen {
            (seen, looks) = (activity, 0);
            reporter.turn(&host);
            rest(&host, Some(LOOK_NS << busy_looks.min(BUSY_DOUBLINGS_MAX)), false);
            busy_looks = busy_looks.saturating_add(1);
            continue;
        }
        busy_looks = 0;
        looks += 1;
        let serves = looks >= LOOKS_MIN && host.serving.load(Ordering::SeqCst) == 0;
        let mut limit = Some(LOOK_NS << looks.saturating_sub(1).min(DOUBLINGS_MAX));
        if looks > LOOKS_MAX {
            looks = LOOKS_MAX;
            limit = None;
            host.resting.store(true, Ordering::SeqCst);
            if host.activity.load(Ordering::SeqCst) != seen {
                host.resting.store(false, Ordering::SeqCst);
                continue;
            }
        }
        let due = if serves { host.serve_once() } else { None };
        let report = reporter.turn(&host);
        rest(&host, [due, limit, report].into_iter().flatten().min(), serves);
        host.resting.store(false, Ordering::SeqCst);
    }
}

/// Sleeps until it is woken or, if `serves`, a frame has come.
fn rest(host: &Host, limit_ns: Option<u64>, serves: bool) {
    let mut fds = [system::readable(-1); FDS_MAX];
    let mut count = 0;
    let of_frames = host.frame_fds().filter(|_| serves);
    for (place, fd) in fds.iter_mut().zip([host.background.fd()].into_iter().chain(of_frames)) {
        *place = system::readable(fd);
        count += 1;
    }
    // The thread takes no signals, and an error would only mean that it looks once more.
    let _ = system::poll(&mut fds[..count], limit_ns, std::ptr::null());
    host.note_polled(&fds[..count]);
    host.background.reset();
}
