//! Packs and unpacks what is copied between host and guest: an ordinary tar stream with one top-level entry. The reader
//! trusts nothing in it: everything is unpacked inside a fresh directory and then moved into place.

mod pack;

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use pack::pack;

/// Name of the top-level entry on the wire; the receiver chooses the name of the copy.
const ROOT: &str = "root";

/// Reads an archive written by [`pack()`] and puts its entry at `destination`: below it under the name `name` when that
/// is a directory, else as `destination` itself. An existing directory is merged with. Returns the path of the copy.
///
/// # Errors
/// When the archive is broken or tries to leave its place, or something cannot be written.
pub fn unpack(reader: impl Read, destination: &Path, name: &str) -> io::Result<PathBuf> {
    let wants_directory = destination.as_os_str().as_encoded_bytes().ends_with(b"/");
    let target = if destination.is_dir() {
        let plain = Path::new(name).file_name().is_some_and(|file| file == name);
        if !plain {
            return Err(io::Error::other(format!("{name:?} is not a file name")));
        }
        destination.join(name)
    } else if wants_directory {
        return Err(io::Error::other(format!(
            "{} is not a directory",
            destination.display()
        )));
    } else {
        destination.to_path_buf()
    };
    let parent = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !parent.is_dir() {
        return Err(io::Error::other(format!("there is no directory {}", parent.display())));
    }
    let staging = tempfile::Builder::new()
        .prefix(".weft-copy-")
        .tempdir_in(parent)
        .map_err(|e| at(parent, &e))?;
    let mut archive = tar::Archive::new(reader);
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(false);
    archive.set_unpack_xattrs(false);
    archive.unpack(staging.path()).map_err(|error| at(&target, &error))?;
    // The rest of the stream belongs to the archive: end padding that the reader above did not need.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    place(&staging.path().join(ROOT), &target)?;
    Ok(target)
}

/// Moves `from` to `to`, merging directories. Both are on one file system.
fn place(from: &Path, to: &Path) -> io::Result<()> {
    let is_directory = |path: &Path| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    if !is_directory(from) || !is_directory(to) {
        return fs::rename(from, to).map_err(|error| at(to, &error));
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        place(&entry.path(), &to.join(entry.file_name()))?;
    }
    fs::set_permissions(to, fs::metadata(from)?.permissions())
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {}", path.display(), plain(error)))
}

/// Returns the innermost cause: the tar crate wraps the system's error in words about its staging directory.
fn plain(error: &io::Error) -> io::Error {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    io::Error::new(error.kind(), cause.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn copy(from: &Path, to: &Path, name: &str) -> io::Result<PathBuf> {
        let mut archive = Vec::new();
        pack(from, &mut archive)?;
        unpack(archive.as_slice(), to, name)
    }

    #[test]
    fn a_file_keeps_its_bytes_and_mode_and_gets_the_asked_name() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("tool");
        fs::write(&from, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&from, fs::Permissions::from_mode(0o751)).unwrap();
        let renamed = copy(&from, &dir.path().join("other"), "tool").unwrap();
        assert_eq!(renamed, dir.path().join("other"));
        assert_eq!(fs::read_to_string(&renamed).unwrap(), "#!/bin/sh\n");
        assert_eq!(fs::metadata(&renamed).unwrap().permissions().mode() & 0o7777, 0o751);
        let into = dir.path().join("sub");
        fs::create_dir(&into).unwrap();
        assert_eq!(copy(&from, &into, "tool").unwrap(), into.join("tool"));
        assert_eq!(
            fs::read_dir(&into).unwrap().count(),
            1,
            "nothing is left of the staging place"
        );
    }

    #[test]
    fn a_directory_is_merged_into_one_that_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("tree");
        fs::create_dir_all(from.join("deep/er")).unwrap();
        fs::write(from.join("deep/er/file"), "new").unwrap();
        symlink("deep", from.join("link")).unwrap();
        let into = dir.path().join("into");
        fs::create_dir_all(into.join("tree/deep/er")).unwrap();
        fs::write(into.join("tree/deep/er/file"), "old").unwrap();
        fs::write(into.join("tree/kept"), "kept").unwrap();
        copy(&from, &into, "tree").unwrap();
        assert_eq!(fs::read_to_string(into.join("tree/deep/er/file")).unwrap(), "new");
        assert_eq!(fs::read_to_string(into.join("tree/kept")).unwrap(), "kept");
        assert_eq!(fs::read_link(into.join("tree/link")).unwrap(), Path::new("deep"));
    }

    #[test]
    fn an_archive_cannot_write_outside_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        archive.append_link(&mut header, "root", outside.path()).unwrap();
        let mut header = tar::Header::new_gnu();
        header.set_size(4);
        header.set_mode(0o644);
        archive.append_data(&mut header, "root/evil", &b"evil"[..]).unwrap();
        let bytes = archive.into_inner().unwrap();
        assert!(unpack(bytes.as_slice(), &dir.path().join("x"), "x").is_err());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        assert!(copy(dir.path(), dir.path(), "../up").is_err());
    }

    #[test]
    fn a_missing_source_or_target_directory_is_one_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let error = copy(&dir.path().join("nothing"), dir.path(), "nothing")
            .unwrap_err()
            .to_string();
        assert!(error.contains("nothing: No such file"), "{error}");
        fs::write(dir.path().join("file"), "").unwrap();
        let error = copy(&dir.path().join("file"), &dir.path().join("no/where"), "file")
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("there is no directory"), "{error}");
    }
}
