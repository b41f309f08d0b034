//! Tests of commands and files in guests.

use std::{
    io::{Read, Write},
    os::unix::process::ExitStatusExt,
    process::Child,
};

use rustix::process::Signal;

use crate::support::{PAIR, World, eventually, signal};

#[test]
fn commands_in_guests_behave_as_if_they_were_here() {
    let world = World::new(None);
    world.up(PAIR);

    // This part checks names, streams and exit statuses.
    world.ok(&["exec", "n1", "--", "ping", "-c", "2", "-i", "0.1", "n2"]);
    let output = world.run(&["exec", "n1", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(
        (output.stdout.as_slice(), output.stderr.as_slice()),
        (&b"out\n"[..], &b"err\n"[..])
    );
    assert_eq!(
        world.run(&["exec", "n1", "--", "no-such-program"]).status.code(),
        Some(127)
    );
    assert_eq!(world.run(&["exec", "n1", "--", "/etc/passwd"]).status.code(), Some(126));
    assert_eq!(
        world.run(&["exec", "n1", "--", "sh", "-c", "kill -9 $$"]).status.code(),
        Some(128 + 9)
    );
    let output = world.run(&["exec", "n3", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "weft: there is no node n3 in the lab pair (its nodes: n1, n2)\n");

    // This part checks pipes, in both directions, and one that is closed early.
    let big: Vec<u8> = (0..2_000_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let output = world.with_input(&["exec", "n1", "--", "cat"], &big);
    assert!(
        output.status.success() && output.stdout == big,
        "two million bytes there and back"
    );
    let mut child = world.spawn(&["exec", "n1", "--", "cat", "/dev/zero"]);
    let mut some = [1; 1000];
    child.stdout.as_mut().unwrap().read_exact(&mut some).unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(141), "as after SIGPIPE");

    // Ctrl-C goes to the command.
    let mut child = world.spawn(&[
        "exec",
        "n2",
        "--",
        "sh",
        "-c",
        "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.1; done",
    ]);
    let mut line = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    signal(child.id() as i32, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(5), &b"caught\n"[..])
    );

    // A capture whose reader is gone ends, even though no frame is sent.
    let mut capture = world.spawn(&["capture", "n1"]);
    let mut head = [0; 100];
    if capture.stdout.as_mut().unwrap().read_exact(&mut head).is_err() {
        panic!("{:?}", capture.wait_with_output());
    }
    drop(capture.stdout.take());
    assert_eq!(capture.wait().unwrap().code(), Some(141), "as after SIGPIPE");

    // This part copies files in and out.
    world.file("there", "some text\n");
    world.ok(&["cp", "there", "n2:/tmp/"]);
    assert_eq!(world.guest("n2", "cat /tmp/there"), "some text\n");
    world.ok(&["cp", "n2:/tmp/there", "back"]);
    assert_eq!(
        std::fs::read_to_string(world.dir.path().join("back")).unwrap(),
        "some text\n"
    );
    let output = world.run(&["cp", "n1:/a", "n2:/b"]);
    assert_eq!(output.status.code(), Some(2));

    world.ok(&["cp", "n2:/proc/interrupts", "back"]);
    let copied = std::fs::read_to_string(world.dir.path().join("back")).unwrap();
    assert!(copied.contains("CPU0") && copied.lines().count() > 3, "{copied}");

    // A full guest reports that and keeps running, whatever else is in its memory.
    std::fs::write(world.dir.path().join("big"), vec![1; 40 << 20]).unwrap();
    let said = String::from_utf8(world.run(&["cp", "big", "n2:/tmp"]).stderr).unwrap();
    assert_eq!(said, "weft: n2: /tmp/big: No space left on device (os error 28)\n");
    let fill = "for place in /tmp /run /dev/shm; do dd if=/dev/zero of=$place/full bs=64k 2>&1; done; rm /tmp/full /run/full /dev/shm/full";
    assert_eq!(world.guest("n2", fill).matches("No space left").count(), 3);

    // An error is printed once, and names the file.
    let why = |args: &[&str]| String::from_utf8(world.run(args).stderr).unwrap();
    assert_eq!(
        why(&["cp", "nofile", "n1:/tmp"]),
        "weft: nofile: No such file or directory (os error 2)\n"
    );
    let devices = "is a device: only files and directories are copied\n";
    assert_eq!(
        why(&["cp", "/dev/zero", "n1:/tmp/z"]),
        format!("weft: /dev/zero {devices}")
    );
    assert_eq!(
        why(&["cp", "n1:/dev/zero", "z"]),
        format!("weft: n1: /dev/zero {devices}")
    );
    assert_eq!(
        why(&["capture", "-w", "/dev/full"]),
        "weft: cannot write /dev/full: No space left on device (os error 28)\n"
    );
    assert_eq!(
        why(&["capture", "-w", "no/folder"]),
        "weft: cannot write no/folder: No such file or directory (os error 2)\n"
    );

    several_nodes_at_once(&world);
    a_terminal_is_one(&world);
    everything_that_is_shown_is_shown_as_json(&world);

    without_a_terminal_input_ends_a_shell(&world);

    // A command that waits for a silent guest can be ended: immediately by a second signal, and soon by one.
    let exec = || {
        let mut child = world.spawn(&["exec", "-n", "n1", "--", "sh", "-c", "echo ready; sleep 100"]);
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
        child
    };
    let (patient, impatient) = (exec(), exec());
    let qemu = world.pid("pid");
    signal(qemu, Signal::STOP);
    let copy = world.spawn(&["cp", "big", "n1:/tmp"]);
    for child in [&patient, &impatient] {
        signal(child.id() as i32, Signal::INT);
    }
    signal(impatient.id() as i32, Signal::TERM);
    let ended = |child: Child, codes: &[i32]| {
        let output = child.wait_with_output().unwrap();
        let code = output.status.code().unwrap();
        assert!(codes.contains(&code), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    // Of two signals that are pending together, the kernel runs either handler first: the second one may be either.
    let said = ended(impatient, &[128 + 2, 128 + 15]);
    assert_eq!(said, "weft: the command in n1 was told to end twice, and is left\n");
    let said = ended(patient, &[128 + 2]);
    assert_eq!(said, "weft: n1 did not answer within 2 s, and its command is left\n");
    signal(copy.id() as i32, Signal::INT);
    assert_eq!(ended(copy, &[128 + 2]), "");
    signal(qemu, Signal::CONT);
    eventually("what was left is ended", || {
        !world.guest("n1", "ps").contains("sleep 100")
    });
}

/// Checks a command in all nodes or some of them, in parallel.
fn several_nodes_at_once(world: &World) {
    let sorted = |output: Vec<u8>| {
        let text = String::from_utf8(output).unwrap();
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    for nodes in ["all", "n*", "n[1-2]", "n1,n2"] {
        let output = world.run(&["exec", nodes, "--", "sh", "-c", "hostname; hostname >&2"]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(sorted(output.stdout), ["n1  n1", "n2  n2"]);
        assert_eq!(sorted(output.stderr), ["n1  n1", "n2  n2"]);
    }
    assert_eq!(world.ok(&["exec", "n[2]", "--", "hostname"]), "n2  n2\n");
    assert_eq!(
        world.ok(&["exec", "n1", "hostname"]),
        "n1\n",
        "without dashes before it"
    );
    // The exit status is that of the first node in the order of the lab whose status is not 0.
    let script = "case $(hostname) in n1) sleep 0.5; exit 3;; n2) exit 4;; esac";
    assert_eq!(
        world.run(&["exec", "all", "--", "sh", "-c", script]).status.code(),
        Some(3)
    );
    assert_eq!(
        world
            .run(&["exec", "all", "--", "sh", "-c", "test $(hostname) = n1"])
            .status
            .code(),
        Some(1)
    );
    let output = world.run(&["exec", "n[3-9]", "--", "true"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said,
        "weft: no node of the lab pair is meant by n[3-9] (its nodes: n1, n2)\n"
    );
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(
        world.run(&["exec", "-t", "all", "--", "sh"]).status.code(),
        Some(2),
        "a terminal is for one"
    );
    // Ctrl-C goes to all of them.
    let mut child = world.spawn(&[
        "exec",
        "all",
        "--",
        "sh",
        "-c",
        "trap 'exit 5' INT; echo ready; while :; do sleep 0.1; done",
    ]);
    let mut ready = [0; 2 * "n1  ready\n".len()];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    signal(child.id() as i32, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

/// Checks `exec -it` as a user at a terminal uses it: a pseudo-terminal plays that part.
fn a_terminal_is_one(world: &World) {
    use rustix::{
        pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
        termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
    };
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let size = |rows, columns| Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&ours, size(33, 101)).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = std::fs::File::options()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    let mut child = world
        .command(&["exec", "-it", "n1", "sh"])
        .stdin(theirs.try_clone().unwrap())
        .stdout(theirs.try_clone().unwrap())
        .stderr(theirs.try_clone().unwrap())
        .spawn()
        .unwrap();
    let mut ours = std::fs::File::from(ours);
    let mut said = String::new();
    // Waits until the terminal shows `what`.
    let mut until = |what: &str, ours: &mut std::fs::File| {
        let mut piece = [0; 4096];
        while !said.contains(what) {
            let length = ours.read(&mut piece).unwrap();
            said += &String::from_utf8_lossy(&piece[..length]);
        }
        std::mem::take(&mut said)
    };
    // The request differs from the answer, so that the echo is no answer.
    ours.write_all(b"stty size; tty; echo a$((40+2))b\n").unwrap();
    let shown = until("a42b", &mut ours);
    assert!(shown.contains("33 101") && shown.contains("/dev/pts/"), "{shown}");
    assert!(
        !tcgetattr(&theirs).unwrap().local_modes.contains(LocalModes::ECHO),
        "raw while it runs"
    );
    // Ctrl-C ends what runs in the guest, and not weft.
    let waiting = b"sh -c 'trap \"echo x$((40+3))y; exit\" INT; echo r$((40+1))s; while :; do sleep 0.1; done'\n";
    ours.write_all(waiting).unwrap();
    until("r41s", &mut ours);
    ours.write_all(b"\x03").unwrap();
    until("x43y", &mut ours);
    // The guest is told of a new size.
    tcsetwinsize(&ours, size(44, 120)).unwrap();
    signal(child.id() as i32, Signal::WINCH);
    ours.write_all(b"while [ \"$(stty size)\" != '44 120' ]; do sleep 0.1; done; exit 7\n")
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert!(
        tcgetattr(&theirs).unwrap().local_modes.contains(LocalModes::ECHO),
        "as it was, afterwards"
    );
}

/// Checks that a shell without a terminal ends with its input, and on SIGTERM.
fn without_a_terminal_input_ends_a_shell(world: &World) {
    for args in [&["console", "n1"][..], &["exec", "-it", "n1", "sh"]] {
        let output = world.with_input(args, b"tty; exit 4\n");
        assert_eq!(output.status.code(), Some(4), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "not a tty\n", "{args:?}");
        assert_eq!(world.run(args).status.code(), Some(0), "{args:?}");
    }
    for args in [
        &["console", "n1"][..],
        &[
            "exec",
            "n1",
            "--",
            "sh",
            "-c",
            "trap '' TERM; echo ready; while :; do sleep 1; done",
        ],
    ] {
        let mut child = world.spawn(args);
        if args[0] == "exec" {
            child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
        }
        signal(child.id() as i32, Signal::TERM);
        // It may be told before it listens to signals.
        let status = child.wait().unwrap();
        let code = status.code().or(status.signal().map(|signal| 128 + signal));
        assert_eq!(code, Some(143), "{args:?}");
    }
}

/// Checks that every verb with `--json` prints some.
fn everything_that_is_shown_is_shown_as_json(world: &World) {
    for example in testbed::cli::json_examples() {
        // This lab has one switch and no MPI; comparisons start labs of their own and take minutes, and have tests.
        if ["trunk set", "mpirun", "bench"]
            .iter()
            .any(|verb| example.starts_with(verb))
        {
            continue;
        }
        let words: Vec<_> = example.split(' ').collect();
        let shown = world.json(&words);
        assert!(shown.is_array() || shown.is_object(), "{example}: {shown}");
    }
    // The examples above changed these settings.
    world.ok(&["link", "set", "n1", "--rate", "unlimited", "--delay", "0"]);
    let links = world.json(&["link", "ls"]);
    assert_eq!(links.as_array().unwrap().len(), 4, "{links}");
    assert_eq!(world.ok(&["trunk", "ls"]).lines().count(), 1, "headings alone");
    let pings = world.json(&["pingall"]);
    let paths: Vec<_> = pings
        .as_array()
        .unwrap()
        .iter()
        .map(|ping| (ping["from"].as_str().unwrap(), ping["to"].as_str().unwrap()))
        .collect();
    assert!(
        paths.contains(&("n1", "n2")) && paths.contains(&("n2", "n1")),
        "{paths:?}"
    );
    assert!(
        pings
            .as_array()
            .unwrap()
            .iter()
            .all(|ping| ping["received"] == ping["sent"]),
        "{pings}"
    );
    // This node does not answer.
    world.ok(&["link", "set", "n2", "down"]);
    let output = world.run(&["pingall", "--count", "1", "--timeout", "1s"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.code() == Some(1) && shown.contains("no answer"),
        "{shown}"
    );
    world.ok(&["link", "set", "n2", "up"]);
    // This is ssh's connection to a guest, with another server than ssh's.
    let config = world.ok(&["inventory", "--format", "ssh"]);
    let proxy = config
        .lines()
        .find_map(|line| line.trim().strip_prefix("ProxyCommand "))
        .unwrap();
    let listen = "nc -l -p 22 -e sh -c 'read line; echo heard $line' </dev/null >/dev/null 2>&1 & while ! netstat -ltn | grep -q ':22 '; do sleep 0.1; done";
    world.guest("n1", listen);
    let mut ssh = std::process::Command::new("sh");
    ssh.args(["-c", &format!("echo hello | {proxy}")]);
    let output = ssh.env("XDG_RUNTIME_DIR", world.dir.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "heard hello\n", "{output:?}");
    // The node is switched off and on again.
    world.ok(&["stop", "n2"]);
    assert_eq!(world.json(&["ps"])[1]["phase"], "stopped");
    world.ok(&["start", "n2"]);
    world.ok(&["wait"]);
    // This part completes names of the lab in a shell.
    let complete = |index: &str, words: &[&str]| {
        let mut asked = world.command(&[&["--"], words].concat());
        asked
            .env("WEFT_COMPLETE", "bash")
            .env("_CLAP_COMPLETE_INDEX", index)
            .env("_CLAP_IFS", " ");
        String::from_utf8(asked.output().unwrap().stdout).unwrap()
    };
    assert_eq!(complete("2", &["weft", "exec", "n"]), "n1 n2");
    assert_eq!(complete("3", &["weft", "nic", "stats", "n1."]), "n1.eth0");
    assert_eq!(complete("2", &["weft", "--lab", "p"]), "pair");
}
