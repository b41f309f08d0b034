//! What a data plane is made with.

/// What a data plane is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricSettings {
    /// Longest time to poll for more work before asking for kicks and sleeping, in nanoseconds. It is made
    /// shorter while work comes later than that, or another process wants the processor.
    pub poll_ns: u64,
    /// Longest time to poll after a copy by a card that is wired to itself: a program computes while it copies, so the next copy comes later than
    /// the next frame does.
    pub copies_poll_ns: u64,
    /// How long after the start frames wait for guests that used another process's ports before and are not back yet, in
    /// nanoseconds. 0 = not at all.
    pub return_ns: u64,
}

impl FabricSettings {
    /// One round trip between guests that poll fits several times.
    pub const POLL_NS_DEFAULT: u64 = 50_000;
    /// Some hundred KiB by the processor of an emulated guest take as long.
    pub const COPIES_POLL_NS_DEFAULT: u64 = 1_000_000;
    /// The second after which every QEMU tries to reconnect, and a little for its session.
    pub const RETURN_NS_DEFAULT: u64 = 1_200_000_000;
}

impl Default for FabricSettings {
    fn default() -> Self {
        Self {
            poll_ns: Self::POLL_NS_DEFAULT,
            copies_poll_ns: Self::COPIES_POLL_NS_DEFAULT,
            return_ns: Self::RETURN_NS_DEFAULT,
        }
    }
}
