//! Posted receives and unexpected messages of one endpoint, found by match information (mx-api 6.1). A data structure: who
//! posts, cancels, delivers and completes is the caller's business.
//!
//! A message with information *m* matches a receive (MI, MM) when (*m* AND MM) = MI. Receives are matched in the order of
//! posting, unexpected messages in the order of arrival. Beyond MX, a receive may take messages of one source only, as MPI
//! over libfabric asks for ([`Filter`]).

mod posted;
mod unexpected;

pub use crate::source_key::SourceKey;
pub use posted::{Posted, PostedId};
pub use unexpected::{Unexpected, UnexpectedId};

/// The match information and mask of a receive or a probe, known to belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    info: u64,
    mask: u64,
}

impl Selector {
    /// This selector takes any message.
    pub const ANY: Self = Self { info: 0, mask: 0 };

    /// Makes a selector; `None` if the information has bits outside the mask (*bad match mask*, 14).
    pub const fn new(info: u64, mask: u64) -> Option<Self> {
        if info & !mask == 0 {
            Some(Self { info, mask })
        } else {
            None
        }
    }

    /// Makes a selector that compares every bit.
    pub const fn exact(info: u64) -> Self {
        Self { info, mask: u64::MAX }
    }

    /// Returns the match information.
    pub const fn info(self) -> u64 {
        self.info
    }

    /// Returns the mask.
    pub const fn mask(self) -> u64 {
        self.mask
    }

    /// Whether a message with this information matches.
    #[inline]
    pub const fn matches(self, match_info: u64) -> bool {
        match_info & self.mask == self.info
    }
}

/// What matching knows of a message: its match information, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Match information.
    pub match_info: u64,
    /// The endpoint that sent the message. `None`: no receive for one source takes it.
    pub source: Option<SourceKey>,
}

impl From<u64> for Envelope {
    fn from(match_info: u64) -> Self {
        Self {
            match_info,
            source: None,
        }
    }
}

/// The messages that a receive or a probe takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The match information.
    pub selector: Selector,
    /// The only source of the messages, or `None` for any.
    pub source: Option<SourceKey>,
}

impl From<Selector> for Filter {
    fn from(selector: Selector) -> Self {
        Self { selector, source: None }
    }
}

impl Filter {
    /// Whether the receive takes this message.
    #[inline]
    pub fn takes(self, message: Envelope) -> bool {
        self.selector.matches(message.match_info) && (self.source.is_none() || self.source == message.source)
    }
}

/// Both queues of an endpoint. `R` is what the caller keeps of a posted receive, `U` of an unexpected message.
///
/// ```
/// use mxoe::matching::{MatchTable, Selector};
///
/// let mut table = MatchTable::<&str, &str>::new(1 << 20, 7);
/// table.posted.post(Selector::exact(5), "first");
/// table.posted.post(Selector::ANY, "second");
/// assert_eq!(table.posted.take(5), Some("first"));
/// assert_eq!(table.posted.take(5), Some("second"));
/// assert_eq!(table.posted.take(5), None);
/// assert!(table.unexpected.add(5, 100, "message").is_ok());
/// assert_eq!(table.unexpected.take(Selector::ANY), Some("message"));
/// ```
#[derive(Debug)]
pub struct MatchTable<R, U> {
    /// Receives that wait for a message.
    pub posted: Posted<R>,
    /// Messages that wait for a receive.
    pub unexpected: Unexpected<U>,
}

/// This many bytes of unexpected messages are kept by default.
pub const UNEXPECTED_BYTES_DEFAULT: u64 = 64 << 20;

impl<R, U> MatchTable<R, U> {
    /// Makes empty queues. Unexpected messages take up to `unexpected_bytes_max` bytes; `seed` keeps peers from
    /// choosing collisions.
    pub fn new(unexpected_bytes_max: u64, seed: u64) -> Self {
        Self {
            posted: Posted::new(seed),
            unexpected: Unexpected::new(unexpected_bytes_max, seed),
        }
    }
}
