//! The names of connections.

/// Names a connection of an engine until [`crate::Engine::close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl ConnectionId {
    /// A small number that no other connection of the engine has at the same time: an index for tables of the owner.
    #[inline]
    pub const fn index(self) -> usize {
        self.slot as usize
    }
}
