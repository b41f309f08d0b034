//! The control socket as a client sees it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;

use serde_json::{Value, json};

use super::*;
use crate::dataplane::FabricSettings;
use vnicd_protocol::config::Config;

/// Long enough for any loaded machine: only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(30);

struct Bench {
    folder: tempfile::TempDir,
    fabric: Fabric,
    server: Option<Subscription>,
    shutdowns: mpsc::Receiver<()>,
}

impl Bench {
    /// A fabric with the ports `a` and `b`, a trunk between the switches `s` and `t`, and its control socket.
    fn new() -> Bench {
        let fabric = Fabric::new(FabricSettings::default()).unwrap();
        let switch = fabric.add_switch("s");
        let config = r#"{"switches":[{"name":"s"}],"ports":[
            {"name":"a","switch":"s","listen":"/a"},{"name":"b","switch":"s","listen":"/b"}]}"#;
        let config: Config = serde_json::from_str(config).unwrap();
        for settings in config.ports {
            fabric.add_port(switch, settings).unwrap();
        }
        let other = fabric.add_switch("t");
        fabric
            .add_trunk(switch, other, &vnicd_protocol::TrunkLinks::default())
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (asked, shutdowns) = mpsc::channel();
        let asked = std::sync::Mutex::new(asked);
        let on_shutdown = Arc::new(move || asked.lock().unwrap().send(()).unwrap());
        let events = EventThread::start().unwrap();
        let path = folder.path().join("c");
        let server = serve(&events, &path, fabric.clone(), Instant::now(), on_shutdown).unwrap();
        Bench {
            folder,
            fabric,
            server: Some(server),
            shutdowns,
        }
    }

    fn connect(&self) -> Client {
        let stream = UnixStream::connect(self.folder.path().join("c")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client {
            reader: BufReader::new(stream),
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.server = None;
        self.fabric.shutdown();
    }
}

struct Client {
    reader: BufReader<UnixStream>,
}

impl Client {
    fn say(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn ask(&mut self, request: Value) -> Value {
        self.say(format!("{request}\n").as_bytes());
        self.hear()
    }

    fn ok(&mut self, request: Value) -> Value {
        let answer = self.ask(request);
        answer.get("ok").unwrap_or_else(|| panic!("refused: {answer}")).clone()
    }

    fn is_at_end(&mut self) -> bool {
        matches!(self.reader.read(&mut [0; 64]), Ok(0))
    }
}

#[test]
fn nonsense_gets_one_clear_sentence_and_the_connection_goes_on() {
    let bench = Bench::new();
    let mut client = bench.connect();
    let table: [(&[u8], &str); 19] = [
        (b"hello", "the line is not JSON"),
        (b"\xff\xfe", "the line is not JSON"),
        (b"{\"op\":\"ping\"", "the line is not JSON"),
        (b"[1,2]", "must be a JSON object"),
        (b"{}", "\"op\" is missing: one of info"),
        (b"{\"op\":1}", "\"op\" must be one of info"),
        (b"{\"op\":\"fly\"}", "there is no operation \"fly\""),
        (b"{\"id\":{},\"op\":\"ping\"}", "\"id\" must be"),
        (b"{\"op\":\"ping\",\"port\":\"a\"}", "the field \"port\" is unknown"),
        (b"{\"op\":\"stats\",\"port\":\"absent\"}", "there is no port \"absent\""),
        (b"{\"op\":\"stats\",\"port\":5}", "\"port\" must be a string"),
        (b"{\"op\":\"coalesce\",\"strategy\":\"stream\"}", "\"port\" is missing"),
        (
            b"{\"op\":\"coalesce\",\"port\":\"a\",\"delay_us\":75}",
            "coalesce: unknown field `delay_us`, expected one of `strategy`, `delay_ns`",
        ),
        (
            b"{\"op\":\"link\",\"port\":\"a\",\"loss\":1}",
            "link: unknown field `loss`, expected one of `up`, `rate_bps`",
        ),
        (b"{\"op\":\"link\",\"port\":\"a\",\"loss_ppm\":2000000}", "loss"),
        (
            b"{\"op\":\"capture\",\"ports\":[\"a\",\"x\"]}",
            "there is no port \"x\"",
        ),
        (
            b"{\"op\":\"link\",\"port\":\"a\",\"mtu\":99999}",
            "mtu of a link must be 68 to 65535",
        ),
        (b"{\"op\":\"capture\",\"ports\":[\"a\",\"a\"]}", "\"a\" is named twice"),
        (
            b"{\"op\":\"capture\",\"snaplen\":\"all\"}",
            "\"snaplen\" must be a number",
        ),
    ];
    for (line, expected) in table {
        client.say(line);
        client.say(b"\n");
        let answer = client.hear();
        let sentence = answer["error"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(sentence.contains(expected) && !sentence.contains('\n'), "{sentence}");
    }
    let mut deep = vec![b'['; 60_000];
    deep.push(b'\n');
    client.say(&deep);
    assert!(client.hear()["error"].as_str().unwrap().contains("not JSON"));
    client.say(b"\n  \n");
    assert_eq!(
        client.ask(json!({ "id": "last", "op": "ping" })),
        json!({ "id": "last", "ok": {} })
    );
}

#[test]
fn settings_are_given_and_taken() {
    let bench = Bench::new();
    let mut client = bench.connect();
    let asked = client.ok(json!({ "op": "coalesce", "port": "a" }));
    assert_eq!(
        asked,
        json!({ "strategy": "disabled", "delay_ns": 75_000, "frames": 0, "marks": true })
    );
    let set = client.ok(json!({ "op": "coalesce", "port": "a", "strategy": "stream", "delay_ns": 1_000_000 }));
    assert_eq!(
        (&set["strategy"], &set["delay_ns"]),
        (&json!("stream"), &json!(1_000_000))
    );
    assert_eq!(client.ok(json!({ "op": "coalesce", "port": "a" })), set);
    assert_eq!(
        client.ok(json!({ "op": "coalesce", "port": "b" }))["strategy"],
        "disabled"
    );

    let set = client.ok(json!({ "op": "link", "port": "b", "direction": "to_guest", "up": false, "delay_ns": 7 }));
    assert_eq!(
        (&set["to_guest"]["up"], &set["from_guest"]["up"]),
        (&json!(false), &json!(true))
    );
    let set = client.ok(json!({ "op": "link", "port": "b", "loss_ppm": 10 }));
    assert_eq!(
        (&set["to_guest"]["loss_ppm"], &set["from_guest"]["loss_ppm"]),
        (&json!(10), &json!(10))
    );
    assert_eq!(set["to_guest"]["delay_ns"], 7, "the other fields stay");

    let set = client.ok(json!({ "op": "dma", "port": "a", "setup_ns": 500 }));
    assert_eq!((&set["setup_ns"], &set["parallelism"]), (&json!(500), &json!(1)));

    let info = client.ok(json!({ "op": "info" }));
    assert_eq!(
        (info["pid"].as_u64(), info["version"].as_str()),
        (Some(u64::from(std::process::id())), Some("0.1.0"))
    );
    assert_eq!(
        (&info["ports"][1]["name"], &info["ports"][1]["link_up"]),
        (&json!("b"), &json!(false))
    );
    let stats = client.ok(json!({ "op": "stats" }));
    assert_eq!(stats["ports"].as_array().unwrap().len(), 2);
    assert_eq!(
        client.ok(json!({ "op": "stats", "port": "b" }))["ports"][0]["name"],
        "b"
    );
}

#[test]
fn those_who_watch_get_everything_first_and_then_every_change_before_its_answer() {
    let bench = Bench::new();
    let mut watcher = bench.connect();
    watcher.ok(json!({ "op": "watch" }));
    for port in ["a", "b"] {
        let event = watcher.hear();
        assert_eq!((&event["event"], &event["port"]), (&json!("port"), &json!(port)));
        assert_eq!(event["coalesce"]["delay_ns"], 75_000);
        assert_eq!(event["dma"]["parallelism"], 1);
    }
    let event = watcher.hear();
    assert_eq!(
        (&event["event"], &event["a"], &event["b"]),
        (&json!("trunk"), &json!("s"), &json!("t"))
    );
    assert_eq!(watcher.hear(), json!({ "event": "watching" }));
    // From here on no read waits: what is answered has been written to those who watch.
    watcher.reader.get_mut().set_nonblocking(true).unwrap();
    let mut other = bench.connect();
    assert!(watcher.reader.fill_buf().is_err(), "an event without a cause");
    for delay_ns in [1, 2, 3] {
        other.ok(json!({ "op": "coalesce", "port": "b", "delay_ns": delay_ns }));
        assert_eq!(watcher.hear()["coalesce"]["delay_ns"], delay_ns);
    }
    other.ok(json!({ "op": "link", "port": "a", "direction": "to_guest", "loss_ppm": 7 }));
    let event = watcher.hear();
    assert_eq!(
        (
            &event["link"]["to_guest"]["loss_ppm"],
            &event["link"]["from_guest"]["loss_ppm"]
        ),
        (&json!(7), &json!(0))
    );
    other.ok(json!({ "op": "dma", "port": "a", "setup_ns": 9 }));
    assert_eq!(watcher.hear()["dma"]["setup_ns"], 9);
    // Questions and refused requests are no changes.
    other.ok(json!({ "op": "coalesce", "port": "b" }));
    other.ask(json!({ "op": "link", "port": "a", "loss_ppm": 2_000_000 }));
    other.ok(json!({ "op": "trunk", "a": "t", "b": "s", "direction": "a_to_b", "delay_ns": 5 }));
    let event = watcher.hear();
    assert_eq!(
        (&event["a"], &event["link"]["b_to_a"]["delay_ns"]),
        (&json!("s"), &json!(5))
    );
}

#[test]
fn one_who_watches_and_does_not_read_is_let_go_and_holds_up_nobody() {
    let bench = Bench::new();
    let mut deaf = bench.connect();
    deaf.ok(json!({ "op": "watch" }));
    let mut other = bench.connect();
    for delay_ns in 0..5000 {
        other.ok(json!({ "op": "coalesce", "port": "a", "delay_ns": delay_ns }));
    }
    let buffer_len = rustix::net::sockopt::socket_send_buffer_size(deaf.reader.get_ref()).unwrap();
    let (mut lines, mut bytes) = (0, 0);
    let mut line = String::new();
    while deaf.reader.read_line(&mut line).is_ok_and(|len| len > 0) {
        assert!(line.ends_with('\n'), "whole lines only: {line}");
        lines += 1;
        bytes += line.len();
        line.clear();
    }
    // As many as the socket's buffer takes, of which the kernel counts each line with its own administration.
    assert!(
        bytes > buffer_len / 4 && lines < 5000,
        "{lines} lines of {bytes} bytes in a buffer of {buffer_len}"
    );
}

#[test]
fn switches_say_what_they_know_and_ports_take_vlans() {
    let bench = Bench::new();
    let mut client = bench.connect();
    let ask = json!({ "op": "vlan", "port": "a" });
    assert_eq!(client.ok(ask.clone()), json!({ "vlans": null }), "tags are not read");
    let vlans = json!({ "untagged": null, "tagged": "10,20-22" });
    let set = json!({ "op": "vlan", "port": "a", "untagged": null, "tagged": "22,20-21,10" });
    assert_eq!(client.ok(set.clone()), json!({ "vlans": vlans }));
    assert_eq!(client.ok(ask.clone())["vlans"], vlans);
    let default = json!({ "op": "vlan", "port": "a", "default": true });
    assert_eq!(
        client.ok(default),
        json!({ "vlans": null }),
        "no port has any, and tags are not read"
    );
    assert_eq!(client.ok(ask)["vlans"], Value::Null);
    client.ok(set);
    for (request, sentence) in [
        (json!({ "op": "vlan", "port": "x" }), "there is no port \"x\""),
        (
            json!({ "op": "vlan", "port": "a", "untagged": 4095 }),
            "a VLAN is a number from 1 to 4094, not 4095",
        ),
        (
            json!({ "op": "vlan", "port": "a", "default": true, "tagged": "10" }),
            "vlan: the field \"tagged\" is unknown",
        ),
        (json!({ "op": "switch", "switch": "x" }), "there is no switch \"x\""),
        (json!({ "op": "macs", "switch": "x" }), "there is no switch \"x\""),
        (
            json!({ "op": "trunk", "a": "s", "b": "t", "number": 2 }),
            "there is 1 trunk between \"s\" and \"t\": its number is 1",
        ),
    ] {
        assert_eq!(client.ask(request)["error"], sentence);
    }
    let switches = client.ok(json!({ "op": "switch" }))["switches"].clone();
    let [s, t] = [&switches[0], &switches[1]];
    assert_eq!(
        (&s["switch"], &s["has_vlans"], &t["has_vlans"]),
        (&json!("s"), &json!(true), &json!(false))
    );
    let ports: Vec<_> = s["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| port["to"].clone())
        .collect();
    assert_eq!(ports, [json!("a"), json!("b"), json!("t")]);
    assert_eq!(s["ports"][1]["vlans"], json!({ "untagged": 1, "tagged": "" }));
    // Every reason is there, also those that never applied.
    for reason in fabric::DropReason::ALL {
        assert_eq!(s["ports"][0]["dropped"][reason.name().replace('-', "_")], 0, "{reason}");
    }
    assert_eq!(client.ok(json!({ "op": "macs", "switch": "s" })), json!({ "macs": [] }));
    assert_eq!(client.ok(json!({ "op": "memberships" })), json!({ "memberships": [] }));
    assert_eq!(
        client.ask(json!({ "op": "memberships", "switch": "x" }))["error"],
        "there is no switch \"x\""
    );
    // What is lost on a trunk has its reasons, too; on the cable of a card it is the card's.
    assert_eq!(s["ports"][2]["lost"]["too_many_trunks"], 0);
    assert_eq!(s["ports"][2]["lost"]["queue_full"], 0);
    assert_eq!(s["ports"][0]["lost"], json!(null));
}

#[test]
fn settings_of_trunks_are_given_and_taken() {
    let bench = Bench::new();
    let mut client = bench.connect();
    let set = client.ok(json!({ "op": "trunk", "a": "s", "b": "t", "direction": "a_to_b", "rate_bps": 1_000_000 }));
    assert_eq!(
        (&set["a_to_b"]["rate_bps"], &set["b_to_a"]["rate_bps"]),
        (&json!(1_000_000), &json!(0))
    );
    let turned = client.ok(json!({ "op": "trunk", "a": "t", "b": "s" }));
    assert_eq!((&turned["a_to_b"], &turned["b_to_a"]), (&set["b_to_a"], &set["a_to_b"]));
    for (request, sentence) in [
        (
            json!({ "op": "trunk", "a": "s" }),
            "trunk: \"b\" is missing: the name of a switch",
        ),
        (
            json!({ "op": "trunk", "a": "s", "b": "u" }),
            "there is no trunk between \"s\" and \"u\"",
        ),
        (
            json!({ "op": "trunk", "a": "s", "b": "t", "direction": "up" }),
            "trunk: \"direction\" must be both, a_to_b or b_to_a",
        ),
    ] {
        assert_eq!(client.ask(request)["error"], sentence);
    }
    client.ask(json!({ "op": "trunk", "a": "s", "b": "t", "loss_ppm": 2_000_000 }));
    assert_eq!(
        client.ok(json!({ "op": "trunk", "a": "s", "b": "t" })),
        set,
        "a refused change changes nothing"
    );
}

#[test]
fn lines_beyond_the_limit_end_the_connection_with_a_sentence() {
    let bench = Bench::new();
    let mut client = bench.connect();
    client.say(&vec![b' '; Requests::LINE_LEN_MAX]);
    assert!(
        client.hear()["error"]
            .as_str()
            .unwrap()
            .contains("longer than 65536 bytes")
    );
    assert!(client.is_at_end());
    let mut client = bench.connect();
    let mut longest = br#"{"op":"ping"}"#.to_vec();
    longest.resize(Requests::LINE_LEN_MAX - 1, b' ');
    longest.push(b'\n');
    client.say(&longest);
    assert_eq!(client.hear()["ok"], json!({}));
}

#[test]
fn stalled_clients_block_nobody() {
    let bench = Bench::new();
    let mut half_a_line = bench.connect();
    half_a_line.say(b"{\"op\":");
    // Asks again and again and never reads, until both socket buffers are full.
    let mut deaf = bench.connect();
    deaf.reader.get_mut().set_nonblocking(true).unwrap();
    while deaf.reader.get_mut().write(b"{\"op\":\"stats\"}\n").is_ok() {}
    let mut captured = bench.connect();
    captured.ok(json!({ "op": "capture", "ports": ["a"] }));
    assert_eq!(bench.connect().ok(json!({ "op": "ping" })), json!({}));
    assert!(bench.connect().ok(json!({ "op": "stats" }))["ports"].is_array());
    half_a_line.say(b"\"ping\"}\n");
    assert_eq!(half_a_line.hear()["ok"], json!({}));
}

#[test]
fn only_readers_of_streams_may_be_slow() {
    let bench = Bench::new();
    let (client, _other) = UnixStream::pair().unwrap();
    let client = Socket::from(std::os::fd::OwnedFd::from(client));
    for (line, next) in [
        ("{\"op\":\"stats\"}", Next::Line),
        ("nonsense", Next::Line),
        ("{\"op\":\"capture\"}", Next::Later(Duration::ZERO)),
    ] {
        let mut requests = Requests {
            fabric: bench.fabric.clone(),
            started: Instant::now(),
            on_shutdown: Arc::new(|| {}),
            drain: None,
            follows: Follows::Nothing,
        };
        let mut out = Vec::new();
        assert_eq!(
            requests.line(&client, line.as_bytes(), &mut out).unwrap(),
            next,
            "{line}"
        );
        assert!(out.ends_with(b"\n"));
    }
}

#[test]
fn one_client_too_many_is_told_so_and_places_become_free() {
    let bench = Bench::new();
    let mut clients: Vec<Client> = (0..Requests::CLIENTS_MAX).map(|_| bench.connect()).collect();
    for client in &mut clients {
        client.ok(json!({ "op": "ping" }));
    }
    let mut surplus = bench.connect();
    assert!(surplus.hear()["error"].as_str().unwrap().contains("256 clients"));
    assert!(surplus.is_at_end());
    clients.pop();
    // The place is free once the server noticed; a turned-away client comes again.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut client = bench.connect();
        if client.reader.get_mut().write_all(b"{\"op\":\"ping\"}\n").is_ok() && client.hear().get("ok").is_some() {
            break;
        }
        assert!(Instant::now() < deadline);
    }
}

#[test]
fn a_capture_begins_with_its_headers_and_ends_with_its_client() {
    let bench = Bench::new();
    let mut client = bench.connect();
    client.ok(json!({ "op": "capture", "ports": ["a"], "snaplen": 64 }));
    let mut start = [0; 4];
    client.reader.read_exact(&mut start).unwrap();
    assert_eq!(start, [0x0a, 0x0d, 0x0d, 0x0a], "a pcapng section header");
    let busy = bench.connect().ask(json!({ "op": "capture", "ports": ["a"] }));
    assert!(busy["error"].as_str().unwrap().contains("being captured already"));
    drop(client);
    let deadline = Instant::now() + PATIENCE;
    while bench
        .connect()
        .ask(json!({ "op": "capture", "ports": ["a"] }))
        .get("ok")
        .is_none()
    {
        assert!(Instant::now() < deadline, "the port is never free again");
    }
}

#[test]
fn a_capture_that_is_asked_to_end_ends_with_what_it_missed_and_the_port_is_free() {
    let bench = Bench::new();
    for _ in 0..3 {
        let mut client = bench.connect();
        client.ok(json!({ "op": "capture", "ports": ["a", "b"] }));
        client.reader.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
        let mut file = Vec::new();
        client.reader.read_to_end(&mut file).unwrap();
        let mut kinds = Vec::new();
        let mut at = 0;
        while let Some(head) = file.get(at..at + 8) {
            kinds.push(u32::from_le_bytes(head[..4].try_into().unwrap()));
            at += u32::from_le_bytes(head[4..].try_into().unwrap()) as usize;
        }
        // A section, an interface for each port, and their statistics.
        assert_eq!((kinds, at), (vec![0x0a0d_0d0a, 1, 1, 5, 5], file.len()));
    }
}

#[test]
fn only_the_owner_may_use_it() {
    let bench = Bench::new();
    let mode = std::fs::metadata(bench.folder.path().join("c"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn shutdown_is_answered_then_carried_out() {
    let bench = Bench::new();
    let mut client = bench.connect();
    assert_eq!(
        client.ask(json!({ "id": 9, "op": "shutdown" })),
        json!({ "id": 9, "ok": {} })
    );
    bench.shutdowns.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn the_end_of_the_server_is_the_end_of_every_client() {
    let mut bench = Bench::new();
    let mut idle = bench.connect();
    idle.ok(json!({ "op": "ping" }));
    let mut capturing = bench.connect();
    capturing.ok(json!({ "op": "capture" }));
    bench.server = None;
    assert!(idle.is_at_end());
    let mut rest = Vec::new();
    capturing.reader.read_to_end(&mut rest).unwrap();
    assert!(!bench.folder.path().join("c").exists());
}

#[test]
fn a_trace_carries_whole_records_for_one_reader_and_ends_with_it() {
    let bench = Bench::new();
    let mut client = bench.connect();
    let about = client.ok(json!({ "op": "trace", "port": "a", "events": 1000 }));
    assert_eq!(
        (about["record_version"].as_u64(), about["record_bytes"].as_u64()),
        (Some(1), Some(24))
    );
    let busy = bench.connect().ask(json!({ "op": "trace", "port": "a" }));
    assert!(busy["error"].as_str().unwrap().contains("being traced already"));
    for (request, sentence) in [
        (json!({ "op": "trace" }), "\"port\" is missing"),
        (json!({ "op": "trace", "port": "x" }), "there is no port"),
        (json!({ "op": "trace", "port": "b", "events": 5 }), "from 256 to 262144"),
    ] {
        let refused = bench.connect().ask(request);
        assert!(refused["error"].as_str().unwrap().contains(sentence), "{refused}");
    }
    bench.fabric.runner.with(|plane, now| {
        let nic = plane.card(0).firmware_mut();
        let packet = firmware::PacketInfo { len: 77, marked: false };
        nic.rx(0).arrive(now, packet).unwrap();
        nic.note_dropped(now, 0x80);
    });
    client.reader.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
    let mut bytes = Vec::new();
    client.reader.read_to_end(&mut bytes).unwrap();
    let (records, rest) = bytes.as_chunks::<24>();
    assert!(rest.is_empty());
    let kinds: Vec<_> = records
        .iter()
        .map(|record| firmware::recorder::Record::from_bytes(record).unwrap())
        .map(|record| (record.kind.name(), record.detail, record.number))
        .collect();
    assert!(
        kinds.contains(&("drop", 0x80, 0)) && kinds.contains(&("arrive", 0, 77)),
        "{kinds:?}"
    );
    // It is off again, and free for the next reader.
    let deadline = Instant::now() + PATIENCE;
    while bench.connect().ask(json!({ "op": "trace", "port": "a" }))["ok"].is_null() {
        assert!(Instant::now() < deadline);
    }
}
