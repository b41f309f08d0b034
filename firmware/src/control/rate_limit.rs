//! How often a card does something for its guest: a token bucket.

use ether::Time;

/// A token bucket of `PER_S` tokens per second, of which `BURST` may be taken together after a pause. It counts nanoseconds of credit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimit<const PER_S: u64, const BURST: u64> {
    credit_ns: u64,
    since: Time,
}

impl<const PER_S: u64, const BURST: u64> RateLimit<PER_S, BURST> {
    const NS_PER_TOKEN: u64 = 1_000_000_000 / PER_S;
    const CREDIT_NS_MAX: u64 = BURST * Self::NS_PER_TOKEN;

    pub(crate) const fn new() -> Self {
        Self {
            credit_ns: Self::CREDIT_NS_MAX,
            since: Time::ZERO,
        }
    }

    /// Takes a token; false if there is none.
    pub(crate) fn take(&mut self, now: Time) -> bool {
        let earned_ns = now.nanos_since(self.since);
        self.since = self.since.max(now);
        self.credit_ns = self.credit_ns.saturating_add(earned_ns).min(Self::CREDIT_NS_MAX);
        let left = self.credit_ns.checked_sub(Self::NS_PER_TOKEN);
        self.credit_ns = left.unwrap_or(self.credit_ns);
        left.is_some()
    }
}
