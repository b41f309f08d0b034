//! A table of receive queues, read and written as the shortest list that gives it when it is repeated.
//!
//! Which queue takes the place of one that is not ready is decided in `steering`.

/// The receive queue of each of `LEN` entries; or no queues at all, and the entries are spread evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueTable<const LEN: usize>(pub(super) Option<[u8; LEN]>);

impl<const LEN: usize> QueueTable<LEN> {
    /// Entries are spread evenly.
    pub const EVEN: Self = Self(None);

    /// A table with these queues over and over, of none the even one; `None` if the list is longer than the table.
    pub fn repeating(queues: &[u8]) -> Option<Self> {
        match queues.len() {
            0 => Some(Self::EVEN),
            len if len > LEN => None,
            len => Some(Self(Some(core::array::from_fn(|index| queues[index % len])))),
        }
    }

    /// The queues of all entries; `None` if they are spread evenly.
    pub fn get(&self) -> Option<&[u8]> {
        self.0.as_ref().map(|queues| &queues[..])
    }

    /// True if the entries are spread evenly.
    pub fn is_even(&self) -> bool {
        self.0.is_none()
    }

    /// The shortest list that gives this table when it is repeated; empty if the entries are spread evenly.
    pub fn shortest(&self) -> &[u8] {
        let Some(table) = self.get() else { return &[] };
        let gives = |len: &usize| table.iter().zip(table[..*len].iter().cycle()).all(|(a, b)| a == b);
        let len = (1..LEN).find(gives).unwrap_or(LEN);
        &table[..len]
    }
}

impl<const LEN: usize> Default for QueueTable<LEN> {
    fn default() -> Self {
        Self::EVEN
    }
}

impl<const LEN: usize> From<[u8; LEN]> for QueueTable<LEN> {
    fn from(queues: [u8; LEN]) -> Self {
        Self(Some(queues))
    }
}

#[cfg(feature = "serde")]
impl<const LEN: usize> serde::Serialize for QueueTable<LEN> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.shortest().serialize(serializer)
    }
}

#[cfg(feature = "serde")]
impl<'de, const LEN: usize> serde::Deserialize<'de> for QueueTable<LEN> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let queues = alloc::vec::Vec::<u8>::deserialize(deserializer)?;
        Self::repeating(&queues).ok_or_else(|| {
            let name = if LEN == super::ENDPOINTS {
                "endpoints"
            } else {
                "indirection"
            };
            let len = queues.len();
            serde::de::Error::custom(format_args!("{name} must be at most {LEN} queues, not {len}"))
        })
    }
}
