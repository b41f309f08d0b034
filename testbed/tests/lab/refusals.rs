//! What cannot be is refused with one sentence, and nothing is left running.

use crate::support::{PAIR, World, processes_of};

/// Runs `weft up` with `prepare` and gives its last line.
fn refused(world: &World, lab: &str, prepare: impl FnOnce(&mut std::process::Command)) -> String {
    world.file("lab.toml", lab);
    let mut command = world.command(&["up", "--detach", "--accel", "tcg"]);
    prepare(&mut command);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        !world.labs().exists() && processes_of(&world.labs()).is_empty(),
        "nothing is left"
    );
    let said = String::from_utf8(output.stderr).unwrap();
    said.lines().last().unwrap_or_default().to_owned()
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
    for name in ["weft-agent", "mxoe-gen", "nicctl"] {
        std::fs::copy(guests.find(name).unwrap(), bin.join(name)).unwrap();
    }
    let said = refused(&world, PAIR, |command| _ = command.env("WEFT_BIN_DIR", &bin));
    assert!(
        said.starts_with("weft: the program vnicd is not in ") && said.contains("scripts/weft"),
        "{said}"
    );
}

#[test]
fn a_qemu_that_dies_is_quoted() {
    let world = World::new(None);
    let qemu = world.file("qemu", "#!/bin/sh\n[ \"$1\" = -version ] && { echo 'QEMU emulator version 7.2.0'; exit; }\necho broken on purpose >&2\nexit 3\n");
    std::fs::set_permissions(&qemu, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let said = refused(&world, PAIR, |command| _ = command.env("WEFT_QEMU", &qemu));
    assert!(
        said.contains("did not boot") && said.contains("broken on purpose"),
        "{said}"
    );
}

#[test]
fn a_full_disk_is_one_sentence() {
    let world = World::new(None);
    world.file("lab.toml", PAIR);
    let small = world.dir.path().join("small");
    std::fs::create_dir(&small).unwrap();
    // A disk of two pages in a mount namespace of its own; only root may have one.
    let script = "mount -t tmpfs -o size=8k none small && exec \"$0\" up -d --accel tcg";
    let mut command = std::process::Command::new("unshare");
    command
        .args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_weft")])
        .current_dir(world.dir.path())
        .env("XDG_RUNTIME_DIR", &small);
    if !rustix::process::getuid().is_root() {
        println!("only root can mount a small disk: not tested");
        return;
    }
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.contains("No space left on device"), "{said}");
    assert!(processes_of(&small).is_empty());
}

#[test]
fn a_socket_that_somebody_else_took_is_one_sentence() {
    let world = World::new(None);
    world.file("lab.toml", PAIR);
    // Something that is no lab's folder is in its place.
    std::fs::create_dir(world.labs()).unwrap();
    std::fs::write(world.labs().join("pair"), "").unwrap();
    let output = world.run(&["up", "-d", "--accel", "tcg"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("pair is not a folder of this user: remove it, or set XDG_RUNTIME_DIR"),
        "{said}"
    );
    std::fs::remove_file(world.labs().join("pair")).unwrap();
}
