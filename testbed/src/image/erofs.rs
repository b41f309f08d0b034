//! Writes a file tree as an EROFS image, Linux' read-only file system, uncompressed: a guest under TCG reads faster
//! than it unpacks, and what it never reads costs it nothing. Equal trees give equal bytes.
//!
//! The layout is a superblock, then an inode of 64 bytes' room for each entry (compact form), then the data of each in
//! whole blocks.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::tree::{Contents, Entry};

const BLOCK_LEN: u64 = 4096;
const SUPERBLOCK_OFFSET: u64 = 1024;
const SUPERBLOCK_LEN: usize = 128;
const MAGIC: u32 = 0xe0f5_e1e2;
/// Unit in which the number of an inode gives its place.
const SLOT_LEN: u64 = 32;
const DIRENT_LEN: usize = 12;
/// File types in directory entries, by the kind in a mode.
const TYPES: [(u32, u8); 3] = [(0o100_000, 1), (0o040_000, 2), (0o120_000, 7)];
const KIND: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;

/// An entry with its place in the image.
struct Node<'a> {
    entry: &'a Entry,
    /// Number of the inode.
    number: u64,
    parent: u64,
    children: Vec<(&'a str, u64, u32)>,
    len: u64,
    first_block: u64,
}

/// Writes `entries`, by path without a leading slash, each behind its directory, with a root directory around them.
pub(super) fn write(entries: &BTreeMap<String, Entry>, path: &Path) -> io::Result<()> {
    let root = Entry::directory();
    let mut nodes = vec![Node::new(&root, 0)];
    let mut index_of: BTreeMap<&str, usize> = BTreeMap::from([("", 0)]);
    for (number, (path, entry)) in (1..).zip(entries) {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = *index_of.get(parent).ok_or(io::ErrorKind::NotFound)?;
        nodes[parent].children.push((name, number, entry.mode));
        index_of.insert(path, nodes.len());
        let mut node = Node::new(entry, number);
        node.parent = parent as u64;
        nodes.push(node);
    }
    // Inodes begin in block 1.
    let mut block = 1 + (nodes.len() as u64 * SLOT_LEN).div_ceil(BLOCK_LEN);
    for node in &mut nodes {
        node.len = match &node.entry.contents {
            _ if node.entry.mode & KIND == DIRECTORY => directory(node).len() as u64,
            Contents::Bytes(bytes) => bytes.len() as u64,
            Contents::File(path) => path.metadata()?.len(),
        };
        node.first_block = block;
        block += node.len.div_ceil(BLOCK_LEN);
    }
    let mut out = BufWriter::new(File::create(path)?);
    out.seek(SeekFrom::Start(SUPERBLOCK_OFFSET))?;
    out.write_all(&superblock(nodes.len() as u64, block)?)?;
    out.seek(SeekFrom::Start(BLOCK_LEN))?;
    for node in &nodes {
        out.write_all(&node.inode()?)?;
    }
    for node in &nodes {
        out.seek(SeekFrom::Start(node.first_block * BLOCK_LEN))?;
        match &node.entry.contents {
            _ if node.entry.mode & KIND == DIRECTORY => out.write_all(&directory(node))?,
            Contents::Bytes(bytes) => out.write_all(bytes)?,
            Contents::File(path) => _ = io::copy(&mut File::open(path)?.take(node.len), &mut out)?,
        }
    }
    out.flush()?;
    out.get_ref().set_len(block * BLOCK_LEN)
}

impl<'a> Node<'a> {
    fn new(entry: &'a Entry, number: u64) -> Self {
        Self {
            entry,
            number,
            parent: 0,
            children: Vec::new(),
            len: 0,
            first_block: 0,
        }
    }

    /// Encodes the inode in compact form, with data in whole blocks, owned by root.
    fn inode(&self) -> io::Result<[u8; SLOT_LEN as usize]> {
        let mut inode = [0; SLOT_LEN as usize];
        let too_large = |_| io::Error::from(io::ErrorKind::FileTooLarge);
        let subdirectories = self
            .children
            .iter()
            .filter(|(.., mode)| mode & KIND == DIRECTORY)
            .count();
        let links = if self.entry.mode & KIND == DIRECTORY {
            2 + subdirectories
        } else {
            1
        };
        let [mode, links] = [self.entry.mode as usize, links].map(u16::try_from);
        put(&mut inode, 4, &mode.map_err(too_large)?.to_le_bytes());
        put(&mut inode, 6, &links.map_err(too_large)?.to_le_bytes());
        for (at, value) in [(8, self.len), (16, self.first_block), (20, self.number + 1)] {
            put(&mut inode, at, &u32::try_from(value).map_err(too_large)?.to_le_bytes());
        }
        Ok(inode)
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn superblock(inodes: u64, blocks: u64) -> io::Result<[u8; SUPERBLOCK_LEN]> {
    let mut block = [0; SUPERBLOCK_LEN];
    let blocks = u32::try_from(blocks).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    put(&mut block, 0, &MAGIC.to_le_bytes());
    // Blocks have 2^12 bytes; the root directory is inode 0; inodes begin in block 1.
    block[12] = 12;
    put(&mut block, 16, &inodes.to_le_bytes());
    put(&mut block, 36, &blocks.to_le_bytes());
    put(&mut block, 40, &1_u32.to_le_bytes());
    Ok(block)
}

/// Encodes the contents of a directory: blocks of entries, in the order of their names, each followed by the names.
fn directory(node: &Node<'_>) -> Vec<u8> {
    let mut entries = vec![(".", node.number, DIRECTORY), ("..", node.parent, DIRECTORY)];
    entries.extend(&node.children);
    entries.sort_unstable_by_key(|(name, ..)| name.as_bytes());
    let mut out = Vec::new();
    let mut rest = entries.as_slice();
    while !rest.is_empty() {
        let mut len = 0;
        let count = rest
            .iter()
            .take_while(|(name, ..)| {
                len += DIRENT_LEN + name.len();
                len <= BLOCK_LEN as usize
            })
            .count();
        let (now, later) = rest.split_at(count);
        let begin = out.len();
        let mut name_offset = count * DIRENT_LEN;
        for (name, number, mode) in now {
            let kind = TYPES
                .iter()
                .find(|(kind, _)| *kind == mode & KIND)
                .map_or(0, |(_, kind)| *kind);
            out.extend(number.to_le_bytes());
            out.extend(u16::try_from(name_offset).unwrap_or(u16::MAX).to_le_bytes());
            out.extend([kind, 0]);
            name_offset += name.len();
        }
        for (name, ..) in now {
            out.extend(name.as_bytes());
        }
        if !later.is_empty() {
            out.resize(begin + BLOCK_LEN as usize, 0);
        }
        rest = later;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
        (0..len).map(|byte| u64::from(bytes[at + byte]) << (8 * byte)).sum()
    }

    /// Looks a path up as the kernel does, and returns mode and contents.
    fn look_up(image: &[u8], path: &str) -> Option<(u32, Vec<u8>)> {
        let inode = |nid: u64| {
            let at = (BLOCK_LEN + nid * SLOT_LEN) as usize;
            let (mode, len) = (number(image, at + 4, 2) as u32, number(image, at + 8, 4) as usize);
            let begin = number(image, at + 16, 4) as usize * BLOCK_LEN as usize;
            (mode, image[begin..begin + len].to_vec())
        };
        let mut found = inode(0);
        for name in path.split('/') {
            let mut next = None;
            for block in found.1.chunks(BLOCK_LEN as usize) {
                let count = number(block, 8, 2) as usize / DIRENT_LEN;
                let offset = |entry: usize| number(block, entry * DIRENT_LEN + 8, 2) as usize;
                for entry in 0..count {
                    let end = if entry + 1 < count {
                        offset(entry + 1)
                    } else {
                        block.len()
                    };
                    let have = &block[offset(entry)..end];
                    let have = have.split(|byte| *byte == 0).next().unwrap_or_default();
                    if have == name.as_bytes() {
                        next = Some(number(block, entry * DIRENT_LEN, 8));
                    }
                }
            }
            found = inode(next?);
        }
        Some(found)
    }

    #[test]
    fn everything_is_found_again_with_its_contents() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        std::fs::write(&from, vec![9; 10_000]).unwrap();
        let file = |contents| Entry {
            mode: 0o100_755,
            contents,
        };
        let mut entries = BTreeMap::from([
            ("a".to_owned(), Entry::directory()),
            ("a/b".to_owned(), file(Contents::File(from))),
            ("a/empty".to_owned(), file(Contents::Bytes(Vec::new()))),
            (
                "link".to_owned(),
                Entry {
                    mode: 0o120_777,
                    contents: Contents::Bytes(b"a/b".to_vec()),
                },
            ),
            ("many".to_owned(), Entry::directory()),
        ]);
        for index in 0..500 {
            entries.insert(
                format!("many/name-{index}"),
                file(Contents::Bytes(vec![index as u8; 3])),
            );
        }
        let path = dir.path().join("image");
        write(&entries, &path).unwrap();
        let image = std::fs::read(&path).unwrap();
        assert_eq!(number(&image, 1024, 4), u64::from(MAGIC));
        assert_eq!(look_up(&image, "a/b").unwrap(), (0o100_755, vec![9; 10_000]));
        assert_eq!(look_up(&image, "a/empty").unwrap().1, b"");
        assert_eq!(look_up(&image, "link").unwrap(), (0o120_777, b"a/b".to_vec()));
        for index in 0..500 {
            let found = look_up(&image, &format!("many/name-{index}")).unwrap();
            assert_eq!(found.1, [index as u8; 3], "{index}");
        }
        assert_eq!(look_up(&image, "a/../many/name-7").unwrap().1, [7; 3]);
        assert!(look_up(&image, "none").is_none());
    }
}
