//! The spanning tree's part in a switch: BPDUs are taken out of the traffic, and ports are opened and closed as it says.
//!
//! What the roles and states are is decided in `stp`.

use ether::Time;

use super::{DropReason, Egress, Forward, Switch, check};
use crate::control_frame::ControlFrame;
use crate::ports::PortId;
use crate::stp::{PortState, SpanningTree, StpConfig, StpPortConfig, StpPortStatus, StpStatus};

impl Switch {
    /// Takes part in the spanning tree from now on: every port that leads to a card is an edge port, and one that leads over a
    /// trunk waits for what the other end says. From then on the caller calls [`handle`](Self::handle) when
    /// [`next_event`](Self::next_event) says so, and before a port comes, goes, or is changed, so that this happens at its time; and
    /// [`poll_transmit`](Self::poll_transmit) after each of these and after each [`Forward::Taken`], and then reads `next_event` anew.
    pub fn enable_spanning_tree(&mut self, config: StpConfig, now: Time) {
        self.tree = Some(alloc::boxed::Box::new(SpanningTree::new(config, now)));
        for number in 0..self.ports.len() {
            self.join_tree(PortId(number as u16));
        }
        self.apply_tree();
    }

    /// How a port takes part in the spanning tree; nothing happens without one. Of an aggregate, the port counts that stands
    /// for it.
    pub fn set_spanning_tree_port(&mut self, port: PortId, config: StpPortConfig) {
        if self.aggregates.logical(port) == port
            && self.egress(port).is_some()
            && let Some(tree) = &mut self.tree
        {
            tree.set_port(port, config);
            self.apply_tree();
        }
    }

    /// How a port takes part, if it does.
    pub(super) fn spanning_tree_config(&self, port: PortId) -> Option<StpPortConfig> {
        self.tree.as_ref()?.port_config(port)
    }

    /// A port that left the tree and is in it again takes part as it did before, if it did.
    pub(super) fn restore_spanning_tree_config(&mut self, port: PortId, config: Option<StpPortConfig>) {
        if let Some(config) = config {
            self.set_spanning_tree_port(port, config);
        }
    }

    /// A port that is there takes part, as it is now.
    pub(super) fn join_tree(&mut self, port: PortId) {
        if self.aggregates.logical(port) != port {
            return;
        }
        let (egress, is_up) = (self.egress(port), self.has_carrier(port));
        let Some(tree) = &mut self.tree else { return };
        match egress {
            None => tree.remove_port(port),
            Some(egress) => {
                if tree.port_status(port).is_none() {
                    tree.set_port(
                        port,
                        match egress {
                            Egress::Local(_) => StpPortConfig::EDGE,
                            Egress::Trunk(_) => StpPortConfig::of_rate(0),
                        },
                    );
                }
                tree.set_up(port, is_up);
            }
        }
    }

    /// A port, or all members of an aggregate, do not take part any more.
    pub(super) fn leave_tree(&mut self, port: PortId) {
        if let Some(tree) = &mut self.tree {
            tree.remove_port(port);
        }
    }

    /// Does what is due by now.
    pub fn handle(&mut self, now: Time) {
        if let Some(tree) = &mut self.tree {
            tree.handle(now);
            self.apply_tree();
        }
        self.handle_lacp(now);
        if let Some(snooping) = &mut self.snooping {
            snooping.handle(now);
        }
    }

    /// When [`handle`](Self::handle) has something to do next, if nothing else happens.
    pub fn next_event(&self) -> Option<Time> {
        let of_tree = self.tree.as_ref().and_then(|tree| tree.next_event());
        let of_snooping = self.snooping.as_ref().and_then(|snooping| snooping.next_event());
        let of_lacp = self.aggregates.lacp.as_ref().and_then(|lacp| lacp.next_event());
        of_tree.into_iter().chain(of_snooping).chain(of_lacp).min()
    }

    /// The next frame that the switch itself has to send, and where. To be asked until there is none.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(Egress, ControlFrame)> {
        while let Some((port, frame)) = self.tree.as_mut().and_then(|tree| tree.poll_transmit(now)) {
            let sent = self.send_control(port, frame);
            if sent.is_some() {
                return sent;
            }
        }
        self.poll_lacp(now).or_else(|| self.poll_query(now))
    }

    /// Decides about a frame of the switch itself, which is counted there; `None` if the port has just gone.
    pub(super) fn send_control(&mut self, port: PortId, frame: ControlFrame) -> Option<(Egress, ControlFrame)> {
        let member = self.member_for(port, 0)?;
        let egress = self.egress(member)?;
        Some(self.count_control(member, egress, frame))
    }

    /// Counts a frame of the switch itself that leaves by a port.
    pub(super) fn count_control(
        &mut self,
        port: PortId,
        egress: Egress,
        frame: ControlFrame,
    ) -> (Egress, ControlFrame) {
        let counters = &mut self.ports[usize::from(port.0)].counters;
        counters.out_control += 1;
        counters.out_control_bytes += frame.bytes().len() as u64;
        (egress, frame)
    }

    /// What the switch knows of the spanning tree, if it takes part.
    pub fn spanning_tree(&self) -> Option<StpStatus> {
        self.tree.as_ref().map(|tree| tree.status())
    }

    /// What a port is in the spanning tree; `None` if it takes no part.
    pub fn spanning_tree_port(&self, port: PortId) -> Option<StpPortStatus> {
        self.tree.as_ref()?.port_status(port)
    }

    /// Opens and closes ports as the spanning tree says now, and forgets what it says.
    pub(super) fn apply_tree(&mut self) {
        for number in 0..self.ports.len() {
            let port = PortId(number as u16);
            let flush = self.tree.as_mut().is_some_and(|tree| tree.take_flush(port));
            if flush {
                self.forget_stations(port);
                self.note_topology_change();
            }
            if self.aggregates.logical(port) == port {
                self.set_open(port);
            }
        }
    }

    /// What the spanning tree lets a port do.
    pub(super) fn tree_state(&self, port: PortId) -> PortState {
        match &self.tree {
            None => PortState::Forwarding,
            Some(tree) => tree.state(port),
        }
    }

    /// A frame that cannot simply be forwarded: for the switch itself, or dropped for a reason that may not be the one that was
    /// seen first.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse(&mut self, now: Time, ingress: PortId, header: &[u8], reason: DropReason) -> Forward {
        let logical = self.aggregates.logical(ingress);
        let is_closed = reason == DropReason::PortDown && self.is_port_up(ingress);
        let is_bpdu = super::is_bridge_group(header);
        if is_bpdu
            && (is_closed || reason == DropReason::ReservedAddress)
            && let Some(tree) = &mut self.tree
        {
            tree.receive(now, logical, header);
            self.ports[usize::from(ingress.0)].counters.in_control += 1;
            self.apply_tree();
            return Forward::Taken;
        }
        if (is_closed || reason == DropReason::ReservedAddress) && self.is_lacpdu(ingress, header) {
            self.hear_lacp(now, ingress, header);
            return Forward::Taken;
        }
        let mut reason = reason;
        if is_closed {
            reason = match check(true, header) {
                Err(other) => other,
                Ok((_, _, src)) => {
                    if self.tree_state(logical) == PortState::Learning
                        && let Some(vlan) = self.table_vlan(logical, header)
                    {
                        self.learn(now, logical, src, vlan);
                    }
                    DropReason::Discarding
                }
            };
        }
        self.last.dropped = Some(reason);
        self.ports[usize::from(ingress.0)].counters.dropped[reason as usize] += 1;
        Forward::Drop(reason)
    }
}
