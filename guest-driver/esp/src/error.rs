//! Why a call or a connection fails, with the `errno` that users of TCP know.

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Reason {
    /// Both sides have closed, and all bytes have arrived.
    #[error("both sides have closed")]
    Finished,
    /// No program listens at the port.
    #[error("connection refused")]
    Refused,
    /// The peer has given the connection up, or does not know it.
    #[error("connection reset by peer")]
    Reset,
    /// The peer has not answered in time.
    #[error("connection timed out")]
    TimedOut,
    /// The interface is gone, or the host cannot be reached.
    #[error("no route to host")]
    Unreachable,
    /// The program itself has given the connection up.
    #[error("connection aborted")]
    Aborted,
}

impl Reason {
    /// Its Linux `errno`; 0 for an orderly end.
    pub const fn errno(self) -> i32 {
        match self {
            Self::Finished => 0,
            Self::Refused => 111,
            Self::Reset => 104,
            Self::TimedOut => 110,
            Self::Unreachable => 113,
            Self::Aborted => 103,
        }
    }
}

/// Why a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// There is no such connection (any more).
    #[error("no such connection")]
    Unknown,
    /// Nothing can be read or written now.
    #[error("nothing can be done now; try again later")]
    WouldBlock,
    /// The connection is not established yet.
    #[error("the connection is not established")]
    NotConnected,
    /// The program has closed this direction.
    #[error("the stream was shut down")]
    Shutdown,
    /// The connection is over.
    #[error("the connection is over: {0}")]
    Ended(Reason),
    /// The connection is frozen.
    #[error("the connection is frozen")]
    Frozen,
    /// The port is in use.
    #[error("the port is in use")]
    InUse,
    /// A limit of the engine is reached.
    #[error("a limit of the engine is reached")]
    Limit,
    /// The call does not fit the state of the connection, or an argument is out of range.
    #[error("the call does not fit the state of the connection")]
    Invalid,
}

impl Error {
    /// Its Linux `errno`.
    pub const fn errno(self) -> i32 {
        match self {
            Self::Unknown => 9,
            Self::WouldBlock | Self::Frozen => 11,
            Self::NotConnected => 107,
            Self::Shutdown => 32,
            Self::Ended(Reason::Finished) => 32,
            Self::Ended(reason) => reason.errno(),
            Self::InUse => 98,
            Self::Limit => 105,
            Self::Invalid => 22,
        }
    }
}
