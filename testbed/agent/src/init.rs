//! Process 1 of a guest: mounts, modules and configuration, then reaping, the server and the power switch. It talks to
//! no one outside the guest.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command};

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use rustix::system::RebootCommand;
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use weft_agent::config::{CONFIG_LEN_MAX, FW_CFG_ITEM, GuestConfig};

use crate::{disks, network, services, setup};

/// List of the modules to load, one path per line, each behind those it needs.
const MODULES: &str = "/etc/weft/modules";

/// File with what went wrong during set-up, one sentence per line, which the server reads.
pub const PROBLEMS: &str = "/run/weft-problems";

/// Variables that every process in the guest starts with.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("LANG", "C.UTF-8"),
    // Words that every shell understands.
    (
        "PS1",
        "$(id -un)@$(hostname):$PWD$([ $(id -u) = 0 ] && echo '#' || echo '$') ",
    ),
];

/// Links that programs expect in `/dev` in addition to the kernel's devices.
const DEVICE_LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// Folders in memory, and the share of the memory free at boot that each may use, in percent. A guest has no swap:
/// programs cannot use the memory that files take, and a guest without memory panics. So a quarter is left when all
/// folders are full.
const MEMORY_FOLDERS: [(&str, u64); 3] = [("/dev/shm", 35), ("/run", 5), ("/tmp", 35)];

/// Sets the guest up and serves it; returns only an error that makes that impossible.
pub fn run() -> anyhow::Error {
    match go() {
        Err(error) => error,
        Ok(never) => match never {},
    }
}

fn go() -> Result<Infallible> {
    kernel_file_systems()?;
    let mut problems = Vec::new();
    load_modules(&mut problems);
    let free_kib = free_kib(&fs::read_to_string("/proc/meminfo")?);
    disks::enter_root(&["/proc", "/sys", "/dev"], free_kib)?;
    memory_folders(free_kib)?;
    let config = configuration().unwrap_or_else(|error| {
        problems.push(format!("the guest's configuration cannot be used: {error:#}"));
        GuestConfig::default()
    });
    let environment = environment(&config);
    setup::files(&mut problems);
    setup::host_folders(&config.mounts, &mut problems);
    network::set_up(&config, &mut problems);
    setup::commands(&config.exec, &environment, &mut problems);
    let mut left = services::running();
    // What has ended before it was listed, or since, is not among those to watch.
    problems.extend(services::reap_inherited());
    left.retain(|number, _| Path::new("/proc").join(number.to_string()).exists());
    for problem in &problems {
        eprintln!("weft-agent: {problem}");
    }
    fs::write(PROBLEMS, problems.join("\n"))?;
    // This is a test guest that only shows that a kernel boots here.
    if fs::read_to_string("/proc/cmdline")?
        .split_whitespace()
        .any(|word| word == "weft.probe")
    {
        println!("weft-agent: booted");
        power(RebootCommand::PowerOff);
    }
    supervise(&environment, left, problems)
}

fn put(kind: &str, place: &str, flags: MountFlags, data: Option<&CStr>) -> Result<()> {
    fs::create_dir_all(place).with_context(|| format!("creating {place}"))?;
    match mount(kind, place, kind, flags, data) {
        // The kernel mounts /dev itself when it is configured so.
        Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("mounting {place}")),
    }
}

fn kernel_file_systems() -> Result<()> {
    let quiet = MountFlags::NOSUID | MountFlags::NODEV;
    put("proc", "/proc", quiet, None)?;
    put("sysfs", "/sys", quiet, None)?;
    put("devtmpfs", "/dev", MountFlags::NOSUID, None)?;
    let terminals = c"gid=5,mode=620,ptmxmode=666";
    put("devpts", "/dev/pts", MountFlags::NOSUID, Some(terminals))
}

fn memory_folders(free_kib: Option<u64>) -> Result<()> {
    let quiet = MountFlags::NOSUID | MountFlags::NODEV;
    for (place, percent) in MEMORY_FOLDERS {
        let size = free_kib.map(|free| CString::new(format!("size={}k", free * percent / 100)));
        put("tmpfs", place, quiet, size.transpose()?.as_deref())?;
    }
    for (link, target) in DEVICE_LINKS {
        // A kernel or an image that has the link already keeps it.
        let _ = std::os::unix::fs::symlink(target, link);
    }
    Ok(())
}

/// Returns the memory that nothing uses now, as `/proc/meminfo` reports it. The line MemAvailable would promise more: it
/// counts the kernel's table of names and files as memory that can be taken back, but those of an initramfs stay for
/// ever.
fn free_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemFree:"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn load_modules(problems: &mut Vec<String>) {
    let list = fs::read_to_string(MODULES).unwrap_or_default();
    for path in list.lines().filter(|line| !line.is_empty()) {
        let loaded = File::open(path)
            .map_err(anyhow::Error::from)
            .and_then(|file| match rustix::system::finit_module(&file, c"", 0) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
                Err(error) => Err(error.into()),
            });
        if let Err(error) = loaded {
            problems.push(format!("module {path} cannot be loaded: {error:#}"));
        }
    }
}

fn configuration() -> Result<GuestConfig> {
    let path = Path::new("/sys/firmware/qemu_fw_cfg/by_name")
        .join(FW_CFG_ITEM)
        .join("raw");
    if !path.exists() {
        return Ok(GuestConfig::default());
    }
    let mut text = Vec::new();
    File::open(&path)?
        .take(CONFIG_LEN_MAX as u64 + 1)
        .read_to_end(&mut text)?;
    anyhow::ensure!(text.len() <= CONFIG_LEN_MAX, "it is longer than {CONFIG_LEN_MAX} bytes");
    Ok(serde_json::from_slice(&text)?)
}

/// Reaps orphans, notes which of those that the lab's commands `left` running fail, starts the server again when it ends, and
/// answers the signals of `reboot` and `poweroff`.
fn supervise(
    environment: &[(String, String)],
    mut left: BTreeMap<i32, String>,
    mut problems: Vec<String>,
) -> Result<Infallible> {
    let mut signals = Signals::new([SIGCHLD, SIGINT, SIGTERM, SIGUSR1, SIGUSR2])?;
    let mut server = start_server(environment)?;
    loop {
        // One SIGCHLD may stand for several children.
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == Pid::from_child(&server) {
                eprintln!("weft-agent: the server has ended ({status:?}), starting it again");
                server = start_server(environment)?;
            } else if let Some(name) = left.remove(&pid.as_raw_nonzero().get())
                && let Some(problem) = services::failure(&name, status)
            {
                eprintln!("weft-agent: {problem}");
                problems.push(problem);
                fs::write(PROBLEMS, problems.join("\n"))?;
                // A server that does not listen to it yet reads the file later.
                _ = kill_process(Pid::from_child(&server), Signal::URG);
            }
        }
        for signal in signals.wait() {
            match signal {
                SIGTERM | SIGINT => power(RebootCommand::Restart),
                SIGUSR1 | SIGUSR2 => power(RebootCommand::PowerOff),
                _ => {}
            }
        }
    }
}

/// Returns the variables that every process starts with. Logins that read `/etc/environment` have the lab's part of
/// them, too.
fn environment(config: &GuestConfig) -> Vec<(String, String)> {
    let own = ENVIRONMENT.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let of_lab = config.env.iter().map(|(name, value)| (name.clone(), value.clone()));
    own.into_iter().chain(of_lab).collect()
}

fn start_server(environment: &[(String, String)]) -> Result<Child> {
    Command::new("/proc/self/exe")
        .arg("serve")
        .envs(environment.iter().cloned())
        .spawn()
        .context("starting the server")
}

/// Switches the guest off or boots it again.
pub fn power(command: RebootCommand) {
    rustix::fs::sync();
    if let Err(error) = rustix::system::reboot(command) {
        eprintln!("weft-agent: {command:?} is not possible: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_in_memory_leave_a_quarter_of_it_when_all_are_full() {
        let meminfo = "MemTotal:   101000 kB\nMemFree:    60000 kB\nMemAvailable:   65000 kB\n";
        assert_eq!(free_kib(meminfo), Some(60_000));
        assert_eq!(free_kib("MemTotal: 1 kB\n"), None);
        assert_eq!(MEMORY_FOLDERS.iter().map(|(_, percent)| percent).sum::<u64>(), 75);
    }
}
