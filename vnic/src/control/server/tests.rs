//! The server with clients that talk of nothing.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags};

use super::*;
use crate::session::socket::ClaimedSocket;

/// Long enough for any loaded machine: only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(30);
/// More than the system keeps of an answer that is not read.
const LONG: usize = 8 << 20;

/// Says each line again. Those who are `HURRIED` are let go soon, also if they say nothing.
struct Echo<const HURRIED: bool>(Arc<AtomicBool>);

impl<const HURRIED: bool> Talk for Echo<HURRIED> {
    const NAME: &'static str = "echo";
    const CLIENTS_MAX: usize = 8;
    const LINE_LEN_MAX: usize = 1 << 10;
    const PATIENCE: Duration = Duration::from_millis(if HURRIED { 50 } else { 200 });
    const IS_ASKED_AT_ONCE: bool = HURRIED;

    fn refusal(_: bool, sentence: &str) -> String {
        sentence.to_owned()
    }

    fn line(&mut self, _: &Socket, line: &[u8], out: &mut Vec<u8>) -> io::Result<Next> {
        match line {
            b"panic" => panic!("as the test asked for"),
            b"wait" => return Ok(Next::Later(Duration::ZERO)),
            b"long" => out.resize(LONG, b'.'),
            line => out.extend(line),
        }
        out.push(b'\n');
        Ok(Next::Line)
    }

    fn go_on(&mut self, _: bool, out: &mut Vec<u8>) -> Next {
        if !self.0.load(Ordering::SeqCst) {
            return Next::Later(Duration::from_millis(1));
        }
        out.extend(b"waited\n");
        Next::Line
    }
}

struct Bench {
    folder: tempfile::TempDir,
    is_released: Arc<AtomicBool>,
    _server: Subscription,
}

impl Bench {
    fn new<const HURRIED: bool>() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let listener = ClaimedSocket::bind(&folder.path().join("s"), None).unwrap();
        let is_released = Arc::new(AtomicBool::new(false));
        let for_clients = Arc::clone(&is_released);
        let welcome = move || Echo::<HURRIED>(Arc::clone(&for_clients));
        Bench {
            folder,
            is_released,
            _server: start(&EventThread::start().unwrap(), listener, welcome).unwrap(),
        }
    }

    fn connect(&self) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(self.folder.path().join("s")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        BufReader::new(stream)
    }
}

fn say(client: &mut BufReader<UnixStream>, words: &str) {
    client.get_mut().write_all(words.as_bytes()).unwrap();
}

fn hear(client: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    line
}

#[test]
fn a_request_that_waits_lets_all_others_be_answered() {
    let bench = Bench::new::<false>();
    let (mut waiting, mut other) = (bench.connect(), bench.connect());
    say(&mut waiting, "wait\nbehind\n");
    for _ in 0..100 {
        say(&mut other, "a\n");
        assert_eq!(hear(&mut other), "a\n");
    }
    waiting.get_mut().set_nonblocking(true).unwrap();
    let early = waiting.fill_buf().unwrap_err();
    assert_eq!(early.kind(), ErrorKind::WouldBlock);
    waiting.get_mut().set_nonblocking(false).unwrap();
    bench.is_released.store(true, Ordering::SeqCst);
    assert_eq!(
        (hear(&mut waiting), hear(&mut waiting)),
        ("waited\n".to_owned(), "behind\n".to_owned())
    );
}

#[test]
fn one_who_floods_takes_turns_with_all_others() {
    let bench = Bench::new::<false>();
    let mut flood = bench.connect();
    let mut other = bench.connect();
    // It never stops, and reads every answer.
    let is_over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&is_over);
    let mut answers = flood.get_ref().try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 1 << 16];
        while answers.read(&mut bytes).is_ok_and(|len| len > 0) {}
    });
    let writer = std::thread::spawn(move || {
        while !until.load(Ordering::SeqCst) {
            say(&mut flood, &"b\n".repeat(1 << 12));
        }
        flood.get_ref().shutdown(std::net::Shutdown::Both).unwrap();
    });
    for _ in 0..100 {
        say(&mut other, "a\n");
        assert_eq!(hear(&mut other), "a\n");
    }
    is_over.store(true, Ordering::SeqCst);
    writer.join().unwrap();
    reader.join().unwrap();
}

#[test]
fn one_who_does_not_read_costs_one_answer_and_is_let_go() {
    let bench = Bench::new::<false>();
    let mut idle = bench.connect();
    let mut deaf = bench.connect();
    deaf.get_mut().set_nonblocking(true).unwrap();
    // What the server does not take stays in the system's bounded buffer.
    let mut said = 0;
    while let Ok(len) = deaf.get_mut().write(b"long\n") {
        said += len;
        assert!(said < LONG, "the server takes line after line");
    }
    deaf.get_mut().set_nonblocking(false).unwrap();
    let mut fds = [PollFd::new(deaf.get_ref(), PollFlags::empty())];
    let limit = rustix::time::Timespec::try_from(PATIENCE).unwrap();
    assert_eq!(rustix::event::poll(&mut fds, Some(&limit)), Ok(1), "it is let go");
    // What the system kept for it is still there.
    let mut heard = Vec::new();
    let _ = deaf.read_to_end(&mut heard);
    assert!(heard.len() < LONG, "{}", heard.len());
    say(&mut idle, "a\n");
    assert_eq!(hear(&mut idle), "a\n", "one who asks nothing may stay");
}

#[test]
fn one_who_has_to_ask_at_once_and_does_not_is_let_go() {
    let bench = Bench::new::<true>();
    let mut slow = bench.connect();
    say(&mut slow, "half a li");
    assert_eq!(hear(&mut slow), "");
}

#[test]
fn a_panic_costs_its_client_only() {
    let bench = Bench::new::<false>();
    let (mut unlucky, mut other) = (bench.connect(), bench.connect());
    say(&mut unlucky, "panic\n");
    assert_eq!(hear(&mut unlucky), "");
    // Its descriptor's number is free for the next.
    for client in [&mut other, &mut bench.connect()] {
        say(client, "a\n");
        assert_eq!(hear(client), "a\n");
    }
}

#[test]
fn the_last_line_needs_no_end_and_all_before_it_are_answered() {
    let bench = Bench::new::<false>();
    let mut client = bench.connect();
    say(&mut client, "a\nb\nc");
    client.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
    let mut all = String::new();
    client.read_to_string(&mut all).unwrap();
    assert_eq!(all, "a\nb\nc\n\n", "an empty line says that there are no more");
}
