//! The ssh key of a lab, by which its guests know each other and let each other in. It is made when the first guest needs
//! it, lives in the lab's folder, and continues with a lab that was saved.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use crate::{
    lab::setup::{GuestFile, Source},
    state::StateDir,
};

/// Path of the private key in a guest; `images/mpi.toml` has it in the configuration of ssh.
const KEY: &str = "/etc/ssh/lab_key";

/// Path of the list of hosts that are known by the key.
const KNOWN_HOSTS: &str = "/etc/ssh/lab_known_hosts";

/// Returns the files by which a guest has the key of its lab. `saved` is the disk with the files of a guest that was
/// saved, which has the lab's key if there is one already.
pub(super) fn files(state: &StateDir, node: &str, saved: Option<&Path>) -> Result<Vec<GuestFile>> {
    let key = state.file("ssh-key");
    if !key.exists() {
        let own = state.file(&format!("{node}.ssh-key"));
        make(&own, saved)?;
        // Guests start in parallel, and all take the key that was there first.
        let linked = fs::hard_link(&own, &key);
        fs::remove_file(&own).with_context(|| format!("cannot remove {}", own.display()))?;
        if let Err(error) = linked
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error).with_context(|| format!("cannot write {}", key.display()));
        }
    }
    let private = fs::read_to_string(&key).with_context(|| format!("cannot read {}", key.display()))?;
    let public = keygen(&["-y", "-f"], &key)?;
    let file = |to: &str, text: String, mode| GuestFile {
        source: Source::Text(text),
        to: to.to_owned(),
        mode: Some(mode),
    };
    Ok(vec![
        file(KEY, private, 0o600),
        file(&format!("{KEY}.pub"), public.clone(), 0o644),
        file(KNOWN_HOSTS, format!("* {public}"), 0o644),
    ])
}

/// Writes the key of the saved guest to `path`, or else a new one.
fn make(path: &Path, saved: Option<&Path>) -> Result<()> {
    // A supervisor that was killed may have left it, and ssh-keygen would ask what to do.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", path.display()));
        }
        _ => {}
    }
    if let Some(key) = saved.and_then(|disk| saved_key(disk).transpose()) {
        let key = key.context("cannot read the files of a saved guest")?;
        let mut options = File::options();
        // ssh-keygen refuses a key that others may read.
        let file = options.write(true).create_new(true).mode(0o600).open(path);
        let written = file.and_then(|mut file| file.write_all(key.as_bytes()));
        return written.with_context(|| format!("cannot write {}", path.display()));
    }
    keygen(&["-q", "-t", "ed25519", "-N", "", "-C", "weft", "-f"], path)?;
    fs::remove_file(path.with_extension("ssh-key.pub")).context("ssh-keygen wrote no public key")
}

/// Returns the key on the disk of a saved guest.
fn saved_key(disk: &Path) -> io::Result<Option<String>> {
    let mut archive = tar::Archive::new(File::open(disk)?);
    for entry in archive.entries()? {
        let mut entry = entry?;
        if Path::new("/").join(entry.path()?) == Path::new(KEY) {
            let mut text = String::new();
            entry.read_to_string(&mut text)?;
            return Ok(Some(text));
        }
    }
    Ok(None)
}

/// Runs ssh-keygen with these arguments and a path, and returns what it prints.
fn keygen(arguments: &[&str], path: &Path) -> Result<String> {
    let output = Command::new("ssh-keygen")
        .args(arguments)
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .context(
            "ssh-keygen is needed for the key of a lab with `image = \"mpi\"`; install the package openssh-client",
        )?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ssh-keygen says: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_of_a_lab_have_one_key_and_a_restored_lab_has_that_of_the_saved_one() {
        let text = |file: &GuestFile| match &file.source {
            Source::Text(text) => text.clone(),
            Source::From(path) => panic!("{path:?} is no text"),
        };
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::at(dir.path());
        let first = files(&state, "n1", None).unwrap();
        assert_eq!(files(&state, "n2", None).unwrap(), first);
        assert!(text(&first[1]).starts_with("ssh-ed25519 ") && text(&first[2]).starts_with("* ssh-ed25519 "));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "only the key is left");

        let disk = dir.path().join("n1.files");
        let mut archive = tar::Builder::new(File::create(&disk).unwrap());
        let key = text(&first[0]);
        let mut header = tar::Header::new_gnu();
        header.set_size(key.len() as u64);
        archive
            .append_data(&mut header, KEY.trim_start_matches('/'), key.as_bytes())
            .unwrap();
        archive.into_inner().unwrap();
        let again = tempfile::tempdir().unwrap();
        let restored = files(&StateDir::at(again.path()), "n1", Some(&disk)).unwrap();
        assert_eq!(restored, first);
    }
}
