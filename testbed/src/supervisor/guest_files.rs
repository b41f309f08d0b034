//! The files that a lab gives a guest, as an archive on a separate disk of the guest. The files are read again at each
//! start of its QEMU, so that a restart brings their changes.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    os::unix::fs::MetadataExt,
    path::Path,
};

use anyhow::{Context, Result, bail, ensure};

use crate::lab::{
    Node,
    setup::{GuestFile, Source},
};

/// Number of nested folders that are copied: a folder that contains a link to itself would have no end.
const DEPTH_MAX: usize = 64;

/// Length of a sector in bytes; a disk has whole sectors.
const SECTOR_LEN: u64 = 512;

/// Writes the archive of a node's files to `path`: `key` by which guests let each other in, and those of the lab file.
pub(super) fn write(node: &Node, key: &[GuestFile], path: &Path) -> Result<()> {
    // The files are in the guest's memory, and programs need some, too.
    let len_max = u64::from(node.memory_mib) << 19;
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut archive = Archive {
        tar: tar::Builder::new(BufWriter::new(file)),
        left: len_max,
    };
    for entry in key.iter().chain(&node.setup.files) {
        archive.put(entry).with_context(|| {
            format!(
                "the file {} of node {} cannot be copied (files may have {} MiB, half of the node's memory)",
                entry.to,
                node.name,
                len_max >> 20
            )
        })?;
    }
    let mut out = archive.tar.into_inner()?;
    out.flush()?;
    let len = out.get_ref().metadata()?.len();
    out.get_ref().set_len(len.next_multiple_of(SECTOR_LEN))?;
    Ok(())
}

struct Archive {
    tar: tar::Builder<BufWriter<File>>,
    left: u64,
}

impl Archive {
    fn put(&mut self, entry: &GuestFile) -> Result<()> {
        let to = entry.to.trim_start_matches('/');
        match &entry.source {
            Source::Text(text) => {
                let mode = entry.mode.unwrap_or(0o644);
                self.file(to, mode, text.len() as u64, text.as_bytes())
            }
            Source::From(from) => self.copy(from, to, entry.mode, 0),
        }
    }

    fn copy(&mut self, from: &Path, to: &str, mode: Option<u32>, depth: usize) -> Result<()> {
        let shown = || from.display().to_string();
        ensure!(depth < DEPTH_MAX, "{} is more than {DEPTH_MAX} folders deep", shown());
        // A path in the lab file may be a link; a link within a folder stays one.
        let meta = if depth == 0 {
            from.metadata()
        } else {
            from.symlink_metadata()
        };
        let meta = meta.with_context(shown)?;
        if meta.is_dir() {
            self.header(to, tar::EntryType::Directory, meta.mode() & 0o7777, 0, io::empty())?;
            let mut entries: Vec<_> = from.read_dir().with_context(shown)?.collect::<io::Result<_>>()?;
            entries.sort_by_key(std::fs::DirEntry::file_name);
            for entry in entries {
                let name = entry.file_name();
                let name = name.to_str().with_context(|| format!("{name:?} is not UTF-8"))?;
                self.copy(&entry.path(), &format!("{to}/{name}"), None, depth + 1)?;
            }
            return Ok(());
        }
        if meta.is_symlink() {
            let mut header = header(tar::EntryType::Symlink, 0o777, 0);
            return Ok(self.tar.append_link(&mut header, to, from.read_link()?)?);
        }
        if !meta.is_file() {
            bail!("{} is neither a file nor a folder", shown());
        }
        let file = File::open(from).with_context(shown)?;
        self.file(to, mode.unwrap_or(meta.mode() & 0o7777), meta.len(), file)
    }

    fn file(&mut self, to: &str, mode: u32, len: u64, contents: impl io::Read) -> Result<()> {
        self.left = self.left.checked_sub(len).context("the files are too large")?;
        // A file that grows meanwhile would break the archive.
        self.header(to, tar::EntryType::Regular, mode, len, contents.take(len))
    }

    fn header(&mut self, to: &str, kind: tar::EntryType, mode: u32, len: u64, contents: impl io::Read) -> Result<()> {
        let mut header = header(kind, mode, len);
        Ok(self.tar.append_data(&mut header, to, contents)?)
    }
}

/// Makes a header in which root owns the file, as everything in a guest.
fn header(kind: tar::EntryType, mode: u32, len: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(len);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Lab;
    use crate::lab::LabFolder;

    fn lab(dir: &Path, keys: &str) -> Lab {
        let text = format!("[[node]]\nname = \"n1\"\nfiles = [{keys}]\n");
        Lab::parse_in(
            &text,
            "lab.toml",
            "lab",
            LabFolder::new(dir, &crate::lab_file::at_path),
            None,
        )
        .expect("valid")
    }

    #[test]
    fn files_folders_and_texts_are_in_the_archive_with_their_permissions() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        std::fs::write(dir.path().join("folder/one"), "1").unwrap();
        std::os::unix::fs::symlink("one", dir.path().join("folder/link")).unwrap();
        let keys = r#"{ from = "folder", to = "/srv/folder" }, { text = "hello", to = "/bin/hello", mode = "0755" }"#;
        let path = dir.path().join("files.tar");
        let key = GuestFile {
            source: Source::Text("key".to_owned()),
            to: "/etc/key".to_owned(),
            mode: Some(0o600),
        };
        write(&lab(dir.path(), keys).nodes[0], &[key], &path).unwrap();
        assert_eq!(path.metadata().unwrap().len() % SECTOR_LEN, 0);
        let to = dir.path().join("to");
        let mut archive = tar::Archive::new(File::open(&path).unwrap());
        archive.set_preserve_permissions(true);
        archive.unpack(&to).unwrap();
        assert_eq!(std::fs::read_to_string(to.join("srv/folder/link")).unwrap(), "1");
        assert_eq!(to.join("bin/hello").metadata().unwrap().mode() & 0o7777, 0o755);
        assert_eq!(to.join("etc/key").metadata().unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn files_that_would_fill_the_guest_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let large = File::create(dir.path().join("large")).unwrap();
        large.set_len(97 << 20).unwrap();
        let lab = lab(dir.path(), r#"{ from = "large", to = "/large" }"#);
        let error = format!(
            "{:#}",
            write(&lab.nodes[0], &[], &dir.path().join("files.tar")).unwrap_err()
        );
        assert!(
            error.contains("files may have 96 MiB") && error.ends_with("the files are too large"),
            "{error}"
        );
    }
}
