//! The state machines of one port (IEEE 802.1D-2004, 17.24 to 17.31): bridge detection, protocol migration, port information, role
//! and state transitions, topology change.

use ether::Time;

use super::{InfoIs, Judgement, MIGRATE_NS, Migration, SECOND_NS, StpPort};
use crate::stp::bpdu::{Kind, Message};
use crate::stp::priority::{BridgeId, SECOND, Times};
use crate::stp::types::PortRole;

/// What a port wants of the other ports.
pub(in crate::stp) enum Action {
    None,
    /// Only variables of this port changed.
    Done,
    SyncTree,
    ReRootTree,
}

impl StpPort {
    /// Bridge detection (17.25).
    pub(in crate::stp) fn detect_bridge(&mut self, now: Time) -> bool {
        let admin = self.config.edge;
        let is_edge = if self.oper_edge {
            self.enabled || admin
        } else {
            (!self.enabled && admin)
                || (self.enabled && now >= self.edge_delay_until && self.send_rstp && self.proposing)
        };
        let changed = is_edge != self.oper_edge;
        self.oper_edge = is_edge;
        changed
    }

    /// Protocol migration (17.24).
    pub(in crate::stp) fn migrate(&mut self, now: Time) -> bool {
        match self.migration {
            Migration::Checking if self.enabled && now >= self.mdelay_until => {
                self.migration = Migration::Sensing;
                self.rcvd_rstp = false;
                self.rcvd_stp = false;
            }
            Migration::Sensing if !self.enabled || (!self.send_rstp && self.rcvd_rstp) => {
                self.migration = Migration::Checking;
                self.send_rstp = true;
                self.mdelay_until = now.plus_nanos(MIGRATE_NS);
            }
            Migration::Sensing if self.send_rstp && self.rcvd_stp => {
                self.migration = Migration::Selecting;
                self.send_rstp = false;
                self.mdelay_until = now.plus_nanos(MIGRATE_NS);
            }
            Migration::Selecting if !self.enabled || now >= self.mdelay_until => {
                self.migration = Migration::Sensing;
                self.rcvd_rstp = false;
                self.rcvd_stp = false;
            }
            _ => return false,
        }
        true
    }

    /// Port information (17.27).
    pub(in crate::stp) fn inform(&mut self, now: Time) -> bool {
        if !self.enabled {
            self.message = None;
            if self.info_is == InfoIs::Disabled {
                return false;
            }
            self.info_is = InfoIs::Disabled;
            self.proposing = false;
            self.proposed = false;
            self.agree = false;
            self.agreed = false;
            self.rcvd_info_until = Time::ZERO;
            self.ask_for_roles();
            return true;
        }
        match self.info_is {
            InfoIs::Disabled => {
                self.info_is = InfoIs::Aged;
                self.ask_for_roles();
                true
            }
            _ if self.selected && self.updt_info => {
                self.update_info();
                true
            }
            InfoIs::Mine | InfoIs::Received if !self.updt_info && self.message.is_some() => {
                if let Some(message) = self.message.take() {
                    self.take_message(&message, now);
                }
                true
            }
            InfoIs::Received if now >= self.rcvd_info_until && !self.updt_info => {
                self.info_is = InfoIs::Aged;
                self.ask_for_roles();
                true
            }
            _ => false,
        }
    }

    fn ask_for_roles(&mut self) {
        self.reselect = true;
        self.selected = false;
    }

    /// What the port says is the bridge's own from now on.
    fn update_info(&mut self) {
        self.proposing = false;
        self.proposed = false;
        let is_same_or_better = self.info_is == InfoIs::Mine && self.designated_priority <= self.port_priority;
        self.agreed &= is_same_or_better;
        self.synced &= self.agreed;
        // Stricter than the standard, under which a port whose news are bad goes on forwarding, and two bridges that each
        // believe the other's old news may close a loop for a moment: a port that no bridge has agreed to carries no frames.
        if !self.agreed && !self.oper_edge && self.send_rstp && (self.learn || self.forward) {
            self.sync = true;
        }
        if self.info_is != InfoIs::Mine || self.port_priority != self.designated_priority {
            self.exchange.told = self.exchange.told.wrapping_add(1);
        }
        self.port_priority = self.designated_priority;
        self.port_times = self.designated_times;
        self.updt_info = false;
        self.info_is = InfoIs::Mine;
        self.new_info = true;
    }

    fn take_message(&mut self, message: &Message, now: Time) {
        let flags = &message.flags;
        if let Some(exchange) = message.exchange {
            self.exchange.heard = exchange.told;
        }
        match self.judge(message) {
            Judgement::SuperiorDesignated => {
                self.agreed = false;
                self.proposing = false;
                self.proposed |= flags.proposal;
                self.note_changes(message);
                self.agree &= self.info_is == InfoIs::Received && message.vector <= self.port_priority;
                self.port_priority = message.vector;
                self.port_times = message.times;
                self.renew_info(now);
                self.info_is = InfoIs::Received;
                self.ask_for_roles();
            }
            Judgement::RepeatedDesignated => {
                self.proposed |= flags.proposal;
                self.note_changes(message);
                self.renew_info(now);
            }
            Judgement::InferiorDesignated => {
                if message.kind == Kind::Rapid && flags.learning {
                    self.disputed = true;
                    self.agreed = false;
                }
            }
            Judgement::NotDesignated => {
                // What was agreed to must be what this port says now.
                let is_answer = message
                    .exchange
                    .is_none_or(|exchange| exchange.heard == self.exchange.told);
                let agrees = message.kind == Kind::Rapid && flags.agreement;
                self.agreed = agrees && (is_answer || self.agreed);
                if self.agreed {
                    self.proposing = false;
                }
                self.note_changes(message);
            }
            Judgement::Other => {}
        }
    }

    fn note_changes(&mut self, message: &Message) {
        self.rcvd_tc |= message.flags.change;
        self.rcvd_tc_ack |= message.kind == Kind::Configuration && message.flags.change_ack;
    }

    /// How long what was received is good for: three hellos, unless it is too old already (17.21.23).
    fn renew_info(&mut self, now: Time) {
        let Times {
            message_age, max_age, ..
        } = self.port_times;
        self.rcvd_info_until = if message_age.saturating_add(SECOND) <= max_age {
            now.plus_nanos(3 * self.port_times.hello_ns())
        } else {
            now
        };
    }

    /// The role of the port, from what it knows (17.21.25).
    pub(in crate::stp) fn select_role(&mut self, bridge: BridgeId, is_root_port: bool) {
        let (role, must_update) = match self.info_is {
            InfoIs::Disabled => (PortRole::Disabled, self.updt_info),
            InfoIs::Aged => (PortRole::Designated, true),
            InfoIs::Mine => {
                let differs =
                    self.port_priority != self.designated_priority || self.port_times != self.designated_times;
                (PortRole::Designated, self.updt_info || differs)
            }
            InfoIs::Received if is_root_port => (PortRole::Root, false),
            InfoIs::Received if self.designated_priority < self.port_priority => (PortRole::Designated, true),
            InfoIs::Received if self.port_priority.bridge.address() == bridge.address() => (PortRole::Backup, false),
            InfoIs::Received => (PortRole::Alternate, false),
        };
        self.selected_role = role;
        self.updt_info = must_update;
    }

    /// The port takes the role that was chosen for it. Timers that the old role kept from running begin to run.
    pub(in crate::stp) fn take_role(&mut self, now: Time, max_age_ns: u64) {
        match self.role {
            PortRole::Root => self.rr_until = now.plus_nanos(self.designated_times.forward_delay_ns()),
            PortRole::Alternate => self.fd_until = now.plus_nanos(self.forward_delay_ns()),
            PortRole::Backup => {
                self.fd_until = now.plus_nanos(self.forward_delay_ns());
                self.rb_until = now.plus_nanos(2 * self.designated_times.hello_ns());
            }
            PortRole::Disabled => self.fd_until = now.plus_nanos(max_age_ns),
            PortRole::Designated => {}
        }
        self.role = self.selected_role;
        if matches!(self.role, PortRole::Disabled | PortRole::Alternate | PortRole::Backup) {
            self.learn = false;
            self.forward = false;
        }
    }

    pub(in crate::stp) fn rest_disabled(&mut self) -> Action {
        if self.learning || self.forwarding || !(self.sync || self.re_root || !self.synced) {
            return Action::None;
        }
        self.rest();
        Action::Done
    }

    /// A port that carries nothing is in agreement with whatever the others do.
    fn rest(&mut self) {
        self.synced = true;
        self.rr_until = Time::ZERO;
        self.sync = false;
        self.re_root = false;
    }

    pub(in crate::stp) fn progress_blocked(&mut self, all_synced: bool) -> Action {
        if self.learning || self.forwarding {
            return Action::None;
        }
        if self.proposed && !self.agree {
            self.proposed = false;
            return Action::SyncTree;
        }
        if (all_synced && !self.agree) || (self.proposed && self.agree) {
            self.proposed = false;
            self.agree = true;
            self.new_info = true;
            return Action::Done;
        }
        if self.sync || self.re_root || !self.synced {
            self.rest();
            return Action::Done;
        }
        Action::None
    }

    pub(in crate::stp) fn progress_root(&mut self, now: Time, all_synced: bool, re_rooted: bool) -> Action {
        if self.proposed && !self.agree {
            self.proposed = false;
            return Action::SyncTree;
        }
        if (all_synced && !self.agree) || (self.proposed && self.agree) {
            self.proposed = false;
            self.sync = false;
            self.agree = true;
            self.new_info = true;
            return Action::Done;
        }
        if !self.forward && !self.re_root {
            return Action::ReRootTree;
        }
        if self.re_root && self.forward {
            self.re_root = false;
            return Action::Done;
        }
        let may_progress = now >= self.fd_until || (re_rooted && self.is_rb_over(now));
        if may_progress && !self.learn {
            self.learn = true;
            self.fd_until = now.plus_nanos(self.forward_delay_ns());
            return Action::Done;
        }
        if may_progress && !self.forward {
            self.forward = true;
            self.fd_until = Time::ZERO;
            return Action::Done;
        }
        Action::None
    }

    pub(in crate::stp) fn progress_designated(&mut self, now: Time) -> Action {
        let is_rr_over = self.is_rr_over(now);
        if !self.forward && !self.agreed && !self.proposing && !self.oper_edge {
            self.proposing = true;
            self.edge_delay_until = now.plus_nanos(MIGRATE_NS);
            self.new_info = true;
            return Action::Done;
        }
        let is_quiet = !self.learning && !self.forwarding;
        if ((is_quiet || self.agreed || self.oper_edge) && !self.synced) || (self.sync && self.synced) {
            self.rr_until = Time::ZERO;
            self.synced = true;
            self.sync = false;
            return Action::Done;
        }
        if is_rr_over && self.re_root {
            self.re_root = false;
            return Action::Done;
        }
        let must_discard = (self.sync && !self.synced) || (self.re_root && !is_rr_over) || self.disputed;
        if must_discard && !self.oper_edge && (self.learn || self.forward) {
            self.learn = false;
            self.forward = false;
            self.disputed = false;
            self.fd_until = now.plus_nanos(self.forward_delay_ns());
            return Action::Done;
        }
        let may_progress =
            (now >= self.fd_until || self.agreed || self.oper_edge) && (is_rr_over || !self.re_root) && !self.sync;
        if may_progress && !self.learn {
            self.learn = true;
            self.fd_until = now.plus_nanos(self.forward_delay_ns());
            return Action::Done;
        }
        if may_progress && !self.forward {
            self.forward = true;
            self.fd_until = Time::ZERO;
            self.agreed = self.send_rstp;
            return Action::Done;
        }
        Action::None
    }

    /// Port state transition (17.30).
    pub(in crate::stp) fn change_state(&mut self) -> bool {
        let before = (self.learning, self.forwarding);
        if !self.learn || (self.forwarding && !self.forward) {
            self.learning = false;
            self.forwarding = false;
        } else if !self.learning {
            self.learning = true;
        } else if self.forward && !self.forwarding {
            self.forwarding = true;
            self.counters.forwarded += 1;
        }
        before != (self.learning, self.forwarding)
    }

    pub(in crate::stp) fn forget_changes(&mut self) {
        self.rcvd_tc = false;
        self.rcvd_tcn = false;
        self.rcvd_tc_ack = false;
        self.tc_prop = false;
    }

    /// Says for some time that the topology changed (17.21.7).
    pub(in crate::stp) fn start_change(&mut self, now: Time) {
        if now < self.tc_until {
            return;
        }
        if self.send_rstp {
            self.tc_until = now.plus_nanos(self.designated_times.hello_ns() + SECOND_NS);
            self.new_info = true;
        } else {
            self.tc_until =
                now.plus_nanos(self.designated_times.max_age_ns() + self.designated_times.forward_delay_ns());
        }
    }
}
