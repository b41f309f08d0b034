//! The protocol between programs and the authority, over a Unix socket that preserves message boundaries: one JSON text
//! per message, with file descriptors beside it. One connection stands for one endpoint, or for a program that only
//! asks.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use ether::EtherType;
use netif::{
    Interface, PreparedSocket, RingLayout,
    virtio::{PairLayout, PairPlace, Route},
};
use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    OmxdError,
    esp::{EspReply, EspRequest},
    fd_quarantine::{self, FDS_OF_A_MESSAGE_MAX, First},
};

/// Longest message: the status of a board with 32 endpoints and all counters.
const MESSAGE_LEN_MAX: usize = 16 * 1024;
/// At most this many descriptors come with a message.
pub const FDS_MAX: usize = 8;
/// Above this number of threads no more descriptors of strangers are inspected: threads that do so cannot end while
/// such a descriptor blocks.
const THREADS_MAX: usize = 64;

/// The number that stands for the raw endpoint (`mxoe-wire.md` 1.3).
pub const RAW_ENDPOINT: u8 = 255;

/// The program that has an endpoint, for `omx_endpoint_info`.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct OpenEndpoint {
    /// Endpoint number; [`RAW_ENDPOINT`] for the raw one.
    pub endpoint: u8,
    /// Process number.
    pub pid: u32,
    /// The program's name, as it says.
    pub command: String,
}

/// The status of an interface and its authority.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct BoardStatus {
    /// Name of the interface.
    pub interface: String,
    /// Its address.
    pub mac: String,
    /// Its MTU in bytes, now.
    pub mtu: usize,
    /// Whether it is switched on, now.
    pub up: bool,
    /// The board's name.
    pub name: String,
    /// Sizes on the wire.
    pub preset: String,
    /// EtherType of all frames.
    #[serde(default = "ether_type_by_default")]
    pub ether_type: u16,
    /// A sentence that says what the card behind the interface does with the latency mark.
    pub card: String,
    /// Process number of the authority.
    pub pid: u32,
    /// Endpoints there can be.
    pub endpoints_max: u8,
    /// Peers there can be, this board among them.
    #[serde(default = "peers_default")]
    pub peers_max: u32,
    /// Peers come from root alone, not from discovery.
    #[serde(default)]
    pub static_peers: bool,
    /// Endpoints that are open.
    pub endpoints: Vec<OpenEndpoint>,
    /// The raw endpoint, while it is open.
    pub raw: Option<OpenEndpoint>,
    /// Microseconds that idle processors may take to wake up while endpoints are open, if that is limited.
    #[serde(default)]
    pub cpu_latency_us_max: Option<u32>,
    /// What the authority and all endpoints counted, in the order of `mxoe::engine::Counter`.
    pub counters: Vec<u32>,
}

/// Returns the number of peers for an authority that does not say it.
const fn peers_default() -> u32 {
    crate::PEERS
}

/// A request of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Asks whether an authority is there.
    Hello,
    /// Opens an endpoint for this connection: this number, or any. A program that sends a
    /// [`netif::PreparedSocket::proof`] with the request and sets `rest_socket` may get sockets without filters.
    Open {
        /// The number that is wanted.
        endpoint: Option<u8>,
        /// The program, as it says.
        command: String,
        /// The program can use a second packet socket, for bulk data.
        #[serde(default)]
        data_socket: bool,
        /// The program keeps a socket that receives nothing, behind the others.
        #[serde(default)]
        rest_socket: bool,
        /// The program can use a socket for direct transmit.
        #[serde(default)]
        direct_socket: bool,
        /// The program notes what it owes behind its counts ([`crate::HandoverMemory`]).
        #[serde(default)]
        handover: bool,
    },
    /// Takes back the endpoint that this process got from an earlier authority.
    Resume {
        /// Its number.
        endpoint: u8,
        /// The program's name, as it says.
        command: String,
        /// As in [`Request::Open`].
        #[serde(default)]
        handover: bool,
    },
    /// Opens the raw endpoint for this connection. Its program receives raw frames with a socket of its own. Only the
    /// system's administrator may.
    OpenRaw {
        /// The program, as it says.
        command: String,
    },
    /// Asks for the index of a peer, which is added if it is not there.
    AddPeer {
        /// Its address.
        mac: u64,
    },
    /// Asks for memory shared with another endpoint of the interface.
    #[serde(rename = "Meet")]
    Pair {
        /// Its number.
        endpoint: u8,
        /// The last pair with that endpoint, which is over.
        known: Option<u64>,
    },
    /// Gives a name to a peer, or to the board. Only the system's administrator may.
    SetName {
        /// The peer's address; `None`: the board.
        mac: Option<u64>,
        /// The name.
        name: String,
    },
    /// Has the names of peers asked for anew. Only the system's administrator may.
    ClearNames,
    /// Sets the counts back to 0. Only the system's administrator may.
    ClearCounters,
    /// Asks for the status.
    Status,
    /// Sends a control frame to the card behind an interface whose card programs drive themselves. Only the system's
    /// administrator may.
    Converse {
        /// The frame.
        frame: Vec<u8>,
    },
    /// Asks for something of ESP.
    Esp(EspRequest),
    /// Asks an authority that was started on demand to end, because the one that was set up for this interface wants to
    /// start.
    GiveWay,
}

/// A message on an endpoint's channel for visits: it makes a pair of this endpoint and another one. The socket and the
/// memory of the pair come with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Visit {
    /// The other endpoint's number.
    pub endpoint: u8,
    /// The endpoint that gets this visit asked for the pair.
    pub asked: bool,
    /// The pair's number, never used again by this authority.
    pub pair: u64,
    /// The other endpoint is gone; no descriptors come with this visit.
    #[serde(default)]
    pub over: bool,
}

impl Visit {
    /// Stands for any pair's number: the pairs that an earlier authority made are not known.
    pub const ANY_PAIR: u64 = u64::MAX;
}

/// Why the authority refuses a request.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Refusal {
    /// No such endpoint number.
    BadEndpoint,
    /// The endpoint is open already, or all are.
    Busy,
    /// The peer table is full, or the address is no peer's.
    NoPeer,
    /// The endpoint to be paired with is not open.
    NotOpen,
    /// The endpoint to be paired with belongs to a program that has not come back yet after the authority was restarted.
    NotBack,
    /// Only the system's administrator may.
    NotAllowed,
    /// There is no ESP on this interface.
    NoEsp,
    /// The connection is no token of this authority, or what it stood for is over.
    NoToken,
    /// The interface is switched off, or too small a one for these sizes on the wire.
    Interface,
    /// The operating system refused something.
    System,
}

/// An answer of the authority.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// An authority is there.
    Hello {
        /// It was started by a program, with no settings of its own.
        on_demand: bool,
    },
    /// The endpoint is open. With it come the packet socket, the peer table, the channel for visits, the memory for
    /// counters and, as far as they exist, the socket for bulk data, the one that receives nothing, and the one for
    /// direct transmit with its memory.
    Opened(Opened),
    /// The endpoint was taken back. With it come a new channel for visits and new memory for counters.
    Resumed,
    /// What was asked for was done.
    Done,
    /// The pair is in the channel for visits, or was.
    #[serde(rename = "Met")]
    Paired,
    /// The peer is in the table.
    Peer {
        /// Its index.
        index: u16,
    },
    /// The status, with which the peer table comes.
    Status(BoardStatus),
    /// The control frames that the card answered with, none if it is silent.
    Said {
        /// The frames.
        frames: Vec<Vec<u8>>,
    },
    /// Something of ESP was done.
    Esp(EspReply),
    /// The request was refused.
    Refused {
        /// Why, as a number for programs.
        reason: Refusal,
        /// Why, for people.
        sentence: String,
    },
}

/// An open endpoint, without its descriptors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Opened {
    /// Its number.
    pub endpoint: u8,
    /// Name of its interface.
    pub interface_name: String,
    /// Index of its interface.
    pub interface_index: i32,
    /// MTU of its interface, in bytes.
    pub mtu: usize,
    /// Bytes of a block of its receive ring.
    pub block_len: usize,
    /// Blocks of its receive ring.
    pub blocks: usize,
    /// Bytes of a slot of its receive ring.
    pub slot_len: usize,
    /// Sizes on the wire.
    pub preset: String,
    /// Name of its board.
    pub board_name: String,
    /// [`mxoe::engine::Timing::pull_queue_ns_max`] of this path.
    pub pull_queue_ns_max: u64,
    /// EtherType of its frames.
    #[serde(default = "ether_type_by_default")]
    pub ether_type: u16,
    /// The endpoint announces the latency mark.
    #[serde(default = "marks_by_default")]
    pub marks: bool,
    /// The program is to find out whether the bulk path is quicker; otherwise all data takes it where there is a socket
    /// for it.
    #[serde(default)]
    pub learns_data_path: bool,
    /// Until that is known, data takes the bulk path.
    #[serde(default, rename = "data_apart_first")]
    pub bulk_path_first: bool,
    /// The last of the packet sockets receives nothing.
    #[serde(default)]
    pub rest_socket: bool,
    /// The last two descriptors are a socket for direct transmit and its memory, of which this part belongs to the
    /// endpoint.
    #[serde(default)]
    pub direct_part: Option<u32>,
    /// The endpoint has a queue pair of a card instead of packet sockets. The card's memory comes in place of the packet socket, and
    /// behind the memory for counters what the doorbells are mapped with, and what must stay open.
    #[serde(default)]
    pub queue_pair: Option<QueuePair>,
}

/// A queue pair of a card, without its descriptors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueuePair {
    /// The kernel's driver through which the card is reached.
    pub driver: String,
    /// Entries of each ring.
    pub ring_size: u16,
    /// Slots of each ring.
    pub slots: u16,
    /// Descriptors of each slot.
    pub pieces: u16,
    /// Bytes of a slot.
    pub slot_len: u32,
    /// Where the pair's memory begins in the card's, in bytes.
    pub memory_offset: u64,
    /// The number of its receive queue.
    pub queue: u16,
    /// Where its doorbells are, in bytes.
    pub doorbells: [u64; 2],
}

impl QueuePair {
    /// Describes where a prepared pair is.
    pub fn new(route: Route, place: PairPlace) -> Self {
        Self {
            driver: route.driver().to_owned(),
            ring_size: place.layout.ring_size,
            slots: place.layout.slots,
            pieces: place.layout.pieces,
            slot_len: place.layout.slot_len,
            memory_offset: place.memory_offset,
            queue: place.queue,
            doorbells: place.doorbells,
        }
    }

    /// Returns where the pair is; `None` for a route to a card that is not known here.
    pub fn place(&self) -> Option<(Route, PairPlace)> {
        let layout = PairLayout {
            ring_size: self.ring_size,
            slots: self.slots,
            pieces: self.pieces,
            slot_len: self.slot_len,
        };
        let place = PairPlace {
            layout,
            memory_offset: self.memory_offset,
            queue: self.queue,
            doorbells: self.doorbells,
        };
        Some((Route::of_driver(&self.driver)?, place))
    }
}

const fn ether_type_by_default() -> u16 {
    EtherType::MXOE.0
}

const fn marks_by_default() -> bool {
    true
}

impl Opened {
    /// Returns the layout of the endpoint's receive ring.
    pub const fn layout(&self) -> RingLayout {
        RingLayout {
            block_len: self.block_len,
            blocks: self.blocks,
            slot_len: self.slot_len,
        }
    }

    /// Returns the endpoint's interface, whose address is `mac`.
    pub fn interface(&self, mac: ether::MacAddr) -> Interface {
        Interface {
            name: self.interface_name.clone(),
            index: self.interface_index,
            mac,
            mtu: self.mtu,
            up: true,
            loopback: false,
        }
    }
}

/// Sends one message with at most [`FDS_MAX`] descriptors.
///
/// # Errors
/// [`OmxdError::Gone`] when the other side is, [`OmxdError::Io`].
pub fn send<T: Serialize>(socket: BorrowedFd<'_>, message: &T, fds: &[BorrowedFd<'_>]) -> Result<(), OmxdError> {
    let text = serde_json::to_vec(message).map_err(|_| OmxdError::Protocol)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(OmxdError::Protocol);
    }
    loop {
        match sendmsg(socket, &[IoSlice::new(&text)], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(OmxdError::Gone),
            Err(error) => return Err(OmxdError::io("write to omxd's socket")(error)),
        }
    }
}

/// A received message with its descriptors.
pub(crate) struct Received<T> {
    pub message: T,
    pub fds: Vec<OwnedFd>,
    /// More descriptors came than this process has numbers left for.
    pub cut: bool,
}

/// Receives one message. `Ok(None)`: there is nothing now, on a socket that does not block.
pub(crate) fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> Result<Option<(T, Vec<OwnedFd>)>, OmxdError> {
    match receive_cut(socket)? {
        Some(Received { cut: true, .. }) => Err(OmxdError::io("take the descriptors of omxd")(Errno::MFILE)),
        received => Ok(received.map(|received| (received.message, received.fds))),
    }
}

/// Receives one message, even if descriptors are missing.
pub(crate) fn receive_cut<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> Result<Option<Received<T>>, OmxdError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let Some(Text { text, fds, cut }) = receive_text(socket, &mut space)? else {
        return Ok(None);
    };
    let message = parse(&text)?;
    Ok(Some(Received { message, fds, cut }))
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, OmxdError> {
    if text.is_empty() {
        return Err(OmxdError::Gone);
    }
    serde_json::from_slice(text).map_err(|_| OmxdError::Protocol)
}

/// A message as it came.
struct Text {
    text: Vec<u8>,
    fds: Vec<OwnedFd>,
    cut: bool,
}

fn receive_text(socket: BorrowedFd<'_>, space: &mut [MaybeUninit<u8>]) -> Result<Option<Text>, OmxdError> {
    let mut text = vec![0; MESSAGE_LEN_MAX];
    let mut ancillary = RecvAncillaryBuffer::new(space);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut text)];
        match recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::CONNRESET) => return Err(OmxdError::Gone),
            Err(error) => return Err(OmxdError::io("read from omxd's socket")(error)),
        }
    };
    // The kernel leaves out what this process has no numbers for.
    let cut = received.flags.contains(ReturnFlags::CTRUNC);
    let fds = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    text.truncate(received.bytes);
    Ok(Some(Text { text, fds, cut }))
}

/// Receives a request of a program that may show a descriptor, and says whether what it shows is a
/// [proof](PreparedSocket::is_proof). `Ok(None)`: there is nothing now.
///
/// # Errors
/// [`OmxdError::Gone`] when the program is, [`OmxdError::Protocol`], [`OmxdError::Io`].
pub fn receive_shown<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> Result<Option<(T, bool)>, OmxdError> {
    match fd_quarantine::first(socket, false) {
        First::Nothing => Ok(None),
        First::Over => Err(OmxdError::Gone),
        First::Plain => Ok(receive_cut(socket)?.map(|received| (received.message, false))),
        First::Descriptors if threads() > THREADS_MAX => Err(OmxdError::Protocol),
        First::Descriptors if !fd_quarantine::is_available() => {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_OF_A_MESSAGE_MAX))];
            let Some(Text { text, fds, .. }) = receive_text(socket, &mut space)? else {
                return Ok(None);
            };
            fd_quarantine::disable_linger(&fds);
            let is_proof = fds.iter().any(|fd| PreparedSocket::is_proof(fd.as_fd()));
            Ok(Some((parse(&text)?, is_proof)))
        }
        First::Descriptors => {
            let receive = |socket: BorrowedFd<'_>| -> Result<_, OmxdError> {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_OF_A_MESSAGE_MAX))];
                let received = receive_text(socket, &mut space)?;
                Ok(received.map(|Text { text, fds, .. }| {
                    let is_proof = fds.iter().any(|fd| PreparedSocket::is_proof(fd.as_fd()));
                    // It is closed when the thread ends.
                    std::mem::forget(fds);
                    (text, is_proof)
                }))
            };
            // The thread ends when the request was read.
            let (shown, _quarantine) = fd_quarantine::in_quarantine(socket, receive).ok_or(OmxdError::Protocol)?;
            match shown? {
                Some((text, is_proof)) => Ok(Some((parse(&text)?, is_proof))),
                None => Ok(None),
            }
        }
    }
}

/// Receives a message without its descriptors, for which there are no numbers left here.
pub(crate) fn receive_without<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> Result<Option<T>, OmxdError> {
    let receive = |socket: BorrowedFd<'_>| -> Result<_, OmxdError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let received = receive_text(socket, &mut space)?;
        Ok(received.map(|Text { text, fds, .. }| {
            // It is closed when the thread ends.
            std::mem::forget(fds);
            text
        }))
    };
    let (received, _quarantine) = fd_quarantine::in_quarantine(socket, receive).ok_or(OmxdError::Protocol)?;
    received?.map(|text| parse(&text)).transpose()
}

/// Counts the threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_have_the_names_that_other_versions_know() {
        let command = || "a".to_owned();
        let text = |request: &Request| serde_json::to_string(request).expect("plain data");
        for (request, expected) in [
            (Request::Hello, r#""Hello""#),
            (
                Request::Open {
                    endpoint: Some(3),
                    command: command(),
                    data_socket: true,
                    rest_socket: false,
                    direct_socket: true,
                    handover: true,
                },
                r#"{"Open":{"endpoint":3,"command":"a","data_socket":true,"rest_socket":false,"direct_socket":true,"handover":true}}"#,
            ),
            (
                Request::Resume {
                    endpoint: 3,
                    command: command(),
                    handover: true,
                },
                r#"{"Resume":{"endpoint":3,"command":"a","handover":true}}"#,
            ),
            (
                Request::OpenRaw { command: command() },
                r#"{"OpenRaw":{"command":"a"}}"#,
            ),
            (Request::AddPeer { mac: 7 }, r#"{"AddPeer":{"mac":7}}"#),
            (
                Request::Pair {
                    endpoint: 1,
                    known: None,
                },
                r#"{"Meet":{"endpoint":1,"known":null}}"#,
            ),
            (Request::ClearNames, r#""ClearNames""#),
            (Request::ClearCounters, r#""ClearCounters""#),
            (Request::Status, r#""Status""#),
            (Request::GiveWay, r#""GiveWay""#),
        ] {
            assert_eq!(text(&request), expected);
        }
        let text = |reply: &Reply| serde_json::to_string(reply).expect("plain data");
        for (reply, expected) in [
            (Reply::Resumed, r#""Resumed""#),
            (Reply::Done, r#""Done""#),
            (Reply::Paired, r#""Met""#),
            (Reply::Peer { index: 2 }, r#"{"Peer":{"index":2}}"#),
        ] {
            assert_eq!(text(&reply), expected);
        }
    }
}
