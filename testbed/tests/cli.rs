//! The command line of `weft` as users see it: help, mistakes and their answers, clearing up, without any guest.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

#[test]
fn help_and_mistakes_on_the_command_line_and_in_lab_files_are_answered_as_written_here() {
    trycmd::TestCases::new()
        .env("XDG_RUNTIME_DIR", "/nonexistent")
        .case("tests/cli/*.trycmd");
}

/// `weft` with its running labs and its cache in `folder`.
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
    // What a supervisor that lives holds.
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
fn completion_scripts_complete() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = weft(folder.path(), &["completion", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}");
        for word in ["weft", "coalesce", "capture", "--accel"] {
            assert!(script.contains(word.trim_start_matches('-')), "{shell}: {word}");
        }
        fs::write(folder.path().join(shell), script).unwrap();
    }
    let complete = "source ./bash
        COMP_WORDS=(weft nic coa) COMP_CWORD=2; _weft weft coa nic; echo ${COMPREPLY[@]}
        COMP_WORDS=(weft co) COMP_CWORD=1; _weft weft co weft; echo ${COMPREPLY[@]}";
    let output = Command::new("bash")
        .args(["-c", complete])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "coalesce\nconsole completion\n",
        "{output:?}"
    );
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
            // `init` tells what it did on standard error, and has done it.
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
