//! The protocol of one endpoint: connections, reliable messages in order, large messages by rendezvous and pull. Frames and
//! the time go in; frames, events and decisions to be made come out.
//!
//! It does no I/O, reads no clock, never matches a message to a receive, and never touches user memory: see `ENGINE.md`.
//! Section numbers in these pages are those of `mxoe-wire.md`.

use ether::MacAddr;

mod config;
mod connection;
mod counters;
mod data_path;
mod fault_injection;
mod handle;
mod handle_connect;
mod handover;
pub(crate) mod hash;
mod host;
mod immediate_send;
mod outbox;
mod partner;
mod peers;
mod request;
mod seq;
mod settle;
pub(crate) mod slab;
mod take_over;
mod timeout;
mod timers;
mod transfers;
mod transmit;

pub use config::{Config, Limits, PRESET_OTHER, RNDV_THRESHOLD, Timing};
pub(crate) use counters::count_undecodable;
pub use counters::{Counter, Counters, REFERENCE_COUNTERS};
pub use data_path::{DATA_BULK_BIT, DATA_BULK_OFFSET, DataPath, DataPathChoice};
pub use fault_injection::{FaultInjection, Lost, parse_packet_loss};
pub use handover::{BadHandover, HandedPartner, Handover};
pub use host::{
    Arrival, Body, Event, Host, LargeId, PartnerId, PartnerInfo, Payload, Posted, SendError, SendId, SendOptions,
    Status, Token, Transmit, Verdict,
};
pub use peers::{PEERS_DEFAULT, PEERS_MAX, PeerMap, Peers};
pub use seq::Seq;

use self::{
    connection::{handshake::Handshake, receive::Receiver, transmit::Transmitter},
    outbox::Outbox,
    partner::Partners,
    timers::Timers,
    transfers::{receiver::TransferReceiver, sender::TransferSender},
};
use crate::wire::{Dialect, Extension, HEADER_LEN_MAX, SMALL_DATA_MAX};

/// The length of the buffer that [`Engine::poll_transmit`] writes to: the longest header, or a header and inline data.
pub const HEAD_BUFFER_LEN: usize = HEADER_LEN_MAX + SMALL_DATA_MAX;

/// The protocol state of one endpoint. `P` is the interface's peer table.
///
/// An engine has no thread, no socket and no clock. Its owner makes four kinds of calls:
///
/// - **What happened**: [`handle`](Self::handle) with each frame that was received, [`handle_timeout`](Self::handle_timeout) when
///   the time that [`poll_timeout`](Self::poll_timeout) named has come, and [`resume`](Self::resume) when the host has room again for
///   unexpected messages.
/// - **What is wanted**: [`connect`](Self::connect), [`send_inline`](Self::send_inline), [`send`](Self::send),
///   [`begin_immediate_send`](Self::begin_immediate_send) with [`finish_immediate_send`](Self::finish_immediate_send), [`pull`](Self::pull),
///   [`decline`](Self::decline), [`disconnect`](Self::disconnect), [`flush_acks`](Self::flush_acks), and those that set time-outs.
/// - **What comes out**: [`poll_transmit`](Self::poll_transmit) for frames, [`poll_event`](Self::poll_event) for the ends of requests,
///   and [`poll_timeout`](Self::poll_timeout).
/// - **How it stands**: the methods that take `&self` and change nothing.
///
/// After each call of the first two kinds, the owner polls in this order: frames until there are none or there is no room for more,
/// events until there are none, and the time-out last, since sending a frame arms timers. Whether anything is left is told by
/// [`is_quiet`](Self::is_quiet) and [`is_settled`](Self::is_settled). Times never go backwards.
///
/// # Parts
///
/// Each part owns its state and knows no other part. The engine calls them, and takes what one returns to the next (`settle.rs`).
///
/// - `Partners`: the remote endpoints, each with one record for each of the parts below.
/// - `Handshake`: connects without an answer, and agreeing on a conversation.
/// - `Transmitter`: messages out, from posting to their end; their retransmission.
/// - `Receiver`: messages in, in order; early packets and fragments.
/// - `TransferSender`: large messages out, which partners pull.
/// - `TransferReceiver`: large messages in, which are pulled.
/// - `Outbox`: short packets and events that wait to be taken.
/// - `Timers`: when something is due for a partner: an acknowledgement, a retransmission, the rest of a message. Connects and
///   transfers have timers of their own.
#[derive(Debug)]
pub struct Engine<P> {
    config: Config,
    dialect: Dialect,
    give_up_ns: u64,
    peers: P,
    counters: Counters,
    partners: Partners,
    timers: Timers,
    handshake: Handshake,
    transmitter: Transmitter,
    receiver: Receiver,
    transfers_out: TransferSender,
    transfers_in: TransferReceiver,
    outbox: Outbox,
    faults: FaultInjection,
}

impl<P: Peers> Engine<P> {
    /// Makes an engine with nothing connected.
    pub fn new(config: Config, peers: P) -> Self {
        let limits = &config.limits;
        let marks = config.extension.is_some_and(|own| own.flags & Extension::MARK != 0);
        let frame_len_max = config.dialect.sizes().frame_len_max() as usize;
        Self {
            dialect: config.dialect.with_marks(marks),
            give_up_ns: config.timing.give_up_ns,
            peers,
            counters: Counters::default(),
            partners: Partners::new(limits.partners, config.seed),
            timers: Timers::default(),
            handshake: Handshake::new(limits.connects),
            transmitter: Transmitter::new(limits),
            receiver: Receiver::new(limits, frame_len_max),
            transfers_out: TransferSender::new(limits.large_sends, limits.reply_blocks),
            transfers_in: TransferReceiver::new(limits, config.data_path),
            outbox: Outbox::new(limits.control_packets),
            faults: FaultInjection::default(),
            config,
        }
    }

    /// Takes the next event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.outbox.has_no_event() && !self.is_settled() {
            self.settle();
        }
        self.outbox.poll_event()
    }

    /// Returns the counts of what happened to frames.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the configuration that the engine was made with.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the peer table.
    pub const fn peers(&self) -> &P {
        &self.peers
    }

    /// Returns the peer table, to add peers.
    pub const fn peers_mut(&mut self) -> &mut P {
        &mut self.peers
    }

    /// Describes a partner.
    pub fn partner(&self, partner: PartnerId) -> Option<PartnerInfo> {
        let p = self.partners.get(partner.0)?;
        let abilities = p.conversation.abilities();
        Some(PartnerInfo {
            mac: p.address.mac,
            endpoint: p.address.endpoint,
            session: p.conversation.forward(),
            marks: abilities.marks,
            short_acks: abilities.short_acks,
            send_next: p.send.next(),
            recv_next: p.receive.next(),
            unacked: p.send.unacked(),
            srtt_ns: p.send.retransmission.rtt.srtt_ns(),
        })
    }

    /// Returns the address of a partner: its board, its endpoint, and the session that messages to it name.
    #[inline]
    pub fn partner_address(&self, partner: PartnerId) -> Option<(MacAddr, u8, u32)> {
        let p = self.partners.get(partner.0)?;
        Some((p.address.mac, p.address.endpoint, p.conversation.forward()))
    }

    /// Returns the partner whose [`PartnerId::index`] this is.
    #[inline]
    pub fn partner_at(&self, index: usize) -> Option<PartnerId> {
        (index < self.partners.len() as usize).then_some(PartnerId(index as u32))
    }

    /// Returns the partners that are remembered.
    pub fn partners(&self) -> impl Iterator<Item = PartnerId> {
        (0..self.partners.len()).map(PartnerId)
    }

    /// Whether anything is waiting to be sent, acknowledged, pulled or answered.
    pub fn is_idle(&self) -> bool {
        self.transmitter.is_idle()
            && self.handshake.is_idle()
            && self.receiver.is_idle()
            && self.transfers_in.is_idle()
            && self.transfers_out.is_idle()
            && self.outbox.has_no_control()
            && self.partners.iter().all(|partner| partner.ack_pending() == 0)
    }

    /// Whether every message that was sent is over: acknowledged, fetched, or given up.
    pub fn is_delivered(&self) -> bool {
        self.transmitter.is_idle() && self.transfers_out.is_idle()
    }

    /// Whether nothing is to be sent or reported now, unless an acknowledgement that came in ([`Engine::is_settled`])
    /// makes room for more.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.outbox.is_quiet()
            && self.transmitter.is_quiet()
            && self.transfers_out.is_quiet()
            && !self.transfers_in.may_ask()
    }

    /// Whether data of long messages was asked for that comes on the bulk path ([`DataPath::Bulk`]) and has not come yet.
    #[inline]
    pub const fn awaits_bulk_data(&self) -> bool {
        self.transfers_in.awaits_bulk_data()
    }

    /// Whether every acknowledgement that came with a message was acted on: [`Engine::poll_transmit`] does so when there is
    /// nothing to send, [`Engine::poll_event`] when there is nothing to tell. So a message is handed over and answered first.
    #[inline]
    pub const fn is_settled(&self) -> bool {
        self.transmitter.is_settled()
    }

    /// Returns the bytes of memory used for state. Payload never is in the engine, so it does not count.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + self.partners.memory()
            + self.timers.memory()
            + self.handshake.memory()
            + self.transmitter.memory()
            + self.receiver.memory()
            + self.transfers_out.memory()
            + self.transfers_in.memory()
            + self.outbox.memory()
    }
}
