//! What goes wrong: authorities, cables, programs and frames.

use std::{
    io::{BufRead, BufReader, IoSlice, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    thread,
    time::{Duration, Instant},
};

use ether::{EtherType, MacAddr};
use netif::{AfPacket, AfPacketOptions, Interface, Netif};

use crate::{
    between_hosts,
    hosts::{Host, Hosts, Left, Right, Running},
};

pub const TALK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/talk.py");

/// Returns the Ethernet address of a host.
pub fn mac_of(hosts: &Hosts, host: Host) -> MacAddr {
    let shown = hosts.must(host, &["ip", "-o", "link", "show", "dev", hosts.interface(host)]);
    let address = shown
        .split("link/ether ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    address.unwrap().parse().unwrap()
}

/// Numbers that look random (xorshift).
pub struct Random(u64);

impl Default for Random {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A server at the right host, and a client at the left one that does what it is told.
pub struct Talk {
    server: Option<Running>,
    client: Child,
    words: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Talk {
    pub fn new(hosts: &Hosts) -> Self {
        let server = hosts.serve(Right, 7005, &["python3", TALK, "serve", "7005"]);
        let mut talk = Self::client(hosts);
        talk.server = Some(server);
        talk
    }

    /// Another client of a server that runs.
    pub fn client(hosts: &Hosts) -> Self {
        let mut command = hosts.esp(Left);
        command.args(["python3", TALK, "connect", Right.ip(), "7005"]);
        let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (words, answers) = (
            client.stdin.take().unwrap(),
            BufReader::new(client.stdout.take().unwrap()),
        );
        let mut talk = Self {
            server: None,
            client,
            words,
            answers,
        };
        assert_eq!(talk.answer(), "connected");
        talk
    }

    pub fn tell(&mut self, word: &str) {
        writeln!(self.words, "{word}").unwrap();
    }

    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    pub fn ask(&mut self, word: &str) -> String {
        self.tell(word);
        self.answer()
    }

    pub fn client_pid(&self) -> u32 {
        self.client.id()
    }

    pub fn server_pid(&self) -> u32 {
        self.server.as_ref().unwrap().pid()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

#[test]
fn m_hr2_connections_go_on_without_their_authority_and_new_ones_come_when_it_is_back() {
    let test = "faults::m_hr2_connections_go_on_without_their_authority_and_new_ones_come_when_it_is_back";
    between_hosts(test, |mut hosts| {
        let mut tcp = hosts.count_tcp();
        let mut talk = Talk::new(&hosts);
        assert_eq!(talk.ask("echo 100000"), "same");
        assert_eq!(talk.ask("new"), "same");
        assert_eq!(tcp.take(), 0);
        for host in [Left, Right] {
            hosts.kill_daemon(host);
        }
        assert_eq!(talk.ask("echo 100000"), "same");
        assert_eq!(tcp.take(), 0);
        assert_eq!(talk.ask("new"), "same");
        assert!(tcp.take() > 0);
        for host in [Left, Right] {
            hosts.start_daemon(host);
        }
        // The server's listener is known again after a moment.
        let begin = Instant::now();
        loop {
            assert_eq!(talk.ask("new"), "same");
            if tcp.take() == 0 {
                break;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "the listener is not registered again"
            );
            thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(talk.ask("echo 100000"), "same");
        assert_eq!(tcp.take(), 0);
    });
}

#[test]
fn m_hr2_a_connection_goes_on_when_a_cable_is_back_after_ten_seconds() {
    between_hosts(
        "faults::m_hr2_a_connection_goes_on_when_a_cable_is_back_after_ten_seconds",
        |hosts| {
            let mut talk = Talk::new(&hosts);
            assert_eq!(talk.ask("echo 100000"), "same");
            hosts.must(Right, &["ip", "link", "set", hosts.interface(Right), "down"]);
            talk.tell("echo 3000000");
            thread::sleep(Duration::from_secs(10));
            hosts.must(Right, &["ip", "link", "set", hosts.interface(Right), "up"]);
            let begin = Instant::now();
            assert_eq!(talk.answer(), "same");
            assert!(
                begin.elapsed() < Duration::from_secs(15),
                "it took {:?}",
                begin.elapsed()
            );
        },
    );
}

#[test]
fn m_hr2_the_peer_of_a_killed_program_is_told_within_the_stated_time() {
    between_hosts(
        "faults::m_hr2_the_peer_of_a_killed_program_is_told_within_the_stated_time",
        |hosts| {
            let mut talk = Talk::new(&hosts);
            assert_eq!(talk.ask("echo 1000"), "same");
            talk.tell("wait");
            talk.server.as_ref().unwrap().signal("-KILL");
            let begin = Instant::now();
            assert_eq!(talk.answer(), "Connection reset by peer");
            assert!(
                begin.elapsed() < Duration::from_secs(15),
                "it took {:?}",
                begin.elapsed()
            );
        },
    );
}

#[test]
fn m_hr2_an_interface_that_is_gone_ends_its_connections() {
    between_hosts(
        "faults::m_hr2_an_interface_that_is_gone_ends_its_connections",
        |hosts| {
            let mut talk = Talk::new(&hosts);
            assert_eq!(talk.ask("echo 1000"), "same");
            hosts.must(Left, &["ip", "link", "del", hosts.interface(Left)]);
            assert_eq!(talk.ask("echo 1000"), "No route to host");
        },
    );
}

#[test]
fn m_hr2_a_million_fuzzed_frames_leave_a_live_connection_as_it_is() {
    between_hosts(
        "faults::m_hr2_a_million_fuzzed_frames_leave_a_live_connection_as_it_is",
        |hosts| {
            let mut talk = Talk::new(&hosts);
            let right = mac_of(&hosts, Right);
            let left = Interface::find(hosts.interface(Left)).unwrap();
            let mut port = AfPacket::open(&left.name, EtherType(0x4553), &AfPacketOptions::default()).unwrap();
            let mut random = Random::default();
            let mut next = || random.next();
            for round in 0..100 {
                for _ in 0..10_000 {
                    let mut frame = [0; 96];
                    frame[..6].copy_from_slice(&right.0);
                    frame[6..12].copy_from_slice(&left.mac.0);
                    frame[12..14].copy_from_slice(&[0x45, 0x53]);
                    for part in frame[14..].chunks_mut(8) {
                        part.copy_from_slice(&next().to_be_bytes()[..part.len()]);
                    }
                    // Ports are what programs have: blocks from 16 on, and small numbers in them.
                    frame[15] = 16 + (next() % 4) as u8;
                    frame[17] = 16 + (next() % 4) as u8;
                    let len = 14 + (next() % 83) as usize;
                    // A port that is full loses the frame, as a cable may.
                    let _ = port.send(&[IoSlice::new(&frame[..len])]).unwrap();
                }
                if round % 10 == 0 {
                    assert_eq!(talk.ask("echo 10000"), "same");
                }
            }
            assert_eq!(talk.ask("echo 1000000"), "same");
            assert_eq!(talk.ask("new"), "same");
        },
    );
}
