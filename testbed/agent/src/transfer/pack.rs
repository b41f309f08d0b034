//! Packs a file or directory as a tar stream, in which each header says how many bytes follow before they are read. So
//! a file that changes meanwhile is cut or padded to that length; it never breaks the stream.

use std::fs::{self, File, FileType, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};

use super::{ROOT, at};

/// Size up to which files are read before their header is written, as attributes in /sys are shorter than they claim.
const READ_FIRST_MAX: u64 = 64 << 10;

/// Number of bytes read at most of a file that claims to be empty, as those in /proc do: all of it waits in memory.
const UNSIZED_MAX: u64 = 16 << 20;

/// Writes `path` (a file, or a directory with everything below it) as an archive. Permission bits, times, holes and symbolic
/// links are kept; owners are not; sockets, pipes and devices in a directory are left out. A file that grows meanwhile is
/// cut at its size at the start. Returns a sentence about files that became shorter and were filled up with zeros.
///
/// # Errors
/// When something cannot be read, with the path, `path` itself is no file or directory, or the writer fails.
pub fn pack(path: &Path, writer: impl Write) -> io::Result<Option<String>> {
    let mut archive = tar::Builder::new(writer);
    archive.follow_symlinks(false);
    // What the user names is copied itself, also when the name is a link.
    let real = fs::canonicalize(path).map_err(|error| at(path, &error))?;
    if let Some(what) = uncopied(fs::metadata(&real).map_err(|error| at(path, &error))?.file_type()) {
        return Err(io::Error::other(format!(
            "{} is a {what}: only files and directories are copied",
            path.display()
        )));
    }
    let (mut shorter, mut first_shorter) = (0_u64, None);
    let mut waiting = vec![(real, PathBuf::from(ROOT))];
    while let Some((place, name)) = waiting.pop() {
        let cannot = |error: io::Error| at(&place, &error);
        let found = fs::symlink_metadata(&place).map_err(cannot)?;
        if found.is_file() {
            if add_file(&mut archive, &place, &name).map_err(cannot)? {
                shorter += 1;
                first_shorter.get_or_insert(place);
            }
        } else if uncopied(found.file_type()).is_none() {
            archive.append_path_with_name(&place, &name).map_err(cannot)?;
            if found.is_dir() {
                for entry in fs::read_dir(&place).map_err(cannot)? {
                    let entry = entry.map_err(cannot)?;
                    waiting.push((entry.path(), name.join(entry.file_name())));
                }
            }
        }
    }
    archive.into_inner()?.flush()?;
    Ok(first_shorter.map(|first| {
        let others = match shorter - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        format!(
            "{}{others} became shorter while it was copied: the copy is filled up with zeros",
            first.display()
        )
    }))
}

/// Names the type of a file that is not copied.
fn uncopied(kind: FileType) -> Option<&'static str> {
    if kind.is_char_device() || kind.is_block_device() {
        Some("device")
    } else if kind.is_fifo() {
        Some("pipe")
    } else if kind.is_socket() {
        Some("socket")
    } else {
        None
    }
}

/// Adds one file; returns true when it became shorter meanwhile.
fn add_file(archive: &mut tar::Builder<impl Write>, place: &Path, name: &Path) -> io::Result<bool> {
    let mut file = File::open(place)?;
    let found = file.metadata()?;
    let size = found.size();
    if size <= READ_FIRST_MAX {
        let most = if size == 0 { UNSIZED_MAX } else { size };
        let mut bytes = Vec::new();
        (&file).take(most).read_to_end(&mut bytes)?;
        if size == 0 && bytes.len() as u64 == most && file.read(&mut [0])? > 0 {
            let most = UNSIZED_MAX >> 20;
            return Err(io::Error::other(format!(
                "it says that it is empty and has more than {most} MiB"
            )));
        }
        add(archive, &found, name, bytes.len() as u64, bytes.as_slice())?;
        return Ok(false);
    }
    // A file with holes has fewer blocks than bytes, and its holes need not be sent.
    if found.blocks() * 512 < size && seek(&file, SeekFrom::Hole(0)).is_ok_and(|hole| hole < size) {
        seek(&file, SeekFrom::Start(0))?;
        archive.append_file(name, &mut file)?;
        if file.metadata()?.size() < size {
            return Err(io::Error::other("it became shorter while it was copied"));
        }
        return Ok(false);
    }
    seek(&file, SeekFrom::Start(0))?;
    let mut exactly = Exactly {
        file,
        left: size,
        ended: false,
    };
    add(archive, &found, name, size, &mut exactly)?;
    Ok(exactly.ended)
}

fn add(
    archive: &mut tar::Builder<impl Write>,
    found: &Metadata,
    name: &Path,
    size: u64,
    bytes: impl Read,
) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_metadata(found);
    header.set_size(size);
    archive.append_data(&mut header, name, bytes)
}

/// A reader of exactly so many bytes: the file's, then zeros.
struct Exactly<R> {
    file: R,
    left: u64,
    /// Whether the file had fewer bytes.
    ended: bool,
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = &mut buffer[..wanted];
        let mut length = if self.ended { 0 } else { self.file.read(buffer)? };
        if length == 0 && wanted > 0 {
            self.ended = true;
            buffer.fill(0);
            length = wanted;
        }
        self.left -= length as u64;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::super::unpack;
    use super::*;

    fn copy(from: &Path, to: &Path) -> io::Result<Option<String>> {
        let mut archive = Vec::new();
        let note = pack(from, &mut archive)?;
        unpack(archive.as_slice(), to, "copy")?;
        Ok(note)
    }

    #[test]
    fn files_that_do_not_say_how_long_they_are_are_copied_whole() {
        let dir = tempfile::tempdir().unwrap();
        let copied = dir.path().join("copied");
        assert_eq!(fs::metadata("/proc/filesystems").unwrap().size(), 0);
        assert_eq!(copy(Path::new("/proc/filesystems"), &copied).unwrap(), None);
        assert_eq!(fs::read(&copied).unwrap(), fs::read("/proc/filesystems").unwrap());
        // The attribute claims to have 4096 bytes.
        let attribute = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
        if attribute.exists() {
            assert_eq!(copy(attribute, &copied).unwrap(), None);
            assert_eq!(fs::read(&copied).unwrap(), fs::read(attribute).unwrap());
        }
    }

    /// A writer that changes the packed file as soon as the first bytes are out.
    struct Meanwhile<F> {
        bytes: Vec<u8>,
        change: Option<F>,
    }

    impl<F: FnOnce()> Write for Meanwhile<F> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.bytes.extend(bytes);
            if let Some(change) = self.change.take() {
                change();
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn changed(content: &[u8], change: impl FnOnce(&Path)) -> (Option<String>, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::write(&from, content).unwrap();
        let mut archive = Meanwhile {
            bytes: Vec::new(),
            change: Some(|| change(&from)),
        };
        let note = pack(&from, &mut archive).unwrap();
        unpack(archive.bytes.as_slice(), &to, "to").unwrap();
        (note, fs::read(to).unwrap())
    }

    #[test]
    fn a_file_that_grows_is_cut_at_its_size_at_the_start() {
        let content = vec![7; 300_000];
        let (note, copied) = changed(&content, |file| {
            let mut file = File::options().append(true).open(file).unwrap();
            file.write_all(&[8; 100_000]).unwrap();
        });
        assert_eq!(note, None);
        assert!(copied == content);
    }

    #[test]
    fn a_file_that_becomes_shorter_is_filled_up_and_reported() {
        let content = vec![7; 300_000];
        let (note, copied) = changed(&content, |file| {
            File::options().write(true).open(file).unwrap().set_len(1000).unwrap();
        });
        let note = note.expect("it is reported");
        assert!(
            note.ends_with("/from became shorter while it was copied: the copy is filled up with zeros"),
            "{note}"
        );
        assert_eq!(copied.len(), content.len());
        assert!(copied.starts_with(&[7; 1000]) && copied[1000..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn holes_are_not_sent_and_come_out_as_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let mut file = File::create(&from).unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        file.set_len(50_000_000).unwrap();
        let mut archive = Vec::new();
        assert_eq!(pack(&from, &mut archive).unwrap(), None);
        assert!(archive.len() < 1_000_000, "{}", archive.len());
        unpack(archive.as_slice(), &to, "to").unwrap();
        assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap());
    }

    #[test]
    fn devices_are_refused_by_name_and_left_out_of_directories() {
        let error = pack(Path::new("/dev/zero"), io::sink()).unwrap_err().to_string();
        assert_eq!(error, "/dev/zero is a device: only files and directories are copied");
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        fs::create_dir(&from).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
        let deep = from.join("d".repeat(200));
        fs::create_dir(&deep).unwrap();
        fs::write(deep.join("file"), "content").unwrap();
        copy(&from, &dir.path().join("to")).unwrap();
        let copied = dir.path().join("to");
        assert_eq!(fs::read_dir(&copied).unwrap().count(), 1);
        assert_eq!(
            fs::read_to_string(copied.join("d".repeat(200)).join("file")).unwrap(),
            "content"
        );
    }
}
