//! What these tests have in common: a network of one's own, and another program that sends every message back.

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use ether::MacAddr;
use omx::{Address, Endpoint, EndpointOptions, Error, StatusCode};
use weft_guest_driver_testkit::in_private_network_as_root;

pub const LIMIT: Duration = Duration::from_secs(20);
const ECHO: &str = "OMX_TEST_ECHO";

/// Runs `body` in a network namespace and with a directory of sockets of its own.
pub fn in_own_world(test: &str, body: impl FnOnce()) {
    in_private_network_as_root(test, || {
        let dir = tempfile::tempdir().unwrap();
        // An ordinary user's program reaches the sockets in it.
        Command::new("chmod").arg("755").arg(dir.path()).status().unwrap();
        // SAFETY: nothing else runs in this process yet that looks at the environment.
        unsafe { env::set_var("OMX_RUN_DIR", dir.path()) };
        body();
    });
}

/// The other program: opens an endpoint on an interface and sends every message back. Started by the tests below; on its own
/// it has nothing to do.
#[test]
fn echo_program_of_the_other_tests() {
    let Ok(interface) = env::var(ECHO) else { return };
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let endpoint = match open(&interface, None) {
        Ok(endpoint) => endpoint,
        Err(error) => return println!("\n@{error}"),
    };
    println!("\n@{} {}", endpoint.address().mac(), endpoint.address().endpoint());
    let mut buffer = vec![0; 8 << 20];
    // Until the test ends this program.
    loop {
        let status = endpoint.receive(&mut buffer, 0, 0).unwrap();
        let (to, len) = (status.address.unwrap(), status.transferred as usize);
        endpoint.send(&buffer[..len], to, status.match_info).unwrap();
    }
}

/// A test of this file's program in a process of its own: it is told lines, and what it says begins with `@`.
pub struct Program {
    pub child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts it, behind the words `before`, with `variable` set to `value`.
    pub fn start(before: &[String], test: &str, variable: &str, value: &str) -> Self {
        let own = env::current_exe().unwrap().display().to_string();
        let words = [before, &[own]].concat();
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .args(["--exact", test, "--nocapture"])
            .env(variable, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    pub fn hear(&mut self) -> String {
        for line in self.output.by_ref().lines() {
            if let Some(said) = line.unwrap().strip_prefix('@') {
                return said.to_owned();
            }
        }
        panic!("a program ended without a word: {:?}", self.child.wait());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program that sends every message back.
pub struct Echo(pub Program);

impl Echo {
    pub fn start(interface: &str, before: &[&str]) -> Self {
        let before: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
        Self(Program::start(
            &before,
            "rig::echo_program_of_the_other_tests",
            ECHO,
            interface,
        ))
    }

    /// Lets it open its endpoint; what it says.
    pub fn go(&mut self) -> String {
        self.0.tell("go");
        self.0.hear()
    }

    pub fn go_as(&mut self) -> (MacAddr, u8) {
        let said = self.go();
        let (mac, endpoint) = said.split_once(' ').unwrap_or_else(|| panic!("{said}"));
        (
            mac.parse().unwrap_or_else(|_| panic!("{said}")),
            endpoint.parse().unwrap(),
        )
    }
}

pub fn open(interface: &str, endpoint: Option<u8>) -> Result<Endpoint, Error> {
    Endpoint::open(&EndpointOptions {
        interface: Some(interface.to_owned()),
        endpoint,
        ..EndpointOptions::default()
    })
}

/// Sends and gets back.
pub fn exchange(endpoint: &Endpoint, to: Address, len: usize, match_info: u64) {
    let data: Vec<u8> = (0..len).map(|i| (i * 13 + i / 255) as u8 ^ match_info as u8).collect();
    endpoint.send(&data, to, match_info).unwrap();
    let mut back = vec![0; len];
    let status = endpoint.receive(&mut back, match_info, u64::MAX).unwrap();
    assert_eq!((status.code, status.transferred as usize), (StatusCode::Success, len));
    assert!(back == data, "{len} bytes came back changed");
}

pub fn sent_frames(interface: &str) -> u64 {
    let output = Command::new("ip")
        .args(["-s", "-j", "link", "show", interface])
        .output()
        .unwrap();
    let links: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    links[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "{what} within the limit");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Another network namespace, as if it were another host.
pub struct OtherHost {
    child: Child,
}

impl OtherHost {
    pub fn start() -> Self {
        // `cat` waits until this end of its input is closed.
        let child = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let other = Self { child };
        wait_until("a namespace", || {
            std::fs::read_link(other.namespace()).is_ok_and(|theirs| theirs != own)
        });
        other
    }

    /// The file that stands for its network namespace.
    pub fn namespace(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.child.id()).into()
    }

    /// What comes before a command that is to run there.
    pub fn enter(&self) -> Vec<String> {
        ["nsenter", "-t", &self.child.id().to_string(), "-n"]
            .map(str::to_owned)
            .to_vec()
    }

    /// Moves an interface there and switches it on.
    pub fn take(&self, interface: &str) {
        let pid = self.child.id().to_string();
        let run = |words: &[&str]| assert!(Command::new(words[0]).args(&words[1..]).status().unwrap().success());
        run(&["ip", "link", "set", interface, "netns", &pid]);
        run(&["nsenter", "-t", &pid, "-n", "ip", "link", "set", interface, "up"]);
    }
}

impl Drop for OtherHost {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
