//! What an authority does when something happens to it: its link, its name, its place, its limits.

use std::{
    collections::HashSet,
    env, fs,
    process::{Child, Command},
};

use ether::MacAddr;
use netif::Interface;
use omx::{Board, Counter, Error};
use rustix::process::{Pid, Signal, kill_process};
use weft_authority::{BoardStatus, PeerTable, Session};
use weft_guest_driver_testkit::{Veth, write_program};

use crate::rig::{Echo, LIMIT, Program, exchange, in_own_world, open, wait_until};

/// An authority with settings.
pub struct Omxd {
    pub child: Child,
    interface: Interface,
}

impl Omxd {
    /// Starts it, behind the words `before`, and waits until it serves.
    pub fn start(before: &[&str], interface: &str, options: &[&str]) -> Self {
        let own = env!("CARGO_BIN_EXE_omxd");
        let words = [before, &[own, "--interface", interface], options].concat();
        let child = Command::new(words[0]).args(&words[1..]).spawn().unwrap();
        let interface = Interface::find(interface).unwrap();
        let omxd = Self { child, interface };
        let pid = omxd.child.id();
        wait_until("an omxd with settings", || {
            omxd.session()
                .is_some_and(|session| session.status().is_ok_and(|(status, _)| status.pid == pid))
        });
        omxd
    }

    pub fn session(&self) -> Option<Session> {
        Session::connect_to_running(&self.interface).unwrap()
    }

    pub fn status(&self) -> (BoardStatus, PeerTable) {
        self.session().unwrap().status().unwrap()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Omxd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn how_long_pulled_data_may_wait_in_queues_is_a_setting_that_endpoints_get() {
    in_own_world(
        "authority::how_long_pulled_data_may_wait_in_queues_is_a_setting_that_endpoints_get",
        || {
            let veth = Veth::new(1500);
            for (options, ns) in [(&[][..], 50_000_000), (&["--queue-us-max", "12345"][..], 12_345_000)] {
                let omxd = Omxd::start(&[], &veth.a, options);
                let opened = omxd.session().unwrap().open_endpoint(None).unwrap();
                assert_eq!(opened.pull_queue_ns_max, ns);
            }
        },
    );
}

#[test]
fn an_authority_sleeps_after_its_link_was_down() {
    in_own_world("authority::an_authority_sleeps_after_its_link_was_down", || {
        let veth = Veth::new(1500);
        // It has nothing to send, which would take the socket's error, too.
        let omxd = Omxd::start(&[], &veth.a, &["--static-peers"]);
        for up in [false, true] {
            veth.set_up(&veth.a, up);
            wait_until("it sees its link", || omxd.status().0.up == up);
        }
        let stat = format!("/proc/{}/stat", omxd.child.id());
        let mut asleep = 0;
        wait_until("it sleeps whenever it is checked", || {
            let stat = fs::read_to_string(&stat).unwrap();
            let sleeps = stat.rsplit(") ").next().unwrap().starts_with('S');
            asleep = if sleeps { asleep + 1 } else { 0 };
            asleep == 10
        });
    });
}

#[test]
fn a_killed_authority_with_settings_is_not_replaced_by_one_without() {
    in_own_world(
        "authority::a_killed_authority_with_settings_is_not_replaced_by_one_without",
        || {
            let (veth, other) = (Veth::new(9000), Veth::new(9000));
            let options = ["--preset", "wire", "--name", "mine:7"];
            let mut omxd = Omxd::start(&[], &veth.a, &options);
            let kept = open(&veth.a, Some(4)).unwrap();
            let on_demand = open(&other.a, None).unwrap();
            let demanded = Board::named(&other.a).unwrap();
            let first = demanded.status().unwrap().0.pid;
            omxd.kill();
            // The thread that seeks both authorities found a successor for the one that may have one.
            kill_process(Pid::from_raw(first as i32).unwrap(), Signal::KILL).unwrap();
            let again = || Session::connect_to_running(demanded.interface()).unwrap();
            wait_until("the endpoint with a new omxd", || {
                again().is_some_and(|session| session.status().is_ok_and(|(status, _)| !status.endpoints.is_empty()))
            });
            assert!(
                omxd.session().is_none(),
                "an omxd without the settings of the one that was killed"
            );
            let omxd = Omxd::start(&[], &veth.a, &options);
            wait_until("the endpoint with the new omxd", || {
                omxd.status().0.endpoints.len() == 1
            });
            let (status, _) = omxd.status();
            assert_eq!((status.name.as_str(), status.preset.as_str()), ("mine:7", "wire"));
            assert_eq!(status.endpoints[0].endpoint, 4);
            // What it counts shows on the board that it is back on.
            let stranger = MacAddr([2, 0, 0, 0, 0, 0x99]);
            kept.iconnect(stranger, 0, 0, 0, 0).unwrap();
            let board = Board::named(&veth.a).unwrap();
            wait_until("the frame on the board", || {
                kept.progress();
                board.counters().unwrap().get(Counter::SendConnectRequest) > 0
            });
            kept.close().unwrap();
            on_demand.close().unwrap();
        },
    );
}

#[test]
fn connects_wait_for_an_authority_that_is_away() {
    in_own_world("authority::connects_wait_for_an_authority_that_is_away", || {
        let veth = Veth::new(1500);
        let mut omxd = Omxd::start(&[], &veth.a, &[]);
        let [near, beside] = [Some(3), Some(4)].map(|number| open(&veth.a, number).unwrap());
        let own = near.address().mac();
        omxd.kill();
        // No authority is there to add a peer: no answer, as from any host that is not there.
        let stranger = MacAddr([2, 0, 0, 0, 0, 0x99]);
        let unanswered = near.connect(stranger, 0, 0, Some(std::time::Duration::from_millis(200)));
        assert!(matches!(unanswered, Err(Error::Timeout)), "{unanswered:?}");
        let local = near.iconnect(own, 4, 0, 0, 0).unwrap();
        let cancelled = near.iconnect(own, 4, 0, 1, 0).unwrap();
        assert!(near.test(local).unwrap().is_none());
        assert!(near.cancel(cancelled).unwrap());
        let _omxd = Omxd::start(&[], &veth.a, &[]);
        let status = near.wait(local, Some(LIMIT)).unwrap().expect("within the limit");
        let to = status.address.unwrap_or_else(|| panic!("{status:?}"));
        let data = [7; 5000];
        // SAFETY: the data outlive the request.
        let send = unsafe { near.isend(&[omx::Segment::of(&data)], to, 1, 0, false) }.unwrap();
        let mut got = [0; 5000];
        beside.receive(&mut got, 1, u64::MAX).unwrap();
        assert_eq!(got, data);
        assert!(near.wait(send, Some(LIMIT)).unwrap().is_some());
    });
}

#[test]
fn an_endpoint_is_listed_under_the_name_its_program_was_started_by() {
    in_own_world(
        "authority::an_endpoint_is_listed_under_the_name_its_program_was_started_by",
        || {
            let veth = Veth::new(1500);
            let omxd = Omxd::start(&[], &veth.a, &[]);
            let mut echo = Echo::start(&veth.a, &["bash", "-c", r#"exec -a one-of-many "$0" "$@""#]);
            echo.go_as();
            assert_eq!(omxd.status().0.endpoints[0].command, "one-of-many");
        },
    );
}

#[test]
fn an_authority_on_demand_gives_way_to_one_with_settings() {
    in_own_world(
        "authority::an_authority_on_demand_gives_way_to_one_with_settings",
        || {
            let veth = Veth::new(9000);
            let mut echo = Echo::start(&veth.b, &[]);
            let (mac, number) = echo.go_as();
            let endpoint = open(&veth.a, Some(5)).unwrap();
            let to = endpoint.connect(mac, number, 0, Some(LIMIT)).unwrap();
            let omxd = Omxd::start(&[], &veth.a, &["--name", "mine:7"]);
            wait_until("the endpoint with the new omxd", || {
                let (status, _) = omxd.status();
                status.name == "mine:7" && status.endpoints.iter().any(|open| open.endpoint == 5)
            });
            exchange(&endpoint, to, 100_000, 1);
            // One with settings stays.
            let late = Command::new(env!("CARGO_BIN_EXE_omxd"))
                .args(["--interface", &veth.a])
                .output()
                .unwrap();
            assert!(
                !late.status.success() && String::from_utf8_lossy(&late.stderr).contains("another omxd owns"),
                "{late:?}"
            );
        },
    );
}

#[test]
fn cleared_names_come_back_and_a_renamed_board_is_known_by_its_new_name() {
    in_own_world(
        "authority::cleared_names_come_back_and_a_renamed_board_is_known_by_its_new_name",
        || {
            let veth = Veth::new(1500);
            let near = Omxd::start(&[], &veth.a, &["--name", "near:0"]);
            let far = Omxd::start(&[], &veth.b, &["--name", "far:0"]);
            let knows = |name: &str| near.status().1.find(name).is_some();
            wait_until("the other board's name", || knows("far:0"));
            near.session().unwrap().clear_names().unwrap();
            wait_until("the name again", || knows("far:0"));
            assert!(knows("near:0"), "a board knows itself");
            // As long as a name is on the wire.
            let long = "n".repeat(90);
            far.session().unwrap().set_name(None, &long).unwrap();
            assert_eq!(far.status().0.name, long[..79]);
            near.session().unwrap().clear_names().unwrap();
            wait_until("the new name", || knows(&long[..79]));
            assert!(!knows("far:0"));
        },
    );
}

/// Makes programs start `omxd` through another program, which writes a line to the file that is returned.
fn log_starts() -> std::path::PathBuf {
    let dir = std::path::PathBuf::from(env::var_os("OMX_RUN_DIR").unwrap());
    let (log, script) = (dir.join("starts"), dir.join("omxd-that-logs"));
    let text = format!(
        "#!/bin/sh\necho \"$2\" >> {}\nexec {} \"$@\"\n",
        log.display(),
        env!("CARGO_BIN_EXE_omxd")
    );
    write_program(&script, text.as_bytes());
    // SAFETY: nothing else runs in this process yet that looks at the environment.
    unsafe { env::set_var("OMX_OMXD", &script) };
    log
}

#[test]
fn endpoints_of_a_renamed_interface_get_a_new_authority_and_none_is_sought_for_one_that_is_gone() {
    in_own_world(
        "authority::endpoints_of_a_renamed_interface_get_a_new_authority_and_none_is_sought_for_one_that_is_gone",
        || {
            let log = log_starts();
            let (gone, renamed) = (Veth::new(1500), Veth::new(1500));
            let endpoints = [open(&gone.a, None).unwrap(), open(&renamed.a, None).unwrap()];
            let ip = |args: &[&str]| assert!(Command::new("ip").args(args).status().unwrap().success());
            let socket = weft_authority::Place::of(Interface::find(&gone.a).unwrap().index)
                .unwrap()
                .socket();
            ip(&["link", "delete", &gone.a]);
            wait_until("the end of the authority without an interface", || !socket.exists());
            let before = Board::named(&renamed.a).unwrap();
            let pid = before.status().unwrap().0.pid;
            ip(&["link", "set", &renamed.a, "down"]);
            ip(&["link", "set", &renamed.a, "name", "renamed0"]);
            ip(&["link", "set", "renamed0", "up"]);
            kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
            let interface = Interface::find("renamed0").unwrap();
            wait_until("the endpoint with a new omxd", || {
                let session = Session::connect_to_running(&interface).unwrap();
                session.is_some_and(|session| session.status().is_ok_and(|(status, _)| status.endpoints.len() == 1))
            });
            // The thread that did that looked at the other endpoint, too.
            let starts = fs::read_to_string(&log).unwrap();
            let starts_for = |name: &str| starts.lines().filter(|line| *line == name).count();
            assert_eq!((starts_for(&gone.a), starts_for(&renamed.a)), (1, 1), "{starts}");
            assert!(starts_for("renamed0") >= 1, "{starts}");
            for endpoint in endpoints {
                endpoint.close().unwrap();
            }
        },
    );
}

#[test]
fn an_authority_out_of_descriptors_stays_and_sleeps() {
    in_own_world("authority::an_authority_out_of_descriptors_stays_and_sleeps", || {
        let veth = Veth::new(1500);
        // Four of them are sockets that were made ahead.
        let omxd = Omxd::start(&["prlimit", "--nofile=22", "--"], &veth.a, &["--static-peers"]);
        let path = weft_authority::Place::of(omxd.interface.index).unwrap().socket();
        let address = rustix::net::SocketAddrUnix::new(&path).unwrap();
        let sessions: Vec<_> = (0..16)
            .map(|_| {
                let socket = rustix::net::socket(
                    rustix::net::AddressFamily::UNIX,
                    rustix::net::SocketType::SEQPACKET,
                    None,
                )
                .unwrap();
                rustix::net::connect(&socket, &address).unwrap();
                socket
            })
            .collect();
        // It checks its interface once a second, and sleeps in between.
        let status = format!("/proc/{}/status", omxd.child.id());
        let sleeps = || -> u64 {
            let status = fs::read_to_string(&status).unwrap();
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            // What has ended has none.
            line.map_or(0, |count| count.trim().parse().unwrap())
        };
        let full = || fs::read_dir(format!("/proc/{}/fd", omxd.child.id())).unwrap().count() >= 21;
        wait_until("it is out of descriptors", full);
        let before = sleeps();
        wait_until("it slept some times", || sleeps() > before + 3);
        drop(sessions);
        wait_until("it serves again", || omxd.session().is_some());
        assert_eq!(omxd.status().0.pid, omxd.child.id());
    });
}

const TAKES: &str = "OMX_TEST_TAKES";

/// A program that takes from an authority what it gets: connections, then places in the peer table. Started by the test below.
#[test]
fn taking_program_of_the_other_tests() {
    let Ok(interface) = env::var(TAKES) else { return };
    let interface = Interface::find(&interface).unwrap();
    let mut sessions = Vec::new();
    let sentence = loop {
        match Session::connect(&interface) {
            Ok(session) => sessions.push(session),
            Err(error) => break error.to_string(),
        }
    };
    println!("\n@{} {sentence}", sessions.len());
    let mut taken = HashSet::new();
    let refused = (1..).find_map(|number: u64| {
        let [.., a, b] = number.to_be_bytes();
        match sessions[0].add_peer(MacAddr([2, 0, 0, 0x77, a, b])) {
            Ok(index) => {
                taken.insert(index);
                None
            }
            Err(error) => Some(error.to_string()),
        }
    });
    println!("\n@{} {}", taken.len(), refused.unwrap());
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn no_user_takes_all_connections_or_all_places_for_peers() {
    in_own_world(
        "authority::no_user_takes_all_connections_or_all_places_for_peers",
        || {
            let veth = Veth::new(1500);
            let omxd = Omxd::start(&[], &veth.a, &["--group", "nogroup"]);
            let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].map(str::to_owned);
            let mut greedy = Program::start(&user, "authority::taking_program_of_the_other_tests", TAKES, &veth.a);
            let (connections, peers) = (greedy.hear(), greedy.hear());
            assert!(
                connections.starts_with("304 ") && connections.contains("as many as one user may"),
                "{connections}"
            );
            assert!(peers.starts_with("512 ") && peers.contains("of this user"), "{peers}");
            let other = omxd.session().unwrap();
            other.add_peer(MacAddr([2, 0, 0, 0, 0, 0x66])).unwrap();
            let mut member = Echo::start(
                &veth.a,
                &["setpriv", "--reuid=65533", "--regid=65534", "--clear-groups"],
            );
            member.go_as();
        },
    );
}

#[test]
fn an_interface_that_is_off_or_too_small_is_no_board_to_open_an_endpoint_on() {
    in_own_world(
        "authority::an_interface_that_is_off_or_too_small_is_no_board_to_open_an_endpoint_on",
        || {
            let veth = Veth::new(9000);
            let _omxd = Omxd::start(&[], &veth.a, &["--preset", "native-9000"]);
            veth.set_up(&veth.a, false);
            let off = open(&veth.a, None).err().unwrap();
            assert!(matches!(off, Error::BoardUnusable { .. }) && off.code() == 8, "{off:?}");
            assert!(off.to_string().contains("is down"), "{off}");
            veth.set_up(&veth.a, true);
            let words = ["link", "set", &veth.a, "mtu", "1500"];
            assert!(Command::new("ip").args(words).status().unwrap().success());
            let small = open(&veth.a, None).err().unwrap();
            assert!(matches!(small, Error::BoardUnusable { .. }), "{small:?}");
            assert!(small.to_string().contains("raise its MTU"), "{small}");
        },
    );
}

const FORKS: &str = "OMX_TEST_FORKS";

/// A program that opens endpoint 3 and has a child that goes on. Started by the test below.
#[test]
fn forking_program_of_the_other_tests() {
    let Ok(interface) = env::var(FORKS) else { return };
    let _endpoint = open(&interface, Some(3)).unwrap();
    // SAFETY: the child only sleeps.
    match unsafe { libc::fork() } {
        0 => loop {
            // SAFETY: no pointers.
            unsafe { libc::pause() };
        },
        child => println!("\n@{child}"),
    }
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn the_number_of_a_killed_program_is_free_although_its_child_lives() {
    in_own_world(
        "authority::the_number_of_a_killed_program_is_free_although_its_child_lives",
        || {
            let veth = Veth::new(1500);
            let omxd = Omxd::start(&[], &veth.a, &[]);
            let mut program = Program::start(&[], "authority::forking_program_of_the_other_tests", FORKS, &veth.a);
            let child = Pid::from_raw(program.hear().parse().unwrap()).unwrap();
            assert_eq!(omxd.status().0.endpoints.len(), 1);
            drop(program);
            wait_until("its number is free", || omxd.status().0.endpoints.is_empty());
            open(&veth.a, Some(3)).unwrap().close().unwrap();
            kill_process(child, Signal::KILL).unwrap();
        },
    );
}
