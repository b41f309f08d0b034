//! The clock of a node.

use ether::Time;
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the clock that all nodes of this machine go by.
pub fn now_ns() -> u64 {
    now().as_nanos()
}

/// The system's monotonic time: the same for all processes of a machine.
#[inline]
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
