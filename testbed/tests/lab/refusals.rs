//! Tests that impossible requests are refused with one sentence, and nothing is left running.

use std::{
    path::Path,
    process::{Command, Output},
    time::Instant,
};

use crate::support::{PAIR, PATIENCE, World, processes_of};

/// Runs `weft up` with `prepare` and returns the one sentence that it ends with.
fn refused(world: &World, lab: &str, prepare: impl FnOnce(&mut Command)) -> String {
    world.file("lab.toml", lab);
    let mut command = world.command(&["up", "--detach", "--accel", "tcg"]);
    prepare(&mut command);
    let said = sentence(&command.output().unwrap(), 1);
    // The logs of guests that ran stay until `weft clean`.
    let logs = format!("; logs are in {}/", world.labs().display());
    assert_eq!(world.labs().exists(), said.contains(&logs), "no file is left: {said}");
    world.ok(&["clean"]);
    assert!(!world.labs().exists(), "no file is left");
    assert_eq!(
        processes_of(&world.labs()),
        Vec::<String>::new(),
        "nothing is left running"
    );
    said
}

/// Returns the sentence that a failed `weft` ends with: one line, preceded only by its progress.
fn sentence(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    let (progress, last) = said.trim_end().rsplit_once('\n').unwrap_or(("", said.trim_end()));
    assert!(last.starts_with("weft: "), "{said}");
    let steps = [
        "looking ",
        "finding ",
        "booting ",
        "building ",
        "downloading ",
        "unpacking ",
        "writing ",
        "waiting ",
    ];
    for line in progress.lines() {
        assert!(
            steps.iter().any(|step| line.starts_with(step)),
            "more than a sentence: {said}"
        );
    }
    last.to_owned()
}

/// Makes `weft ARGS` with the folder `disk` of the world on a separate file system of this size, in a private mount
/// namespace; then it prints on standard output the files that are left there. Root may do that, and other users where
/// the kernel allows them a user namespace.
fn on_a_small_disk(world: &World, disk: &Path, size: &str, args: &[&str]) -> Command {
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    // In a root that is no mount point (a plain chroot), a mount namespace cannot be made private: what is mounted
    // there is unmounted again, wherever else it may be visible.
    let private = Command::new("unshare").args(["--mount", "true"]).output();
    if rustix::process::geteuid().is_root() && !private.is_ok_and(|output| output.status.success()) {
        unshare.args(["--propagation", "unchanged"]);
    }
    unshare.args(["--mount", "sh", "-c"]).current_dir(world.dir.path());
    let script = "disk=$1 size=$2; shift 2; mount -t tmpfs -o size=$size none $disk || exit 99
        if [ -d filling ]; then cp -a filling/. $disk || exit 98; fi
        \"$@\"; code=$?; [ -d filling ] || find $disk -mindepth 1; umount -l $disk; exit $code";
    unshare
        .arg(script)
        .arg("sh")
        .arg(disk)
        .arg(size)
        .arg(env!("CARGO_BIN_EXE_weft"));
    unshare.args(args).env_remove("WEFT_LAB");
    unshare
}

fn without_a_reason_to_skip(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        ![Some(98), Some(99)].contains(&output.status.code()) && !said.starts_with("unshare: "),
        "a full disk cannot be tested here, a small one can be mounted neither as root nor in a user namespace: {said}"
    );
}

#[test]
fn a_lab_that_does_not_fit_into_memory_is_refused() {
    let world = World::new(None);
    let nodes: String = (0..60)
        .map(|n| format!("[[node]]\nname = \"n{n}\"\nmemory = \"64G\"\n"))
        .collect();
    let said = refused(&world, &nodes, |_| {});
    assert!(
        said.starts_with("weft: the lab lab needs about 3936544 MiB of memory for 60 guests and "),
        "{said}"
    );
}

#[test]
fn a_lab_file_or_lab_that_is_not_there_is_named() {
    let world = World::new(None);
    let said = sentence(&world.run(&["up"]), 1);
    assert_eq!(
        said,
        "weft: there is no lab file lab.toml; `weft init` writes an example"
    );
    let said = sentence(&world.run(&["--lab", "nolab", "ps"]), 1);
    assert_eq!(
        said,
        "weft: the lab nolab does not run (none does): `weft up` starts one"
    );
}

#[test]
fn a_path_too_long_for_a_socket_is_refused() {
    let world = World::new(None);
    let long = world.dir.path().join("x".repeat(80));
    std::fs::create_dir(&long).unwrap();
    let said = refused(&world, PAIR, |command| _ = command.env("XDG_RUNTIME_DIR", &long));
    assert!(
        said.contains("the kernel takes 107: set XDG_RUNTIME_DIR to a folder with a shorter path"),
        "{said}"
    );
}

#[test]
fn a_missing_qemu_is_named_with_its_package() {
    let world = World::new(None);
    let said = refused(&world, PAIR, |command| _ = command.env("WEFT_QEMU", "/no/such/qemu"));
    assert_eq!(
        said,
        "weft: /no/such/qemu was not found: install the package qemu-system-x86, or name a binary in WEFT_QEMU"
    );
}

#[test]
fn a_missing_program_of_our_own_is_named_with_how_to_build_it() {
    let world = World::new(None);
    let bin = world.dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    // The guests' programs are there, `vnicd` is not.
    let guests = testbed::image::GuestBinaries::locate().unwrap();
    for name in ["weft-agent", "guest-tools", "libopen-mx.so.0", "libesp-preload.so"] {
        std::fs::copy(guests.find(name).unwrap(), bin.join(name)).unwrap();
    }
    let said = refused(&world, PAIR, |command| _ = command.env("WEFT_BIN_DIR", &bin));
    assert!(
        said.starts_with("weft: the program vnicd is not in ") && said.contains("scripts/weft"),
        "{said}"
    );
}

#[test]
fn a_missing_tool_is_named_with_its_package() {
    let world = World::new(None);
    let said = refused(&world, PAIR, |command| {
        command.env("WEFT_QEMU", which("qemu-system-x86_64"));
        command
            .env("PATH", "/nonexistent")
            .env("XDG_CACHE_HOME", world.dir.path().join("cache"));
    });
    assert_eq!(
        said,
        "weft: apt-get is missing: guest images are made with it; install the package apt"
    );
}

fn which(program: &str) -> std::path::PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{program} is installed"))
}

#[test]
fn guests_that_are_not_ready_in_time_are_named_with_the_last_that_one_said() {
    let world = World::new(None);
    let said = refused(&world, PAIR, |command| _ = command.args(["--boot-timeout", "1s"]));
    assert!(said.starts_with("weft: no sign of life for 1 s: n"), "{said}");
}

#[test]
fn a_qemu_that_dies_is_quoted() {
    let world = World::new(None);
    let qemu = world.file("qemu", "#!/bin/sh\n[ \"$1\" = -version ] && { echo 'QEMU emulator version 7.2.0'; exit; }\necho broken on purpose >&2\nexit 3\n");
    std::fs::set_permissions(&qemu, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let began = Instant::now();
    let said = refused(&world, PAIR, |command| _ = command.env("WEFT_QEMU", &qemu));
    assert!(
        said.contains("did not boot: QEMU ended immediately (exit status 3): broken on purpose"),
        "{said}"
    );
    assert!(began.elapsed() < PATIENCE / 4, "no time is spent on waiting for it");
}

#[test]
fn a_full_disk_is_one_sentence_and_leaves_nothing() {
    let world = World::new(None);
    world.file("lab.toml", PAIR);
    let small = world.dir.path().join("small");
    std::fs::create_dir(&small).unwrap();
    // The disk is full after the first, the second or the third file that a lab writes there.
    for size in ["4k", "8k", "12k"] {
        let up = ["up", "--detach", "--accel", "tcg"];
        let output = on_a_small_disk(&world, &small, size, &up)
            .env("XDG_RUNTIME_DIR", &small)
            .output()
            .unwrap();
        without_a_reason_to_skip(&output);
        let said = sentence(&output, 1);
        println!("{size}: {said}");
        assert!(
            said.contains("cannot write ") && said.contains("No space left on device"),
            "{said}"
        );
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "no file is left");
        assert_eq!(processes_of(&small), Vec::<String>::new(), "nothing is left running");
    }
}

#[test]
fn a_disk_that_is_full_before_the_guest_image_is_made_is_one_sentence() {
    let world = World::new(None);
    world.file("lab.toml", PAIR);
    // The packages are there, but there is no room for the image made of them.
    let cache = testbed::image::Cache::open_default().unwrap();
    let filling = world.dir.path().join("filling");
    std::fs::create_dir_all(filling.join("weft")).unwrap();
    for part in ["packages", "resolved"] {
        let copied = Command::new("cp")
            .arg("-a")
            .arg(cache.root().join(part))
            .arg(filling.join("weft"))
            .status();
        assert!(copied.unwrap().success());
    }
    let size = Command::new("du").arg("-sk").arg(&filling).output().unwrap().stdout;
    let size: u64 = String::from_utf8(size)
        .unwrap()
        .split('\t')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let small = world.dir.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let up = ["up", "--detach", "--accel", "tcg"];
    let output = on_a_small_disk(&world, &small, &format!("{}k", size + 1024), &up)
        .env("XDG_CACHE_HOME", &small)
        .env("XDG_RUNTIME_DIR", world.dir.path())
        .output()
        .unwrap();
    without_a_reason_to_skip(&output);
    let said = sentence(&output, 1);
    assert!(
        said.starts_with("weft: no space left at ") && said.contains("XDG_CACHE_HOME"),
        "{said}"
    );
    assert!(!world.labs().exists());
    assert_eq!(
        processes_of(world.dir.path()),
        Vec::<String>::new(),
        "nothing is left running"
    );
}

#[test]
fn a_taken_socket_is_one_sentence() {
    // A socket of another program is where the folder of all labs should be, or the folder of this one.
    let world = World::new(None);
    for (path, folder) in [("weft", None), ("weft/pair", Some("weft"))] {
        let path = world.dir.path().join(path);
        folder
            .iter()
            .for_each(|name| std::fs::create_dir(world.dir.path().join(name)).unwrap());
        let taken = std::os::unix::net::UnixListener::bind(&path).unwrap();
        world.file("lab.toml", PAIR);
        let output = world.run(&["up", "-d", "--accel", "tcg"]);
        let said = sentence(&output, 1);
        let expected = "is not a folder of this user: remove it, or set XDG_RUNTIME_DIR";
        assert!(said.starts_with("weft: ") && said.ends_with(expected), "{said}");
        assert!(
            std::os::unix::net::UnixStream::connect(&path).is_ok(),
            "it still is theirs"
        );
        drop(taken);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            processes_of(&world.labs()),
            Vec::<String>::new(),
            "nothing is left running"
        );
    }
}

#[test]
fn a_wrong_lab_file_is_answered_with_places_and_starts_nothing() {
    let world = World::new(None);
    for (text, expected) in [
        ("[[node]\n", "weft: lab.toml:1:"),
        (
            "[[node]]\nname = \"n1\"\ncpus = 0\n",
            "weft: lab.toml:3:8: 0 processors are not possible",
        ),
        (
            "[[node]]\nname = \"n1\"\n[[node]]\nname = \"n1\"\n",
            "weft: lab.toml:4:8: ",
        ),
        (
            "[[node]]\nname = \"n1\"\nmemroy = \"1G\"\n",
            "weft: lab.toml:3:1: unknown key `memroy`",
        ),
        (
            "[[node]]\nname = \"n1\"\nkernel = \"/no/such\"\ninitramfs = \"/none\"\n",
            "weft: lab.toml:3:10: ",
        ),
    ] {
        world.file("lab.toml", text);
        let output = world.run(&["up", "--detach", "--accel", "tcg"]);
        let said = String::from_utf8(output.stderr).unwrap();
        println!("{said}");
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with(expected), "{said}");
        assert!(!world.labs().exists());
        assert_eq!(
            processes_of(world.dir.path()),
            Vec::<String>::new(),
            "nothing is left running"
        );
    }
}

#[test]
fn a_strategy_that_vnicd_does_not_have_is_answered_with_those_that_it_has() {
    let world = World::new(None);
    let lab = "[[node]]\nname = \"n1\"\nnic = [{ coalescing = { strategy = \"every-third\" } }]\n";
    world.file("lab.toml", lab);
    let output = world.run(&["up", "--dry-run"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("lab.toml:3:36: there is no strategy \"every-third\"")
            && said.contains("disabled, timeout, open-mx, stream, adaptive"),
        "{said}"
    );
}
