//! Which process drives a card, for the sentence that refuses it to another one.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};

/// The authority over cards. It lets a card go by itself a few seconds after it was last asked for something.
const AUTHORITY: &str = "omxd";

/// A process that has a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its program, as the kernel calls it: up to 15 bytes.
    pub name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, process {}", self.name, self.pid)
    }
}

impl Holder {
    /// Finds a process but this one that has this file open, an authority rather than others, which may have its card from that.
    /// `None`: none that this user may look at.
    #[must_use]
    pub fn of(file: &Path) -> Option<Self> {
        let file = fs::canonicalize(file).ok()?;
        let mut found = None;
        for entry in fs::read_dir("/proc").ok()?.flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(pid) = pid.filter(|pid| *pid != process::id()) else {
                continue;
            };
            if has_open(&entry.path(), &file) {
                let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
                let holder = Self {
                    pid,
                    name: name.trim().to_owned(),
                };
                if holder.is_authority() {
                    return Some(holder);
                }
                found = Some(holder);
            }
        }
        found
    }

    /// Waits until the process has ended; `false`: it has not, or cannot be watched.
    pub(crate) fn ends_within(&self, limit: Duration) -> bool {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return false;
        };
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(error) => return error == Errno::SRCH,
        };
        let Ok(limit) = Timespec::try_from(limit) else {
            return false;
        };
        // A signal ends the wait as if the limit were over.
        poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).is_ok_and(|ended| ended > 0)
    }

    pub(crate) fn is_authority(&self) -> bool {
        self.name == AUTHORITY
    }
}

fn has_open(process: &Path, file: &PathBuf) -> bool {
    let Ok(mut descriptors) = fs::read_dir(process.join("fd")) else {
        return false;
    };
    descriptors.any(|entry| entry.is_ok_and(|entry| fs::read_link(entry.path()).is_ok_and(|link| link == *file)))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{BufRead, BufReader},
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn a_process_that_has_a_file_open_is_named_and_this_one_is_not() {
        let path = std::env::temp_dir().join(format!("weft-holder-{}", process::id()));
        let file = File::create(&path).unwrap();
        // A program that another test is about to start has this file, too, until it runs.
        let named = Holder::of(&path);
        assert!(
            named.as_ref().is_none_or(|holder| holder.pid != process::id()),
            "this process has it, and is not named: {named:?}"
        );
        drop(file);
        // The program opens the file itself, so no other process ever has it.
        let mut child = Command::new("sh")
            .args(["-c", r#"exec 3<"$1" && echo open && read -r _"#, "sh"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut opened = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut opened)
            .unwrap();
        let holder = Holder::of(&path).expect("the child has it");
        assert_eq!(holder.pid, child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(Holder::of(&path), None, "it has ended");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_end_of_a_process_is_waited_for() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let holder = Holder {
            pid: child.id(),
            name: "cat".to_owned(),
        };
        assert!(!holder.ends_within(Duration::ZERO), "it runs");
        drop(child.stdin.take());
        assert!(holder.ends_within(Duration::from_secs(60)), "its end is noticed");
        child.wait().unwrap();
        assert!(holder.ends_within(Duration::ZERO), "nothing is left of it");
    }
}
