//! Tests of ESP between guests: Debian's iperf3 runs over it as it is, as root and as an ordinary user, and no TCP segment crosses the
//! cable.

use std::{path::Path, process::Command};

use rustix::process::Signal;

use crate::support::{Lines, World, eventually, signal};

/// Counts the frames of a capture that a display filter of tshark lets through.
pub fn frames(file: &Path, filter: &str) -> usize {
    let output = Command::new("tshark")
        .args([
            "-r",
            file.to_str().unwrap(),
            "-n",
            "-Y",
            filter,
            "-T",
            "fields",
            "-e",
            "frame.number",
        ])
        .output()
        .expect("tshark is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout.iter().filter(|&&byte| byte == b'\n').count()
}

/// Captures what crosses the cable of n1 while `body` runs.
pub fn captured(world: &World, name: &str, body: impl FnOnce()) -> std::path::PathBuf {
    let capture = world.spawn(&["capture", "--write", name, "n1"]);
    let file = world.dir.path().join(name);
    eventually("the file has begun", || {
        std::fs::metadata(&file).is_ok_and(|found| found.len() > 0)
    });
    body();
    signal(capture.id() as i32, Signal::INT);
    let captured = capture.wait_with_output().unwrap();
    assert!(captured.status.success(), "{captured:?}");
    file
}

/// Sends 1 MiB from n1 to n2 with iperf3 under `shell`, the words that run a command line; `by` stands before the program there.
fn iperf3(world: &World, shell: &[&str], by: &str) {
    let (serve, send) = (
        format!("{by} iperf3 -s -1 --forceflush"),
        format!("{by} iperf3 -c n2 -n 1M"),
    );
    let at = |node, command| [&["exec", node, "--"], shell, &[command]].concat();
    let mut server = Lines::of(world.spawn(&at("n2", &serve)));
    let says = |lines: &Lines, word: &str| lines.so_far().iter().any(|(_, line)| line.contains(word));
    eventually("a server", || says(&server, "listening"));
    let said = world.ok(&at("n1", &send));
    assert!(said.contains("iperf Done."), "{said}");
    server.wait();
    assert!(says(&server, "receiver"), "{:?}", server.so_far());
}

#[test]
fn m_hr2_iperf3_runs_between_guests_over_esp_and_no_tcp_segment_crosses_the_cable() {
    let world = World::new(None);
    world.ok(&["init"]);
    world.ok(&["up", "--detach", "--accel", "tcg"]);
    let root = ["sh", "-c"];
    // As the first page says it: programs of root start the authority themselves.
    let file = captured(&world, "root.pcapng", || iperf3(&world, &root, "esp-run"));
    assert_eq!(frames(&file, "tcp"), 0);
    // 1 MiB are over 700 frames of 1500 bytes.
    assert!(frames(&file, "eth.type == 0x4553") > 700);

    // An ordinary user is served by an authority that root has set up.
    for node in ["n1", "n2"] {
        world.ok(&["exec", node, "--", "omxd", "--background", "eth0"]);
    }
    let file = captured(&world, "user.pcapng", || {
        iperf3(&world, &["su", "user", "-c"], "esp-run")
    });
    assert_eq!(frames(&file, "tcp"), 0);
    assert!(frames(&file, "eth.type == 0x4553") > 700);

    // The same programs without esp-run are a check of the check.
    let file = captured(&world, "tcp.pcapng", || iperf3(&world, &root, ""));
    assert!(frames(&file, "tcp") > 100);
    assert_eq!(frames(&file, "eth.type == 0x4553"), 0);
}
