//! The frequency of the host's time-stamp counter, which an emulated guest's counter shows.
//!
//! A guest that measures it at boot against an emulated timer may be wrong by a factor when the host is busy, and then
//! every time it shows is. So the guest gets the frequency from here.

use std::{
    arch::x86_64::_rdtsc,
    fs,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

/// Duration of a measurement that is exact to a few parts in a hundred thousand.
const MEASURED_FOR: Duration = Duration::from_millis(50);

/// Returns the frequency in kHz; `None` if this host's counter is not constant.
pub fn host_tsc_khz() -> Option<u64> {
    static KHZ: OnceLock<Option<u64>> = OnceLock::new();
    *KHZ.get_or_init(|| {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok()?;
        let flags = cpuinfo.lines().find(|line| line.starts_with("flags"))?;
        let even = flags.split_whitespace().any(|flag| flag == "constant_tsc");
        even.then(measure)
    })
}

fn measure() -> u64 {
    let (start, first) = instant();
    thread::sleep(MEASURED_FOR);
    let (end, last) = instant();
    let ns = (end - start).as_nanos().max(1);
    u64::try_from(u128::from(last - first) * 1_000_000 / ns).unwrap_or(u64::MAX)
}

/// Reads clock and counter simultaneously: of several attempts, it takes the one with the least time between two
/// readings of the clock.
fn instant() -> (Instant, u64) {
    let look = || {
        let before = Instant::now();
        // SAFETY: every x86-64 processor has the instruction; it only reads a counter.
        let counter = unsafe { _rdtsc() };
        (before.elapsed(), (before, counter))
    };
    let (_, best) = (0..16)
        .map(|_| look())
        .min_by_key(|(took, _)| *took)
        .unwrap_or_else(look);
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_measurements_agree() {
        let (a, b) = (measure(), measure());
        assert!(a.abs_diff(b) < a / 1000, "{a} and {b} kHz");
    }
}
