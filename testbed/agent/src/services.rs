//! What the lab's commands leave running: which processes these are, and which of them fail. Process 1 inherits them.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, waitpid};

/// Signals by which a process is ended on request, which is no failure.
const REQUESTS: [Signal; 3] = [Signal::HUP, Signal::INT, Signal::TERM];

/// A process in `/proc`.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    number: i32,
    name: String,
    has_ended: bool,
    parent: i32,
}

/// Returns the programs that run, by their numbers, each with its name: all but process 1 and threads of the kernel.
pub fn running() -> BTreeMap<i32, String> {
    let programs = processes().filter(|one| !one.has_ended && one.number > 2 && one.parent != 2);
    programs.map(|one| (one.number, one.name)).collect()
}

/// Reaps the processes that process 1 has inherited and that have ended; returns a sentence for each that failed.
pub fn reap_inherited() -> Vec<String> {
    let ended = processes().filter(|one| one.has_ended && one.parent == 1);
    let failed = |one: Process| match waitpid(Pid::from_raw(one.number), WaitOptions::NOHANG) {
        Ok(Some((_, status))) => failure(&one.name, status),
        _ => None,
    };
    ended.filter_map(failed).collect()
}

/// Returns what to note about a process of the background that has ended so; nothing if it succeeded or was told to end.
pub fn failure(name: &str, status: WaitStatus) -> Option<String> {
    let name = name.escape_default();
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!(
            "{name}, which `exec` left running, failed with exit status {code}"
        )),
        (None, Some(signal)) if REQUESTS.iter().any(|request| request.as_raw() == signal) => None,
        (None, signal) => {
            let signal = signal.unwrap_or_default();
            Some(format!(
                "{name}, which `exec` left running, was ended by signal {signal}"
            ))
        }
    }
}

fn processes() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    // A process may end while this goes on.
    entries.filter_map(|entry| parse(&fs::read_to_string(entry.path().join("stat")).ok()?))
}

/// Parses `/proc/PID/stat`, in which the name may contain anything.
fn parse(stat: &str) -> Option<Process> {
    let (number, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let mut words = rest.split_whitespace();
    Some(Process {
        number: number.parse().ok()?,
        name: name.to_owned(),
        has_ended: words.next()? == "Z",
        parent: words.next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name_is() {
        let of = |number, name: &str, has_ended, parent| {
            let name = name.to_owned();
            Some(Process {
                number,
                name,
                has_ended,
                parent,
            })
        };
        assert_eq!(parse("12 (zebra) Z 1 12 12 0 -1"), of(12, "zebra", true, 1));
        assert_eq!(parse("13 (a) S 7 (b)) S 1 12"), of(13, "a) S 7 (b)", false, 1));
        assert_eq!(parse("cpu 1 2"), None);
        let own = std::process::id() as i32;
        assert!(running().contains_key(&own));
    }
}
