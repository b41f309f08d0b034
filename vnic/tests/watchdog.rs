//! The polling watchdog of a running `vnicd`, seen by a driver of our own, whose state its card knows exactly: one that polls,
//! one that waits for calls, one that wants none. Times are the machine's, so bounds follow from what the driver measures.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weft_vnic_testkit::{ControlClient, FRAME_LEN_MIN, Frontend, FrontendConfig, Interrupts, Service};

/// Frames in each part of the test, and the time between them.
const FRAMES: u32 = 300;
const PACE: Duration = Duration::from_micros(100);
/// Frames in flight at most, after a pause of the machine too: half of what the receiver has buffers for, so that none is dropped.
const UNDER_WAY: u32 = 128;

/// A timer served later than this class of the histogram was not served in time.
const IN_TIME_NS: u64 = 16_000;

/// Long enough for any loaded machine: only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(30);

struct Lab {
    sender: Frontend,
    receiver: Frontend,
    control: ControlClient,
    _vnicd: Service,
    _folder: tempfile::TempDir,
}

impl Lab {
    fn new(interrupts: Interrupts) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let port = |name: &str| json!({ "name": name, "switch": "s", "listen": path(name) });
        let config = json!({ "switches": [{ "name": "s" }], "ports": [port("a"), port("b")] });
        std::fs::write(path("config.json"), config.to_string()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_vnicd"));
        command.args(["--config", &path("config.json"), "--control", &path("control")]);
        let vnicd = Service::spawn(command, &[], Path::new(&path("log"))).unwrap();
        let control = ControlClient::connect(Path::new(&path("control"))).unwrap();
        let mut receiving = FrontendConfig::connect(path("b"));
        receiving.rx_interrupts = interrupts;
        let mut lab = Self {
            sender: Frontend::start(FrontendConfig::connect(path("a"))).unwrap(),
            receiver: Frontend::start(receiving).unwrap(),
            control,
            _vnicd: vnicd,
            _folder: folder,
        };
        lab.await_rings();
        lab
    }

    /// Waits until the rings of both ports are started: a frame before that is dropped.
    fn await_rings(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        let started = |info: &Value| {
            let ports = info["ports"].as_array().unwrap();
            ports.iter().all(|port| port["rings_started"] == 2)
        };
        while !started(&self.control.request("info", json!({})).unwrap()) {
            assert!(Instant::now() < deadline, "the rings are not started");
        }
    }

    fn set_watchdog(&mut self, delay_ns: u64) {
        let change = json!({ "port": "b", "strategy": "timeout", "watchdog_ns": delay_ns });
        let in_force = self.control.request("coalesce", change).unwrap();
        assert_eq!(in_force["watchdog_ns"].as_u64().unwrap_or(0), delay_ns);
    }

    fn counter(&mut self, group: &str, name: &str) -> u64 {
        let stats = self.control.port_stats("b").unwrap();
        let group = group.split('/').fold(&stats, |value, key| &value[key]);
        group[name].as_u64().unwrap()
    }

    /// What the receiver's card dropped, by reason.
    fn drops(&mut self) -> String {
        self.control.port_stats("b").unwrap()["rx"]["dropped"].to_string()
    }

    fn reason(&mut self, reason: &str) -> u64 {
        self.counter("interrupts/by_reason", reason)
    }

    fn fired(&mut self) -> u64 {
        self.counter("watchdog", "fired")
    }

    /// Expiries that `vnicd` served so late that the machine did not let it run in time.
    fn late(&mut self) -> u64 {
        let stats = self.control.port_stats("b").unwrap();
        let classes = stats["watchdog"]["lateness"].as_array().unwrap().iter();
        let late = classes.filter(|class| class["to_ns"].as_u64().is_none_or(|to_ns| to_ns > IN_TIME_NS));
        late.map(|class| class["count"].as_u64().unwrap()).sum()
    }

    fn send(&mut self) {
        let mut frame = [0; FRAME_LEN_MIN];
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        let deadline = Instant::now() + PATIENCE;
        while !self.sender.pairs[0].tx.send(&frame) {
            assert!(Instant::now() < deadline, "the transmit ring stays full");
        }
    }

    fn poll(&mut self) -> u32 {
        self.receiver.pairs[0].rx.poll(usize::MAX, |_, _| {}) as u32
    }

    /// Waits until the watchdog has ended its timer: all was processed.
    fn settle(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.counter("watchdog", "started") > self.counter("watchdog", "cancelled") {
            assert!(Instant::now() < deadline, "the watchdog goes on for nothing");
        }
    }
}

#[test]
fn m_bv8_live_a_driver_that_polls_is_interrupted_only_where_it_did_not_poll_for_a_delay() {
    let mut lab = Lab::new(Interrupts::Always);
    for delay in [Duration::from_micros(100), Duration::from_millis(1)] {
        let delay_ns = delay.as_nanos() as u64;
        lab.set_watchdog(delay_ns);
        let (fired, late, timeouts) = (lab.fired(), lab.late(), lab.reason("timeout"));
        let (mut taken, mut excused) = (0, 0);
        let mut last_poll = Instant::now();
        let mut due = last_poll;
        let mut sent = 0;
        let deadline = last_poll + PATIENCE;
        while taken < FRAMES {
            assert!(
                Instant::now() < deadline,
                "{taken} of {sent} frames came; {}",
                lab.drops()
            );
            if sent < FRAMES.min(taken + UNDER_WAY) && Instant::now() >= due {
                lab.send();
                sent += 1;
                due += PACE;
            }
            taken += lab.poll();
            // A driver that the machine did not let run for so long has not polled.
            excused += last_poll.elapsed().as_nanos() as u64 / delay_ns;
            last_poll = Instant::now();
        }
        lab.settle();
        let (fired, late) = (lab.fired() - fired, lab.late() - late);
        // Between the arrival that starts the timer and the packet's publication, too, the machine may stop vnicd.
        assert!(
            fired <= excused + late,
            "{fired} interrupts, {excused} delays without a poll, {late} late expiries, {delay:?}"
        );
        assert_eq!(
            lab.reason("timeout"),
            timeouts,
            "the watchdog takes the time-out's place"
        );
        println!(
            "{delay:?}: {fired} interrupts for a driver that polls; {excused} delays without a poll, {late} late expiries"
        );
    }
    assert!(lab.counter("interrupts", "polled") > 0);
}

#[test]
fn m_bv8_live_a_driver_that_waits_for_calls_is_called_by_the_watchdog_and_off_by_the_time_out() {
    let mut lab = Lab::new(Interrupts::Always);
    for delay in [0, 100_000, 1_000_000] {
        lab.set_watchdog(delay);
        let (watchdog, timeouts) = (lab.reason("watchdog"), lab.reason("timeout"));
        let began = Instant::now();
        let (mut sent, mut taken, mut calls) = (0, 0, 0);
        while taken < FRAMES {
            assert!(
                began.elapsed() < PATIENCE,
                "{taken} of {sent} frames came; {}",
                lab.drops()
            );
            if sent < FRAMES.min(taken + UNDER_WAY) && began.elapsed() >= PACE * sent {
                lab.send();
                sent += 1;
            }
            let called = lab.receiver.ring(0).take_calls();
            calls += called;
            if called > 0 {
                taken += lab.receiver.pairs[0].rx.poll_called(|_, _| {}) as u32;
            }
        }
        let elapsed_ns = began.elapsed().as_nanos() as u64;
        let grown = (lab.reason("watchdog") - watchdog, lab.reason("timeout") - timeouts);
        println!("{delay} ns: {calls} calls, (watchdog, timeout) {grown:?}");
        match elapsed_ns.checked_div(delay) {
            None => assert!(grown.0 == 0 && grown.1 > 0, "{grown:?}"),
            Some(delays) => {
                assert!(grown.0 > 0 && grown.1 == 0, "{grown:?}");
                assert!(calls <= delays + 1, "{calls} calls in {elapsed_ns} ns");
                lab.settle();
            }
        }
    }
}

#[test]
fn m_bv9_live_a_driver_that_wants_no_calls_gets_none_and_its_packets_are_not_forgotten() {
    let mut lab = Lab::new(Interrupts::Never);
    lab.set_watchdog(1_000_000);
    lab.send();
    let deadline = Instant::now() + PATIENCE;
    while lab.counter("watchdog", "restarted_disabled") < 3 {
        assert!(Instant::now() < deadline, "the watchdog does not look");
    }
    assert_eq!((lab.fired(), lab.receiver.ring(0).take_calls()), (0, 0));
    assert_eq!(lab.poll(), 1);
    lab.settle();
    assert_eq!(lab.counter("interrupts", "polled"), 1);
}
