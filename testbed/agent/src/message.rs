//! The bodies of the frames that are not plain data: JSON, except the two credit messages.
//! `docs/spec/agent-protocol.md` says in which order messages follow each other.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Version of the protocol. A host and an agent whose versions differ refuse each other with one sentence.
pub const PROTOCOL_VERSION: u32 = 1;

/// Name of the virtio-serial port.
pub const PORT_NAME: &str = "weft.agent";

/// Number of commands that an agent runs at a time; more are refused. Each uses up to four threads.
pub const COMMANDS_MAX: usize = 64;

/// Body of [`Kind::Hello`](crate::frame::Kind::Hello).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the host.
    pub protocol: u32,
}

/// Body of [`Kind::Welcome`](crate::frame::Kind::Welcome): the identity of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`PROTOCOL_VERSION`] of the agent.
    pub protocol: u32,
    /// Release of the agent.
    pub agent_version: String,
    /// Host name of the guest.
    pub hostname: String,
    /// Boot identifier of the kernel: another one means that the guest has booted again.
    pub boot_id: String,
    /// Release of the guest's kernel.
    pub kernel: String,
    /// What could not be set up as configured, one sentence each.
    pub problems: Vec<String>,
}

/// Body of [`Kind::Exec`](crate::frame::Kind::Exec).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// Program and arguments; the program is looked up in the guest's `PATH`.
    pub argv: Vec<String>,
    /// Variables added to the agent's environment.
    #[serde(default)]
    pub env: Vec<(String, String)>,
    /// Working directory; `/root` by default.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Size of the terminal to run on: standard output and error then come as one stream.
    #[serde(default)]
    pub pty: Option<WindowSize>,
    /// Whether input follows; without input the command reads `/dev/null`.
    #[serde(default)]
    pub stdin: bool,
}

/// Body of [`Kind::Resize`](crate::frame::Kind::Resize): size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Characters in a line.
    pub columns: u16,
    /// Number of lines.
    pub rows: u16,
}

/// Body of [`Kind::Signal`](crate::frame::Kind::Signal).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// Number of the signal, as Linux counts them.
    pub number: i32,
}

/// Body of [`Kind::Started`](crate::frame::Kind::Started).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Process identifier in the guest.
    pub pid: i32,
}

/// Body of [`Kind::Exited`](crate::frame::Kind::Exited): how a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExitStatus {
    /// The command exited with this status.
    Code(i32),
    /// A signal ended the command.
    Signal(i32),
}

impl ExitStatus {
    /// Returns whether the command exited with status 0.
    #[must_use]
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }

    /// Returns the status a shell would show: the exit status, or 128 + the signal's number.
    #[must_use]
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(number) => 128 + number,
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(number) => write!(f, "ended by signal {number}"),
        }
    }
}

/// Body of [`Kind::Failed`](crate::frame::Kind::Failed).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Reason for the failure, one sentence.
    pub message: String,
    /// For [`Kind::Exec`](crate::frame::Kind::Exec): whether the program was not found (a shell says 127), as opposed to
    /// found and not started (126).
    #[serde(default)]
    pub not_found: bool,
}

/// Body of [`Kind::CopyIn`](crate::frame::Kind::CopyIn).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyIn {
    /// Directory to copy into, or the new name. Relative paths start at `/root`.
    pub destination: String,
    /// Name of the copied file or directory, used when `destination` is a directory.
    pub name: String,
}

/// Body of [`Kind::CopyOut`](crate::frame::Kind::CopyOut).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOut {
    /// File or directory to send. Relative paths start at `/root`.
    pub path: String,
}

/// Body of [`Kind::Power`](crate::frame::Kind::Power).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    /// Switches the guest off.
    Off,
    /// Boots the guest again.
    Reboot,
}

/// Body of [`Kind::ReportAnswer`](crate::frame::Kind::ReportAnswer): the guest's own counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Time since the guest booted, in milliseconds.
    pub uptime_ms: u64,
    /// All network interfaces, including loopback.
    pub interfaces: Vec<InterfaceReport>,
    /// Lines of `/proc/interrupts`.
    pub interrupts: Vec<InterruptReport>,
}

/// One network interface as the guest's kernel sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceReport {
    /// Name of the interface in the guest.
    pub name: String,
    /// MAC address.
    pub mac: String,
    /// MTU in bytes.
    pub mtu: u32,
    /// Operational state as the kernel reports it: `up`, `down`, `unknown`.
    pub operstate: String,
    /// Statistics of the kernel by name (`rx_packets`, `tx_bytes`, …).
    pub statistics: std::collections::BTreeMap<String, u64>,
}

/// One line of `/proc/interrupts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptReport {
    /// Number or short name of the interrupt.
    pub name: String,
    /// Number of interrupts taken so far, one entry per processor.
    pub taken: Vec<u64>,
    /// Controller, type and device, as the kernel reports them: `virtio0-input.0` is at the end.
    pub description: String,
}
