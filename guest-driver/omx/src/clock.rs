//! The time as the engine wants it: nanoseconds since the process first asked.

use std::{sync::OnceLock, time::Instant};

use ether::Time;

static BEGIN: OnceLock<Instant> = OnceLock::new();

fn begin() -> Instant {
    *BEGIN.get_or_init(Instant::now)
}

#[inline]
pub(crate) fn now() -> Time {
    Time::from_nanos(begin().elapsed().as_nanos() as u64)
}
