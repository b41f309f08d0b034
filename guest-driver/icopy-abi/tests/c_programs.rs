//! A C program over `icopy.h`, linked against the shared library. Here there is no card; a guest with one runs the same program in the
//! tests of labs.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The static library that cargo made for these tests.
fn archive() -> PathBuf {
    let own = env::current_exe().unwrap();
    let deps = own.parent().unwrap();
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libicopy_abi") && name.ends_with(".a")
    };
    let found = [deps, deps.parent().unwrap()].into_iter().flat_map(|dir| {
        let entries = fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().path()).filter(is_ours)
    });
    let age = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    found
        .max_by_key(age)
        .expect("cargo makes the static library for the tests")
}

#[test]
fn m_ci3_a_c_program_links_with_every_call_and_is_told_what_is_missing() {
    let out = tempfile::tempdir().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let linked = Command::new(here.join("link"))
        .arg(archive())
        .arg(out.path())
        .status()
        .unwrap();
    assert!(linked.success(), "the library does not link");
    let program = out.path().join("program");
    let compiled = Command::new("gcc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(out.path().join("include"))
        .arg(here.join("tests/c/copies.c"))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(out.path().join("lib"))
        .arg("-licopy")
        .status()
        .expect("gcc");
    assert!(compiled.success(), "it does not compile");
    let run = Command::new(&program)
        .env("LD_LIBRARY_PATH", out.path().join("lib"))
        .env_remove("ICOPY_CARD")
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn the_manual_page_explains_every_call_of_the_header() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = fs::read_to_string(here.join("include/icopy.h")).unwrap();
    let page = fs::read_to_string(here.join("icopy.3")).unwrap();
    let mut calls = 0;
    for line in header
        .lines()
        .filter(|line| line.ends_with(");") && !line.starts_with([' ', '/']))
    {
        let before = line.split('(').next().unwrap();
        let call = before.rsplit([' ', '*']).next().unwrap();
        assert!(page.contains(&format!("{call}(")), "{call}: {line}");
        calls += 1;
    }
    assert!(calls >= 13, "{calls} calls");
}
