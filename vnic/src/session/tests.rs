//! Whole sessions over real sockets, with a small device of the tests' own behind the published daemon.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};

use vhost_user_backend::VhostUserBackend;
use vmm_sys_util::epoll::EventSet;

use self::bench::{Bench, Client, FEATURES, OFFERED, TestDevice, USER, event, kick, memory};
use super::guard::{Ender, Guarded, STOP_TOKEN};
use super::message::*;

mod bench;
mod iommu;

#[test]
fn a_whole_session_reaches_the_device() {
    let bench = Bench::new();
    let device = TestDevice::new("a");
    let port = bench.sessions.listen(device.clone(), &bench.path("a")).unwrap();
    let client = Client::connect(&bench.path("a"));
    let event = client.start_ring();
    let before = device.wait_for("event 0", 1).len();
    kick(&event);
    device.wait_for("event 0", before + 1);
    assert_eq!(client.ask(GET_VRING_BASE, &[0], Vec::new()).word(4), 0);
    drop(client);
    device.wait_for("closed", 1);
    assert_eq!(device.count("ends"), 0, "it was the frontend that ended it");
    drop(port);
    assert!(!bench.path("a").exists(), "the socket is removed at the end");
    assert_eq!(device.count("failed"), 0);
}

#[test]
fn early_enables_take_effect_behind_set_features() {
    let bench = Bench::new();
    let device = TestDevice::new("a");
    let _port = bench.sessions.listen(device.clone(), &bench.path("a")).unwrap();
    let client = Client::connect(&bench.path("a"));
    client.agree();
    for index in 0..4 {
        assert_eq!(client.ask(SET_VRING_ENABLE, &[index | 1 << 32], Vec::new()).long(0), 0);
    }
    assert_eq!(device.count("ring"), 0);
    assert_eq!(client.ask(SET_FEATURES, &[FEATURES], Vec::new()).long(0), 0);
    assert!(client.is_alive());
    assert_eq!(
        device.wait_for("ring", 4),
        ["ring 0 on", "ring 1 on", "ring 2 on", "ring 3 on"]
    );
    let event = event();
    client.ask(SET_VRING_KICK, &[0], vec![event.try_clone().unwrap()]);
    device.wait_for("event 0", 1);
    client.ask(RESET_DEVICE, &[], Vec::new());
    device.wait_for("ring 0 off", 1);
    assert_eq!(client.ask(SET_VRING_ENABLE, &[1 << 32], Vec::new()).long(0), 0);
    client.ask(SET_FEATURES, &[FEATURES], Vec::new());
    device.wait_for("ring 0 on", 2);
    assert!(client.is_alive());
}

#[test]
fn a_memory_region_announced_twice_is_mapped_once() {
    let bench = Bench::new();
    let device = TestDevice::new("a");
    let _port = bench.sessions.listen(device.clone(), &bench.path("a")).unwrap();
    let client = Client::connect(&bench.path("a"));
    client.agree();
    let file = memory();
    for _ in 0..3 {
        let answer = client.ask(ADD_MEM_REG, &[0, 0, 0x10000, USER, 0], vec![file.try_clone().unwrap()]);
        assert_eq!(answer.long(0), 0);
    }
    assert_eq!(device.count("memory"), 1);
}

/// What a frontend finds in the log, and leaves there: nothing.
fn marked(log: &OwnedFd) -> Vec<u8> {
    let file = std::fs::File::from(log.try_clone().unwrap());
    let mut bytes = [0; 16];
    file.read_exact_at(&mut bytes, 8).unwrap();
    file.write_all_at(&[0; 16], 8).unwrap();
    bytes.to_vec()
}

#[test]
fn all_memory_is_in_the_log_when_its_frontend_looks_for_the_last_time() {
    let bench = Bench::new();
    let device = TestDevice::new("a");
    let _port = bench.sessions.listen(device.clone(), &bench.path("a")).unwrap();
    let client = Client::connect(&bench.path("a"));
    let _kick = client.start_ring();
    let log = memory();
    let all = [vec![0xff; 2], vec![0; 14]].concat();
    let begin = || {
        let files = vec![log.try_clone().unwrap()];
        let answer = client.ask(SET_LOG_BASE, &[16, 8], files);
        assert_eq!((answer.long(0), answer.long(8)), (16, 8));
        assert_eq!(marked(&log), all, "what a former backend may have written");
        assert_eq!(client.ask(SET_FEATURES, &[OFFERED], Vec::new()).long(0), 0);
    };
    begin();
    assert_eq!(
        client
            .ask(
                SET_VRING_ADDR,
                &[1 << 32, USER, USER + 0x2000, USER + 0x1000, 0],
                Vec::new()
            )
            .long(0),
        0
    );
    assert_eq!(marked(&log), [0; 16]);
    client.ask(GET_VRING_BASE, &[0], Vec::new());
    assert_eq!(marked(&log), all, "before the answer");
    client.ask(REM_MEM_REG, &[0, 0, 0x10000, USER, 0], Vec::new());
    assert_eq!(marked(&log), all);
    client.ask(ADD_MEM_REG, &[0, 0, 0x10000, USER, 0], vec![memory()]);
    // Logging ends: the rest is marked, and then the log is not written any more.
    assert_eq!(client.ask(SET_FEATURES, &[FEATURES], Vec::new()).long(0), 0);
    assert_eq!(marked(&log), all);
    client.ask(GET_VRING_BASE, &[0], Vec::new());
    assert_eq!(marked(&log), [0; 16]);
    begin();
    client.ask(RESET_DEVICE, &[], Vec::new());
    assert_eq!(marked(&log), all, "a reset stops all rings");
    assert_eq!(client.ask(SET_FEATURES, &[OFFERED], Vec::new()).long(0), 0);
    assert!(client.is_alive());
    let told = device.wait_for("features", 5);
    assert!(
        told.iter().all(|told| *told == format!("features {FEATURES:#x}")),
        "{told:?}"
    );
    // A log that is too small for the memory ends the session.
    client.send(SET_LOG_BASE, &[1, 8], vec![memory()]);
    client.expect_end();
    assert!(device.wait_for("failed", 1)[0].contains("does not reach to the end of the memory region at 0x0"));
}

#[test]
fn all_memory_is_in_the_log_when_the_session_ends() {
    let bench = Bench::new();
    let device = TestDevice::new("a");
    let _port = bench.sessions.listen(device.clone(), &bench.path("a")).unwrap();
    let log = memory();
    let all = [vec![0xff; 2], vec![0; 14]].concat();
    // The frontend goes, or breaks a rule and lives on.
    for breaks_a_rule in [false, true] {
        let client = Client::connect(&bench.path("a"));
        let _kick = client.start_ring();
        client.ask(SET_LOG_BASE, &[16, 8], vec![log.try_clone().unwrap()]);
        assert_eq!(marked(&log), all);
        if breaks_a_rule {
            client.send(u32::MAX, &[], Vec::new());
            client.expect_end();
        }
        drop(client);
        // Served when the former session has ended.
        assert!(Client::connect(&bench.path("a")).is_alive());
        assert_eq!(marked(&log), all, "breaks a rule: {breaks_a_rule}");
    }
}

#[test]
fn the_exchanged_kick_of_a_running_ring_works() {
    let bench = Bench::new();
    let device = TestDevice::new("a");
    let _port = bench.sessions.listen(device.clone(), &bench.path("a")).unwrap();
    let client = Client::connect(&bench.path("a"));
    let former = client.start_ring();
    device.wait_for("event 0", 1);
    let other = event();
    client.ask(SET_VRING_KICK, &[0], vec![other.try_clone().unwrap()]);
    assert!(client.is_alive());
    device.wait_for("ring 0 on", 2);
    let before = device.wait_for("event 0", 2).len();
    kick(&former);
    kick(&other);
    device.wait_for("event 0", before + 1);
    // The ring can also be left without a kick: the worker must not spin on the former one.
    client.ask(SET_VRING_KICK, &[0x100], Vec::new());
    kick(&other);
    assert!(client.is_alive());
}

#[test]
fn odd_messages_end_their_session_and_nothing_else() {
    let bench = Bench::new();
    let device = TestDevice::new("odd");
    let neighbour = TestDevice::new("neighbour");
    let _port = bench.sessions.listen(device.clone(), &bench.path("odd")).unwrap();
    let _other = bench
        .sessions
        .listen(neighbour.clone(), &bench.path("neighbour"))
        .unwrap();
    let watched = Client::connect(&bench.path("neighbour"));
    type Odd = (&'static str, fn(&Client));
    let odd: [Odd; 8] = [
        ("request 4294967295 is unknown", |client| {
            client.send(u32::MAX, &[], Vec::new())
        }),
        ("SET_VRING_NUM has 16 bytes", |client| {
            client.send(SET_VRING_NUM, &[0, 0], Vec::new())
        }),
        ("SET_VRING_KICK comes with 0 files", |client| {
            client.send(SET_VRING_KICK, &[0], Vec::new())
        }),
        ("SET_OWNER comes with 1 files", |client| {
            client.send(SET_OWNER, &[], vec![event()])
        }),
        ("there is no ring 4", |client| {
            client.send(GET_VRING_BASE, &[4], Vec::new())
        }),
        ("needs 0x10001 bytes", |client| {
            client.agree();
            client.send(ADD_MEM_REG, &[0, 0, 0x10001, USER, 0], vec![memory()]);
        }),
        ("announces 4294967295 bytes", |client| {
            (&client.stream).write_all(&[0xff; 12]).unwrap()
        }),
        ("closed 5 bytes into a message header", |client| {
            (&client.stream).write_all(&[1; 5]).unwrap();
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        }),
    ];
    for (count, (sentence, say)) in odd.iter().enumerate() {
        let client = Client::connect(&bench.path("odd"));
        say(&client);
        client.expect_end();
        let failures = device.wait_for("failed", count + 1);
        assert!(failures[count].contains(sentence), "{failures:?}");
        assert!(watched.is_alive());
    }
    assert!(Client::connect(&bench.path("odd")).is_alive());
    assert_eq!(neighbour.count("failed"), 0);
}

#[test]
fn a_second_frontend_is_turned_away_and_the_first_stays() {
    let bench = Bench::new();
    let device = TestDevice::new("a");
    let _port = bench.sessions.listen(device.clone(), &bench.path("a")).unwrap();
    let first = Client::connect(&bench.path("a"));
    assert!(first.is_alive());
    Client::connect(&bench.path("a")).expect_end();
    assert!(first.is_alive());
    // A frontend that comes right behind the end of the one before is served.
    drop(first);
    assert!(Client::connect(&bench.path("a")).is_alive());
    assert_eq!(device.count("new backend"), 2);
}

#[test]
fn connect_mode_finds_its_frontend_again() {
    let bench = Bench::new();
    let device = TestDevice::new("a");
    let _port = bench.sessions.connect(device.clone(), &bench.path("q")).unwrap();
    let qemu = UnixListener::bind(bench.path("q")).unwrap();
    for round in 1..4 {
        let client = Client::over(qemu.accept().unwrap().0);
        assert!(client.is_alive());
        assert_eq!(device.count("new backend"), round);
        drop(client);
        device.wait_for("closed", round);
    }
}

#[test]
fn a_panic_fails_its_port_only() {
    let bench = Bench::new();
    let device = TestDevice::new("a");
    let neighbour = TestDevice::new("b");
    let _port = bench.sessions.listen(device.clone(), &bench.path("a")).unwrap();
    let _other = bench.sessions.listen(neighbour.clone(), &bench.path("b")).unwrap();
    let watched = Client::connect(&bench.path("b"));
    for (count, place) in ["event", "memory"].into_iter().enumerate() {
        let client = Client::connect(&bench.path("a"));
        *device.panic_at.lock().unwrap() = place;
        client.agree();
        client.send(SET_FEATURES, &[FEATURES], Vec::new());
        if place == "memory" {
            client.send(ADD_MEM_REG, &[0, 0, 0x10000, USER, 0], vec![memory()]);
        } else {
            let event = event();
            client.send(SET_VRING_KICK, &[0], vec![event.try_clone().unwrap()]);
            client.send(SET_VRING_ENABLE, &[1 << 32], Vec::new());
        }
        client.expect_end();
        let failures = device.wait_for("failed", count + 1);
        assert_eq!(
            failures[count],
            "failed: its session was ended: the port's code panicked: as the test asked for"
        );
        device.wait_for("closed", count + 1);
        assert!(watched.is_alive());
    }
    assert!(Client::connect(&bench.path("a")).is_alive());
}

#[test]
fn kicks_are_taken_before_and_while_a_port_ends_its_connection() {
    let bench = Bench::new();
    let device = TestDevice::new("a");
    let port = bench.sessions.listen(device.clone(), &bench.path("a")).unwrap();
    let client = Client::connect(&bench.path("a"));
    let _kick = client.start_ring();
    drop(port);
    let notes = device.notes.0.lock().unwrap();
    let at = |what: &str| notes.iter().position(|note| note == what).expect("noted");
    assert!(at("ends") < at("closed"), "{notes:?}");
    drop(notes);

    // A worker goes on reading kicks, and does nothing for them, until it is told to end.
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let ender = Ender::new(&ours).unwrap();
    let device = TestDevice::new("b");
    let worker = Guarded::<TestDevice>::new(device.clone(), ender.clone());
    let kicked = |worker: &Guarded<TestDevice>, event| worker.handle_event(event, EventSet::IN, &[], 0).is_ok();
    assert!(kicked(&worker, 0));
    ender.end();
    assert!(kicked(&worker, 0) && !kicked(&worker, STOP_TOKEN));
    assert_eq!(device.count("event"), 1);
}

#[test]
fn a_port_ends_at_once_in_the_middle_of_a_message() {
    let bench = Bench::new();
    let device = TestDevice::new("a");
    let port = bench.sessions.listen(device.clone(), &bench.path("a")).unwrap();
    let client = Client::connect(&bench.path("a"));
    let _kick = client.start_ring();
    (&client.stream).write_all(&[1, 0]).unwrap();
    drop(port);
    assert_eq!(device.count("closed"), 1);
    client.expect_end();
}

#[test]
fn the_published_frontend_gets_along_with_the_front() {
    use vhost::vhost_user::{Frontend, VhostUserFrontend};
    use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
    use vmm_sys_util::eventfd::EventFd;

    let bench = Bench::new();
    let device = TestDevice::new("a");
    let _port = bench.sessions.listen(device.clone(), &bench.path("a")).unwrap();
    let mut frontend = Frontend::connect(bench.path("a"), 2).unwrap();
    frontend.set_owner().unwrap();
    assert_eq!(frontend.get_features().unwrap(), OFFERED);
    frontend.set_features(FEATURES).unwrap();
    let features = frontend.get_protocol_features().unwrap();
    frontend.set_protocol_features(features).unwrap();
    let file = memory();
    let region = VhostUserMemoryRegionInfo {
        guest_phys_addr: 0,
        memory_size: 0x10000,
        userspace_addr: USER,
        mmap_offset: 0,
        mmap_handle: std::os::fd::AsRawFd::as_raw_fd(&file),
    };
    frontend.set_mem_table(&[region]).unwrap();
    frontend.set_vring_num(0, 256).unwrap();
    let config = VringConfigData {
        queue_max_size: 256,
        queue_size: 256,
        flags: 0,
        desc_table_addr: USER,
        used_ring_addr: USER + 0x2000,
        avail_ring_addr: USER + 0x1000,
        log_addr: None,
    };
    frontend.set_vring_addr(0, &config).unwrap();
    frontend.set_vring_base(0, 0).unwrap();
    let (call, kick) = (EventFd::new(0).unwrap(), EventFd::new(0).unwrap());
    frontend.set_vring_call(0, &call).unwrap();
    frontend.set_vring_kick(0, &kick).unwrap();
    frontend.set_vring_enable(0, true).unwrap();
    let before = device.wait_for("event 0", 1).len();
    kick.write(1).unwrap();
    device.wait_for("event 0", before + 1);
    assert_eq!(frontend.get_vring_base(0).unwrap(), 0);
    assert_eq!(frontend.get_max_mem_slots().unwrap(), 509);
}
