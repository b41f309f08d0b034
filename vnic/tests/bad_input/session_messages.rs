//! The "Bad input", session: odd vhost-user messages in any order against a live `vnicd`. Neighbours notice nothing, the
//! port serves the next guest, nothing is left over. What each message deserves is not judged here but in `session_rules.rs`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::daemon::{Daemon, Neighbours, assert_same_use, introduce};
use weft_vnic_testkit::{
    F_PROTOCOL_FEATURES, F_VERSION_1, Frontend, FrontendConfig, GuestMemory, MEMORY_BASE, RawSession, Seed,
    memory_table_body,
};

/// Connections that send nonsense until they are ended or have sent all.
const CONNECTIONS: u32 = 1500;
/// Messages of one connection at most.
const MESSAGES_MAX: u64 = 12;
/// Connections whose set-up is sound and whose later messages are not.
const LIVE_CONNECTIONS: u32 = 750;
/// Messages that must have been taken of each kind of connection: not all of one are, since the first odd one may end it.
const MESSAGES_MIN: u32 = 2000;
/// Allocator noise granted between two readings of the process's private memory.
const MEMORY_SLACK: u64 = 2 << 20;
/// How long an answer is waited for; most nonsense has none.
const REPLY_WAIT: Duration = Duration::from_millis(2);

const PORTS: &[&str] = &["left", "right", "victim"];

/// Files of every kind that a message may wrongly bring.
struct Files {
    memory: GuestMemory,
    others: Vec<OwnedFd>,
}

impl Files {
    fn new() -> Files {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        let (socket, _) = UnixStream::pair().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let folder = std::fs::File::open("/").unwrap();
        let others = vec![event, pipe, socket.into(), null.into(), folder.into()];
        Files {
            memory: GuestMemory::new(2 << 20, 1).unwrap(),
            others,
        }
    }

    fn any(&self, seed: &mut Seed) -> BorrowedFd<'_> {
        let count = self.others.len() as u64;
        match seed.range(0, 2 * count) {
            n if n < count => self.others[n as usize].as_fd(),
            n if n < count + 3 => self.others[0].as_fd(),
            _ => self.memory.regions()[0].fd().as_fd(),
        }
    }

    fn memory_region(&self) -> [u64; 4] {
        [
            MEMORY_BASE,
            self.memory.len() as u64,
            self.memory.user_addr(MEMORY_BASE),
            0,
        ]
    }
}

/// Right body length of a request, as far as it has one (vhost-user specification).
fn right_len(request: u32) -> usize {
    match request {
        1 | 3 | 4 | 15 | 17 | 34 | 36 => 0,
        5 => 8 + 32,
        9 | 37 | 38 => 40,
        _ => 8,
    }
}

/// A message that is sound, odd in one point or in many, and its files.
fn nonsense<'a>(files: &'a Files, seed: &mut Seed) -> (u32, u32, u32, Vec<u8>, Vec<BorrowedFd<'a>>) {
    let request = match seed.range(0, 9) {
        0 => seed.any() as u32 & 0xff,
        1 => seed.odd_number() as u32,
        _ => seed.range(1, 44) as u32,
    };
    let flags = match seed.range(0, 9) {
        0 => seed.any() as u32,
        1 => seed.range(0, 15) as u32,
        n => 1 | if n < 6 { 8 } else { 0 },
    };
    let mut len = right_len(request);
    if seed.chance(1, 4) {
        len = seed.pick(&[0, 1, 7, 8, 12, 39, 40, 41, 72, 264, 4096, 4097, 5000]);
    }
    let mut body: Vec<u8> = match request {
        5 if seed.chance(2, 3) => {
            let region = |seed: &mut Seed| {
                let mut region = files.memory_region();
                if seed.chance(1, 3) {
                    region[seed.range(0, 3) as usize] = seed.odd_number();
                }
                region
            };
            let regions: Vec<_> = (0..seed.range(1, 3)).map(|_| region(seed)).collect();
            let body = memory_table_body(&regions);
            len = if seed.chance(1, 6) { len } else { body.len() };
            body
        }
        37 | 38 if seed.chance(2, 3) => {
            let mut body = 0_u64.to_ne_bytes().to_vec();
            body.extend_from_slice(&memory_table_body(&[files.memory_region()])[8..]);
            body
        }
        // Ring number and a value.
        8..=14 | 18 if seed.chance(2, 3) => {
            let ring = if seed.chance(3, 4) {
                seed.range(0, 1)
            } else {
                seed.odd_number()
            };
            let value = seed.pick(&[0, 1, 2, 256, 0xffff, 0x1_0000, u64::from(u32::MAX)]);
            let mut body = (ring as u32).to_ne_bytes().to_vec();
            body.extend_from_slice(&(value as u32).to_ne_bytes());
            for _ in 0..4 {
                let addr = if seed.chance(2, 3) {
                    files.memory.user_addr(MEMORY_BASE)
                } else {
                    seed.odd_number()
                };
                body.extend_from_slice(&(addr & !0xf).to_ne_bytes());
            }
            body
        }
        2 | 16 if seed.chance(2, 3) => {
            let bits = seed.pick(&[0, F_VERSION_1, F_VERSION_1 | F_PROTOCOL_FEATURES, 9, 1 << 63, u64::MAX]);
            bits.to_ne_bytes().to_vec()
        }
        _ => (0..len).map(|_| seed.any() as u8).collect(),
    };
    body.resize(len, seed.any() as u8);
    // The header's size is mostly that of the body; else the stream is out of step from here on.
    let size = if seed.chance(1, 20) {
        seed.odd_number() as u32
    } else {
        len as u32
    };
    let right_files = usize::from(matches!(request, 5 | 12..=14 | 21 | 37));
    let count = if seed.chance(1, 4) {
        seed.pick(&[0, 1, 2, 8, 33])
    } else {
        right_files
    };
    let attached = (0..count).map(|_| files.any(seed)).collect();
    (request, flags, size, body, attached)
}

fn connect(path: &Path) -> RawSession {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match RawSession::connect(path, REPLY_WAIT) {
            Ok(session) => return session,
            Err(error) => assert!(Instant::now() < deadline, "{}: {error}", path.display()),
        }
    }
}

/// Sends nonsense until the backend has had enough; returns how many messages went out.
fn talk_nonsense(session: &RawSession, files: &Files, seed: &mut Seed) -> u32 {
    let mut sent = 0;
    for _ in 0..seed.range(1, MESSAGES_MAX) {
        let (request, flags, size, body, attached) = nonsense(files, seed);
        if session.send(request, flags, size, &body, &attached).is_err() {
            break;
        }
        sent += 1;
        // Some wait for an answer, some hurry on.
        if seed.chance(1, 8)
            && session
                .receive()
                .is_err_and(|error| error.kind() == std::io::ErrorKind::UnexpectedEof)
        {
            break;
        }
    }
    sent
}

/// A sound guest is served on the port that was talked nonsense to.
fn serves_a_sound_guest(daemon: &Daemon) {
    // The connection before may still be closing; a port turns a second frontend away until then.
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match Frontend::start(FrontendConfig::connect(daemon.socket("victim"))) {
            Ok(_) => return,
            Err(error) => assert!(Instant::now() < deadline, "{error}; vnicd says:\n{}", daemon.log()),
        }
    }
}

#[test]
fn odd_messages_from_a_fresh_connection_hurt_nobody() {
    let daemon = Daemon::start(PORTS);
    let neighbours = Neighbours::start(&daemon);
    let files = Files::new();
    let path = daemon.socket("victim");
    let mut seed = Seed::new(21);
    let (mut messages, mut before) = (0, None);
    for connection in 0..CONNECTIONS {
        let session = connect(&path);
        messages += talk_nonsense(&session, &files, &mut seed);
        drop(session);
        if connection % 250 == 249 {
            serves_a_sound_guest(&daemon);
        }
        if connection == 500 {
            serves_a_sound_guest(&daemon);
            before = Some(daemon.settled_use());
        }
    }
    serves_a_sound_guest(&daemon);
    println!("{messages} odd messages over {CONNECTIONS} connections");
    assert!(messages >= MESSAGES_MIN);
    assert_same_use(&before.unwrap(), &daemon.settled_use(), MEMORY_SLACK);
    neighbours.finish();
    daemon.finish();
}

#[test]
fn odd_messages_amid_a_live_session_hurt_nobody() {
    let daemon = Daemon::start(PORTS);
    let neighbours = Neighbours::start(&daemon);
    let files = Files::new();
    let mut seed = Seed::new(22);
    let (mut messages, mut before) = (0, None);
    for connection in 0..LIVE_CONNECTIONS {
        let mut guest = daemon.guest(FrontendConfig::connect(daemon.socket("victim")));
        let session = RawSession::on(guest.stream().unwrap(), REPLY_WAIT).unwrap();
        messages += talk_nonsense(&session, &files, &mut seed);
        drop(session);
        guest.disconnect();
        if connection == 300 {
            before = Some(daemon.settled_use());
        }
    }
    serves_a_sound_guest(&daemon);
    println!("{messages} odd messages into {LIVE_CONNECTIONS} live sessions");
    assert!(messages >= MESSAGES_MIN);
    assert_same_use(&before.unwrap(), &daemon.settled_use(), MEMORY_SLACK);
    neighbours.finish();
    daemon.finish();
}

#[test]
fn a_memory_table_replaced_under_traffic_loses_no_frame() {
    let daemon = Daemon::start(&["left", "right", "a", "b"]);
    let neighbours = Neighbours::start(&daemon);
    let mut config = FrontendConfig::connect(daemon.socket("a"));
    config.regions = 3;
    let mut a = daemon.guest(config.clone());
    config.transport = weft_vnic_testkit::Transport::Connect(daemon.socket("b"));
    let mut b = daemon.guest(config);
    let (a_mac, b_mac) = (
        ether::MacAddr([2, 0, 0, 0, 1, 0x0a]),
        ether::MacAddr([2, 0, 0, 0, 1, 0x0b]),
    );
    introduce(&mut a, a_mac, &mut b, b_mac);
    let mut tracker = weft_vnic_testkit::Tracker::new(9);
    let (mut sent, mut replaced) = (0, 0);
    let mut frame = [0; 900];
    while replaced < 2000 {
        for _ in 0..32 {
            weft_vnic_testkit::Numbered {
                stream: 9,
                sequence: sent,
            }
            .write(&mut frame, b_mac, a_mac);
            if sent - tracker.unique < 128 && a.pairs[0].tx.send(&frame) {
                sent += 1;
            }
        }
        // Frames are in flight in both guests' rings.
        let guest = if replaced % 2 == 0 { &mut a } else { &mut b };
        guest.replace_memory_table().unwrap();
        replaced += 1;
        b.pairs[0].rx.poll(256, |_, frame| tracker.note(frame));
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while tracker.unique < sent && Instant::now() < deadline {
        b.pairs[0].rx.poll(256, |_, frame| tracker.note(frame));
    }
    println!("{replaced} memory tables replaced under {sent} frames");
    assert!(
        tracker.is_perfect(sent),
        "{} of {sent} frames missing, {tracker:?}",
        tracker.missing(sent)
    );
    drop((a, b));
    neighbours.finish();
    daemon.finish();
}
