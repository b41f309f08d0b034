//! The clock of the library: nanoseconds of the host's monotonic clock, as the engine wants them.

use std::time::Duration;

use ether::Time;
use rustix::time::{ClockId, Timespec, clock_gettime};

#[inline]
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time::from_nanos(now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned())
}

/// Converts a duration to the form in which the kernel takes it.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().cast_signed(),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
