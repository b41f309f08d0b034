//! The lab of a test, in a separate folder, removed with its handle.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use testbed::image::{self, Cache, GuestBinaries, Image, Recipe};

/// A lab of two guests on one switch.
pub const PAIR: &str = "name = \"pair\"\n[[node]]\nname = \"n1\"\n[[node]]\nname = \"n2\"\n";

/// A lab of one guest without a card: the quickest lab there is.
pub const LONELY: &str = "name = \"lonely\"\n[[node]]\nname = \"n1\"\nnic = []\n";

/// Time within which a machine that is busy with other work still does something.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the QEMUs to test with: the installed one, and the newer one beside it if there is one.
pub fn qemus() -> Vec<Option<PathBuf>> {
    let newer = std::env::var_os("WEFT_QEMU_NEWER").filter(|path| !path.is_empty());
    let mut qemus = vec![None];
    match newer {
        Some(path) => qemus.push(Some(PathBuf::from(path))),
        None => println!("WEFT_QEMU_NEWER is not set: only the installed QEMU is tested"),
    }
    qemus
}

/// Pairs these with the QEMUs in turn: all of them are tested, and both QEMUs, where no promise is about one with the other.
pub fn with_qemus<T>(kinds: impl IntoIterator<Item = T>) -> impl Iterator<Item = (Option<PathBuf>, T)> {
    qemus().into_iter().cycle().zip(kinds)
}

/// The newest QEMU to test with.
pub fn newest_qemu() -> Option<PathBuf> {
    qemus().pop().flatten()
}

/// A folder for lab files and running labs, with short paths, and the QEMU to use in it.
pub struct World {
    pub dir: TempDir,
    qemu: Option<PathBuf>,
}

impl World {
    pub fn new(qemu: Option<PathBuf>) -> Self {
        let dir = tempfile::Builder::new().prefix("wt").tempdir_in("/tmp").unwrap();
        Self { dir, qemu }
    }

    /// Makes a command of `weft` with these arguments, in this world.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command
            .args(args)
            .current_dir(self.dir.path())
            .env("XDG_RUNTIME_DIR", self.dir.path())
            .env_remove("WEFT_LAB");
        if let Some(qemu) = &self.qemu {
            command.env("WEFT_QEMU", qemu);
        }
        command
    }

    /// Runs `weft` to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    /// Returns what `weft` prints; it must succeed.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "weft {}: {}: {stderr}",
            args.join(" "),
            output.status
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns what `weft --json` prints; it must succeed.
    pub fn json(&self, args: &[&str]) -> Value {
        let text = self.ok(&[&["--json"], args].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("weft {}: {error}: {text}", args.join(" ")))
    }

    /// Runs `weft` with this input.
    pub fn with_input(&self, args: &[&str], input: &[u8]) -> Output {
        let mut child = self.spawn(args);
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let feeding = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        // A command that does not read to the end closes its input early.
        _ = feeding.join().unwrap();
        output
    }

    /// Starts `weft` with all its streams as pipes.
    pub fn spawn(&self, args: &[&str]) -> Child {
        self.command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Starts a lab and leaves it running until this world ends. Only requested frames are sent in it, so that frames
    /// can be counted: IPv6 is off, unless the lab has a setting for it.
    pub fn up(&self, text: &str) {
        self.file("lab.toml", &silent(text));
        self.ok(&["up", "--detach", "--accel", "tcg", "lab.toml"]);
    }

    /// Makes the running lab what this file says.
    pub fn up_again(&self, text: &str) {
        self.file("lab.toml", &silent(text));
        self.ok(&["up"]);
    }

    /// Returns a process number from `ps`, of the lab's first node.
    pub fn pid(&self, which: &str) -> i32 {
        let pid = self.json(&["ps"])[0][which]
            .as_i64()
            .unwrap_or_else(|| panic!("ps shows no {which}"));
        i32::try_from(pid).unwrap()
    }

    /// Returns the folder of running labs.
    pub fn labs(&self) -> PathBuf {
        self.dir.path().join("weft")
    }

    /// Returns the `nic stats` of one card.
    pub fn stats(&self, nic: &str) -> Value {
        self.json(&["nic", "stats", nic])[0].clone()
    }

    /// Returns the address of a node's card.
    pub fn mac(&self, nic: &str) -> String {
        let mac = self.json(&["nic", "info", nic])[0]["mac"].clone();
        mac.as_str().expect("the card has an address").to_owned()
    }

    /// Lets a node send to another one without asking for its address: the lab is silent except for requested frames.
    pub fn introduce(&self, node: &str, other: &str) {
        let mac = self.mac(other);
        self.guest(node, &format!("arp -s {other} {mac}"));
    }

    /// Starts `omx_perf` in a node, which answers measurements, and waits until it listens.
    pub fn perf_server(&self, node: &str) -> Lines {
        let server = Lines::of(self.spawn(&["exec", "-n", node, "--", "omx_perf", "-s", "-w", "-v"]));
        eventually("a server", || !server.so_far().is_empty());
        server
    }

    /// Starts an `iperf3` server that goes to the background, and waits until it listens: it goes there before.
    pub fn iperf3_server(&self, node: &str, options: &str) {
        self.guest(node, &format!("iperf3 -s -D {options}"));
        eventually("iperf3 listens", || {
            let listens = "cat /proc/net/tcp /proc/net/tcp6 | grep -qE ':1451 [0-9A-F:]+ 0A '";
            self.run(&["exec", "-n", node, "--", "sh", "-c", listens])
                .status
                .success()
        });
    }

    /// Runs a command in a guest and returns what it prints; it must succeed.
    pub fn guest(&self, node: &str, script: &str) -> String {
        self.ok(&["exec", "-n", node, "--", "sh", "-c", script])
    }
}

/// Returns the lab file with IPv6 off, unless it has a setting for it.
fn silent(text: &str) -> String {
    let (table, off) = ("[defaults]", "[defaults]\nipv6 = false\n");
    if text.contains("ipv6") {
        text.to_owned()
    } else if text.contains(table) {
        text.replacen(table, off, 1)
    } else {
        let is_table = |line: &&str| line.trim_start().starts_with('[');
        let before: usize = text
            .split_inclusive('\n')
            .take_while(|line| !is_table(line))
            .map(str::len)
            .sum();
        format!("{}{off}{}", &text[..before], &text[before..])
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let output = self.run(&["down", "--all"]);
        if std::thread::panicking() {
            println!("weft down: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// Waits until a condition holds.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {} s: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the image of guests that name none, made if it is not there.
pub fn minimal_image() -> Image {
    let (cache, binaries) = (Cache::open_default().unwrap(), GuestBinaries::locate().unwrap());
    image::build(&Recipe::minimal(), &cache, &binaries, &mut |_| {}).unwrap()
}

/// A process that is killed with its handle.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The lines that a child prints, with the time at which each came.
pub struct Lines {
    lines: Arc<Mutex<Vec<(Instant, String)>>>,
    reader: Option<JoinHandle<()>>,
    child: Child,
}

impl Lines {
    /// Reads what `child` prints from now on.
    pub fn of(mut child: Child) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (said, seen) = (child.stdout.take().unwrap(), Arc::clone(&lines));
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                seen.lock().unwrap().push((Instant::now(), line));
            }
        });
        Self {
            lines,
            reader: Some(reader),
            child,
        }
    }

    /// Returns all lines so far.
    pub fn so_far(&self) -> Vec<(Instant, String)> {
        self.lines.lock().unwrap().clone()
    }

    /// Returns whether the child has not ended yet.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Ends the child as Ctrl-C does, and reads its last output.
    pub fn interrupt(&mut self) {
        signal(self.child.id() as i32, Signal::INT);
        self.wait();
    }

    /// Waits for the child's own end.
    pub fn wait(&mut self) {
        self.child.wait().unwrap();
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // It has ended already, or was left by a test that failed.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Returns the processes that run in `world`, by the names in their command lines.
pub fn processes_of(world: &Path) -> Vec<String> {
    let needle = world.to_str().unwrap();
    let of = |entry: fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(needle).then_some(line)
    };
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| of(entry.unwrap()))
        .collect()
}

/// Kills a process and waits for its end: only then are its locks released. Its command line is gone before.
pub fn kill(pid: i32) {
    use rustix::{
        event::{PollFd, PollFlags, Timespec, poll},
        process::{PidfdFlags, pidfd_open, pidfd_send_signal},
    };
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    pidfd_send_signal(&process, Signal::KILL).unwrap();
    let patience = Timespec::try_from(PATIENCE).unwrap();
    let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience)).unwrap();
    assert_eq!(ended, 1, "a killed process does not end");
}

pub fn signal(pid: i32, signal: Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
}
