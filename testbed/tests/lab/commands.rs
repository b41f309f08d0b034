//! Commands and files in guests.

use std::{io::Read, process::Child};

use rustix::process::Signal;

use crate::support::{PAIR, World, eventually, signal};

#[test]
fn commands_in_guests_behave_as_if_they_were_here() {
    let world = World::new(None);
    world.up(PAIR);

    // Names, streams and exit statuses.
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

    // Pipes, in both directions at once, and one that is closed early.
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

    // A capture whose reader is gone ends, though nobody sends a frame.
    let mut capture = world.spawn(&["capture", "n1"]);
    let mut head = [0; 100];
    if capture.stdout.as_mut().unwrap().read_exact(&mut head).is_err() {
        panic!("{:?}", capture.wait_with_output());
    }
    drop(capture.stdout.take());
    assert_eq!(capture.wait().unwrap().code(), Some(141), "as after SIGPIPE");

    // Files, in and out.
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

    // A full guest says so and lives on, whatever else is in its memory.
    std::fs::write(world.dir.path().join("big"), vec![1; 40 << 20]).unwrap();
    let said = String::from_utf8(world.run(&["cp", "big", "n2:/tmp"]).stderr).unwrap();
    assert_eq!(said, "weft: n2: /tmp/big: No space left on device (os error 28)\n");
    let fill = "for place in /tmp /run /dev/shm; do dd if=/dev/zero of=$place/full bs=64k 2>&1; done; rm /tmp/full /run/full /dev/shm/full";
    assert_eq!(world.guest("n2", fill).matches("No space left").count(), 3);

    // What goes wrong is said once, and names the file.
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

    // A shell on a terminal.
    let output = world.with_input(&["console", "n1"], b"tty; exit 4\n");
    assert_eq!(output.status.code(), Some(4));
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("/dev/pts/"),
        "{output:?}"
    );

    // What waits for a guest that does not answer can be ended: at once by a second signal, and soon by one.
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
