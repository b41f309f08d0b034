//! Rapid spanning tree (IEEE 802.1D-2004, clause 17): which ports of a switch carry frames, so that redundant trunks make no
//! loop.
//!
//! It consists of state machines without clock: they are told of BPDUs, of ports that come and go, and of the time; they answer with the
//! state of each port, with BPDUs to send, and with ports whose stations are to be forgotten. Frames are forwarded elsewhere.

mod bpdu;
mod machines;
mod port;
mod priority;
mod types;

use alloc::vec::Vec;
use core::fmt;

use ether::Time;

pub use bpdu::BRIDGE_GROUP;
pub use priority::BridgeId;
pub use types::{PortRole, PortState, StpConfig, StpPortConfig, StpPortCounters, StpPortStatus, StpStatus, path_cost};

use bpdu::{Bpdu, Kind};
use port::{MIGRATE_NS, StpPort, TX_HOLD_COUNT};
use priority::{SECOND, Times, Vector};

use crate::control_frame::ControlFrame;
use crate::ports::PortId;

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

    /// The settings of the spanning tree.
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
