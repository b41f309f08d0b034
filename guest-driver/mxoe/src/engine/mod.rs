//! The protocol of one endpoint: connections, reliable messages in order, large messages by rendezvous and pull. Frames and
//! the time go in; frames, events and decisions to be made come out.
//!
//! It does no I/O, reads no clock, never matches a message to a receive, and never touches user memory: see `ENGINE.md`.
//! Section numbers in these pages are those of `mxoe-wire.md`.

use alloc::{collections::VecDeque, vec::Vec};

use ether::Time;
use hashbrown::HashMap;

mod ack;
mod at_once;
mod config;
mod connect;
mod counters;
mod data_paths;
mod early;
mod give_up;
mod handle;
pub(crate) mod hash;
mod host;
mod large_receive;
mod large_send;
mod losses;
mod message;
mod partner;
mod peers;
mod pull;
mod pull_window;
mod pulls;
mod receive;
mod region;
mod rtt;
mod send;
mod seq;
pub(crate) mod slab;
mod timeout;
mod timers;
mod transmit;

pub use config::{Config, Limits, PRESET_OTHER, RNDV_THRESHOLD, Timing};
pub(crate) use counters::count_undecodable;
pub use counters::{Counter, Counters, REFERENCE_COUNTERS};
pub use data_paths::{DATA_APART_BIT, DATA_APART_OFFSET, DataPath, DataPathChoice};
pub use host::{
    Arrival, Body, Event, Host, LargeId, PartnerId, PartnerInfo, Payload, Posted, SendError, SendId, SendOptions,
    Status, Token, Transmit, Verdict,
};
pub use losses::{Losses, Lost, packet_losses};
pub use peers::{PEERS_DEFAULT, PEERS_MAX, PeerMap, Peers};
pub use seq::Seq;

use self::{
    connect::{Connects, Control},
    data_paths::DataPaths,
    early::EarlyStore,
    hash::Keyed,
    large_receive::Large,
    message::Message,
    partner::Partner,
    pulls::Pulls,
    receive::Partial,
    region::Regions,
    slab::Slab,
    timers::Timers,
};
use crate::wire::{Dialect, Extension, HEADER_LEN_MAX, SMALL_DATA_MAX};

/// Bytes of the buffer that [`Engine::poll_transmit`] writes to: the longest header, or a header and inline data.
pub const HEAD_BUFFER_LEN: usize = HEADER_LEN_MAX + SMALL_DATA_MAX;

/// The protocol state of one endpoint. `P` is the interface's peer table.
#[derive(Debug)]
pub struct Engine<P> {
    config: Config,
    dialect: Dialect,
    give_up_ns: u64,
    peers: P,
    counters: Counters,
    partners: Vec<Partner>,
    partner_of: HashMap<u64, u32, Keyed>,
    partner_timers: Timers,
    connects: Connects,
    control: VecDeque<Control>,
    acks: VecDeque<u32>,
    /// Partners whose newest acknowledgement was read and is not acted on yet.
    unsettled: Vec<u32>,
    messages: Slab<Message>,
    send_queue: VecDeque<(u32, u32)>,
    zombies: u32,
    early_completed_bytes: u32,
    regions: Regions,
    partials: Slab<Partial>,
    early: EarlyStore,
    refused: VecDeque<u32>,
    larges: Slab<Large>,
    pulls: Pulls,
    data_paths: DataPaths,
    events: VecDeque<Event>,
    replies_next: bool,
    last_partner: u32,
    losses: Losses,
}

impl<P: Peers> Engine<P> {
    /// An engine with nothing connected.
    pub fn new(config: Config, peers: P) -> Self {
        let limits = &config.limits;
        let marks = config.extension.is_some_and(|own| own.flags & Extension::MARK != 0);
        Self {
            dialect: config.dialect.with_marks(marks),
            give_up_ns: config.timing.give_up_ns,
            peers,
            counters: Counters::default(),
            partners: Vec::new(),
            partner_of: HashMap::with_hasher(Keyed::new(config.seed)),
            partner_timers: Timers::default(),
            connects: Connects::new(limits.connects),
            control: VecDeque::new(),
            acks: VecDeque::new(),
            unsettled: Vec::new(),
            // Ends of large messages must always find room: there are at most as many as announcements.
            messages: Slab::new(
                limits
                    .sends
                    .saturating_add(limits.announced)
                    .saturating_add(limits.pulls),
            ),
            send_queue: VecDeque::new(),
            zombies: 0,
            early_completed_bytes: 0,
            regions: Regions::new(limits.large_sends),
            partials: Slab::new(limits.partials),
            early: EarlyStore::new(
                limits.early_packets,
                limits.early_packet_bytes,
                config.dialect.sizes().frame_len_max() as usize,
            ),
            refused: VecDeque::new(),
            larges: Slab::new(limits.announced),
            pulls: Pulls::new(limits.pulls, limits.pull_bytes_outstanding),
            data_paths: DataPaths::new(config.data_path),
            events: VecDeque::new(),
            replies_next: false,
            last_partner: 0,
            losses: Losses::default(),
            config,
        }
    }

    /// The next thing that happened.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.events.is_empty() && !self.is_settled() {
            self.settle();
        }
        self.events.pop_front()
    }

    /// When [`Engine::handle_timeout`] is to be called at the latest; `None`: nothing runs.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Time> {
        let next = self
            .partner_timers
            .next()
            .min(self.connects.timers.next())
            .min(self.pulls.timers.next())
            .min(self.regions.timers.next());
        (next != Time::MAX).then_some(next)
    }

    /// What happened to frames so far.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The configuration it was made with.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The peer table.
    pub const fn peers(&self) -> &P {
        &self.peers
    }

    /// The peer table, to add peers.
    pub const fn peers_mut(&mut self) -> &mut P {
        &mut self.peers
    }

    /// Whether anything is waiting to be sent, acknowledged, pulled or answered.
    pub fn is_idle(&self) -> bool {
        self.messages.is_empty()
            && self.connects.is_empty()
            && self.partials.is_empty()
            && self.pulls.is_empty()
            && self.regions.in_use() == 0
            && self.control.is_empty()
            && self.partners.iter().all(|partner| partner.ack_pending() == 0)
    }

    /// Whether nothing is to be sent or told now, unless an acknowledgement that came in ([`Engine::is_settled`]) makes room for
    /// more.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.events.is_empty()
            && self.send_queue.is_empty()
            && self.acks.is_empty()
            && self.control.is_empty()
            && self.regions.blocks.is_empty()
            && !self.pulls.may_ask()
    }

    /// Whether data of long messages was asked for that comes apart ([`DataPath::Apart`]) and has not come yet.
    #[inline]
    pub const fn awaits_data_apart(&self) -> bool {
        self.pulls.apart > 0
    }

    /// Whether every acknowledgement that came with a message was acted on: [`Engine::poll_transmit`] does so when there is
    /// nothing to send, [`Engine::poll_event`] when there is nothing to tell. So a message is handed over and answered first.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.unsettled.is_empty()
    }

    /// Bytes of memory held for state, payload excepted: it is never here.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + self.partners.capacity() * size_of::<Partner>()
            + self.partner_of.allocation_size()
            + self.partner_timers.memory()
            + self.connects.memory()
            + self.control.capacity() * size_of::<Control>()
            + self.acks.capacity() * size_of::<u32>()
            + self.unsettled.capacity() * size_of::<u32>()
            + self.messages.memory()
            + self.send_queue.capacity() * size_of::<(u32, u32)>()
            + self.regions.memory()
            + self.partials.memory()
            + self.early.memory()
            + self.refused.capacity() * size_of::<u32>()
            + self.larges.memory()
            + self.pulls.memory()
            + self.events.capacity() * size_of::<Event>()
    }
}
