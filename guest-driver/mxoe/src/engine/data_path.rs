//! The paths by which the data of large messages come to an endpoint.

/// Byte of a PULL_REPLY's frame and the bit in it that says which path it comes by: the lowest of the slot in its handle (6.2, 6.3).
pub const DATA_BULK_OFFSET: usize = 25;
/// See [`DATA_BULK_OFFSET`].
pub const DATA_BULK_BIT: u8 = 0x40;

/// A path for data to come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPath {
    /// As all that comes.
    WithMessages,
    /// On the bulk path, through another queue than messages.
    Bulk,
}

impl DataPath {
    /// The path that this one is not.
    pub(in crate::engine) const fn other(self) -> Self {
        match self {
            Self::WithMessages => Self::Bulk,
            Self::Bulk => Self::WithMessages,
        }
    }

    /// Of the pull in this slot.
    pub(in crate::engine) const fn of_slot(at: u16) -> Self {
        if at & 1 == 0 { Self::WithMessages } else { Self::Bulk }
    }
}

/// How the path that data comes by is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPathChoice {
    /// Data takes this path, unless all slots for it are taken.
    Fixed(DataPath),
    /// Data takes the path that turns out to be quicker, and this one until that is known.
    Learned(DataPath),
}
