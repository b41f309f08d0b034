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
    // A process that another test is about to start may have the file for a moment, too.
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock).unwrap();
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

/// Returns packages and features of all that is reached from some packages over some kinds of dependencies.
fn features(kinds: &str, packages: &[&str]) -> std::collections::BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "-e", kinds, "--prefix", "none", "-f", "{p} {f}"])
        .args(packages)
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
fn programs_that_are_built_one_by_one_and_their_tests_share_all_that_they_are_built_from() {
    let programs = features("normal,build", &["--workspace"]);
    let tests = features("normal,build,dev", &["--workspace"]);
    for (package, all) in [
        ("weft-testbed", &programs),
        ("weft-vnic", &programs),
        ("weft-bench", &programs),
        // What guests are given, and the daemon, are also built beside the tests.
        ("weft-agent", &tests),
        ("weft-guest-tools", &tests),
        ("weft-lci-programs", &tests),
        ("weft-omxd", &tests),
        ("weft-esp-preload", &tests),
        ("weft-mx-abi", &tests),
        ("weft-ofi", &tests),
    ] {
        let others: Vec<_> = features("normal,build", &["-p", package])
            .difference(all)
            .cloned()
            .collect();
        assert!(
            others.is_empty(),
            "{package} is built with others: add them to scripts/shared-features: {others:?}"
        );
    }
}

/// Writes a program in the place of `scripts/build`: it writes its arguments into `folder`, and builds nothing.
fn builder(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("build");
    let asked = folder.join("asked");
    let text = format!("#!/bin/sh\necho \"$@\" >>{}\nexit 1\n", asked.display());
    write_program(&path, text.as_bytes());
    path
}

#[test]
fn a_verb_has_built_what_it_needs_and_nothing_else_and_only_after_its_line_and_file_were_read() {
    let folder = tempfile::tempdir().unwrap();
    let builder = builder(folder.path());
    for (name, text) in [
        ("pair.toml", "[[switch]]\nname = \"s1\"\n[[node]]\nname = \"n1\"\n"),
        (
            "mpi.toml",
            "[[switch]]\nname = \"s1\"\n[[node]]\nname = \"n1\"\nimage = \"mpi\"\nmemory = \"1G\"\n",
        ),
        ("mistake.toml", "[[node]]\nnaem = \"n1\"\n"),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    // Programs are built with the profile of the weft that runs.
    let own = Path::new(env!("CARGO_BIN_EXE_weft")).parent().unwrap();
    let own = own.file_name().unwrap().to_str().unwrap();
    let lab = format!("{own} esp-run guest-tools libesp-preload.so libopen-mx.so.0 qemu vnicd weft-agent\n");
    let mpi = lab.replace("libopen", "libmx-fi.so libopen");
    for (line, asked) in [
        ("--help", ""),
        ("up --dry-run pair.toml", ""),
        ("up mistake.toml", ""),
        ("up missing.toml", ""),
        ("up --dray-run pair.toml", ""),
        ("ps", ""),
        ("init lab.toml", ""),
        ("graph pair.toml", ""),
        ("bench", ""),
        ("bench card --ronds 3", ""),
        ("bench mpi --operations Barrier --sizes 0 --mpi mpich", ""),
        ("up pair.toml", &lab),
        ("up -d pair.toml", &lab),
        ("demo --rounds 1", &lab),
        ("up mpi.toml", &mpi),
        // What is measured is built with the full profile.
        ("bench card --only lci", "release lci_program\n"),
        ("bench card --only mx", &lab.replacen(own, "release", 1)),
        ("bench mpi", "release imb\n"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_weft"))
            .args(line.split_whitespace())
            .current_dir(folder.path())
            .env("XDG_RUNTIME_DIR", folder.path())
            .env("XDG_CACHE_HOME", folder.path().join("cache"))
            .env("WEFT_BUILD", &builder)
            .env_remove("WEFT_BIN_DIR")
            .env_remove("WEFT_LAB")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = fs::read_to_string(folder.path().join("asked")).unwrap_or_default();
        assert_eq!(said, asked, "{line}: {output:?}");
        if !asked.is_empty() {
            let sentence = String::from_utf8_lossy(&output.stderr);
            assert!(
                sentence.contains("not all programs could be built"),
                "{line}: {sentence}"
            );
            assert_eq!(output.status.code(), Some(1), "{line}");
            fs::remove_file(folder.path().join("asked")).unwrap();
        }
    }
}

#[test]
fn programs_that_the_user_names_are_used_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let builder = builder(folder.path());
    fs::write(
        folder.path().join("lab.toml"),
        "[[switch]]\nname = \"s1\"\n[[node]]\nname = \"n1\"\n",
    )
    .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_weft"))
        .args(["up", "--accel", "tcg"])
        .current_dir(folder.path())
        .env("XDG_RUNTIME_DIR", folder.path())
        .env("XDG_CACHE_HOME", folder.path().join("cache"))
        .env("WEFT_BUILD", &builder)
        .env("WEFT_BIN_DIR", folder.path())
        // No package can be looked up without these, so the lab ends here.
        .env("PATH", folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!folder.path().join("asked").exists(), "{output:?}");
}

#[test]
fn the_script_builds_weft_alone_and_for_the_demo_all_that_its_guests_are_given_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let scripts = folder.path().join("scripts");
    let images = folder.path().join("images");
    fs::create_dir(&scripts).unwrap();
    fs::create_dir(&images).unwrap();
    let program = |path: &Path, text: &str| write_program(path, format!("#!/bin/sh\n{text}\n").as_bytes());
    let of_project = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    copy_program(&of_project("scripts/weft"), &scripts.join("weft"));
    fs::copy(of_project("images/minimal.toml"), images.join("minimal.toml")).unwrap();
    // In the place of the others are programs that print their arguments.
    program(
        &scripts.join("build"),
        &format!("echo build \"$@\" >&2; echo {}", folder.path().display()),
    );
    program(
        &folder.path().join("weft"),
        "echo \"${WEFT_BUILD##*/}\" weft \"$@\" >&2",
    );
    let demo = "build quick weft vnicd qemu weft-agent guest-tools libopen-mx.so.0 esp-run libesp-preload.so\n";
    let weft = "build quick weft\n";
    for (line, built) in [
        ("", weft),
        ("--help", weft),
        ("up -d", weft),
        ("demo", demo),
        ("demo --rounds 1", weft),
        ("exec n1 -- sh -c demo", weft),
    ] {
        let output = Command::new(scripts.join("weft"))
            .args(line.split_whitespace())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            said,
            format!("{built}{}\n", format!("build weft {line}").trim_end()),
            "{line}"
        );
    }
}
