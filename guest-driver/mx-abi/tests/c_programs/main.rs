//! C programs written against the shipped headers alone: compiled with gcc, linked with the shared and the static library, run
//! within one process, between two processes of a host, and between two network namespaces. Needs root.

mod faults;
mod headers;
mod kit;
mod other_host;
mod readme;
mod valgrind;

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use kit::Kit;
use netif::Interface;
use other_host::OtherHost;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, accept, bind, listen, recv, send, socket,
};
use weft_guest_driver_testkit::Veth;

/// Runs `body` in a network of its own with a pair of joined interfaces.
fn with_cable(test: &str, mtu: usize, body: impl FnOnce(&Kit, &Veth)) {
    weft_guest_driver_testkit::with_cable(test, mtu, |veth| body(&Kit::new(), veth));
}

#[test]
fn everything_mx_promises_of_messages_holds_over_the_wire_and_within_the_host() {
    with_cable(
        "everything_mx_promises_of_messages_holds_over_the_wire_and_within_the_host",
        1500,
        |kit, veth| {
            let mut programs = Vec::new();
            for source in ["messages", "calls"] {
                let file = format!("{source}.c");
                programs.push(kit.compile(&file, source, &[], &["-lmyriexpress", "-lpthread"]));
                let translated = format!("{source}-omx");
                programs.push(kit.compile(&file, &translated, &["translate"], &["-lopen-mx", "-lpthread"]));
            }
            let boards = format!("{},{}", veth.a, veth.b);
            for program in &programs {
                for args in [["0", "0"], ["0", "1"]] {
                    kit.run(program, &boards, &args);
                }
            }
            // Loopback as board 0, where everything goes through memory.
            kit.run(&programs[0], "lo", &["0", "0"]);
        },
    );
}

#[test]
fn sends_to_an_endpoint_that_holds_all_it_may_wait_and_none_fails() {
    with_cable(
        "sends_to_an_endpoint_that_holds_all_it_may_wait_and_none_fails",
        1500,
        |kit, veth| {
            let boards = format!("{},{}", veth.a, veth.b);
            let mx = kit.compile("full.c", "full", &[], &["-lmyriexpress", "-lpthread"]);
            // Over the cable, and within the host.
            kit.run(&mx, &boards, &["0", "1"]);
            kit.run(&mx, &boards, &["0", "0"]);
            let translated = kit.compile("full.c", "full-omx", &["translate"], &["-lopen-mx", "-lpthread"]);
            kit.run(&translated, &boards, &["0", "0"]);
        },
    );
}

/// What turns off the short paths within a host: variables, and how many of ten messages to oneself and to others are
/// frames then.
const SHORT_PATHS_OFF: [(&[&str], [&str; 2]); 5] = [
    (&[], ["0", "0"]),
    (&["OMX_DISABLE_SELF"], ["10", "0"]),
    (&["OMX_DISABLE_SHARED"], ["0", "10"]),
    (&["OMX_DISABLE_SELF", "OMX_DISABLE_SHARED"], ["10", "10"]),
    (&["MX_DISABLE_SELF", "MX_DISABLE_SHMEM"], ["10", "10"]),
];

#[test]
fn messages_within_a_host_are_frames_where_the_environment_says_so() {
    with_cable(
        "messages_within_a_host_are_frames_where_the_environment_says_so",
        1500,
        |kit, veth| {
            let boards = format!("{},{}", veth.a, veth.b);
            let mx = ["-lmyriexpress", "-lpthread"];
            let paths = kit.compile("paths.c", "paths", &[], &["-lopen-mx"]);
            let messages = kit.compile("messages.c", "messages", &[], &mx);
            let programs = ["calls", "full"].map(|name| kit.compile(&format!("{name}.c"), name, &[], &mx));
            let hosts = kit.compile("hosts.c", "hosts", &[], &mx);
            let echo = kit.compile("echo.c", "echo", &[], &["-lopen-mx", "-lpthread"]);
            for (variables, frames) in SHORT_PATHS_OFF {
                let set = |mut command: Command| {
                    command.envs(variables.iter().map(|name| (name, "1")));
                    command
                };
                Kit::finishes(set(kit.command(&paths, &boards)).args(frames));
                Kit::finishes(set(kit.command(&messages, &boards)).args(["0", "0"]));
                // These expect of messages to oneself what those do that are no frames: not to be over before they are matched.
                if variables != ["OMX_DISABLE_SHARED"] {
                    continue;
                }
                for program in &programs {
                    Kit::finishes(set(kit.command(program, &boards)).args(["0", "0"]));
                }
                // Both ends have it, one, or the other: `hosts` compares addresses, and of those there are two then.
                for (program, first_has, second_has) in
                    [(&hosts, true, true), (&echo, true, false), (&echo, false, true)]
                {
                    let start = |has: bool| {
                        let command = kit.command(program, &veth.a);
                        if has { set(command) } else { command }
                    };
                    let first = First::start(start(first_has));
                    Kit::finishes(start(second_has).arg(&first.address));
                    first.finish();
                }
            }
        },
    );
}

#[test]
fn every_function_succeeds_and_fails_as_documented() {
    with_cable("every_function_succeeds_and_fails_as_documented", 1500, |kit, veth| {
        let boards = format!("{},{}", veth.a, veth.b);
        let shared = kit.compile("api.c", "api", &[], &["-lmyriexpress"]);
        kit.run(&shared, &boards, &[]);
        let fatal = kit.compile(
            "fatal.c",
            "fatal",
            &[],
            &["-l:libopen-mx.a", "-lpthread", "-ldl", "-lm"],
        );
        let output = kit.command(&fatal, &boards).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(255), "{said}");
        assert!(said.contains("no board 99"), "{said}");
        for (name, value) in [("OMX_FATAL_ERRORS", "0"), ("MX_ERRORS_ARE_FATAL", "0")] {
            let output = kit.command(&fatal, &boards).env(name, value).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
    });
}

#[test]
fn sends_complete_and_waits_end_as_the_environment_says() {
    with_cable(
        "sends_complete_and_waits_end_as_the_environment_says",
        1500,
        |kit, veth| {
            let boards = format!("{},{}", veth.a, veth.b);
            let mx = kit.compile("settings.c", "settings", &[], &["-lmyriexpress", "-lpthread"]);
            kit.run(&mx, &boards, &[]);
            let translated = kit.compile(
                "settings.c",
                "settings-omx",
                &["translate"],
                &["-lopen-mx", "-lpthread"],
            );
            kit.run(&translated, &boards, &[]);
        },
    );
}

#[test]
fn raw_endpoints_and_mappers_do_as_their_headers_say() {
    with_cable(
        "raw_endpoints_and_mappers_do_as_their_headers_say",
        1500,
        |kit, veth| {
            let raw = kit.compile("raw.c", "raw", &[], &["-lmyriexpress", "-lpthread"]);
            kit.run(&raw, &format!("{},{}", veth.a, veth.b), &[]);
        },
    );
}

#[test]
fn a_program_with_translating_headers_has_every_header_every_call_and_its_own_handlers() {
    with_cable(
        "a_program_with_translating_headers_has_every_header_every_call_and_its_own_handlers",
        1500,
        |kit, veth| {
            let boards = format!("{},{}", veth.a, veth.b);
            for (name, order) in [("raw-last", "-DRAW_LAST"), ("raw-first", "-DRAW_FIRST")] {
                let program = kit.compile("translated.c", name, &["translate"], &[order, "-lopen-mx"]);
                kit.run(&program, &boards, &[]);
            }
        },
    );
}

#[test]
fn raw_frames_have_the_ether_type_of_the_authority_and_are_lost_on_purpose_like_others() {
    with_cable(
        "raw_frames_have_the_ether_type_of_the_authority_and_are_lost_on_purpose_like_others",
        1500,
        |kit, veth| {
            let boards = format!("{},{}", veth.a, veth.b);
            let raw = kit.compile("raw_types.c", "raw_types", &[], &["-lmyriexpress"]);
            let with = |loss: &str, arg: &str| {
                let mut command = kit.command(&raw, &boards);
                command.env("OMX_ETHER_TYPE", "88b7").env("OMX_PACKET_LOSS", loss);
                Kit::finishes(command.arg(arg));
            };
            with("tiny=1", "arrive");
            with("raw=1", "lost");
        },
    );
}

/// Listens where the authorities of both interfaces would, and says what none of them says, until the process ends.
fn stranger(dir: &Path, veth: &Veth) {
    for name in [&veth.a, &veth.b] {
        let place = weft_authority::Place::of(Interface::find(name).unwrap().index).unwrap();
        let path = dir.join(place.socket().file_name().unwrap());
        let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 8).unwrap();
        std::thread::spawn(move || {
            loop {
                let client = accept(&listener).unwrap();
                send(&client, b"who are you?", SendFlags::empty()).unwrap();
                // Open until the other side has read it and goes.
                while recv(&client, &mut [0; 64], RecvFlags::empty()).is_ok_and(|(len, _)| len > 0) {}
            }
        });
    }
}

/// The folder in which authorities are met for one run alone.
fn meeting_place(kit: &Kit, name: &str) -> PathBuf {
    let dir = kit.at(name);
    fs::create_dir(&dir).unwrap();
    dir
}

#[test]
fn codes_that_need_a_world_of_their_own_come_in_it() {
    with_cable("codes_that_need_a_world_of_their_own_come_in_it", 1500, |kit, veth| {
        let boards = format!("{},{}", veth.a, veth.b);
        let program = kit.compile("failures.c", "failures", &[], &["-lmyriexpress"]);
        // An ordinary user gets as far as the daemon's socket.
        fs::set_permissions(kit.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for what in ["pending", "no-descriptors", "no-permission"] {
            // A cable of its own, as the daemons of the one before may still be there.
            let veth = Veth::new(1500);
            kit.run(&program, &format!("{},{}", veth.a, veth.b), &[what]);
        }
        let mut driverless = kit.command(&program, &boards);
        driverless.env("OMX_RUN_DIR", meeting_place(kit, "no-driver"));
        Kit::finishes(driverless.env("OMX_OMXD", "/bin/false").arg("no-driver"));
        for (name, change) in [("off", ["down", "mtu", "1500"]), ("narrow", ["up", "mtu", "500"])] {
            let veth = Veth::new(1500);
            veth.change(&veth.b, &change);
            let dir = meeting_place(kit, name);
            Kit::finishes(kit.command(&program, &veth.b).env("OMX_RUN_DIR", dir).arg("unusable"));
        }
        let dir = meeting_place(kit, "other-version");
        stranger(&dir, veth);
        Kit::finishes(
            kit.command(&program, &boards)
                .env("OMX_RUN_DIR", dir)
                .arg("other-version"),
        );
    });
}

#[test]
fn requests_end_as_documented_when_the_other_end_changes() {
    with_cable(
        "requests_end_as_documented_when_the_other_end_changes",
        1500,
        |kit, veth| {
            let boards = format!("{},{}", veth.a, veth.b);
            kit.run(&kit.compile("ends.c", "ends", &[], &["-lmyriexpress"]), &boards, &[]);
            kit.run(
                &kit.compile("ends.c", "ends-omx", &["translate"], &["-lopen-mx"]),
                &boards,
                &[],
            );
        },
    );
}

#[test]
fn ends_of_different_sizes_do_not_connect() {
    with_cable("ends_of_different_sizes_do_not_connect", 9000, |kit, veth| {
        let program = kit.compile("failures.c", "failures", &[], &["-lmyriexpress"]);
        kit.run(&program, &format!("{},{}", veth.a, veth.b), &["sizes"]);
    });
}

#[test]
fn a_program_learns_the_sizes_of_its_board_before_it_opens_an_endpoint() {
    with_cable(
        "a_program_learns_the_sizes_of_its_board_before_it_opens_an_endpoint",
        9000,
        |kit, veth| {
            let program = kit.compile("failures.c", "failures", &[], &["-lmyriexpress"]);
            kit.run(&program, &veth.a, &["wire"]);
        },
    );
}

/// The first one of two programs, which says its address and answers the other one.
struct First {
    child: Child,
    out: BufReader<ChildStdout>,
    address: String,
}

impl First {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let address = line.trim_end().to_owned();
        Self { child, out, address }
    }

    fn finish(mut self) {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success() && rest.contains(" done\n"));
    }
}

#[test]
fn two_c_programs_talk_within_a_host_and_between_two_namespaces() {
    with_cable(
        "two_c_programs_talk_within_a_host_and_between_two_namespaces",
        1500,
        |kit, veth| {
            let mx = ["-lmyriexpress", "-lpthread"];
            let open_mx = ["-lopen-mx", "-lpthread"];
            let programs = [
                kit.compile("echo.c", "echo", &[], &open_mx),
                kit.compile("hosts.c", "hosts", &[], &mx),
                kit.compile("hosts.c", "hosts-omx", &["translate"], &open_mx),
            ];
            for program in &programs {
                let first = First::start(kit.command(program, &veth.a));
                kit.run(program, &veth.a, &[&first.address]);
                first.finish();
            }
            // The other end of the cable moves to a namespace of its own, which is another host.
            let other = OtherHost::with(&veth.b);
            for program in &programs {
                let first = First::start(other.command(kit, program, &veth.b));
                kit.run(program, &veth.a, &[&first.address]);
                first.finish();
            }
        },
    );
}
