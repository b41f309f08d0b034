//! What the state machines of a port remember (IEEE 802.1D-2004, 17.15 to 17.19); what the machines do is in `port/`.
//!
//! The names are the standard's, but for case. Its timers count down; here they are the times at which they end.

mod machines;
mod transmit;

use ether::Time;

pub(super) use machines::Action;

use super::bpdu::{Exchange, Kind, Message};
use super::priority::{BridgeId, Times, Vector};
use super::types::{PortRole, PortState, StpPortConfig, StpPortCounters};

/// How long another protocol version is watched for before it is believed, and how long a port without bridge behind it
/// waits before it counts as an edge: the standard's Migrate Time.
pub(super) const MIGRATE_NS: u64 = 3_000_000_000;

/// A second, in which a port may send one BPDU more than its burst.
pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// BPDUs that a port may send in a row, and then one each second (17.14 recommends 6, 10 is the most it allows). Taken large,
/// since news that wait here are news that other bridges act without.
pub(super) const TX_HOLD_COUNT: u32 = 10;

/// Where what a port knows comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InfoIs {
    Disabled,
    Mine,
    Aged,
    Received,
}

/// States of protocol migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Migration {
    Checking,
    Sensing,
    Selecting,
}

/// States of the topology change machine that last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Inactive,
    Learning,
    Active,
}

pub(super) struct StpPort {
    pub config: StpPortConfig,
    pub id: u16,
    pub enabled: bool,
    // Port information.
    pub info_is: InfoIs,
    pub port_priority: Vector,
    pub port_times: Times,
    pub designated_priority: Vector,
    pub designated_times: Times,
    pub message: Option<Message>,
    pub rcvd_info_until: Time,
    pub updt_info: bool,
    /// Numbers of the news told and heard on this port.
    pub exchange: Exchange,
    pub reselect: bool,
    pub selected: bool,
    // Roles and agreement.
    pub role: PortRole,
    pub selected_role: PortRole,
    pub learn: bool,
    pub learning: bool,
    pub forward: bool,
    pub forwarding: bool,
    pub proposed: bool,
    pub proposing: bool,
    pub agree: bool,
    pub agreed: bool,
    pub sync: bool,
    pub synced: bool,
    pub re_root: bool,
    pub disputed: bool,
    pub fd_until: Time,
    pub rr_until: Time,
    pub rb_until: Time,
    // Edge and migration.
    pub oper_edge: bool,
    pub edge_delay_until: Time,
    pub migration: Migration,
    pub mdelay_until: Time,
    pub send_rstp: bool,
    pub rcvd_rstp: bool,
    pub rcvd_stp: bool,
    // Topology change.
    pub change: Change,
    pub tc_until: Time,
    pub rcvd_tc: bool,
    pub rcvd_tcn: bool,
    pub rcvd_tc_ack: bool,
    pub tc_prop: bool,
    pub tc_ack: bool,
    /// What was learned on the port is to be forgotten.
    pub flush: bool,
    // Transmission.
    pub new_info: bool,
    pub hello_at: Time,
    pub tx_count: u32,
    pub tx_decay_at: Time,
    pub counters: StpPortCounters,
}

impl StpPort {
    pub fn new(config: StpPortConfig, id: u16, bridge: BridgeId, times: Times) -> Self {
        let own = Vector {
            root: bridge,
            cost: 0,
            bridge,
            port: id,
        };
        Self {
            config,
            id,
            enabled: false,
            info_is: InfoIs::Disabled,
            port_priority: own,
            port_times: times,
            designated_priority: own,
            designated_times: times,
            message: None,
            rcvd_info_until: Time::ZERO,
            updt_info: false,
            exchange: Exchange::default(),
            reselect: true,
            selected: false,
            role: PortRole::Disabled,
            selected_role: PortRole::Disabled,
            learn: false,
            learning: false,
            forward: false,
            forwarding: false,
            proposed: false,
            proposing: false,
            agree: false,
            agreed: false,
            sync: false,
            synced: false,
            re_root: false,
            disputed: false,
            fd_until: Time::ZERO,
            rr_until: Time::ZERO,
            rb_until: Time::ZERO,
            oper_edge: config.edge,
            edge_delay_until: Time::ZERO,
            migration: Migration::Checking,
            mdelay_until: Time::ZERO,
            send_rstp: true,
            rcvd_rstp: false,
            rcvd_stp: false,
            change: Change::Inactive,
            tc_until: Time::ZERO,
            rcvd_tc: false,
            rcvd_tcn: false,
            rcvd_tc_ack: false,
            tc_prop: false,
            tc_ack: false,
            flush: false,
            new_info: false,
            hello_at: Time::ZERO,
            tx_count: 0,
            tx_decay_at: Time::ZERO,
            counters: StpPortCounters::default(),
        }
    }

    pub fn state(&self) -> PortState {
        match (self.learning, self.forwarding) {
            (_, true) => PortState::Forwarding,
            (true, false) => PortState::Learning,
            (false, false) => PortState::Discarding,
        }
    }

    /// How long a port waits that no bridge agrees with. The standard's forwardDelay (17.20.5) is a hello time for a port that
    /// speaks the rapid protocol; news may be in flight for longer, where trunks have delays.
    pub fn forward_delay_ns(&self) -> u64 {
        self.designated_times.forward_delay_ns()
    }

    /// Whether rrWhile has ended: it never does on a root port.
    pub fn is_rr_over(&self, now: Time) -> bool {
        self.role != PortRole::Root && now >= self.rr_until
    }

    pub fn is_rb_over(&self, now: Time) -> bool {
        self.role != PortRole::Backup && now >= self.rb_until
    }

    /// What the message says, as against what is known (17.21.8).
    pub fn judge(&self, message: &Message) -> Judgement {
        match message.role {
            Some(PortRole::Designated) => {
                let (vector, current) = (&message.vector, &self.port_priority);
                if vector.supersedes(current) || (vector == current && message.times != self.port_times) {
                    Judgement::SuperiorDesignated
                } else if vector == current {
                    Judgement::RepeatedDesignated
                } else {
                    Judgement::InferiorDesignated
                }
            }
            Some(PortRole::Root | PortRole::Alternate | PortRole::Backup) if message.vector >= self.port_priority => {
                Judgement::NotDesignated
            }
            _ => Judgement::Other,
        }
    }

    /// Notes a received message (17.21.19 and 17.23).
    pub fn note_message(&mut self, message: Message, now: Time, migrate_ns: u64) {
        match message.kind {
            Kind::Rapid => self.rcvd_rstp = true,
            Kind::Configuration => self.rcvd_stp = true,
        }
        self.message = Some(message);
        self.note_bridge(now, migrate_ns);
    }

    /// There is a bridge behind the port.
    pub fn note_bridge(&mut self, now: Time, migrate_ns: u64) {
        self.oper_edge = false;
        self.edge_delay_until = now.plus_nanos(migrate_ns);
    }
}

/// What a message is as against what a port knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    SuperiorDesignated,
    RepeatedDesignated,
    InferiorDesignated,
    NotDesignated,
    Other,
}
