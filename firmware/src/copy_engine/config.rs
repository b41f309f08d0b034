//! What a copy engine is made with, and its limits.

use core::fmt;

use super::NOTIFICATION_LEN;
use crate::DmaModel;

/// The greatest number of copies in an engine's queue: the transmit ring of the card that the paper used has as many
/// descriptors.
pub const COPY_QUEUE_MAX: u16 = 512;
/// The smallest MTU of an engine, in bytes: Ethernet's smallest payload, in which the notification value has room.
pub const COPY_MTU_MIN: u32 = 46;
/// The largest MTU of an engine, in bytes: longer frames are in no capture that other programs read.
pub const COPY_MTU_MAX: u32 = 1 << 18;
/// The longest submission, in nanoseconds: a millisecond is far beyond any processor, and a slip of units is likely.
pub const COPY_SUBMIT_NS_MAX: u64 = 1_000_000;

const _: () = assert!(NOTIFICATION_LEN <= COPY_MTU_MIN);

/// How a copy engine behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyEngineConfig {
    /// Longest frame in bytes, [`COPY_MTU_MIN`] … [`COPY_MTU_MAX`]; longer copies are cut. No header is needed on a wire that ends where it begins.
    pub mtu: u32,
    /// Copies that may be in flight, 1 … [`COPY_QUEUE_MAX`].
    pub queue_max: u16,
    /// What it costs the host's processor to submit one frame, in nanoseconds; at most [`COPY_SUBMIT_NS_MAX`].
    pub submit_ns: u64,
    /// Set-up and rate of the path out of memory, over the wire and into memory again.
    pub wire: DmaModel,
}

impl CopyEngineConfig {
    /// No modelled time, frames of 9000 bytes: what a card that lives in real time uses.
    pub const DEFAULT: Self = Self {
        mtu: 9000,
        queue_max: COPY_QUEUE_MAX,
        submit_ns: 0,
        wire: DmaModel::ZERO,
    };

    /// The engine in the chip set that Open-MX used (`papers.md` R-OM1): 350 ns for each submission, 2.5 GB/s, and pieces of a
    /// page, since no longer ones are contiguous in memory.
    pub const IO_AT: Self = Self {
        mtu: 4096,
        queue_max: COPY_QUEUE_MAX,
        submit_ns: 350,
        wire: DmaModel {
            rate_bps: 20_000_000_000,
            ..DmaModel::ZERO
        },
    };

    /// The configuration unchanged, if its values are within the limits stated at its fields.
    ///
    /// # Errors
    /// The first value that is not.
    pub fn validated(self) -> Result<Self, CopyEngineConfigError> {
        if !(COPY_MTU_MIN..=COPY_MTU_MAX).contains(&self.mtu) {
            return Err(CopyEngineConfigError::Mtu);
        }
        if self.queue_max == 0 || self.queue_max > COPY_QUEUE_MAX {
            return Err(CopyEngineConfigError::Queue);
        }
        if self.submit_ns > COPY_SUBMIT_NS_MAX {
            return Err(CopyEngineConfigError::Submit);
        }
        self.wire.validated().map_err(CopyEngineConfigError::Wire)?;
        Ok(self)
    }

    /// The nearest configuration within the limits; the model of the wire is brought to its limits where it is used.
    pub(super) fn clamped(self) -> Self {
        Self {
            mtu: self.mtu.clamp(COPY_MTU_MIN, COPY_MTU_MAX),
            queue_max: self.queue_max.clamp(1, COPY_QUEUE_MAX),
            submit_ns: self.submit_ns.min(COPY_SUBMIT_NS_MAX),
            wire: self.wire,
        }
    }
}

impl Default for CopyEngineConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A [`CopyEngineConfig`] with a value out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyEngineConfigError {
    /// `mtu` is out of range.
    Mtu,
    /// `queue_max` is out of range.
    Queue,
    /// `submit_ns` is above its limit.
    Submit,
    /// The model of the wire is out of range.
    Wire(crate::DmaError),
}

impl fmt::Display for CopyEngineConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mtu => write!(
                f,
                "the MTU of a copy engine must be {COPY_MTU_MIN} to {COPY_MTU_MAX} bytes"
            ),
            Self::Queue => write!(
                f,
                "the queue of a copy engine must have room for 1 to {COPY_QUEUE_MAX} copies"
            ),
            Self::Submit => write!(
                f,
                "a submission to a copy engine must take at most {COPY_SUBMIT_NS_MAX} ns"
            ),
            Self::Wire(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for CopyEngineConfigError {}
