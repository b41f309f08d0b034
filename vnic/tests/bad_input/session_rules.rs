//! The "Bad input", session, rule by rule: for each rule of a vhost-user session generated messages that break it and no
//! other, sent into a session whose rings run (a frame of the guest was taken). Each case is judged: the session ends, and when
//! the cases of a rule are through, its counter has grown by exactly their number and no other counter has.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use weft_vnic_testkit::{ControlClient, Frontend, FrontendConfig, RawSession, Seed};

use crate::attacker::{ATTACKER, FEEDER};
use crate::attacks::TX;
use crate::behind_iommu::TRANSLATION_RULES;
use crate::daemon::{Daemon, Neighbours, assert_same_use, plain_frame};
use crate::session_attacks::{FILE_LEN, Ground, HUGE_FILE_LEN, Kind, Odd, SESSION_RULES};

/// Cases per rule.
pub const CASES: u32 = 1000;
/// Allocator noise granted between two readings of the process's private memory.
const MEMORY_SLACK: u64 = 2 << 20;
/// Longest wait for a session to begin, to serve a ring or to end.
const PATIENCE: Duration = Duration::from_secs(10);

const PORTS: &[&str] = &["left", "right", "victim"];

struct Files {
    event: OwnedFd,
    memory: OwnedFd,
    read_only: OwnedFd,
    huge: OwnedFd,
    pipe: OwnedFd,
    socket: OwnedFd,
    null: OwnedFd,
    folder: OwnedFd,
    proc: OwnedFd,
    semaphore: OwnedFd,
}

impl Files {
    fn new() -> Files {
        let memory = |len| {
            let file = memfd_create("odd", MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&file, len).unwrap();
            file
        };
        let open = |path: &str| OwnedFd::from(std::fs::File::open(path).unwrap());
        let semaphore = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE).unwrap();
        rustix::io::write(&semaphore, &(1_u64 << 62).to_ne_bytes()).unwrap();
        let file = memory(FILE_LEN);
        let read_only = open(&format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)));
        Files {
            event: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
            memory: file,
            read_only,
            huge: memory(HUGE_FILE_LEN),
            pipe: rustix::pipe::pipe().unwrap().0,
            socket: UnixStream::pair().unwrap().0.into(),
            null: open("/dev/null"),
            folder: open("/"),
            proc: open("/proc/self/maps"),
            semaphore,
        }
    }

    fn of(&self, kind: Kind) -> BorrowedFd<'_> {
        match kind {
            Kind::Event => &self.event,
            Kind::Semaphore => &self.semaphore,
            Kind::Memory => &self.memory,
            Kind::ReadOnly => &self.read_only,
            Kind::Huge => &self.huge,
            Kind::Pipe => &self.pipe,
            Kind::Socket => &self.socket,
            Kind::Null => &self.null,
            Kind::Folder => &self.folder,
            Kind::Proc => &self.proc,
        }
        .as_fd()
    }
}

/// A guest whose rings run; each case begins a new session of it.
struct Victim {
    guest: Frontend,
    files: Files,
    ground: Ground,
    control: ControlClient,
}

type Counts = BTreeMap<String, u64>;

impl Victim {
    fn connect(daemon: &Daemon) -> Victim {
        let mut config = FrontendConfig::connect(daemon.socket("victim"));
        config.ring_size = 64;
        config.memory_slots = true;
        config.acknowledged = false;
        let mut guest = daemon.guest(config);
        Victim {
            ground: Ground::of(&mut guest),
            guest,
            files: Files::new(),
            control: daemon.control(),
        }
    }

    fn counts(&mut self) -> Counts {
        let stats = self.control.port_stats("victim").unwrap();
        serde_json::from_value(stats["session_violations"].clone()).unwrap()
    }

    /// A new session whose rings run: a frame was taken from the guest.
    fn begin(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        // The port turns a frontend away while it still sees the one before.
        while let Err(error) = self.guest.reboot() {
            assert!(Instant::now() < deadline, "{error}");
        }
        self.guest.pairs[0].tx.send(&plain_frame(FEEDER, ATTACKER, 60));
        while self.guest.ring(TX).used_idx() == 0 {
            assert!(Instant::now() < deadline, "no frame is taken from the guest");
            std::thread::yield_now();
        }
    }

    /// Sends `odd` and waits for the end of the session.
    fn suffer(&mut self, odd: &Odd) {
        let stream = self.guest.stream().unwrap();
        let session = RawSession::on(stream.try_clone().unwrap(), PATIENCE).unwrap();
        for (request, body) in &odd.before {
            session.send(*request, 1, body.len() as u32, body, &[]).unwrap();
        }
        let files: Vec<_> = odd.files.iter().map(|kind| self.files.of(*kind)).collect();
        let mut message: Vec<u8> = Vec::new();
        let size = odd.size.unwrap_or(odd.body.len() as u32);
        for word in [odd.request, odd.flags, size] {
            message.extend_from_slice(&word.to_ne_bytes());
        }
        message.extend_from_slice(&odd.body);
        message.truncate(odd.cut.unwrap_or(usize::MAX));
        if odd.late_files {
            session.send_bytes(&message[..12], &[]).unwrap();
            session.send_bytes(&message[12..], &files).unwrap();
        } else {
            session.send_bytes(&message, &files).unwrap();
        }
        if odd.cut.is_some() {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        loop {
            match session.receive() {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    panic!("not the end of a session: {odd:?}")
                }
                Err(_) => return,
            }
        }
    }

    /// `count` cases against each of `rules`.
    fn break_each(&mut self, rules: &[&str], seed: u64, count: u32) -> u32 {
        for rule in rules {
            let (mut seed, start) = (Seed::new(seed), Instant::now());
            let mut expected = self.counts();
            let mut last = Odd::default();
            for _ in 0..count {
                last = self.ground.attack(rule, &mut seed);
                self.begin();
                self.suffer(&last);
            }
            *expected.get_mut(*rule).unwrap() += u64::from(count);
            // The last session may still be closing.
            let (mut counted, asked) = (self.counts(), Instant::now());
            while counted != expected && asked.elapsed() < PATIENCE {
                counted = self.counts();
            }
            assert_eq!(counted, expected, "{rule}; the last case was {last:?}");
            println!("{rule}: {count} cases, each counted, {:.1?}", start.elapsed());
        }
        count * rules.len() as u32
    }
}

#[test]
fn every_session_rule_has_its_cases() {
    let daemon = Daemon::start(PORTS);
    let known: Vec<String> = Victim::connect(&daemon).counts().into_keys().collect();
    let mut tested: Vec<&str> = SESSION_RULES.iter().copied().chain(TRANSLATION_RULES).collect();
    tested.sort_unstable();
    assert_eq!(known, tested);
    daemon.finish();
}

// Two halves, so that they can run side by side.

#[test]
fn a_broken_rule_of_a_session_ends_only_that_session_first_half() {
    break_rules(&SESSION_RULES[..SESSION_RULES.len() / 2]);
}

#[test]
fn a_broken_rule_of_a_session_ends_only_that_session_second_half() {
    break_rules(&SESSION_RULES[SESSION_RULES.len() / 2..]);
}

fn break_rules(rules: &[&str]) {
    let daemon = Daemon::start(PORTS);
    let neighbours = Neighbours::start(&daemon);
    let mut victim = Victim::connect(&daemon);
    // The first round makes the process allocate what it will keep.
    victim.break_each(rules, 23, 10);
    let before = daemon.settled_use();
    let start = Instant::now();
    let cases = victim.break_each(rules, 24, CASES);
    println!("{cases} cases in {:.1?}", start.elapsed());
    assert_same_use(&before, &daemon.settled_use(), MEMORY_SLACK);
    victim.begin();
    drop(victim);
    neighbours.finish();
    daemon.finish();
}
