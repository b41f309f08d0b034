//! Routes: how a frame, or a burst of frames alike, gets over its next hop. The conditions for that stand here and nowhere else.
//!
//! A frame crosses one link after the other: from its guest to a switch, over trunks, to the next guest. Each function here concerns
//! one such hop and moves nothing; `wiring` and `forwarding` carry out what it returns.

use ether::{EtherType, Time};
use fabric::{Link, LinkDrop};
use firmware::copy_engine::{COPY_FRAME_LEN_MAX, CopyHeader};
use firmware::multicast::is_card_frame;

use super::card::Card;
use super::card::receive_ring::Refused;
use super::frames::frame_ref::FrameRef;
use super::frames::{SEGMENTED_FRAME_MAX, mtu};
use crate::offload::OnWire;
use vnicd_protocol::drops::{RxDrop, TxDrop};

/// Frames of these types are decided on one by one: more than the Ethernet header says where they go.
const ETHER_TYPES_ALONE: [EtherType; 3] = [EtherType::CARD_CONTROL, EtherType::CARD_TO_CARD, EtherType::VLAN];

/// Trunks that a frame crosses directly one after the other; behind so many it waits for its turn in the pool, since each takes
/// a part of the stack.
const DIRECT_TRUNKS_MAX: u32 = 32;

/// Trunks that one frame and its copies cross directly; further ones are crossed through the pool, which is as right. In a
/// loop, copies could double at every switch, and nothing but this would end that: what is in the pool has a limit.
const DIRECT_CROSSINGS_MAX: u32 = 64;

/// How a frame gets over its next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// It is handed on at once, from where its sender put it: nothing on the link takes time or depends on single frames.
    Direct,
    /// It is copied into the pool, and arrives when the link has delivered it.
    Copied(Copying),
    /// It is for the card itself.
    ToCard(Service),
    /// It waits in its sender's ring until this receive queue of its receiver has buffers.
    Wait {
        /// The queue.
        queue: usize,
    },
    /// It waits in the pool until its receiver has buffers.
    WaitAtCard,
    /// It is dropped, and counted under this reason.
    Drop(Loss),
}

/// As what a frame is copied into the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    /// As it is: the link delays all frames alike and does nothing else, so that the segments of a frame that is still to be
    /// cut would all arrive together.
    Whole,
    /// As the frames that are on the wire, each for itself: cut, with its checksum, and judged by the link.
    EachOnWire,
}

/// What a card does with a frame that goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// It answers a request of its guest.
    Control,
    /// It takes part in multicast between cards.
    Multicast,
    /// It copies the frame back to its guest, since its output is wired to its input.
    Loopback,
}

/// Why a frame does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It is shorter than an Ethernet header.
    Runt,
    /// It is longer than an MTU allows.
    TooLong,
    /// Its headers do not allow what its guest asks of the card.
    BadOffload,
    /// The link's model dropped it.
    Link(LinkDrop),
    /// Its sender has used up its share of the pool.
    PoolShare,
    /// It crossed more trunks than there are.
    TooManyTrunks,
    /// Its receiver does not take it, and is not waited for any longer.
    Refused(Refused),
}

impl Loss {
    /// The reason under which the sending card counts this loss.
    pub fn at_sender(self) -> TxDrop {
        match self {
            Self::Runt => TxDrop::Runt,
            Self::TooLong | Self::Link(LinkDrop::Mtu) => TxDrop::TooLong,
            Self::PoolShare => TxDrop::PoolShare,
            Self::BadOffload => TxDrop::BadOffload,
            Self::Link(_) => TxDrop::Link,
            Self::TooManyTrunks | Self::Refused(_) => TxDrop::CardRefused,
        }
    }

    /// The reason under which the receiving card counts this loss, unless its driver broke a rule, which has a counter of its own.
    pub fn at_receiver(self) -> RxDrop {
        match self {
            Self::TooLong | Self::Link(LinkDrop::Mtu) => RxDrop::TooLong,
            Self::PoolShare => RxDrop::PoolShare,
            Self::BadOffload => RxDrop::BadOffload,
            Self::Link(_) => RxDrop::Link,
            Self::Refused(Refused::NotReady) => RxDrop::NotReady,
            Self::Refused(Refused::NoBuffer) => RxDrop::NoBuffer,
            Self::Refused(Refused::BufferTooSmall) => RxDrop::BufferTooSmall,
            Self::Runt | Self::TooManyTrunks | Self::Refused(Refused::Rule(_)) => RxDrop::CardRefused,
        }
    }
}

/// A condition of a short path whose omission would show from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No frame is longer than the link takes.
    FitsMtu,
    /// The link has no setting that concerns the frame.
    LinkIsIdeal,
    /// Everything that is on the link has arrived.
    LinkIsDrained,
    /// All that the link does is to delay.
    LinkOnlyDelays,
    /// The sender of a burst is not captured.
    SenderIsNotCaptured,
    /// The receiver of a burst is not captured.
    ReceiverIsNotCaptured,
    /// The sender's injector changes no frame.
    NoInjector,
}

/// Whether short paths are open. Tests close them, to hold all paths equal, and leave conditions out, to see that this shows.
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

    /// The route over `link` at `now` of a frame that is up to `longest` bytes on the wire: direct, or copied.
    #[inline(always)]
    pub fn over_link(self, link: &Link, longest: u32, now: Time) -> Route {
        use Condition::{FitsMtu, LinkIsDrained, LinkIsIdeal, LinkOnlyDelays};
        let fits = mtu::fits(longest, link.config().mtu);
        if self.are_closed() || !self.holds(FitsMtu, fits) {
            // A frame that is too long is dropped where the link judges each frame.
            return Route::Copied(Copying::EachOnWire);
        }
        if self.holds(LinkIsIdeal, link.is_ideal()) && self.holds(LinkIsDrained, link.is_drained(now)) {
            Route::Direct
        } else if self.holds(LinkOnlyDelays, link.only_delays(now)) {
            Route::Copied(Copying::Whole)
        } else {
            Route::Copied(Copying::EachOnWire)
        }
    }

    /// The route to `card` over its link of a frame that is up to `longest` bytes on the wire: direct, copied, or dropped if it is
    /// longer than the card's MTU.
    #[inline(always)]
    pub fn to_card(self, card: &Card, longest: u32, now: Time) -> Route {
        if !card.fits_mtu(longest) {
            return Route::Drop(Loss::TooLong);
        }
        self.over_link(&card.cable().to_guest, longest, now)
    }

    /// The route over a trunk with this `link` of a frame that is up to `longest` bytes on the wire: direct, or copied. The frame
    /// crossed `crossed` trunks before, and it and its copies crossed `direct_crossings` of them directly.
    #[inline]
    pub fn over_trunk(self, link: &Link, longest: u32, crossed: u32, direct_crossings: u32, now: Time) -> Route {
        match self.over_link(link, longest, now) {
            Route::Direct if crossed >= DIRECT_TRUNKS_MAX || direct_crossings >= DIRECT_CROSSINGS_MAX => {
                Route::Copied(Copying::Whole)
            }
            route => route,
        }
    }

    /// Longest frame that may follow one which began with `header` and went directly from card `from` to card `to` over their two
    /// links, in a burst, without a decision of its own; `None` if none may. All frames of the burst begin with `header` and ask
    /// nothing of the card.
    #[inline]
    pub fn burst_len_max(self, from: &Card, to: &Card, header: &[u8; ether::ETHERNET_HEADER_LEN]) -> Option<u32> {
        let ether_type = EtherType(u16::from_be_bytes([header[12], header[13]]));
        if ETHER_TYPES_ALONE.contains(&ether_type) {
            return None;
        }
        // Each frame is shown to a capture, and to the injector; with several queues the card steers each.
        let alike = self.holds(Condition::SenderIsNotCaptured, from.capture().is_none())
            && self.holds(Condition::ReceiverIsNotCaptured, to.capture().is_none())
            && self.holds(Condition::NoInjector, from.firmware().misorder().degree() == 0)
            && to.queue_pairs() == 1;
        // Up to the least MTU on the path, what held for the first frame on the links holds for all.
        let mtus = [
            from.settings().mtu,
            to.settings().mtu,
            from.cable().from_guest.config().mtu,
            to.cable().to_guest.config().mtu,
        ];
        alike.then(|| mtu::frame_len_max(mtus.into_iter().fold(u32::MAX, u32::min)))
    }
}

/// Checks the offload request of a frame from a guest, and what its card accepts. Returns what the frame is on the wire.
///
/// # Errors
/// Why the card does not accept it.
#[inline(always)]
pub fn accept(card: &Card, frame: &mut FrameRef<'_>) -> Result<OnWire, Loss> {
    if frame.inline.len() < ether::ETHERNET_HEADER_LEN {
        return Err(Loss::Runt);
    }
    let checked = frame.header.checked(card.sender_offloads(), frame.len);
    frame.header = checked.map_err(|_| Loss::BadOffload)?;
    let wire = frame.on_wire().ok_or(Loss::BadOffload)?;
    let fits = card.fits_mtu(wire.longest) && frame.len <= SEGMENTED_FRAME_MAX;
    if !fits && !takes_long_copy(card, frame) {
        return Err(Loss::TooLong);
    }
    Ok(wire)
}

/// Whether a card that is wired to itself takes a frame that its MTU does not let pass: it asks for a copy, and for nothing else.
#[cold]
fn takes_long_copy(card: &Card, frame: &FrameRef<'_>) -> bool {
    card.settings().loopback
        && frame.len <= COPY_FRAME_LEN_MAX
        && frame.header.is_plain()
        && CopyHeader::decode(frame.inline).is_some()
}

/// The route of an accepted frame from its guest: to the card itself, or to the card's switch. A frame that was `switched`
/// before it had to wait has crossed the link already.
#[inline(always)]
pub fn from_guest(
    card: &Card,
    frame: &FrameRef<'_>,
    wire: &OnWire,
    switched: bool,
    shortcuts: Shortcuts,
    now: Time,
) -> Route {
    if firmware::Card::is_control(frame.inline) {
        Route::ToCard(Service::Control)
    } else if is_card_frame(frame.inline) {
        Route::ToCard(Service::Multicast)
    } else if card.settings().loopback {
        Route::ToCard(Service::Loopback)
    } else if switched {
        Route::Direct
    } else {
        shortcuts.over_link(&card.cable().from_guest, wire.longest, now)
    }
}

/// The route of a frame from a switch to the guest of `card`. `wire` is `None` if the frame's headers do not allow the
/// segmentation that it asks for.
#[inline(always)]
pub fn to_guest(
    card: &mut Card,
    frame: &FrameRef<'_>,
    wire: Option<&OnWire>,
    shortcuts: Shortcuts,
    now: Time,
) -> Route {
    let Some(wire) = wire else {
        return Route::Drop(Loss::BadOffload);
    };
    let over_link = shortcuts.to_card(card, wire.longest, now);
    if let Route::Drop(_) = over_link {
        return over_link;
    }
    if is_card_frame(frame.inline) {
        return match over_link {
            // The card writes the first bytes of such a frame anew, and takes what follows as one piece.
            Route::Direct if frame.rest.len() <= 1 => Route::ToCard(Service::Multicast),
            Route::Direct => Route::Copied(Copying::Whole),
            copied => copied,
        };
    }
    let suits = frame.header.suits(card.receiver_offloads());
    if over_link == Route::Direct && suits && card.waiting().is_empty() {
        return Route::Direct;
    }
    behind_others(card, frame, over_link, suits, now)
}

/// The route of a frame that its receiver does not take directly: because of the link, because the guest does not take it
/// uncut, or because others wait before it.
#[cold]
#[inline(never)]
fn behind_others(card: &mut Card, frame: &FrameRef<'_>, over_link: Route, suits: bool, now: Time) -> Route {
    // Where nothing is modelled, overload waits in the senders' rings and not in the pool.
    if over_link != Route::Copied(Copying::EachOnWire)
        && card.cable().to_guest.is_ideal()
        && frame.transit.may_wait()
        && frame.whole.is_none()
        && !card.waiting().is_empty()
        && let Some(queue) = card.receive_queue(frame.inline)
        // Those that wait may do so for another queue, whose buffers say nothing about those of this one.
        && card.is_worth_waiting_for(queue, now)
    {
        return Route::Wait { queue };
    }
    match over_link {
        _ if !suits => Route::Copied(Copying::EachOnWire),
        Route::Direct => Route::Copied(Copying::Whole),
        copied => copied,
    }
}

/// Whether a frame that receive queue `queue` of `card` refused is worth keeping: the queue lacks buffers, and will soon have some.
pub fn is_worth_keeping(refused: Refused, card: &mut Card, queue: usize, now: Time) -> bool {
    refused == Refused::NoBuffer && card.may_wait_for(queue, now)
}

/// The route of a frame to `card`, none of whose receive rings is ready: it waits for a guest that is to return.
pub fn without_guest(frame: &FrameRef<'_>, card: &Card) -> Route {
    if !frame.transit.is_from_switch() && card.keeps_for_return(frame.inline) {
        Route::WaitAtCard
    } else {
        Route::Drop(Loss::Refused(Refused::NotReady))
    }
}

/// The route of a frame that receive queue `queue` of `card` refused.
pub fn after_refusal(refused: Refused, frame: &FrameRef<'_>, card: &mut Card, queue: usize, now: Time) -> Route {
    if !frame.transit.may_wait() || !is_worth_keeping(refused, card, queue, now) {
        return Route::Drop(Loss::Refused(refused));
    }
    match frame.whole {
        None => Route::Wait { queue },
        // It is in private memory already, where no ring keeps it.
        Some(_) => Route::WaitAtCard,
    }
}
