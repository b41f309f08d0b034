//! The errors of an authority and its clients, each in one sentence that says what follows.

use std::io;

use mxoe::wire::Preset;
use netif::NetifError;

use crate::protocol::Refusal;

/// Why an authority could not start, or a program could not get what it asked one for.
#[derive(Debug, thiserror::Error)]
pub enum OmxdError {
    /// The interface cannot be used.
    #[error(transparent)]
    Interface(#[from] NetifError),
    /// No omxd owns the interface, and this process may not start one.
    #[error(
        "no omxd runs for {interface} and this process may not start one: either have root start it (`systemctl start omxd@{interface}`), or give this program the capability CAP_NET_RAW"
    )]
    NoAuthority {
        /// The interface.
        interface: String,
    },
    /// The socket of the authority is there and may not be used.
    #[error("omxd for {interface} does not serve this user: {}", who_may(group.as_deref()))]
    NotInGroup {
        /// The interface.
        interface: String,
        /// The group that it serves, if it serves one: its name, or its number where it has none.
        group: Option<String>,
    },
    /// An authority with settings was killed and has not come back; another one would serve without them.
    #[error(
        "the omxd that was set up for {interface} was killed and has not come back: start it again (`systemctl start omxd@{interface}`, `omx_init start`), or say that it is not to come back (`omx_init stop`)"
    )]
    SetUpIsAway {
        /// The interface.
        interface: String,
    },
    /// The program of the authority was not found.
    #[error("the program omxd is neither beside this one nor installed; set OMX_OMXD to where it is")]
    NoProgram,
    /// The authority did not start.
    #[error("omxd did not start: {sentence}")]
    NotStarted {
        /// What it said.
        sentence: String,
    },
    /// Another authority owns the interface.
    #[error("another omxd owns {interface}; this one ends")]
    AlreadyRunning {
        /// The interface.
        interface: String,
    },
    /// The frames of the preset do not fit the interface.
    #[error(
        "{preset} sends frames of {frame_len} bytes, but {interface} takes {frame_len_max}: raise its MTU or choose another preset"
    )]
    PresetTooLong {
        /// The preset.
        preset: Preset,
        /// Its longest frame.
        frame_len: usize,
        /// The interface.
        interface: String,
        /// The longest frame it takes.
        frame_len_max: usize,
    },
    /// The authority refuses the request.
    #[error("{sentence}")]
    Refused {
        /// Why, as a number for programs.
        reason: Refusal,
        /// Why.
        sentence: String,
    },
    /// The group that is to be served does not exist.
    #[error("there is no group named {group:?}; create it (`groupadd --system {group}`) or choose another")]
    NoGroup {
        /// Its name.
        group: String,
    },
    /// The peer table is not one.
    #[error("{path} is not a peer table of this version; remove it, and omxd makes a new one")]
    BadTable {
        /// The file.
        path: String,
    },
    /// The file with settings is there and cannot be read.
    #[error("cannot read the settings in {path}: {source}")]
    Settings {
        /// The file.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The card behind the interface does not do what endpoints need.
    #[error("{interface}: {sentence}")]
    Card {
        /// The interface.
        interface: String,
        /// What it does not do.
        sentence: String,
    },
    /// A message of the other side makes no sense.
    #[error("the other side of omxd's socket speaks another version; install programs and daemon of the same one")]
    Protocol,
    /// The authority is gone.
    #[error("the connection to omxd ended; it is made again when it is back")]
    Gone,
    /// The authority did not answer within the time.
    #[error("omxd does not answer; it is too busy, or stopped")]
    Late,
    /// The operating system refused something else.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl OmxdError {
    /// Makes the error for what the system refused while this was tried: for `map_err`.
    pub fn io<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Io {
            what,
            source: source.into(),
        }
    }

    /// Whether the error only says that the authority or the other endpoint is away or has not decided yet.
    pub const fn is_away(&self) -> bool {
        matches!(
            self,
            Self::Gone
                | Self::Late
                | Self::Refused {
                    reason: Refusal::NotBack,
                    ..
                }
        )
    }
}

fn who_may(group: Option<&str>) -> String {
    match group {
        Some(group) => {
            format!("only members of the group {group} may open endpoints (`usermod -aG {group} USER` adds one)")
        }
        None => "only root may open endpoints, as it was started without a group (`omxd --group`; by default omx, if there is such a group)"
            .to_owned(),
    }
}
