//! What is known of a peer's name (9.3).

use alloc::boxed::Box;

/// The name of a peer, and where it comes from.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerName {
    name: Option<Box<[u8]>>,
    /// An administrator gave the name: the peer is not asked.
    is_configured: bool,
    /// The peer has started anew since it said its name.
    is_doubted: bool,
}

impl PeerName {
    /// Returns the name, without a zero.
    pub(super) fn name(&self) -> Option<&[u8]> {
        self.name.as_deref()
    }

    /// Returns whether the peer is to be asked for its name.
    pub(super) const fn is_wanted(&self) -> bool {
        self.name.is_none() || self.is_doubted
    }

    /// Sets the name that an administrator gave.
    pub(super) fn configure(&mut self, name: Box<[u8]>) {
        *self = Self {
            name: Some(name),
            is_configured: true,
            is_doubted: false,
        };
    }

    /// Notes that the peer may have another name by now.
    pub(super) const fn doubt(&mut self) {
        self.is_doubted = self.name.is_some() && !self.is_configured;
    }

    /// Takes the name that the peer says it has, if it was asked. Returns whether that is news.
    pub(super) fn learn(&mut self, name: &[u8]) -> bool {
        if !self.is_wanted() {
            return false;
        }
        self.is_doubted = false;
        let is_news = self.name() != Some(name);
        self.name = Some(name.into());
        is_news
    }
}
