//! The client of the control socket against a server that answers as a test wants.

use std::{net::Shutdown, os::unix::net::UnixListener, thread};

use ether::pcapng;
use serde_json::json;

use super::{
    capture::{dropped, whole_blocks},
    *,
};
use crate::{CoalescingChange, CoalescingSettings, DmaSettings};

/// A `vnicd` that answers each request line with what `answer` makes of it, on one connection.
fn fake(answer: impl Fn(Value) -> String + Send + 'static) -> (tempfile::TempDir, VnicdClient) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let socket = folder.path().join("vnicd.sock");
    let listener = UnixListener::bind(&socket).expect("free");
    thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
        let (mut stream, mut line) = (stream, String::new());
        while reader.read_line(&mut line).is_ok_and(|length| length > 0) {
            let request = serde_json::from_str(&line).expect("requests are JSON lines");
            stream.write_all(answer(request).as_bytes()).expect("the client reads");
            line.clear();
        }
    });
    let client = VnicdClient::connect(&socket).expect("it listens");
    (folder, client)
}

#[test]
fn only_the_fields_to_change_are_sent() {
    let (_folder, mut client) = fake(|request| {
        assert_eq!(
            request,
            json!({"id": 1, "op": "coalesce", "port": "n1.eth0", "delay_ns": 1_000_000})
        );
        "{\"id\":1,\"ok\":{\"strategy\":\"timeout\",\"delay_ns\":1000000,\"frames\":0,\"marks\":true}}\n".to_owned()
    });
    let mut change = CoalescingChange::default();
    change.all.delay_ns = Some(1_000_000);
    let settings = client.change("n1.eth0", &change).expect("accepted").all;
    assert_eq!((settings.strategy.as_str(), settings.delay_ns), ("timeout", 1_000_000));
}

#[test]
fn a_refusal_is_the_sentence_of_vnicd() {
    let (_folder, mut client) = fake(|_| "{\"id\":1,\"error\":\"there is no port n9.eth0\"}\n".to_owned());
    assert_eq!(
        client.stats(Some("n9.eth0")).expect_err("refused").to_string(),
        "there is no port n9.eth0"
    );
}

#[test]
fn nonsense_and_silence_are_told_apart() {
    let (_folder, mut client) = fake(|_| "hello\n".to_owned());
    assert!(matches!(client.ping(), Err(VnicdError::Unexpected { .. })));
    let (_folder, mut client) = fake(|_| "{\"id\":7,\"ok\":{}}\n".to_owned());
    assert!(matches!(client.ping(), Err(VnicdError::Unexpected { .. })));
    assert!(matches!(
        VnicdClient::connect(Path::new("/nowhere/vnicd.sock")),
        Err(VnicdError::Unreachable(_))
    ));
}

#[test]
fn a_vnicd_that_is_stopped_is_given_up_with_a_sentence() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let socket = folder.path().join("vnicd.sock");
    // It takes no connection, as if it were stopped: the kernel keeps those that wait, until they are too many.
    let _listener = UnixListener::bind(&socket).expect("free");
    let patience = Duration::from_millis(50);
    let mut waiting = Vec::new();
    let refused = loop {
        match VnicdClient::connect_with(&socket, patience) {
            Ok(mut client) => {
                if waiting.is_empty() {
                    let error = client.stats(None).expect_err("there is no answer");
                    assert_eq!(error.to_string(), "vnicd did not answer within 0.05 s");
                }
                waiting.push(client);
            }
            Err(error) => break error,
        }
        assert!(waiting.len() < 10_000, "connecting never waits");
    };
    assert!(matches!(refused, VnicdError::Silent(_)), "{refused}");
    let client = waiting.pop().expect("one was connected");
    assert!(matches!(client.capture(&[], None), Err(VnicdError::Silent(_))));
}

#[test]
fn a_capture_is_written_in_whole_blocks_even_when_it_is_cut_off() {
    let whole = "\x0a\x0d\x0d\x0a\x10\0\0\0body\x10\0\0\0";
    let (_folder, client) = fake(move |_| format!("{{\"id\":1,\"ok\":{{}}}}\n{whole}{}", &whole[..9]));
    let capture = client.capture(&[], None).expect("accepted");
    let handle = capture.handle().expect("a second handle");
    let (sender, receiver) = std::sync::mpsc::channel();
    let writing = thread::spawn(move || capture.write_to(Sender(sender)));
    assert_eq!(receiver.recv().expect("a block comes"), whole.as_bytes());
    handle.end();
    handle.end();
    writing
        .join()
        .expect("no panic")
        .expect("a capture that is ended is no failure");
    assert!(receiver.iter().all(|bytes| bytes.is_empty()));
}

#[test]
fn a_capture_that_nobody_ended_is_a_failure() {
    let (_folder, client) = fake(|_| "{\"id\":1,\"ok\":{}}\n\x0a\x0d\x0d\x0a\x10\0\0\0body\x10\0\0\0".to_owned());
    let capture = client.capture(&[], None).expect("accepted");
    capture
        .handle()
        .expect("a second handle")
        .stream
        .shutdown(Shutdown::Both)
        .expect("it is open");
    let error = capture.write_to(std::io::sink()).expect_err("it was not asked to end");
    assert!(error.to_string().starts_with("vnicd has ended"), "{error}");
}

#[test]
fn what_a_capture_misses_is_read_from_its_last_blocks() {
    let mut blocks = b"\x0a\x0d\x0d\x0a\x10\0\0\0body\x10\0\0\0".to_vec();
    for dropped in [3, 1 << 33] {
        let statistics = pcapng::Statistics {
            interface: 0,
            at: ether::Time::ZERO,
            origin_unix_ns: 1,
            received_frames: Some(77),
            dropped_frames: Some(dropped),
        };
        pcapng::interface_statistics(&mut blocks, &statistics);
    }
    assert_eq!(dropped(&blocks), (1 << 33) + 3);
    assert_eq!(dropped(&blocks[..30]), 0);
}

#[test]
fn something_that_is_not_pcapng_is_refused() {
    assert_eq!(whole_blocks(b"abc").expect("not enough to say"), 0);
    assert!(whole_blocks(b"abcd\0\0\0\0").is_err());
    assert!(whole_blocks(b"abcd\xff\xff\xff\xff").is_err());
}

struct Sender(std::sync::mpsc::Sender<Vec<u8>>);

impl Write for Sender {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        _ = self.0.send(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn settings_written_before_vnicd_was_killed_are_read_to_the_last_whole_line() {
    let event = |delay_ns: u64| {
        let mut coalesce = CoalescingSettings::default();
        coalesce.all.delay_ns = delay_ns;
        let event = SettingsEvent::Port {
            groups: Vec::new(),
            vlans: None,
            port: "n1.eth0".to_owned(),
            coalesce,
            dma: DmaSettings::default(),
            steering: Default::default(),
            misorder: Default::default(),
            link: PortLinks::default(),
        };
        serde_json::to_string(&event).expect("plain data")
    };
    let (first, second) = (event(1), event(2));
    let (_folder, client) = fake(move |_| format!("{{\"id\":1,\"ok\":{{}}}}\n{first}\n{second}\n{}", &first[..20]));
    let watch = client.watch().expect("accepted");
    let handle = watch.reader.get_ref().try_clone().expect("a second handle");
    let mut seen = Vec::new();
    for event in watch {
        if let SettingsEvent::Port { coalesce, .. } = event {
            seen.push(coalesce.all.delay_ns);
        }
        if seen.len() == 2 {
            handle.shutdown(std::net::Shutdown::Both).expect("open");
        }
    }
    assert_eq!(seen, [1, 2]);
}
