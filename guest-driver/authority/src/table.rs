//! The peer table of an interface in a file that authority and programs map: index ↔ address, the index of this host in
//! each peer's table, names, and which endpoints are open. One process writes it, all read it, and it outlives its
//! writer.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

use ether::MacAddr;
use mxoe::{
    engine::Peers,
    wire::{HOST_NAME_LEN_MAX, PEER_INDEX_UNKNOWN},
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::{OmxdError, PEERS, lock::own_file};

/// "WFTPEER1": the layout below.
const MAGIC: u64 = u64::from_be_bytes(*b"WFTPEER1");
const WORD_MAGIC: usize = 0;
const WORD_MAC: usize = 1;
const WORD_COUNT: usize = 2;
const WORD_OPEN: usize = 3;
const WORD_DIRECT: usize = 4;
const SLOTS_AT: usize = 8;
/// Words of a slot, two cache lines so that no two slots share one.
const SLOT_WORDS: usize = 16;
const SLOT_MAC: usize = 0;
const SLOT_REVERSE: usize = 1;
/// Even: the name is whole; counts changes.
const SLOT_NAME_VERSION: usize = 2;
const SLOT_NAME: usize = 3;
const NAME_WORDS: usize = HOST_NAME_LEN_MAX / 8;
/// Who had the peer added, other than root: the user's number plus 1.
const SLOT_USER: usize = SLOT_NAME + NAME_WORDS;
const _: () = assert!(SLOT_USER < SLOT_WORDS);
/// After this many reads a name that is being written counts as unknown: its writer may have died in the middle.
const NAME_TRIES: u32 = 10_000;
const WORDS: usize = SLOTS_AT + PEERS as usize * SLOT_WORDS;
const LEN: usize = WORDS * 8;

/// A mapped peer table.
pub struct PeerTable {
    words: NonNull<AtomicU64>,
    file: File,
}

// SAFETY: the mapping belongs to this value, and every access to it is atomic.
unsafe impl Send for PeerTable {}
// SAFETY: as above.
unsafe impl Sync for PeerTable {}

impl PeerTable {
    /// Maps the table for reading, as a program that was given the file.
    ///
    /// # Errors
    /// [`OmxdError::BadTable`], [`OmxdError::Io`].
    pub fn map(file: File) -> Result<Self, OmxdError> {
        let table = Self::map_with(file, ProtFlags::READ)?;
        if table.word(WORD_MAGIC).load(Ordering::Acquire) != MAGIC {
            return Err(bad_table("the file that omxd gave"));
        }
        Ok(table)
    }

    fn map_with(file: File, protection: ProtFlags) -> Result<Self, OmxdError> {
        let len = file.metadata().map_err(OmxdError::io("look at the peer table"))?.len();
        if len != LEN as u64 {
            return Err(bad_table("the file that omxd gave"));
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice, of exactly the file's bytes. The file is only
        // shortened by an authority of another version, for which it must first be unlinked.
        let base = unsafe { mmap(std::ptr::null_mut(), LEN, protection, MapFlags::SHARED, &file, 0) }
            .map_err(OmxdError::io("map the peer table"))?;
        let words = NonNull::new(base.cast()).ok_or_else(|| bad_table("the file that omxd gave"))?;
        Ok(Self { words, file })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < WORDS, "inside the table");
        // SAFETY: inside the mapping, which is aligned to a page and lives as long as `self`; all accesses are atomic.
        unsafe { self.words.add(index).as_ref() }
    }

    fn slot(&self, index: u16, word: usize) -> &AtomicU64 {
        self.word(SLOTS_AT + usize::from(index) * SLOT_WORDS + word)
    }

    /// Returns the interface's own address.
    pub fn own_mac(&self) -> MacAddr {
        mac_of(self.word(WORD_MAC).load(Ordering::Acquire))
    }

    /// Returns the number of peers in the table; their indices are below it.
    pub fn len(&self) -> u16 {
        self.word(WORD_COUNT).load(Ordering::Acquire).min(PEERS.into()) as u16
    }

    /// Whether there is no peer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the address of a peer.
    #[inline]
    pub fn mac(&self, index: u16) -> Option<MacAddr> {
        (index < self.len()).then(|| mac_of(self.slot(index, SLOT_MAC).load(Ordering::Relaxed)))
    }

    /// Returns the index of this host in that peer's table, as the authority knows it.
    #[inline]
    pub fn reverse(&self, index: u16) -> u16 {
        if index >= self.len() {
            return PEER_INDEX_UNKNOWN;
        }
        self.slot(index, SLOT_REVERSE).load(Ordering::Relaxed) as u16
    }

    /// Endpoint numbers that are open, a bit each.
    pub fn open_endpoints(&self) -> u32 {
        self.word(WORD_OPEN).load(Ordering::Acquire) as u32
    }

    /// Returns what the authority wrote last about direct transmit ([`crate::DirectLimit`]).
    #[inline]
    pub fn direct_word(&self) -> u64 {
        self.word(WORD_DIRECT).load(Ordering::Relaxed)
    }

    /// Returns the name of a peer; `None` while it is not known.
    pub fn name(&self, index: u16) -> Option<String> {
        if index >= self.len() {
            return None;
        }
        for _ in 0..NAME_TRIES {
            let before = self.slot(index, SLOT_NAME_VERSION).load(Ordering::Acquire);
            let mut bytes = [0; HOST_NAME_LEN_MAX];
            for (at, chunk) in bytes.chunks_exact_mut(8).enumerate() {
                chunk.copy_from_slice(&self.slot(index, SLOT_NAME + at).load(Ordering::Acquire).to_ne_bytes());
            }
            if before.is_multiple_of(2) && self.slot(index, SLOT_NAME_VERSION).load(Ordering::Acquire) == before {
                let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
                return (len > 0).then(|| String::from_utf8_lossy(&bytes[..len]).into_owned());
            }
            // Its writer is in the middle of a name of 80 bytes.
            std::hint::spin_loop();
        }
        None
    }

    /// Finds the peer with this name.
    pub fn find(&self, name: &str) -> Option<u16> {
        (0..self.len()).find(|index| self.name(*index).as_deref() == Some(name))
    }
}

impl AsFd for PeerTable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for PeerTable {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map_with`; nothing borrowed from it outlives `self`.
        let _ = unsafe { munmap(self.words.as_ptr().cast(), LEN) };
    }
}

/// Whether an address can be a peer's: groups are no peers, and only loopback has no address.
fn is_peer(mac: MacAddr, index: u16) -> bool {
    !mac.is_multicast() && (mac.to_u64() != 0 || index == 0)
}

fn mac_of(value: u64) -> MacAddr {
    let bytes = value.to_be_bytes();
    MacAddr([bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]])
}

fn bad_table(path: impl Into<String>) -> OmxdError {
    OmxdError::BadTable { path: path.into() }
}

/// The peer table as the authority writes it. There is one writer at a time: it locks a file beside the table, whose
/// name ends with `lock`, while it lives.
pub struct PeerTableWriter {
    table: PeerTable,
    lock: File,
    /// For clients: opened for reading only.
    readable: File,
    by_mac: HashMap<MacAddr, u16>,
    fixed: bool,
    /// Peers that may be added until the table has so many.
    limit: u32,
}

impl PeerTableWriter {
    /// Opens the table of the interface with address `own`, or makes it. Peers of an earlier authority keep their indices;
    /// index 0 is the interface itself. `None`: another authority has it.
    ///
    /// # Errors
    /// [`OmxdError::Io`], [`OmxdError::BadTable`].
    pub fn open(path: &Path, own: MacAddr) -> Result<Option<Self>, OmxdError> {
        let Some(lock) = own_file(&path.with_extension("lock"))? else {
            return Ok(None);
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o644);
        let file = options.open(path).map_err(OmxdError::io("open the peer table"))?;
        // Used now: what is old is cleared away first where its namespace is not seen.
        let _ = file.set_modified(SystemTime::now());
        let fresh = file.metadata().map_err(OmxdError::io("look at the peer table"))?.len() == 0;
        if fresh {
            file.set_len(LEN as u64).map_err(OmxdError::io("make the peer table"))?;
        }
        let readable = File::open(path).map_err(OmxdError::io("open the peer table"))?;
        let table = PeerTable::map_with(file, ProtFlags::READ | ProtFlags::WRITE)?;
        let mut writer = Self {
            table,
            lock,
            readable,
            by_mac: HashMap::new(),
            fixed: false,
            limit: PEERS,
        };
        let magic = writer.table.word(WORD_MAGIC).load(Ordering::Acquire);
        if magic != MAGIC && magic != 0 {
            return Err(bad_table(path.display().to_string()));
        }
        // A table that was made for an earlier card with this name says nothing about the present one.
        if magic == 0 || writer.table.own_mac() != own {
            writer.store(WORD_COUNT, 0);
            writer.store(WORD_OPEN, 0);
            writer.store(WORD_MAC, own.to_u64());
            writer.store(WORD_MAGIC, MAGIC);
        }
        for index in 0..writer.table.len() {
            if let Some(mac) = writer.table.mac(index) {
                writer.by_mac.insert(mac, index);
            }
        }
        if let Some(index) = writer.add(own) {
            writer.set_reverse(index, index);
        }
        Ok(Some(writer))
    }

    fn store(&self, word: usize, value: u64) {
        self.table.word(word).store(value, Ordering::Release);
    }

    /// Returns the table for reading.
    pub const fn table(&self) -> &PeerTable {
        &self.table
    }

    /// Returns the file, opened for reading only.
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    /// Returns a file with room for what the next authority of the interface is to know, and other processes are not.
    pub const fn private_file(&self) -> &File {
        &self.lock
    }

    /// Limits the table to so many peers from now on; those that are there stay.
    pub const fn set_limit(&mut self, limit: u32) {
        self.limit = if limit < PEERS { limit } else { PEERS };
    }

    /// Returns how many peers there can be.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns how many peers one user may have added: half of the table, so that one user cannot fill it.
    pub const fn user_limit(&self) -> u32 {
        self.limit / 2
    }

    /// Fixes the table: from now on only [`PeerTableWriter::add`] adds peers.
    pub const fn fix(&mut self) {
        self.fixed = true;
    }

    /// Returns the index of a peer, which is added if it is not there; `None`: the table is full, or the address is a
    /// group's or no address.
    pub fn add(&mut self, mac: MacAddr) -> Option<u16> {
        if let Some(index) = self.by_mac.get(&mac) {
            return Some(*index);
        }
        let index = self.table.len();
        if u32::from(index) >= self.limit || !is_peer(mac, index) {
            return None;
        }
        let slot = |word| self.table.slot(index, word);
        slot(SLOT_MAC).store(mac.to_u64(), Ordering::Relaxed);
        slot(SLOT_REVERSE).store(PEER_INDEX_UNKNOWN.into(), Ordering::Relaxed);
        for word in 0..NAME_WORDS {
            slot(SLOT_NAME + word).store(0, Ordering::Relaxed);
        }
        slot(SLOT_NAME_VERSION).store(0, Ordering::Relaxed);
        slot(SLOT_USER).store(0, Ordering::Relaxed);
        self.store(WORD_COUNT, u64::from(index) + 1);
        self.by_mac.insert(mac, index);
        Some(index)
    }

    /// As [`PeerTableWriter::add`], for a user without rights, who may have added [so
    /// many](PeerTableWriter::user_limit) peers. New ones are added unless the table is fixed.
    pub fn index_or_add_for(&mut self, mac: MacAddr, user: u32) -> Option<u16> {
        if let Some(index) = self.index(mac) {
            return Some(index);
        }
        let tag = u64::from(user) + 1;
        let count = (0..self.table.len())
            .filter(|index| self.table.slot(*index, SLOT_USER).load(Ordering::Relaxed) == tag)
            .count();
        if self.fixed || count >= self.user_limit() as usize {
            return None;
        }
        let index = self.add(mac)?;
        self.table.slot(index, SLOT_USER).store(tag, Ordering::Relaxed);
        Some(index)
    }

    /// Writes what endpoints are to know about direct transmit ([`crate::DirectLimit`]).
    pub fn set_direct_word(&self, word: u64) {
        self.store(WORD_DIRECT, word);
    }

    /// Says which endpoints are open, a bit each.
    pub fn set_open_endpoints(&self, open: u32) {
        self.store(WORD_OPEN, open.into());
    }

    /// Gives a peer a name; what is beyond 79 bytes is cut.
    pub fn set_name(&self, index: u16, name: &[u8]) {
        if index >= self.table.len() {
            return;
        }
        let mut bytes = [0; NAME_WORDS * 8];
        let len = name.len().min(HOST_NAME_LEN_MAX - 1);
        bytes[..len].copy_from_slice(&name[..len]);
        // Names come from other hosts and are shown on terminals.
        for at in 0..len {
            let next = bytes.get(at + 1).copied().unwrap_or(0);
            if bytes[at].is_ascii_control() && bytes[at] != 0 {
                bytes[at] = b'?';
            } else if bytes[at] == 0xc2 && (0x80..0xa0).contains(&next) {
                // Those beyond ASCII, in UTF-8.
                bytes[at..at + 2].fill(b'?');
            }
        }
        let version = self.table.slot(index, SLOT_NAME_VERSION);
        // Odd until the name is whole, also when a writer died in the middle of one.
        let odd = version.load(Ordering::Relaxed) | 1;
        version.store(odd, Ordering::SeqCst);
        for (at, chunk) in bytes.chunks_exact(8).enumerate() {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            let word = u64::from_ne_bytes(word);
            self.table.slot(index, SLOT_NAME + at).store(word, Ordering::SeqCst);
        }
        version.store(odd.wrapping_add(1), Ordering::SeqCst);
    }
}

impl Peers for PeerTableWriter {
    fn mac(&self, index: u16) -> Option<MacAddr> {
        self.table.mac(index)
    }

    fn index(&self, mac: MacAddr) -> Option<u16> {
        self.by_mac.get(&mac).copied()
    }

    fn index_or_add(&mut self, mac: MacAddr) -> Option<u16> {
        if self.fixed { self.index(mac) } else { self.add(mac) }
    }

    fn reverse(&self, index: u16) -> u16 {
        self.table.reverse(index)
    }

    fn set_reverse(&mut self, index: u16, reverse: u16) {
        if index < self.table.len() {
            self.table
                .slot(index, SLOT_REVERSE)
                .store(reverse.into(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    #[test]
    fn indices_and_names_outlive_the_authority_and_readers_see_changes_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("peers");
        let mut writer = PeerTableWriter::open(&path, OWN).unwrap().unwrap();
        assert!(
            PeerTableWriter::open(&path, OWN).unwrap().is_none(),
            "one authority at a time"
        );
        assert_eq!(writer.index(OWN), Some(0));
        let reader = PeerTable::map(File::open(&path).unwrap()).unwrap();
        assert_eq!(writer.index_or_add(PEER), Some(1));
        writer.set_reverse(1, 77);
        writer.set_name(1, b"node:0");
        writer.set_open_endpoints(5);
        assert_eq!((reader.mac(1), reader.reverse(1)), (Some(PEER), 77));
        assert_eq!((reader.find("node:0"), reader.find("other")), (Some(1), None));
        assert_eq!(
            (reader.mac(2), reader.reverse(2), reader.name(0)),
            (None, PEER_INDEX_UNKNOWN, None)
        );
        // As it may come from anywhere, and go to a terminal.
        writer.set_name(0, "a\nb\x1b[31m\x7f\u{9b}\u{e4}".as_bytes());
        assert_eq!(reader.name(0).as_deref(), Some("a?b?[31m???\u{e4}"));
        drop(writer);
        let mut again = PeerTableWriter::open(&path, OWN).unwrap().unwrap();
        assert_eq!((again.index_or_add(PEER), again.reverse(1)), (Some(1), 77));
        assert_eq!(again.table().open_endpoints(), 5);
        drop(again);
        let other_card = PeerTableWriter::open(&path, PEER).unwrap().unwrap();
        assert_eq!(
            (other_card.index(PEER), other_card.table().open_endpoints()),
            (Some(0), 0)
        );
    }

    #[test]
    fn the_table_is_full_at_its_limit_and_takes_no_group_addresses() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = PeerTableWriter::open(&dir.path().join("peers"), OWN).unwrap().unwrap();
        assert_eq!(writer.index_or_add(MacAddr::BROADCAST), None);
        for n in 1..PEERS {
            let bytes = n.to_be_bytes();
            assert!(
                writer
                    .index_or_add(MacAddr([2, 1, bytes[0], bytes[1], bytes[2], bytes[3]]))
                    .is_some()
            );
        }
        assert_eq!(writer.index_or_add(PEER), None);
    }

    #[test]
    fn a_fixed_table_takes_only_what_is_put_in_on_purpose() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = PeerTableWriter::open(&dir.path().join("peers"), OWN).unwrap().unwrap();
        writer.fix();
        assert_eq!((writer.index_or_add(OWN), writer.index_or_add(PEER)), (Some(0), None));
        assert_eq!((writer.add(PEER), writer.index_or_add(PEER)), (Some(1), Some(1)));
    }

    #[test]
    fn a_file_of_another_kind_is_refused_in_a_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("peers");
        std::fs::write(&path, vec![b'x'; LEN]).unwrap();
        let Err(error) = PeerTableWriter::open(&path, OWN) else {
            panic!("taken")
        };
        assert!(error.to_string().contains("is not a peer table"), "{error}");
        std::fs::write(&path, b"short").unwrap();
        assert!(PeerTableWriter::open(&path, OWN).is_err());
    }

    #[test]
    fn no_address_is_no_peer_and_a_user_adds_half_of_the_table() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("peers");
        let mut writer = PeerTableWriter::open(&path, OWN).unwrap().unwrap();
        assert_eq!((writer.add(MacAddr([0; 6])), writer.table().len()), (None, 1));
        let mac = |number: u32| {
            MacAddr(
                (0x0200_0077_0000 + u64::from(number)).to_be_bytes()[2..]
                    .try_into()
                    .unwrap(),
            )
        };
        let most = writer.user_limit();
        for number in 0..most / 2 {
            assert!(writer.index_or_add_for(mac(number), 1000).is_some());
        }
        // Also after another authority took over.
        drop(writer);
        let mut writer = PeerTableWriter::open(&path, OWN).unwrap().unwrap();
        for number in most / 2..most {
            assert!(writer.index_or_add_for(mac(number), 1000).is_some());
        }
        assert_eq!(writer.index_or_add_for(mac(most), 1000), None);
        assert_eq!(
            writer.index_or_add_for(mac(3), 1000),
            Some(4),
            "what is there is no addition"
        );
        assert!(writer.index_or_add_for(mac(most), 1001).is_some());
        assert!(writer.index_or_add(mac(most + 1)).is_some());
        drop(writer);
        // Loopback has no address, and a table all the same.
        let own = PeerTableWriter::open(&dir.path().join("lo"), MacAddr([0; 6]))
            .unwrap()
            .unwrap();
        assert_eq!(own.index(MacAddr([0; 6])), Some(0));
    }
}
