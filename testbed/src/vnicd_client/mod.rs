//! Talking to a running `vnicd`: its configuration file and its control socket (JSON lines, `docs/spec/control-socket.md`).
//! Remembers nothing; the supervisor does.

mod capture;
pub mod config;
pub mod trace;

pub use capture::{Capture, CaptureEnd, Ends};
pub use vnic::{dataplane::SettingsEvent, report};

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    sync::Arc,
    time::Duration,
};

use report::{
    CoalescingChange, CoalescingSettings, Direction, DmaChange, DmaSettings, GroupInfo, LinkChange, MembershipInfo,
    MisorderChange, MisorderSettings, PortInfo, PortLinks, PortStats, StationInfo, SteeringChange, SteeringSettings,
    SwitchInfo, TrunkLinks, VlanChange, VlanSettings,
};
use rustix::{
    io::Errno,
    net::{
        self,
        sockopt::{Timeout, set_socket_timeout},
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use thiserror::Error;

/// How long `vnicd` may take to answer; it answers at once unless the machine is swamped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest answer line that is read: the counters of every port of the largest lab.
const ANSWER_LEN_MAX: u64 = 16 << 20;

/// Why a request was not fulfilled, and what follows. Each sentence is whole: no cause stands behind it a second time.
#[derive(Debug, Error)]
pub enum VnicdError {
    /// Nobody listens; the request had no effect.
    #[error("vnicd does not answer on its control socket: {0}")]
    Unreachable(std::io::Error),
    /// It listens, but has not answered in time (it may be stopped); whether the request takes effect later is not known.
    #[error("vnicd did not answer within {} s", .0.as_secs_f32())]
    Silent(Duration),
    /// The answer is not what this version of `weft` understands.
    #[error("vnicd answered \"{request}\" with something unexpected: {why}")]
    Unexpected {
        /// Operation asked for.
        request: String,
        /// What is wrong with the answer.
        why: String,
    },
    /// `vnicd` said no; nothing was changed.
    #[error("{0}")]
    Refused(String),
}

/// Direction of a link between two switches, as a request names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrunkDirection {
    /// Both.
    Both,
    /// From the first to the second.
    AToB,
}

/// What `info` answers.
#[derive(Clone, Debug, Deserialize)]
pub struct Info {
    /// Version of `vnicd`.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Time since it started, in nanoseconds.
    pub uptime_ns: u64,
    /// Names of the coalescing strategies that its cards have.
    #[serde(default)]
    pub strategies: Vec<String>,
    /// Its ports.
    pub ports: Vec<PortInfo>,
}

/// What is to become of a multicast group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupChange {
    /// Nothing: the groups are only listed.
    None,
    /// A card becomes a member, or is none any more.
    Member {
        /// `node.ethN`.
        port: String,
        /// Number of the group.
        group: u16,
        /// Becomes; otherwise is none any more.
        join: bool,
    },
    /// Its trees get another shape.
    Tree {
        /// Number of the group.
        group: u16,
        /// Name of the shape.
        tree: String,
    },
}

#[derive(Deserialize)]
struct Groups {
    groups: Vec<GroupInfo>,
}

#[derive(Deserialize)]
struct Vlans {
    vlans: Option<VlanSettings>,
}

#[derive(Deserialize)]
struct Switches {
    switches: Vec<SwitchInfo>,
}

#[derive(Deserialize)]
struct Stations {
    macs: Vec<StationInfo>,
}

#[derive(Deserialize)]
struct Memberships {
    memberships: Vec<MembershipInfo>,
}

/// What `drain` answers: frames that had not arrived after the time that it waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// On modelled links.
    pub on_links: u64,
    /// On their way into guests' memory.
    pub in_dma: u64,
    /// How long it waited, in nanoseconds.
    pub waited_ns: u64,
    /// Timers that guests had armed, for the next `vnicd`.
    #[serde(default)]
    pub timers: Vec<PortTimer>,
}

/// A timer of the guest of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortTimer {
    /// Name of the port.
    pub port: String,
    /// The timer.
    pub timer: report::ArmedTimer,
}

#[derive(Deserialize)]
struct Stats {
    ports: Vec<PortStats>,
}

#[derive(Deserialize)]
struct Answer {
    id: Option<u64>,
    ok: Option<Value>,
    error: Option<String>,
}

/// A connection to the control socket.
#[derive(Debug)]
pub struct VnicdClient {
    reader: BufReader<UnixStream>,
    last_id: u64,
    patience: Duration,
}

/// A connection on which nothing waits longer than `patience`. Connecting waits too, where many have connected to a `vnicd`
/// that takes none of them.
fn connect_in_time(socket: &Path, patience: Duration) -> Result<UnixStream, VnicdError> {
    let connect = || {
        let stream = net::socket_with(
            net::AddressFamily::UNIX,
            net::SocketType::STREAM,
            net::SocketFlags::CLOEXEC,
            None,
        )?;
        set_socket_timeout(&stream, Timeout::Send, Some(patience))?;
        set_socket_timeout(&stream, Timeout::Recv, Some(patience))?;
        net::connect(&stream, &net::SocketAddrUnix::new(socket)?)?;
        Ok(stream)
    };
    match connect() {
        Ok(stream) => Ok(stream.into()),
        Err(Errno::AGAIN) => Err(VnicdError::Silent(patience)),
        Err(error) => Err(VnicdError::Unreachable(error.into())),
    }
}

impl VnicdClient {
    /// Connects.
    ///
    /// # Errors
    /// [`VnicdError::Unreachable`] when nobody listens at `socket`.
    pub fn connect(socket: &Path) -> Result<Self, VnicdError> {
        Self::connect_with(socket, ANSWER_TIMEOUT)
    }

    fn connect_with(socket: &Path, patience: Duration) -> Result<Self, VnicdError> {
        let stream = connect_in_time(socket, patience)?;
        Ok(Self {
            reader: BufReader::new(stream),
            last_id: 0,
            patience,
        })
    }

    /// What a failed read or write says about `vnicd`.
    fn failed(&self, error: std::io::Error) -> VnicdError {
        match error.kind() {
            std::io::ErrorKind::WouldBlock => VnicdError::Silent(self.patience),
            _ => VnicdError::Unreachable(error),
        }
    }

    fn call<T: DeserializeOwned>(&mut self, op: &str, mut request: Value) -> Result<T, VnicdError> {
        self.last_id += 1;
        request["id"] = self.last_id.into();
        request["op"] = op.into();
        let unexpected = |why: String| VnicdError::Unexpected {
            request: op.to_owned(),
            why,
        };
        let line = format!("{request}\n");
        let written = self.reader.get_mut().write_all(line.as_bytes());
        written.map_err(|error| self.failed(error))?;
        let mut line = Vec::new();
        let read = (&mut self.reader).take(ANSWER_LEN_MAX).read_until(b'\n', &mut line);
        read.map_err(|error| self.failed(error))?;
        if line.is_empty() {
            return Err(VnicdError::Unreachable(std::io::ErrorKind::UnexpectedEof.into()));
        }
        let answer: Answer = serde_json::from_slice(&line).map_err(|error| unexpected(error.to_string()))?;
        if let Some(error) = answer.error {
            return Err(VnicdError::Refused(error));
        }
        if answer.id != Some(self.last_id) {
            return Err(unexpected("an answer to another request".to_owned()));
        }
        let ok = answer.ok.ok_or_else(|| unexpected("neither ok nor error".to_owned()))?;
        serde_json::from_value(ok).map_err(|error| unexpected(error.to_string()))
    }

    /// Version, uptime and state of every port.
    ///
    /// # Errors
    /// See [`VnicdError`]; so for all requests.
    pub fn info(&mut self) -> Result<Info, VnicdError> {
        self.call("info", json!({}))
    }

    /// Counters of one port, or of all.
    ///
    /// # Errors
    /// See [`VnicdError`].
    pub fn stats(&mut self, port: Option<&str>) -> Result<Vec<PortStats>, VnicdError> {
        let request = port.map_or_else(|| json!({}), |port| json!({ "port": port }));
        self.call::<Stats>("stats", request).map(|stats| stats.ports)
    }

    /// Changes coalescing of a port; the settings in force come back. An empty change only asks.
    ///
    /// # Errors
    /// See [`VnicdError`].
    pub fn coalesce(&mut self, port: &str, change: &CoalescingChange) -> Result<CoalescingSettings, VnicdError> {
        self.call("coalesce", with_port(port, change))
    }

    /// Changes a port's link; the settings in force come back. An empty change only asks.
    ///
    /// # Errors
    /// See [`VnicdError`].
    pub fn link(&mut self, port: &str, direction: Direction, change: &LinkChange) -> Result<PortLinks, VnicdError> {
        let mut request = with_port(port, change);
        request["direction"] = json!(direction);
        self.call("link", request)
    }

    /// Changes the link between two switches, by its number (from 1) where there are several; the settings in force come back, as `a` and `b` are named here. An empty change
    /// only asks.
    ///
    /// # Errors
    /// See [`VnicdError`].
    pub fn trunk(
        &mut self,
        (a, b): (&str, &str),
        number: Option<usize>,
        direction: TrunkDirection,
        change: &LinkChange,
    ) -> Result<TrunkLinks, VnicdError> {
        let mut request = serde_json::to_value(change).unwrap_or_else(|_| json!({}));
        request["a"] = a.into();
        request["b"] = b.into();
        if let Some(number) = number {
            request["number"] = number.into();
        }
        request["direction"] = json!(direction);
        self.call("trunk", request)
    }

    /// Changes a port's DMA engine; the settings in force come back. An empty change only asks.
    ///
    /// # Errors
    /// See [`VnicdError`].
    pub fn dma(&mut self, port: &str, change: &DmaChange) -> Result<DmaSettings, VnicdError> {
        self.call("dma", with_port(port, change))
    }

    /// Changes how a port's card chooses receive queues; the settings in force come back. An empty change only asks.
    ///
    /// # Errors
    /// See [`VnicdError`].
    pub fn steering(&mut self, port: &str, change: &SteeringChange) -> Result<SteeringSettings, VnicdError> {
        self.call("steering", with_port(port, change))
    }

    /// Changes the misordering injector of a port's card; the settings in force come back. An empty change only asks.
    ///
    /// # Errors
    /// See [`VnicdError`].
    pub fn misorder(&mut self, port: &str, change: &MisorderChange) -> Result<MisorderSettings, VnicdError> {
        self.call("misorder", with_port(port, change))
    }

    /// The multicast groups, behind `change`.
    ///
    /// # Errors
    /// See [`VnicdError`].
    pub fn groups(&mut self, change: &GroupChange) -> Result<Vec<GroupInfo>, VnicdError> {
        let request = match change {
            GroupChange::None => json!({}),
            GroupChange::Member { port, group, join } => json!({ "port": port, "group": group, "join": join }),
            GroupChange::Tree { group, tree } => json!({ "group": group, "tree": tree }),
        };
        self.call::<Groups>("group", request).map(|groups| groups.groups)
    }

    /// Changes the VLANs of a port; those in force come back, none from a switch without VLANs. No change only asks.
    ///
    /// # Errors
    /// See [`VnicdError`].
    pub fn vlans(&mut self, port: &str, change: Option<&VlanChange>) -> Result<Option<VlanSettings>, VnicdError> {
        let request = match change {
            None => json!({ "port": port }),
            Some(VlanChange::Default) => json!({ "port": port, "default": true }),
            Some(VlanChange::Set(settings)) => with_port(port, settings),
        };
        self.call::<Vlans>("vlan", request).map(|answer| answer.vlans)
    }

    /// A switch with its ports, or all.
    ///
    /// # Errors
    /// See [`VnicdError`].
    pub fn switches(&mut self, switch: Option<&str>) -> Result<Vec<SwitchInfo>, VnicdError> {
        let request = switch.map_or_else(|| json!({}), |switch| json!({ "switch": switch }));
        self.call::<Switches>("switch", request).map(|answer| answer.switches)
    }

    /// The stations that a switch knows, or all switches.
    ///
    /// # Errors
    /// See [`VnicdError`].
    pub fn stations(&mut self, switch: Option<&str>) -> Result<Vec<StationInfo>, VnicdError> {
        let request = switch.map_or_else(|| json!({}), |switch| json!({ "switch": switch }));
        self.call::<Stations>("macs", request).map(|answer| answer.macs)
    }

    /// The multicast groups that a switch, or all, know to be wanted behind ports.
    ///
    /// # Errors
    /// See [`VnicdError`].
    pub fn memberships(&mut self, switch: Option<&str>) -> Result<Vec<MembershipInfo>, VnicdError> {
        let request = switch.map_or_else(|| json!({}), |switch| json!({ "switch": switch }));
        self.call::<Memberships>("memberships", request)
            .map(|answer| answer.memberships)
    }

    /// Lets `vnicd` take nothing more from guests, until this connection ends, and waits until what is under way has arrived;
    /// says what has not.
    ///
    /// # Errors
    /// See [`VnicdError`].
    pub fn drain(&mut self) -> Result<Drained, VnicdError> {
        self.call("drain", json!({}))
    }

    /// Asks `vnicd` to end.
    ///
    /// # Errors
    /// See [`VnicdError`].
    pub fn shutdown(&mut self) -> Result<(), VnicdError> {
        self.call::<Value>("shutdown", json!({})).map(drop)
    }

    /// Asks for a sign of life.
    ///
    /// # Errors
    /// See [`VnicdError`].
    pub fn ping(&mut self) -> Result<(), VnicdError> {
        self.call::<Value>("ping", json!({})).map(drop)
    }

    /// Turns this connection into a stream of settings: those of every card and trunk first, then every change.
    ///
    /// # Errors
    /// See [`VnicdError`].
    pub fn watch(mut self) -> Result<Watch, VnicdError> {
        self.call::<Value>("watch", json!({}))?;
        self.reader
            .get_mut()
            .set_read_timeout(None)
            .map_err(VnicdError::Unreachable)?;
        Ok(Watch { reader: self.reader })
    }

    /// Turns this connection into a stream of pcapng bytes of these ports (none named: all), each frame cut to `snaplen`.
    ///
    /// # Errors
    /// See [`VnicdError`].
    pub fn capture(mut self, ports: &[String], snaplen: Option<u32>) -> Result<Capture, VnicdError> {
        let mut request = json!({});
        if !ports.is_empty() {
            request["ports"] = json!(ports);
        }
        if let Some(snaplen) = snaplen {
            request["snaplen"] = snaplen.into();
        }
        self.call::<Value>("capture", request)?;
        self.reader
            .get_mut()
            .set_read_timeout(None)
            .map_err(VnicdError::Unreachable)?;
        Ok(Capture {
            reader: self.reader,
            asked_to_end: Arc::default(),
        })
    }
}

/// Settings as they change. What `vnicd` wrote before it was killed can still be read.
#[derive(Debug)]
pub struct Watch {
    reader: BufReader<UnixStream>,
}

impl Iterator for Watch {
    type Item = SettingsEvent;

    /// Waits for the next one; `None` when `vnicd` has ended or says something unexpected, after which one watches anew.
    fn next(&mut self) -> Option<SettingsEvent> {
        let mut line = Vec::new();
        (&mut self.reader)
            .take(ANSWER_LEN_MAX)
            .read_until(b'\n', &mut line)
            .ok()?;
        serde_json::from_slice(&line).ok()
    }
}

fn with_port(port: &str, change: &impl serde::Serialize) -> Value {
    let mut request = serde_json::to_value(change).unwrap_or_else(|_| json!({}));
    request["port"] = port.into();
    request
}

#[cfg(test)]
mod tests;
