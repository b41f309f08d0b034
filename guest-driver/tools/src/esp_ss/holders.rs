//! Which programs have which sockets, as the kernel lists their descriptors: root sees all, others their own.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

/// A program that has a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Holder {
    /// Its name.
    pub(super) name: String,
    /// Its number.
    pub(super) pid: u32,
    /// The lowest number that it has for the socket, if that is known: higher ones may be those of ESP's library.
    pub(super) fd: Option<u32>,
}

/// The holders of sockets, by the sockets' numbers.
#[derive(Debug, Default)]
pub(super) struct Holders {
    by_socket: HashMap<u64, Vec<Holder>>,
    are_known: bool,
}

fn number(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.parse().ok()
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

fn name_of(process: &Path) -> Option<String> {
    Some(fs::read_to_string(process.join("comm")).ok()?.trim_end().to_owned())
}

impl Holders {
    /// Looks at all programs that this one may look at. Those that end meanwhile are left out.
    pub(super) fn of_this_host() -> Self {
        let mut holders = Self {
            are_known: true,
            ..Self::default()
        };
        for process in entries(Path::new("/proc")) {
            if let Some(pid) = number(&process) {
                holders.look_at(&process, pid);
            }
        }
        for found in holders.by_socket.values_mut() {
            found.sort_by_key(|holder| (holder.pid, holder.fd));
            found.dedup_by_key(|holder| holder.pid);
        }
        holders
    }

    fn look_at(&mut self, process: &Path, pid: u32) {
        let mut name = None;
        for link in entries(&process.join("fd")) {
            let Some(socket) = socket_of(&link) else { continue };
            let name = name.get_or_insert_with(|| name_of(process).unwrap_or_default());
            self.by_socket.entry(socket).or_default().push(Holder {
                name: name.clone(),
                pid,
                fd: number(&link),
            });
        }
    }

    /// Returns who has a socket; `None` where that is not asked for.
    pub(super) fn of(&self, socket: u64) -> Option<Vec<Holder>> {
        let found = self.by_socket.get(&socket).filter(|_| socket != 0);
        self.are_known.then(|| found.cloned().unwrap_or_default())
    }

    /// Returns a program as one that has a socket, if this one may look at it; `None` where that is not asked for.
    pub(super) fn program(&self, pid: u32) -> Option<Vec<Holder>> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let may_look = || fs::read_dir(process.join("fd")).is_ok();
        let name = || name_of(&process).filter(|_| may_look());
        self.are_known.then(|| {
            let holder = name().map(|name| Holder { name, pid, fd: None });
            holder.into_iter().collect()
        })
    }
}

fn socket_of(link: &Path) -> Option<u64> {
    let target = fs::read_link(link).ok()?;
    target
        .to_str()?
        .strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use std::{
        os::{fd::AsRawFd, unix::net::UnixStream},
        process,
    };

    use super::*;

    #[test]
    fn a_socket_is_found_at_the_program_that_has_it() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let inode = rustix::fs::fstat(&socket).unwrap().st_ino;
        // Of several numbers, as the library has one of its own, the lowest is shown.
        let copy = socket.try_clone().unwrap();
        let lowest = socket.as_raw_fd().min(copy.as_raw_fd());
        let holders = Holders::of_this_host();
        let found = holders.of(inode).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].pid, found[0].fd), (process::id(), Some(lowest as u32)));
        assert_eq!(holders.program(process::id()).unwrap()[0].name, found[0].name);
        assert_eq!(holders.of(0), Some(Vec::new()));
        assert_eq!(holders.program(u32::MAX), Some(Vec::new()));
        assert_eq!(Holders::default().of(inode), None);
    }
}
