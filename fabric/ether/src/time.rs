//! Virtual time: one unsigned count of nanoseconds, read from a clock by drivers and never by core crates.

use core::fmt;

/// A point in time, in nanoseconds since an epoch that the driver chooses (start of the daemon, start of a simulation).
///
/// Arithmetic saturates: 2⁶⁴ ns are 584 years, so a saturated value means a fault in the caller, which must not become
/// a time in the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Time(u64);

impl Time {
    /// The epoch.
    pub const ZERO: Self = Self(0);
    /// Later than everything else; "never" where a deadline is asked for.
    pub const MAX: Self = Self(u64::MAX);

    /// The time `ns` nanoseconds after the epoch.
    #[inline]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the epoch.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This time `ns` nanoseconds later.
    #[inline]
    pub const fn plus_nanos(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// Nanoseconds from `earlier` to this time, 0 if `earlier` is later.
    #[inline]
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}
