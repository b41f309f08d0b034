//! Sets up what a lab gives a guest: files, folders of the host, kernel settings, variables and commands. What does not
//! work is noted and the rest goes on: the host shows the notes.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, kill_process_group};
use weft_agent::config::{FILES_DISK, HostFolder};

use crate::interpreter;

/// Longest duration of a command, since the lab waits for it before the guest is ready. A program that is to keep
/// running has to be put into the background.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(60);

/// Interval at which a command's end is polled.
const COMMAND_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Log of the commands' output.
const COMMANDS_LOG: &str = "/var/log/weft-exec.log";

/// Length in characters of a command, and of its last output, in a note.
const NOTE_CHARS_MAX: usize = 120;

/// Unpacks the files that the lab gives this guest, if there are any.
pub fn files(problems: &mut Vec<String>) {
    let unpack = || -> Result<()> {
        let Some(disk) = super::disks::find(FILES_DISK)? else {
            return Ok(());
        };
        let mut archive = tar::Archive::new(File::open(disk)?);
        archive.set_preserve_permissions(true);
        archive.set_preserve_ownerships(true);
        archive.unpack("/").context("unpacking")
    };
    if let Err(error) = unpack() {
        problems.push(format!("the lab's files cannot be unpacked: {error:#}"));
    }
}

/// Mounts folders of the host.
pub fn host_folders(folders: &[HostFolder], problems: &mut Vec<String>) {
    for folder in folders {
        let put = || -> Result<()> {
            fs::create_dir_all(&folder.to)?;
            let mut flags = MountFlags::NODEV | MountFlags::NOSUID;
            if folder.readonly {
                flags |= MountFlags::RDONLY;
            }
            let options = c"trans=virtio,version=9p2000.L,msize=262144";
            mount(
                CString::new(folder.tag.as_str())?,
                folder.to.as_str(),
                c"9p",
                flags,
                options,
            )?;
            Ok(())
        };
        if let Err(error) = put() {
            problems.push(format!(
                "the host's folder cannot be mounted at {}: {error:#}",
                folder.to
            ));
        }
    }
}

/// Sets kernel parameters below `/proc/sys`.
pub fn sysctl(values: &BTreeMap<String, String>, problems: &mut Vec<String>) {
    for (name, value) in values {
        if let Err(error) = fs::write(sysctl_path(name), value) {
            problems.push(format!("sysctl {name} = {value} failed: {error}"));
        }
    }
}

/// Converts a name as `sysctl` does: whichever of `.` and `/` comes first is the separator, the other one belongs to
/// names.
fn sysctl_path(name: &str) -> PathBuf {
    let swapped = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    let dots_first = name.find('.').unwrap_or(usize::MAX) < name.find('/').unwrap_or(usize::MAX);
    let below: String = if dots_first {
        name.chars().map(swapped).collect()
    } else {
        name.to_owned()
    };
    Path::new("/proc/sys").join(below.trim_start_matches('/'))
}

/// Runs the lab's commands, one after the other.
pub fn commands(list: &[String], environment: &[(String, String)], problems: &mut Vec<String>) {
    for command in list {
        if let Err(why) = run(command, environment) {
            problems.push(format!("exec `{}`: {why:#}", shortened(command)));
        }
        problems.extend(crate::services::reap_inherited());
    }
}

fn run(command: &str, environment: &[(String, String)]) -> Result<()> {
    // This is a file instead of a pipe, since what the command leaves in the background may keep it open.
    let mut log = File::options()
        .create(true)
        .append(true)
        .read(true)
        .open(COMMANDS_LOG)?;
    let begin = log.seek(SeekFrom::End(0))?;
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .envs(environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?)
        .current_dir("/root")
        .process_group(0)
        .spawn()?;
    let deadline = Instant::now() + COMMAND_TIME_MAX;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() > deadline {
            _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            child.wait()?;
            break None;
        }
        std::thread::sleep(COMMAND_POLL_INTERVAL);
    };
    log.seek(SeekFrom::Start(begin))?;
    let mut said = Vec::new();
    log.read_to_end(&mut said)?;
    _ = std::io::stderr().write_all(&said);
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    let last = last.map_or(String::new(), |line| format!(": {}", shortened(line)));
    match status {
        Some(status) if status.success() => Ok(()),
        // What the shell says of a missing interpreter is that the program is not found.
        Some(status) => match command.split_whitespace().find_map(interpreter::missing) {
            Some(missing) if matches!(status.code(), Some(126 | 127)) => {
                bail!("{status}: {missing} is needed, and is not there{last}")
            }
            _ => bail!("{status}{last}"),
        },
        None => bail!(
            "ended after {} s (a program that shall run on needs `&`){last}",
            COMMAND_TIME_MAX.as_secs()
        ),
    }
}

fn shortened(text: &str) -> String {
    let mut chars = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut short: String = chars.by_ref().take(NOTE_CHARS_MAX).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_settings_are_read_as_sysctl_does() {
        for (name, path) in [
            ("net.ipv4.ip_forward", "/proc/sys/net/ipv4/ip_forward"),
            (
                "net/ipv4/conf/eth0.5/forwarding",
                "/proc/sys/net/ipv4/conf/eth0.5/forwarding",
            ),
            (
                "net.ipv4.conf.eth0/5.forwarding",
                "/proc/sys/net/ipv4/conf/eth0.5/forwarding",
            ),
        ] {
            assert_eq!(sysctl_path(name), Path::new(path), "{name}");
        }
    }

    #[test]
    fn a_note_is_short_and_cannot_command_a_terminal() {
        assert_eq!(shortened("a\x1bb"), "a b");
        assert_eq!(shortened(&"x".repeat(500)).chars().count(), NOTE_CHARS_MAX + 1);
    }
}
