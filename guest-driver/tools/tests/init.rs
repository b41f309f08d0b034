//! Promises of `omx_init` and of `omxoed`, over veth pairs in a private network namespace. Needs root and the program `omxd` beside
//! the tools: `cargo build -p weft-omxd` makes it.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use netif::Interface;
use rustix::process::{Pid, Signal, kill_process};
use weft_guest_driver_testkit::{Veth, copy_program, in_private_network};

const INIT: &str = env!("CARGO_BIN_EXE_omx_init");
const INFO: &str = env!("CARGO_BIN_EXE_omx_info");
const PERF: &str = env!("CARGO_BIN_EXE_omx_perf");

struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("open-mx.conf"), "OMX_MODULE_PARAMS=\"skbfrags=1\"\n").unwrap();
        Self { dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, program: &Path, boards: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("OMX_RUN_DIR", self.dir.path())
            .env("OMX_CONFIG", self.at("open-mx.conf"))
            .env("OMX_LOG", self.at("log"))
            .env("OMX_IFACES", boards)
            .stdin(Stdio::null());
        command
    }

    /// Exit code, standard output, standard error.
    fn run(&self, program: &str, boards: &str, arguments: &[&str]) -> (i32, String, String) {
        let output = self
            .command(Path::new(program), boards)
            .args(arguments)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code().unwrap(),
            text(&output.stdout),
            text(&output.stderr),
        )
    }

    #[track_caller]
    fn well(&self, program: &str, boards: &str, arguments: &[&str]) -> String {
        let (code, text, error) = self.run(program, boards, arguments);
        assert_eq!(code, 0, "{program} {arguments:?}: {text}{error}");
        text
    }
}

/// Every word that names a board has its daemon, and no other.
#[track_caller]
fn runs(host: &Host, boards: &str, expected: &[&str]) {
    let (code, text, _) = host.run(INIT, boards, &["status"]);
    let running: Vec<&str> = text
        .lines()
        .filter(|line| line.contains(": omxd is process "))
        .map(|line| line.split(':').next().unwrap())
        .collect();
    assert_eq!(running, expected, "{text}");
    assert_eq!(code, if expected.is_empty() { 3 } else { 0 });
    assert_eq!(text.lines().count(), boards.split(',').count());
}

#[test]
fn omx_init_starts_and_stops_the_daemons_of_the_boards() {
    in_private_network("omx_init_starts_and_stops_the_daemons_of_the_boards", || {
        let (host, veth) = (Host::new(), Veth::new(1500));
        let both = format!("{},{}", veth.a, veth.b);
        runs(&host, &both, &[]);
        let (code, text, error) = host.run(INIT, &veth.a, &["start"]);
        assert_eq!(code, 0, "{error}");
        assert!(
            text.starts_with(&format!("{}: omxd started\nFound 1 boards", veth.a)),
            "{text}"
        );
        assert!(error.contains("skbfrags has no effect"), "{error}");
        runs(&host, &both, &[&veth.a]);
        // It stays although it is not used, and says in its log what it does.
        assert!(fs::read_to_string(host.at("log")).is_ok());
        assert!(host.well(INIT, &both, &["start"]).contains(&format!(
            "{}: omxd runs already\n{}: omxd started\nFound 2 boards",
            veth.a, veth.b
        )));
        runs(&host, &both, &[&veth.a, &veth.b]);
        host.well(INIT, &both, &["start", &format!("ifnames=-{}", veth.a)]);
        runs(&host, &both, &[&veth.b]);
        host.well(INIT, &both, &["start", &format!("ifnames=+{}", veth.a)]);
        let restarted = host.well(INIT, &veth.a, &["restart"]);
        assert!(
            restarted.contains(": omxd ended\n") && restarted.contains(": omxd started\n"),
            "{restarted}"
        );

        // One that is used stays, unless the user insists.
        let mut user = host
            .command(Path::new(PERF), &both)
            .args(["--interface", &veth.b, "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(user.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        for arguments in [&["stop"][..], &["start", &format!("ifnames=-{}", veth.b)]] {
            let (code, _, error) = host.run(INIT, &veth.b, arguments);
            assert!(
                code == 255 && error.contains("1 endpoints are open, one by process"),
                "{code} {error}"
            );
        }
        runs(&host, &both, &[&veth.a, &veth.b]);
        // A program that goes on would start a successor.
        kill_process(Pid::from_child(&user), Signal::STOP).unwrap();
        host.well(INIT, &veth.b, &["kill"]);
        runs(&host, &both, &[&veth.a]);
        user.kill().unwrap();
        user.wait().unwrap();
        host.well(INIT, &both, &["kill"]);
        runs(&host, &both, &[]);
        host.well(INIT, " ", &["start"]);
        let (code, _, error) = host.run(INIT, "nowhere0", &["start"]);
        assert!(code == 255 && error.contains("nowhere0"), "{error}");
    });
}

#[test]
fn daemons_that_omx_init_starts_have_the_settings_of_the_file() {
    in_private_network("daemons_that_omx_init_starts_have_the_settings_of_the_file", || {
        let (host, veth) = (Host::new(), Veth::new(9000));
        let settings =
            "# of all hosts\nOMX_PRESET=wire\nOMX_CPU_LATENCY_US_MAX=\nOMX_INTERFACE=nowhere0\nOMX_USER_RIGHTS=9\n";
        fs::write(host.at("open-mx.conf"), settings).unwrap();
        let (code, _, error) = host.run(INIT, &veth.a, &["start"]);
        assert!(code == 255 && error.contains("9 is not in 0..8"), "{code} {error}");
        // What the command line says goes before the file.
        host.well(INIT, &veth.a, &["start", "userrights=1"]);
        let status = host.well(INIT, &veth.a, &["status"]);
        assert!(status.contains("wire sizes on the wire"), "{status}");
        host.well(INIT, &veth.a, &["kill"]);
    });
}

#[test]
fn omx_init_fails_when_no_daemon_starts_on_any_interface() {
    in_private_network("omx_init_fails_when_no_daemon_starts_on_any_interface", || {
        let (host, veth) = (Host::new(), Veth::new(1500));
        let start = |log: &str| {
            let output = host
                .command(Path::new(INIT), "all")
                .arg("start")
                .env("OMX_LOG", host.at(log))
                .output()
                .unwrap();
            (
                output.status.code().unwrap(),
                String::from_utf8_lossy(&output.stderr).into_owned(),
            )
        };
        let (code, error) = start("nowhere/log");
        assert!(
            code == 255 && error.contains("cannot open the log") && error.contains("no interface has an omxd"),
            "{code} {error}"
        );
        // Interfaces that are off are no failure, nor is one of several that starts none.
        veth.set_up(&veth.a, false);
        veth.set_up(&veth.b, false);
        assert_eq!(start("nowhere/log").0, 0);
        veth.set_up(&veth.b, true);
        assert_eq!(start("log").0, 0);
        host.well(INIT, "all", &["kill"]);
    });
}

#[test]
fn discovery_is_part_of_omxd_and_says_so() {
    let host = Host::new();
    for action in ["start-discovery", "restart-discovery"] {
        assert!(host.well(INIT, " ", &[action]).contains("part of omxd"));
    }
    for action in [
        &["stop-discovery"][..],
        &["kill-discovery"],
        &["start", "--dynamic-peers=fma"],
    ] {
        let (code, _, error) = host.run(INIT, " ", action);
        assert!(code == 255 && error.contains("discovery is part of omxd"), "{error}");
    }
    host.well(INIT, " ", &["start", "--dynamic-peers"]);
}

#[test]
fn with_static_peers_only_root_adds_some() {
    in_private_network("with_static_peers_only_root_adds_some", || {
        let (host, veth) = (Host::new(), Veth::new(1500));
        let both = format!("{},{}", veth.a, veth.b);
        let file = host.at("peers");
        fs::write(&file, "02:00:00:00:00:42 first:0\n").unwrap();
        host.well(INIT, &veth.a, &["start", &format!("--static-peers={}", file.display())]);
        // The other end of the cable announces itself and asks for names.
        host.well(INIT, &veth.b, &["start"]);
        let mac = |name: &str| Interface::find(name).unwrap().mac.to_string();
        let connects = |mac: &str| host.run(PERF, &both, &["--interface", &veth.a, "-d", mac, "-N", "1", "-E", "1"]);
        let (code, _, error) = connects(&mac(&veth.b));
        assert!(code == 255 && error.contains("not in the peer table"), "{code} {error}");
        let table = host.well(INFO, &veth.a, &["-v"]);
        assert!(
            table.contains("02:00:00:00:00:42 first:0") && table.contains("peer table of 2 entries"),
            "{table}"
        );
        // A host that it does not know gets no answer; told of it, it is a peer.
        host.well(
            env!("CARGO_BIN_EXE_omx_init_peers"),
            &veth.a,
            &[&mac(&veth.b), "second:0"],
        );
        let mut receiver = host
            .command(Path::new(PERF), &both)
            .args(["--interface", &veth.b, "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(receiver.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let (code, text, error) = connects(&mac(&veth.b));
        assert_eq!(code, 0, "{text}{error}");
        assert!(receiver.wait().unwrap().success());
        host.well(INIT, &both, &["kill"]);
    });
}

#[test]
fn ordinary_users_change_what_they_have_a_right_to() {
    in_private_network("ordinary_users_change_what_they_have_a_right_to", || {
        let (host, veth) = (Host::new(), Veth::new(1500));
        // The user gets as far as the daemon's socket and the tools.
        fs::set_permissions(host.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let as_user = |program: &str, arguments: &[&str]| {
            let copy = host.at(Path::new(program).file_name().unwrap().to_str().unwrap());
            copy_program(Path::new(program), &copy);
            let user = [
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                copy.to_str().unwrap(),
            ];
            host.run("setpriv", &veth.a, &[&user[..], arguments].concat())
        };
        let start = host
            .command(Path::new(INIT), &veth.a)
            .args(["start", "userrights=2"])
            .env("OMX_GROUP", "nogroup")
            .output()
            .unwrap();
        assert!(start.status.success(), "{start:?}");
        let (code, _, error) = as_user(env!("CARGO_BIN_EXE_omx_hostname"), &["-n", "mine:0"]);
        assert_eq!(code, 0, "{error}");
        assert!(host.well(INFO, &veth.a, &["-q"]).contains(" mine:0 (board #0"));
        for (program, arguments, what) in [
            (env!("CARGO_BIN_EXE_omx_counters"), &["-c"][..], "counters"),
            (
                env!("CARGO_BIN_EXE_omx_init_peers"),
                &["02:00:00:00:00:42", "other:0"],
                "the peer table",
            ),
            (env!("CARGO_BIN_EXE_omx_hostname"), &["-c"], "the peer table"),
        ] {
            let (code, _, error) = as_user(program, arguments);
            assert!(
                code == 255 && error.contains(&format!("only root may change {what}")),
                "{code} {error}"
            );
        }
        host.well(INIT, &veth.a, &["stop"]);
    });
}

/// `omxd` under the name of the reference's discovery daemon.
fn omxoed(host: &Host) -> String {
    let link = host.at("omxoed");
    std::os::unix::fs::symlink(Path::new(INIT).with_file_name("omxd"), &link).unwrap();
    link.to_str().unwrap().to_owned()
}

#[test]
fn omxoed_serves_every_board() {
    in_private_network("omxoed_serves_every_board", || {
        let (host, veth) = (Host::new(), Veth::new(1500));
        let both = format!("{},{}", veth.a, veth.b);
        let omxoed = omxoed(&host);
        host.well(&omxoed, &both, &[]);
        runs(&host, &both, &[&veth.a, &veth.b]);
        // Again: they are there.
        host.well(&omxoed, &both, &[]);
        host.well(INIT, &both, &["stop"]);
        runs(&host, &both, &[]);
        // With options it is what it is a link to.
        assert!(host.well(&omxoed, &both, &["--help"]).contains("--interface"));
        // No setting names one that is off.
        veth.set_up(&veth.a, false);
        host.well(&omxoed, "all", &[]);
        let status = host.well(INIT, "all", &["status"]);
        assert!(
            status.contains(&format!("{}: no omxd (it is down)\n", veth.a)),
            "{status}"
        );
        assert!(status.contains(&format!("{}: omxd is process ", veth.b)), "{status}");
        host.well(INIT, "all", &["kill"]);
    });
}

#[test]
fn omxoed_reads_the_settings_that_omx_init_and_systemd_read() {
    in_private_network("omxoed_reads_the_settings_that_omx_init_and_systemd_read", || {
        let (host, veth) = (Host::new(), Veth::new(9000));
        let settings = format!(
            "; this host\nOMX_IFACES=\"{}\"\nOMX_PRESET=wire\nOMX_QUEUE_US_MAX=\n",
            veth.a
        );
        fs::write(host.at("open-mx.conf"), settings).unwrap();
        // Nothing in the environment is nothing.
        host.well(&omxoed(&host), "", &[]);
        let status = host.well(INIT, "all", &["status"]);
        let line = |name: &str| {
            let start = format!("{name}: ");
            status.lines().find(|line| line.starts_with(&start)).unwrap().to_owned()
        };
        assert!(line(&veth.a).contains(", wire sizes on the wire, "), "{status}");
        assert!(line(&veth.b).ends_with("no omxd"), "{status}");
        // Its name is made of its number among the boards that the file names.
        let shown = host.well(INFO, "", &["-q"]);
        assert!(
            shown.contains(&format!(":0 (board #0 name {} addr ", veth.a)),
            "{shown}"
        );
        host.well(INIT, "", &["kill"]);
    });
}

#[test]
fn an_omxd_in_the_background_serves_when_its_command_ends_and_the_command_fails_if_it_does_not() {
    let test = "an_omxd_in_the_background_serves_when_its_command_ends_and_the_command_fails_if_it_does_not";
    in_private_network(test, || {
        let (host, veth) = (Host::new(), Veth::new(1500));
        let started = |interface: &str| {
            let mut command = host.command(&Path::new(INIT).with_file_name("omxd"), &veth.a);
            let output = command.args(["--interface", interface, "--background"]).output();
            let output = output.unwrap();
            (
                output.status.code(),
                String::from_utf8_lossy(&output.stdout).into_owned(),
            )
        };
        let (code, said) = started("nosuch0");
        assert!(
            code == Some(1) && said.starts_with("failed: there is no network interface named"),
            "{code:?} {said}"
        );
        // The second one finds the first one.
        assert_eq!(started(&veth.a), (Some(0), "ready\n".to_owned()));
        assert_eq!(started(&veth.a), (Some(0), "busy\n".to_owned()));
        host.well(INIT, &veth.a, &["kill"]);
    });
}

#[test]
fn an_empty_variable_of_omxd_counts_as_none() {
    in_private_network("an_empty_variable_of_omxd_counts_as_none", || {
        let (host, veth) = (Host::new(), Veth::new(1500));
        // As systemd hands `NAME=` of its file on.
        let mut command = host.command(&Path::new(INIT).with_file_name("omxd"), &veth.a);
        command.args(["--interface", &veth.a, "--background"]);
        for name in [
            "OMX_QUEUE_US_MAX",
            "OMX_CPU_LATENCY_US_MAX",
            "OMX_DATA_SOCKET",
            "OMX_DIRECT_TRANSMIT",
            "OMX_PRESET",
            "OMX_BOARD_NAME",
            "OMX_GROUP",
            "OMX_USER_RIGHTS",
            "OMX_PEERS_MAX",
            "OMX_ENDPOINTS_MAX",
        ] {
            command.env(name, "");
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, b"ready\n", "{output:?}");
        let shown = host.well(INFO, &veth.a, &["-q"]);
        assert!(
            shown.contains(&format!(":0 (board #0 name {} addr ", veth.a)),
            "{shown}"
        );
        host.well(INIT, &veth.a, &["kill"]);
        // So does one of the library, which finds the program where it is.
        let mut command = host.command(Path::new(INFO), &veth.a);
        let output = command.env("OMX_OMXD", "").arg("--json").output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && shown.contains("\"status\""), "{shown}");
        host.well(INIT, &veth.a, &["kill"]);
    });
}

#[test]
fn driver_parameters_limit_boards_endpoints_and_peers() {
    in_private_network("driver_parameters_limit_boards_endpoints_and_peers", || {
        let (host, veth) = (Host::new(), Veth::new(1500));
        let both = format!("{},{}", veth.a, veth.b);
        let (code, text, error) = host.run(INIT, &both, &["start", "ifaces=1", "endpoints=1", "peers=2"]);
        assert_eq!(code, 0, "{text}{error}");
        assert!(
            text.contains("Found 1 boards (32 max) supporting 1 endpoints each:"),
            "{text}"
        );
        assert!(error.contains(&format!("{} is left out: ifaces=1", veth.b)), "{error}");
        runs(&host, &both, &[&veth.a]);
        let mut user = host
            .command(Path::new(PERF), &both)
            .args(["--interface", &veth.a, "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(user.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let sender = |extra: &[&str]| {
            let arguments = [&["--interface", veth.a.as_str(), "-d", "absent:0"], extra].concat();
            host.run(PERF, &both, &arguments)
        };
        let (beyond, any) = (sender(&["-e", "1"]), sender(&[]));
        user.kill().unwrap();
        user.wait().unwrap();
        assert!(beyond.0 == 255 && beyond.2.contains("number is too high"), "{beyond:?}");
        assert!(
            any.0 == 255 && any.2.contains("all 1 endpoints of the interface are open"),
            "{any:?}"
        );
        let peers = env!("CARGO_BIN_EXE_omx_init_peers");
        host.well(peers, &veth.a, &["02:00:00:00:00:42", "first:0"]);
        let (code, _, error) = host.run(peers, &veth.a, &["02:00:00:00:00:43", "second:0"]);
        assert!(
            code == 255 && error.contains("the peer table, which is full or closed"),
            "{error}"
        );
        host.well(INIT, &both, &["kill"]);
        for wrong in ["ifaces=0", "ifaces=33", "ifaces=x", "endpoints=33", "peers=0"] {
            assert_eq!(host.run(INIT, &veth.a, &["start", wrong]).0, 255, "{wrong}");
        }
        runs(&host, &both, &[]);
    });
}
