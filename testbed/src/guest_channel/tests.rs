//! Tests of the client and its relay against an agent that the test plays, well-behaved or not.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use weft_agent::credit::WINDOW;
use weft_agent::frame::{DATA_MAX, DELIMITER, Decoder, Frame, Kind};
use weft_agent::message::{Exec, ExitStatus, Failed, Hello, PROTOCOL_VERSION, Started, Welcome};

use super::{ChannelError, Event, GuestChannel};

const PATIENCE: Duration = Duration::from_secs(20);

/// The guest's end of a channel.
struct Agent {
    stream: UnixStream,
    decoder: Decoder,
    ready: std::collections::VecDeque<Frame>,
    session: u32,
    boots: u32,
}

impl Agent {
    fn new() -> (Self, GuestChannel) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let agent = Self {
            stream: ours,
            decoder: Decoder::default(),
            ready: Default::default(),
            session: 0,
            boots: 0,
        };
        (agent, GuestChannel::over(theirs).unwrap())
    }

    /// Makes an agent that has answered.
    fn welcomed() -> (Self, GuestChannel) {
        let (mut agent, channel) = Self::new();
        agent.welcome();
        channel.wait_ready(PATIENCE).unwrap();
        (agent, channel)
    }

    fn next(&mut self) -> Frame {
        let mut buffer = [0; 4096];
        while self.ready.is_empty() {
            let len = self.stream.read(&mut buffer).unwrap();
            assert!(len > 0, "the host has left");
            self.decoder
                .feed(&buffer[..len], |frame| self.ready.push_back(frame.unwrap()));
        }
        self.ready.pop_front().unwrap()
    }

    fn expect(&mut self, kind: Kind) -> Frame {
        loop {
            let frame = self.next();
            if frame.kind == kind {
                return frame;
            }
            assert!(
                matches!(frame.kind, Kind::StdinEnd | Kind::Abort),
                "{frame:?} in place of {kind:?}"
            );
        }
    }

    fn send(&mut self, id: u32, kind: Kind, body: &[u8]) {
        let frame = Frame {
            session: self.session,
            id,
            kind,
            body: body.to_vec(),
        };
        self.stream.write_all(&frame.encode()).unwrap();
    }

    fn say(&mut self, id: u32, kind: Kind, message: &impl serde::Serialize) {
        let frame = Frame::json(self.session, id, kind, message).unwrap();
        self.stream.write_all(&frame.encode()).unwrap();
    }

    fn welcome(&mut self) {
        let hello = self.expect(Kind::Hello);
        assert_eq!(hello.parse::<Hello>().unwrap().protocol, PROTOCOL_VERSION);
        self.session = hello.session;
        self.boots += 1;
        let welcome = Welcome {
            protocol: PROTOCOL_VERSION,
            agent_version: "test".into(),
            hostname: "n1".into(),
            boot_id: self.boots.to_string(),
            kernel: "6".into(),
            problems: Vec::new(),
        };
        self.say(0, Kind::Welcome, &welcome);
    }

    fn restart(&mut self) {
        self.session = 0;
        self.send(0, Kind::Ready, &[]);
    }
}

fn exec(word: &str) -> Exec {
    Exec {
        argv: vec![word.into()],
        ..Exec::default()
    }
}

#[test]
fn nothing_is_asked_of_an_agent_that_has_not_answered() {
    let (_agent, channel) = Agent::new();
    assert!(matches!(channel.exec(&exec("true")), Err(ChannelError::NotReady)));
    let error = channel.wait_ready(Duration::from_millis(10)).unwrap_err();
    assert!(matches!(error, ChannelError::TimedOut(_)), "{error}");
}

#[test]
fn an_agent_of_another_version_is_refused_with_its_own_sentence() {
    let (mut agent, channel) = Agent::new();
    agent.session = agent.expect(Kind::Hello).session;
    agent.say(
        0,
        Kind::Failed,
        &Failed {
            message: "it speaks version 9".into(),
            not_found: false,
        },
    );
    let error = channel.wait_ready(PATIENCE).unwrap_err().to_string();
    assert_eq!(error, "the guest's agent cannot be used: it speaks version 9");
}

#[test]
fn bytes_of_an_older_session_and_cut_off_frames_are_dropped() {
    let (mut agent, channel) = Agent::new();
    let old = Frame {
        session: 77,
        id: 1,
        kind: Kind::Stdout,
        body: vec![1; 300],
    }
    .encode();
    agent.stream.write_all(&old[100..]).unwrap();
    agent.stream.write_all(&old).unwrap();
    agent.stream.write_all(&old[..50]).unwrap();
    agent.stream.write_all(&[DELIMITER]).unwrap();
    agent.welcome();
    channel.wait_ready(PATIENCE).unwrap();
    let mut running = channel.exec(&exec("true")).unwrap();
    let id = agent.expect(Kind::Exec).id;
    agent
        .stream
        .write_all(
            &Frame {
                session: 77,
                id,
                kind: Kind::Exited,
                body: b"{}".to_vec(),
            }
            .encode(),
        )
        .unwrap();
    agent.say(id, Kind::Started, &Started { pid: 5 });
    agent.say(id, Kind::Exited, &ExitStatus::Code(0));
    assert_eq!(running.next(Some(PATIENCE)).unwrap(), Event::Started { pid: 5 });
    assert_eq!(
        running.next(Some(PATIENCE)).unwrap(),
        Event::Exited(ExitStatus::Code(0))
    );
}

#[test]
fn a_restart_ends_commands_and_the_channel_opens_a_new_session() {
    let (mut agent, channel) = Agent::welcomed();
    let before = channel.welcome().unwrap();
    let mut running = channel.exec(&exec("sleep")).unwrap();
    let first = agent.expect(Kind::Exec).session;
    agent.restart();
    assert!(matches!(running.next(Some(PATIENCE)), Err(ChannelError::Restarted)));
    agent.welcome();
    assert_ne!(agent.session, first);
    let second = channel.wait_rebooted(&before, PATIENCE).unwrap();
    assert_eq!((second.boot_id.as_str(), channel.boots()), ("2", 2));
    drop(agent);
    assert!(matches!(
        channel.wait_rebooted(&second, PATIENCE),
        Err(ChannelError::Closed)
    ));
}

#[test]
fn a_guest_that_was_reset_is_not_ready_until_its_next_agent_answers() {
    let (mut agent, channel) = Agent::welcomed();
    let seen = channel.wait_change(0).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (relayed, client) = (channel.clone(), GuestChannel::over(ours).unwrap());
    let relay = std::thread::spawn(move || relayed.relay(theirs));
    let before = client.wait_ready(PATIENCE).unwrap();
    let mut running = client.exec(&exec("reboot")).unwrap();
    agent.expect(Kind::Exec);
    channel.guest_was_reset();
    let seen = channel.wait_change(seen).unwrap();
    assert_eq!(channel.welcome(), None);
    assert!(matches!(running.next(Some(PATIENCE)), Err(ChannelError::Restarted)));
    assert!(matches!(channel.exec(&exec("true")), Err(ChannelError::NotReady)));
    // The next agent finds the hello that the old one could not take.
    agent.welcome();
    let seen = channel.wait_change(seen).unwrap();
    assert_eq!(channel.welcome().unwrap().boot_id, "2");
    assert_eq!(client.wait_rebooted(&before, PATIENCE).unwrap().boot_id, "2");
    drop(agent);
    assert!(matches!(channel.wait_change(seen), Err(ChannelError::Closed)));
    relay.join().unwrap().unwrap();
}

#[test]
fn a_guest_that_sends_without_credit_loses_that_command_only() {
    let (mut agent, channel) = Agent::welcomed();
    let mut greedy = channel.exec(&exec("greedy")).unwrap();
    let mut honest = channel.exec(&exec("honest")).unwrap();
    let (greedy_id, honest_id) = (agent.expect(Kind::Exec).id, agent.expect(Kind::Exec).id);
    for _ in 0..=WINDOW as usize / DATA_MAX {
        agent.send(greedy_id, Kind::Stdout, &[0; DATA_MAX]);
    }
    agent.say(honest_id, Kind::Exited, &ExitStatus::Code(7));
    assert_eq!(honest.next(Some(PATIENCE)).unwrap(), Event::Exited(ExitStatus::Code(7)));
    assert_eq!(agent.expect(Kind::Abort).id, greedy_id);
    let mut pieces = 0;
    let end = loop {
        match greedy.next(Some(PATIENCE)) {
            Ok(_) => pieces += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(
        pieces,
        WINDOW as usize / DATA_MAX,
        "what came within the window is not lost"
    );
    assert!(matches!(end, ChannelError::Protocol(_)), "{end}");
}

#[test]
fn malformed_and_unasked_answers_harm_nobody() {
    let (mut agent, channel) = Agent::welcomed();
    let mut running = channel.exec(&exec("true")).unwrap();
    let id = agent.expect(Kind::Exec).id;
    agent.send(id + 1000, Kind::Exited, b"{}");
    agent.send(id, Kind::CreditInput, &[1, 2]);
    agent.send(0, Kind::Stdout, b"unclaimed");
    agent.send(id, Kind::Stdout, b"");
    agent.send(id, Kind::Hello, b"a guest does not greet");
    agent.send(id, Kind::Exited, b"not json");
    assert!(matches!(running.next(Some(PATIENCE)), Err(ChannelError::Protocol(_))));
    drop(running);
    let running = channel.exec(&exec("true")).unwrap();
    let id = agent.expect(Kind::Exec).id;
    agent.say(id, Kind::Exited, &ExitStatus::Code(0));
    assert!(running.collect(PATIENCE).unwrap().status.success());
}

#[test]
fn a_relayed_client_hears_of_restarts_and_of_the_end() {
    let (mut agent, channel) = Agent::welcomed();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let relay = std::thread::spawn({
        let channel = channel.clone();
        move || channel.relay(theirs)
    });
    let client = GuestChannel::over(ours).unwrap();
    let before = client.wait_ready(PATIENCE).unwrap();
    let mut running = client.exec(&exec("sleep")).unwrap();
    agent.expect(Kind::Exec);
    agent.restart();
    assert!(matches!(running.next(Some(PATIENCE)), Err(ChannelError::Restarted)));
    agent.welcome();
    assert_eq!(client.wait_rebooted(&before, PATIENCE).unwrap().boot_id, "2");
    let mut running = client.exec(&exec("sleep")).unwrap();
    agent.expect(Kind::Exec);
    drop(agent);
    assert!(matches!(running.next(Some(PATIENCE)), Err(ChannelError::Closed)));
    relay.join().unwrap().unwrap();
}

#[test]
fn a_relayed_client_that_leaves_takes_its_commands_with_it() {
    let (mut agent, channel) = Agent::welcomed();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let relay = std::thread::spawn({
        let channel = channel.clone();
        move || channel.relay(theirs)
    });
    // This raw client can leave without notice, as a killed process does.
    let mut client = Agent {
        stream: ours,
        decoder: Decoder::default(),
        ready: Default::default(),
        session: 5,
        boots: 0,
    };
    client.say(
        0,
        Kind::Hello,
        &Hello {
            protocol: PROTOCOL_VERSION,
        },
    );
    assert_eq!(client.expect(Kind::Welcome).session, 5);
    let kept = channel.exec(&exec("kept")).unwrap();
    let kept_id = agent.expect(Kind::Exec).id;
    client.say(kept_id, Kind::Exec, &exec("left"));
    let left_id = agent.expect(Kind::Exec).id;
    assert_ne!(left_id, kept_id, "ids of two clients never collide");
    client.send(kept_id, Kind::Stdin, b"input");
    assert_eq!(agent.expect(Kind::Stdin).id, left_id);
    drop(client);
    relay.join().unwrap().unwrap();
    assert_eq!(agent.expect(Kind::Abort).id, left_id);
    agent.say(kept_id, Kind::Exited, &ExitStatus::Code(0));
    assert!(kept.collect(PATIENCE).unwrap().status.success());
}

#[test]
fn a_relayed_client_that_breaks_the_rules_is_cut_off() {
    let (mut agent, channel) = Agent::welcomed();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let relay = std::thread::spawn({
        let channel = channel.clone();
        move || channel.relay(theirs)
    });
    let mut client = Agent {
        stream: ours,
        decoder: Decoder::default(),
        ready: Default::default(),
        session: 5,
        boots: 0,
    };
    client.say(
        0,
        Kind::Hello,
        &Hello {
            protocol: PROTOCOL_VERSION,
        },
    );
    client.expect(Kind::Welcome);
    client.say(
        1,
        Kind::Exec,
        &Exec {
            stdin: true,
            ..exec("cat")
        },
    );
    let id = agent.expect(Kind::Exec).id;
    for _ in 0..=WINDOW as usize / DATA_MAX {
        client.send(1, Kind::Stdin, &[0; DATA_MAX]);
    }
    for _ in 0..WINDOW as usize / DATA_MAX {
        assert_eq!(agent.expect(Kind::Stdin).id, id);
    }
    assert_eq!(
        agent.expect(Kind::Abort).id,
        id,
        "input beyond the window ends the client"
    );
    relay.join().unwrap().unwrap();
}
