//! What programs get that ask while the authority is being started again, the raw endpoint of an interface, and
//! what is left of interfaces that are gone.

use std::{
    env,
    fs::File,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant, SystemTime},
};

use ether::{EtherType, MacAddr};
use mxoe::engine::Counter;
use netif::{AfPacket, AfPacketOptions, Interface, Netif};
use omx::{Board, Error};
use weft_authority::{OmxdError, Place, RAW_ENDPOINT, Refusal, START_LIMIT, Session};
use weft_guest_driver_testkit::Veth;

use crate::{
    authority::Omxd,
    rig::{OtherHost, Program, in_own_world, wait_until},
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
        // Both look for it before it is there: what they find then has the settings, and was not started by them. For
        // so long no authority is there; this is what is tested, and no event says that a program looks for it in vain.
        thread::sleep(START_LIMIT / 10);
        assert!(!name.is_finished());
        let omxd = Omxd::start(&[], &veth.a, &settings);
        assert_eq!(name.join().unwrap().unwrap(), far);
        assert_eq!(member.hear(), far.to_string());
        let (status, _) = board.status().unwrap();
        assert!(status.pid == omxd.child.id() && status.pid != pid && status.name == "near:0");
        assert!(matches!(board.find_peer("absent:0"), Err(Error::NameNotFound)));
    });
}

#[test]
fn an_endpoint_is_opened_although_the_authority_ends_before_it_has_answered() {
    in_own_world(
        "away::an_endpoint_is_opened_although_the_authority_ends_before_it_has_answered",
        || {
            let veth = Veth::new(1500);
            let settings = ["--name", "near:0"];
            let mut omxds = vec![Omxd::start(&[], &veth.a, &settings)];
            let board = Board::named(&veth.a).unwrap();
            let omxds = std::cell::RefCell::new(&mut omxds);
            let (session, opened) = Session::begin(board.interface(), |session| {
                let mut omxds = omxds.borrow_mut();
                if omxds.len() == 1 {
                    omxds[0].kill();
                    omxds.push(Omxd::start(&[], &veth.a, &settings));
                }
                session.open_endpoint(Some(2))
            })
            .unwrap();
            assert_eq!((opened.endpoint, opened.board_name.as_str()), (2, "near:0"));
            assert!(!session.is_gone());
        },
    );
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
            wait_until("the frame that is not taken", || count(Counter::DropRawQueueFull) == 1);

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
            wait_until("another frame that is not taken", || {
                count(Counter::DropRawQueueFull) == 2
            });

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

#[test]
fn files_of_interfaces_and_namespaces_that_are_gone_are_cleared_away() {
    in_own_world(
        "away::files_of_interfaces_and_namespaces_that_are_gone_are_cleared_away",
        || {
            let (veth, gone) = (Veth::new(1500), Veth::new(1500));
            let other = OtherHost::start();
            let place = Place::of(Interface::find(&veth.a).unwrap().index).unwrap();
            let number = |path: &Path| std::fs::metadata(path).unwrap().ino();
            let own = number(Path::new("/proc/self/ns/net"));
            let theirs = number(&other.namespace());
            let file = |namespace: u64, index: u32, kind: &str| -> PathBuf {
                let path = place.dir().join(format!("net-{namespace}-if-{index}.{kind}"));
                std::fs::write(&path, "").unwrap();
                path
            };
            let hour = Duration::from_secs(3600);
            let made = |path: &Path, at: SystemTime| File::open(path).unwrap().set_modified(at).unwrap();
            // No process is in these namespaces; the later the number, the older its table.
            let unseen: Vec<_> = (1..=20).map(|namespace| file(namespace, 7, "peers")).collect();
            for (path, age) in unseen.iter().zip(1..) {
                made(path, SystemTime::now() - age * hour);
            }
            let go = [
                file(20, 7, "sock"),
                // Of one that was killed before it had a table.
                file(1, 8, "sock-new"),
                file(own, 9999, "peers"),
            ];
            let served = file(1, 9, "peers");
            let locked = File::open(file(1, 9, "lock")).unwrap();
            rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).unwrap();
            made(&served, SystemTime::UNIX_EPOCH);
            let stay = [served, file(theirs, 3, "peers"), place.dir().join("net-1-if-x.peers")];
            std::fs::write(&stay[2], "").unwrap();
            let index = Interface::find(&gone.a).unwrap().index;
            let its = Place::of(index).unwrap().table();

            let first = Omxd::start(&[], &veth.a, &[]);
            let left: Vec<_> = go.iter().chain(&unseen).filter(|path| path.exists()).collect();
            assert_eq!(left, unseen[..16].iter().collect::<Vec<_>>());
            assert!(stay.iter().all(|path| path.exists()));
            made(&stay[1], SystemTime::UNIX_EPOCH);
            drop(other);
            let _of_gone = Omxd::start(&[], &gone.a, &[]);
            assert!(!stay[1].exists() && place.table().exists() && its.exists());
            let ip = ["link", "delete", &gone.a];
            assert!(Command::new("ip").args(ip).status().unwrap().success());
            wait_until("the end of the table with its interface", || !its.exists());
            assert!(first.session().is_some());
        },
    );
}
