//! Why a program that is there cannot be started: the interpreter or loader that it names is missing.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Length in bytes of the part of a program that is read; Linux reads 256 of a script.
const HEAD_LEN: u64 = 4096;

/// Returns what the program needs and is not there, as `/bin/bash`. `program` is a path, or a name to be found in `PATH`.
pub fn missing(program: &str) -> Option<String> {
    let path = find(program)?;
    let mut head = Vec::new();
    File::open(path).ok()?.take(HEAD_LEN).read_to_end(&mut head).ok()?;
    let needed = if head.starts_with(b"#!") {
        of_script(&head)
    } else {
        of_elf(&head)
    }?;
    (!Path::new(&needed).exists()).then_some(needed)
}

fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

fn of_script(head: &[u8]) -> Option<String> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let word = String::from_utf8_lossy(line).split_whitespace().next()?.to_owned();
    Some(word)
}

/// Returns the loader that a 64-bit ELF program names.
fn of_elf(head: &[u8]) -> Option<String> {
    const INTERPRETER: u32 = 3;
    let number = |at: usize, len: usize| {
        let bytes = head.get(at..at.checked_add(len)?)?;
        let number = bytes
            .iter()
            .rev()
            .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        usize::try_from(number).ok()
    };
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, entry_len, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let entries = (0..count).map(|index| table.checked_add(index * entry_len));
    let entry = entries
        .flatten()
        .find(|entry| number(*entry, 4) == Some(INTERPRETER as usize))?;
    let (offset, len) = (number(entry + 8, 8)?, number(entry + 32, 8)?);
    let name = head.get(offset..offset.checked_add(len)?)?;
    let name = name.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_that_a_program_names_and_that_is_missing_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let loader = of_elf(&own[..4096]).expect("a test is a dynamic program");
        assert!(loader.starts_with("/lib"), "{loader}");
        let other_loader: Vec<u8> = {
            let at = own
                .windows(loader.len())
                .position(|part| part == loader.as_bytes())
                .unwrap();
            [&own[..at], b"/lib-x", &own[at + 6..]].concat()
        };
        for (contents, says) in [
            (b"#!/bin/sh -e\n".to_vec(), None),
            (b"#! /no/bash -e\n".to_vec(), Some("/no/bash".to_owned())),
            (b"#!".to_vec(), None),
            (b"\x7fELF\x02\x01".to_vec(), None),
            (own, None),
            (other_loader, Some(loader.replacen("/lib64", "/lib-x", 1))),
        ] {
            std::fs::write(&path, contents).unwrap();
            assert_eq!(missing(path.to_str().unwrap()), says);
        }
        assert_eq!(missing("/no/program"), None);
    }
}
