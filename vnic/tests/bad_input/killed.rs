//! `vnicd` killed with SIGKILL under traffic, again and again: guests reconnect as QEMU does, numbered
//! frames go on in both directions and towards a guest that only receives, settings come back with the configuration.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ether::MacAddr;
use weft_vnic_testkit::{ControlClient, Frontend, FrontendConfig, Numbered, Service, Tracker, Transport};

/// Times the daemon is killed.
const KILLS: u32 = 20;
/// How often a guest without a backend tries to reconnect: QEMU 10's `reconnect-ms=500`.
const RECONNECT: Duration = Duration::from_millis(500);
/// Longest time from the new daemon's bound socket to frames on every path.
const RESUME_MAX: Duration = Duration::from_millis(1500);
/// Traffic before each kill.
const TRAFFIC: Duration = Duration::from_millis(250);
/// Frames in flight in each direction at most, and how long they are waited for before they are given up: what a guest sends
/// to one that has not reconnected yet is lost.
const WINDOW: u64 = 64;
const GIVE_UP: Duration = Duration::from_millis(20);

const A: MacAddr = MacAddr([2, 0, 0, 0, 3, 0x0a]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 3, 0x0b]);
/// Only receives: the switch never learns it, so frames to it are flooded.
const LISTENER: MacAddr = MacAddr([2, 0, 0, 0, 3, 0x0c]);

/// A numbered stream from one guest to another.
struct Flow {
    name: &'static str,
    from: usize,
    to: usize,
    macs: (MacAddr, MacAddr),
    sent: u64,
    /// Frames below this number are known to have arrived or to be lost.
    settled: u64,
    /// Frames below this number are no longer waited for.
    given_up: u64,
    last_sent: Instant,
    tracker: Tracker,
}

impl Flow {
    fn new(name: &'static str, from: usize, to: usize, macs: (MacAddr, MacAddr), stream: u32) -> Flow {
        Flow {
            name,
            from,
            to,
            macs,
            sent: 0,
            settled: 0,
            given_up: 0,
            last_sent: Instant::now(),
            tracker: Tracker::new(stream),
        }
    }

    fn arrived_since_settled(&self) -> u64 {
        self.tracker.next().saturating_sub(self.settled)
    }
}

/// Guests and what they say to each other.
struct Party {
    guests: Vec<Frontend>,
    next_try: Vec<Instant>,
    flows: Vec<Flow>,
}

impl Party {
    /// Sends and receives a little on every flow, and reconnects guests whose time has come.
    fn turn(&mut self) {
        for (guest, next_try) in self.guests.iter_mut().zip(&mut self.next_try) {
            if !guest.is_connected() && Instant::now() >= *next_try {
                *next_try = Instant::now() + RECONNECT;
                guest.try_reconnect();
            }
        }
        let mut frame = [0; 1200];
        for flow in &mut self.flows {
            let guest = &mut self.guests[flow.from];
            if flow.last_sent.elapsed() > GIVE_UP {
                flow.given_up = flow.sent;
            }
            for _ in 0..8 {
                if flow.sent >= flow.tracker.next().max(flow.given_up) + WINDOW {
                    break;
                }
                let len = 60 + (flow.sent * 131 % 1140) as usize;
                let numbered = Numbered {
                    stream: flow.tracker.stream,
                    sequence: flow.sent,
                };
                numbered.write(&mut frame[..len], flow.macs.1, flow.macs.0);
                if !guest.pairs[0].tx.send(&frame[..len]) {
                    break;
                }
                flow.sent += 1;
                flow.last_sent = Instant::now();
            }
        }
        for index in 0..self.guests.len() {
            let flows = &mut self.flows;
            self.guests[index].pairs[0].rx.poll(256, |_, frame| {
                for flow in flows.iter_mut().filter(|flow| flow.to == index) {
                    if let Some(Ok(numbered)) = Numbered::read(frame)
                        && numbered.stream == flow.tracker.stream
                    {
                        flow.tracker.note(frame);
                    }
                }
            });
        }
    }

    fn run(&mut self, duration: Duration) {
        let end = Instant::now() + duration;
        while Instant::now() < end {
            self.turn();
            // The daemon shares the machine's few cores with this thread.
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Everything sent so far has arrived or never will: from now on only new frames count.
    fn settle(&mut self) {
        for flow in &mut self.flows {
            flow.settled = flow.sent;
        }
    }
}

fn spawn(folder: &Path) -> Service {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vnicd"));
    command
        .arg("--config")
        .arg(folder.join("lab.json"))
        .arg("--control")
        .arg(folder.join("control.sock"));
    Service::spawn(command, &[], &folder.join("vnicd.log")).unwrap()
}

fn port(folder: &Path, name: &str, mode: &str) -> serde_json::Value {
    let mut port = serde_json::json!({
        "name": name,
        "switch": "s",
        "coalescing": { "strategy": "open-mx", "delay_ns": 123_000, "frames": 7, "marks": true },
    });
    port[mode] = folder.join(format!("{name}.sock")).display().to_string().into();
    port
}

#[test]
fn vnicd_killed_under_traffic_is_resumed_by_its_guests() {
    let folder = tempfile::Builder::new().prefix("vnicd-test-").tempdir().unwrap();
    let path = folder.path();
    let lab = serde_json::json!({
        "switches": [{ "name": "s" }],
        "ports": [port(path, "a", "listen"), port(path, "b", "listen"), port(path, "c", "connect")],
    });
    fs::write(path.join("lab.json"), lab.to_string()).unwrap();
    let mut daemon = spawn(path);
    let socket = |name: &str| path.join(format!("{name}.sock"));
    let connect = |transport| Frontend::start(FrontendConfig::new(transport)).unwrap();
    let guests = vec![
        connect(Transport::Connect(socket("a"))),
        connect(Transport::Connect(socket("b"))),
        // The other socket mode: this guest listens, vnicd comes to it.
        connect(Transport::Listen(socket("c"))),
    ];
    let flows = vec![
        Flow::new("a to b", 0, 1, (A, B), 1),
        Flow::new("b to a", 1, 0, (B, A), 2),
        Flow::new("a to the one that only receives", 0, 2, (A, LISTENER), 3),
    ];
    let mut party = Party {
        next_try: vec![Instant::now(); guests.len()],
        guests,
        flows,
    };
    let settings = settings_of(path);
    let (mut slowest, mut dropped) = (Duration::ZERO, [0; 3]);
    for kill in 1..=KILLS {
        party.run(TRAFFIC);
        assert!(
            party.flows.iter().all(|flow| flow.arrived_since_settled() > 0),
            "no traffic before kill {kill}"
        );
        dropped = add(dropped, dropped_towards(path));
        // Killed with frames in its hands: a full window was sent just before.
        party.turn();
        daemon.kill().unwrap();
        party.run(Duration::from_millis(100));
        daemon = spawn(path);
        let bound = await_bound(path, &mut party);
        party.settle();
        while party.flows.iter().any(|flow| flow.arrived_since_settled() == 0) {
            party.turn();
            let waits: Vec<_> = party
                .flows
                .iter()
                .map(|flow| (flow.name, flow.arrived_since_settled()))
                .collect();
            if bound.elapsed() > RESUME_MAX {
                panic!(
                    "after kill {kill} not all flows resumed: {waits:?}\n{}\n{}",
                    state_of(path),
                    log(path)
                );
            }
        }
        slowest = slowest.max(bound.elapsed());
        assert_eq!(settings_of(path), settings, "settings after kill {kill}");
    }
    party.run(TRAFFIC);
    dropped = add(dropped, dropped_towards(path));
    println!("{KILLS} kills; slowest resumption {slowest:?} after the sockets were bound");
    for flow in &party.flows {
        let tracker = &flow.tracker;
        let lost = tracker.missing(tracker.next());
        let Flow { name, sent, .. } = flow;
        println!(
            "{name}: {sent} frames sent, {lost} lost, {} repeated, {} late",
            tracker.repeated, tracker.reordered
        );
        assert_eq!(tracker.damaged, 0);
        // Guests reconnect one after the other: what comes for one that is not back yet is dropped, and counted.
        let counted = dropped[flow.to];
        assert!(
            lost <= counted,
            "{name}: {lost} frames lost, but only {counted} drops were counted"
        );
    }
    assert!(!log(path).contains("panicked"), "{}", log(path));
}

/// Frames towards each guest that the daemon of now has dropped.
fn dropped_towards(folder: &Path) -> [u64; 3] {
    let mut control = ControlClient::connect(&folder.join("control.sock")).unwrap();
    let mut dropped = |port| {
        let stats = control.port_stats(port).unwrap();
        let reasons = stats["rx"]["dropped"].as_object().expect("drops by reason").clone();
        reasons.values().filter_map(serde_json::Value::as_u64).sum()
    };
    [dropped("a"), dropped("b"), dropped("c")]
}

fn add(left: [u64; 3], right: [u64; 3]) -> [u64; 3] {
    std::array::from_fn(|index| left[index] + right[index])
}

/// Everything the daemon says of itself that is not zero.
fn state_of(folder: &Path) -> String {
    let mut control = ControlClient::connect(&folder.join("control.sock")).unwrap();
    let mut state = String::new();
    for op in ["info", "stats"] {
        let answer = control.request(op, serde_json::Value::Null).unwrap();
        for port in answer["ports"].as_array().unwrap() {
            state += &format!("{op}: {}\n", without_zeros(port));
        }
    }
    state
}

fn without_zeros(value: &serde_json::Value) -> serde_json::Value {
    let Some(object) = value.as_object() else {
        return value.clone();
    };
    let kept = object.iter().map(|(key, value)| (key.clone(), without_zeros(value)));
    kept.filter(|(_, value)| *value != 0 && *value != serde_json::json!({}))
        .collect()
}

fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("vnicd.log")).unwrap_or_default()
}

/// Goes on with the traffic until the new daemon has its sockets bound, which it says on its control socket.
fn await_bound(folder: &Path, party: &mut Party) -> Instant {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        party.turn();
        if std::os::unix::net::UnixStream::connect(folder.join("control.sock")).is_ok() {
            return Instant::now();
        }
        assert!(
            Instant::now() < deadline,
            "the new daemon binds no sockets:\n{}",
            log(folder)
        );
    }
}

fn settings_of(folder: &Path) -> Vec<serde_json::Value> {
    let mut control = ControlClient::connect(&folder.join("control.sock")).unwrap();
    let settings = |port| {
        control
            .request("coalesce", serde_json::json!({ "port": port }))
            .unwrap()
    };
    ["a", "b", "c"].map(settings).to_vec()
}
