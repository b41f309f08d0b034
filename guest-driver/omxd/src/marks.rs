//! The authority's arrangement with the card behind its interface: hello, checking of the latency mark, and receive
//! queues by endpoint. Endpoints agree among themselves which peers get marked frames (`mxoe-wire.md` 17). An ordinary
//! card does not answer, so a thread waits.

use std::{
    fmt,
    os::{fd::AsFd, unix::net::UnixStream},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use ether::EtherType;
use firmware::{
    CoalescingChange, SteeringChange, SteeringMode,
    control::{Reply, Request, ability},
};
use netif::{AfPacket, AfPacketOptions, Netif};
use weft_authority::OmxdError;
use weft_card_control::{CONTROL_RING_LEN, Card, CardError};

/// The frames of an interface's endpoints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames {
    /// The frames carry the mark where both ends agreed to it.
    pub(crate) marks: bool,
    pub(crate) ether_type: EtherType,
}

/// What is known of the card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum CardState {
    /// The interface was not switched on yet.
    #[default]
    NotAsked,
    /// The card may still answer.
    Asking,
    /// It is a Weft card that checks the mark in all its receive queues. With more than one queue, and if it can, it
    /// steers each endpoint's frames to one of them.
    ChecksMarks { queues: u16, by_endpoint: bool },
    /// It is a Weft card that does not check the mark, because this interface does not use it or has frames that the
    /// card does not know.
    MarksOff { queues: u16, by_endpoint: bool },
    /// It is a Weft card without that ability.
    WithoutMarks { queues: u16 },
    /// It does not answer, so it is an ordinary card.
    Ordinary { marks: bool },
    /// The card could not be asked, or refused.
    Failed(String),
}

impl fmt::Display for CardState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("not asked yet: the interface is switched off"),
            Self::Asking => f.write_str("being asked"),
            Self::ChecksMarks { queues, by_endpoint } => write!(
                f,
                "a Weft card, {queues} receive queues: frames with the latency mark are announced at once{}",
                queues_of(*by_endpoint)
            ),
            Self::MarksOff { queues, by_endpoint } => write!(
                f,
                "a Weft card, {queues} receive queues: it does not check the latency mark, its coalescing decides alone (`nicctl coalesce`){}",
                queues_of(*by_endpoint)
            ),
            Self::WithoutMarks { queues } => write!(
                f,
                "a Weft card, {queues} receive queues, that does not know the latency mark: its coalescing decides alone \
                 (`nicctl coalesce`)"
            ),
            Self::Ordinary { marks } => write!(
                f,
                "no Weft card: interrupts come as its driver is set (`omx_tune --check`), socket filters sort frames \
                 by endpoint; the latency mark is {}",
                if *marks {
                    "still sent to peers that agreed to it"
                } else {
                    "off"
                }
            ),
            Self::Failed(sentence) => write!(f, "nothing is known about it: {sentence}"),
        }
    }
}

const fn queues_of(by_endpoint: bool) -> &'static str {
    if by_endpoint {
        ", each endpoint has its queue"
    } else {
        ""
    }
}

/// The conversation with the card of one interface.
#[derive(Default)]
pub(crate) struct CardMarks {
    state: Arc<Mutex<CardState>>,
    asking: Option<(UnixStream, JoinHandle<()>)>,
}

impl CardMarks {
    /// Says hello, and turns the checking of marks on or off where the card can; returns at once. The result is in
    /// [`CardMarks::state`], and in the log where it is news.
    ///
    /// # Errors
    /// [`OmxdError::Io`] when the process has no descriptors or threads left.
    pub(crate) fn ask(&mut self, interface: &str, frames: Frames) -> Result<(), OmxdError> {
        self.leave();
        let (stop, stopper) = UnixStream::pair().map_err(OmxdError::io("open a socket"))?;
        let before = std::mem::replace(&mut *lock(&self.state), CardState::Asking);
        let state = self.state.clone();
        let name = interface.to_owned();
        let ask = move || {
            let found = match arrange_by_socket(&name, frames, &stop) {
                Ok(found) => found,
                // The authority ends, or asks again.
                Err(CardError::Interrupted) => return *lock(&state) = before,
                Err(CardError::NoAnswer) => CardState::Ordinary { marks: frames.marks },
                Err(error) => CardState::Failed(error.to_string()),
            };
            if found != before {
                tracing::info!(interface = name, "card: {found}");
            }
            *lock(&state) = found;
        };
        let thread = thread::Builder::new()
            .name("card".to_owned())
            .spawn(ask)
            .map_err(OmxdError::io("start a thread"))?;
        self.asking = Some((stopper, thread));
        Ok(())
    }

    /// Notes what the card was found to do by whom that asked it.
    pub(crate) fn found(&mut self, interface: &str, state: CardState) {
        self.leave();
        let mut known = lock(&self.state);
        if *known != state {
            tracing::info!(interface, "card: {state}");
        }
        *known = state;
    }

    pub(crate) fn state(&self) -> CardState {
        lock(&self.state).clone()
    }

    fn leave(&mut self) {
        if let Some((stopper, thread)) = self.asking.take() {
            // Its end becomes readable.
            drop(stopper);
            // A panic of that thread has been shown already, and concerns nothing else.
            let _ = thread.join();
        }
    }
}

impl Drop for CardMarks {
    fn drop(&mut self) {
        self.leave();
    }
}

fn lock(state: &Mutex<CardState>) -> std::sync::MutexGuard<'_, CardState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn arrange_by_socket(interface: &str, frames: Frames, stop: &UnixStream) -> Result<CardState, CardError> {
    let options = AfPacketOptions {
        ring_len: CONTROL_RING_LEN,
        ..AfPacketOptions::default()
    };
    let mut port = AfPacket::open(interface, EtherType::CARD_CONTROL, &options)?;
    arrange(&mut Card::new(&mut port, stop.as_fd()), frames)
}

/// Says hello to a card, and has it check marks and steer by endpoint as far as it can.
pub(crate) fn arrange(card: &mut Card<'_, impl Netif>, frames: Frames) -> Result<CardState, CardError> {
    let abilities = card.hello()?;
    let queues = abilities.queue_pairs;
    let needed = ability::COALESCING | ability::MARKS;
    if abilities.bits & needed != needed {
        return Ok(CardState::WithoutMarks { queues });
    }
    // The only one whose types and endpoints the card knows.
    let knows_frames = frames.ether_type == EtherType::MXOE;
    let marks = frames.marks && knows_frames;
    let change = CoalescingChange {
        marks: Some(marks),
        ..CoalescingChange::default()
    };
    match card.ask(&Request::SetCoalescing { queue: None, change })? {
        Reply::SetCoalescing(report) if report.coalescing.marks == marks => {}
        _ => return Err(CardError::Unexpected),
    }
    let mut by_endpoint = false;
    if knows_frames && queues > 1 && abilities.bits & ability::STEERING != 0 {
        let change = SteeringChange {
            mode: Some(SteeringMode::Endpoint),
            table: None,
            // A mode that was chosen otherwise stays.
            proposed: true,
        };
        by_endpoint = matches!(
            card.ask(&Request::SetSteering { change })?,
            Reply::SetSteering(report) if report.mode == SteeringMode::Endpoint
        );
    }
    Ok(if marks {
        CardState::ChecksMarks { queues, by_endpoint }
    } else {
        CardState::MarksOff { queues, by_endpoint }
    })
}
