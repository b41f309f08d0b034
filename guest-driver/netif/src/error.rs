//! What can go wrong with a port, each in one sentence that says what follows.

use std::io;

use crate::card_error::VirtioError;

/// Why a port could not be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum NetifError {
    /// No interface has this name.
    #[error("there is no network interface named {name:?} (`ip link` lists those that exist)")]
    NoSuchInterface {
        /// The name asked for.
        name: String,
    },
    /// The process may not open packet sockets.
    #[error(
        "raw access to {name} needs the capability CAP_NET_RAW: run as root, or `setcap cap_net_raw+ep` the program"
    )]
    NoPrivilege {
        /// The interface.
        name: String,
    },
    /// The interface does not carry Ethernet frames.
    #[error("{name} is not an Ethernet interface (hardware type {hardware_type}); choose another")]
    NotEthernet {
        /// The interface.
        name: String,
        /// ARPHRD number of the kernel.
        hardware_type: u16,
    },
    /// The interface is switched off or gone. Frames flow again when it is opened anew after it came up.
    #[error("{name} is down (`ip link set {name} up` switches it on); nothing is sent or received")]
    Down {
        /// The interface.
        name: String,
    },
    /// A frame has more bytes than the interface takes; it was not sent.
    #[error("{name} takes frames of at most {len_max} bytes; the longer frame was not sent")]
    FrameTooLong {
        /// The interface.
        name: String,
        /// Longest frame in bytes, Ethernet header included.
        len_max: usize,
    },
    /// A card that a program drives itself cannot be used.
    #[error(transparent)]
    Virtio(#[from] VirtioError),
    /// The operating system refused something else.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl NetifError {
    /// Makes the error for what the system refused while this was tried: for `map_err`.
    pub(crate) fn io<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Io {
            what,
            source: source.into(),
        }
    }
}
