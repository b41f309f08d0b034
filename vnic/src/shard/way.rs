//! How frames cross links: the one place where it is decided whether a frame may take a short way.
//!
//! A frame crosses one link after the other: from its guest, over trunks, to the next guest. Over each it goes in one of
//! three ways, which [`way_over`] tells apart for single frames, for the frames of a row ([`Inner::row_limit`]), for
//! segmented frames, floods, groups and frames between cards. What each way does is in the other modules.

use ether::Time;
use fabric::Link;

use super::Inner;
use super::forward::LINK_OVERHEAD;
use super::port::Port;

/// How a frame crosses a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As it is, at once, from where its sender put it: nothing on the link looks at single frames or takes time.
    Straight,
    /// As it is, later: the link delays all frames alike and does nothing else, so that the segments of a frame that is
    /// still to be cut would all arrive together.
    Whole,
    /// As the frames that would be on the wire, each for itself: cut, with its checksum, asked about, kept for its time.
    Single,
}

/// What must hold for a short way, as far as it can be seen from outside if it was forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No frame is longer than the link takes.
    FitsMtu,
    /// The link has no setting that concerns the frame.
    LinkIsIdeal,
    /// Whatever is on the link has arrived.
    LinkIsDrained,
    /// All that the link does is to delay.
    LinkOnlyDelays,
    /// Nobody captures the sender of a row.
    SenderIsNotCaptured,
    /// Nobody captures the receiver of a row.
    ReceiverIsNotCaptured,
    /// The sender's injector looks at no frame.
    NoInjector,
}

/// Whether the short ways are open. Tests close them, to hold all ways equal, and leave conditions out, to see that this shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shortcuts {
    #[cfg(test)]
    pub closed: bool,
    #[cfg(test)]
    pub forgotten: Option<Condition>,
}

impl Shortcuts {
    #[inline(always)]
    fn are_closed(self) -> bool {
        #[cfg(test)]
        return self.closed;
        #[cfg(not(test))]
        false
    }

    /// Whether a condition, which `is` says, holds.
    #[inline(always)]
    fn holds(self, condition: Condition, is: bool) -> bool {
        #[cfg(test)]
        if self.forgotten == Some(condition) {
            return true;
        }
        let _ = condition;
        is
    }
}

/// How frames that are up to `longest` bytes on the wire cross `link` at `now`.
#[inline(always)]
pub fn way_over(link: &Link, longest: u32, now: Time, shortcuts: Shortcuts) -> Way {
    use Condition::{FitsMtu, LinkIsDrained, LinkIsIdeal, LinkOnlyDelays};
    let fits = longest <= link.config().mtu + LINK_OVERHEAD;
    if shortcuts.are_closed() || !shortcuts.holds(FitsMtu, fits) {
        // A frame that is too long is dropped where each frame is asked about.
        return Way::Single;
    }
    if shortcuts.holds(LinkIsIdeal, link.is_ideal()) && shortcuts.holds(LinkIsDrained, link.is_drained(now)) {
        Way::Straight
    } else if shortcuts.holds(LinkOnlyDelays, link.only_delays(now)) {
        Way::Whole
    } else {
        Way::Single
    }
}

impl Inner {
    /// Longest frame that may follow one which went straight from port `from` to port `to` over their two links, in a row, without
    /// being asked about on its own; `None` if none may. All frames of the row have the same first 14 bytes and ask nothing of the
    /// card.
    #[inline]
    pub(super) fn row_limit(&self, from: &Port, to: &Port) -> Option<u32> {
        let holds = |condition, is| self.shortcuts.holds(condition, is);
        // Each frame is shown to whoever captures, and to the injector; with several queues the card looks at each.
        let alike = holds(Condition::SenderIsNotCaptured, from.capture.is_none())
            && holds(Condition::ReceiverIsNotCaptured, to.capture.is_none())
            && holds(Condition::NoInjector, from.nic.misorder().degree() == 0)
            && to.pairs.len() == 1;
        // Up to the least MTU on the way, what was asked of the links for the first frame holds for all.
        let mtus = [
            from.settings.mtu,
            to.settings.mtu,
            from.from_guest.config().mtu,
            to.to_guest.config().mtu,
        ];
        alike.then(|| mtus.into_iter().fold(u32::MAX, u32::min) + LINK_OVERHEAD)
    }
}
