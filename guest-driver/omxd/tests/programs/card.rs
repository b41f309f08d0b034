//! The authority and the card behind its interface: one of ours, and an ordinary one.

use std::{
    io::{BufRead, BufReader, IoSlice, Read},
    os::{fd::AsFd, unix::net::UnixStream},
    process::{Child, Command, Stdio},
    thread,
    time::Instant,
};

use ether::{EtherType, MacAddr, Time};
use firmware::{CONTROL_FRAME_MAX, Card, CardConfig, Coalescing};
use mxoe::wire::{HEAD_LEN, MARK, PacketType};
use netif::{AfPacket, AfPacketOptions, Interest, Netif, Wake};
use omx::Board;
use weft_authority::Session;
use weft_guest_driver_testkit::Veth;

use crate::rig::{LIMIT, in_own_world, open, wait_until};

/// An authority in the foreground, as a service manager starts it.
struct Served {
    child: Child,
}

impl Served {
    fn start(interface: &str, options: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_omxd"))
            .args(["--interface", interface])
            .args(options)
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let board = Board::named(interface).unwrap();
        // Not `Board::status`, which starts another one that may be the first to own the interface.
        wait_until("an authority", || {
            let running = Session::connect_to_running(board.interface()).unwrap();
            running.is_some_and(|session| session.status().unwrap().0.pid == child.id())
        });
        Self { child }
    }

    /// Ends it; the lines of its log that are about the card.
    fn end(mut self) -> Vec<String> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut log = Vec::new();
        self.child.stderr.take().unwrap().read_to_end(&mut log).unwrap();
        assert!(self.child.wait().unwrap().success());
        let lines = BufReader::new(&log[..]).lines().map(Result::unwrap);
        lines.filter(|line| line.contains("card: ")).collect()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn card_of(interface: &str) -> String {
    Board::named(interface).unwrap().status().unwrap().0.card
}

/// Gives the far end of a veth pair the card's address, and answers there as a card until the second of what it returns is dropped.
fn serve_card(veth: &Veth, marks: bool) -> (thread::JoinHandle<Card>, UnixStream) {
    let address = MacAddr::CARD.to_string();
    let set = ["link", "set", &veth.b, "address", &address];
    assert!(Command::new("ip").args(set).status().unwrap().success());
    let mut port = AfPacket::open(&veth.b, EtherType::CARD_CONTROL, &AfPacketOptions::default()).unwrap();
    let (stop, stopper) = UnixStream::pair().unwrap();
    (thread::spawn(move || answer_as_card(&mut port, &stop, marks)), stopper)
}

/// The card's end of the control protocol; `marks`: whether it looked at them before.
fn answer_as_card(port: &mut AfPacket, stop: &UnixStream, marks: bool) -> Card {
    let mut nic = Card::new(CardConfig {
        queue_pairs: 2,
        coalescing: Coalescing {
            marks,
            ..Coalescing::default()
        },
        ..CardConfig::default()
    });
    let start = Instant::now();
    let mut reply = [0; CONTROL_FRAME_MAX];
    loop {
        while let Some(frame) = port.poll_receive().unwrap() {
            let now = Time::from_nanos(start.elapsed().as_nanos() as u64);
            let len = nic.handle_control(now, frame, &mut reply);
            if len > 0 {
                assert!(port.send(&[IoSlice::new(&reply[..len])]).unwrap());
            }
        }
        if port
            .wait(Interest::Receive, Instant::now() + LIMIT, Some(stop.as_fd()))
            .unwrap()
            == Wake::Stop
        {
            return nic;
        }
    }
}

#[test]
fn on_a_weft_card_marks_are_turned_on_and_small_messages_between_ends_that_agreed_carry_them() {
    in_own_world(
        "card::on_a_weft_card_marks_are_turned_on_and_small_messages_between_ends_that_agreed_carry_them",
        || {
            let veth = Veth::new(1500);
            let (card, stopper) = serve_card(&veth, false);
            let served = Served::start(&veth.a, &[]);
            let expected = "a Weft card, 2 receive queues: frames with the latency mark are announced at once, each endpoint has its queue";
            wait_until("the card's answer", || card_of(&veth.a) == expected);
            drop(stopper);
            let nic = card.join().unwrap();
            assert!(nic.coalescing(0).unwrap().marks && nic.coalescing(1).unwrap().marks);
            assert_eq!(nic.steering().settings().mode, firmware::SteeringMode::Endpoint);

            let mut wire = AfPacket::open(&veth.b, EtherType::MXOE, &AfPacketOptions::default()).unwrap();
            let (near, far) = (open(&veth.a, None).unwrap(), open(&veth.b, None).unwrap());
            let own = far.address();
            let answer = thread::spawn(move || {
                far.receive(&mut [0; 16], 1, u64::MAX).unwrap();
                far.close().unwrap();
            });
            let to = near.connect(own.mac(), own.endpoint(), 0, Some(LIMIT)).unwrap();
            near.send(b"urgent", to, 1).unwrap();
            answer.join().unwrap();
            let mut seen = Vec::new();
            while let Some(frame) = wire.poll_receive().unwrap() {
                seen.push(frame[HEAD_LEN]);
            }
            let [tiny, connect] = [PacketType::Tiny, PacketType::Connect].map(PacketType::code);
            assert!(seen.contains(&connect) && seen.contains(&(tiny | MARK)), "{seen:?}");
            let log = served.end();
            assert!(log.len() == 1 && log[0].contains(expected), "{log:?}");
        },
    );
}

#[test]
fn on_a_weft_card_marks_are_turned_off_where_the_interface_does_without_them_or_has_frames_that_it_does_not_know() {
    in_own_world(
        "card::on_a_weft_card_marks_are_turned_off_where_the_interface_does_without_them_or_has_frames_that_it_does_not_know",
        || {
            for (options, mode) in [
                (["--marks", "false"], firmware::SteeringMode::Endpoint),
                (["--ether-type", "88b7"], firmware::SteeringMode::default()),
            ] {
                let veth = Veth::new(1500);
                let (card, stopper) = serve_card(&veth, true);
                let served = Served::start(&veth.a, &options);
                let expected =
                    "a Weft card, 2 receive queues: it does not check the latency mark, its coalescing decides alone";
                wait_until("the card's answer", || card_of(&veth.a).starts_with(expected));
                drop(stopper);
                let nic = card.join().unwrap();
                assert!(!nic.coalescing(0).unwrap().marks && !nic.coalescing(1).unwrap().marks);
                assert_eq!(nic.steering().settings().mode, mode);
                served.end();
            }
        },
    );
}

#[test]
fn on_an_ordinary_card_it_is_said_once_what_happens_instead() {
    in_own_world("card::on_an_ordinary_card_it_is_said_once_what_happens_instead", || {
        let veth = Veth::new(1500);
        let served = Served::start(&veth.a, &[]);
        // No station has the card's address, and the authority serves while it waits for an answer.
        assert_eq!(card_of(&veth.a), "being asked");
        let ordinary = || card_of(&veth.a).starts_with("no Weft card: interrupts come as its driver is set");
        wait_until("silence", ordinary);
        veth.set_up(&veth.a, false);
        wait_until("a switched-off interface", || {
            !Board::named(&veth.a).unwrap().status().unwrap().0.up
        });
        veth.set_up(&veth.a, true);
        wait_until("another question", || card_of(&veth.a) == "being asked");
        wait_until("silence again", ordinary);
        let log = served.end();
        assert!(log.len() == 1 && log[0].contains("omx_tune --check"), "{log:?}");
    });
}
