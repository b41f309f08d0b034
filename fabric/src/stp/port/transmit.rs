//! The transmit machine of one port (IEEE 802.1D-2004, 17.26).

use ether::Time;

use super::{SECOND_NS, StpPort, TX_HOLD_COUNT};
use crate::stp::bpdu::{Bpdu, Flags, Kind, Message};
use crate::stp::types::PortRole;

impl StpPort {
    /// The transmit machine (17.26): what this port has to say now.
    pub(in crate::stp) fn poll_bpdu(&mut self, now: Time, hello_ns: u64) -> Option<Bpdu> {
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
