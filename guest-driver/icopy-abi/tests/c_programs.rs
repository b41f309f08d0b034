//! A C program over `icopy.h`, linked against the shared library. Here there is no card; a guest with one runs the same program in the
//! tests of labs.

use std::{env, fs, path::Path, process::Command};

use weft_guest_driver_testkit::{functions_of_header, static_library};

#[test]
fn m_ci3_a_c_program_links_with_every_call_and_is_told_what_is_missing() {
    let out = tempfile::tempdir().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let linked = Command::new(here.join("link"))
        .arg(static_library("libicopy_abi"))
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
    let calls = functions_of_header(&header);
    for call in &calls {
        assert!(page.contains(&format!("{call}(")), "{call}");
    }
    assert!(calls.len() >= 13, "{calls:?}");
}
