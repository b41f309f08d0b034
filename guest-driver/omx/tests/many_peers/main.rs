//! What one endpoint holds that talks to a thousand peers. It runs in a process of its own, which tells its memory as the
//! system counts it (PSS); the peers are engines of this process, and Ethernet is a pair of datagram sockets.

mod crowd;
mod port;

use std::{
    collections::HashSet,
    env,
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use mxoe::wire::Preset;
use omx::{Counter, Endpoint, EndpointOptions, StatusCode};

use self::{
    crowd::{Crowd, OWN, content},
    port::DatagramPort,
};

const PEERS: u16 = 1_000;
/// The endpoint's receive ring, which this port has not, and an interface has.
const RING_LEN: u64 = 4 << 20;
const ENDPOINT: &str = "OMX_TEST_ENDPOINT";
const LIMIT: Duration = Duration::from_secs(30);

/// Bytes that the system counts for this process: its own, and its share of those it has in common with others.
fn pss() -> u64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find(|line| line.starts_with("Pss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// The endpoint's process: `OMX_TEST_ENDPOINT` is the directory of the sockets and the limit on unexpected bytes. Does what
/// its input says. Started by the tests below; on its own it has nothing to do.
#[test]
fn endpoint_program_of_the_other_tests() {
    let Ok(words) = env::var(ENDPOINT) else { return };
    let (dir, bytes_max) = words.split_once(' ').unwrap();
    let options = EndpointOptions {
        unexpected_bytes_max: bytes_max.parse().unwrap(),
        ..EndpointOptions::default()
    };
    let port = DatagramPort::new(dir.as_ref(), "endpoint", "peers", OWN);
    let endpoint = Endpoint::open_on(&options, Box::new(port), Preset::Native9000).unwrap();
    let mut buffer = vec![1; 128 << 10];
    for line in std::io::stdin().lines() {
        match line.unwrap().split_once(' ').unwrap() {
            ("tell", what) => {
                if what == "used" {
                    // SAFETY: no pointers; the allocator gives the system back what is not used.
                    unsafe { libc::malloc_trim(0) };
                }
                let refused = endpoint.counters().get(Counter::UnexpEventqFull);
                println!("\n@{} {refused}", pss());
            }
            ("echo", count) => {
                for _ in 0..count.parse::<u32>().unwrap() {
                    let status = endpoint.receive(&mut buffer, 0, 0).unwrap();
                    let len = status.transferred as usize;
                    endpoint
                        .send(&buffer[..len], status.address.unwrap(), status.match_info)
                        .unwrap();
                }
            }
            ("take", count) => {
                let mut seen = HashSet::new();
                for _ in 0..count.parse::<u32>().unwrap() {
                    let status = endpoint.receive(&mut buffer, 0, 0).unwrap();
                    assert_eq!(status.code, StatusCode::Success);
                    let number = status.match_info as u16;
                    assert!(seen.insert(number), "the message of {number} came twice");
                    let len = status.transferred as usize;
                    assert!(
                        buffer[..len] == *content(number, 0, len),
                        "the message of {number} changed"
                    );
                }
                assert!(endpoint.iprobe(0, 0).unwrap().is_none(), "a message came twice");
                println!("\n@{}", seen.len());
            }
            (other, _) => panic!("{other}"),
        }
    }
}

struct Under {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Under {
    /// The endpoint under test, and what is to be its peers.
    fn start(dir: &tempfile::TempDir, bytes_max: u64) -> (Self, Crowd) {
        let mut crowd = Crowd::new(DatagramPort::new(dir.path(), "peers", "endpoint", OWN));
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "endpoint_program_of_the_other_tests", "--nocapture"])
            .env(ENDPOINT, format!("{} {bytes_max}", dir.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut under = Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        // When it answers, its port is there.
        under.tell("all");
        crowd.join();
        (under, crowd)
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn hear(&mut self) -> String {
        for line in self.output.by_ref().lines() {
            if let Some(said) = line.unwrap().strip_prefix('@') {
                return said.to_owned();
            }
        }
        panic!("the endpoint's program ended: {:?}", self.child.wait());
    }

    /// Its memory in bytes, `all` or only what is `used`, without what the allocator keeps for later; and messages that it
    /// refused.
    fn tell(&mut self, what: &str) -> (u64, u64) {
        self.say(&format!("tell {what}"));
        let said = self.hear();
        let (pss, refused) = said.split_once(' ').unwrap();
        (pss.parse().unwrap(), refused.parse().unwrap())
    }
}

impl Drop for Under {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_endpoint_that_talked_to_a_thousand_peers_holds_at_most_16_mib_and_4_kib_for_each() {
    let dir = tempfile::tempdir().unwrap();
    let (mut under, mut crowd) = Under::start(&dir, 64 << 20);
    let lengths = [8, 32_768, 100_000];
    let (before, _) = under.tell("all");
    for first in (0..PEERS).step_by(50) {
        under.say(&format!("echo {}", 50 * lengths.len()));
        for number in first..first + 50 {
            crowd.add(number, &lengths);
        }
        let wanted = (usize::from(first) + 50) * lengths.len();
        crowd.run_until(LIMIT, |crowd| crowd.received() == wanted && crowd.is_idle());
    }
    let (after, _) = under.tell("all");
    let per_peer = after.saturating_sub(before) / u64::from(PEERS);
    println!(
        "{} KiB before, {} KiB after, {per_peer} bytes per peer",
        before >> 10,
        after >> 10
    );
    assert!(per_peer <= 4 << 10, "{per_peer} bytes per peer");
    assert!(after + RING_LEN <= 16 << 20, "{after} bytes and the ring");
}

#[test]
fn a_thousand_peers_with_32_kib_each_stay_within_the_limit_and_nothing_is_lost() {
    const BYTES_MAX: u64 = 8 << 20;
    let dir = tempfile::tempdir().unwrap();
    let (mut under, mut crowd) = Under::start(&dir, BYTES_MAX);
    let (before, _) = under.tell("used");
    for number in 0..PEERS {
        crowd.add(number, &[32 << 10]);
    }
    // Until every peer was heard and at least one was refused.
    let begin = Instant::now();
    let mut most = 0;
    loop {
        let until = Instant::now() + Duration::from_millis(50);
        crowd.run_until(LIMIT, |_| Instant::now() >= until);
        let (now, refused) = under.tell("used");
        most = most.max(now);
        if crowd.connected() == usize::from(PEERS) && refused > u64::from(PEERS) {
            break;
        }
        assert!(
            begin.elapsed() < LIMIT,
            "{} connected, {refused} refused",
            crowd.connected()
        );
    }
    under.say(&format!("take {PEERS}"));
    crowd.run_until(LIMIT, Crowd::is_idle);
    assert_eq!(under.hear(), PEERS.to_string());
    let (after, _) = under.tell("used");
    println!(
        "{} KiB before, {} KiB at most, {} KiB after",
        before >> 10,
        most >> 10,
        after >> 10
    );
    // What is kept, 4 KiB for each peer, and packets kept because an earlier one is missing.
    let allowed = BYTES_MAX + u64::from(PEERS) * (4 << 10) + (4 << 20);
    assert!(most <= before + allowed, "{most} bytes, {before} before");
    let drained = u64::from(PEERS) * (4 << 10);
    assert!(
        after <= before + drained,
        "{after} bytes when all were taken, {before} before"
    );
}
