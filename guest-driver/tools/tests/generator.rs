//! Promises of the generator, client and server joined by the in-memory pair; no privileges needed.

use std::{
    io::IoSlice,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    thread,
    time::{Duration, Instant},
};

use ether::MacAddr;
use mxoe::wire::{Dialect, Head, Packet, PacketType, Preset, is_marked};
use netif::{Interest, MemoryPort, Netif, NetifCounters, NetifError, Wake, memory_pair};
use tools::generator::{Client, ClientError, ClientOptions, PingKind, Server, ServerReport};

const CLIENT: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const SERVER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// A port that loses some of the frames sent through it, repeats others, and remembers what was sent.
struct Faulty {
    port: MemoryPort,
    /// Decides from the number of the frame and its bytes how often it goes out.
    copies: fn(usize, &[u8]) -> usize,
    sent: Vec<Vec<u8>>,
    calls: Vec<usize>,
}

/// How long a full queue is waited for at a time; the server empties it all the while.
const PATIENCE: Duration = Duration::from_secs(10);

impl AsFd for Faulty {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

impl Netif for Faulty {
    fn mac(&self) -> MacAddr {
        self.port.mac()
    }
    fn mtu(&self) -> usize {
        self.port.mtu()
    }
    fn poll_receive(&mut self) -> Result<Option<&[u8]>, NetifError> {
        self.port.poll_receive()
    }
    fn send_burst(&mut self, frames: &[&[IoSlice<'_>]]) -> Result<usize, NetifError> {
        self.calls.push(frames.len());
        for parts in frames {
            let frame = parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<u8>>();
            for _ in 0..(self.copies)(self.sent.len(), &frame) {
                // The client may be faster than the server empties the pair's queue.
                while !self.port.send(&[IoSlice::new(&frame)])? {
                    self.port.wait(Interest::Send, Instant::now() + PATIENCE, None)?;
                }
            }
            self.sent.push(frame);
        }
        Ok(frames.len())
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

fn options() -> ClientOptions {
    ClientOptions {
        peer: SERVER,
        preset: Preset::Native1500,
        marks: true,
        timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(10),
    }
}

/// Runs `body` as the client of a running server; gives what the client sent, call by call, and the server's report.
fn with_server<R>(
    server_preset: Preset,
    copies: fn(usize, &[u8]) -> usize,
    body: impl FnOnce(&mut Faulty, BorrowedFd<'_>) -> R,
) -> (R, Faulty, ServerReport) {
    let (client_port, mut server_port) = memory_pair([CLIENT, SERVER], 9000, 4096).unwrap();
    let (stop, stopper) = UnixStream::pair().unwrap();
    let (never, _never_stopper) = UnixStream::pair().unwrap();
    let mut port = Faulty {
        port: client_port,
        copies,
        sent: Vec::new(),
        calls: Vec::new(),
    };
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            let mut server = Server::new(SERVER, server_preset);
            server.run(&mut server_port, stop.as_fd()).unwrap();
            (server.report(), server_port)
        });
        let result = body(&mut port, never.as_fd());
        drop(stopper);
        let (report, _server_port) = server.join().unwrap();
        (result, port, report)
    })
}

fn decode(frame: &[u8]) -> (Head, Packet<'_>) {
    Dialect::new(Preset::Native1500.sizes())
        .with_marks(true)
        .decode(frame)
        .unwrap()
}

#[test]
fn small_messages_are_marked_and_each_is_answered() {
    for (marks, size) in [(true, 0), (true, 32), (false, 33), (true, 128)] {
        let (report, port, server) = with_server(
            Preset::Native1500,
            |_, _| 1,
            |port, stop| {
                let options = ClientOptions { marks, ..options() };
                Client::connect(port, options, stop)
                    .unwrap()
                    .ping(PingKind::Small, size, 300, None)
                    .unwrap()
            },
        );
        assert_eq!(
            (report.messages, report.lost, report.late, report.interrupted),
            (300, 0, 0, false)
        );
        assert!(report.rtt_us_min.unwrap() <= report.rtt_us_median.unwrap());
        assert!(report.rtt_us_median.unwrap() <= report.rtt_us_p99.unwrap());
        assert_eq!(
            (server.connects, server.pings, server.ignored, server.refused),
            (1, 300, 0, 0)
        );
        let kind = if size <= 32 {
            PacketType::Tiny
        } else {
            PacketType::Small
        };
        for frame in &port.sent[1..] {
            let (head, packet) = decode(frame);
            assert_eq!(
                (head.marked, packet.packet_type(), packet.data().len()),
                (marks, kind, size)
            );
        }
        assert!(!is_marked(&port.sent[0]), "a connection is never marked");
    }
}

#[test]
fn a_medium_message_is_23_fragments_in_one_call_with_the_last_one_marked() {
    let (report, port, server) = with_server(
        Preset::Native1500,
        |_, _| 1,
        |port, stop| {
            Client::connect(port, options(), stop)
                .unwrap()
                .ping(PingKind::Medium, 32 * 1024, 20, None)
                .unwrap()
        },
    );
    assert_eq!(
        (report.messages, report.lost, report.split, report.frames_per_message),
        (20, 0, 0, Some(23))
    );
    assert_eq!((server.mediums, server.duplicates), (20, 0));
    assert_eq!(port.calls[1..], [23; 20]);
    for message in port.sent[1..].chunks(23) {
        for (k, frame) in message.iter().enumerate() {
            let (head, Packet::Medium(p)) = decode(frame) else {
                panic!("not a MEDIUM")
            };
            assert_eq!((usize::from(p.frag_seqnum), head.marked), (k, k == 22));
        }
    }
}

#[test]
fn medium_messages_of_every_preset_and_edge_size_are_answered() {
    for preset in Preset::ALL {
        let max = preset.sizes().medium_len_max() as usize;
        let fragment = preset.sizes().fragment_payload() as usize;
        let sizes = [0, 1, 11, fragment, fragment + 1, max];
        let ((), _, server) = with_server(
            preset,
            |_, _| 1,
            |port, stop| {
                let options = ClientOptions { preset, ..options() };
                let mut client = Client::connect(port, options, stop).unwrap();
                for size in sizes {
                    let report = client.ping(PingKind::Medium, size, 3, None).unwrap();
                    assert_eq!((report.messages, report.lost), (3, 0), "{preset} {size}");
                }
                let error = client.ping(PingKind::Medium, max + 1, 1, None).unwrap_err();
                assert_eq!(
                    error.to_string(),
                    format!("a message of {} bytes cannot be sent this way: at most {max}", max + 1)
                );
            },
        );
        assert_eq!(server.mediums, 3 * sizes.len() as u64);
    }
}

#[test]
fn repeated_fragments_are_counted_and_answered_once() {
    let (report, _, server) = with_server(
        Preset::Native1500,
        |_, frame| 1 + usize::from(frame[16] & 0x7f == 39),
        |port, stop| {
            Client::connect(port, options(), stop)
                .unwrap()
                .ping(PingKind::Medium, 5 * 1452, 10, None)
                .unwrap()
        },
    );
    assert_eq!((report.messages, report.lost, report.late), (10, 0, 0));
    assert_eq!((server.mediums, server.duplicates), (10, 50));
}

#[test]
fn a_lost_message_is_counted_and_the_next_one_is_sent() {
    // The connection is frame 0; of the messages every third is lost.
    let (report, _, _) = with_server(
        Preset::Native1500,
        |n, _| usize::from(n % 3 != 2),
        |port, stop| {
            let options = ClientOptions {
                timeout: Duration::from_millis(30),
                ..options()
            };
            Client::connect(port, options, stop)
                .unwrap()
                .ping(PingKind::Small, 16, 30, None)
                .unwrap()
        },
    );
    assert!(report.lost >= 10 && report.messages + report.lost == 30, "{report:?}");
}

#[test]
fn a_peer_that_stops_answering_ends_the_run_with_a_sentence() {
    let (error, _, _) = with_server(
        Preset::Native1500,
        |n, _| usize::from(n <= 5),
        |port, stop| {
            let options = ClientOptions {
                timeout: Duration::from_millis(20),
                ..options()
            };
            Client::connect(port, options, stop)
                .unwrap()
                .ping(PingKind::Small, 16, 1_000_000, None)
                .unwrap_err()
        },
    );
    assert!(matches!(error, ClientError::StoppedAnswering { .. }));
    assert!(
        error
            .to_string()
            .starts_with("02:00:00:00:00:02 stopped answering after "),
        "{error}"
    );
}

#[test]
fn a_peer_that_never_answers_is_given_up_in_time() {
    let (mut port, _peer) = memory_pair([CLIENT, SERVER], 1500, 16).unwrap();
    let (stop, _stopper) = UnixStream::pair().unwrap();
    let options = ClientOptions {
        connect_timeout: Duration::from_secs(1),
        ..options()
    };
    let error = Client::connect(&mut port, options, stop.as_fd()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "02:00:00:00:00:02 did not answer within 1 s: is `mxoe-gen serve` running there, and is this its address?"
    );
    assert_eq!(port.counters().sent, 2, "asked again after half a second");
}

#[test]
fn a_stream_is_counted_by_the_receiver_and_losses_show() {
    let (report, port, server) = with_server(
        Preset::Native1500,
        |n, _| usize::from(n % 10 != 5),
        |port, stop| {
            let mut client = Client::connect(port, options(), stop).unwrap();
            client.stream(128, 16, Duration::from_millis(100)).unwrap()
        },
    );
    assert!(report.messages_sent > 100 && report.messages_per_s > 0.0, "{report:?}");
    let streamed = port.sent.iter().filter(|frame| frame[16] == 38 | 0x80).count() as u64;
    assert_eq!(report.messages_sent, streamed);
    assert_eq!(report.messages_received, server.stream_messages);
    assert!(report.messages_received < report.messages_sent, "losses show");
    assert!(report.messages_received > report.messages_sent * 8 / 10, "{report:?}");
}

#[test]
fn different_presets_fail_at_once_and_name_both() {
    let (error, _, _) = with_server(
        Preset::Native9000,
        |_, _| 1,
        |port, stop| Client::connect(port, options(), stop).err().unwrap(),
    );
    assert_eq!(
        error.to_string(),
        "bad connection: the sizes are native-1500 here and native-9000 at the other end; give both the same --preset"
    );
}

#[test]
fn a_server_that_was_started_again_refuses_old_connections() {
    let (mut port, mut server_port) = memory_pair([CLIENT, SERVER], 1500, 256).unwrap();
    let (never, _never_stopper) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        let mut serve = |stop: UnixStream| {
            Server::new(SERVER, Preset::Native1500)
                .run(&mut server_port, stop.as_fd())
                .unwrap();
        };
        let (stop_first, first) = UnixStream::pair().unwrap();
        let (stop_second, second) = UnixStream::pair().unwrap();
        scope.spawn(move || {
            serve(stop_first);
            serve(stop_second);
        });
        let mut client = Client::connect(&mut port, options(), never.as_fd()).unwrap();
        assert_eq!(client.ping(PingKind::Small, 1, 1, None).unwrap().messages, 1);
        drop(first);
        let error = client.ping(PingKind::Small, 1, 1000, None);
        // The last answers of the first server may still come; then the second one refuses.
        let error = error
            .and_then(|_| client.ping(PingKind::Small, 1, 1_000_000, None))
            .unwrap_err();
        assert!(matches!(error, ClientError::Refused { .. }), "{error}");
        drop(second);
    });
}

#[test]
fn a_stop_ends_a_run_early_with_what_was_measured() {
    let (stop, stopper) = UnixStream::pair().unwrap();
    let (report, _, _) = with_server(
        Preset::Native1500,
        |_, _| 1,
        |port, _| {
            let mut client = Client::connect(port, options(), stop.as_fd()).unwrap();
            assert_eq!(client.ping(PingKind::Small, 16, 50, None).unwrap().messages, 50);
            drop(stopper);
            client.ping(PingKind::Small, 16, 50, None).unwrap()
        },
    );
    assert!(report.interrupted && report.messages < 1_000_000);
}

#[test]
fn an_interface_too_narrow_for_the_preset_is_refused() {
    let (mut port, _peer) = memory_pair([CLIENT, SERVER], 1400, 16).unwrap();
    let (stop, _stopper) = UnixStream::pair().unwrap();
    let error = Client::connect(&mut port, options(), stop.as_fd()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "the interface has MTU 1400, preset native-1500 needs 1500: raise the MTU or choose another --preset"
    );
}
