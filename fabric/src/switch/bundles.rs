//! The part of LACP in a switch: LACPDUs are taken out of the traffic, and ports are bundled and parted as their partners say.
//!
//! What partners mean is decided in `lacp`; bundled ports are an aggregate as that of trunks is.

use ether::{MacAddr, Time};

use super::{Egress, Switch};
use crate::control_frame::ControlFrame;
use crate::lacp::{Duty, Lacp};
use crate::ports::PortId;

impl Switch {
    /// Lets a port speak LACP from now on, with `address` as that of the switch. Ports with one `key` are bundled when they have one
    /// partner, at most [`AGGREGATE_MEMBERS_MAX`](super::AGGREGATE_MEMBERS_MAX); a port whose station does not speak LACP is like any other, and one whose partner is not
    /// ready carries nothing. The first of a bundle stands for all. From then on the caller does what
    /// [`enable_spanning_tree`](Self::enable_spanning_tree) says.
    pub fn set_lacp(&mut self, port: PortId, key: u16, address: MacAddr) {
        let is_up = self.is_port_up(port);
        let lacp = self
            .aggregates
            .lacp
            .get_or_insert_with(|| alloc::boxed::Box::new(Lacp::new(address)));
        lacp.add_port(port, key, is_up);
        self.apply_lacp();
    }

    /// A port has a carrier, or none any more.
    pub(super) fn tell_lacp(&mut self, port: PortId, is_up: bool) {
        if self
            .aggregates
            .lacp
            .as_mut()
            .is_some_and(|lacp| lacp.set_up(port, is_up))
        {
            self.apply_lacp();
        }
    }

    /// A port is there no more.
    pub(super) fn leave_lacp(&mut self, port: PortId) {
        if let Some(lacp) = &mut self.aggregates.lacp {
            lacp.remove_port(port);
            self.apply_lacp();
        }
    }

    /// Whether a frame is an LACPDU for the switch.
    #[cold]
    pub(super) fn is_lacpdu(&self, ingress: PortId, header: &[u8]) -> bool {
        self.aggregates
            .lacp
            .as_ref()
            .is_some_and(|lacp| lacp.takes(ingress, header))
    }

    pub(super) fn hear_lacp(&mut self, now: Time, ingress: PortId, header: &[u8]) {
        if let Some(lacp) = &mut self.aggregates.lacp {
            lacp.receive(now, ingress, header);
        }
        self.ports[usize::from(ingress.0)].counters.in_control += 1;
        self.apply_lacp();
    }

    pub(super) fn handle_lacp(&mut self, now: Time) {
        if let Some(lacp) = &mut self.aggregates.lacp {
            lacp.handle(now);
            self.apply_lacp();
        }
    }

    /// The next LACPDU that the switch has to send, and where.
    pub(super) fn poll_lacp(&mut self, now: Time) -> Option<(Egress, ControlFrame)> {
        loop {
            let (port, frame) = self.aggregates.lacp.as_mut()?.poll_transmit(now)?;
            // By this very port, not by one of its bundle.
            if let Some(egress) = self.egress(port) {
                return Some(self.count_control(port, egress, frame));
            }
        }
    }

    /// Bundles, parts, opens and closes ports as LACP says now.
    fn apply_lacp(&mut self) {
        while let Some((port, duty)) = self.aggregates.lacp.as_mut().and_then(|lacp| lacp.take_change()) {
            if self.aggregates.members(port).is_some() {
                self.part(port);
            }
            let waits = duty == Duty::Wait;
            if let Some(state) = self
                .ports
                .get_mut(usize::from(port.0))
                .filter(|state| state.waits != waits)
            {
                state.waits = waits;
                self.refresh_open(port);
            }
            let Duty::With(partner) = duty else { continue };
            let other = self
                .aggregates
                .lacp
                .as_ref()
                .and_then(|lacp| lacp.other_with(partner, port));
            if let Some(other) = other {
                let first = self.aggregates.logical(other);
                // What is too much for a bundle is a port by itself.
                _ = self.join_aggregate(first, port);
            }
        }
    }

    /// Takes a port out of its bundle, to be one by itself.
    fn part(&mut self, port: PortId) {
        self.leave_aggregate(port);
        self.refresh_open(port);
    }
}
