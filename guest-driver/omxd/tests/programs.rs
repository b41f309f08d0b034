//! Promises of authority and library together, with real programs over veth: in two network namespaces, as ordinary users, with
//! the authority killed, the link switched. Needs root; a test that cannot make its network fails with a sentence.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use ether::MacAddr;
use netif::testing::{Veth, in_private_network};
use omx::{Address, Board, Counter, Endpoint, EndpointOptions, Error, StatusCode};

const LIMIT: Duration = Duration::from_secs(20);
const ECHO: &str = "OMX_TEST_ECHO";

/// Runs `body` in a network namespace and with a directory of sockets of its own.
fn in_own_world(test: &str, body: impl FnOnce()) {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test makes network namespaces and packet sockets: run it as root"
    );
    in_private_network(test, || {
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

struct Echo {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Echo {
    fn start(interface: &str, before: &[&str]) -> Self {
        let own = env::current_exe().unwrap();
        let mut words: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
        words.push(own.display().to_string());
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .args(["--exact", "echo_program_of_the_other_tests", "--nocapture"])
            .env(ECHO, interface)
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

    /// Lets it open its endpoint; what it says.
    fn go(&mut self) -> String {
        writeln!(self.input, "go").unwrap();
        for line in self.output.by_ref().lines() {
            if let Some(said) = line.unwrap().strip_prefix('@') {
                return said.to_owned();
            }
        }
        panic!("the program ended without a word");
    }

    fn go_as(&mut self) -> (MacAddr, u8) {
        let said = self.go();
        let (mac, endpoint) = said.split_once(' ').unwrap_or_else(|| panic!("{said}"));
        (
            mac.parse().unwrap_or_else(|_| panic!("{said}")),
            endpoint.parse().unwrap(),
        )
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn open(interface: &str, endpoint: Option<u8>) -> Result<Endpoint, Error> {
    Endpoint::open(&EndpointOptions {
        interface: Some(interface.to_owned()),
        endpoint,
        ..EndpointOptions::default()
    })
}

/// Sends and gets back.
fn exchange(endpoint: &Endpoint, to: Address, len: usize, match_info: u64) {
    let data: Vec<u8> = (0..len).map(|i| (i * 13 + i / 255) as u8 ^ match_info as u8).collect();
    endpoint.send(&data, to, match_info).unwrap();
    let mut back = vec![0; len];
    let status = endpoint.receive(&mut back, match_info, u64::MAX).unwrap();
    assert_eq!((status.code, status.transferred as usize), (StatusCode::Success, len));
    assert!(back == data, "{len} bytes came back changed");
}

fn sent_frames(interface: &str) -> u64 {
    let output = Command::new("ip")
        .args(["-s", "-j", "link", "show", interface])
        .output()
        .unwrap();
    let links: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    links[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "{what} within the limit");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn programs_in_two_namespaces_talk_and_the_interface_counts_their_frames() {
    in_own_world(
        "programs_in_two_namespaces_talk_and_the_interface_counts_their_frames",
        || {
            for mtu in [1500, 9000] {
                let veth = Veth::new(mtu);
                let mut echo = Echo::start(&veth.b, &["unshare", "--net"]);
                let pid = echo.child.id().to_string();
                // Its namespace is its own as soon as `unshare` runs the program.
                let own = fs::read_link("/proc/self/ns/net").unwrap();
                wait_until("a namespace", || {
                    fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|theirs| theirs != own)
                });
                let ip = |args: &[&str]| assert!(Command::new("ip").args(args).status().unwrap().success());
                ip(&["link", "set", &veth.b, "netns", &pid]);
                let up = ["-t", &pid, "-n", "ip", "link", "set", &veth.b, "up"];
                assert!(Command::new("nsenter").args(up).status().unwrap().success());
                let endpoint = open(&veth.a, None).unwrap();
                let (mac, number) = echo.go_as();
                let to = endpoint.connect(mac, number, 0, Some(LIMIT)).unwrap();
                let before = sent_frames(&veth.a);
                for round in 0..100 {
                    exchange(&endpoint, to, 16, round);
                }
                let tiny = sent_frames(&veth.a) - before;
                assert!(
                    (100..150).contains(&tiny),
                    "{tiny} frames for 100 messages and some acknowledgements"
                );
                for len in [0, 129, 5000, 32_768, 100_000, 4 << 20] {
                    exchange(&endpoint, to, len, 7);
                }
                assert!(endpoint.counters().get(Counter::SendPullReply) as usize >= (4 << 20) / mtu);
                endpoint.close().unwrap();
            }
        },
    );
}

#[test]
fn two_programs_share_an_interface_and_a_killed_omxd_comes_back_unnoticed() {
    in_own_world(
        "two_programs_share_an_interface_and_a_killed_omxd_comes_back_unnoticed",
        || {
            let veth = Veth::new(9000);
            let mut echoes = [Echo::start(&veth.b, &[]), Echo::start(&veth.b, &[])];
            let addresses = [echoes[0].go_as(), echoes[1].go_as()];
            assert_ne!(addresses[0].1, addresses[1].1, "each has a number of its own");
            let endpoint = open(&veth.a, None).unwrap();
            let to = addresses.map(|(mac, number)| endpoint.connect(mac, number, 0, Some(LIMIT)).unwrap());
            let board = Board::named(&veth.b).unwrap();
            let (before, peers_before) = board.status().unwrap();
            assert_eq!(before.endpoints.len(), 2);
            for round in 0..300u64 {
                if round == 100 {
                    let pid = rustix::process::Pid::from_raw(before.pid as i32).unwrap();
                    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
                }
                exchange(&endpoint, to[round as usize % 2], 100 + 500 * round as usize, round);
            }
            wait_until("both endpoints with the new omxd", || {
                let (after, _) = board.status().unwrap();
                after.pid != before.pid && after.endpoints == before.endpoints
            });
            let (_, peers_after) = board.status().unwrap();
            for peer in &peers_before {
                let same = peers_after.iter().find(|after| after.mac == peer.mac).unwrap();
                assert_eq!(same.index, peer.index);
            }
            assert_eq!(
                endpoint.counters().get(Counter::RecvNackLib),
                0,
                "nobody was told of a closed endpoint"
            );
            // A program that ends frees its number, and others learn that nobody is there.
            drop(echoes);
            wait_until("no endpoint open", || board.status().unwrap().0.endpoints.is_empty());
            let closed = endpoint.connect(addresses[0].0, addresses[0].1, 0, Some(LIMIT));
            assert!(
                matches!(closed, Err(Error::Failed(StatusCode::EndpointClosed))),
                "{closed:?}"
            );
            let bad = endpoint.connect(addresses[0].0, 200, 0, Some(LIMIT));
            assert!(matches!(bad, Err(Error::Failed(StatusCode::BadEndpoint))), "{bad:?}");
        },
    );
}

#[test]
fn a_link_that_goes_down_and_up_loses_nothing() {
    in_own_world("a_link_that_goes_down_and_up_loses_nothing", || {
        let veth = Veth::new(1500);
        let mut echo = Echo::start(&veth.b, &[]);
        let (mac, number) = echo.go_as();
        let endpoint = open(&veth.a, None).unwrap();
        let to = endpoint.connect(mac, number, 0, Some(LIMIT)).unwrap();
        for (round, name) in [&veth.a, &veth.b].into_iter().enumerate() {
            let data = vec![round as u8; 2 << 20];
            let sender = std::thread::spawn({
                let (endpoint, data) = (endpoint.clone(), data.clone());
                move || endpoint.send(&data, to, 3).unwrap()
            });
            veth.set_up(name, false);
            std::thread::sleep(Duration::from_millis(100));
            veth.set_up(name, true);
            let mut back = vec![0xff; data.len()];
            assert_eq!(
                endpoint.receive(&mut back, 3, u64::MAX).unwrap().transferred as usize,
                data.len()
            );
            assert!(back == data);
            assert_eq!(sender.join().unwrap().code, StatusCode::Success);
        }
    });
}

#[test]
fn ordinary_users_of_the_group_open_endpoints_and_others_get_a_sentence() {
    in_own_world(
        "ordinary_users_of_the_group_open_endpoints_and_others_get_a_sentence",
        || {
            let veth = Veth::new(1500);
            let member = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
            let stranger = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"];
            let sentence = Echo::start(&veth.b, &stranger).go();
            assert!(
                sentence.contains("no omxd runs") && sentence.contains("CAP_NET_RAW"),
                "{sentence}"
            );
            let mut omxd = Command::new(env!("CARGO_BIN_EXE_omxd"))
                .args(["--interface", &veth.b, "--group", "nogroup"])
                .spawn()
                .unwrap();
            let board = Board::named(&veth.b).unwrap();
            let running = || omxd::Session::connect_to_running(board.interface()).unwrap().is_some();
            wait_until("omxd", running);
            let sentence = Echo::start(&veth.b, &stranger).go();
            assert!(sentence.contains("only members of its group"), "{sentence}");
            let mut echo = Echo::start(&veth.b, &member);
            let (mac, number) = echo.go_as();
            let endpoint = open(&veth.a, Some(3)).unwrap();
            let to = endpoint.connect(mac, number, 0, Some(LIMIT)).unwrap();
            exchange(&endpoint, to, 100_000, 1);
            let busy = open(&veth.a, Some(3)).err().unwrap();
            assert!(
                matches!(busy, Error::Busy { .. }) && busy.to_string().contains("open already"),
                "{busy}"
            );
            assert!(matches!(open(&veth.a, Some(32)), Err(Error::BadEndpoint)));
            assert!(matches!(open("nowhere0", None), Err(Error::BoardNotFound { .. })));
            // Told to end, it ends cleanly and leaves no socket behind.
            let pid = rustix::process::Pid::from_child(&omxd);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            assert!(omxd.wait().unwrap().success());
            assert!(!omxd::Place::of(board.interface().index).unwrap().socket().exists());
        },
    );
}
