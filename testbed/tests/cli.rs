//! Tests of the command line of `weft` as users see it: help, mistakes and their answers, cleaning up, without any
//! guest.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use weft_guest_driver_testkit::{copy_program, write_program};

#[test]
fn help_and_mistakes_on_the_command_line_and_in_lab_files_are_answered_as_written_here() {
    trycmd::TestCases::new()
        .env("XDG_RUNTIME_DIR", "/nonexistent")
        .case("tests/cli/*.trycmd");
}

/// Runs `weft` with its running labs and its cache in `folder`.
fn weft(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weft"))
        .args(args)
        .env("XDG_RUNTIME_DIR", folder)
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env_remove("WEFT_LAB")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn clean_removes_what_dead_labs_left_and_with_cache_the_images_and_leaves_running_labs_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (labs, cache) = (folder.path().join("weft"), folder.path().join("cache/weft"));
    let image = cache.join("images/some/vmlinuz");
    for file in [
        labs.join("dead/n1.log"),
        labs.join("dead/n1.d/x"),
        labs.join("alive/n1.log"),
        image.clone(),
    ] {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "text").unwrap();
    }
    // A supervisor that is alive has this lock.
    let lock = fs::File::create(labs.join("alive/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();

    let text = said(&weft(folder.path(), &["clean"]));
    assert_eq!(text, "still running, and left alone: alive (`weft down` ends a lab)\n");
    assert!(!labs.join("dead").exists() && labs.join("alive/n1.log").exists() && image.exists());
    drop(lock);
    let text = said(&weft(folder.path(), &["clean", "--cache"]));
    assert_eq!(text, format!("removed {}\n", cache.display()));
    assert!(!labs.exists() && !cache.exists());
    assert_eq!(
        said(&weft(folder.path(), &["clean"])),
        "",
        "nothing to do is no mistake"
    );
}

#[test]
fn completion_scripts_complete_words_files_and_without_a_lab_no_names_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = weft(folder.path(), &["completion", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}");
        assert!(script.contains(env!("CARGO_BIN_EXE_weft")), "{shell}: {script}");
        fs::write(folder.path().join(shell), script).unwrap();
    }
    fs::write(folder.path().join("course.toml"), "").unwrap();
    let complete = "source ./bash
        try() { COMP_WORDS=(weft \"$@\") COMP_CWORD=$# COMP_TYPE=9; _clap_complete_weft weft \"${@: -1}\" x; echo ${COMPREPLY[@]}; }
        try nic coa; try co; try link; try graph cou; try nic stats n; try exec n; try nic coalesce n1 open";
    let output = Command::new("bash")
        .args(["-c", complete])
        .current_dir(folder.path())
        .env("XDG_RUNTIME_DIR", folder.path())
        .env_remove("WEFT_LAB")
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "coalesce\nconsole completion\nlink\ncourse.toml\n\n\nopen-mx\n",
        "{output:?}"
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_reader_that_goes_away_early_is_no_mistake() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [["completion", "bash"], ["init", "lab.toml"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_weft"))
            .args(arguments)
            .current_dir(folder.path())
            // `init` reports on standard error what it did, and has done it.
            .stdout(writer.try_clone().unwrap())
            .stderr(if arguments[0] == "init" {
                writer.into()
            } else {
                std::process::Stdio::piped()
            })
            .output()
            .unwrap();
        let expected = if arguments[0] == "init" { 0 } else { 141 };
        assert_eq!(output.status.code(), Some(expected), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
    assert!(folder.path().join("lab.toml").exists());
}

/// Returns packages and features that the dependencies of a program have, when it is built by itself.
fn features(package: &[&str]) -> std::collections::BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "-e",
            "normal,build",
            "--prefix",
            "none",
            "-f",
            "{p} {f}",
        ])
        .args(package)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| line.trim_end_matches(" (*)").to_owned())
        .collect()
}

#[test]
fn programs_that_are_built_one_by_one_share_all_that_they_are_built_from() {
    let all = features(&["--workspace"]);
    for package in [
        "weft-testbed",
        "weft-vnic",
        "weft-agent",
        "weft-guest-tools",
        "weft-omxd",
        "weft-mx-abi",
        "weft-ofi",
        "weft-bench",
    ] {
        let others: Vec<_> = features(&["-p", package]).difference(&all).cloned().collect();
        assert!(
            others.is_empty(),
            "{package} is built with others: add them to scripts/shared-features: {others:?}"
        );
    }
}

#[test]
fn only_verbs_that_start_guests_are_built_for_with_all_programs() {
    let folder = tempfile::tempdir().unwrap();
    let scripts = folder.path().join("scripts");
    fs::create_dir(&scripts).unwrap();
    let program = |path: &Path, text: &str| write_program(path, format!("#!/bin/sh\n{text}\n").as_bytes());
    let real = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/weft");
    copy_program(Path::new(real), &scripts.join("weft"));
    // In the place of the others are programs that print their arguments.
    program(&scripts.join("packages"), "echo packages \"$@\" >&2");
    program(
        &scripts.join("build"),
        &format!("echo build \"$@\" >&2; echo {}", folder.path().display()),
    );
    program(&folder.path().join("weft"), "echo weft \"$@\" >&2");
    let all = "packages run guests qemu-system-x86\nbuild release\n";
    let small = "build --weft release\n";
    for (line, built) in [
        ("", small),
        ("--help", small),
        ("up --help", small),
        ("--version", small),
        ("check", small),
        ("init lab.toml", small),
        ("graph lab.toml", small),
        ("ps", small),
        ("exec n1 -- sh -c up", small),
        ("nic stats n1", small),
        ("up -d", all),
        ("-v up -d lab.toml", all),
        ("--json demo", all),
        ("deploy", all),
        ("--lab pair nic reload", all),
    ] {
        let output = Command::new(scripts.join("weft"))
            .args(line.split_whitespace())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            said,
            format!("{built}{}\n", format!("weft {line}").trim_end()),
            "{line}"
        );
    }
}
