//! Tests of commands, their streams, terminals and copies; all in one guest per test, since booting is what costs time.

use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use testbed::guest_channel::{ChannelError, Event, Exec, ExitStatus, GuestChannel, WindowSize};
use weft_agent::config::GuestConfig;

use crate::support::{COMMAND_TIME_MAX, Guest};

fn exec(argv: &[&str]) -> Exec {
    Exec {
        argv: argv.iter().map(|&word| word.to_owned()).collect(),
        ..Exec::default()
    }
}

/// Everything here must hold over QEMU's socket and over a relay.
fn over_channel_and_relay(test: impl Fn(&GuestChannel)) {
    let guest = Guest::boot(&GuestConfig {
        hostname: "n1".into(),
        ..GuestConfig::default()
    });
    test(&guest.channel);
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let relay = scope.spawn(|| guest.channel.relay(theirs));
        let client = GuestChannel::over(ours).unwrap();
        assert_eq!(client.wait_ready(COMMAND_TIME_MAX).unwrap(), guest.welcome);
        test(&client);
        drop(client);
        relay.join().unwrap().unwrap();
    });
    guest.channel.ping(COMMAND_TIME_MAX).unwrap();
}

#[test]
fn commands_have_streams_statuses_and_signals_of_their_own() {
    over_channel_and_relay(|channel| {
        let output = channel
            .output(&["sh", "-c", "echo out; echo err >&2; exit 3"], COMMAND_TIME_MAX)
            .unwrap();
        assert_eq!(output.status, ExitStatus::Code(3));
        assert_eq!(
            (output.stdout.as_slice(), output.stderr.as_slice()),
            (&b"out\n"[..], &b"err\n"[..])
        );
        let killed = channel.output(&["sh", "-c", "kill -9 $$"], COMMAND_TIME_MAX).unwrap();
        assert_eq!(killed.status, ExitStatus::Signal(9));
        let missing = channel.output(&["no-such-program"], COMMAND_TIME_MAX).unwrap_err();
        assert!(
            matches!(&missing, ChannelError::NotStarted { not_found: true, .. }),
            "{missing:?}"
        );
        assert_eq!(missing.to_string(), "no-such-program: not found");
        let plain = channel.output(&["/etc/passwd"], COMMAND_TIME_MAX).unwrap_err();
        assert!(
            matches!(plain, ChannelError::NotStarted { not_found: false, .. }),
            "{plain:?}"
        );
        assert!(channel.output(&[], COMMAND_TIME_MAX).is_err());
        let mut settings = exec(&["sh", "-c", "echo $GREETING $PWD"]);
        settings.env.push(("GREETING".into(), "hello".into()));
        settings.cwd = Some("/tmp".into());
        let output = channel.exec(&settings).unwrap().collect(COMMAND_TIME_MAX).unwrap();
        assert_eq!(output.stdout, b"hello /tmp\n");
        // A signal reaches the command and its children.
        let mut running = channel.exec(&exec(&["sh", "-c", "sleep 1000; echo not here"])).unwrap();
        assert!(matches!(
            running.next(Some(COMMAND_TIME_MAX)).unwrap(),
            Event::Started { .. }
        ));
        let quiet = running.next(Some(Duration::from_millis(50)));
        assert!(matches!(quiet, Err(ChannelError::TimedOut(_))), "{quiet:?}");
        running.control().signal(15);
        assert_eq!(
            running.next(Some(COMMAND_TIME_MAX)).unwrap(),
            Event::Exited(ExitStatus::Signal(15))
        );
        // What a command leaves behind does not keep it from ending.
        let left = channel
            .output(&["sh", "-c", "sleep 1000 & echo started"], COMMAND_TIME_MAX)
            .unwrap();
        assert_eq!(left.stdout, b"started\n");
        channel.output(&["killall", "sleep"], COMMAND_TIME_MAX).unwrap();
    });
}

/// Runs a command with this input; returns how it ended and what it printed.
fn run(channel: &GuestChannel, exec: &Exec, bytes: Vec<u8>) -> (ExitStatus, Vec<u8>, Vec<u8>) {
    let mut running = channel.exec(exec).unwrap();
    let mut input = running.stdin().unwrap();
    let feeding = std::thread::spawn(move || input.write_all(&bytes).unwrap());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = loop {
        match running.next(None).unwrap() {
            Event::Started { .. } => {}
            Event::Stdout(piece) => out.extend(piece),
            Event::Stderr(piece) => err.extend(piece),
            Event::Exited(status) => break status,
        }
    };
    feeding.join().unwrap();
    (status, out, err)
}

#[test]
fn pipes_carry_any_bytes_in_order_and_a_stalled_command_stops_only_itself() {
    over_channel_and_relay(|channel| {
        // The data is more than all windows and buffers in between, with every byte value in it.
        let bytes: Vec<u8> = (0..3_000_000u32)
            .flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 13).to_le_bytes())
            .collect();
        let bytes = &bytes[..bytes.len() / 4];
        let mut stalled = channel.exec(&exec(&["yes"])).unwrap();
        let mut deaf = channel
            .exec(&Exec {
                stdin: true,
                ..exec(&["sleep", "1000"])
            })
            .unwrap();
        let mut input = deaf.stdin().unwrap();
        let pushing = std::thread::spawn(move || while input.write_all(&[7; 4096]).is_ok() {});
        let settings = Exec {
            stdin: true,
            ..exec(&["sh", "-c", "tee /dev/stderr"])
        };
        let (status, out, err) = run(channel, &settings, bytes.to_vec());
        assert!(status.success());
        assert!(
            out == bytes && err == bytes,
            "{} and {} of {} bytes",
            out.len(),
            err.len(),
            bytes.len()
        );
        drop(deaf);
        pushing.join().unwrap();
        // The stalled command continues where it was.
        let mut seen = Vec::new();
        while seen.len() < 600_000 {
            if let Event::Stdout(piece) = stalled.next(Some(COMMAND_TIME_MAX)).unwrap() {
                seen.extend(piece);
            }
        }
        assert!(seen.chunks(2).all(|line| b"y\n".starts_with(line)));
        drop(stalled);
        // A command that does not read its input loses the input, nothing else.
        let mut input = std::io::repeat(1).take(1_000_000);
        let mut head = channel
            .exec(&Exec {
                stdin: true,
                ..exec(&["head", "-c", "3"])
            })
            .unwrap();
        let written = std::io::copy(&mut input, &mut head.stdin().unwrap());
        assert!(written.is_ok() || written.unwrap_err().kind() == std::io::ErrorKind::BrokenPipe);
        assert_eq!(head.collect(COMMAND_TIME_MAX).unwrap().stdout, [1; 3]);
        let gone = channel
            .output(&["sh", "-c", "while pidof yes; do sleep 0.1; done"], COMMAND_TIME_MAX)
            .unwrap();
        assert!(gone.status.success(), "an abandoned command is ended");
    });
}

#[test]
fn a_console_is_a_terminal_with_a_size_and_job_control() {
    over_channel_and_relay(|channel| {
        let size = WindowSize { columns: 91, rows: 23 };
        let mut shell = channel
            .exec(&Exec {
                pty: Some(size),
                stdin: true,
                ..exec(&["sh", "-i"])
            })
            .unwrap();
        let mut keys = shell.stdin().unwrap();
        let mut screen = String::new();
        let mut wait_for = |text: &str, screen: &mut String| loop {
            if let Some(at) = screen.find(text) {
                screen.drain(..at + text.len());
                return;
            }
            match shell.next(Some(COMMAND_TIME_MAX)) {
                Ok(Event::Stdout(bytes)) => screen.push_str(&String::from_utf8_lossy(&bytes)),
                Ok(Event::Exited(status)) => *screen += &format!("<{status}>"),
                Ok(_) => {}
                Err(error) => panic!("{error}, waiting for {text:?}: {screen:?}"),
            }
        };
        keys.write_all(b"tty; stty size\n").unwrap();
        wait_for("23 91", &mut screen);
        // Ctrl-C ends what runs in the foreground, not the shell. The program that prints "begin" is in the foreground
        // already.
        keys.write_all(b"sh -c 'echo be\"\"gin; exec sleep 1000'\n").unwrap();
        wait_for("begin", &mut screen);
        keys.write_all(&[3]).unwrap();
        keys.write_all(b"echo al''ive\n").unwrap();
        wait_for("alive", &mut screen);
        // At the prompt the shell takes the end of the input; before, the terminal is just changing its mode.
        wait_for("# ", &mut screen);
        drop(keys);
        wait_for("<exit status", &mut screen);
    });
}

#[test]
fn files_and_directories_are_copied_both_ways() {
    over_channel_and_relay(|channel| {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("sub")).unwrap();
        let big: Vec<u8> = (0..1_500_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        std::fs::write(tree.join("sub/big"), &big).unwrap();
        std::fs::write(tree.join("run"), "#!/bin/sh\necho ran\n").unwrap();
        std::fs::set_permissions(tree.join("run"), std::fs::Permissions::from_mode(0o750)).unwrap();
        symlink("sub/big", tree.join("link")).unwrap();
        channel.copy_in(&tree, "/tmp").unwrap();
        let ran = channel.output(&["/tmp/tree/run"], COMMAND_TIME_MAX).unwrap();
        assert_eq!(ran.stdout, b"ran\n");
        let back = channel.copy_out("/tmp/tree", &dir.path().join("back")).unwrap();
        assert_eq!(back, dir.path().join("back"));
        assert_eq!(std::fs::read(back.join("sub/big")).unwrap(), big);
        assert_eq!(
            std::fs::metadata(back.join("run")).unwrap().permissions().mode() & 0o7777,
            0o750
        );
        assert_eq!(
            std::fs::read_link(back.join("link")).unwrap(),
            std::path::Path::new("sub/big")
        );
        channel.copy_in(&tree.join("run"), "renamed").unwrap();
        let renamed = channel.copy_out("/root/renamed", dir.path()).unwrap();
        assert_eq!(std::fs::read_to_string(renamed).unwrap(), "#!/bin/sh\necho ran\n");
        let missing = channel.copy_out("/no/file", dir.path()).unwrap_err().to_string();
        assert_eq!(missing, "/no/file: No such file or directory (os error 2)");
        let nowhere = channel.copy_in(&tree, "/no/place/at/all").unwrap_err().to_string();
        assert_eq!(nowhere, "there is no directory /no/place/at");
        let unreadable = channel
            .copy_in(&dir.path().join("absent"), "/tmp")
            .unwrap_err()
            .to_string();
        assert!(unreadable.contains("absent: No such file"), "{unreadable}");
        channel.output(&["rm", "-r", "/tmp/tree"], COMMAND_TIME_MAX).unwrap();
    });
}
