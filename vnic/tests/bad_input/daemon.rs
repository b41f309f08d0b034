//! What the whole-daemon tests share: a real `vnicd` in a folder of its own, and a pair of
//! well-behaved neighbours that exchange numbered frames and must not notice anything.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ether::MacAddr;
use tempfile::TempDir;
use weft_vnic_testkit::{ControlClient, Frontend, FrontendConfig, HEADER_LEN, Numbered, ProcessUse, Service, Tracker};

/// A running `vnicd` with one listening port per name.
pub struct Daemon {
    pub folder: TempDir,
    pub service: Service,
}

impl Daemon {
    pub fn start(ports: &[&str]) -> Daemon {
        let folder = tempfile::Builder::new().prefix("vnicd-test-").tempdir().unwrap();
        let service = Self::spawn(&folder, ports, &[]);
        Daemon { folder, service }
    }

    pub fn spawn(folder: &TempDir, ports: &[&str], more: &[&str]) -> Service {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vnicd"));
        for name in ports {
            let socket = folder.path().join(format!("{name}.sock"));
            command.arg("--listen").arg(format!("{name}={}", socket.display()));
        }
        command
            .arg("--control")
            .arg(folder.path().join("control.sock"))
            .args(more);
        Service::spawn(command, &[], &folder.path().join("vnicd.log")).unwrap()
    }

    /// A daemon with ports from a configuration file; socket paths in it are relative to the daemon's folder.
    pub fn start_with_config(config: &serde_json::Value) -> Daemon {
        let folder = tempfile::Builder::new().prefix("vnicd-test-").tempdir().unwrap();
        let mut config = config.clone();
        for port in config["ports"].as_array_mut().unwrap() {
            let socket = folder.path().join(port["listen"].as_str().unwrap());
            port["listen"] = socket.display().to_string().into();
        }
        let file = folder.path().join("lab.json");
        fs::write(&file, config.to_string()).unwrap();
        let service = Self::spawn(&folder, &[], &["--config", &file.display().to_string()]);
        Daemon { folder, service }
    }

    pub fn socket(&self, port: &str) -> PathBuf {
        self.folder.path().join(format!("{port}.sock"))
    }

    pub fn control(&self) -> ControlClient {
        let path = self.folder.path().join("control.sock");
        ControlClient::connect(&path).unwrap_or_else(|error| panic!("{error}; vnicd says:\n{}", self.log()))
    }

    /// A guest that starts; panics with what `vnicd` logged if it does not.
    pub fn guest(&self, config: FrontendConfig) -> Frontend {
        Frontend::start(config).unwrap_or_else(|error| panic!("{error}; vnicd says:\n{}", self.log()))
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("vnicd.log")).unwrap_or_default()
    }

    /// Use of the process once it is steady: two equal readings of descriptors, threads and mappings in a row.
    pub fn settled_use(&self) -> ProcessUse {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut last = self.service.usage().unwrap();
        loop {
            std::thread::sleep(Duration::from_millis(200));
            let now = self.service.usage().unwrap();
            let same = (now.fds, now.threads, now.mappings) == (last.fds, last.threads, last.mappings);
            if same || Instant::now() > deadline {
                return now;
            }
            last = now;
        }
    }

    /// Ends `vnicd` as a user would and checks that it leaves nothing behind and never panicked.
    pub fn finish(mut self) {
        assert!(
            self.service.ended().unwrap().is_none(),
            "vnicd ended by itself:\n{}",
            self.log()
        );
        let status = self.service.terminate().unwrap();
        let log = self.log();
        assert!(status.success(), "vnicd ended with {status}:\n{log}");
        assert!(!log.contains("panicked"), "vnicd panicked:\n{log}");
        let left: Vec<_> = fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        let left: Vec<_> = left.into_iter().filter(|name| name != "lab.json").collect();
        assert_eq!(left, ["vnicd.log"], "vnicd left files behind");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("vnicd's log:\n{}", self.log());
        }
    }
}

/// Pages that sound guests may touch for the first time between two readings.
const SHARED_SLACK: u64 = 2 << 20;

/// Same process use before and after; `anonymous_slack` bytes of allocator noise are granted.
pub fn assert_same_use(before: &ProcessUse, after: &ProcessUse, anonymous_slack: u64) {
    assert_eq!(
        (before.fds, before.threads),
        (after.fds, after.threads),
        "descriptors, threads before and after"
    );
    assert!(
        after.mappings <= before.mappings + 4,
        "mappings: {} before, {} after",
        before.mappings,
        after.mappings
    );
    // Neighbours go on meanwhile and may touch a page of theirs for the first time.
    assert!(
        after.shared_bytes <= before.shared_bytes + SHARED_SLACK,
        "guest memory still mapped: {after:?}, {before:?}"
    );
    assert!(
        after.anonymous_bytes <= before.anonymous_bytes + anonymous_slack,
        "private memory grew from {} to {} bytes",
        before.anonymous_bytes,
        after.anonymous_bytes
    );
}

pub const LEFT: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 0x0a]);
pub const RIGHT: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 0x0b]);

/// Frames in flight in each direction at most: well below the ring, so that a sound switch loses none.
const WINDOW: u64 = 16;
/// Pause between two looks at the rings: tens of thousands of frames in a second are witness enough.
const PACE: Duration = Duration::from_micros(200);
/// Longest wait for the last frames when the exchange ends.
const DRAIN: Duration = Duration::from_secs(10);

/// What the neighbours saw.
pub struct NeighbourReport {
    pub sent: u64,
    pub longest_pause: Duration,
}

/// Two guests that exchange numbered frames in both directions until told to stop.
pub struct Neighbours {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<NeighbourReport>,
}

impl Neighbours {
    /// Connects to ports `left` and `right` and begins.
    pub fn start(daemon: &Daemon) -> Neighbours {
        let connect = |port| daemon.guest(FrontendConfig::connect(daemon.socket(port)));
        let (mut left, mut right) = (connect("left"), connect("right"));
        introduce(&mut left, LEFT, &mut right, RIGHT);
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || exchange(left, right, &told));
        Neighbours { stop, thread }
    }

    /// Ends the exchange; panics unless every frame of both directions arrived once, in order and intact.
    pub fn finish(self) -> NeighbourReport {
        self.stop.store(true, Ordering::Relaxed);
        let report = self.thread.join().expect("the neighbours' exchange");
        println!(
            "neighbours: {} frames in each direction, longest pause {:?}",
            report.sent, report.longest_pause
        );
        assert!(report.sent > 0);
        report
    }
}

/// Sends frames in both directions until one arrived at either end: from then on both rings are served and both stations known.
/// (A ring starts when the device sees its first kick, some time after the session's last message.)
pub fn introduce(left: &mut Frontend, left_mac: MacAddr, right: &mut Frontend, right_mac: MacAddr) {
    let deadline = Instant::now() + DRAIN;
    let (mut at_left, mut at_right) = (0, 0);
    while at_left == 0 || at_right == 0 {
        assert!(Instant::now() < deadline, "no frame arrives between two fresh guests");
        left.pairs[0].tx.send(&plain_frame(right_mac, left_mac, 60));
        right.pairs[0].tx.send(&plain_frame(left_mac, right_mac, 60));
        std::thread::sleep(Duration::from_millis(2));
        at_right += right.pairs[0].rx.poll(64, |_, _| {});
        at_left += left.pairs[0].rx.poll(64, |_, _| {});
    }
}

fn exchange(mut left: Frontend, mut right: Frontend, stop: &AtomicBool) -> NeighbourReport {
    let (mut to_right, mut to_left) = (Tracker::new(1), Tracker::new(2));
    let mut sent = 0;
    let mut last_progress = Instant::now();
    let mut longest_pause = Duration::ZERO;
    let mut frame = [0; 1514];
    loop {
        let ending = stop.load(Ordering::Relaxed);
        while !ending && sent < to_right.unique + WINDOW && sent < to_left.unique + WINDOW {
            let len = 60 + (sent as usize * 97) % 1455;
            Numbered {
                stream: 1,
                sequence: sent,
            }
            .write(&mut frame[..len], RIGHT, LEFT);
            assert!(left.pairs[0].tx.send(&frame[..len]), "left's ring is full");
            Numbered {
                stream: 2,
                sequence: sent,
            }
            .write(&mut frame[..len], LEFT, RIGHT);
            assert!(right.pairs[0].tx.send(&frame[..len]), "right's ring is full");
            sent += 1;
        }
        let taken = right.pairs[0].rx.poll(64, |_, frame| to_right.note(frame))
            + left.pairs[0].rx.poll(64, |_, frame| to_left.note(frame));
        let pause = last_progress.elapsed();
        longest_pause = longest_pause.max(pause);
        if taken > 0 {
            last_progress = Instant::now();
        }
        // The backend and the attackers share the machine's few cores with this thread.
        std::thread::sleep(PACE);
        let complete = to_right.unique == sent && to_left.unique == sent;
        if (ending && complete) || pause > DRAIN {
            let faults = |tracker: &Tracker| {
                (
                    tracker.missing(sent),
                    tracker.repeated,
                    tracker.reordered,
                    tracker.damaged,
                )
            };
            assert!(
                to_right.is_perfect(sent),
                "left to right (missing, repeated, reordered, damaged): {:?}",
                faults(&to_right)
            );
            assert!(
                to_left.is_perfect(sent),
                "right to left (missing, repeated, reordered, damaged): {:?}",
                faults(&to_left)
            );
            return NeighbourReport { sent, longest_pause };
        }
    }
}

/// A frame of `len` bytes to `destination` that is no numbered one.
pub fn plain_frame(destination: MacAddr, source: MacAddr, len: usize) -> Vec<u8> {
    let mut frame = vec![0x33; len.max(14)];
    frame[..6].copy_from_slice(&destination.0);
    frame[6..12].copy_from_slice(&source.0);
    frame[12..14].copy_from_slice(&[0x88, 0xb7]);
    frame
}

/// Sends a plain frame when there is room, so that the switch has something for `destination`.
pub fn feed(feeder: &mut Frontend, destination: MacAddr, source: MacAddr) {
    feeder.pairs[0].rx.poll(64, |_, _| {});
    let frame = plain_frame(destination, source, 60);
    let tx = &mut feeder.pairs[0].tx;
    if tx.free() == 0 {
        return;
    }
    tx.next_buffer()[..HEADER_LEN].fill(0);
    tx.next_buffer()[HEADER_LEN..HEADER_LEN + frame.len()].copy_from_slice(&frame);
    tx.push(HEADER_LEN + frame.len());
    tx.flush();
}
