//! What programs get that ask while the authority is being started again, and the raw endpoint of an interface.

use std::{env, thread, time::Instant};

use ether::{EtherType, MacAddr};
use mxoe::engine::Counter;
use netif::{AfPacket, AfPacketOptions, Netif, testing::Veth};
use omx::{Board, Error};
use omxd::{OmxdError, RAW_ENDPOINT, Refusal, START_LIMIT, Session};

use crate::{
    authority::Omxd,
    rig::{Program, in_own_world, wait_until},
};

const ASKS: &str = "OMX_TEST_ASKS";

/// An ordinary user's program that asks for the address of a host. Started by the test below.
#[test]
fn asking_program_of_the_other_tests() {
    let Ok(interface) = env::var(ASKS) else { return };
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    match Board::named(&interface).unwrap().find_peer("far:0") {
        Ok(mac) => println!("\n@{mac}"),
        Err(error) => println!("\n@{error}"),
    }
}

#[test]
fn questions_wait_for_an_authority_that_is_started_again() {
    in_own_world("away::questions_wait_for_an_authority_that_is_started_again", || {
        let veth = Veth::new(1500);
        let settings = ["--name", "near:0", "--group", "nogroup"];
        let mut omxd = Omxd::start(&[], &veth.a, &settings);
        let pid = omxd.child.id();
        let board = Board::named(&veth.a).unwrap();
        let far = MacAddr([2, 0, 0, 0, 0, 0x42]);
        board.set_name(Some(far), "far:0").unwrap();
        let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].map(str::to_owned);
        let asks = "away::asking_program_of_the_other_tests";
        let mut member = Program::start(&user, asks, ASKS, &veth.a);
        omxd.kill();
        member.tell("ask");
        let asked = board.clone();
        let name = thread::spawn(move || asked.find_peer("far:0"));
        // Both look for it before it is there: what they find then has the settings, and was not started by them.
        thread::sleep(START_LIMIT / 10);
        assert!(!name.is_finished());
        let omxd = Omxd::start(&[], &veth.a, &settings);
        assert_eq!(name.join().unwrap().unwrap(), far);
        assert_eq!(member.hear(), far.to_string());
        let (status, _) = board.status().unwrap();
        assert!(status.pid == omxd.child.id() && status.pid != pid && status.name == "near:0");
        assert!(matches!(board.find_peer("nobody:0"), Err(Error::NameNotFound)));
    });
}

#[test]
fn questions_about_an_authority_that_stays_away_end_within_the_limit() {
    in_own_world(
        "away::questions_about_an_authority_that_stays_away_end_within_the_limit",
        || {
            let veth = Veth::new(1500);
            let mut omxd = Omxd::start(&[], &veth.a, &["--group", "nogroup"]);
            let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].map(str::to_owned);
            let mut member = Program::start(&user, "away::asking_program_of_the_other_tests", ASKS, &veth.a);
            omxd.kill();
            let begin = Instant::now();
            member.tell("ask");
            let said = member.hear();
            assert!(said.contains("no omxd runs for"), "{said}");
            assert!(begin.elapsed() >= START_LIMIT);
        },
    );
}

#[test]
fn an_interface_has_one_raw_endpoint_and_raw_frames_that_nobody_takes_are_counted() {
    in_own_world(
        "away::an_interface_has_one_raw_endpoint_and_raw_frames_that_nobody_takes_are_counted",
        || {
            let veth = Veth::new(1500);
            let mut omxd = Omxd::start(&[], &veth.b, &[]);
            let board = Board::named(&veth.b).unwrap();
            let count = |counter| board.counters().unwrap().get(counter);
            let mut port = AfPacket::open(&veth.a, EtherType::MXOE, &AfPacketOptions::default()).unwrap();
            let mut frame = [0xff; 60];
            frame[12..14].copy_from_slice(&EtherType::MXOE.0.to_be_bytes());
            frame[16] = 1;
            let mut put = || assert!(port.send(&[std::io::IoSlice::new(&frame)]).unwrap());
            put();
            wait_until("the frame that nobody takes", || count(Counter::DropRawQueueFull) == 1);

            let first = omxd.session().unwrap();
            first.open_raw().unwrap();
            let second = omxd.session().unwrap().open_raw();
            assert!(
                matches!(&second, Err(OmxdError::Refused { reason: Refusal::Busy, sentence }) if sentence.contains("by process")),
                "{second:?}"
            );
            let raw = omxd.status().0.raw.unwrap();
            assert_eq!((raw.endpoint, raw.pid), (RAW_ENDPOINT, std::process::id()));
            // Far more than may wait: its own socket has them.
            for _ in 0..100 {
                put();
            }
            wait_until("frames for the raw endpoint", || count(Counter::RecvRaw) == 100);
            assert_eq!(count(Counter::DropRawQueueFull), 1);
            drop(first);
            wait_until("it is closed", || omxd.status().0.raw.is_none());
            put();
            wait_until("another frame for nobody", || count(Counter::DropRawQueueFull) == 2);

            // It is the authority's: gone with it.
            let session = omxd.session().unwrap();
            session.open_raw().unwrap();
            assert!(!session.is_gone());
            omxd.kill();
            assert!(session.is_gone());
            let again = Omxd::start(&[], &veth.b, &[]);
            Session::connect(board.interface()).unwrap().open_raw().unwrap();
            drop(again);
        },
    );
}
