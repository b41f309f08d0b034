//! The C programs under valgrind's memcheck: the library neither hands uninitialised bytes to the system nor decides by
//! them, and touches no memory that is not its own.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use weft_guest_driver_testkit::Veth;

use crate::{First, kit::Kit, other_host::OtherHost, with_cable};

/// The exit status of a program that memcheck has something to say of.
const COMPLAINTS: &str = "99";

/// A program behind `valgrind`, which `scripts/test` installs; `start` starts one.
fn watched(start: impl FnOnce(&Path) -> Command, program: &Path) -> Command {
    let mut command = start(Path::new("valgrind"));
    let status = format!("--error-exitcode={COMPLAINTS}");
    command.args(["--quiet", "--fair-sched=yes", &status]).arg(program);
    command
}

/// Source, and the arguments of each run.
type Programs = &'static [(&'static str, &'static [&'static [&'static str]])];
const MESSAGES: Programs = &[
    ("messages", &[&["0", "0"], &["0", "1"]]),
    ("calls", &[&["0", "0"], &["0", "1"]]),
];
const LIMITS_AND_ENDS: Programs = &[
    ("api", &[&[]]),
    ("full", &[&["0", "0"], &["0", "1"]]),
    ("settings", &[&[]]),
    ("ends", &[&[]]),
    ("raw", &[&[]]),
    ("translated", &[&[]]),
    ("failures", &[&["no-permission"]]),
];

/// Runs programs one after the other: memcheck makes them slow, and what they wait for has a bound.
fn nothing_to_say_of(test: &str, programs: Programs) {
    with_cable(test, 1500, |kit, _| {
        // An ordinary user gets as far as the daemon's socket.
        fs::set_permissions(kit.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for (name, runs) in programs {
            let first: &[&str] = if *name == "translated" { &["translate"] } else { &[] };
            let last = ["-lmyriexpress", "-lopen-mx", "-lpthread"];
            let program = kit.compile(&format!("{name}.c"), name, first, &last);
            for args in *runs {
                // One of its own each, as daemons of the run before may still be there.
                let veth = Veth::new(1500);
                let boards = format!("{},{}", veth.a, veth.b);
                let mut command = watched(|valgrind| kit.command(valgrind, &boards), &program);
                Kit::finishes(command.args(*args));
            }
        }
    });
}

#[test]
fn memcheck_has_nothing_to_say_of_programs_that_send_messages_to_themselves() {
    nothing_to_say_of(
        "valgrind::memcheck_has_nothing_to_say_of_programs_that_send_messages_to_themselves",
        MESSAGES,
    );
}

#[test]
fn memcheck_has_nothing_to_say_of_programs_that_meet_limits_and_end() {
    nothing_to_say_of(
        "valgrind::memcheck_has_nothing_to_say_of_programs_that_meet_limits_and_end",
        LIMITS_AND_ENDS,
    );
}

#[test]
fn memcheck_has_nothing_to_say_of_programs_with_two_processes() {
    with_cable(
        "valgrind::memcheck_has_nothing_to_say_of_programs_with_two_processes",
        1500,
        |kit, veth| {
            let programs = [
                kit.compile("echo.c", "echo", &[], &["-lopen-mx", "-lpthread"]),
                kit.compile("hosts.c", "hosts", &[], &["-lmyriexpress", "-lpthread"]),
            ];
            let here = |valgrind: &Path| kit.command(valgrind, &veth.a);
            for program in &programs {
                let first = First::start(watched(here, program));
                Kit::finishes(watched(here, program).arg(&first.address));
                first.finish();
            }
            let other = OtherHost::with(&veth.b);
            for program in &programs {
                let first = First::start(watched(|valgrind| other.command(kit, valgrind, &veth.b), program));
                Kit::finishes(watched(here, program).arg(&first.address));
                first.finish();
            }
        },
    );
}
