//! An authority that was set up, killed and started again: no other one serves in its place, endpoints go back to the
//! programs that had them and not to ended ones, and a program that is not served is told what would serve it.

use std::{
    env,
    process::{Command, Stdio},
};

use netif::Interface;
use omx::Board;
use rustix::process::{Pid, Signal, kill_process};
use weft_authority::Session;
use weft_guest_driver_testkit::{Veth, write_program};

use crate::{
    authority::Omxd,
    rig::{Echo, in_own_world, open, wait_until},
};

const SETTINGS: [&str; 4] = ["--preset", "wire", "--name", "mine:7"];

/// Programs that start an `omxd` from now on leave a note, whose presence this checks.
fn note_starts() -> impl Fn() -> bool {
    let dir = std::path::PathBuf::from(env::var_os("OMX_RUN_DIR").unwrap());
    let (script, note) = (dir.join("omxd-that-notes"), dir.join("started"));
    let text = format!(
        "#!/bin/sh\necho >> {}\nexec {} \"$@\"\n",
        note.display(),
        env!("CARGO_BIN_EXE_omxd")
    );
    write_program(&script, text.as_bytes());
    // SAFETY: nothing else runs in this process yet that looks at the environment.
    unsafe { env::set_var("OMX_OMXD", &script) };
    move || note.exists()
}

/// What an `omxd` that a program would start says.
fn start_on_demand(interface: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_omxd"))
        .args([interface, "--on-demand"])
        .stderr(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

#[test]
fn nobody_serves_without_settings_while_a_killed_omxd_with_settings_is_away() {
    in_own_world(
        "set_up::nobody_serves_without_settings_while_a_killed_omxd_with_settings_is_away",
        || {
            let was_started = note_starts();
            let veth = Veth::new(9000);
            let mut omxd = Omxd::start(&[], &veth.a, &SETTINGS);
            // New programs of root, which have never seen it.
            let mut programs = [(); 4].map(|()| Echo::start(&veth.a, &[]));
            omxd.kill();
            assert_eq!(start_on_demand(&veth.a), "busy");
            for program in &mut programs {
                program.0.tell("go");
            }
            let omxd = Omxd::start(&[], &veth.a, &SETTINGS);
            for program in &mut programs {
                let said = program.0.hear();
                let address = said.split(" ").next().unwrap_or_default();
                assert!(address.parse::<ether::MacAddr>().is_ok(), "{said}");
            }
            let (status, _) = omxd.status();
            assert_eq!((status.name.as_str(), status.preset.as_str()), ("mine:7", "wire"));
            assert_eq!(status.endpoints.len(), programs.len());
            assert!(!was_started(), "a program started one without the settings");
        },
    );
}

#[test]
fn who_waits_in_vain_for_a_killed_omxd_with_settings_is_told_what_to_do() {
    in_own_world(
        "set_up::who_waits_in_vain_for_a_killed_omxd_with_settings_is_told_what_to_do",
        || {
            let was_started = note_starts();
            let veth = Veth::new(1500);
            let mut omxd = Omxd::start(&[], &veth.a, &[]);
            omxd.kill();
            // New to it, and not.
            let said = Echo::start(&veth.a, &[]).go();
            assert!(said.contains("was killed and has not come back"), "{said}");
            let own = open(&veth.a, None).err().unwrap().to_string();
            assert_eq!(own, said);
            assert!(!was_started());
            // Given up, another one is started for who needs it.
            let interface = Interface::find(&veth.a).unwrap();
            assert!(
                weft_authority::forget_killed(&interface).unwrap()
                    && !weft_authority::forget_killed(&interface).unwrap()
            );
            let mut echo = Echo::start(&veth.a, &[]);
            echo.go_as();
            assert!(was_started());
        },
    );
}

#[test]
fn one_that_was_stopped_in_good_order_is_not_waited_for() {
    in_own_world("set_up::one_that_was_stopped_in_good_order_is_not_waited_for", || {
        let veth = Veth::new(1500);
        let mut omxd = Omxd::start(&[], &veth.a, &[]);
        let interface = Interface::find(&veth.a).unwrap();
        assert!(!weft_authority::forget_killed(&interface).unwrap(), "it serves");
        let pid = Pid::from_raw(omxd.child.id().cast_signed()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        assert!(omxd.child.wait().unwrap().success());
        assert_eq!(start_on_demand(&veth.a), "ready");
        let mut echo = Echo::start(&veth.a, &[]);
        echo.go_as();
    });
}

#[test]
fn a_number_that_was_closed_while_omxd_was_away_can_be_had_again() {
    in_own_world(
        "set_up::a_number_that_was_closed_while_omxd_was_away_can_be_had_again",
        || {
            let veth = Veth::new(1500);
            let mut omxd = Omxd::start(&[], &veth.a, &[]);
            let endpoint = open(&veth.a, Some(3)).unwrap();
            let mut echo = Echo::start(&veth.a, &[]);
            let (_, of_echo) = echo.go_as();
            omxd.kill();
            endpoint.close().unwrap();
            drop(echo);
            let omxd = Omxd::start(&[], &veth.a, &[]);
            // The one whose program has ended, and the one whose program lives and does not want it back.
            for number in [of_echo, 3] {
                let again = open(&veth.a, Some(number)).unwrap();
                assert_eq!(omxd.status().0.endpoints.len(), 1);
                again.close().unwrap();
                wait_until("closed", || omxd.status().0.endpoints.is_empty());
            }
        },
    );
}

#[test]
fn who_is_not_served_is_told_which_group_is() {
    in_own_world("set_up::who_is_not_served_is_told_which_group_is", || {
        let veth = Veth::new(1500);
        let _omxd = Omxd::start(&[], &veth.a, &["--group", "nogroup"]);
        let stranger = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"];
        let said = Echo::start(&veth.a, &stranger).go();
        assert!(
            said.contains("members of the group nogroup") && said.contains("`usermod -aG nogroup USER`"),
            "{said}"
        );
        // A program that it serves has a session.
        assert!(Session::connect(Board::named(&veth.a).unwrap().interface()).is_ok());
    });
}
