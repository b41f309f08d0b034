//! Programs that close their endpoint, or are killed, before their peers have all that they wait for: `omxd` gives it to them. What
//! such a program says itself is lost here, so it comes from `omxd` alone.

use std::{env, time::Duration};

use omx::{Endpoint, Segment, StatusCode};
use weft_authority::{HandoverMemory, Session};
use weft_guest_driver_testkit::Veth;

use crate::rig::{LIMIT, Program, in_own_world, open, wait_until};

const RECEIVER: &str = "OMX_TEST_LAST_RECEIVER";
const SENDER: &str = "OMX_TEST_LAST_SENDER";
/// Tiny, small, medium, large.
const LENGTHS: [usize; 4] = [8, 100, 20_000, 300_000];
/// What is lost of what a receiver says.
const ANSWERS: &str = "OMX_PACKET_LOSS=liback=1,notify=1";
/// All messages of a sender.
const MESSAGES: &str = "OMX_PACKET_LOSS=tiny=1,small=1,medium_frag=1,rndv=1,pull_reply=1";

fn line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

fn say_address(endpoint: &Endpoint) {
    println!("\n@{} {}", endpoint.address().mac(), endpoint.address().endpoint());
}

fn address_of(program: &mut Program) -> (ether::MacAddr, u8) {
    let said = program.hear();
    let (mac, endpoint) = said.split_once(' ').unwrap_or_else(|| panic!("{said}"));
    (mac.parse().unwrap(), endpoint.parse().unwrap())
}

/// Receives one message, closes its endpoint when it is told so, and stays.
#[test]
fn receiving_program_of_the_other_tests() {
    let Ok(interface) = env::var(RECEIVER) else { return };
    let endpoint = open(&interface, None).unwrap();
    say_address(&endpoint);
    let len = line().parse().unwrap();
    let mut buffer = vec![0; len];
    let status = endpoint.receive(&mut buffer, 0, 0).unwrap();
    assert_eq!((status.code, status.transferred as usize), (StatusCode::Success, len));
    assert!(buffer.iter().all(|byte| *byte == 7));
    println!("\n@received");
    line();
    endpoint.close().unwrap();
    println!("\n@closed");
    line();
}

/// Posts messages of all lengths to an endpoint that it is told, closes its own one at once, and stays.
#[test]
fn sending_program_of_the_other_tests() {
    let Ok(interface) = env::var(SENDER) else { return };
    let endpoint = open(&interface, None).unwrap();
    say_address(&endpoint);
    let (mac, number) = line()
        .split_once(' ')
        .map(|(mac, number)| (mac.to_owned(), number.to_owned()))
        .unwrap();
    let (mac, number) = (mac.parse().unwrap(), number.parse().unwrap());
    let to = endpoint.connect(mac, number, 0, Some(LIMIT)).unwrap();
    for (at, len) in LENGTHS.iter().enumerate() {
        let data = vec![at as u8; *len].leak();
        // SAFETY: the bytes stay for ever.
        unsafe { endpoint.isend(&[Segment::of(data)], to, at as u64, 0, false) }.unwrap();
    }
    endpoint.close().unwrap();
    println!("\n@closed");
    line();
}

fn start(test: &str, loss: &str, variable: &str, interface: &str) -> Program {
    let before = ["env", loss].map(str::to_owned);
    Program::start(&before, &format!("closing::{test}"), variable, interface)
}

/// Sends a message of each length to a receiver that says nothing on the wire and then ends as `end` has it.
fn send_to_receivers_that(end: impl Fn(&mut Program)) {
    let veth = Veth::new(1500);
    for len in LENGTHS {
        let mut receiver = start("receiving_program_of_the_other_tests", ANSWERS, RECEIVER, &veth.b);
        let (mac, number) = address_of(&mut receiver);
        let endpoint = open(&veth.a, None).unwrap();
        let to = endpoint.connect(mac, number, 0, Some(LIMIT)).unwrap();
        receiver.tell(&len.to_string());
        let data = vec![7; len];
        // SAFETY: the bytes live until the request is over.
        let send = unsafe { endpoint.isend(&[Segment::of(&data)], to, 1, 0, false) }.unwrap();
        // A request that is over when it is posted says nothing of what the peer has.
        wait_until("the message", || {
            endpoint.progress();
            endpoint.counters().get(omx::Counter::ResentMessages) > 0 || len > 32_768
        });
        assert_eq!(receiver.hear(), "received");
        assert!(!endpoint.wait_delivered(Duration::from_millis(100)).unwrap(), "{len}");
        end(&mut receiver);
        assert!(endpoint.wait_delivered(Duration::from_secs(5)).unwrap(), "{len}");
        let status = endpoint.wait(send, Some(LIMIT)).unwrap().unwrap();
        assert_eq!((status.code, status.transferred as usize), (StatusCode::Success, len));
        assert_eq!(endpoint.counters().get(omx::Counter::RecvNackLib), 0, "{len}");
    }
}

#[test]
fn a_sender_succeeds_whose_receiver_has_the_message_and_closes() {
    in_own_world(
        "closing::a_sender_succeeds_whose_receiver_has_the_message_and_closes",
        || {
            send_to_receivers_that(|receiver| {
                receiver.tell("close");
                assert_eq!(receiver.hear(), "closed");
            });
        },
    );
}

#[test]
fn a_sender_succeeds_whose_receiver_has_the_message_and_is_killed() {
    in_own_world(
        "closing::a_sender_succeeds_whose_receiver_has_the_message_and_is_killed",
        || {
            send_to_receivers_that(|receiver| {
                receiver.child.kill().unwrap();
                receiver.child.wait().unwrap();
            });
        },
    );
}

#[test]
fn what_a_program_sent_before_it_closed_is_received() {
    in_own_world("closing::what_a_program_sent_before_it_closed_is_received", || {
        let veth = Veth::new(1500);
        let mut sender = start("sending_program_of_the_other_tests", MESSAGES, SENDER, &veth.b);
        address_of(&mut sender);
        let endpoint = open(&veth.a, None).unwrap();
        let own = endpoint.address();
        sender.tell(&format!("{} {}", own.mac(), own.endpoint()));
        assert_eq!(sender.hear(), "closed");
        for (at, len) in LENGTHS.iter().enumerate() {
            let mut buffer = vec![0xff; *len];
            // SAFETY: the buffer lives until the request is over.
            let receive = unsafe { endpoint.irecv(&[Segment::of_mut(&mut buffer)], at as u64, u64::MAX, 0) }.unwrap();
            let status = endpoint.wait(receive, Some(LIMIT)).unwrap().expect("it is received");
            assert_eq!((status.code, status.transferred as usize), (StatusCode::Success, *len));
            assert!(buffer.iter().all(|byte| *byte == at as u8));
        }
    });
}

#[test]
fn the_number_of_an_endpoint_that_is_finished_for_is_given_last_or_when_it_is_wanted() {
    in_own_world(
        "closing::the_number_of_an_endpoint_that_is_finished_for_is_given_last_or_when_it_is_wanted",
        || {
            let veth = Veth::new(1500);
            let number = |interface: &str, wanted| {
                let endpoint = open(interface, wanted).unwrap();
                (endpoint.address().endpoint(), endpoint)
            };
            let (first, receiver) = number(&veth.b, None);
            let (_, sender) = number(&veth.a, None);
            assert_eq!(first, 0);
            let to = sender.connect(receiver.address().mac(), first, 0, Some(LIMIT)).unwrap();
            sender.send(&[7; 8], to, 1).unwrap();
            receiver.receive(&mut [0; 8], 0, 0).unwrap();
            receiver.close().unwrap();
            let (second, other) = number(&veth.b, None);
            assert_eq!(second, 1);
            let (wanted, _) = number(&veth.b, Some(0));
            assert_eq!(wanted, 0);
            other.close().unwrap();
            // It received nothing: no peer waits for anything.
            assert_eq!(number(&veth.b, None).0, 0);
        },
    );
}

#[test]
fn a_program_that_claims_to_owe_for_another_endpoint_is_not_finished_for() {
    in_own_world(
        "closing::a_program_that_claims_to_owe_for_another_endpoint_is_not_finished_for",
        || {
            let veth = Veth::new(1500);
            let interface = omx::Board::named(&veth.a).unwrap().interface().clone();
            let (session, opened) = Session::begin(&interface, |session| session.open_endpoint(Some(0))).unwrap();
            let mut memory = HandoverMemory::map(opened.handover.as_ref().unwrap(), 1, 77).unwrap();
            let partner = mxoe::engine::HandedPartner {
                mac: ether::MacAddr([2, 0, 0, 0, 0, 9]),
                endpoint: 0,
                peer: 1,
                reverse: 1,
                session: 1,
                marks: false,
                short_acks: false,
                is_foreign: false,
                expected: mxoe::engine::Seq(9),
                next: mxoe::engine::Seq(1),
                unacked_first: mxoe::engine::Seq(1),
                acks_sent: 0,
                acks_heard: 0,
            };
            memory.note_partner(0, &partner);
            drop((session, opened));
            let endpoint = open(&veth.a, None).unwrap();
            assert_eq!(endpoint.address().endpoint(), 0);
            let next = open(&veth.a, None).unwrap();
            assert_eq!(next.address().endpoint(), 1, "it is not finished for");
        },
    );
}
