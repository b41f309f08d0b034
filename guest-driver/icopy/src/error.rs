//! What can go wrong with a copy.

use std::{io, time::Duration};

use firmware::copy_engine;
use netif::virtio::{CardAddress, VirtioError};

use crate::Use;

/// Why a copy, or a registration of memory, was refused, or the card is not used any more.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The card cannot be driven.
    #[error(transparent)]
    Card(#[from] VirtioError),
    /// It is not the engine of copies.
    #[error(
        "the card {address} is not wired to itself, so that it cannot copy (a lab file says `loopback = true`): {why}"
    )]
    NotLoopback {
        /// Its address.
        address: CardAddress,
        /// What it answered.
        why: String,
    },
    /// What the engine cannot do, wherever the memory is.
    #[error(transparent)]
    Refused(#[from] copy_engine::CopyError),
    /// Some bytes are in no memory that the card knows.
    #[error("the {what} ({len} bytes at {address:#x}) is not inside memory that was registered for copies")]
    NotRegistered {
        /// Which part of the copy.
        what: &'static str,
        /// Where it begins.
        address: usize,
        /// Its length in bytes.
        len: usize,
    },
    /// The memory was registered for something else.
    #[error("the {what} is in {} (registered as such); the copies of {} are for it", .is.what(), .is.copies())]
    WrongUse {
        /// Which part of the copy.
        what: &'static str,
        /// What the memory was registered for.
        is: Use,
    },
    /// A copy is longer than any.
    #[error("a copy has at most {} bytes, not {len}", crate::COPY_LEN_MAX)]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// There are too many registrations.
    #[error(
        "{} parts of memory are registered already; unregister one",
        crate::REGISTRATIONS_MAX
    )]
    TooManyRegistrations,
    /// A registration names no memory, or more than there are addresses.
    #[error("cannot register {len} bytes at {address:#x}: memory has at least one byte, and ends where addresses do")]
    NoMemory {
        /// Where it begins.
        address: usize,
        /// Its length in bytes.
        len: usize,
    },
    /// All copies are done, and the variable has not the value that is waited for.
    #[error("no copy is running whose notification could store {value} in the variable at {variable:#x}")]
    NotAwaited {
        /// The variable's address.
        variable: usize,
        /// The value.
        value: u64,
    },
    /// The system does not let memory be kept where it is.
    #[error(
        "cannot register {len} bytes at {address:#x}: {reason} (they must be mapped and writable, and `ulimit -l` must allow it)"
    )]
    Pin {
        /// Where the memory begins.
        address: usize,
        /// Its length in bytes.
        len: usize,
        /// The system's reason, which is in the sentence already.
        reason: io::Error,
    },
    /// Memory of a registration is other memory now.
    #[error("memory at {address:#x} was unmapped or replaced while it was registered; unregister it first")]
    Replaced {
        /// Where it begins.
        address: usize,
    },
    /// A copy did not arrive as it was asked for.
    #[error("a copy was lost on the card: its MTU was lowered, or what emulates it was started again; open it anew")]
    Lost,
    /// Nothing was copied for so long.
    #[error("the card has copied nothing for {} s although it was asked to; open it anew", .after.as_secs_f32())]
    Stalled {
        /// How long.
        after: Duration,
    },
    /// This process is a child of the one that opened the card.
    #[error("the card belongs to the process that opened it, of which this one is a child")]
    Forked,
    /// The engine was given up before.
    #[error("the card is not used any more, because of an earlier error: {why}")]
    GivenUp {
        /// That error.
        why: String,
    },
}
