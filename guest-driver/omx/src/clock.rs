//! The time as the engine wants it: nanoseconds of the host's monotonic clock.

use ether::Time;
use rustix::time::{ClockId, clock_gettime};

#[inline]
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time::from_nanos(now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned())
}
