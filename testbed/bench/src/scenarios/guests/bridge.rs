//! The network that `vnicd` is compared with: a private network namespace with a Linux bridge and a tap device per
//! guest. The kernel removes all of it when the last process in the namespace has ended, however it ended.

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::scenarios::guest_pair::TAPS;

/// Name of the bridge between the guests.
const BRIDGE: &str = "bridge0";

/// Device that makes tap devices.
const TUN: &str = "/dev/net/tun";

/// Fails with one sentence if this machine cannot provide the network.
pub(super) fn check() -> Result<()> {
    let tun = File::options().read(true).write(true).open(TUN);
    tun.with_context(|| format!("tap devices are not possible, {TUN} cannot be opened (as root: modprobe tun)"))?;
    let why = "a network namespace cannot be made: run this as root";
    let output = unshare().arg("true").stdin(Stdio::null()).output();
    let output = output.context("unshare (Debian package util-linux) cannot be started")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{why} ({})", said.trim());
    Ok(())
}

/// Root needs no user namespace; another user who may make one is root within it.
fn unshare() -> Command {
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--net", "--"]);
    unshare
}

/// Replaces this process by the same program with the same arguments and `more`, in a private network namespace.
/// Returns the error if that fails.
pub(super) fn enter_namespace(more: &[&OsStr]) -> anyhow::Error {
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return anyhow!("cannot find out what program this is: {error}"),
    };
    let mut command = unshare();
    command.arg(own).args(std::env::args_os().skip(1)).args(more);
    anyhow!("unshare cannot be started: {}", command.exec())
}

/// Creates the bridge and the tap devices.
pub(super) fn build() -> Result<()> {
    // Lines of interfaces have a colon behind the name. In a namespace of another program nothing may be changed.
    let devices = fs::read_to_string("/proc/self/net/dev").context("cannot look at the network devices")?;
    let ours = devices
        .lines()
        .filter_map(|line| line.split_once(':'))
        .all(|(name, _)| name.trim() == "lo");
    ensure!(
        ours,
        "this network namespace has devices already: leave --in-namespace to this program"
    );
    for devices in ["all", "default"] {
        let file = format!("/proc/sys/net/ipv6/conf/{devices}/disable_ipv6");
        // A kernel without IPv6 has nothing to switch off.
        if Path::new(&file).exists() {
            fs::write(&file, "1").with_context(|| format!("cannot write {file}"))?;
        }
    }
    ip(&["link", "add", BRIDGE, "type", "bridge"])?;
    for tap in TAPS {
        ip(&["tuntap", "add", "dev", tap, "mode", "tap"])?;
        ip(&["link", "set", tap, "master", BRIDGE, "up"])?;
    }
    ip(&["link", "set", BRIDGE, "up"])
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output();
    let output = output.context("ip (Debian package iproute2) cannot be started")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`ip {}` failed: {}", arguments.join(" "), said.trim());
    }
    Ok(())
}
