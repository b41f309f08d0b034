//! The answering end: sends pings back, counts streams, answers a medium message after its last missing fragment.
//!
//! Remembers a bounded number of clients; knows them by address, endpoint and the session they announced.

use std::{
    io::IoSlice,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use ether::MacAddr;
use mxoe::wire::{
    Connect, ConnectKind, Dialect, Eager, Head, Medium, NackCode, NackLib, PEER_INDEX_UNKNOWN, Packet, Preset,
};
use netif::{Interest, Netif, NetifError, Wake};

use super::{
    protocol::{
        ClientId, Count, FRAME_BUFFER_LEN, Operation, SERVER_ENDPOINT, connect, extension, match_info, message,
        parse_match_info, random_session,
    },
    report::ServerReport,
};

/// Clients remembered at once; beyond it the one that was silent longest is forgotten and, should it still run, refused.
const CLIENTS_MAX: usize = 64;
/// How long an answer waits for room in the port before it is given up.
const SEND_PATIENCE: Duration = Duration::from_millis(500);
/// Frames taken between two looks at whether to end: a flood must not keep the server from ending, and a look costs a
/// system call.
const FRAMES_PER_LOOK: u32 = 64;
/// The longest sleep; the server has nothing to do by the clock.
const IDLE: Duration = Duration::from_secs(3600);

struct Client {
    id: ClientId,
    /// The session the client announced; it is also the number of its run.
    session: u32,
    marks: bool,
    peer_index: u16,
    last_seen: u64,
    stream: Count,
    stream_start: Option<Instant>,
    medium: Option<Assembly>,
}

/// A medium message whose fragments are arriving, or that was the last to be complete.
struct Assembly {
    seqnum: u16,
    length: u32,
    arrived: u32,
    bytes: u32,
}

/// The server's state; it outlives the port, so that an interface may go down and come back.
pub struct Server {
    mac: MacAddr,
    preset: Preset,
    dialect: Dialect,
    session: u32,
    clients: Vec<Client>,
    ticks: u64,
    report: ServerReport,
}

/// An answer to be sent.
struct Answer<'a> {
    dst: MacAddr,
    peer_index: u16,
    marked: bool,
    packet: Packet<'a>,
}

impl Server {
    /// A server for frames of `preset` at the address `mac`. Marks are always understood.
    pub fn new(mac: MacAddr, preset: Preset) -> Self {
        Self {
            mac,
            preset,
            dialect: Dialect::new(preset.sizes()).with_marks(true),
            session: random_session(),
            clients: Vec::new(),
            ticks: 0,
            report: ServerReport::default(),
        }
    }

    /// What was done so far.
    pub fn report(&self) -> ServerReport {
        self.report
    }

    /// Serves until `stop` is readable. Whatever arrives, it is answered, counted or ignored, never an error.
    ///
    /// # Errors
    /// Those of the port.
    pub fn run(&mut self, port: &mut impl Netif, stop: BorrowedFd<'_>) -> Result<(), NetifError> {
        let before = port.counters().dropped_no_buffer;
        let result = self.serve(port, stop);
        self.report.ring_full += port.counters().dropped_no_buffer - before;
        result
    }

    fn serve(&mut self, port: &mut impl Netif, stop: BorrowedFd<'_>) -> Result<(), NetifError> {
        let mut buffer = [0; FRAME_BUFFER_LEN];
        let mut echo = [0; mxoe::wire::SMALL_DATA_MAX];
        loop {
            for _ in 0..FRAMES_PER_LOOK {
                let Some(frame) = port.poll_receive()? else { break };
                let len = match self.receive(frame, &mut echo) {
                    Some(answer) => {
                        let head = Head {
                            dst: answer.dst,
                            src: self.mac,
                            peer_index: answer.peer_index,
                            marked: answer.marked,
                        };
                        // Every answer is smaller than the buffer and made of valid values.
                        self.dialect.emit(&head, &answer.packet, &mut buffer).unwrap_or(0)
                    }
                    None => 0,
                };
                if len > 0 && !send(port, &buffer[..len], stop)? {
                    self.report.answers_lost += 1;
                }
            }
            match port.wait(Interest::Receive, Instant::now() + IDLE, Some(stop))? {
                Wake::Stop => return Ok(()),
                Wake::Ready | Wake::Deadline => {}
            }
        }
    }

    fn receive<'a>(&mut self, frame: &[u8], echo: &'a mut [u8; mxoe::wire::SMALL_DATA_MAX]) -> Option<Answer<'a>> {
        let Ok((head, packet)) = self.dialect.decode(frame) else {
            self.report.ignored += 1;
            return None;
        };
        match packet {
            Packet::Connect(p) if p.dst_endpoint == SERVER_ENDPOINT => Some(self.connect(&head, &p)?),
            Packet::Tiny(p) | Packet::Small(p) if p.dst_endpoint == SERVER_ENDPOINT => self.eager(&head, &p, echo),
            Packet::Medium(p) if p.dst_endpoint == SERVER_ENDPOINT => self.medium(&head, &p, echo),
            _ => {
                self.report.ignored += 1;
                None
            }
        }
    }

    fn connect<'a>(&mut self, head: &Head, p: &Connect) -> Option<Answer<'a>> {
        let ConnectKind::Request { .. } = p.kind else {
            self.report.ignored += 1;
            return None;
        };
        let id = (head.src, p.src_endpoint);
        let marks = p.extension.is_some_and(|e| e.understands_mark());
        let client = Client {
            id,
            session: p.src_session,
            marks,
            peer_index: p.peer_index,
            last_seen: self.ticks,
            stream: Count::default(),
            stream_start: None,
            medium: None,
        };
        self.ticks += 1;
        match self.clients.iter().position(|c| c.id == id) {
            // A repeated request changes nothing.
            Some(at) if self.clients[at].session == p.src_session => {}
            Some(at) => {
                self.clients[at] = client;
                self.report.connects += 1;
            }
            None => {
                if self.clients.len() == CLIENTS_MAX
                    && let Some(at) = (0..CLIENTS_MAX).min_by_key(|at| self.clients[*at].last_seen)
                {
                    self.clients.swap_remove(at);
                }
                self.clients.push(client);
                self.report.connects += 1;
            }
        }
        let reply = ConnectKind::Reply {
            session: self.session,
            status: ConnectKind::STATUS_SUCCESS,
        };
        let reply = connect(
            [SERVER_ENDPOINT, p.src_endpoint],
            p.src_session,
            reply,
            extension(self.preset, true),
        );
        let packet = Packet::Connect(Connect {
            connect_seqnum: p.connect_seqnum,
            ..reply
        });
        Some(Answer {
            dst: head.src,
            peer_index: p.peer_index,
            marked: false,
            packet,
        })
    }

    /// The client of a message, if its session is known and the message names this server's.
    fn client(&mut self, head: &Head, src_endpoint: u8, session: u32, run: u32) -> Option<&mut Client> {
        if session != self.session {
            return None;
        }
        self.ticks += 1;
        let client = self
            .clients
            .iter_mut()
            .find(|c| c.id == (head.src, src_endpoint) && c.session == run)?;
        client.last_seen = self.ticks;
        Some(client)
    }

    fn refuse<'a>(&mut self, head: &Head, src_endpoint: u8, seqnum: u16) -> Option<Answer<'a>> {
        self.report.refused += 1;
        let nack = NackLib {
            src_endpoint: SERVER_ENDPOINT,
            dst_endpoint: src_endpoint,
            code: NackCode::BadSession,
            peer_index: PEER_INDEX_UNKNOWN,
            seqnum,
        };
        let packet = Packet::NackLib(nack);
        Some(Answer {
            dst: head.src,
            peer_index: PEER_INDEX_UNKNOWN,
            marked: false,
            packet,
        })
    }

    fn eager<'a>(
        &mut self,
        head: &Head,
        p: &Eager<'_>,
        echo: &'a mut [u8; mxoe::wire::SMALL_DATA_MAX],
    ) -> Option<Answer<'a>> {
        let Some((operation, run)) = parse_match_info(p.match_info) else {
            self.report.ignored += 1;
            return None;
        };
        let Some(client) = self.client(head, p.src_endpoint, p.session, run) else {
            return self.refuse(head, p.src_endpoint, p.seqnum);
        };
        let (operation, len) = match operation {
            Operation::Ping => {
                echo[..p.data.len()].copy_from_slice(p.data);
                (Operation::Pong, p.data.len())
            }
            Operation::Query => {
                echo[..16].copy_from_slice(&client.stream.to_bytes());
                (Operation::Report, 16)
            }
            Operation::Stream => {
                let start = *client.stream_start.get_or_insert_with(Instant::now);
                client.stream.messages += 1;
                client.stream.elapsed_ns = start.elapsed().as_nanos() as u64;
                self.report.stream_messages += 1;
                return None;
            }
            Operation::Pong | Operation::Report => {
                self.report.ignored += 1;
                return None;
            }
        };
        let answer = answer(client, operation, p.seqnum, p.piggyack, &echo[..len]);
        self.report.pings += 1;
        Some(answer)
    }

    fn medium<'a>(
        &mut self,
        head: &Head,
        p: &Medium<'_>,
        echo: &'a mut [u8; mxoe::wire::SMALL_DATA_MAX],
    ) -> Option<Answer<'a>> {
        let Some((Operation::Ping, run)) = parse_match_info(p.match_info) else {
            self.report.ignored += 1;
            return None;
        };
        let Some(client) = self.client(head, p.src_endpoint, p.session, run) else {
            return self.refuse(head, p.src_endpoint, p.seqnum);
        };
        let assembly = match &mut client.medium {
            Some(assembly) if assembly.seqnum == p.seqnum && assembly.length == p.length => assembly,
            // A client sends one message after the other: what was incomplete is given up.
            other => other.insert(Assembly {
                seqnum: p.seqnum,
                length: p.length,
                arrived: 0,
                bytes: 0,
            }),
        };
        // Fewer than 32 fragments: the decoder has checked it.
        let bit = 1 << p.frag_seqnum;
        if assembly.arrived & bit != 0 {
            self.report.duplicates += 1;
            return None;
        }
        assembly.arrived |= bit;
        assembly.bytes += p.data.len() as u32;
        if assembly.bytes < assembly.length {
            return None;
        }
        echo[..4].copy_from_slice(&p.length.to_be_bytes());
        let answer = answer(client, Operation::Pong, p.seqnum, p.piggyack, &echo[..4]);
        self.report.mediums += 1;
        Some(answer)
    }
}

fn answer<'a>(client: &Client, operation: Operation, seqnum: u16, piggyack: u16, data: &'a [u8]) -> Answer<'a> {
    let packet = message(Eager {
        dst_endpoint: client.id.1,
        src_endpoint: SERVER_ENDPOINT,
        seqnum,
        piggyack,
        match_info: match_info(operation, client.session),
        session: client.session,
        data,
    });
    Answer {
        dst: client.id.0,
        peer_index: client.peer_index,
        marked: client.marks,
        packet,
    }
}

fn send(port: &mut impl Netif, frame: &[u8], stop: BorrowedFd<'_>) -> Result<bool, NetifError> {
    let deadline = Instant::now() + SEND_PATIENCE;
    while !port.send(&[IoSlice::new(frame)])? {
        if port.wait(Interest::Send, deadline, Some(stop))? != Wake::Ready || Instant::now() >= deadline {
            return Ok(false);
        }
    }
    Ok(true)
}
