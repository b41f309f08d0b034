//! Why a run of the generator can fail, each in one sentence that says what to do.

use std::fmt;

use ether::MacAddr;
use mxoe::wire::{EmitError, Preset};
use netif::NetifError;

/// Messages lost in a row after which the peer counts as gone: twenty losses by chance need a link that loses most.
pub(super) const LOST_IN_A_ROW_MAX: u64 = 20;

/// Why a run ended without a result.
#[derive(Debug)]
pub enum ClientError {
    /// The port failed.
    Port(NetifError),
    /// A message cannot be said in this preset.
    Message(EmitError),
    /// The server never answered.
    NoAnswer {
        /// Its address.
        peer: MacAddr,
        /// How long was waited.
        seconds: u64,
    },
    /// The server answered, then stopped.
    StoppedAnswering {
        /// Its address.
        peer: MacAddr,
        /// Messages answered before.
        messages: u64,
    },
    /// Both ends have different sizes.
    Preset {
        /// Ours.
        ours: Preset,
        /// The server's, if it has a name.
        theirs: Option<Preset>,
    },
    /// The server does not know this client (any more).
    Refused {
        /// Its address.
        peer: MacAddr,
    },
    /// The interface is too narrow for the preset.
    Mtu {
        /// What it has.
        mtu: usize,
        /// What the preset needs.
        preset: Preset,
    },
    /// A message of this size cannot be sent this way.
    Size {
        /// What was asked for.
        size: usize,
        /// The most there is.
        max: usize,
    },
    /// A signal came before there was anything to report.
    Interrupted,
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(error) => error.fmt(f),
            Self::Message(error) => error.fmt(f),
            Self::NoAnswer { peer, seconds } => write!(
                f,
                "{peer} did not answer within {seconds} s: is `mxoe-gen serve` running there, and is this its address?"
            ),
            Self::StoppedAnswering { peer, messages } => write!(
                f,
                "{peer} stopped answering after {messages} messages ({LOST_IN_A_ROW_MAX} in a row were lost); no result"
            ),
            Self::Preset { ours, theirs } => {
                write!(f, "bad connection: the sizes are {ours} here and ")?;
                match theirs {
                    Some(theirs) => write!(f, "{theirs}")?,
                    None => write!(f, "unnamed")?,
                }
                write!(f, " at the other end; give both the same --preset")
            }
            Self::Refused { peer } => {
                write!(
                    f,
                    "{peer} does not know this connection: its server was started again; run the command again"
                )
            }
            Self::Mtu { mtu, preset } => write!(
                f,
                "the interface has MTU {mtu}, preset {preset} needs {}: raise the MTU or choose another --preset",
                preset.sizes().frame_len_max()
            ),
            Self::Size { size, max } => write!(f, "a message of {size} bytes cannot be sent this way: at most {max}"),
            Self::Interrupted => f.write_str("interrupted before the other end had answered"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<NetifError> for ClientError {
    fn from(error: NetifError) -> Self {
        Self::Port(error)
    }
}

impl From<EmitError> for ClientError {
    fn from(error: EmitError) -> Self {
        Self::Message(error)
    }
}
