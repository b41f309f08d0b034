//! The settings of a link, and what is wrong with some.

use core::fmt;

/// One million: a probability in parts per million is out of this.
pub const PPM: u32 = 1_000_000;

/// One direction of a link. The default is a perfect wire: up, no rate, no delay, no faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Whether anything passes. Default true.
    pub up: bool,
    /// Bits per second on the wire, counted as Ethernet does (see [`wire_bits`](super::wire_bits)); 0 = unlimited.
    pub rate_bps: u64,
    /// Propagation delay in nanoseconds, added after the last bit was sent.
    pub delay_ns: u64,
    /// Most bytes that wait for the wire or are being sent, counted as on the wire; a frame that would go beyond is
    /// dropped. A free wire takes any frame. Without a rate nothing waits. Default 1 MiB.
    pub queue_bytes_max: u64,
    /// Largest payload in bytes, what follows the 14 bytes of Ethernet header; larger frames are dropped. Default 9000.
    pub mtu: u32,
    /// Frames lost on the wire, in parts per million.
    pub loss_ppm: u32,
    /// Frames held back by `reorder_delay_ns`, so that those sent in that time overtake them, in parts per million.
    pub reorder_ppm: u32,
    /// How long they are held back, in nanoseconds.
    pub reorder_delay_ns: u64,
    /// Frames that arrive twice, in parts per million.
    pub duplicate_ppm: u32,
    /// Frames in which one bit is flipped, in parts per million.
    pub corrupt_ppm: u32,
    /// What becomes of those: `false`, the receiver's frame check sequence finds them and they are dropped; `true`, the
    /// bit was flipped where no check sees it, and they are delivered.
    pub corrupt_past_fcs: bool,
    /// Where the random numbers start. Links that should not fail in step need different seeds.
    pub seed: u64,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            up: true,
            rate_bps: 0,
            delay_ns: 0,
            queue_bytes_max: 1 << 20,
            mtu: 9000,
            loss_ppm: 0,
            reorder_ppm: 0,
            reorder_delay_ns: 0,
            duplicate_ppm: 0,
            corrupt_ppm: 0,
            corrupt_past_fcs: false,
            seed: 0,
        }
    }
}

/// Settings that contradict themselves; a link can be made of them, but does not do what was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkConfigError {
    /// A probability above one million parts per million; it acts as one million.
    PpmTooLarge {
        /// The setting's name.
        field: &'static str,
        /// Its value.
        ppm: u32,
    },
    /// Frames would be held back by no time, so nothing would be reordered.
    ReorderWithoutDelay,
}

impl fmt::Display for LinkConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PpmTooLarge { field, ppm } => {
                write!(
                    f,
                    "{field} is {ppm}, but a probability is at most {PPM} parts per million"
                )
            }
            Self::ReorderWithoutDelay => f.write_str("reorder_ppm has no effect while reorder_delay_ns is 0"),
        }
    }
}

impl core::error::Error for LinkConfigError {}

impl LinkConfig {
    /// Checks settings that come from a user. A link takes any settings; this says which of them make no sense.
    pub fn validate(&self) -> Result<(), LinkConfigError> {
        let probabilities = [
            ("loss_ppm", self.loss_ppm),
            ("reorder_ppm", self.reorder_ppm),
            ("duplicate_ppm", self.duplicate_ppm),
            ("corrupt_ppm", self.corrupt_ppm),
        ];
        for (field, ppm) in probabilities {
            if ppm > PPM {
                return Err(LinkConfigError::PpmTooLarge { field, ppm });
            }
        }
        if self.reorder_ppm > 0 && self.reorder_delay_ns == 0 {
            return Err(LinkConfigError::ReorderWithoutDelay);
        }
        Ok(())
    }

    /// Whether frames pass at once and unharmed, the MTU aside.
    pub(super) fn is_ideal(&self) -> bool {
        let faults = self.loss_ppm | self.reorder_ppm | self.duplicate_ppm | self.corrupt_ppm;
        self.up && self.rate_bps == 0 && self.delay_ns == 0 && faults == 0
    }
}
