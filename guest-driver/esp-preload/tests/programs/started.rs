//! How `esp-run` starts programs, and what it says where it cannot.

use std::{
    fs,
    process::{Command, Output},
};

use crate::{hosts::library, in_private_network_as_root};

/// `esp-run` with the library of these tests, to which the rest is to be added.
fn esp_run() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_esp-run"));
    command.arg("--library").arg(library());
    command
}

/// Asserts that nothing was started, and returns the sentence about it.
#[track_caller]
fn refused(output: &Output, code: i32) -> String {
    let sentence = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{sentence}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert!(
        sentence.starts_with("esp-run: ") && sentence.lines().count() == 1,
        "{sentence}"
    );
    sentence
}

#[test]
fn esp_run_ends_as_its_program_does_or_as_env_where_there_is_none() {
    for code in [0, 3, 125] {
        let status = esp_run().args(["sh", "-c", &format!("exit {code}")]).status().unwrap();
        assert_eq!(status.code(), Some(code));
    }
    let output = esp_run().arg("/nonexistent/program").output().unwrap();
    assert!(refused(&output, 127).contains("/nonexistent/program cannot be started: "));
    let output = esp_run().arg("/etc/passwd").output().unwrap();
    assert!(refused(&output, 126).contains("/etc/passwd cannot be started: "));
    for (library, sentence) in [
        ("/nonexistent/library", "no /nonexistent/library: "),
        ("/etc/passwd", "/etc/passwd is no shared library"),
        ("/etc", "/etc is no shared library"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_esp-run"));
        let output = command.args(["--library", library, "echo", "started"]).output();
        assert!(refused(&output.unwrap(), 125).contains(sentence));
    }
}

#[test]
fn a_mistake_in_the_command_line_of_esp_run_ends_with_125_as_that_of_env() {
    for arguments in [
        &[][..],
        &["--spin-us", "abc", "true"],
        &["--library"],
        &["--no-such-option", "true"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_esp-run"))
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(125), 0),
            "{arguments:?}: {said}"
        );
        assert!(said.starts_with("error: "), "{arguments:?}: {said}");
    }
    for option in ["--help", "--version"] {
        let output = Command::new(env!("CARGO_BIN_EXE_esp-run"))
            .arg(option)
            .output()
            .unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{option}: {output:?}"
        );
    }
}

#[test]
fn esp_run_takes_no_mistyped_option_for_a_program() {
    let output = esp_run()
        .args(["--never-fallback", "echo", "started"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{said}");
    assert!(
        said.starts_with("error: there is no option '--never-fallback'\n"),
        "{said}"
    );
    // What is behind the program is its own.
    let output = esp_run().args(["echo", "--never-fallback"]).output().unwrap();
    assert_eq!(output.stdout, b"--never-fallback\n");
}

#[test]
fn esp_run_starts_nothing_with_a_setting_that_the_library_would_not_understand() {
    for (name, value) in [
        ("ESP_FALLBACK", "Never"),
        ("ESP_FALLBACK", "0"),
        ("ESP_SPIN_US", "50us"),
        ("ESP_SPIN_US", "-1"),
        ("ESP_STATISTICS", "/nonexistent/folder/file"),
    ] {
        let output = esp_run().env(name, value).args(["echo", "started"]).output().unwrap();
        let sentence = refused(&output, 125);
        assert!(sentence.contains(&format!("{name} is {value}")), "{sentence}");
    }
    // Empty is as not set.
    let mut command = esp_run();
    for name in ["ESP_FALLBACK", "ESP_SPIN_US", "ESP_STATISTICS"] {
        command.env(name, "");
    }
    let output = command.args(["echo", "started"]).output().unwrap();
    assert_eq!((&*output.stdout, &*output.stderr), (&b"started\n"[..], &b""[..]));
}

#[test]
fn esp_run_names_a_library_that_the_loader_would_leave_out() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["with a blank.so", "with:colon.so"] {
        let path = dir.path().join(name);
        fs::copy(library(), &path).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_esp-run"));
        let output = command.arg("--library").arg(&path).args(["echo", "started"]).output();
        let sentence = refused(&output.unwrap(), 125);
        assert!(sentence.contains(name), "{sentence}");
    }
}

#[test]
fn a_program_that_changes_its_folder_writes_its_counts_where_it_was_started() {
    let test = "started::a_program_that_changes_its_folder_writes_its_counts_where_it_was_started";
    in_private_network_as_root(test, || {
        let dir = tempfile::tempdir().unwrap();
        // No host is to be reached there, so the connection is left to TCP.
        let script = "import os, socket\n\
                      os.chdir('/')\n\
                      assert socket.socket().connect_ex(('192.0.2.9', 7)) != 0\n";
        let status = esp_run()
            .current_dir(dir.path())
            .env("ESP_STATISTICS", "counts")
            .args(["python3", "-c", script])
            .status()
            .unwrap();
        assert!(status.success());
        let counts = fs::read_to_string(dir.path().join("counts")).unwrap();
        assert!(
            counts.starts_with("esp process=") && counts.contains(" fall_backs=1 "),
            "{counts}"
        );
    });
}
