//! Who may listen and claim, and what becomes of connections that no program claims.

use std::{
    env,
    io::{BufRead, Read},
    net::TcpListener,
    time::{Duration, Instant},
};

use esp::{Reason, State};
use netif::Interface;
use weft_authority::{
    OmxdError, Refusal, Session,
    esp::{EspCounter, EspKey, TOKEN_LIMIT},
};

use super::rig::{Program, Stage, add_address, work_until};
use crate::rig::{self, in_own_world};

const ASKS: &str = "OMX_TEST_ESP_ASKS";
const NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// Another user's program, which asks the authority for what it is told. Started by the tests below.
#[test]
fn asking_program_of_the_esp_tests() {
    let Ok(interface) = env::var(ASKS) else { return };
    let session = Session::connect_to_running(&Interface::find(&interface).unwrap())
        .unwrap()
        .unwrap();
    let mut kept = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let key =
            |at: usize| -> Option<EspKey> { Some([words.get(at)?.parse().ok()?, words.get(at + 1)?.parse().ok()?]) };
        let said = match words[0] {
            "bind" => {
                let listener = TcpListener::bind(words[1]).unwrap();
                let address = listener.local_addr().unwrap();
                kept.push(listener);
                Ok(address.to_string())
            }
            "listen" => session.listen_esp(words[1].parse().unwrap(), false).map(|listener| {
                let said = format!("{} {} {}", listener.id, listener.key[0], listener.key[1]);
                std::mem::forget(listener);
                said
            }),
            "claim" => session
                .claim_esp(words[1].parse().unwrap(), key(2))
                .map(|claimed| claimed.peer.to_string()),
            "forget" => session
                .forget_esp_listener(words[1].parse().unwrap(), key(2).unwrap())
                .map(|()| "gone".to_owned()),
            "report" => session
                .esp_report(words[1].parse().unwrap())
                .map(|report| format!("{} connections", report.connections.len())),
            _ => panic!("{line}"),
        };
        match said {
            Ok(said) => println!("\n@{said}"),
            Err(OmxdError::Refused { reason, .. }) => println!("\n@refused {reason:?}"),
            Err(error) => println!("\n@{error}"),
        }
    }
}

fn another_user(stage: &Stage) -> rig::Program {
    let before = NOBODY.map(str::to_owned);
    rig::Program::start(
        &before,
        "esp::claims::asking_program_of_the_esp_tests",
        ASKS,
        &stage.veth.a,
    )
}

fn with_users(test: &str, body: impl FnOnce(&mut Stage)) {
    in_own_world(test, || body(&mut Stage::new(&["--group", "nogroup"])));
}

#[test]
fn another_users_connections_and_listeners_are_not_to_be_had() {
    with_users(
        "esp::claims::another_users_connections_and_listeners_are_not_to_be_had",
        |stage| {
            let mut program = Program::start(stage, "0.0.0.0:0");
            let mut other = another_user(stage);
            let mut ask = |line: String| {
                other.tell(&line);
                other.hear()
            };
            let address = program.tcp.local_addr().unwrap();
            assert_eq!(ask(format!("listen {address}")), "refused NotAllowed");
            assert_eq!(ask("listen 0.0.0.0:1".to_owned()), "refused NotAllowed");
            assert_eq!(ask("listen 0.0.0.0:0".to_owned()), "refused NotAllowed");
            let session = stage.session().esp_programs().unwrap()[0].session;
            // As `ss` shows everybody's.
            assert_eq!(ask(format!("report {session}")), "0 connections");
            assert_eq!(ask("report 4711".to_owned()), "refused NotOpen");
            let (id, [a, b]) = (program.listener.id, program.listener.key);
            assert_eq!(ask(format!("forget {id} {a} {}", b ^ 1)), "refused NotAllowed");

            let theirs = stage.connect(program.port());
            let (_socket, token) = program.accept(stage);
            assert_eq!(ask(format!("claim {token}")), "refused NotAllowed");
            assert_eq!(ask(format!("claim {token} {a} {}", b ^ 1)), "refused NotAllowed");
            assert_eq!(ask("claim 127.0.69.83:1".to_owned()), "refused NoToken");
            assert_eq!(stage.count(EspCounter::ClaimNotAllowed), 2);
            assert_eq!(stage.count(EspCounter::ListenNotAllowed), 3);
            // It still goes where it belongs.
            let claimed = program.session.claim_esp(token, None).unwrap();
            let ours = program.station.attach(&claimed);
            program.exchange(stage, [theirs, ours]);
            // A worker that has become another user has the key from its parent.
            stage.connect(program.port());
            let (_socket, token) = program.accept(stage);
            assert_eq!(ask(format!("claim {token} {a} {b}")), "10.7.0.2:40000");
            assert_eq!(ask(format!("forget {id} {a} {b}")), "gone");
            let theirs = stage.connect(program.port());
            stage.await_end(theirs, Reason::Refused);
        },
    );
}

#[test]
fn an_ordinary_users_program_listens_and_root_may_claim_what_it_gets() {
    with_users(
        "esp::claims::an_ordinary_users_program_listens_and_root_may_claim_what_it_gets",
        |stage| {
            let mut other = another_user(stage);
            other.tell("bind 0.0.0.0:0");
            let address: std::net::SocketAddr = other.hear().parse().unwrap();
            other.tell(&format!("listen {address}"));
            assert!(!other.hear().starts_with("refused"));
            let listening = stage.session().esp_listeners().unwrap();
            assert_eq!((listening[0].address, listening[0].user), (address, 65534));
            let theirs = stage.connect(address.port());
            stage.await_state(theirs, State::Established);
            assert_eq!(stage.session().esp_listeners().unwrap()[0].unclaimed, 1);
            // Its program is killed: the kernel resets the token, and the authority forgets the listener.
            drop(other);
            stage.await_end(theirs, Reason::Reset);
            stage.await_count(EspCounter::ListenersGone, 1);
            assert_eq!(stage.status().unclaimed, 0);
        },
    );
}

#[test]
fn a_connection_waits_in_its_queue_for_as_long_as_it_takes_but_not_for_who_accepts_and_does_not_claim_it() {
    with_users(
        "esp::claims::a_connection_waits_in_its_queue_for_as_long_as_it_takes_but_not_for_who_accepts_and_does_not_claim_it",
        |stage| {
            let mut program = Program::start(stage, "0.0.0.0:0");
            let begin = Instant::now();
            let waits = stage.connect(program.port());
            let (mut socket, _) = program.accept(stage);
            let queued = stage.connect(program.port());
            stage.await_end(waits, Reason::Reset);
            assert!(begin.elapsed() >= TOKEN_LIMIT, "{:?}", begin.elapsed());
            assert_eq!(stage.count(EspCounter::TokenExpired), 1);
            // The program that took it for an ordinary connection is told, too.
            let mut read = [0; 64];
            while socket.read(&mut read).is_ok_and(|len| len > 0) {}
            let longer = begin + TOKEN_LIMIT + Duration::from_secs(1);
            work_until("the second one's time is over", &mut [&mut stage.peer], |_| {
                Instant::now() > longer
            });
            assert_eq!(stage.peer.state(queued), State::Established);
            let (ours, _) = program.claim(stage);
            program.exchange(stage, [queued, ours]);
        },
    );
}

#[test]
fn an_ordinary_connection_from_the_tokens_address_is_no_token_and_counts_can_be_cleared() {
    with_users(
        "esp::claims::an_ordinary_connection_from_the_tokens_address_is_no_token_and_counts_can_be_cleared",
        |stage| {
            add_address(&stage.veth.b, "10.9.0.1/24");
            let program = Program::start(stage, "0.0.0.0:0");
            for from in [
                "127.0.69.83:4711",
                "10.9.0.1:4711",
                "[::1]:4711",
                "[::ffff:127.0.69.83]:4711",
            ] {
                let refused = program
                    .session
                    .claim_esp(from.parse().unwrap(), Some(program.listener.key));
                assert!(
                    matches!(
                        refused,
                        Err(OmxdError::Refused {
                            reason: Refusal::NoToken,
                            ..
                        })
                    ),
                    "{refused:?}"
                );
            }
            assert_eq!(stage.count(EspCounter::ClaimUnknown), 4);
            stage.session().clear_counters().unwrap();
            let status = stage.status();
            let all = status.counters.iter().chain(&status.engine);
            assert!(all.into_iter().all(|count| *count == 0), "{status:?}");
        },
    );
}
