//! The model of the card's DMA engines: how long a packet takes into host memory.
//!
//! No byte is moved here; only the time at which a transfer completes is worked out, with integers and remainders.

use core::fmt;

use ether::Time;

/// The greatest number of DMA engines of a card. The engines' last completion times are kept in a fixed array; cards of
/// the papers' kind have between one and four.
pub const DMA_PARALLELISM_MAX: u32 = 16;
/// The longest set-up time: beyond a second a model of a DMA makes no sense, and a slip of units is likely.
pub const DMA_SETUP_NS_MAX: u64 = 1_000_000_000;
/// The lowest rate other than 0 (unlimited), so that the largest frame takes seconds and not years.
pub const DMA_RATE_BPS_MIN: u64 = 1_000_000;

weft_settings::settings! {
    /// How the card's DMA behaves.
    ///
    /// A transfer takes an engine for `setup_ns`, then the bus (shared by all engines, first come first served) for the
    /// length of the frame at `rate_bps`. Up to `parallelism` transfers are in flight at once. Completions are in order of
    /// arrival. [`DmaModel::ZERO`], the default, models nothing: a transfer completes at the first poll after it was
    /// submitted, so frames that are taken in one batch have all arrived before the first of them completes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
    pub struct DmaModel, changed by struct DmaChange {
        /// Time from submission to the first byte on the bus, in nanoseconds; at most [`DMA_SETUP_NS_MAX`].
        pub setup_ns: u64,
        /// Rate of the bus in bits per second; 0 = unlimited, otherwise at least [`DMA_RATE_BPS_MIN`].
        pub rate_bps: u64,
        /// Number of engines, 1 … [`DMA_PARALLELISM_MAX`].
        pub parallelism: u32,
    }
}

impl DmaModel {
    /// No modelled time.
    pub const ZERO: Self = Self::new(0, 0, 1);

    /// Engines with this set-up time, rate and number.
    pub const fn new(setup_ns: u64, rate_bps: u64, parallelism: u32) -> Self {
        Self {
            setup_ns,
            rate_bps,
            parallelism,
        }
    }

    /// True if transfers take no modelled time.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.setup_ns == 0 && self.rate_bps == 0
    }

    /// The model unchanged, if its values are within the limits stated at its fields.
    pub const fn validated(self) -> Result<Self, DmaError> {
        if self.setup_ns > DMA_SETUP_NS_MAX {
            return Err(DmaError::SetupTooLong);
        }
        if self.rate_bps != 0 && self.rate_bps < DMA_RATE_BPS_MIN {
            return Err(DmaError::RateTooLow);
        }
        if self.parallelism == 0 || self.parallelism > DMA_PARALLELISM_MAX {
            return Err(DmaError::Parallelism);
        }
        Ok(self)
    }

    /// How long a transfer of `len` bytes takes that finds an engine and the bus idle, in nanoseconds.
    ///
    /// The small fetches of host state are modelled like this: they pass the packets, whose order they do not touch.
    pub const fn transfer_ns(self, len: u32) -> u64 {
        match self.rate_bps {
            0 => self.setup_ns,
            rate_bps => self.setup_ns + (len as u64 * 8 * 1_000_000_000).div_ceil(rate_bps),
        }
    }

    /// The nearest model within the limits.
    fn clamped(self) -> Self {
        Self {
            setup_ns: self.setup_ns.min(DMA_SETUP_NS_MAX),
            rate_bps: if self.rate_bps == 0 {
                0
            } else {
                self.rate_bps.max(DMA_RATE_BPS_MIN)
            },
            parallelism: self.parallelism.clamp(1, DMA_PARALLELISM_MAX),
        }
    }
}

impl Default for DmaModel {
    fn default() -> Self {
        Self::ZERO
    }
}

/// A [`DmaModel`] with a value out of range; the model in use stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaError {
    /// `setup_ns` is above its limit.
    SetupTooLong,
    /// `rate_bps` is neither 0 nor at least its limit.
    RateTooLow,
    /// `parallelism` is out of range.
    Parallelism,
}

impl fmt::Display for DmaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetupTooLong => write!(f, "the DMA set-up time must be at most {DMA_SETUP_NS_MAX} ns"),
            Self::RateTooLow => {
                write!(
                    f,
                    "the DMA rate must be 0 (unlimited) or at least {DMA_RATE_BPS_MIN} bits per second"
                )
            }
            Self::Parallelism => write!(f, "the number of DMA engines must be 1 to {DMA_PARALLELISM_MAX}"),
        }
    }
}

impl core::error::Error for DmaError {}

/// The engines at work.
#[derive(Clone, Debug)]
pub(crate) struct DmaEngines {
    model: DmaModel,
    /// When the transfer that last used each engine completed. Transfers complete in order and take engines in turn, so
    /// the oldest entry is the engine that is free first.
    free_at: [Time; DMA_PARALLELISM_MAX as usize],
    next_engine: usize,
    /// When the bus is free.
    bus_free_at: Time,
    /// Numerator left over from the last division by the rate, in bits × 10⁹, below `rate_bps`: rounding never adds up.
    remainder: u64,
    /// Completion of the newest transfer: no later one completes before it.
    last: Time,
    /// When the newest transfer got its engine.
    last_started: Time,
}

impl DmaEngines {
    pub(crate) fn new(model: DmaModel) -> Self {
        Self {
            model: model.clamped(),
            free_at: [Time::ZERO; DMA_PARALLELISM_MAX as usize],
            next_engine: 0,
            bus_free_at: Time::ZERO,
            remainder: 0,
            last: Time::ZERO,
            last_started: Time::ZERO,
        }
    }

    #[inline]
    pub(crate) fn model(&self) -> DmaModel {
        self.model
    }

    /// Changes the model for transfers submitted from now on; those in flight keep their times.
    pub(crate) fn set_model(&mut self, model: DmaModel) {
        self.model = model.clamped();
        // A new set of engines is idle but for what is still on the bus, which `last` stands for.
        self.free_at = [Time::ZERO; DMA_PARALLELISM_MAX as usize];
        self.next_engine = 0;
        self.remainder = 0;
        self.bus_free_at = self.last;
    }

    /// When the transfer that was submitted last got its engine.
    pub(crate) fn last_started(&self) -> Time {
        self.last_started
    }

    /// True if transfers take no modelled time: they complete at the next poll, and are not submitted here.
    #[inline]
    pub(crate) fn is_zero(&self) -> bool {
        self.model.is_zero()
    }

    /// Submits a transfer of `len` bytes at `now` and says when it completes.
    // Out of line, since most cards model no times.
    #[inline(never)]
    pub(crate) fn submit(&mut self, now: Time, len: u32) -> Time {
        let DmaModel {
            setup_ns,
            rate_bps,
            parallelism,
        } = self.model;
        let started = now.max(self.free_at[self.next_engine]);
        let mut done = started.plus_nanos(setup_ns);
        if rate_bps != 0 {
            if done > self.bus_free_at {
                // The bus was idle in between: no fraction of a nanosecond is carried over a gap.
                self.remainder = 0;
            }
            let bits = u128::from(len) * 8 * 1_000_000_000 + u128::from(self.remainder);
            let rate = u128::from(rate_bps);
            self.remainder = (bits % rate) as u64;
            let transfer_ns = u64::try_from(bits / rate).unwrap_or(u64::MAX);
            done = done.max(self.bus_free_at).plus_nanos(transfer_ns);
            self.bus_free_at = done;
        }
        done = done.max(self.last);
        self.last = done;
        self.last_started = started;
        self.free_at[self.next_engine] = done;
        self.next_engine += 1;
        if self.next_engine >= parallelism as usize {
            self.next_engine = 0;
        }
        done
    }
}
