//! The state machines of IEEE 802.1D-2004, 17.21 to 17.31, run to a fixed point; those that concern all ports of the bridge: role
//! selection, role transitions and topology change.

use ether::Time;

use super::SpanningTree;
use super::port::{Action, Change, InfoIs, StpPort};
use super::priority::Vector;
use super::types::PortRole;
use crate::ports::PortId;

/// Rounds of the machines of all ports after which they are left as they are: a fixed point is reached in a few, and a fault
/// in here must not keep a switch from forwarding.
const ROUNDS_MAX: usize = 1000;

impl SpanningTree {
    /// Runs all machines until none has anything left to do.
    pub(super) fn run(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let mut changed = false;
            for index in 0..self.ports.len() {
                changed |= self.step(index);
            }
            changed |= self.select_roles();
            if !changed {
                return;
            }
        }
        debug_assert!(false, "the machines of the spanning tree reach no fixed point");
    }

    fn step(&mut self, index: usize) -> bool {
        let now = self.now;
        let Some(port) = self.ports[index].as_mut() else {
            return false;
        };
        let mut changed = port.detect_bridge(now) | port.migrate(now) | port.inform(now);
        if port.selected && !port.updt_info {
            changed |= self.change_role(index, now);
        }
        let Some(port) = self.ports[index].as_mut() else {
            return changed;
        };
        changed |= port.change_state();
        changed | self.change_topology(index, now)
    }

    fn port(&mut self, index: usize) -> Option<&mut StpPort> {
        self.ports.get_mut(index).and_then(Option::as_mut)
    }

    /// Port role selection (17.28): a new root, and the role of each port under it.
    fn select_roles(&mut self) -> bool {
        if !self.ports.iter().flatten().any(|port| port.reselect) {
            return false;
        }
        self.find_root();
        let (bridge, root, root_times, root_port) = (self.bridge, self.root, self.root_times, self.root_port);
        for (number, port) in self.ports.iter_mut().enumerate() {
            let Some(port) = port.as_mut() else { continue };
            port.reselect = false;
            port.designated_priority = Vector {
                root: root.root,
                cost: root.cost,
                bridge,
                port: port.id,
            };
            port.designated_times = root_times;
            let is_root_port = root_port == Some(PortId(number as u16));
            port.select_role(bridge, is_root_port);
            port.selected = true;
        }
        true
    }

    fn find_root(&mut self) {
        let mut best = (
            Vector {
                root: self.bridge,
                cost: 0,
                bridge: self.bridge,
                port: 0,
            },
            0,
        );
        let mut found = None;
        for (number, port) in self.ports.iter().enumerate() {
            let Some(port) = port else { continue };
            let current = &port.port_priority;
            if port.info_is != InfoIs::Received || current.bridge.address() == self.bridge.address() {
                continue;
            }
            let path = Vector {
                cost: current.cost.saturating_add(port.config.path_cost),
                ..*current
            };
            if (path, port.id) < best {
                best = (path, port.id);
                found = Some((PortId(number as u16), port.port_times));
            }
        }
        self.root = best.0;
        self.root_port = found.map(|(port, _)| port);
        self.root_times = found.map_or(self.times, |(_, times)| times.one_hop_older());
    }

    fn all_synced(&self) -> bool {
        let mut ports = self.ports.iter().flatten();
        ports.all(|port| {
            port.selected && port.role == port.selected_role && (port.synced || port.role == PortRole::Root)
        })
    }

    /// Whether every other port's time as a former root port is over.
    fn re_rooted(&self, index: usize, now: Time) -> bool {
        let others = self.ports.iter().enumerate().filter(|(other, _)| *other != index);
        others
            .filter_map(|(_, port)| port.as_ref())
            .all(|port| port.is_rr_over(now))
    }

    /// Port role transitions (17.29), of a port whose role is chosen and whose information is up to date.
    fn change_role(&mut self, index: usize, now: Time) -> bool {
        let (all_synced, re_rooted) = (self.all_synced(), self.re_rooted(index, now));
        let max_age_ns = self.times.max_age_ns();
        let Some(port) = self.port(index) else { return false };
        if port.role != port.selected_role {
            port.take_role(now, max_age_ns);
            return true;
        }
        let action = match port.role {
            PortRole::Disabled => port.rest_disabled(),
            PortRole::Root => port.progress_root(now, all_synced, re_rooted),
            PortRole::Designated => port.progress_designated(now),
            PortRole::Alternate | PortRole::Backup => port.progress_blocked(all_synced),
        };
        match action {
            Action::None => return false,
            Action::Done => {}
            Action::SyncTree => self.ports.iter_mut().flatten().for_each(|port| port.sync = true),
            Action::ReRootTree => self.ports.iter_mut().flatten().for_each(|port| port.re_root = true),
        }
        true
    }

    fn propagate_change(&mut self, index: usize) {
        for (other, port) in self.ports.iter_mut().enumerate() {
            if let Some(port) = port.as_mut().filter(|_| other != index) {
                port.tc_prop = true;
            }
        }
        self.topology_changes += 1;
        self.last_change = Some(self.now);
    }

    /// Topology change (17.31).
    fn change_topology(&mut self, index: usize, now: Time) -> bool {
        let Some(port) = self.port(index) else { return false };
        let is_active = matches!(port.role, PortRole::Root | PortRole::Designated);
        match port.change {
            Change::Inactive if port.learn => {
                port.change = Change::Learning;
                port.forget_changes();
            }
            Change::Inactive => return false,
            Change::Learning if is_active && port.forward && !port.oper_edge => {
                port.change = Change::Active;
                port.start_change(now);
                port.new_info = true;
                self.propagate_change(index);
            }
            Change::Learning if port.rcvd_tc || port.rcvd_tcn || port.rcvd_tc_ack || port.tc_prop => {
                port.forget_changes();
            }
            Change::Learning if !is_active && !port.learn && !port.learning => {
                port.change = Change::Inactive;
                port.flush = true;
                port.tc_until = Time::ZERO;
                port.tc_ack = false;
            }
            Change::Learning => return false,
            Change::Active if !is_active || port.oper_edge => {
                port.change = Change::Learning;
                port.forget_changes();
            }
            Change::Active if port.rcvd_tc || port.rcvd_tcn => {
                if port.rcvd_tcn {
                    port.start_change(now);
                }
                port.rcvd_tc = false;
                port.rcvd_tcn = false;
                port.tc_ack |= port.role == PortRole::Designated;
                self.propagate_change(index);
            }
            Change::Active if port.rcvd_tc_ack => {
                port.tc_until = Time::ZERO;
                port.rcvd_tc_ack = false;
            }
            Change::Active if port.tc_prop => {
                port.start_change(now);
                port.flush = true;
                port.tc_prop = false;
            }
            Change::Active => return false,
        }
        true
    }
}
