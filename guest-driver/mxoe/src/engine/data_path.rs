//! The paths by which the data of large messages comes to an endpoint.

/// This byte of a PULL_REPLY's frame has a bit that says which path the data takes: the lowest bit of the slot in its
/// handle (6.2, 6.3).
pub const DATA_BULK_OFFSET: usize = 25;
/// The bit in the byte at [`DATA_BULK_OFFSET`].
pub const DATA_BULK_BIT: u8 = 0x40;

/// A path for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPath {
    /// Data takes the path of all other packets.
    WithMessages,
    /// Data takes the bulk path, through another queue than messages.
    Bulk,
}

impl DataPath {
    /// Returns the other one of the two paths.
    pub(in crate::engine) const fn other(self) -> Self {
        match self {
            Self::WithMessages => Self::Bulk,
            Self::Bulk => Self::WithMessages,
        }
    }

    /// Returns the path of the pull in this slot.
    pub(in crate::engine) const fn of_slot(at: u16) -> Self {
        if at & 1 == 0 { Self::WithMessages } else { Self::Bulk }
    }
}

/// The choice of the path for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPathChoice {
    /// Data takes this path, unless all slots for it are taken.
    Fixed(DataPath),
    /// Data takes the path that turns out to be quicker, and this one until that is known.
    Learned(DataPath),
}
