//! The client of `vnicd`'s control socket: requests and their answers, and the streams that a connection becomes. It remembers nothing.

mod capture;
pub mod trace;

pub use capture::{Capture, CaptureEnd, Ends};

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    sync::Arc,
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{
        self,
        sockopt::{Timeout, set_socket_timeout},
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use thiserror::Error;

use crate::{
    CardChange, Direction, Drained, Empty, GroupInfo, Groups, Info, LinkChange, MembershipInfo, Memberships, PortLinks,
    PortStats, Request, SettingsEvent, StationInfo, Stations, Stats, SwitchInfo, Switches, TrunkDirection, TrunkLinks,
    VlanChange, VlanSettings, Vlans,
    request::{GroupChange, OfPort, OfSwitch},
};

/// How long `vnicd` may take to answer; it answers at once unless the machine is swamped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest answer line that is read: the counters of every port of the largest lab.
const ANSWER_LEN_MAX: u64 = 16 << 20;

/// Why a request was not fulfilled, and what follows. Each sentence is whole: no cause stands behind it a second time.
#[derive(Debug, Error)]
pub enum VnicdError {
    /// No `vnicd` listens; the request had no effect.
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
    /// [`VnicdError::Unreachable`] when no `vnicd` listens at `socket`.
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

    fn call<T: DeserializeOwned>(&mut self, request: &impl Serialize) -> Result<T, VnicdError> {
        self.last_id += 1;
        let mut request = serde_json::to_value(request).unwrap_or_default();
        request["id"] = self.last_id.into();
        let unexpected = |why: String| VnicdError::Unexpected {
            request: request["op"].as_str().unwrap_or_default().to_owned(),
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
    /// [`VnicdError`]; so for all requests.
    pub fn info(&mut self) -> Result<Info, VnicdError> {
        self.call(&Request::Info)
    }

    /// Counters of one port, or of all.
    ///
    /// # Errors
    /// [`VnicdError`].
    pub fn stats(&mut self, port: Option<&str>) -> Result<Vec<PortStats>, VnicdError> {
        let port = port.map(str::to_owned);
        self.call(&Request::Stats { port }).map(|Stats { ports }| ports)
    }

    /// Changes some settings of a port's card: coalescing, DMA engine, steering or misordering, whichever the change is about. The
    /// settings in force come back. An empty change only asks.
    ///
    /// # Errors
    /// [`VnicdError`].
    pub fn change<C: CardChange>(&mut self, port: &str, change: &C) -> Result<C::Settings, VnicdError> {
        let port = port.to_owned();
        let mut request = serde_json::to_value(OfPort { port, change }).unwrap_or_default();
        request["op"] = C::OP.into();
        self.call(&request)
    }

    /// Changes a port's link; the settings in force come back. An empty change only asks.
    ///
    /// # Errors
    /// [`VnicdError`].
    pub fn link(&mut self, port: &str, direction: Direction, change: &LinkChange) -> Result<PortLinks, VnicdError> {
        self.call(&Request::Link {
            port: port.to_owned(),
            direction,
            change: *change,
        })
    }

    /// Changes the link between two switches, by its number (from 1) where there are several; the settings in force come back, as `a`
    /// and `b` are named here. An empty change only asks.
    ///
    /// # Errors
    /// [`VnicdError`].
    pub fn trunk(
        &mut self,
        (a, b): (&str, &str),
        number: Option<usize>,
        direction: TrunkDirection,
        change: &LinkChange,
    ) -> Result<TrunkLinks, VnicdError> {
        self.call(&Request::Trunk {
            a: a.to_owned(),
            b: b.to_owned(),
            number,
            direction,
            change: *change,
        })
    }

    /// The multicast groups, behind `change`.
    ///
    /// # Errors
    /// [`VnicdError`].
    pub fn groups(&mut self, change: &GroupChange) -> Result<Vec<GroupInfo>, VnicdError> {
        let request = Request::Group(change.clone());
        self.call(&request).map(|Groups { groups }| groups)
    }

    /// Changes the VLANs of a port; those in force come back, none from a switch without VLANs. No change only asks.
    ///
    /// # Errors
    /// [`VnicdError`].
    pub fn vlans(&mut self, port: &str, change: Option<&VlanChange>) -> Result<Option<VlanSettings>, VnicdError> {
        let (port, change) = (port.to_owned(), change.cloned());
        self.call(&Request::Vlan { port, change }).map(|Vlans { vlans }| vlans)
    }

    /// A switch with its ports, or all.
    ///
    /// # Errors
    /// [`VnicdError`].
    pub fn switches(&mut self, switch: Option<&str>) -> Result<Vec<SwitchInfo>, VnicdError> {
        let request = Request::Switch(OfSwitch::named(switch));
        self.call(&request).map(|Switches { switches }| switches)
    }

    /// The stations that a switch knows, or all switches.
    ///
    /// # Errors
    /// [`VnicdError`].
    pub fn stations(&mut self, switch: Option<&str>) -> Result<Vec<StationInfo>, VnicdError> {
        let request = Request::Macs(OfSwitch::named(switch));
        self.call(&request).map(|Stations { macs }| macs)
    }

    /// The multicast groups that a switch, or all, know to be wanted behind ports.
    ///
    /// # Errors
    /// [`VnicdError`].
    pub fn memberships(&mut self, switch: Option<&str>) -> Result<Vec<MembershipInfo>, VnicdError> {
        let request = Request::Memberships(OfSwitch::named(switch));
        self.call(&request).map(|Memberships { memberships }| memberships)
    }

    /// Lets `vnicd` take nothing more from guests, until this connection ends, and waits until what is in flight has arrived;
    /// says what has not.
    ///
    /// # Errors
    /// [`VnicdError`].
    pub fn drain(&mut self) -> Result<Drained, VnicdError> {
        self.call(&Request::Drain)
    }

    /// Asks `vnicd` to end.
    ///
    /// # Errors
    /// [`VnicdError`].
    pub fn shutdown(&mut self) -> Result<(), VnicdError> {
        self.call(&Request::Shutdown).map(|Empty {}| ())
    }

    /// Asks for a sign of life.
    ///
    /// # Errors
    /// [`VnicdError`].
    pub fn ping(&mut self) -> Result<(), VnicdError> {
        self.call(&Request::Ping).map(|Empty {}| ())
    }

    /// Turns this connection into a stream of settings: those of every card and trunk first, then every change.
    ///
    /// # Errors
    /// [`VnicdError`].
    pub fn watch(self) -> Result<Watch, VnicdError> {
        let (reader, Empty {}) = self.into_stream(&Request::Watch)?;
        Ok(Watch { reader })
    }

    /// Turns this connection into a stream of pcapng bytes of these ports (none named: all), each frame cut to `snaplen`.
    ///
    /// # Errors
    /// [`VnicdError`].
    pub fn capture(self, ports: &[String], snaplen: Option<u32>) -> Result<Capture, VnicdError> {
        let ports = ports.to_vec();
        let (reader, Empty {}) = self.into_stream(&Request::Capture { ports, snaplen })?;
        Ok(Capture {
            reader,
            asked_to_end: Arc::default(),
        })
    }

    /// Makes the request that turns the connection into a stream, on which nothing is waited for in vain.
    fn into_stream<T: DeserializeOwned>(mut self, request: &Request) -> Result<(BufReader<UnixStream>, T), VnicdError> {
        let answer = self.call(request)?;
        let stream = self.reader.get_ref();
        stream.set_read_timeout(None).map_err(VnicdError::Unreachable)?;
        Ok((self.reader, answer))
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

#[cfg(test)]
mod tests;
