//! The lab commands of the README, run as they stand there.

use std::process::{Command, Stdio};

use crate::support::World;

const README: &str = include_str!("../../../README.md");

/// The commands of the README's `console` block, without their prompts.
fn commands() -> Vec<&'static str> {
    let (_, block) = README
        .split_once("```console\n")
        .expect("the README has a console block");
    let (block, _) = block.split_once("```").expect("the block ends");
    block
        .lines()
        .map(|line| line.strip_prefix("$ ").expect("every line of the block is a command"))
        .collect()
}

#[test]
fn the_commands_of_the_readme_work_as_typed() {
    let commands = commands();
    assert_eq!(commands.first(), Some(&"weft init"));
    assert_eq!(commands.last(), Some(&"weft down"));
    let world = World::new(None);
    let weft = std::path::Path::new(env!("CARGO_BIN_EXE_weft"));
    let mut path = std::ffi::OsString::from(weft.parent().unwrap());
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    for line in commands {
        let output = Command::new("sh")
            .args(["-c", line])
            .current_dir(world.dir.path())
            .env("XDG_RUNTIME_DIR", world.dir.path())
            .env("PATH", &path)
            .env_remove("WEFT_LAB")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {}: {said}", output.status);
        println!("$ {line}\n{}", String::from_utf8_lossy(&output.stdout));
    }
}
