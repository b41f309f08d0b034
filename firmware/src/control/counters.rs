//! What became of the control frames that a guest sent to its card.

use super::RefusalCode;

/// What became of control frames that the guest sent. Every frame is counted once, in `served`, in one of `refused`, or in
/// one of the `dropped_…`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ControlCounters {
    /// Requests done and answered.
    pub served: u64,
    /// Requests answered with a refusal, by [`RefusalCode`]; index = code − 1.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub refused: [u64; RefusalCode::COUNT],
    /// Frames that are not requests to the card: another destination, a reply, too short for addresses.
    pub dropped_not_request: u64,
    /// Requests from an address that cannot be answered: a group address, zero, or the card's own.
    pub dropped_source: u64,
    /// Requests above the rate limit; they were not done.
    pub dropped_rate: u64,
}

impl ControlCounters {
    /// Requests refused with this code.
    pub const fn refused_for(&self, code: RefusalCode) -> u64 {
        self.refused[code as usize - 1]
    }

    /// All control frames.
    pub fn total(&self) -> u64 {
        self.served
            + self.refused.iter().sum::<u64>()
            + self.dropped_not_request
            + self.dropped_source
            + self.dropped_rate
    }
}
