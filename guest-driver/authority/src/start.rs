//! Starting an authority on demand: where the program is, whether this process may start it, and waiting until it
//! listens.

use std::{
    env,
    ffi::OsStr,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
};

use netif::{Interface, virtio};

use crate::{OmxdError, settings::path_variable};

/// What an `omxd` that goes to the background writes to its standard output when it listens.
pub(crate) const READY: &str = "ready";
/// What it writes when another one owns the interface already.
pub(crate) const BUSY: &str = "busy";
/// What it writes before a sentence that says why it ends.
pub(crate) const FAILED: &str = "failed: ";

/// Bit of CAP_NET_RAW in the capability sets of `/proc`.
const CAP_NET_RAW: u32 = 13;

/// Whether this process may start an authority of the interface: whether it may open packet sockets, or drive the card.
pub(crate) fn may_start(interface: &Interface) -> bool {
    interface.card().is_some_and(virtio::may_own) || may_open_sockets()
}

fn may_open_sockets() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .is_some_and(|set| set & (1 << CAP_NET_RAW) != 0)
}

fn program() -> Result<PathBuf, OmxdError> {
    if let Some(path) = path_variable("OMX_OMXD") {
        return Ok(path);
    }
    // The program lies beside this one, or one level up where test programs lie.
    let own = env::current_exe().unwrap_or_default();
    let beside = own.ancestors().skip(1).take(2).map(PathBuf::from);
    let installed = ["/usr/local/sbin", "/usr/sbin", "/usr/local/bin", "/usr/bin"].map(PathBuf::from);
    beside
        .chain(installed)
        .map(|dir| dir.join("omxd"))
        .find(|path| path.is_file())
        .ok_or(OmxdError::NoProgram)
}

/// What became of starting an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// It listens.
    Now,
    /// Another one owns the interface already.
    Before,
}

/// Starts an authority for `interface` that ends some seconds after its last client, and waits until it listens. It lives on
/// when this process ends.
pub(crate) fn start(interface: &str) -> Result<(), OmxdError> {
    start_with(interface, "--on-demand", &[], &[]).map(drop)
}

/// Starts an authority for `interface` that stays, with further options of `omxd` and variables in its environment, and waits until
/// it listens.
///
/// # Errors
/// [`OmxdError::NoProgram`], [`OmxdError::NotStarted`] with the reason, [`OmxdError::Io`].
pub fn start_in_background(
    interface: &str,
    options: &[&OsStr],
    variables: &[(String, String)],
) -> Result<Started, OmxdError> {
    start_with(interface, "--background", options, variables)
}

fn start_with(
    interface: &str,
    how: &str,
    options: &[&OsStr],
    variables: &[(String, String)],
) -> Result<Started, OmxdError> {
    let mut child = Command::new(program()?)
        .args(["--interface", interface, how])
        .args(options)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(OmxdError::io("start omxd"))?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out)
            .read_line(&mut line)
            .map_err(OmxdError::io("hear from omxd"))?;
    }
    // The child leaves a process behind and ends at once, so waiting for it is short.
    let ended = child.wait();
    match line.trim_end() {
        READY => Ok(Started::Now),
        BUSY => Ok(Started::Before),
        other => Err(OmxdError::NotStarted {
            sentence: match (other.strip_prefix(FAILED), ended) {
                (Some(sentence), _) => sentence.to_owned(),
                (None, Ok(status)) => format!("it ended ({status}) before it served; what it says stands above"),
                (None, Err(_)) => "it ended before it served; what it says stands above".to_owned(),
            },
        }),
    }
}
