//! Rapid spanning tree (IEEE 802.1D-2004, clause 17): which ports of a switch carry frames, so that redundant trunks make no
//! loop.
//!
//! State machines without clock: they are told of BPDUs, of ports that come and go, and of the time; they answer with the
//! state of each port, with BPDUs to send, and with ports whose stations are to be forgotten. Frames are forwarded elsewhere.

mod bpdu;
mod machines;
mod port;
mod priority;

use alloc::vec::Vec;
use core::fmt;

use ether::{MacAddr, Time};

pub use bpdu::BRIDGE_GROUP;
pub use priority::BridgeId;

use bpdu::{Bpdu, Flags, Kind, Message};
use port::StpPort;
use priority::{SECOND, Times, Vector};

use crate::control_frame::ControlFrame;
use crate::switch::PortId;

/// How long another protocol version is watched for before it is believed, and how long a port without bridge behind it
/// waits before it counts as an edge: the standard's Migrate Time.
const MIGRATE_NS: u64 = 3_000_000_000;

/// A second, in which a port may send one BPDU more than its burst.
const SECOND_NS: u64 = 1_000_000_000;

/// BPDUs that a port may send in a row, and then one each second (17.14 recommends 6, 10 is the most it allows). Taken large,
/// since news that wait here are news that other bridges act without.
const TX_HOLD_COUNT: u32 = 10;

/// Rounds of the machines of all ports after which they are left as they are: a fixed point is reached in a few, and a fault
/// in here must not keep a switch from forwarding.
const ROUNDS_MAX: usize = 1000;

/// How a switch takes part in the spanning tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StpConfig {
    /// Address of the bridge.
    pub address: MacAddr,
    /// The lowest one in a network becomes its root: a multiple of 4096, up to 61440.
    pub priority: u16,
    /// Seconds after which what the root said is forgotten, 6 to 40.
    pub max_age_s: u8,
    /// Seconds between two BPDUs, 1 to 2.
    pub hello_s: u8,
    /// Seconds in which a port that nobody agreed with becomes learning, and then forwarding, 4 to 30.
    pub forward_delay_s: u8,
}

impl StpConfig {
    /// The standard's recommended values.
    pub const fn new(address: MacAddr) -> Self {
        Self {
            address,
            priority: 32_768,
            max_age_s: 20,
            hello_s: 2,
            forward_delay_s: 15,
        }
    }
}

/// How a port takes part in the spanning tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StpPortConfig {
    /// What the way over it costs, 1 to 200 000 000: see [`path_cost`].
    pub path_cost: u32,
    /// The lower one is taken where several ports lead to the same bridge: a multiple of 16, up to 240.
    pub priority: u8,
    /// There is no bridge behind it, until a BPDU says otherwise: it forwards at once.
    pub edge: bool,
}

impl StpPortConfig {
    /// The standard's values for a link of this rate (0 = unlimited).
    pub const fn of_rate(rate_bps: u64) -> Self {
        Self {
            path_cost: path_cost(rate_bps),
            priority: 128,
            edge: false,
        }
    }

    /// A port towards stations.
    pub const EDGE: Self = Self {
        edge: true,
        ..Self::of_rate(0)
    };
}

/// The cost of a link of so many bits per second that IEEE 802.1D-2004 recommends in table 17-3; 0, a link that is not limited,
/// counts as 10 Gbit/s.
pub const fn path_cost(rate_bps: u64) -> u32 {
    const PRODUCT: u64 = 20_000_000_000_000;
    let rate_bps = if rate_bps == 0 { 10_000_000_000 } else { rate_bps };
    let cost = PRODUCT / rate_bps;
    if cost < 1 {
        1
    } else if cost > 200_000_000 {
        200_000_000
    } else {
        cost as u32
    }
}

/// What a port is to the spanning tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortRole {
    /// It is down.
    Disabled,
    /// The best way to the root.
    Root,
    /// The way to the root for what is behind it.
    Designated,
    /// Another way to the root, in reserve.
    Alternate,
    /// Another way to where a port of this switch leads already, in reserve.
    Backup,
}

impl PortRole {
    /// The name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Root => "root",
            Self::Designated => "designated",
            Self::Alternate => "alternate",
            Self::Backup => "backup",
        }
    }
}

/// What a port does with frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortState {
    /// It drops them.
    Discarding,
    /// It learns from them, and drops them.
    Learning,
    /// It forwards them.
    Forwarding,
}

impl PortState {
    /// The name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Discarding => "discarding",
            Self::Learning => "learning",
            Self::Forwarding => "forwarding",
        }
    }
}

/// What a port counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StpPortCounters {
    /// BPDUs received that were understood.
    pub bpdus_in: u64,
    /// Frames to the address of all bridges that were no BPDUs of this protocol.
    pub bpdus_unknown: u64,
    /// BPDUs sent.
    pub bpdus_out: u64,
    /// Times that the port became forwarding.
    pub forwarded: u64,
}

/// What a port of the spanning tree is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StpPortStatus {
    /// Its role.
    pub role: PortRole,
    /// Its state.
    pub state: PortState,
    /// What the way over it costs.
    pub path_cost: u32,
    /// Its identifier: priority and number.
    pub id: u16,
    /// It counts as one without a bridge behind it.
    pub edge: bool,
    /// The bridge behind it speaks the protocol before the rapid one.
    pub old_protocol: bool,
    /// The bridge that is the way to the root for what is behind the port, and its port.
    pub designated: (BridgeId, u16),
    /// What it counted.
    pub counters: StpPortCounters,
}

/// What the bridge knows of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StpStatus {
    /// This bridge.
    pub bridge: BridgeId,
    /// The root of the tree.
    pub root: BridgeId,
    /// What the way to it costs.
    pub root_cost: u32,
    /// The port that leads to it; none on the root itself.
    pub root_port: Option<PortId>,
    /// Topology changes that this bridge found or was told of.
    pub topology_changes: u64,
    /// When the last one was.
    pub last_change: Option<Time>,
}

/// The spanning tree of one switch.
pub struct SpanningTree {
    config: StpConfig,
    bridge: BridgeId,
    times: Times,
    ports: Vec<Option<StpPort>>,
    root: Vector,
    root_times: Times,
    root_port: Option<PortId>,
    topology_changes: u64,
    last_change: Option<Time>,
    /// The time of the last call that had one.
    now: Time,
}

impl fmt::Debug for SpanningTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status().fmt(f)
    }
}

impl SpanningTree {
    /// A bridge without ports.
    pub fn new(config: StpConfig, now: Time) -> Self {
        let bridge = BridgeId::new(config.priority, config.address);
        let times = Times {
            message_age: 0,
            max_age: u16::from(config.max_age_s) * SECOND,
            hello: u16::from(config.hello_s) * SECOND,
            forward_delay: u16::from(config.forward_delay_s) * SECOND,
        };
        Self {
            config,
            bridge,
            times,
            ports: Vec::new(),
            root: Vector {
                root: bridge,
                cost: 0,
                bridge,
                port: 0,
            },
            root_times: times,
            root_port: None,
            topology_changes: 0,
            last_change: None,
            now,
        }
    }

    /// Its settings.
    pub fn config(&self) -> &StpConfig {
        &self.config
    }

    /// Adds a port, which is down, or changes the settings of one that is there.
    pub fn set_port(&mut self, port: PortId, config: StpPortConfig) {
        let index = usize::from(port.0);
        if self.ports.len() <= index {
            self.ports.resize_with(index + 1, || None);
        }
        // 12 bits of number, from 1; the upper four bits are the priority.
        let id = u16::from(config.priority & 0xf0) << 8 | (port.0 + 1) & 0xfff;
        match &mut self.ports[index] {
            Some(known) => {
                known.config = config;
                known.id = id;
                known.reselect = true;
                known.selected = false;
            }
            place => *place = Some(StpPort::new(config, id, self.bridge, self.times)),
        }
        self.run();
    }

    /// The settings of a port; `None` if it takes no part.
    pub fn port_config(&self, port: PortId) -> Option<StpPortConfig> {
        let port = self.ports.get(usize::from(port.0))?.as_ref()?;
        Some(port.config)
    }

    /// Takes a port out.
    pub fn remove_port(&mut self, port: PortId) {
        if let Some(place) = self.ports.get_mut(usize::from(port.0)) {
            *place = None;
            for port in self.ports.iter_mut().flatten() {
                port.reselect = true;
                port.selected = false;
            }
            self.run();
        }
    }

    /// A port has a carrier, or has none any more.
    pub fn set_up(&mut self, port: PortId, up: bool) {
        let now = self.now;
        let Some(port) = self.ports.get_mut(usize::from(port.0)).and_then(Option::as_mut) else {
            return;
        };
        if port.enabled != up {
            port.enabled = up;
            port.mdelay_until = now.plus_nanos(MIGRATE_NS);
            port.message = None;
            port.tx_count = 0;
            port.hello_at = now;
            self.run();
        }
    }

    /// A frame to the address of all bridges came in at `port`; `frame` has its first bytes, 60 or all of them. What is no BPDU is
    /// counted.
    pub fn receive(&mut self, now: Time, port: PortId, frame: &[u8]) {
        self.now = self.now.max(now);
        let now = self.now;
        let Some(port) = self.ports.get_mut(usize::from(port.0)).and_then(Option::as_mut) else {
            return;
        };
        if !port.enabled {
            return;
        }
        match Bpdu::parse(frame) {
            // What is older than it may become is worth nothing (9.3.4).
            Some(Bpdu::Message(message))
                if message.kind == Kind::Configuration && message.times.message_age >= message.times.max_age =>
            {
                port.counters.bpdus_unknown += 1;
                return;
            }
            Some(Bpdu::Message(message)) => port.note_message(message, now, MIGRATE_NS),
            Some(Bpdu::Change) => {
                port.rcvd_stp = true;
                port.rcvd_tcn = true;
                port.note_bridge(now, MIGRATE_NS);
            }
            None => {
                port.counters.bpdus_unknown += 1;
                return;
            }
        }
        port.counters.bpdus_in += 1;
        self.run();
    }

    /// Does what is due by now.
    pub fn handle(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.run();
    }

    /// When [`handle`](Self::handle) and [`poll_transmit`](Self::poll_transmit) have something to do next, if nothing else
    /// happens.
    pub fn next_event(&self) -> Option<Time> {
        let ports = self.ports.iter().flatten().filter(|port| port.enabled);
        let deadlines = ports.flat_map(|port| {
            let waits_to_send = port.new_info && port.tx_count >= TX_HOLD_COUNT;
            let info = port.info_is == port::InfoIs::Received;
            [
                port.hello_at,
                port.fd_until,
                port.rr_until,
                port.rb_until,
                port.edge_delay_until,
                port.mdelay_until,
                port.tc_until,
                if info { port.rcvd_info_until } else { Time::ZERO },
                if waits_to_send { port.tx_decay_at } else { Time::ZERO },
            ]
        });
        deadlines.filter(|at| *at > self.now).min()
    }

    /// The next BPDU to send now. To be asked until there is none, after every other call.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(PortId, ControlFrame)> {
        self.now = self.now.max(now);
        let now = self.now;
        let hello_ns = self.times.hello_ns();
        for (number, port) in self.ports.iter_mut().enumerate() {
            let Some(port) = port.as_mut() else { continue };
            if let Some(bpdu) = port.poll_bpdu(now, hello_ns) {
                port.counters.bpdus_out += 1;
                return Some((PortId(number as u16), bpdu.frame(self.config.address)));
            }
        }
        None
    }

    /// What a port does with frames.
    pub fn state(&self, port: PortId) -> PortState {
        let port = self.ports.get(usize::from(port.0)).and_then(Option::as_ref);
        port.map_or(PortState::Discarding, StpPort::state)
    }

    /// Whether what was learned on a port is to be forgotten since the last question.
    pub fn take_flush(&mut self, port: PortId) -> bool {
        let port = self.ports.get_mut(usize::from(port.0)).and_then(Option::as_mut);
        port.is_some_and(|port| core::mem::take(&mut port.flush))
    }

    /// What the bridge knows of the tree.
    pub fn status(&self) -> StpStatus {
        StpStatus {
            bridge: self.bridge,
            root: self.root.root,
            root_cost: self.root.cost,
            root_port: self.root_port,
            topology_changes: self.topology_changes,
            last_change: self.last_change,
        }
    }

    /// What a port is now; `None` if it takes no part.
    pub fn port_status(&self, port: PortId) -> Option<StpPortStatus> {
        let port = self.ports.get(usize::from(port.0))?.as_ref()?;
        Some(StpPortStatus {
            role: port.role,
            state: port.state(),
            path_cost: port.config.path_cost,
            id: port.id,
            edge: port.oper_edge,
            old_protocol: !port.send_rstp,
            designated: (port.port_priority.bridge, port.port_priority.port),
            counters: port.counters,
        })
    }
}

impl StpPort {
    /// The transmit machine (17.26): what this port has to say now.
    fn poll_bpdu(&mut self, now: Time, hello_ns: u64) -> Option<Bpdu> {
        if !self.enabled {
            self.new_info = false;
            return None;
        }
        if !self.selected || self.updt_info {
            return None;
        }
        while self.tx_count > 0 && now >= self.tx_decay_at {
            self.tx_count -= 1;
            self.tx_decay_at = self.tx_decay_at.plus_nanos(SECOND_NS);
        }
        let has_change = now < self.tc_until;
        if now >= self.hello_at {
            self.new_info |= self.role == PortRole::Designated || (self.role == PortRole::Root && has_change);
            self.hello_at = now.plus_nanos(hello_ns);
        }
        if !self.new_info || self.tx_count >= TX_HOLD_COUNT {
            return None;
        }
        self.new_info = false;
        let message = |kind, flags| {
            Bpdu::Message(Message {
                kind,
                role: Some(self.role),
                flags,
                vector: self.designated_priority,
                times: self.designated_times,
                exchange: Some(self.exchange),
            })
        };
        let bpdu = match (self.send_rstp, self.role) {
            (true, _) => message(
                Kind::Rapid,
                Flags {
                    change: has_change,
                    proposal: self.proposing,
                    learning: self.learning,
                    forwarding: self.forwarding,
                    agreement: self.agree,
                    change_ack: false,
                },
            ),
            (false, PortRole::Designated) => message(
                Kind::Configuration,
                Flags {
                    change: has_change,
                    change_ack: self.tc_ack,
                    ..Flags::default()
                },
            ),
            (false, PortRole::Root) => Bpdu::Change,
            (false, _) => return None,
        };
        self.tc_ack = false;
        if self.tx_count == 0 {
            self.tx_decay_at = now.plus_nanos(SECOND_NS);
        }
        self.tx_count += 1;
        Some(bpdu)
    }
}
