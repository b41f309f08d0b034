//! Stale-file cleanup: an authority that starts removes the files of authorities of interfaces that do not exist any more and, beyond
//! a limit, of network namespaces without a process. Files that another authority has locked are never touched.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashSet},
    ffi::OsStr,
    fs,
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use netif::{Interface, NetifError};
use weft_authority::{Place, own_file};

/// At most this many files are checked: far more than a host has interfaces. Further ones are checked by a later start.
const FILES_MAX: usize = 4096;
/// This many interfaces of namespaces without a visible process keep their files, 128 KiB each, the newest ones. Such a
/// namespace may still be in use, by a process that cannot be inspected, and its next authority finds its peers under
/// their old numbers.
const UNSEEN_MAX: usize = 16;

/// Removes the files beside `own` that no authority and no program needs any more.
pub(crate) fn clear(own: &Place) {
    let Ok(entries) = fs::read_dir(own.dir()) else { return };
    let names = entries
        .take(FILES_MAX)
        .filter_map(|entry| named(&entry.ok()?.file_name()));
    let others: BTreeSet<_> = names.filter(|other| other.base() != own.base()).collect();
    let is_gone = |other: &Other| {
        let found = Interface::find_by_index(other.index);
        matches!(found, Err(NetifError::NoSuchInterface { .. }))
    };
    let (here, elsewhere): (Vec<_>, Vec<_>) = others.into_iter().partition(|other| other.namespace == own.namespace());
    let living = living_namespaces();
    let mut unseen: Vec<_> = elsewhere
        .into_iter()
        .filter(|other| !living.contains(&other.namespace))
        .collect();
    // Without a table: of one that was killed before it had anything.
    unseen.sort_by_cached_key(|other| {
        Reverse(
            fs::metadata(other.file(own.dir(), "peers"))
                .and_then(|of| of.modified())
                .ok(),
        )
    });
    let cleared = here
        .iter()
        .filter(|other| is_gone(other))
        .chain(unseen.iter().skip(UNSEEN_MAX))
        .filter(|other| remove(own.dir(), other))
        .count();
    if cleared > 0 {
        tracing::info!("cleared away the files of {cleared} interfaces that do not exist any more");
    }
}

/// The place of another interface.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Other {
    namespace: u64,
    index: i32,
}

impl Other {
    fn base(&self) -> String {
        Place::base_of(self.namespace, self.index)
    }

    fn file(&self, dir: &Path, kind: &str) -> PathBuf {
        dir.join(format!("{}.{kind}", self.base()))
    }
}

/// Reads from a file's name which interface it belongs to.
fn named(file: &OsStr) -> Option<Other> {
    let (base, _) = file.to_str()?.split_once('.')?;
    let (namespace, index) = base.strip_prefix("net-")?.split_once("-if-")?;
    Some(Other {
        namespace: namespace.parse().ok()?,
        index: index.parse().ok()?,
    })
}

/// Removes the files of an interface. False: an authority still serves it.
fn remove(dir: &Path, other: &Other) -> bool {
    let Ok(Some(_locked)) = own_file(&other.file(dir, "lock")) else {
        return false;
    };
    // The lock last.
    for kind in Place::KINDS {
        match fs::remove_file(other.file(dir, kind)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return false,
            _ => {}
        }
    }
    true
}

/// Lists the network namespaces that some process is seen in, or that have a name.
fn living_namespaces() -> HashSet<u64> {
    let processes = fs::read_dir("/proc").into_iter().flatten();
    let namespaces = processes.filter_map(|process| {
        let namespace = fs::metadata(process.ok()?.path().join("ns/net"));
        Some(namespace.ok()?.ino())
    });
    // A name is a mount of the namespace's file: `… net:[4026532179] /run/netns/name …`.
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let named = mounts
        .split_ascii_whitespace()
        .filter_map(|word| word.strip_prefix("net:[")?.strip_suffix(']')?.parse::<u64>().ok());
    namespaces.chain(named).collect()
}
