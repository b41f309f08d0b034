//! Commands and files in guests.

use crate::support::{PAIR, World};

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
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut some).unwrap();
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
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    crate::support::signal(child.id() as i32, rustix::process::Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(5), &b"caught\n"[..])
    );

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

    // What goes wrong is said once, and names the file.
    let why = |args: &[&str]| String::from_utf8(world.run(args).stderr).unwrap();
    assert_eq!(
        why(&["cp", "nofile", "n1:/tmp"]),
        "weft: nofile: No such file or directory (os error 2)\n"
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
}
