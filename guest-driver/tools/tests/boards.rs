//! Which interfaces the tools take for boards, and what `omx_info` says of them, over veth pairs in a private network namespace.
//! Needs root and the program `omxd` beside the tools: `cargo build -p weft-omxd` makes it.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use netif::Interface;
use weft_guest_driver_testkit::{Veth, in_private_network, write_program};

const INFO: &str = env!("CARGO_BIN_EXE_omx_info");
const INIT: &str = env!("CARGO_BIN_EXE_omx_init");

/// A host without settings, whose commands are those of its folder first.
struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("open-mx.conf"), "").unwrap();
        Self { dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Standard output and standard error of a program that must succeed.
    #[track_caller]
    fn well(&self, program: &str, arguments: &[&str]) -> [String; 2] {
        self.well_with(program, arguments, &[])
    }

    /// As [`Host::well`], with these variables.
    #[track_caller]
    fn well_with(&self, program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> [String; 2] {
        let output = self.run(program, arguments, variables);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
        [text(&output.stdout), text(&output.stderr)]
    }

    fn run(&self, program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let path = std::env::var("PATH").unwrap_or_default();
        Command::new(program)
            .args(arguments)
            .env("OMX_RUN_DIR", self.dir.path())
            .env("OMX_CONFIG", self.at("open-mx.conf"))
            .env("OMX_LOG", self.at("log"))
            .env("PATH", format!("{}:{path}", self.dir.path().display()))
            .env_remove("OMX_IFACES")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

/// The ends of a cable in the order of their numbers.
fn ends(_veth: &Veth) -> [String; 2] {
    let names: Vec<String> = Interface::list()
        .unwrap()
        .into_iter()
        .filter(|interface| !interface.loopback)
        .map(|interface| interface.name)
        .collect();
    names.try_into().unwrap()
}

#[test]
fn what_is_down_or_too_small_is_no_board_and_no_number_changes() {
    in_private_network("what_is_down_or_too_small_is_no_board_and_no_number_changes", || {
        let (host, veth) = (Host::new(), Veth::new(1500));
        let [first, second] = ends(&veth);
        let boards = || {
            let [text, _] = host.well(INFO, &["-q"]);
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let both = boards();
        assert!(both[0].starts_with("Found 2 boards (32 max)"), "{both:?}");
        let title = |board: &str, number: usize, name: &str| {
            let expected = format!(":{number} (board #{number} name {name} addr ");
            assert!(board.contains(&expected), "{board}");
        };
        title(&both[1], 0, &first);
        title(&both[2], 1, &second);
        for spoilt in [["down", "up"], ["mtu 1485", "mtu 1500"]] {
            let change = |how: &str| veth.change(&first, &how.split(' ').collect::<Vec<_>>());
            change(spoilt[0]);
            let one = boards();
            assert!(one[0].starts_with("Found 1 boards (32 max)"), "{one:?}");
            assert_eq!(one[1..], both[2..], "{spoilt:?}");
            let [_, said] = host.well(INFO, &[]);
            assert!(said.contains(&format!("omx_info: {first} is no board: it")), "{said}");
            // What is meant unless a board is named is one that works.
            let [name, _] = host.well(env!("CARGO_BIN_EXE_omx_hostname"), &[]);
            title(&name, 1, &second);
            let [checked, _] = host.well(env!("CARGO_BIN_EXE_omx_check"), &[]);
            assert!(checked.starts_with(&format!("board 1 ({second}): ")), "{checked}");
            assert_eq!(checked.lines().count(), 1, "{checked}");
            change(spoilt[1]);
            assert_eq!(boards(), both);
        }
        // Settings of the host name boards, whatever their state.
        veth.set_up(&second, false);
        fs::write(host.at("open-mx.conf"), format!("OMX_IFACES={second}\n")).unwrap();
        let [text, said] = host.well(INFO, &["-q"]);
        assert!(text.starts_with("Found 1 boards"), "{text}");
        assert!(text.contains(&format!("(board #0 name {second} addr ")), "{text}");
        assert!(said.contains(&format!("{second} is down")), "{said}");
    });
}

#[test]
fn omx_info_shows_driver_node_and_mapper_and_warns_of_what_makes_messages_slow() {
    let test = "omx_info_shows_driver_node_and_mapper_and_warns_of_what_makes_messages_slow";
    in_private_network(test, || {
        let (host, veth) = (Host::new(), Veth::new(1500));
        let [first, second] = ends(&veth);
        let ethtool = |us: u32| {
            let script = format!("#!/bin/sh\necho 'Adaptive RX: off  TX: off'\necho 'rx-usecs: {us}'\n");
            write_program(&host.at("ethtool"), script.as_bytes());
        };
        ethtool(75);
        let [text, said] = host.well(INFO, &["-b", "1"]);
        assert!(
            text.contains("\nFound 2 boards (32 max) supporting 32 endpoints each:\n"),
            "{text}"
        );
        assert_eq!(text.matches("(board #").count(), 1, "{text}");
        assert!(text.contains(&format!("(board #1 name {second} addr ")), "{text}");
        let mac = Interface::find(&second).unwrap().mac;
        for line in [
            "   driver veth, NUMA node unknown\n".to_owned(),
            format!("   peer table is ready, mapper {mac} (omxd itself, by discovery)\n"),
        ] {
            assert!(text.contains(&line), "{line}: {text}");
        }
        for warning in [
            format!("the MTU of {second} is 1500"),
            format!("interrupts of {second} come late (75 µs)"),
        ] {
            assert!(said.contains(&warning), "{warning}: {said}");
        }
        assert!(!said.contains(" full"), "{said}");
        ethtool(3);
        let [text, said] = host.well(INFO, &["-q", "-b", "1"]);
        assert!(!text.contains("driver") && !text.contains("peer table"), "{text}");
        assert!(!said.contains("interrupts"), "{said}");

        // Sizes that an omxd has, and an MTU that is too small for them since.
        veth.change(&second, &["mtu", "1000"]);
        let [_, said] = host.well(INFO, &["-b", "1"]);
        assert!(
            said.contains(&format!("the MTU of {second} is 1000, which is too small")),
            "{said}"
        );
        let tuned = host.run(env!("CARGO_BIN_EXE_omx_tune"), &["--check", "-b", "1"], &[]);
        let tuned = String::from_utf8_lossy(&tuned.stdout);
        assert!(tuned.contains("!!  MTU: 1000 bytes, which is too small: "), "{tuned}");
        veth.change(&second, &["mtu", "1500"]);

        // A table that only root fills is empty until then, and full in the end.
        let start = format!("ifnames={first}");
        host.well(INIT, &["start", "--static-peers", "peers=2", &start]);
        let table = || host.well(INFO, &["-b", "0"]);
        let [text, said] = table();
        assert!(text.contains("   peer table is not configured: "), "{text}");
        assert!(!said.contains(" full"), "{said}");
        host.well(
            env!("CARGO_BIN_EXE_omx_init_peers"),
            &["-b", "0", "02:00:00:00:00:42", "other:0"],
        );
        let [text, said] = table();
        assert!(text.contains(" (omxd itself, peers are static)\n"), "{text}");
        assert!(said.contains(&format!("the peer table of {first} is full")), "{said}");
        host.well(INIT, &["kill"]);
    });
}

#[test]
fn lines_of_a_program_can_begin_with_the_name_of_its_board() {
    in_private_network("lines_of_a_program_can_begin_with_the_name_of_its_board", || {
        let (host, veth) = (Host::new(), Veth::new(1500));
        let [_, second] = ends(&veth);
        let check = |prefix: &str| {
            let variables = [("OMX_VERBOSE", "1"), ("OMX_VERBOSE_PREFIX", prefix)];
            let [_, said] = host.well_with(env!("CARGO_BIN_EXE_omx_check"), &["-b", "1"], &variables);
            said
        };
        let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let said = check("%b %B|");
        assert!(said.starts_with(&format!("1 {node}:1|endpoint ")), "{second}: {said}");
        host.well(env!("CARGO_BIN_EXE_omx_hostname"), &["-b", "1", "-n", "other:7"]);
        let said = check("%B[0-4]|");
        assert!(said.starts_with("other|endpoint "), "{said}");
    });
}
