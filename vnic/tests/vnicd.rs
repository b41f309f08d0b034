//! The binary as its user finds it: command line, exit codes, sockets that come and go.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use firmware::control::Request;
use vnicd_protocol::SettingsEvent;
use weft_vnic_testkit::{Frontend, FrontendConfig};

/// Long enough for any loaded machine: only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// When a guest asks its card again that did not answer.
const REPEAT_INTERVAL: Duration = Duration::from_millis(20);

/// Where an MXoE frame says its type.
const TYPE: usize = 16;

fn vnicd(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vnicd"));
    command.args(arguments).stdin(Stdio::null()).env_remove("VNICD_LOG");
    command
}

/// Runs to the end; standard error must be one clear sentence.
fn refused(arguments: &[&str]) -> (i32, String) {
    let Output { status, stderr, .. } = vnicd(arguments).output().unwrap();
    let text = String::from_utf8(stderr).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("vnicd: ")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    (status.code().unwrap(), lines[0].to_owned())
}

/// A running daemon, killed at the end of the test if it still runs.
struct Running(Child);

impl Running {
    fn start(arguments: &[&str], control: &Path) -> Running {
        let mut all = arguments.to_vec();
        all.extend(["--control", control.to_str().unwrap()]);
        let child = vnicd(&all).stderr(Stdio::null()).spawn().unwrap();
        let running = Running(child);
        let deadline = Instant::now() + PATIENCE;
        while ask(control, r#"{"op":"ping"}"#).is_none() {
            assert!(Instant::now() < deadline, "vnicd never answered");
            std::thread::sleep(Duration::from_millis(10));
        }
        running
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn exit_code(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails for one that has ended, as it should have.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(control: &Path, line: &str) -> Option<String> {
    let mut stream = UnixStream::connect(control).ok()?;
    stream.write_all(format!("{line}\n").as_bytes()).ok()?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).ok()?;
    Some(answer)
}

struct Paths {
    folder: tempfile::TempDir,
}

impl Paths {
    fn new() -> Paths {
        Paths {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.at(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn wrong_command_lines_and_configurations_exit_with_2() {
    let paths = Paths::new();
    let a = paths.text("a.sock");
    let long = paths.text(&"x".repeat(120));
    let config = paths.text("config.json");
    let with_config = |text: &str| {
        std::fs::write(&config, text).unwrap();
        refused(&["--config", &config])
    };
    for (code, sentence, expected) in [
        (refused(&[]), "there is no port"),
        (
            refused(&["--listen", &long]),
            "more than the 107 that a socket path can have",
        ),
        (
            refused(&["--listen", &a, "--control", &long]),
            "more than the 107 that a socket path can have",
        ),
        (
            refused(&["--listen", &a, "--listen", &a]),
            "there are two ports named \"a\"",
        ),
        (
            refused(&["--listen", &a, "--listen", &format!("b={a}")]),
            "two ports use the socket",
        ),
        (
            refused(&["--listen", &a, "--control", &a]),
            "is given to two sockets of this vnicd",
        ),
        (refused(&["--listen", "a="]), "needs the path of a socket"),
        (
            refused(&["--listen", &a, "--strategy", "magic"]),
            "strategy \"magic\": there is no coalescing strategy of this name; there are disabled, timeout, open-mx,",
        ),
        (refused(&["--listen", &a, "--mtu", "10"]), "mtu must be"),
        (refused(&["--config", &paths.text("none.json")]), "cannot read"),
        (with_config("{"), "EOF while parsing"),
        (
            with_config(
                r#"{"switches":[{"name":"s"}],"ports":[{"name":"a","switch":"s","listen":"/a","link":{"to_guest":{"delay_ns":10000000001}}}]}"#,
            ),
            "delay_ns is 10000000001, but a link delays by at most",
        ),
        (
            with_config(
                r#"{"switches":[{"name":"s"}],"ports":[{"name":"a","switch":"s","listen":"/a","member_timeout_ns":1}]}"#,
            ),
            "member_timeout_ns must be 100000000 to 600000000000, not 1",
        ),
        (
            with_config(
                r#"{"switches":[{"name":"s"}],"ports":[{"name":"a","switch":"s","listen":"/a","link":{"to_guest":{"mtu":1}}}]}"#,
            ),
            "mtu of a link must be 68 to 65535, not 1",
        ),
        (
            with_config(r#"{"ports":[{"name":"a","switch":"x","listen":"/a"}]}"#),
            "\"x\", which does not exist",
        ),
        (
            with_config(r#"{"switches":[{"name":"s"}],"trunks":[{"a":"s","b":"s"}]}"#),
            "trunk s - s",
        ),
    ]
    .map(|((code, sentence), expected)| (code, sentence, expected))
    {
        assert!(code == 2 && sentence.contains(expected), "{code} {sentence}");
    }
    assert_eq!(vnicd(&["--nonsense"]).output().unwrap().status.code(), Some(2));
    assert_eq!(
        std::fs::read_dir(paths.folder.path()).unwrap().count(),
        1,
        "only the configuration file is there"
    );
}

#[test]
fn taken_sockets_exit_with_1_and_leave_nothing_behind() {
    let paths = Paths::new();
    let _taken = UnixListener::bind(paths.at("taken.sock")).unwrap();
    let (code, sentence) = refused(&["--listen", &paths.text("a.sock"), "--listen", &paths.text("taken.sock")]);
    assert!(
        code == 1 && sentence.ends_with("taken.sock is in use by another process"),
        "{code} {sentence}"
    );
    let (code, sentence) = refused(&[
        "--listen",
        &paths.text("a.sock"),
        "--control",
        &paths.text("taken.sock"),
    ]);
    assert!(
        code == 1 && sentence.ends_with("taken.sock is in use by another process"),
        "{code} {sentence}"
    );
    let (code, sentence) = refused(&["--listen", &paths.text("no/such/folder.sock")]);
    assert!(code == 1 && sentence.contains("cannot listen on"), "{code} {sentence}");
    assert!(!paths.at("a.sock").exists());
    // Each cause once.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for arguments in [
        ["--listen", &paths.text("no/folder.sock"), "--poll-us", "50"],
        ["--listen", &paths.text("a.sock"), "--metrics-listen", &address],
    ] {
        let (code, sentence) = refused(&arguments);
        assert!(code == 1 && sentence.matches("(os error").count() == 1, "{sentence}");
    }
}

#[test]
fn signals_and_the_shutdown_operation_end_it_with_0_and_remove_its_sockets() {
    use rustix::process::Signal;
    for signal in [Some(Signal::TERM), Some(Signal::INT), None] {
        let paths = Paths::new();
        let (a, metrics) = (paths.text("a.sock"), paths.text("m.sock"));
        let mut running = Running::start(&["--listen", &a, "--metrics-socket", &metrics], &paths.at("c.sock"));
        let guest = UnixStream::connect(&a).unwrap();
        match signal {
            Some(signal) => running.signal(signal),
            None => assert_eq!(
                ask(&paths.at("c.sock"), r#"{"id":1,"op":"shutdown"}"#)
                    .unwrap()
                    .trim_end(),
                r#"{"id":1,"ok":{}}"#
            ),
        }
        assert_eq!(running.exit_code(), Some(0));
        assert_eq!(std::fs::read_dir(paths.folder.path()).unwrap().count(), 0);
        drop(guest);
    }
}

#[test]
fn a_killed_daemon_is_replaced_at_once_on_the_same_paths() {
    let paths = Paths::new();
    let (a, control) = (paths.text("a.sock"), paths.at("c.sock"));
    for _ in 0..3 {
        let mut running = Running::start(&["--listen", &a], &control);
        assert!(UnixStream::connect(&a).is_ok());
        running.signal(rustix::process::Signal::KILL);
        assert_eq!(running.exit_code(), None);
        assert!(paths.at("a.sock").exists());
    }
}

/// State of the process `pid`: a letter, or none if there is no such process.
fn state_of(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// An asynchronous-I/O context takes 20 ms and more to end, on an idle machine too. The quickest of some ends tells, as a machine may be busy.
#[test]
fn a_killed_daemon_leaves_its_guests_within_5_ms_and_no_process_behind() {
    let paths = Paths::new();
    let (a, control) = (paths.text("a.sock"), paths.at("c.sock"));
    let mut quickest = Duration::MAX;
    for _ in 0..10 {
        let mut running = Running::start(&["--listen", &a], &control);
        let mut guest = UnixStream::connect(&a).unwrap();
        let pid = running.0.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let killed = Instant::now();
        running.signal(rustix::process::Signal::KILL);
        assert_eq!(guest.read(&mut [0]).unwrap_or(0), 0);
        quickest = quickest.min(killed.elapsed());
        assert_eq!(running.exit_code(), None);
        for child in children.split_whitespace() {
            while state_of(child).is_some_and(|state| state != 'Z') {
                assert!(killed.elapsed() < PATIENCE, "process {child} is left behind");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    println!("the quickest end after {quickest:?}");
    assert!(quickest < Duration::from_millis(5), "{quickest:?}");
}

#[test]
fn the_configuration_file_makes_switches_ports_and_trunks() {
    let paths = Paths::new();
    let config = paths.text("config.json");
    let text = format!(
        r#"{{"switches":[{{"name":"s1"}},{{"name":"s2"}}],
        "ports":[{{"name":"n1.eth0","switch":"s1","listen":"{}","mac":"52:54:00:00:00:01","queue_pairs":2,"mtu":1500,
                   "offloads":false,"coalescing":{{"strategy":"stream","delay_ns":1000,"frames":4,"marks":true}},
                   "dma":{{"setup_ns":10,"rate_bps":0,"parallelism":1}},"link":{{"to_guest":{{"up":false}}}}}},
                 {{"name":"n2.eth0","switch":"s2","connect":"{}"}}],
        "trunks":[{{"a":"s1","b":"s2","link":{{"a_to_b":{{"delay_ns":5}}}}}}]}}"#,
        paths.text("n1.sock"),
        paths.text("n2.sock"),
    );
    std::fs::write(&config, text).unwrap();
    let control = paths.at("c.sock");
    let _running = Running::start(&["--config", &config, "--listen", &paths.text("extra.sock")], &control);
    let info: serde_json::Value = serde_json::from_str(&ask(&control, r#"{"op":"info"}"#).unwrap()).unwrap();
    let ports = info["ok"]["ports"].as_array().unwrap();
    let of = |field: &str| ports.iter().map(|port| port[field].to_string()).collect::<Vec<_>>();
    assert_eq!(of("name"), ["\"n1.eth0\"", "\"n2.eth0\"", "\"extra\""]);
    assert_eq!(of("switch"), ["\"s1\"", "\"s2\"", "\"switch0\""]);
    assert_eq!(of("mode"), ["\"listen\"", "\"connect\"", "\"listen\""]);
    assert_eq!(of("mac"), ["\"52:54:00:00:00:01\"", "null", "null"]);
    assert_eq!(of("mtu"), ["1500", "9000", "9000"]);
    assert_eq!(of("link_up"), ["false", "true", "true"]);
    let coalescing = ask(&control, r#"{"op":"coalesce","port":"n1.eth0"}"#).unwrap();
    assert!(coalescing.contains(r#""strategy":"stream""#), "{coalescing}");
}

#[test]
fn metrics_are_served_on_both_kinds_of_socket() {
    let paths = Paths::new();
    let (a, metrics) = (paths.text("a.sock"), paths.text("m.sock"));
    // A port of the system's choice cannot be learned from outside: one that was free a moment ago will do.
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let tcp = free.to_string();
    let arguments = ["--listen", &a, "--metrics-socket", &metrics, "--metrics-listen", &tcp];
    let _running = Running::start(&arguments, &paths.at("c.sock"));
    fn fetch(mut stream: impl Read + Write, request: &str) -> String {
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    let unix = fetch(UnixStream::connect(&metrics).unwrap(), request);
    assert!(
        unix.starts_with("HTTP/1.1 200 OK\r\n") && unix.ends_with("# EOF\n"),
        "{unix}"
    );
    assert!(unix.contains("weft_port_rx_frames_total{port=\"a\"} 0\n"), "{unix}");
    assert!(
        unix.contains("weft_port_interrupts_total{port=\"a\",reason=\"mark\"} 0\n"),
        "{unix}"
    );
    assert!(
        unix.contains("weft_queue_rx_frames_total{port=\"a\",queue=\"0\"} 0\n"),
        "{unix}"
    );
    assert!(unix.contains("weft_port_connected{port=\"a\"} 0\n"), "{unix}");
    let tcp = fetch(std::net::TcpStream::connect(free).unwrap(), request);
    assert!(tcp.starts_with("HTTP/1.1 200 OK\r\n"));
    let connect = || UnixStream::connect(&metrics).unwrap();
    assert!(fetch(connect(), "GET /etc HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    for (request, body) in [("GET /metrics?x=1 HTTP/1.1", true), ("HEAD /metrics HTTP/1.1", false)] {
        let answer = fetch(connect(), &format!("{request}\r\n\r\n"));
        let has_body = !answer.ends_with("\r\n\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && has_body == body,
            "{request}: {answer}"
        );
        assert!(!answer.contains("Content-Length: 0"), "{answer}");
    }
    let counter = "weft_port_session_violations_total{port=\"a\",rule=\"body_size\"} 0\n";
    assert!(unix.contains(counter), "{unix}");
    assert!(fetch(connect(), "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    assert!(fetch(connect(), &"x".repeat(8193)).starts_with("HTTP/1.1 400"));
}

fn threads_of(running: &Running) -> usize {
    let tasks = format!("/proc/{}/task", running.0.id());
    std::fs::read_dir(tasks).unwrap().count()
}

#[test]
fn ports_and_two_hundred_clients_cost_no_thread_each() {
    const CLIENTS_MAX: usize = 256;
    let paths = Paths::new();
    let control = paths.at("c.sock");
    let start = |ports: usize| {
        let ports = (0..ports).flat_map(|port| ["--listen".to_owned(), paths.text(&format!("p{port}"))]);
        // A port that connects finds no listener.
        let all: Vec<_> = ports.chain(["--connect".to_owned(), paths.text("absent")]).collect();
        Running::start(&all.iter().map(String::as_str).collect::<Vec<_>>(), &control)
    };
    let threads = threads_of(&start(1));
    let running = start(40);
    assert_eq!(threads_of(&running), threads, "ports without a guest cost none");

    let connect = || {
        let stream = UnixStream::connect(&control).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        BufReader::new(stream)
    };
    let line_of = |client: &mut BufReader<UnixStream>| {
        let mut line = String::new();
        client.read_line(&mut line).unwrap();
        line
    };
    let mut clients: Vec<_> = (0..200).map(|_| connect()).collect();
    for (id, client) in clients.iter_mut().enumerate() {
        let request = format!("{{\"id\":{id},\"op\":\"ping\"}}\n");
        client.get_mut().write_all(request.as_bytes()).unwrap();
    }
    for (id, client) in clients.iter_mut().enumerate() {
        assert_eq!(line_of(client), format!("{{\"id\":{id},\"ok\":{{}}}}\n"));
    }
    assert_eq!(threads_of(&running), threads, "nor do clients");

    clients.extend((200..CLIENTS_MAX).map(|_| connect()));
    let mut surplus = connect();
    assert_eq!(
        line_of(&mut surplus),
        "{\"error\":\"the control socket serves 256 clients at a time, and that many are connected\",\"id\":null}\n"
    );
    assert_eq!(line_of(&mut surplus), "", "it is turned away");
}

/// Watches settings; what was in force is read already.
fn watch(control: &Path) -> BufReader<UnixStream> {
    let mut watcher = BufReader::new(UnixStream::connect(control).unwrap());
    watcher.get_mut().set_read_timeout(Some(PATIENCE)).unwrap();
    watcher.get_mut().write_all(b"{\"op\":\"watch\"}\n").unwrap();
    let mut line = String::new();
    while !line.contains("\"watching\"") {
        line.clear();
        assert!(watcher.read_line(&mut line).unwrap() > 0);
    }
    watcher
}

/// Sends a request to the guest's card until it answers.
fn ask_card(guest: &mut Frontend, request: &Request) {
    let mut frame = [0; firmware::CONTROL_FRAME_MAX];
    let len = request.encode(ether::MacAddr([2, 0, 0, 0, 0, 1]), 1, &mut frame);
    let (mut answered, deadline) = (false, Instant::now() + PATIENCE);
    while !answered {
        assert!(Instant::now() < deadline, "the card does not answer");
        // An answer is lost while the receive ring is not started yet, so the request is repeated.
        guest.pairs[0].tx.send(&frame[..len]);
        let again = Instant::now() + REPEAT_INTERVAL;
        while !answered && Instant::now() < again {
            guest.pairs[0]
                .rx
                .poll(64, |_, frame| answered |= frame[12..14] == [0x88, 0xb5]);
        }
    }
}

/// Waits until so many rings of a port are started: another queue stands in for one whose ring is not.
fn await_rings(control: &Path, port: usize, rings: u32) {
    let deadline = Instant::now() + PATIENCE;
    let started = || {
        let info: serde_json::Value = serde_json::from_str(&ask(control, r#"{"op":"info"}"#).unwrap()).unwrap();
        info["ok"]["ports"][port]["rings_started"] == rings
    };
    while !started() {
        assert!(Instant::now() < deadline, "the rings are not started");
    }
}

#[test]
fn queues_that_a_guest_sets_one_by_one_are_told_and_remembered() {
    let paths = Paths::new();
    let (socket, control, config) = (paths.text("a.sock"), paths.at("control"), paths.text("config.json"));
    let in_force = |coalescing: &serde_json::Value| {
        let port = serde_json::json!({ "name": "a", "switch": "s", "listen": socket, "queue_pairs": 3, "coalescing": coalescing });
        let text = serde_json::json!({ "switches": [{ "name": "s" }], "ports": [port] }).to_string();
        std::fs::write(&config, text).unwrap();
        let daemon = Running::start(&["--config", &config], &control);
        let answer = ask(&control, r#"{"op":"coalesce","port":"a"}"#).unwrap();
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        (daemon, answer["ok"].clone())
    };
    let (daemon, before) = in_force(&serde_json::json!({}));
    assert_eq!(before.get("queues"), None, "all queues alike");
    let mut guest = Frontend::start(FrontendConfig::connect(&socket)).unwrap();
    let mut watcher = watch(&control);
    let change = firmware::CoalescingChange {
        strategy: Some(firmware::StrategyKind::Stream),
        delay_ns: Some(123_000),
        ..Default::default()
    };
    ask_card(
        &mut guest,
        &Request::SetCoalescing {
            queue: Some(2),
            change: change.into(),
        },
    );
    let mut line = String::new();
    watcher.read_line(&mut line).unwrap();
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    let differing =
        serde_json::json!([{ "queue": 2, "strategy": "stream", "delay_ns": 123_000, "frames": 0, "marks": true }]);
    assert_eq!(event["coalesce"]["queues"], differing);
    assert_eq!(event["coalesce"]["strategy"], "disabled", "queue 0 is as it was");
    drop(daemon);
    // As a supervisor would do it: started again with what was watched.
    let (_daemon, after) = in_force(&event["coalesce"]);
    assert_eq!(after, event["coalesce"]);
    // A change from outside holds for all.
    let set = ask(&control, r#"{"op":"coalesce","port":"a","strategy":"timeout"}"#).unwrap();
    assert!(set.contains("timeout") && !set.contains("queues"), "{set}");
}

#[test]
fn m_gf9_frames_reach_the_queue_of_their_endpoint_and_the_steering_is_told_and_remembered() {
    const QUEUE_PAIRS: u8 = 3;
    let paths = Paths::new();
    let (sockets, control, config) = (
        ["a.sock", "b.sock"].map(|name| paths.text(name)),
        paths.at("control"),
        paths.text("config.json"),
    );
    let start = |steering: &serde_json::Value| {
        let ports = serde_json::json!([
            { "name": "a", "switch": "s", "listen": sockets[0] },
            { "name": "b", "switch": "s", "listen": sockets[1], "queue_pairs": QUEUE_PAIRS, "steering": steering },
        ]);
        let text = serde_json::json!({ "switches": [{ "name": "s" }], "ports": ports }).to_string();
        std::fs::write(&config, text).unwrap();
        Running::start(&["--config", &config], &control)
    };
    let daemon = start(&serde_json::json!({}));
    let mut a = Frontend::start(FrontendConfig::connect(&sockets[0])).unwrap();
    let mut b = FrontendConfig::connect(&sockets[1]);
    b.queue_pairs = QUEUE_PAIRS.into();
    b.features |= weft_vnic_testkit::F_MQ;
    let mut b = Frontend::start(b).unwrap();
    let mut watcher = watch(&control);
    // The guest asks for it itself, as omxd does.
    let change = firmware::SteeringChange {
        mode: Some(firmware::SteeringMode::Endpoint),
        proposed: true,
        ..Default::default()
    };
    ask_card(&mut b, &Request::SetSteering { change });
    let mut line = String::new();
    watcher.read_line(&mut line).unwrap();
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&event["port"], &event["steering"]),
        (&"b".into(), &serde_json::json!({ "mode": "endpoint" }))
    );

    await_rings(&control, 1, 2 * u32::from(QUEUE_PAIRS));
    // Marked PULL_REPLYs, NACK_LIBs and TINYs to endpoint n: all of them collide under the flow hash.
    for endpoint in 0..QUEUE_PAIRS {
        for (kind, at, value) in [(0xaa, 31, endpoint ^ 0x80), (44, 25, endpoint), (37, 17, endpoint)] {
            let mut frame = [0; 80];
            frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
            frame[12..14].copy_from_slice(&[0x86, 0xdf]);
            frame[TYPE] = kind;
            frame[at] = value;
            frame[79] = endpoint;
            a.pairs[0].tx.send(&frame);
        }
    }
    let (mut seen, deadline) = ([0; QUEUE_PAIRS as usize], Instant::now() + PATIENCE);
    while seen != [3; QUEUE_PAIRS as usize] {
        assert!(Instant::now() < deadline, "{seen:?}");
        for (queue, pair) in b.pairs.iter_mut().enumerate() {
            pair.rx.poll(64, |_, frame| {
                if frame[12..14] == [0x86, 0xdf] {
                    assert_eq!(usize::from(frame[79]), queue);
                    seen[queue] += 1;
                }
            });
        }
    }
    let stats = ask(&control, r#"{"op":"stats","port":"b"}"#).unwrap();
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    let port = &stats["ok"]["ports"][0];
    assert_eq!(port["steering"]["by_endpoint"], 9);
    let frames = |queue: usize| port["queues"][queue]["frames"].as_u64().unwrap();
    // Queue 0 has the card's answers too.
    assert!(frames(0) > 3 && frames(1) == 3 && frames(2) == 3, "{port}");

    // What the host sets, and a vnicd that is started again with what was watched.
    let set = ask(
        &control,
        r#"{"op":"steering","port":"b","endpoints":[2,0],"indirection":[1]}"#,
    )
    .unwrap();
    let set: serde_json::Value = serde_json::from_str(&set).unwrap();
    assert_eq!(
        set["ok"],
        serde_json::json!({ "mode": "endpoint", "endpoints": [2, 0], "indirection": [1] })
    );
    let refused = ask(&control, r#"{"op":"steering","port":"b","endpoints":[3]}"#).unwrap();
    assert!(
        refused.contains("may only name receive queues that the card has"),
        "{refused}"
    );
    drop(daemon);
    let _daemon = start(&set["ok"]);
    let after = ask(&control, r#"{"op":"steering","port":"b"}"#).unwrap();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&after).unwrap()["ok"],
        set["ok"]
    );
    let degree = ask(&control, r#"{"op":"misorder","port":"a","degree":3}"#).unwrap();
    assert!(degree.contains("\"degree\":3"), "{degree}");
    let refused = ask(&control, r#"{"op":"misorder","port":"a","degree":32}"#).unwrap();
    assert!(refused.contains("the degree of misordering is at most 31"), "{refused}");
}

#[test]
fn a_change_that_a_guest_was_told_of_is_never_lost_to_those_who_watch() {
    let paths = Paths::new();
    let (socket, control) = (paths.at("a.sock"), paths.at("control"));
    for round in 0..20 {
        let mut daemon = Running::start(&["--listen", socket.to_str().unwrap()], &control);
        let mut guest = Frontend::start(FrontendConfig::connect(&socket)).unwrap();
        let mut watcher = watch(&control);
        let change = firmware::CoalescingChange {
            delay_ns: Some(100_000 + round),
            ..Default::default()
        };
        ask_card(&mut guest, &Request::SetCoalescing { queue: None, change });
        daemon.signal(rustix::process::Signal::KILL);
        daemon.0.wait().unwrap();
        let mut text = String::new();
        watcher.read_to_string(&mut text).unwrap();
        let event: SettingsEvent = serde_json::from_str(text.lines().last().expect("an event")).unwrap();
        let SettingsEvent::Port { port, coalesce, .. } = event else {
            panic!("{event:?}")
        };
        assert_eq!((port.as_str(), coalesce.all.delay_ns), ("a", 100_000 + round));
    }
}
