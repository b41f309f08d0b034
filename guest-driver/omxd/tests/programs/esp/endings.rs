//! Programs and authorities that end, at every stage of a connection.

use std::{env, io::BufRead, net::TcpListener, process};

use esp::{Reason, State};
use ether::EtherType;
use netif::Interface;
use weft_authority::{OmxdError, Session, esp::EspCounter};

use super::rig::{Program, Stage, Station, on_stage, work_until};
use crate::{authority::Omxd, rig};

const SERVES: &str = "OMX_TEST_ESP_SERVES";

/// A program that listens, and goes as far with a connection as it is told. Started by the tests below.
#[test]
fn serving_program_of_the_esp_tests() {
    let Ok(interface) = env::var(SERVES) else { return };
    let mut words = std::io::stdin().lock().lines().map(Result::unwrap);
    let session = Session::connect_to_running(&Interface::find(&interface).unwrap())
        .unwrap()
        .unwrap();
    let opened = session.open_esp().unwrap();
    let mut station = Station::new(opened.port.port, *opened.port.ports.start());
    let tcp = TcpListener::bind("0.0.0.0:0").unwrap();
    let listener = session.listen_esp(tcp.local_addr().unwrap(), false).unwrap();
    println!("\n@{}", tcp.local_addr().unwrap().port());
    words.next();
    let (_socket, from) = tcp.accept().unwrap();
    println!("\n@accepted");
    words.next();
    let claimed = session.claim_esp(from, Some(listener.key)).unwrap();
    println!("\n@claimed");
    words.next();
    let ours = station.attach(&claimed);
    work_until("it is settled", &mut [&mut station], |stations| {
        !stations[0].engine.info(ours).unwrap().is_moving
    });
    println!("\n@attached");
    words.next();
    process::exit(0);
}

#[test]
fn a_program_that_is_killed_at_any_stage_leaves_its_peer_a_reset_and_the_authority_nothing() {
    on_stage(
        "esp::endings::a_program_that_is_killed_at_any_stage_leaves_its_peer_a_reset_and_the_authority_nothing",
        |stage| {
            for steps in 0..=4 {
                let test = "esp::endings::serving_program_of_the_esp_tests";
                let mut program = rig::Program::start(&[], test, SERVES, &stage.veth.a);
                let port = program.hear().parse().unwrap();
                let gone = stage.count(EspCounter::ListenersGone);
                let mut theirs = None;
                for step in 1..=steps {
                    if step == 1 {
                        let connection = stage.connect(port);
                        stage.await_state(connection, State::Established);
                        theirs = Some(connection);
                    } else {
                        program.tell("on");
                        // While it attaches, the host on the other end answers.
                        if step == 4 {
                            work_until("it moves", &mut [&mut stage.peer], |stations| {
                                stations[0].engine.info(theirs.unwrap()).unwrap().peer.port >= 4096
                            });
                        }
                        program.hear();
                    }
                }
                drop(program);
                stage.await_count(EspCounter::ListenersGone, gone + 1);
                if let Some(theirs) = theirs {
                    if steps >= 3 {
                        // What is sent to a port that no program has is answered by the authority. A connection that was claimed and
                        // not attached has no port: its peer waits for the window until it gives up.
                        if steps == 4 {
                            stage.peer.send(theirs, b"anyone there?");
                            stage.await_end(theirs, Reason::Reset);
                        }
                    } else {
                        stage.await_end(theirs, Reason::Reset);
                    }
                }
                let status = stage.status();
                assert_eq!(
                    (status.programs, status.blocks, status.listeners, status.unclaimed),
                    (0, 0, 0, 0)
                );
                let theirs = stage.connect(port);
                stage.await_end(theirs, Reason::Refused);
            }
        },
    );
}

#[test]
fn m_hr2_connections_go_on_while_the_authority_is_gone_and_it_finds_their_ports_again() {
    on_stage(
        "esp::endings::m_hr2_connections_go_on_while_the_authority_is_gone_and_it_finds_their_ports_again",
        |stage| {
            let mut program = Program::start(stage, "0.0.0.0:0");
            let both = program.join(stage);
            let waits = stage.connect(program.port());
            stage.await_count(EspCounter::Tokens, 2);
            let before = stage.session().esp_programs().unwrap();
            stage.omxd.kill();
            program.exchange(stage, both);
            // No answer comes from an authority that is not there.
            let lost = stage.connect(program.port());
            stage.omxd = Omxd::start(&[], &stage.veth.a, &[]);
            program.exchange(stage, both);
            // The block stays this program's, although it has not come back yet.
            assert_eq!(stage.status().blocks, 1);
            let other = stage.session();
            assert_ne!(other.open_esp().unwrap().port.block, before[0].blocks[0]);
            drop(other);
            program.session.resume_esp(&before[0].blocks, 1500).unwrap();
            let after = stage.session().esp_programs().unwrap();
            assert_eq!((after.len(), &after[0].blocks), (1, &before[0].blocks));
            // What was not claimed is over, and the program is told: its token has ended.
            let (mut socket, token) = program.accept(stage);
            let mut read = [0; 8];
            while std::io::Read::read(&mut socket, &mut read).is_ok_and(|len| len > 0) {}
            assert!(program.session.claim_esp(token, None).is_err());
            stage.peer.send(waits, b"x");
            stage.await_end(waits, Reason::Reset);
            stage.await_end(lost, Reason::Refused);
            program.listener = program
                .session
                .listen_esp(program.tcp.local_addr().unwrap(), false)
                .unwrap();
            program.exchange(stage, both);
            let both = program.join(stage);
            program.exchange(stage, both);
        },
    );
}

#[test]
fn ports_of_a_program_that_ended_while_the_authority_was_gone_are_free() {
    on_stage(
        "esp::endings::ports_of_a_program_that_ended_while_the_authority_was_gone_are_free",
        |stage| {
            let test = "esp::endings::serving_program_of_the_esp_tests";
            let mut program = rig::Program::start(&[], test, SERVES, &stage.veth.a);
            program.hear();
            stage.omxd.kill();
            drop(program);
            stage.omxd = Omxd::start(&[], &stage.veth.a, &[]);
            assert_eq!(stage.status().blocks, 0);
        },
    );
}

#[test]
fn an_interface_without_esp_says_why_in_a_sentence() {
    rig::in_own_world("esp::endings::an_interface_without_esp_says_why_in_a_sentence", || {
        for (interface, options, reason) in [
            (None, &["--esp-ether-type", "off"][..], "switched off"),
            (None, &["--esp-ether-type", "86df"], "EtherType of messages"),
            (Some("lo"), &[], "loopback"),
        ] {
            let veth = weft_guest_driver_testkit::Veth::new(1500);
            let omxd = Omxd::start(&[], interface.unwrap_or(&veth.a), options);
            let session = omxd.session().unwrap();
            let Err(OmxdError::Refused { reason: code, sentence }) = session.open_esp() else {
                panic!("it is open")
            };
            assert_eq!(code, weft_authority::Refusal::NoEsp);
            assert!(sentence.contains(reason) && !sentence.contains('\n'), "{sentence}");
            assert_eq!(session.esp_status().unwrap().off, Some(sentence));
        }
        let stage = Stage::new(&["--esp-ether-type", "0x9999"]);
        let opened = stage.session().open_esp().unwrap();
        assert_eq!(opened.ether_type, EtherType(0x9999));
    });
}
