//! The errors of calls and the ends of messages, with the numbers of `open-mx.h` (mx-api 4).

use mxoe::engine;
use netif::NetifError;
use rustix::io::Errno;
use weft_authority::OmxdError;

/// Why a call did nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such interface, or it is not one for messages.
    #[error("there is no board {board}; `omx_info` lists those there are")]
    BoardNotFound {
        /// The name that was asked for.
        board: String,
    },
    /// The interface is there, but cannot be used now: switched off, or its MTU is too small.
    #[error("{sentence}")]
    BoardUnusable {
        /// A sentence that says why, and what helps.
        sentence: String,
    },
    /// The endpoint does not exist or is closed.
    #[error("the endpoint number is too high, or the endpoint is closed")]
    BadEndpoint,
    /// The message has more than 256 segments, or more than 4 GiB.
    #[error("a message has at most 256 segments and 4 GiB − 1 bytes; it was not taken")]
    BadSegments,
    /// The request is not one of this endpoint, or of a kind that the call does not take.
    #[error("the request is over, or this call does not take its kind")]
    BadRequest,
    /// Match information has bits outside the mask.
    #[error("the match information has bits outside its mask")]
    BadMatchMask,
    /// The mask leaves out a part of the context id.
    #[error("the mask of a receive must hold the whole context id field of the endpoint")]
    BadMaskForContextId,
    /// A parameter has a value that it cannot have.
    #[error("a context id has at most 16 bits and lies inside the 64 of the match information")]
    BadParameter,
    /// A limit is reached.
    #[error("too many requests or bytes are pending; the request was not taken")]
    NoResources,
    /// The endpoint number is in use.
    #[error("{sentence}")]
    Busy {
        /// A sentence that says who uses it.
        sentence: String,
    },
    /// This program may not use the interface.
    #[error("{sentence}")]
    AccessDenied {
        /// A sentence that says why, and what helps.
        sentence: String,
    },
    /// The address belongs to no peer.
    #[error("the address is not in the peer table, which is full or closed")]
    PeerNotFound,
    /// No peer has this name.
    #[error("no peer in the table has this name")]
    NameNotFound,
    /// There was no answer within the time, or the call was woken up.
    #[error("no answer within the time")]
    Timeout,
    /// A connect or a blocking transfer ended badly.
    #[error("{0}")]
    Failed(StatusCode),
    /// Endpoints of one port reach each other only where the interface has an authority that gives them shared memory.
    #[error(
        "without omxd, endpoints of the same port cannot send to each other, only to themselves and to other ports"
    )]
    SameInterface,
    /// The call is not allowed inside an unexpected handler.
    #[error("an endpoint cannot be closed from inside its unexpected handler")]
    InHandler,
    /// The authority of the interface cannot be reached or started.
    #[error(transparent)]
    Authority(OmxdError),
    /// The authority, or the table it left, is of another version.
    #[error(transparent)]
    OtherVersion(OmxdError),
    /// The operating system refused something.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl Error {
    /// Makes the error for what the system refused while this was tried: for `map_err`.
    pub(crate) fn system<E: Into<std::io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System {
            what,
            source: source.into(),
        }
    }

    /// Returns the number of `open-mx.h`.
    pub const fn code(&self) -> u32 {
        match self {
            Self::BoardNotFound { .. } | Self::BoardUnusable { .. } => 8,
            Self::BadEndpoint => 9,
            Self::BadSegments => 12,
            Self::BadRequest => 13,
            Self::BadMatchMask => 14,
            Self::NoResources => 15,
            Self::Busy { .. } => 20,
            Self::BadParameter => 26,
            Self::PeerNotFound => 36,
            Self::NameNotFound => 28,
            Self::Timeout => 30,
            Self::Failed(StatusCode::Unreachable) => 30,
            Self::Failed(status) => status.code(),
            Self::AccessDenied { .. } => 7,
            Self::BadMaskForContextId => 42,
            Self::InHandler => 96,
            Self::SameInterface => 36,
            Self::Authority(_) => 6,
            Self::OtherVersion(_) => 37,
            Self::System { .. } => 97,
        }
    }
}

impl From<OmxdError> for Error {
    fn from(error: OmxdError) -> Self {
        let sentence = error.to_string();
        match error {
            OmxdError::Refused { reason, .. } => match reason {
                weft_authority::Refusal::Busy => Self::Busy { sentence },
                weft_authority::Refusal::BadEndpoint => Self::BadEndpoint,
                weft_authority::Refusal::NoPeer => Self::PeerNotFound,
                weft_authority::Refusal::NotOpen | weft_authority::Refusal::NotBack => {
                    Self::Failed(StatusCode::EndpointClosed)
                }
                weft_authority::Refusal::NotAllowed => Self::AccessDenied { sentence },
                weft_authority::Refusal::Interface => Self::BoardUnusable { sentence },
                // Endpoints ask for nothing that is refused so.
                weft_authority::Refusal::System | weft_authority::Refusal::NoEsp | weft_authority::Refusal::NoToken => {
                    Self::system("get it from omxd")(std::io::Error::other(sentence))
                }
            },
            OmxdError::NoAuthority { .. } | OmxdError::NotInGroup { .. } => Self::AccessDenied { sentence },
            OmxdError::Protocol | OmxdError::BadTable { .. } => Self::OtherVersion(error),
            OmxdError::Io { what, source } | OmxdError::Interface(NetifError::Io { what, source })
                if is_exhausted(&source) =>
            {
                Self::System { what, source }
            }
            other => Self::Authority(other),
        }
    }
}

/// Whether the system has no more of something, so that neither the authority nor its interface is the reason.
fn is_exhausted(error: &std::io::Error) -> bool {
    Errno::from_io_error(error)
        .is_some_and(|errno| [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS].contains(&errno))
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum StatusCode {
    /// Everything went well.
    #[error("success")]
    Success,
    /// A transfer went on beyond its time limit.
    #[error("the transfer took longer than its time limit")]
    Timeout,
    /// The receive buffer was shorter than the message.
    #[error("the message was longer than the receive buffer; the beginning arrived")]
    Truncated,
    /// The program cancelled the request.
    #[error("the program cancelled the request")]
    Cancelled,
    /// The endpoint of the partner is not open.
    #[error("the remote endpoint is not open")]
    EndpointClosed,
    /// The partner does not answer.
    #[error("the remote endpoint does not answer")]
    Unreachable,
    /// The partner was opened anew.
    #[error("the remote endpoint was closed and opened again since")]
    BadSession,
    /// The connection key is wrong.
    #[error("the remote endpoint was opened with another connection key")]
    BadKey,
    /// The two ends have different settings.
    #[error("the remote endpoint uses other sizes on the wire; give both hosts the same preset")]
    BadConnection,
    /// The partner has no such endpoint number.
    #[error("the remote host has no such endpoint number")]
    BadEndpoint,
    /// The sender's region is gone.
    #[error("the sender has given the message up")]
    BadRdmaWindow,
}

impl StatusCode {
    /// Whether the program is to hear of it as of an error: anything that it neither wanted nor asked for.
    #[inline]
    pub const fn is_failure(self) -> bool {
        !matches!(self, Self::Success | Self::Cancelled)
    }

    /// Returns the number of `open-mx.h`.
    pub const fn code(self) -> u32 {
        match self {
            Self::Success => 0,
            Self::Timeout => 30,
            Self::BadEndpoint => 32,
            Self::EndpointClosed => 33,
            Self::BadKey => 34,
            Self::Cancelled => 90,
            Self::BadRdmaWindow => 91,
            Self::Unreachable => 92,
            Self::BadSession | Self::BadConnection => 93,
            Self::Truncated => 95,
        }
    }
}

impl From<engine::Status> for StatusCode {
    fn from(status: engine::Status) -> Self {
        match status {
            engine::Status::Success => Self::Success,
            engine::Status::Truncated => Self::Truncated,
            engine::Status::BadKey => Self::BadKey,
            engine::Status::BadConnection => Self::BadConnection,
            engine::Status::BadEndpoint => Self::BadEndpoint,
            engine::Status::EndpointClosed => Self::EndpointClosed,
            engine::Status::BadSession => Self::BadSession,
            engine::Status::BadRdmaWindow => Self::BadRdmaWindow,
            engine::Status::Unreachable => Self::Unreachable,
            engine::Status::Timeout => Self::Timeout,
        }
    }
}
