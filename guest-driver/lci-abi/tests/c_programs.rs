//! C programs over `lci.h`, linked against the shared library, as nodes of a bridge in a network namespace of the test's own.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use weft_guest_driver_testkit::{bridged, end_within, functions_of_header, in_private_network_as_root, static_library};

const LIMIT: Duration = Duration::from_secs(60);

/// Links the library and compiles a program of `folder`; its path.
fn compile(out: &Path, source: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let linked = Command::new(here.join("link"))
        .arg(static_library("liblci_abi"))
        .arg(out)
        .status()
        .unwrap();
    assert!(linked.success(), "the library does not link");
    let program = out.join("program");
    let compiled = Command::new("gcc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(out.join("include"))
        .arg(here.join(source))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(out.join("lib"))
        .args(["-llci", "-lm"])
        .status()
        .expect("gcc");
    assert!(compiled.success(), "{source} does not compile");
    program
}

fn start(out: &Path, program: &Path, interface: &str, nodes: &str, arguments: &[&str], dead_ms: &str) -> Child {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("LD_LIBRARY_PATH", out.join("lib"))
        .env("LCI_IFACE", interface)
        .env("LCI_NODES", nodes)
        .env("LCI_TIMEOUT_S", "20")
        .env("LCI_DEAD_MS", dead_ms)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits for a program with a limit.
fn finish(mut child: Child) -> Output {
    end_within(&mut child, LIMIT);
    child.wait_with_output().unwrap()
}

/// Runs a program at the nodes that have these interfaces; all must succeed. Returns what node 0 prints.
fn run(source: &str, names: &[String], arguments: &[&str]) -> String {
    let out = tempfile::tempdir().unwrap();
    let program = compile(out.path(), source);
    let macs: Vec<_> = names.iter().map(|name| ethernet_address(name)).collect();
    let nodes = macs.join(",");
    let children: Vec<_> = names
        .iter()
        .map(|name| start(out.path(), &program, name, &nodes, arguments, "10000"))
        .collect();
    let outputs: Vec<_> = children.into_iter().map(finish).collect();
    let said = |output: &Output| format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let all: Vec<_> = outputs.iter().map(said).collect();
    assert!(outputs.iter().all(|output| output.status.success()), "{all:#?}");
    String::from_utf8_lossy(&outputs[0].stdout).into_owned()
}

/// The address of an interface of this namespace; the files of the system may show another one's.
fn ethernet_address(name: &str) -> String {
    let shown = Command::new("ip")
        .args(["-o", "link", "show", "dev", name])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let mut words = text.split_whitespace().skip_while(|word| *word != "link/ether");
    words.nth(1).expect("an Ethernet interface").to_owned()
}

#[test]
fn m_bv1_a_ring_of_four_c_programs_gets_everything_right() {
    in_private_network_as_root("m_bv1_a_ring_of_four_c_programs_gets_everything_right", || {
        assert_eq!(run("tests/c/ring.c", &bridged(4), &[]), "ring: all packets are right\n");
    });
}

#[test]
fn r_bv1_r_bv3_r_bv4_the_c_examples_are_right_at_four_nodes() {
    in_private_network_as_root("r_bv1_r_bv3_r_bv4_the_c_examples_are_right_at_four_nodes", || {
        let names = bridged(4);
        for (program, arguments, result) in [
            (
                "ping_pong",
                &["64", "200"][..],
                "ping-pong of 64 bytes: right, half a round trip takes ",
            ),
            (
                "broadcast",
                &["1000", "100"],
                "broadcast of 1000 bytes: right, answered by all after ",
            ),
            ("asp", &["60"], "shortest paths of 60 vertices: right, "),
            ("qr", &["30"], "QR of 30 columns: right, "),
            ("regions", &["100"], "16 regions: right, 400 additions in "),
        ] {
            let said = run(&format!("examples/{program}.c"), &names, arguments);
            assert!(said.starts_with(result), "{program}: {said}");
        }
    });
}

/// Starts an example at all nodes without an end in sight, kills the last one when they run, and returns what the others say.
fn killed(example: &str, arguments: &[&str], names: &[String]) -> Vec<Output> {
    let out = tempfile::tempdir().unwrap();
    let program = compile(out.path(), &format!("examples/{example}.c"));
    let macs: Vec<_> = names.iter().map(|name| ethernet_address(name)).collect();
    let nodes = macs.join(",");
    let sent = |name: &str| -> u64 {
        let shown = Command::new("ip")
            .args(["-s", "-j", "link", "show", "dev", name])
            .output()
            .unwrap();
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        shown[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
    };
    let before = sent(&names[0]);
    let mut children: Vec<_> = names
        .iter()
        .map(|name| start(out.path(), &program, name, &nodes, arguments, "2000"))
        .collect();
    let begun = Instant::now();
    while sent(&names[0]) < before + 500 {
        assert!(begun.elapsed() < LIMIT, "{example} does not run");
        thread::sleep(Duration::from_millis(5));
    }
    let mut last = children.pop().unwrap();
    last.kill().unwrap();
    last.wait().unwrap();
    children.into_iter().map(finish).collect()
}

#[test]
fn the_other_nodes_of_a_c_example_end_and_say_who_is_gone_when_a_member_is_killed() {
    let name = "the_other_nodes_of_a_c_example_end_and_say_who_is_gone_when_a_member_is_killed";
    in_private_network_as_root(name, || {
        let names = bridged(3);
        for (example, arguments) in [("broadcast", &["100", "100000000"][..]), ("regions", &["100000000"])] {
            for (node, output) in killed(example, arguments, &names).into_iter().enumerate() {
                let said = String::from_utf8_lossy(&output.stderr);
                assert_eq!(output.status.code(), Some(1), "{example}, node {node}: {said}");
                assert!(said.contains("node 2 is gone"), "{example}, node {node}: {said}");
            }
        }
    });
}

#[test]
fn the_manual_page_explains_every_call_of_the_header() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = fs::read_to_string(here.join("include/lci.h")).unwrap();
    let page = fs::read_to_string(here.join("lci.3")).unwrap().replace("\\-", "-");
    let calls = functions_of_header(&header);
    for call in &calls {
        // `lci_init` is this one with the program's upcall.
        let call = if *call == "lci_init_upcall" { "lci_init" } else { call };
        assert!(page.contains(&format!("{call}(")), "{call}");
    }
    assert!(calls.len() >= 20, "{calls:?}");
}
