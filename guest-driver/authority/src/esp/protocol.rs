//! What programs and the authority say to each other about ESP, inside of [`crate::protocol::Request`] and
//! [`crate::protocol::Reply`].

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// What proves that a process may claim a listener's connections: random bits.
pub type EspKey = [u64; 2];

/// Entries of a list that come in one answer; the next ones are asked for with the last one's number.
pub const PAGE_ENTRIES_MAX: usize = 64;

/// A request of a program that uses ESP.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum EspRequest {
    /// Opens an Ethernet port with a block of wire ports for this connection.
    Open {
        /// The program, as it says.
        command: String,
        /// It takes a second socket for bulk data.
        #[serde(default)]
        bulk_socket: bool,
    },
    /// Opens a further port for this connection.
    MorePorts,
    /// Takes back the blocks that this process got from an earlier authority.
    Resume {
        /// Their numbers.
        blocks: Vec<u8>,
        /// The MTU that all of its ports have room for, in bytes.
        mtu: usize,
        /// The program, as it says.
        command: String,
    },
    /// Registers a listening TCP socket.
    Listen {
        /// Where it listens.
        address: SocketAddr,
        /// It takes no IPv4.
        only_v6: bool,
    },
    /// Forgets a listener.
    Forget {
        /// Its number.
        id: u64,
        /// Its key.
        key: EspKey,
    },
    /// Takes over the connection that a token stands for.
    Claim {
        /// The peer's address of the accepted TCP connection.
        token: SocketAddr,
        /// The listener's key, if the program has it.
        key: Option<EspKey>,
    },
    /// Asks whether an IP address is on the same Ethernet and speaks ESP. The answer may take a third of a second.
    Resolve {
        /// The address.
        ip: IpAddr,
    },
    /// Sends an EDP ping. The answer comes with the pong, or when the time is over.
    Ping {
        /// Whom it is for.
        to: EspTarget,
        /// Milliseconds to wait, at most a minute.
        limit_ms: u32,
    },
    /// Asks for the state of ESP on the interface.
    Status,
    /// Asks for programs that have ports, those behind a session's number.
    Programs {
        /// The number; `None`: from the first on.
        after: Option<u64>,
    },
    /// Asks for listeners, those behind a number.
    Listeners {
        /// The number; `None`: from the first on.
        after: Option<u64>,
    },
    /// Asks for the memory in which a program reports.
    Report {
        /// The program's session.
        session: u64,
    },
    /// Asks for the connections that no program has yet, as a report.
    Handshakes,
}

/// An answer about ESP.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum EspReply {
    /// A session is open. With it come the packet socket, one for bulk data if the port has it, and the memory for reports.
    Opened {
        /// The port.
        port: OpenedPort,
        /// EtherType of all frames.
        ether_type: u16,
    },
    /// A further port is open. With it comes the packet socket.
    MorePorts(OpenedPort),
    /// The blocks were taken back. With it comes new memory for reports.
    Resumed,
    /// The listener is known. With it comes the end of a pipe that keeps it so.
    Listening {
        /// Its number.
        id: u64,
        /// Its key.
        key: EspKey,
    },
    /// What was asked for was done; with a report comes its memory.
    Done,
    /// The connection is the program's.
    Claimed {
        /// `esp::Handover` as bytes.
        handover: Vec<u8>,
        /// What the peer's program connected to.
        local: SocketAddr,
        /// The peer's program.
        peer: SocketAddr,
    },
    /// Where an IP address is.
    Route(EspRoute),
    /// The pong; `None`: there was none in time.
    Pong(Option<EspPong>),
    /// The state of ESP on the interface.
    Status(EspStatus),
    /// Some programs, none at the end of the list.
    Programs(Vec<EspProgram>),
    /// Some listeners, none at the end of the list.
    Listeners(Vec<EspListening>),
}

/// An open port, without its packet socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenedPort {
    /// Its block of wire ports.
    pub block: u8,
    /// Name of its interface.
    pub interface_name: String,
    /// Index of its interface.
    pub interface_index: i32,
    /// Address of its interface.
    pub mac: [u8; 6],
    /// MTU of its interface, in bytes.
    pub mtu: usize,
    /// Bytes of a block of its receive ring.
    pub block_len: usize,
    /// Blocks of its receive ring.
    pub blocks: usize,
    /// Bytes of a slot of its receive ring.
    pub slot_len: usize,
    /// Whether bulk data comes by a second socket.
    #[serde(default)]
    pub bulk_socket: bool,
}

/// Whom a ping is for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum EspTarget {
    /// The host with this Ethernet address.
    Mac([u8; 6]),
    /// The host that has this IP address.
    Ip(IpAddr),
}

/// The answer of a host to a ping.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct EspPong {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// From the ping to the pong, as the authority saw them, in nanoseconds.
    pub round_trip_ns: u64,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Its IP addresses, at most 16 of them.
    pub addresses: Vec<IpAddr>,
}

/// Where an IP address is, as far as ESP goes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum EspRoute {
    /// On this Ethernet, and the host speaks ESP.
    Peer {
        /// Its Ethernet address.
        mac: [u8; 6],
        /// Its MTU in bytes: the smaller of both ends' counts.
        mtu: u32,
        /// This interface's own address in the same subnet, if it has one: for `getsockname`.
        own: Option<IpAddr>,
    },
    /// This host has it: plain TCP over loopback, which no frame on a wire is quicker than.
    OwnHost,
    /// Not on this Ethernet, or the host does not speak ESP.
    Elsewhere,
}

/// The state of ESP on an interface.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct EspStatus {
    /// Why there is no ESP; `None`: there is.
    pub off: Option<String>,
    /// EtherType of all frames.
    pub ether_type: u16,
    /// The interface's MTU in bytes, now.
    pub mtu: usize,
    /// IP addresses that pings are answered with.
    pub addresses: Vec<IpAddr>,
    /// Blocks of wire ports that programs have, those of programs from before a restart among them.
    pub blocks: usize,
    /// Programs that have ports.
    pub programs: usize,
    /// Listeners.
    pub listeners: usize,
    /// Connections whose handshake has begun.
    pub half_open: usize,
    /// Connections that wait to be claimed.
    pub unclaimed: usize,
    /// What the authority counted, in the order of [`super::EspCounter`].
    pub counters: Vec<u64>,
    /// What the authority's engine counted, in the order of `esp::Counter`.
    pub engine: Vec<u64>,
}

/// A program that has ports.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct EspProgram {
    /// The number of its session.
    pub session: u64,
    /// Process number.
    pub pid: u32,
    /// Number of its user.
    pub user: u32,
    /// The program's name, as it says.
    pub command: String,
    /// Its blocks of wire ports.
    pub blocks: Vec<u8>,
}

/// A listener.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct EspListening {
    /// Its number.
    pub id: u64,
    /// Where it listens.
    pub address: SocketAddr,
    /// It takes no IPv4.
    pub only_v6: bool,
    /// The process that registered it.
    pub pid: u32,
    /// Number of its user.
    pub user: u32,
    /// Connections to this address whose handshake has begun.
    pub half_open: usize,
    /// Connections to this address that wait to be claimed.
    pub unclaimed: usize,
}
