//! Requests of the control socket: what a client writes, and what `vnicd` reads out of a line.
//!
//! Clients write what serde makes of [`Request`]; `vnicd` reads it in `reading`, whose sentences are for people who type such lines.

mod reading;

use serde::{Serialize, Serializer};
use serde_json::json;

use crate::{
    CoalescingChange, Direction, DmaChange, LinkChange, MisorderChange, SteeringChange, TrunkDirection, VlanChange,
};

/// What is asked of `vnicd`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// A sign of life; answers [`Empty`](crate::Empty).
    Ping,
    /// That the process ends; answers [`Empty`](crate::Empty).
    Shutdown,
    /// That nothing is taken from guests until the connection ends, and that what is in flight arrives; answers
    /// [`Drained`](crate::Drained).
    Drain,
    /// What `vnicd` is and which ports it has; answers [`Info`](crate::Info).
    Info,
    /// Counters of ports; answers [`Stats`](crate::Stats).
    Stats {
        /// The port; none: all.
        #[serde(skip_serializing_if = "Option::is_none")]
        port: Option<String>,
    },
    /// A change of a card's interrupt coalescing.
    Coalesce(OfPort<CoalescingChange>),
    /// A change of how a card chooses receive queues.
    Steering(OfPort<SteeringChange>),
    /// A change of a card's misordering injector.
    Misorder(OfPort<MisorderChange>),
    /// A change of a card's DMA engine.
    Dma(OfPort<DmaChange>),
    /// A change of a port's link; answers [`PortLinks`](crate::PortLinks).
    Link {
        /// The port.
        port: String,
        /// Which direction of the link.
        direction: Direction,
        /// What is changed.
        #[serde(flatten)]
        change: LinkChange,
    },
    /// A change of the link between two switches; answers [`TrunkLinks`](crate::TrunkLinks), as `a` and `b` are named here.
    Trunk {
        /// A switch.
        a: String,
        /// The switch at the other end.
        b: String,
        /// Which of the trunks between them, from 1; needed where there are several.
        #[serde(skip_serializing_if = "Option::is_none")]
        number: Option<usize>,
        /// Which direction of the link.
        direction: TrunkDirection,
        /// What is changed.
        #[serde(flatten)]
        change: LinkChange,
    },
    /// A change of the VLANs of a port; answers [`Vlans`](crate::Vlans).
    Vlan {
        /// The port.
        port: String,
        /// What is changed; none: nothing.
        #[serde(flatten, serialize_with = "vlan_change")]
        change: Option<VlanChange>,
    },
    /// Switches with their ports; answers [`Switches`](crate::Switches).
    Switch(OfSwitch),
    /// The stations that switches know; answers [`Stations`](crate::Stations).
    Macs(OfSwitch),
    /// The multicast groups that are wanted behind ports; answers [`Memberships`](crate::Memberships).
    Memberships(OfSwitch),
    /// All multicast groups, behind a change; answers [`Groups`](crate::Groups).
    Group(GroupChange),
    /// Every change of a setting, from now on until the connection ends; answers [`Empty`](crate::Empty), and
    /// [`SettingsEvent`](crate::SettingsEvent)s follow.
    Watch,
    /// The frames of ports; answers [`Empty`](crate::Empty), and pcapng follows.
    Capture {
        /// The ports; none: all.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        ports: Vec<String>,
        /// How many bytes of each frame are kept; none: all.
        #[serde(skip_serializing_if = "Option::is_none")]
        snaplen: Option<u32>,
    },
    /// The flight recorder of a card; answers [`TraceInfo`](crate::TraceInfo), and records follow.
    Trace {
        /// The port.
        port: String,
        /// How many events the recorder has room for; none: as many as are usual.
        #[serde(skip_serializing_if = "Option::is_none")]
        events: Option<usize>,
    },
}

/// A change of some settings of a port's card. It is answered by the settings in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OfPort<C> {
    /// The port.
    pub port: String,
    /// What is changed.
    #[serde(flatten)]
    pub change: C,
}

/// A question about one switch, or about all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OfSwitch {
    /// The switch; none: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
}

impl OfSwitch {
    /// About the switch of this name; none: about all.
    pub fn named(switch: Option<&str>) -> Self {
        Self {
            switch: switch.map(str::to_owned),
        }
    }
}

/// What is to become of a multicast group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum GroupChange {
    /// Nothing: the groups are only listed.
    None,
    /// A card becomes a member, or is none any more.
    Member {
        /// The port of the card.
        port: String,
        /// Number of the group.
        group: u16,
        /// It becomes a member; otherwise it is none any more.
        join: bool,
    },
    /// Its trees get another shape.
    Tree {
        /// Number of the group.
        group: u16,
        /// Name of the shape.
        tree: String,
    },
}

fn vlan_change<S: Serializer>(change: &Option<VlanChange>, serializer: S) -> Result<S::Ok, S::Error> {
    match change {
        None => json!({}).serialize(serializer),
        Some(VlanChange::Default) => json!({ "default": true }).serialize(serializer),
        Some(VlanChange::Set(settings)) => settings.serialize(serializer),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn of_port<C>(change: C) -> OfPort<C> {
        let port = "n1.eth0".to_owned();
        OfPort { port, change }
    }

    /// A link whose queue is limited, and marks nothing.
    fn link_change() -> LinkChange {
        LinkChange {
            queue_max: Some(fabric::QueueLevel::frames(3)),
            ecn_above: Some(fabric::QueueLevel::NONE),
            up: Some(false),
            ..LinkChange::default()
        }
    }

    fn about_cards() -> Vec<Request> {
        let mut coalesce = CoalescingChange::default();
        coalesce.all.strategy = Some("stream".to_owned());
        coalesce.watchdog_ns = Some(7);
        let steering = SteeringChange {
            indirection: firmware::QueueTable::repeating(&[0, 1, 1]),
            endpoints: Some(firmware::QueueTable::EVEN),
            ..SteeringChange::default()
        };
        let port = || "n1.eth0".to_owned();
        vec![
            Request::Stats { port: Some(port()) },
            Request::Coalesce(of_port(coalesce)),
            Request::Steering(of_port(steering)),
            Request::Dma(of_port((&firmware::DmaModel::new(1, 2, 3)).into())),
            Request::Misorder(of_port(MisorderChange::default())),
            Request::Link {
                port: port(),
                direction: Direction::ToGuest,
                change: link_change(),
            },
            Request::Capture {
                ports: vec![port()],
                snaplen: Some(64),
            },
            Request::Trace {
                port: port(),
                events: None,
            },
        ]
    }

    fn about_switches() -> Vec<Request> {
        let port = || "n1.eth0".to_owned();
        let vlan = |change| Request::Vlan { port: port(), change };
        vec![
            Request::Trunk {
                a: "s1".to_owned(),
                b: "s2".to_owned(),
                number: Some(2),
                direction: TrunkDirection::AToB,
                change: link_change(),
            },
            vlan(None),
            vlan(Some(VlanChange::Default)),
            vlan(Some(VlanChange::Set(Default::default()))),
            Request::Macs(OfSwitch::named(None)),
            Request::Switch(OfSwitch::named(Some("s1"))),
            Request::Group(GroupChange::None),
            Request::Group(GroupChange::Member {
                port: port(),
                group: 3,
                join: true,
            }),
            Request::Group(GroupChange::Tree {
                group: 3,
                tree: "chain".to_owned(),
            }),
        ]
    }

    #[test]
    fn what_a_client_writes_is_what_vnicd_reads() {
        let plain = [Request::Ping, Request::Info, Request::Watch];
        for request in plain.into_iter().chain(about_cards()).chain(about_switches()) {
            let line = serde_json::to_vec(&request).expect("plain data");
            assert_eq!(Request::read(&line), (Value::Null, Ok(request)));
        }
    }
}
