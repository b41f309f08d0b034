//! The clock of the library: nanoseconds of the host's monotonic clock, as the engine wants them.

use ether::Time;
use rustix::time::{ClockId, clock_gettime};

#[inline]
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time::from_nanos(now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned())
}
