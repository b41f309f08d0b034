//! What an authority and its endpoints are told to do otherwise than by default: by options of `omxd` and by the environment.

use std::{
    collections::BTreeSet,
    io::Read,
    process::{Child, Command, Stdio},
    time::Duration,
};

use ether::{EtherType, MacAddr};
use mxoe::{
    engine::Counter,
    wire::{Dialect, Extension, HEAD_LEN, MARK, Packet, PacketType, Preset},
};
use netif::{AfPacket, AfPacketOptions, Netif};
use omx::{Board, Error, StatusCode};
use weft_authority::Session;
use weft_guest_driver_testkit::Veth;

use crate::rig::{Echo, LIMIT, exchange, in_own_world, open, wait_until};

/// An authority in the foreground with such options.
struct Served {
    child: Child,
}

impl Served {
    fn start(interface: &str, options: &[&str], variables: &[(&str, &str)]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_omxd"))
            .args(["--interface", interface])
            .args(options)
            .envs(variables.iter().copied())
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let board = Board::named(interface).unwrap();
        wait_until("an authority", || {
            let running = Session::connect_to_running(board.interface()).unwrap();
            running.is_some_and(|session| session.status().unwrap().0.pid == child.id())
        });
        Self { child }
    }

    /// Ends it; its log.
    fn end(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert!(self.child.wait().unwrap().success(), "{log}");
        log
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn mac_of(interface: &str) -> MacAddr {
    Board::named(interface).unwrap().interface().mac
}

fn lost_by_authority(interface: &str) -> u32 {
    let (status, _) = Board::named(interface).unwrap().status().unwrap();
    status.counters[Counter::LostOnPurpose as usize]
}

#[test]
fn an_authority_loses_on_purpose_what_it_was_told_to_and_names_words_that_are_nothing() {
    in_own_world(
        "settings::an_authority_loses_on_purpose_what_it_was_told_to_and_names_words_that_are_nothing",
        || {
            let veth = Veth::new(1500);
            let near = open(&veth.a, None).unwrap();
            let refused = || {
                let waiting = Some(Duration::from_millis(700));
                near.connect(mac_of(&veth.b), 3, 0, waiting)
            };
            let served = Served::start(&veth.b, &[], &[("OMX_PACKET_LOSS", "nack_lib=1,wombat=3")]);
            let error = refused().unwrap_err();
            assert!(!matches!(error, Error::Failed(StatusCode::EndpointClosed)), "{error}");
            assert!(lost_by_authority(&veth.b) > 0);
            let log = served.end();
            assert!(
                log.contains("\\\"wombat=3\\\"") || log.contains("\"wombat=3\""),
                "{log}"
            );

            let served = Served::start(&veth.b, &["--packet-loss", "raw=1"], &[]);
            let error = near.connect(mac_of(&veth.b), 3, 0, Some(LIMIT)).unwrap_err();
            assert!(matches!(error, Error::Failed(StatusCode::EndpointClosed)), "{error}");
            wait_until("an announcement that is lost", || lost_by_authority(&veth.b) > 0);
            let log = served.end();
            assert!(!log.contains("no packets are lost"), "{log}");
        },
    );
}

#[test]
fn a_program_s_user_is_told_once_of_words_that_lose_no_packets() {
    in_own_world(
        "settings::a_program_s_user_is_told_once_of_words_that_lose_no_packets",
        || {
            let veth = Veth::new(1500);
            let served = Served::start(&veth.a, &[], &[]);
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "settings::program_that_opens_two_endpoints", "--nocapture"])
                .env(TWO, &veth.a)
                .env("OMX_PACKET_LOSS", "tiny=1000,wombat=3")
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(said.matches("\"wombat=3\"").count(), 1, "{said}");
            served.end();
        },
    );
}

const TWO: &str = "OMX_TEST_TWO_ENDPOINTS";

/// Started by the test above; on its own it has nothing to do.
#[test]
fn program_that_opens_two_endpoints() {
    let Ok(interface) = std::env::var(TWO) else { return };
    for _ in 0..2 {
        open(&interface, None).unwrap().close().unwrap();
    }
}

/// All frames of an EtherType that a port has got, from whom and whole.
fn taken(wire: &mut AfPacket) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some(frame) = wire.poll_receive().unwrap() {
        frames.push(frame.to_vec());
    }
    frames
}

/// Endpoints at both ends exchange a few messages; what one end announced, and all frames it sent.
fn conversation(veth: &Veth) -> (Vec<Extension>, Vec<Vec<u8>>) {
    let mut wire = AfPacket::open(&veth.b, EtherType::MXOE, &AfPacketOptions::default()).unwrap();
    let mut echo = Echo::start(&veth.b, &[]);
    let (mac, number) = echo.go_as();
    let near = open(&veth.a, None).unwrap();
    let to = near.connect(mac, number, 0, Some(LIMIT)).unwrap();
    for round in 0..3 {
        exchange(&near, to, 16, round);
    }
    exchange(&near, to, 200_000, 9);
    let dialect = Dialect::new(Preset::Native1500.sizes()).with_marks(true);
    let frames = taken(&mut wire);
    let announced = frames.iter().filter_map(|frame| match dialect.decode(frame) {
        Ok((_, Packet::Connect(connect))) => Some(connect.extension.unwrap()),
        _ => None,
    });
    let announced = announced.collect();
    near.close().unwrap();
    (announced, frames)
}

fn types(frames: &[Vec<u8>]) -> BTreeSet<u8> {
    frames.iter().map(|frame| frame[HEAD_LEN]).collect()
}

#[test]
fn marks_that_are_switched_off_at_one_end_are_not_announced_and_at_neither_end_sent() {
    in_own_world(
        "settings::marks_that_are_switched_off_at_one_end_are_not_announced_and_at_neither_end_sent",
        || {
            let veth = Veth::new(1500);
            let off = [("OMX_MARKS", "false")];
            for (near, far) in [(&["--marks", "true"][..], &off[..]), (&["--marks", "false"], &[])] {
                let announced = near[1] == "true";
                let served = [Served::start(&veth.a, near, &[]), Served::start(&veth.b, &[], far)];
                let (extensions, frames) = conversation(&veth);
                let types = types(&frames);
                assert!(!extensions.is_empty());
                assert!(
                    extensions.iter().all(|own| own.understands_mark() == announced),
                    "{extensions:?}"
                );
                assert!(types.contains(&PacketType::Tiny.code()), "{types:?}");
                assert!(types.iter().all(|code| code & MARK == 0), "{types:?}");
                served.into_iter().for_each(|served| drop(served.end()));
            }
            // And where no setting is given, they agree.
            let served = [Served::start(&veth.a, &[], &[]), Served::start(&veth.b, &[], &[])];
            let (_, frames) = conversation(&veth);
            let types = types(&frames);
            assert!(types.contains(&(PacketType::Tiny.code() | MARK)), "{types:?}");
            served.into_iter().for_each(|served| drop(served.end()));
        },
    );
}

#[test]
fn hosts_talk_under_the_ether_type_they_were_told_and_nothing_of_theirs_has_another() {
    in_own_world(
        "settings::hosts_talk_under_the_ether_type_they_were_told_and_nothing_of_theirs_has_another",
        || {
            let veth = Veth::new(1500);
            let other = EtherType(0x88b7);
            let mut wires = [EtherType::MXOE, other]
                .map(|ether_type| AfPacket::open(&veth.b, ether_type, &AfPacketOptions::default()).unwrap());
            let near = Served::start(&veth.a, &["--ether-type", "88b7"], &[]);
            // With and without a socket for data.
            for data_socket in ["true", "false"] {
                let options = ["--data-socket", data_socket];
                let far = Served::start(&veth.b, &options, &[("OMX_ETHER_TYPE", "0x88B7")]);
                conversation(&veth);
                let (status, _) = Board::named(&veth.b).unwrap().status().unwrap();
                assert_eq!(status.ether_type, other.0);
                // The authority speaks so as well.
                let endpoint = open(&veth.a, None).unwrap();
                let error = endpoint.connect(mac_of(&veth.b), 7, 0, Some(LIMIT)).unwrap_err();
                assert!(matches!(error, Error::Failed(StatusCode::EndpointClosed)), "{error}");
                far.end();
            }
            let [usual, other] = wires.each_mut().map(taken);
            assert!(usual.is_empty(), "{usual:?}");
            let types: BTreeSet<u8> = other.iter().map(|frame| frame[HEAD_LEN] & !MARK).collect();
            for kind in [
                PacketType::Raw,
                PacketType::Connect,
                PacketType::Tiny,
                PacketType::PullReply,
            ] {
                assert!(types.contains(&kind.code()), "no {kind}: {types:?}");
            }

            // A host with another one is not heard.
            let far = Served::start(&veth.b, &[], &[]);
            let endpoint = open(&veth.a, None).unwrap();
            let error = endpoint.connect(mac_of(&veth.b), 7, 0, Some(Duration::from_millis(700)));
            let error = error.unwrap_err();
            assert!(!matches!(error, Error::Failed(StatusCode::EndpointClosed)), "{error}");
            far.end();
            near.end();
        },
    );
}

#[test]
fn hosts_with_sizes_of_no_preset_talk_if_they_are_the_same_and_connect_badly_if_not() {
    in_own_world(
        "settings::hosts_with_sizes_of_no_preset_talk_if_they_are_the_same_and_connect_badly_if_not",
        || {
            let veth = Veth::new(1500);
            let own = ["--preset", "native:1200:8"];
            let near = Served::start(&veth.a, &own, &[]);
            let far = Served::start(&veth.b, &[], &[("OMX_PRESET", "native:1200:8")]);
            assert_eq!(
                Board::named(&veth.b).unwrap().status().unwrap().0.preset,
                "native:1200:8"
            );
            let (extensions, frames) = conversation(&veth);
            assert!(!extensions.is_empty());
            assert!(
                extensions
                    .iter()
                    .all(|own| (own.preset, own.block_frames_log2) == (4, 3)),
                "{extensions:?}"
            );
            assert_eq!(frames.iter().map(Vec::len).max(), Some(1200));
            far.end();
            for other in ["native:1200:16", "native-1500"] {
                let far = Served::start(&veth.b, &["--preset", other], &[]);
                let mut echo = Echo::start(&veth.b, &[]);
                let (mac, number) = echo.go_as();
                let endpoint = open(&veth.a, None).unwrap();
                let error = endpoint.connect(mac, number, 0, Some(LIMIT)).unwrap_err();
                assert!(
                    matches!(error, Error::Failed(StatusCode::BadConnection)),
                    "{other}: {error}"
                );
                drop(echo);
                far.end();
            }
            near.end();
            // And sizes that do not fit the interface are refused.
            let output = Command::new(env!("CARGO_BIN_EXE_omxd"))
                .args(["--interface", &veth.b, "--preset", "native:4000:32"])
                .output()
                .unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            let reason = "native:4000:32 sends frames of 4000 bytes";
            assert!(!output.status.success() && said.contains(reason), "{said}");
        },
    );
}

#[test]
fn settings_that_make_no_sense_are_refused_with_a_sentence() {
    // Before anything is made of the interface.
    for (option, value, reason) in [
        ("--ether-type", "0800", "IPv4's"),
        ("--ether-type", "0x5dc", "length"),
        ("--marks", "perhaps", "perhaps"),
        ("--preset", "native:1500:33", "a power of two, 64 at most"),
        ("--preset", "native:99:8", "between 256 and 65535 bytes"),
        ("--preset", "native", "native:MTU:BLOCK"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_omxd"))
            .args(["--interface", "nowhere0", option, value])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(reason), "{said}");
    }
}
