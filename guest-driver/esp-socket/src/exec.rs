//! Starting another program in this process. Connections whose descriptors stay open go to a keeper, and the new program is told which
//! ones they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CStr, CString, OsStr, c_char, c_int},
    net::SocketAddr,
    os::{fd::RawFd, unix::ffi::OsStrExt},
    path::Path,
    ptr,
    sync::Arc,
};

use crate::{
    address::RawAddress,
    descriptors, keeper,
    passed::Passed,
    settings,
    table::{self, Entry},
};

/// The variable that tells a program which of its descriptors a keeper serves: `NUMBER=OWN=PEER`, with commas between.
const VARIABLE: &str = "ESP_PASSED";

/// An environment for the new program.
pub struct Environment {
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Environment {
    /// Returns it as `execve(2)` wants it.
    pub fn pointer(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// Gives connections that outlive `exec` to keepers, and returns the environment of the new program.
///
/// # Safety
/// `environment` is one, or null.
pub unsafe fn prepare(environment: *const *const c_char) -> Environment {
    let mut passed = Vec::new();
    for (fd, entry) in table::known() {
        if descriptors::is_closed_by_exec(fd) {
            continue;
        }
        if let Entry::Stream(stream) = entry {
            if !stream.is_settled() && fd > 2 {
                // Another process may have it, and in all likelihood this one only left it open.
                continue;
            }
            if let Some(stream) = table::stream(fd) {
                keeper::pass(&stream);
            }
        }
        if let Some(Entry::Passed(known)) = table::get(fd) {
            passed.push((fd, known));
        }
    }
    // SAFETY: the caller's promise.
    unsafe { describing(&passed, environment) }
}

/// What a program has done to the descriptors of one that it is about to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A number becomes a copy of another one.
    Copied {
        /// The number that is copied.
        from: RawFd,
        /// The number that it is copied to.
        to: RawFd,
    },
    /// A number is closed, or becomes something else.
    Replaced(RawFd),
}

/// Says which descriptors of this process a new one gets, by their numbers there: its input and outputs, and those that `changes` name.
/// Others it only has because this process left them open.
fn given(changes: &[Change], is_inherited: impl Fn(RawFd) -> bool) -> BTreeMap<RawFd, RawFd> {
    let outputs = (0..=2).filter(|fd| is_inherited(*fd));
    let mut given: BTreeMap<RawFd, RawFd> = outputs.map(|fd| (fd, fd)).collect();
    let mut changed = BTreeSet::new();
    for change in changes {
        match *change {
            Change::Copied { from, to } => {
                let source = given
                    .get(&from)
                    .copied()
                    .or_else(|| (!changed.contains(&from)).then_some(from));
                changed.insert(to);
                match source {
                    Some(source) => given.insert(to, source),
                    None => given.remove(&to),
                };
            }
            Change::Replaced(fd) => {
                changed.insert(fd);
                given.remove(&fd);
            }
        }
    }
    given
}

/// Gives connections that a new process gets to keepers, which serve both processes; returns the environment of the new one.
///
/// # Safety
/// `environment` is one, or null.
pub unsafe fn prepare_child(environment: *const *const c_char, changes: &[Change]) -> Environment {
    let mut passed = BTreeMap::new();
    for (fd, entry) in table::known() {
        if let Entry::Passed(known) = entry
            && !descriptors::is_closed_by_exec(fd)
        {
            passed.insert(fd, known);
        }
    }
    for change in changes {
        let (Change::Copied { to: fd, .. } | Change::Replaced(fd)) = change;
        passed.remove(fd);
    }
    for (there, here) in given(changes, |fd| !descriptors::is_closed_by_exec(fd)) {
        if let Some(stream) = table::stream(here) {
            keeper::pass(&stream);
        }
        if let Some(Entry::Passed(known)) = table::get(here) {
            passed.insert(there, known);
        }
    }
    let passed: Vec<_> = passed.into_iter().collect();
    // SAFETY: the caller's promise.
    unsafe { describing(&passed, environment) }
}

/// Returns an environment that describes these descriptors.
///
/// # Safety
/// `environment` is one, or null.
unsafe fn describing(passed: &[(RawFd, Arc<Passed>)], environment: *const *const c_char) -> Environment {
    // SAFETY: the caller's promise.
    let mut texts: Vec<CString> = unsafe { strings(environment) };
    texts.retain(|text| !text.as_bytes().starts_with(format!("{VARIABLE}=").as_bytes()));
    if !passed.is_empty() {
        let list: Vec<_> = passed.iter().filter_map(|(fd, passed)| describe(*fd, passed)).collect();
        texts.extend(CString::new(format!("{VARIABLE}={}", list.join(","))));
    }
    let pointers = texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
    Environment {
        _texts: texts,
        pointers,
    }
}

/// # Safety
/// `texts` is a list of C strings with a null at its end, or null.
unsafe fn strings(texts: *const *const c_char) -> Vec<CString> {
    let mut all = Vec::new();
    if texts.is_null() {
        return all;
    }
    for at in 0.. {
        // SAFETY: the caller's promise.
        let text = unsafe { *texts.add(at) };
        if text.is_null() {
            break;
        }
        // SAFETY: as above.
        all.push(unsafe { CStr::from_ptr(text) }.to_owned());
    }
    all
}

fn describe(fd: RawFd, passed: &Passed) -> Option<String> {
    let (own, peer) = (passed.names.0.ip()?, passed.names.1.ip()?);
    let family = if passed.names.0.is_v6() { 6 } else { 4 };
    Some(format!("{fd}={own}={peer}={family}"))
}

/// In a new program: reads the settings, and notes which descriptors a keeper serves.
pub fn take_up() {
    settings::get();
    let Some(list) = std::env::var_os(VARIABLE) else {
        return;
    };
    for one in list.to_string_lossy().split(',') {
        let mut fields = one.split('=');
        let mut next = || fields.next();
        let fd = next().and_then(|fd| fd.parse::<RawFd>().ok());
        let own = next().and_then(|own| own.parse::<SocketAddr>().ok());
        let peer = next().and_then(|peer| peer.parse::<SocketAddr>().ok());
        let is_v6 = next() == Some("6");
        if let (Some(fd), Some(own), Some(peer)) = (fd, own, peer) {
            let names = (RawAddress::new(own, is_v6), RawAddress::new(peer, is_v6));
            table::replace(fd, Some(Entry::Passed(Arc::new(Passed { names }))));
            crate::set_in_use();
        }
    }
}

/// Looks for a program as `execvp(3)` does, and starts it.
///
/// # Safety
/// As `execvpe(3)`.
pub unsafe fn search(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(file) };
    let start = |path: &CStr| {
        // SAFETY: the caller's promise.
        unsafe { libc::syscall(libc::SYS_execve, path.as_ptr(), arguments, environment) as c_int }
    };
    if name.to_bytes().contains(&b'/') {
        return start(name);
    }
    let paths = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut denied = false;
    for dir in std::env::split_paths(&paths) {
        let path = Path::new(&dir).join(OsStr::from_bytes(name.to_bytes()));
        let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
            continue;
        };
        start(&path);
        denied |= crate::Errno::last().0 == libc::EACCES;
    }
    // SAFETY: this thread's place.
    unsafe { *libc::__errno_location() = if denied { libc::EACCES } else { libc::ENOENT } };
    -1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_process_gets_its_input_and_outputs_and_what_it_is_given_by_name() {
        let given = |changes: &[Change]| given(changes, |fd| fd != 2).into_iter().collect::<Vec<_>>();
        let copied = |from, to| Change::Copied { from, to };
        assert_eq!(given(&[]), [(0, 0), (1, 1)]);
        assert_eq!(given(&[copied(7, 1), copied(1, 2)]), [(0, 0), (1, 7), (2, 7)]);
        assert_eq!(given(&[copied(0, 5), copied(7, 0)]), [(0, 7), (1, 1), (5, 0)]);
        assert_eq!(given(&[copied(9, 9)]), [(0, 0), (1, 1), (9, 9)]);
        assert_eq!(given(&[Change::Replaced(0), copied(0, 1)]), []);
        assert_eq!(given(&[Change::Replaced(7), copied(7, 1), copied(8, 0)]), [(0, 8)]);
    }
}
