//! The provider as libfabric loads it: C programs written against libfabric's headers, and Debian's `fi_info`, `fi_pingpong` and Open
//! MPI, each over a cable between two interfaces and inside the host. Needs root, `libfabric-dev`, `libfabric-bin` and `openmpi-bin`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use weft_guest_driver_testkit::Veth;

/// The plug-in under the name that libfabric looks for, and compiled programs beside it.
struct Kit(tempfile::TempDir);

impl Kit {
    fn new() -> Self {
        let kit = Self(tempfile::tempdir().unwrap());
        fs::copy(beside_tests("libmx_fi.so"), kit.at("libmx-fi.so")).unwrap();
        kit
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles a program of `tests/c`.
    fn compile(&self, name: &str) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
        let program = self.at(name);
        let compiled = Command::new("gcc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
            .args([&program, &source])
            .args(["-lfabric", "-lpthread"])
            .status();
        assert!(
            compiled.is_ok_and(|status| status.success()),
            "{name}.c does not compile; it needs gcc and libfabric-dev"
        );
        program
    }

    /// A program that finds the provider, and an authority for each of its interfaces.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env("FI_PROVIDER_PATH", self.0.path())
            .env("OMX_RUN_DIR", self.0.path())
            .env("OMX_OMXD", beside_tests("omxd"))
            .stdin(Stdio::null());
        command
    }
}

/// A file that cargo made for the tests of this profile.
fn beside_tests(name: &str) -> PathBuf {
    let own = env::current_exe().unwrap();
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join(name));
    let newest = found
        .filter(|path| path.is_file())
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.unwrap_or_else(|| panic!("these tests need {name}: `cargo build -p weft-omxd -p weft-ofi` makes it"))
}

/// The program succeeds; returns what it printed.
#[track_caller]
fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    text
}

fn with_cable(test: &str, mtu: usize, body: impl FnOnce(&Kit, &Veth)) {
    weft_guest_driver_testkit::with_cable(test, mtu, |veth| body(&Kit::new(), veth));
}

#[test]
fn m_om9_what_mpi_needs_holds_over_the_wire_inside_the_host_and_under_loss() {
    with_cable(
        "m_om9_what_mpi_needs_holds_over_the_wire_inside_the_host_and_under_loss",
        1500,
        |kit, veth| {
            let cases = kit.compile("cases");
            succeeds(kit.command(&cases).args([&veth.a, &veth.b]));
            succeeds(kit.command(&cases).args([&veth.a, &veth.a]));
            let mut lossy = kit.command(&cases);
            succeeds(lossy.env("OMX_PACKET_LOSS", "packet=50").args([&veth.a, &veth.b]));
        },
    );
}

#[test]
fn m_om9_memory_of_others_is_read_and_written_over_the_wire_inside_the_host_and_under_loss() {
    with_cable(
        "m_om9_memory_of_others_is_read_and_written_over_the_wire_inside_the_host_and_under_loss",
        1500,
        |kit, veth| {
            let remote = kit.compile("remote");
            succeeds(kit.command(&remote).args([&veth.a, &veth.b]));
            succeeds(kit.command(&remote).args([&veth.a, &veth.a]));
            let mut lossy = kit.command(&remote);
            succeeds(lossy.env("OMX_PACKET_LOSS", "packet=50").args([&veth.a, &veth.b]));
        },
    );
}

#[test]
fn m_om9_wishes_are_fulfilled_or_refused_as_libfabric_expects() {
    with_cable(
        "m_om9_wishes_are_fulfilled_or_refused_as_libfabric_expects",
        1500,
        |kit, veth| {
            let hints = kit.compile("hints");
            succeeds(kit.command(hints).args([&veth.a, &veth.b]));
        },
    );
}

/// Runs the case of `wakeups.c` with this name.
fn wakeups(kit: &Kit, veth: &Veth, case: &str) {
    succeeds(kit.command(kit.compile("wakeups")).args([veth.a.as_str(), case]));
}

#[test]
fn m_om9_a_thread_that_waits_misses_no_signal_and_no_entry_of_another_thread() {
    with_cable(
        "m_om9_a_thread_that_waits_misses_no_signal_and_no_entry_of_another_thread",
        1500,
        |kit, veth| wakeups(kit, veth, "missed"),
    );
}

#[test]
fn m_om9_a_thread_that_reads_an_empty_queue_where_others_want_the_processor_sleeps() {
    with_cable(
        "m_om9_a_thread_that_reads_an_empty_queue_where_others_want_the_processor_sleeps",
        1500,
        |kit, veth| wakeups(kit, veth, "crowd"),
    );
}

#[test]
fn m_om9_peers_that_are_gone_are_told_by_an_error_and_a_sentence() {
    with_cable(
        "m_om9_peers_that_are_gone_are_told_by_an_error_and_a_sentence",
        1500,
        |kit, veth| {
            let unreachable = kit.compile("unreachable");
            let absent = succeeds(kit.command(&unreachable).args([&veth.a, "absent"]));
            assert!(absent.contains("look for the first process that ended"), "{absent}");
            assert!(
                absent.contains("the process that had this address has ended"),
                "{absent}"
            );
            succeeds(kit.command(&unreachable).args([&veth.a, "gone"]));
            succeeds(
                kit.command(&unreachable)
                    .args([&veth.a, "many"])
                    .env("OMX_RESENDS_MAX", "2"),
            );
            // No host has the address. The user is told long before the resends, half a second apart, are used up.
            let silent = succeeds(
                kit.command(&unreachable)
                    .args([&veth.a, "silent"])
                    .env("OMX_RESENDS_MAX", "24"),
            );
            assert_eq!(silent.matches("has not answered for 10 s").count(), 1, "{silent}");
            assert!(silent.contains("the remote endpoint does not answer"), "{silent}");
        },
    );
}

#[test]
fn m_om9_a_process_of_this_host_that_is_busy_for_long_is_no_failure() {
    with_cable(
        "m_om9_a_process_of_this_host_that_is_busy_for_long_is_no_failure",
        1500,
        |kit, veth| {
            let unreachable = kit.compile("unreachable");
            let said = succeeds(kit.command(&unreachable).args([&veth.a, "stopped"]));
            assert_eq!(said, "", "nothing failed");
            let mut asked = kit.command(&unreachable);
            let said = succeeds(asked.args([&veth.a, "stopped"]).env("FI_LOG_LEVEL", "warn"));
            let sentence = "has not answered for 10 s; its host is there: the process is busy";
            assert_eq!(said.matches(sentence).count(), 1, "{said}");
        },
    );
}

#[test]
fn m_om9_fi_info_shows_one_entry_and_no_utility_provider_over_it() {
    with_cable(
        "m_om9_fi_info_shows_one_entry_and_no_utility_provider_over_it",
        1500,
        |kit, veth| {
            let list = succeeds(kit.command("fi_info").env("OMX_IFACES", &veth.b));
            let ours: Vec<_> = list.lines().filter(|line| line.starts_with("provider: mx")).collect();
            assert_eq!(ours, ["provider: mx"], "{list}");
            let one = succeeds(
                kit.command("fi_info")
                    .args(["-p", "mx", "-v"])
                    .env("OMX_IFACES", &veth.b),
            );
            for line in [
                "prov_name: mx".to_owned(),
                format!("name: {}", veth.b),
                "type: FI_EP_RDM".to_owned(),
                "msg_order: [ FI_ORDER_SAS, FI_ORDER_ATOMIC_RAR, FI_ORDER_ATOMIC_RAW, FI_ORDER_ATOMIC_WAR, FI_ORDER_ATOMIC_WAW ]"
                    .to_owned(),
            ] {
                assert!(one.contains(&line), "{line}\n{one}");
            }
            // Which interface, and why there is none, is said where the user asks for it.
            let mut chosen = kit.command("fi_info");
            let chosen = succeeds(
                chosen
                    .args(["-p", "mx"])
                    .env("OMX_IFACES", &veth.b)
                    .env("FI_LOG_LEVEL", "info"),
            );
            assert!(chosen.contains(&format!("mx: provides {}", veth.b)), "{chosen}");
            let refused = |arguments: &[&str], variable: (&str, &str)| {
                let mut info = kit.command("fi_info");
                let output = info.args(arguments).env(variable.0, variable.1).output().unwrap();
                assert!(!output.status.success());
                String::from_utf8_lossy(&output.stderr).into_owned()
            };
            // Without a log level, for what the user named himself.
            let none = refused(&["-p", "mx"], ("OMX_IFACES", "nosuch0"));
            let sentence = "mx: nothing to provide: there is no board nosuch0";
            assert_eq!(none.matches(sentence).count(), 1, "{none}");
            let wish = refused(&["-c", "FI_COLLECTIVE"], ("FI_PROVIDER", "mx"));
            assert_eq!(
                wish.matches("mx: nothing to provide: capabilities").count(),
                1,
                "{wish}"
            );
            let others = refused(&["-c", "FI_COLLECTIVE", "-p", "mx"], ("OMX_IFACES", &veth.a));
            assert!(!others.contains("nothing to provide"), "{others}");
        },
    );
}

#[test]
fn m_om9_a_hosts_name_is_its_first_board_and_wrong_names_are_told_from_level_warn_on() {
    with_cable(
        "m_om9_a_hosts_name_is_its_first_board_and_wrong_names_are_told_from_level_warn_on",
        1500,
        |kit, veth| {
            let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
            let host = host.trim();
            let info = |arguments: &[&str], level: &str| {
                let mut info = kit.command("fi_info");
                info.args(["-p", "mx"]).args(arguments);
                info.env("OMX_IFACES", &veth.a)
                    .env("FI_LOG_LEVEL", level)
                    .env("FI_PROVIDER", "mx");
                let output = info.output().unwrap();
                (
                    output.status.success(),
                    String::from_utf8_lossy(&output.stderr).into_owned(),
                )
            };
            for name in [host.to_owned(), format!("{host}:0"), "02:00:00:00:00:99".to_owned()] {
                let (found, said) = info(&["-n", &name, "-P", "31"], "warn");
                assert!(found && !said.contains(":mx: "), "{name}: {said}");
            }
            let wrong: [(&[&str], &str); 4] = [
                (&["-n", "nosuch"], "nosuch: no peer in the table has this name"),
                (
                    &["-n", host, "-P", "32"],
                    "32 is no number of an endpoint: they are 0 to 31",
                ),
                (
                    &["-n", host, "-P", "x"],
                    "x is no number of an endpoint: they are 0 to 31",
                ),
                (&["-d", "nosuch0"], "there is no board nosuch0"),
            ];
            for (arguments, sentence) in wrong {
                let (found, said) = info(arguments, "warn");
                assert!(!found && said.contains(sentence), "{arguments:?}: {said}");
                let (found, said) = info(arguments, "");
                assert!(!found && !said.contains("nothing to provide"), "{arguments:?}: {said}");
            }
        },
    );
}

#[test]
fn m_om9_an_interface_whose_mtu_is_too_small_is_named_with_both_numbers() {
    with_cable(
        "m_om9_an_interface_whose_mtu_is_too_small_is_named_with_both_numbers",
        1400,
        |kit, veth| {
            let output = kit
                .command("fi_info")
                .args(["-p", "mx"])
                .env("FI_PROVIDER", "mx")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success());
            for name in [&veth.a, &veth.b] {
                assert!(
                    said.contains(&format!("{name}: its MTU of 1400 is below 1486")),
                    "{said}"
                );
            }
        },
    );
}

#[test]
fn m_om9_fi_pingpong_carries_every_size_with_checked_bytes() {
    with_cable(
        "m_om9_fi_pingpong_carries_every_size_with_checked_bytes",
        9000,
        |kit, veth| {
            for kind in ["tagged", "msg"] {
                let arguments = ["-p", "mx", "-e", "rdm", "-m", kind, "-S", "all", "-c"];
                let mut server = kit.command("fi_pingpong");
                server.args(arguments).env("OMX_IFACES", &veth.a).stdout(Stdio::piped());
                let mut server = server.spawn().expect("fi_pingpong of libfabric-bin");
                // Its socket is there before the client asks.
                while Command::new("sh")
                    .args(["-c", "ss -ltn | grep -q :47592"])
                    .status()
                    .is_ok_and(|status| !status.success())
                {
                    assert!(server.try_wait().unwrap().is_none(), "the server ended");
                }
                let mut client = kit.command("fi_pingpong");
                succeeds(client.args(arguments).arg("127.0.0.1").env("OMX_IFACES", &veth.b));
                assert!(server.wait().unwrap().success());
            }
        },
    );
}

#[test]
fn m_om9_open_mpi_of_debian_runs_unmodified_over_the_wire_and_inside_the_host() {
    with_cable(
        "m_om9_open_mpi_of_debian_runs_unmodified_over_the_wire_and_inside_the_host",
        1500,
        |kit, veth| {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/mpi-workloads");
            succeeds(Command::new(script).arg("mpicc").arg(kit.0.path()));
            let program = kit.at("conformance");
            let statistics = kit.at("statistics");
            for interfaces in [[&veth.a, &veth.b], [&veth.a, &veth.a]] {
                let mut mpirun = kit.command("mpirun");
                mpirun
                    .args([
                        "--allow-run-as-root",
                        "--oversubscribe",
                        "--mca",
                        "pml",
                        "cm",
                        "--mca",
                        "mtl",
                        "ofi",
                    ])
                    .args(["--mca", "mtl_ofi_provider_include", "mx", "--mca", "osc", "pt2pt,sm"])
                    .args(["--mca", "mpi_yield_when_idle", "1"])
                    .env("FI_MX_STATISTICS", &statistics);
                for (at, interface) in interfaces.iter().enumerate() {
                    if at > 0 {
                        mpirun.arg(":");
                    }
                    mpirun
                        .args(["-np", "1", "-x", &format!("OMX_IFACES={interface}")])
                        .arg(&program);
                }
                let said = succeeds(&mut mpirun);
                assert!(!said.contains("FAIL"), "{said}");
                let lines = fs::read_to_string(&statistics).unwrap();
                fs::remove_file(&statistics).unwrap();
                assert_eq!(lines.lines().count(), 2, "one line of each rank\n{lines}");
                assert!(!lines.contains("sent_messages=0 "), "{lines}");
            }
        },
    );
}

#[test]
fn m_om9_open_mpi_reaches_windows_by_reads_writes_and_atomic_operations() {
    with_cable(
        "m_om9_open_mpi_reaches_windows_by_reads_writes_and_atomic_operations",
        1500,
        |kit, veth| {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/mpi-workloads");
            succeeds(Command::new(script).arg("mpicc").arg(kit.0.path()));
            let mut mpirun = kit.command("mpirun");
            mpirun.args(["--allow-run-as-root", "--oversubscribe"]);
            for (name, value) in [
                ("pml", "cm"),
                ("mtl", "ofi"),
                ("mtl_ofi_provider_include", "mx"),
                ("osc", "rdma"),
                ("btl", "self,ofi"),
                ("btl_ofi_provider_include", "mx"),
                ("opal_common_ofi_provider_include", "mx"),
                ("mpi_yield_when_idle", "1"),
            ] {
                mpirun.args(["--mca", name, value]);
            }
            for (at, interface) in [&veth.a, &veth.b].iter().enumerate() {
                if at > 0 {
                    mpirun.arg(":");
                }
                mpirun
                    .args(["-np", "1", "-x", &format!("OMX_IFACES={interface}")])
                    .arg(kit.at("conformance"))
                    .args(["--only", "put_fence,get_large,put_get_lock_large,accumulate_lock,fetch_and_op,compare_and_swap,lock_all,pscw"]);
            }
            let said = succeeds(&mut mpirun);
            assert!(said.contains("8 passed, 0 failed, 0 skipped"), "{said}");
        },
    );
}
