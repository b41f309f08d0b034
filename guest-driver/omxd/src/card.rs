//! A card that endpoints drive themselves: each endpoint has the queue pair behind its number, the authority the first
//! one. The card steers an endpoint's frames to its pair while it is open, and all others to the first.

use std::{
    collections::VecDeque,
    io::IoSlice,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use ether::{EtherType, MacAddr};
use firmware::{
    CONTROL_FRAME_MAX, ENDPOINTS as CARD_ENDPOINTS, INDIRECTION_LEN, SteeringChange, SteeringMode, SteeringTable,
    TABLE_ENTRIES_MAX, TableChange, TableEntries,
    control::{Reply, Request},
};
use netif::{Interest, Netif, NetifCounters, NetifError, VirtioPort, Wake, virtio::PreparedPair};
use weft_authority::OmxdError;
use weft_card_control::{Card as Conversation, CardError};

use crate::{
    marks::{CardState, Frames, arrange},
    own_port::OwnCard,
};

/// Returns the pair of an endpoint.
pub(crate) const fn pair_of(endpoint: u8) -> u16 {
    endpoint as u16 + 1
}

/// Returns how many endpoints a card with so many pairs can have.
pub(crate) fn endpoints_of(pairs: u16) -> u8 {
    u8::try_from(pairs.saturating_sub(1)).unwrap_or(u8::MAX)
}

/// What the card does for endpoints.
pub(crate) struct Pairs {
    /// The card steers frames by endpoint, or why it does not.
    steers: Option<Result<(), String>>,
    /// A bit for each endpoint whose frames go to its pair.
    steered: u32,
}

/// Frames of other hosts that are kept at most while the authority talks with the card.
const KEPT_MAX: usize = 256;
/// The card answers in microseconds; one that is emulated on a busy machine, later.
const ANSWER_LIMIT: Duration = Duration::from_millis(400);

/// The authority's port while it talks with the card: it receives control frames, and holds all others.
struct Talking<'a> {
    port: &'a mut VirtioPort,
    kept: &'a mut VecDeque<Vec<u8>>,
    /// The frame that the caller has.
    lent: Vec<u8>,
}

impl<'a> Talking<'a> {
    fn begin(own: &'a mut OwnCard) -> Self {
        own.port.also_receive(Some(EtherType::CARD_CONTROL));
        Self {
            port: &mut own.port,
            kept: &mut own.kept,
            lent: Vec::new(),
        }
    }
}

impl Drop for Talking<'_> {
    fn drop(&mut self) {
        self.port.also_receive(None);
    }
}

impl AsFd for Talking<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

impl Netif for Talking<'_> {
    fn mac(&self) -> MacAddr {
        self.port.mac()
    }

    fn mtu(&self) -> usize {
        self.port.mtu()
    }

    fn poll_receive(&mut self) -> Result<Option<&[u8]>, NetifError> {
        while let Some(frame) = self.port.poll_receive()? {
            if is_control(frame) {
                self.lent.clear();
                self.lent
                    .extend_from_slice(&frame[..frame.len().min(CONTROL_FRAME_MAX)]);
                return Ok(Some(&self.lent));
            }
            // Others are lost, as in a ring that is full.
            if self.kept.len() < KEPT_MAX {
                self.kept.push_back(frame.to_vec());
            }
        }
        Ok(None)
    }

    fn send_burst(&mut self, frames: &[&[IoSlice<'_>]]) -> Result<usize, NetifError> {
        self.port.send_burst(frames)
    }

    fn wait(
        &mut self,
        interest: Interest,
        deadline: Instant,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Wake, NetifError> {
        self.port.wait(interest, deadline, stop)
    }

    fn counters(&mut self) -> NetifCounters {
        self.port.counters()
    }
}

fn is_control(frame: &[u8]) -> bool {
    let kind = frame.get(12..14).and_then(|kind| kind.first_chunk());
    kind.is_some_and(|kind| u16::from_be_bytes(*kind) == EtherType::CARD_CONTROL.0)
}

/// Talks with the card over the authority's port.
fn talk<T>(
    own: &mut OwnCard,
    say: impl FnOnce(&mut Conversation<'_, Talking<'_>>) -> Result<T, CardError>,
) -> Result<T, OmxdError> {
    let interface = own.port.facts().address.interface_name();
    // Never readable: the authority does not end while it asks.
    let (never, _open) = UnixStream::pair().map_err(OmxdError::io("open a socket"))?;
    say(&mut Conversation::new(&mut Talking::begin(own), never.as_fd())).map_err(|error| OmxdError::Card {
        interface,
        sentence: error.to_string(),
    })
}

/// Sends a program's control frame to the card, and returns what it answers; nothing if it is silent.
pub(crate) fn converse(own: &mut OwnCard, frame: &[u8]) -> Result<Vec<Vec<u8>>, OmxdError> {
    if !is_control(frame) || frame.len() > CONTROL_FRAME_MAX {
        return Err(OmxdError::Protocol);
    }
    let mut port = Talking::begin(own);
    port.send(&[IoSlice::new(frame)])?;
    let until = Instant::now() + ANSWER_LIMIT;
    let mut answers = Vec::new();
    // Frames of other hosts end a wait, too.
    while answers.is_empty() && port.wait(Interest::Receive, until, None)? == Wake::Ready {
        while let Some(answer) = port.poll_receive()? {
            answers.push(answer.to_vec());
        }
    }
    Ok(answers)
}

fn steer(
    card: &mut Conversation<'_, Talking<'_>>,
    mode: Option<SteeringMode>,
    table: SteeringTable,
    entries: Option<TableEntries>,
) -> Result<(), CardError> {
    let change = SteeringChange {
        mode,
        table: entries.map(|entries| (table, TableChange::Entries(entries))),
        proposed: false,
    };
    match card.ask(&Request::SetSteering { change })? {
        Reply::SetSteering(_) => Ok(()),
        _ => Err(CardError::Unexpected),
    }
}

impl Pairs {
    /// Begins with these endpoints open, from before: a bit for each.
    pub(crate) const fn new(open: u32) -> Self {
        Self {
            steers: None,
            steered: open,
        }
    }

    /// Arranges with the card what endpoints need: marks, frames for open endpoints to their pairs, and all others to
    /// the first pair.
    pub(crate) fn begin(&mut self, own: &mut OwnCard, frames: Frames) -> CardState {
        let steered = self.steered;
        let queue_of = |table, entry: usize| match u8::try_from(entry) {
            Ok(endpoint) if table == SteeringTable::Endpoints && entry < 32 && steered & 1 << entry != 0 => {
                pair_of(endpoint) as u8
            }
            _ => 0,
        };
        let arranged = talk(own, |card| {
            let state = arrange(card, frames)?;
            for (table, len) in [
                (SteeringTable::Endpoints, CARD_ENDPOINTS),
                (SteeringTable::Indirection, INDIRECTION_LEN),
            ] {
                for first in (0..len).step_by(TABLE_ENTRIES_MAX) {
                    let count = TABLE_ENTRIES_MAX.min(len - first);
                    let queues: Vec<u8> = (first..first + count).map(|entry| queue_of(table, entry)).collect();
                    let entries = TableEntries::new(first as u16, &queues);
                    steer(card, Some(SteeringMode::Endpoint), table, entries)?;
                }
            }
            Ok(state)
        });
        match arranged {
            Ok(state) => {
                self.steers = Some(Ok(()));
                state
            }
            Err(error) => {
                self.steers = Some(Err(error.to_string()));
                CardState::Failed(error.to_string())
            }
        }
    }

    /// Gives the pair of an endpoint to the program that opens it.
    ///
    /// # Errors
    /// A sentence that says why there is none.
    pub(crate) fn open(&mut self, own: &mut OwnCard, endpoint: u8, frames: Frames) -> Result<PreparedPair, OmxdError> {
        if !matches!(self.steers, Some(Ok(()))) {
            // What emulates the card may have been away.
            let _ = self.begin(own, frames);
        }
        if let Some(Err(sentence)) = &self.steers {
            return Err(OmxdError::Card {
                interface: own.port.facts().address.interface_name(),
                sentence: format!("it does not steer frames to endpoints: {sentence}"),
            });
        }
        let pair = pair_of(endpoint);
        own.card.take_back(pair).map_err(NetifError::from)?;
        let prepared = own.card.prepare(pair).map_err(NetifError::from)?;
        self.steer_endpoint(own, endpoint, pair)?;
        self.steered |= 1 << endpoint;
        Ok(prepared)
    }

    fn steer_endpoint(&self, own: &mut OwnCard, endpoint: u8, pair: u16) -> Result<(), OmxdError> {
        let entries = TableEntries::new(endpoint.into(), &[pair as u8]);
        talk(own, |card| steer(card, None, SteeringTable::Endpoints, entries))
    }

    /// Takes the pairs of endpoints back that are not open any more.
    pub(crate) fn keep(&mut self, own: &mut OwnCard, open: u32) {
        let closed = self.steered & !open;
        for endpoint in (0..u32::BITS as u8).filter(|endpoint| closed & 1 << endpoint != 0) {
            self.steered &= !(1 << endpoint);
            let steered = self.steer_endpoint(own, endpoint, 0);
            let taken = own.card.take_back(pair_of(endpoint)).map_err(NetifError::from);
            if let Err(error) = steered.and(taken.map_err(OmxdError::from)) {
                tracing::warn!("{error}; frames for endpoint {endpoint}, which is closed, may be lost");
            }
        }
    }
}
