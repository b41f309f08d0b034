//! The asking end: connects, then pings, sends medium messages or streams, and times what comes back.
//!
//! Nothing waits without a limit: a message that is not answered in time is lost and counted, and a peer that answers
//! nothing any more ends the run.

use std::{
    io::IoSlice,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use ether::MacAddr;
use hdrhistogram::Histogram;
use mxoe::wire::{
    ConnectKind, Dialect, Eager, HEADER_LEN_MAX, Head, Medium, PEER_INDEX_UNKNOWN, Packet, Preset, SMALL_DATA_MAX,
};
use netif::{BURST_MAX, Interest, Netif, Wake};

use super::{
    error::{ClientError, LOST_IN_A_ROW_MAX},
    protocol::{
        CLIENT_ENDPOINT, CONNECT_KEY, Count, FRAME_BUFFER_LEN, Operation, SEQNUM_MASK, SERVER_ENDPOINT, connect,
        extension, match_info, message, parse_match_info, random_session,
    },
    report::{PingReport, StreamReport},
};

/// A connection is asked for again after this time (mxoe-wire.md 4.5).
const CONNECT_RESEND: Duration = Duration::from_millis(500);
/// The result of a stream is asked for again after this time: the other end may still be working off its queue.
const QUERY_RESEND: Duration = Duration::from_millis(200);
/// How long an interrupted stream waits for its result.
const INTERRUPTED_PATIENCE: Duration = Duration::from_secs(1);
/// How often a run that never has to sleep looks whether it is to end: a look costs a system call.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Longest time a histogram can hold; time limits are below it.
pub(super) const RTT_NS_MAX: u64 = 120_000_000_000;

/// What all runs have in common.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// Address of the server's interface.
    pub peer: MacAddr,
    /// Sizes; the server must have been given the same.
    pub preset: Preset,
    /// Mark latency-sensitive frames, and ask the server to.
    pub marks: bool,
    /// How long one message may take.
    pub timeout: Duration,
    /// How long the server may take to answer at all.
    pub connect_timeout: Duration,
}

/// What is sent back and forth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PingKind {
    /// One TINY or SMALL of up to 128 bytes each way.
    Small,
    /// A message cut in MEDIUM fragments, the last one marked, sent in one go; answered by one small message.
    Medium,
}

/// Why waiting for a packet ended.
enum Waited<T> {
    Got(T),
    Deadline,
    Stop,
}

/// A connected client.
pub struct Client<'a, N> {
    port: &'a mut N,
    /// Ends a run early; no longer looked at once it has.
    stop: Option<BorrowedFd<'a>>,
    options: ClientOptions,
    dialect: Dialect,
    session: u32,
    server_session: u32,
    head: Head,
    next_seqnum: u32,
    late: u64,
    next_look: Instant,
}

impl<'a, N: Netif> Client<'a, N> {
    /// Connects to the server; tries until it answers or `connect_timeout` is over.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn connect(port: &'a mut N, options: ClientOptions, stop: BorrowedFd<'a>) -> Result<Self, ClientError> {
        let sizes = options.preset.sizes();
        if port.mtu() < sizes.frame_len_max() as usize {
            return Err(ClientError::Mtu {
                mtu: port.mtu(),
                preset: options.preset,
            });
        }
        let head = Head {
            dst: options.peer,
            src: port.mac(),
            peer_index: PEER_INDEX_UNKNOWN,
            marked: false,
        };
        let dialect = Dialect::new(sizes).with_marks(true);
        let session = random_session();
        let mut client = Self {
            port,
            stop: Some(stop),
            options,
            dialect,
            session,
            server_session: 0,
            head,
            next_seqnum: 1,
            late: 0,
            next_look: Instant::now(),
        };
        let request = Packet::Connect(connect(
            [CLIENT_ENDPOINT, SERVER_ENDPOINT],
            session,
            ConnectKind::Request { key: CONNECT_KEY },
            extension(options.preset, options.marks),
        ));
        let give_up = Instant::now() + options.connect_timeout;
        loop {
            let now = Instant::now();
            if now >= give_up {
                let seconds = options.connect_timeout.as_secs();
                return Err(ClientError::NoAnswer {
                    peer: options.peer,
                    seconds,
                });
            }
            client.send_one(&request, false, give_up)?;
            let waited = client.wait_for(give_up.min(now + CONNECT_RESEND), |packet| match packet {
                Packet::Connect(p) if p.src_session == session => match p.kind {
                    ConnectKind::Reply {
                        session,
                        status: ConnectKind::STATUS_SUCCESS,
                    } => Some((session, p.peer_index, p.extension)),
                    _ => None,
                },
                _ => None,
            })?;
            match waited {
                Waited::Deadline => {}
                Waited::Stop => return Err(ClientError::Interrupted),
                Waited::Got((server_session, peer_index, theirs)) => {
                    if let Some(theirs) = theirs
                        && theirs.preset != options.preset.code()
                    {
                        let theirs = Preset::from_code(theirs.preset);
                        return Err(ClientError::Preset {
                            ours: options.preset,
                            theirs,
                        });
                    }
                    client.server_session = server_session;
                    client.head.peer_index = peer_index;
                    return Ok(client);
                }
            }
        }
    }

    /// Sends `count` messages one after the other, each after the answer to the one before, for at most `time_max`.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::StoppedAnswering`] after 20 losses in a row.
    pub fn ping(
        &mut self,
        kind: PingKind,
        size: usize,
        count: u64,
        time_max: Option<Duration>,
    ) -> Result<PingReport, ClientError> {
        let sizes = *self.dialect.sizes();
        let max = match kind {
            PingKind::Small => SMALL_DATA_MAX,
            PingKind::Medium => sizes.medium_len_max() as usize,
        };
        if size > max {
            return Err(ClientError::Size { size, max });
        }
        let payload: Vec<u8> = (0..size).map(|i| i as u8).collect();
        let start = Instant::now();
        let end = time_max.map(|limit| start + limit);
        // Three significant digits; the bounds are constants that the library accepts.
        let mut rtt_ns = Histogram::<u64>::new_with_max(RTT_NS_MAX, 3).expect("constant bounds");
        let mut report = PingReport {
            messages: 0,
            size,
            frames_per_message: (kind == PingKind::Medium).then(|| sizes.fragments_of(size as u32)),
            marks: self.options.marks,
            rtt_us_median: None,
            rtt_us_p99: None,
            rtt_us_min: None,
            lost: 0,
            late: 0,
            split: 0,
            seconds: 0.0,
            interrupted: false,
        };
        let mut lost_in_a_row = 0;
        while report.messages + report.lost < count && end.is_none_or(|end| Instant::now() < end) {
            let seqnum = (self.next_seqnum & SEQNUM_MASK) as u16;
            self.next_seqnum = self.next_seqnum.wrapping_add(1);
            let sent_at = Instant::now();
            if self.is_told_to_end(sent_at)? {
                report.interrupted = true;
                break;
            }
            let deadline = sent_at + self.options.timeout;
            match kind {
                PingKind::Small => {
                    let packet = message(self.eager(Operation::Ping, seqnum, &payload));
                    self.send_one(&packet, self.options.marks, deadline)?;
                }
                PingKind::Medium => {
                    let calls = self.send_medium(seqnum, &payload, deadline)?;
                    report.split += u64::from(calls > 1);
                }
            }
            let run = self.session;
            let answer = self.wait_for(deadline, |packet| match packet {
                Packet::Tiny(p) | Packet::Small(p)
                    if p.seqnum == seqnum && parse_match_info(p.match_info) == Some((Operation::Pong, run)) =>
                {
                    Some(sent_at.elapsed())
                }
                _ => None,
            })?;
            match answer {
                Waited::Got(rtt) => {
                    lost_in_a_row = 0;
                    report.messages += 1;
                    rtt_ns.saturating_record(rtt.as_nanos() as u64);
                }
                Waited::Stop => {
                    report.interrupted = true;
                    break;
                }
                Waited::Deadline => {
                    report.lost += 1;
                    lost_in_a_row += 1;
                    if lost_in_a_row == LOST_IN_A_ROW_MAX {
                        let messages = report.messages;
                        return Err(ClientError::StoppedAnswering {
                            peer: self.options.peer,
                            messages,
                        });
                    }
                }
            }
        }
        report.seconds = start.elapsed().as_secs_f64();
        report.late = self.late;
        report.set_times(&rtt_ns);
        Ok(report)
    }

    /// Sends messages of `size` bytes for `time`, `burst` per system call, then asks the server how many it got.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn stream(&mut self, size: usize, burst: usize, time: Duration) -> Result<StreamReport, ClientError> {
        if size > SMALL_DATA_MAX {
            return Err(ClientError::Size {
                size,
                max: SMALL_DATA_MAX,
            });
        }
        let burst = burst.clamp(1, BURST_MAX);
        let payload = [0x5a; SMALL_DATA_MAX];
        let mut frames = [[0; 256]; BURST_MAX];
        let head = Head {
            marked: self.options.marks,
            ..self.head
        };
        let start = Instant::now();
        let end = start + time;
        let mut report = StreamReport {
            messages_sent: 0,
            messages_received: 0,
            messages_per_s: 0.0,
            size,
            burst,
            marks: self.options.marks,
            seconds: 0.0,
            receive_seconds: 0.0,
            interrupted: false,
        };
        while Instant::now() < end {
            let mut len = 0;
            for frame in &mut frames[..burst] {
                let seqnum = (self.next_seqnum & SEQNUM_MASK) as u16;
                self.next_seqnum = self.next_seqnum.wrapping_add(1);
                let packet = message(self.eager(Operation::Stream, seqnum, &payload[..size]));
                len = self.dialect.emit(&head, &packet, frame)?;
            }
            let parts: [[IoSlice<'_>; 1]; BURST_MAX] = std::array::from_fn(|i| [IoSlice::new(&frames[i][..len])]);
            let list: [&[IoSlice<'_>]; BURST_MAX] = std::array::from_fn(|i| &parts[i][..]);
            let mut sent = 0;
            while sent < burst {
                let taken = self.port.send_burst(&list[sent..burst])?;
                sent += taken;
                report.messages_sent += taken as u64;
                if taken == 0 && self.port.wait(Interest::Send, end, self.stop)? != Wake::Ready {
                    break;
                }
                if Instant::now() >= end {
                    break;
                }
            }
            // The server sends nothing before it is asked, but it may refuse.
            if self.is_told_to_end(Instant::now())? {
                report.interrupted = true;
                break;
            }
        }
        report.seconds = start.elapsed().as_secs_f64();
        let count = self.query(report.interrupted)?;
        report.messages_received = count.messages;
        report.receive_seconds = count.elapsed_ns as f64 / 1e9;
        if count.messages > 1 && count.elapsed_ns > 0 {
            report.messages_per_s = (count.messages - 1) as f64 * 1e9 / count.elapsed_ns as f64;
        }
        Ok(report)
    }

    /// Asks until the server tells its count. A run that was interrupted asks too, but not for long.
    fn query(&mut self, interrupted: bool) -> Result<Count, ClientError> {
        let patience = self.options.connect_timeout;
        let patience = if interrupted {
            // Another signal ends the process as usual.
            self.stop = None;
            patience.min(INTERRUPTED_PATIENCE)
        } else {
            patience
        };
        let give_up = Instant::now() + patience;
        let run = self.session;
        loop {
            let now = Instant::now();
            if now >= give_up {
                return Err(ClientError::NoAnswer {
                    peer: self.options.peer,
                    seconds: patience.as_secs(),
                });
            }
            let packet = message(self.eager(Operation::Query, 0, &[]));
            self.send_one(&packet, self.options.marks, give_up)?;
            let waited = self.wait_for(give_up.min(now + QUERY_RESEND), |packet| match packet {
                Packet::Tiny(p) if parse_match_info(p.match_info) == Some((Operation::Report, run)) => {
                    Count::from_bytes(p.data)
                }
                _ => None,
            })?;
            match waited {
                Waited::Got(count) => return Ok(count),
                Waited::Stop => return Err(ClientError::Interrupted),
                Waited::Deadline => {}
            }
        }
    }

    fn eager<'d>(&self, operation: Operation, seqnum: u16, data: &'d [u8]) -> Eager<'d> {
        Eager {
            dst_endpoint: SERVER_ENDPOINT,
            src_endpoint: CLIENT_ENDPOINT,
            seqnum,
            piggyack: seqnum,
            match_info: match_info(operation, self.session),
            session: self.server_session,
            data,
        }
    }

    fn send_one(&mut self, packet: &Packet<'_>, marked: bool, deadline: Instant) -> Result<(), ClientError> {
        let mut buffer = [0; FRAME_BUFFER_LEN];
        let len = self.dialect.emit(&Head { marked, ..self.head }, packet, &mut buffer)?;
        self.send_all(&[&[IoSlice::new(&buffer[..len])]], deadline)?;
        Ok(())
    }

    /// Sends all fragments in one go, headers and data as separate pieces; returns how many calls it took.
    fn send_medium(&mut self, seqnum: u16, payload: &[u8], deadline: Instant) -> Result<u32, ClientError> {
        let sizes = *self.dialect.sizes();
        let count = sizes.fragments_of(payload.len() as u32) as usize;
        let size = sizes.fragment_payload() as usize;
        let mut headers = [[0; HEADER_LEN_MAX]; mxoe::wire::FRAGMENTS_MAX as usize];
        let mut header_len = 0;
        let fragment = |k: usize| &payload[k * size..payload.len().min((k + 1) * size)];
        for (k, header) in headers[..count].iter_mut().enumerate() {
            let packet = Packet::Medium(Medium {
                dst_endpoint: SERVER_ENDPOINT,
                src_endpoint: CLIENT_ENDPOINT,
                length: payload.len() as u32,
                seqnum,
                piggyack: seqnum,
                match_info: match_info(Operation::Ping, self.session),
                session: self.server_session,
                frag_seqnum: k as u8,
                frag_pipeline: Medium::pipeline_of(&sizes),
                data: fragment(k),
            });
            // Only the last fragment is latency-sensitive (papers.md M-GF3).
            let head = Head {
                marked: self.options.marks && k + 1 == count,
                ..self.head
            };
            header_len = self.dialect.emit_header(&head, &packet, header)?;
        }
        // A message below the shortest frame is padded behind its data.
        let padding = [0; mxoe::wire::FRAME_LEN_MIN];
        let pad_len = mxoe::wire::FRAME_LEN_MIN.saturating_sub(header_len + payload.len());
        let parts: [[IoSlice<'_>; 3]; mxoe::wire::FRAGMENTS_MAX as usize] = std::array::from_fn(|k| {
            let (data, pad_len) = if k < count {
                (fragment(k), pad_len)
            } else {
                (&[][..], 0)
            };
            [
                IoSlice::new(&headers[k][..header_len]),
                IoSlice::new(data),
                IoSlice::new(&padding[..pad_len]),
            ]
        });
        let list: [&[IoSlice<'_>]; mxoe::wire::FRAGMENTS_MAX as usize] = std::array::from_fn(|k| &parts[k][..]);
        self.send_all(&list[..count], deadline)
    }

    /// Hands all frames to the port, waiting for room until `deadline`; what did not fit by then is lost, and shows as a
    /// message without an answer.
    fn send_all(&mut self, frames: &[&[IoSlice<'_>]], deadline: Instant) -> Result<u32, ClientError> {
        let (mut sent, mut calls) = (0, 0);
        while sent < frames.len() {
            sent += self.port.send_burst(&frames[sent..])?;
            calls += 1;
            if sent < frames.len()
                && (self.port.wait(Interest::Send, deadline, self.stop)? != Wake::Ready || Instant::now() >= deadline)
            {
                break;
            }
        }
        Ok(calls)
    }

    /// True once the caller's descriptor is readable; also takes what has arrived. Looks only now and then.
    fn is_told_to_end(&mut self, now: Instant) -> Result<bool, ClientError> {
        if now < self.next_look {
            return Ok(false);
        }
        self.next_look = now + LOOK_EVERY;
        Ok(matches!(self.wait_for(now, |_| None::<()>)?, Waited::Stop))
    }

    /// Looks at packets for this client until `accept` takes one, sleeping in between.
    fn wait_for<T>(
        &mut self,
        deadline: Instant,
        mut accept: impl FnMut(&Packet<'_>) -> Option<T>,
    ) -> Result<Waited<T>, ClientError> {
        loop {
            while let Some(frame) = self.port.poll_receive()? {
                let Ok((head, packet)) = self.dialect.decode(frame) else {
                    continue;
                };
                if head.src != self.options.peer {
                    continue;
                }
                if let Some(found) = accept(&packet) {
                    return Ok(Waited::Got(found));
                }
                match packet {
                    Packet::NackLib(nack) if nack.dst_endpoint == CLIENT_ENDPOINT => {
                        return Err(ClientError::Refused {
                            peer: self.options.peer,
                        });
                    }
                    Packet::Tiny(p) | Packet::Small(p)
                        if parse_match_info(p.match_info) == Some((Operation::Pong, self.session)) =>
                    {
                        self.late += 1;
                    }
                    _ => {}
                }
                // Others may send without end.
                if Instant::now() >= deadline {
                    break;
                }
            }
            match self.port.wait(Interest::Receive, deadline, self.stop)? {
                Wake::Ready => {}
                Wake::Deadline => return Ok(Waited::Deadline),
                Wake::Stop => return Ok(Waited::Stop),
            }
        }
    }
}
