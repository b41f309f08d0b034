//! Descriptors of a copy: where from, where to, how much, and what to store when it is done.
//!
//! An address is a number to the engine, which compares addresses and never follows one.

/// Length of a notification value in bytes: a word that a processor stores and loads in one piece.
pub const NOTIFICATION_LEN: u32 = 8;

/// Which addresses a number belongs to. A place in one space is never a place in the other: a driver whose spaces share
/// memory must give both one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// A program's memory.
    User,
    /// The kernel's receive buffers.
    Kernel,
}

/// The first byte of something in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Which addresses.
    pub space: Space,
    /// Number of the byte there.
    pub address: u64,
}

impl Place {
    /// A place in a program's memory.
    pub const fn user(address: u64) -> Self {
        Self {
            space: Space::User,
            address,
        }
    }

    /// A place in a receive buffer of the kernel.
    pub const fn kernel(address: u64) -> Self {
        Self {
            space: Space::Kernel,
            address,
        }
    }

    /// `len` bytes further. Copies that would wrap were refused when they were submitted.
    pub(super) const fn plus(self, len: u32) -> Self {
        Self {
            space: self.space,
            address: self.address.wrapping_add(len as u64),
        }
    }

    /// True if the `len` bytes from here on end within the space.
    const fn holds(self, len: u32) -> bool {
        self.address.checked_add(len as u64).is_some()
    }
}

/// What is stored when all of a copy is in memory (M-CI2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Where the notification variable is, a multiple of [`NOTIFICATION_LEN`].
    pub variable: Place,
    /// What is stored there.
    pub value: u64,
}

/// One copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRequest {
    /// First byte to write.
    pub destination: Place,
    /// First byte to read.
    pub source: Place,
    /// Number of bytes; 0 is allowed if there is a notification.
    pub len: u32,
    /// What is stored behind the data.
    pub notification: Option<Notification>,
}

impl CopyRequest {
    /// A copy without a notification.
    pub const fn new(destination: Place, source: Place, len: u32) -> Self {
        Self {
            destination,
            source,
            len,
            notification: None,
        }
    }

    /// This copy with a notification.
    pub const fn notifying(mut self, notification: Notification) -> Self {
        self.notification = Some(notification);
        self
    }

    /// Whether an engine can do it at all.
    ///
    /// # Errors
    /// All of [`CopyError`] but [`CopyError::QueueFull`].
    pub fn checked(&self) -> Result<(), CopyError> {
        if self.len == 0 && self.notification.is_none() {
            return Err(CopyError::Empty);
        }
        if !self.source.holds(self.len) || !self.destination.holds(self.len) {
            return Err(CopyError::Range);
        }
        if overlaps((self.source, self.len), (self.destination, self.len)) {
            return Err(CopyError::Overlap);
        }
        let Some(Notification { variable, .. }) = self.notification else {
            return Ok(());
        };
        if !variable.address.is_multiple_of(u64::from(NOTIFICATION_LEN)) {
            return Err(CopyError::Misaligned);
        }
        if !variable.holds(NOTIFICATION_LEN) {
            return Err(CopyError::Range);
        }
        for data in [self.source, self.destination] {
            if overlaps((data, self.len), (variable, NOTIFICATION_LEN)) {
                return Err(CopyError::Overlap);
            }
        }
        Ok(())
    }
}

/// True if the two ranges share a byte; neither wraps.
fn overlaps(a: (Place, u32), b: (Place, u32)) -> bool {
    let ends_before = |(first, len): (Place, u32), (second, _): (Place, u32)| {
        first.address.saturating_add(u64::from(len)) <= second.address
    };
    a.0.space == b.0.space && a.1 != 0 && b.1 != 0 && !ends_before(a, b) && !ends_before(b, a)
}

weft_settings::errors! {
    /// Why a copy was not accepted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum CopyError {
        /// The queue is full; try again when a copy has completed.
        QueueFull = "queue_full": "the copy engine's queue is full: try again when a copy has completed",
        /// Two of source, destination and notification variable share a byte: what came out would depend on the cutting.
        Overlap = "overlap": "source, destination and notification variable of a copy must not overlap",
        /// No data and no notification.
        Empty = "empty": "a copy without data needs a notification",
        /// The range ends beyond the last address.
        Range = "range": "a copy must end within the addresses",
        /// The notification variable is not at a multiple of its length, so it could not be stored in one piece.
        Misaligned = "misaligned": "a notification variable must be at a multiple of 8",
    }
}

impl CopyError {
    /// How many there are; counters are indexed by [`CopyError::index`].
    pub const COUNT: usize = Self::ALL.len();

    /// Position in [`CopyError::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}
