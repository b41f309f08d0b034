//! Trunks between switches of this shard: their links, and frames that leave a switch over one.
//!
//! That they make no loop is checked where they are added.

use std::collections::BTreeSet;

use ether::Time;
use fabric::{Link, PortId, StpPortConfig, TrunkGraph};

use super::crossing::Hop;
use super::fabric_handle::{invalid, trunk_from};
use super::forward::Outcome;
use super::frame::FrameRef;
use super::pool::Stage;
use super::switch_handle::TrunkOptions;
use super::transmit::TxOrigin;
use super::watch::Subject;
use super::way::{Way, way_over};
use super::{Fabric, FabricError, Inner};
use crate::report::{LinkChange, TrunkLinks};

/// A trunk between two switches of this shard.
pub(super) struct Trunk {
    /// The switches, each with its port of the trunk.
    pub ends: [(usize, PortId); 2],
    /// The link away from each end.
    pub links: [Link; 2],
    /// Their settings; `a` is the first end.
    pub settings: TrunkLinks,
    /// What it has beyond its links.
    pub options: TrunkOptions,
    /// Frames that do not arrive over it for other reasons than its link's, away from each end.
    pub losses: [TrunkLosses; 2],
}

/// Frames that leave a switch over a trunk and do not arrive, its link's own drops aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TrunkLosses {
    /// Their senders had used up their shares of the pool.
    pub pool_share: u64,
    /// They could not be cut.
    pub bad_offload: u64,
    /// They had crossed as many trunks as there are, or [`TRUNKS_CROSSED_MAX`].
    pub too_many_trunks: u64,
}

impl Trunk {
    /// Whether it has a carrier: as on a cable with one broken wire, both ends have none if one direction is down.
    pub fn is_up(&self) -> bool {
        self.links.iter().all(|link| link.config().up)
    }

    /// Where a frame goes that leaves the trunk's end `from` over it, and over which link.
    pub(super) fn out_of(&mut self, from: usize) -> (Stage, &mut Link) {
        let (switch, port) = self.ends[1 - from];
        (Stage::Switch { switch, port }, &mut self.links[from])
    }
}

/// Trunks that a frame crosses straight one after the other; behind so many it waits for its turn in the pool, since each takes
/// a part of the stack.
const STRAIGHT_TRUNKS_MAX: u32 = 32;

/// Trunks that one frame and its copies cross straight; further ones go by way of the pool, which is as right. In a loop, copies
/// could double at every switch, and nothing but this would end that: what is in the pool has a limit.
const STRAIGHT_CROSSINGS_MAX: u32 = 64;

/// Trunks that a frame crosses, if there are as many; then it is dropped. Without a loop it crosses none twice, and loops are
/// refused or cut by the spanning tree: so whoever crosses more than there are circles by mistake, and over ideal trunks that
/// would go on for ever without time going by. Four times as many as a lab has switches.
pub(super) const TRUNKS_CROSSED_MAX: u32 = 64;

impl Inner {
    /// The origin of a frame, so many on the wire, that sets out over a trunk from its end `from`; `None`, and it is counted, if it
    /// crossed too many.
    #[inline]
    pub(super) fn cross_trunk(&mut self, trunk: usize, from: usize, origin: TxOrigin, frames: u32) -> Option<TxOrigin> {
        if origin.trunks_crossed() >= TRUNKS_CROSSED_MAX.min(self.trunks.len() as u32) {
            self.trunks[trunk].losses[from].too_many_trunks += u64::from(frames);
            return None;
        }
        Some(origin.behind_trunk())
    }

    /// The trunk in the direction in which a frame leaves `switch` over it.
    pub(super) fn hop_over_trunk(&self, switch: usize, trunk: fabric::TrunkId) -> Hop {
        let trunk = usize::from(trunk.0);
        let from = usize::from(self.trunks[trunk].ends[0].0 != switch);
        Hop::Trunk { trunk, from }
    }

    /// Sends a frame that leaves `switch` over a trunk.
    #[inline(never)]
    pub(super) fn carry_over_trunk(
        &mut self,
        switch: usize,
        trunk: fabric::TrunkId,
        origin: TxOrigin,
        frame: &FrameRef<'_>,
        now: Time,
        may_hold: bool,
    ) -> Outcome {
        let number = usize::from(trunk.0);
        let Some(trunk) = self.trunks.get(number) else {
            return Outcome::Taken;
        };
        let from = usize::from(trunk.ends[0].0 != switch);
        let Some(wire) = frame.on_wire() else {
            self.lose_uncut(Hop::Trunk { trunk: number, from }, now);
            return Outcome::Taken;
        };
        let crossed = origin.trunks_crossed();
        let Some(origin) = self.cross_trunk(number, from, origin, wire.frames) else {
            return Outcome::Taken;
        };
        if crossed == 0 {
            self.straight_crossings = 0;
        }
        let (stage, link) = self.trunks[number].out_of(from);
        let way = way_over(link, wire.longest, now, self.shortcuts);
        if way == Way::Straight
            && crossed < STRAIGHT_TRUNKS_MAX
            && self.straight_crossings < STRAIGHT_CROSSINGS_MAX
            && let Stage::Switch { switch, port } = stage
        {
            link.count_passed(u64::from(wire.frames), wire.bytes);
            self.straight_crossings += 1;
            return self.switch_on(switch, port, origin, frame, now, may_hold);
        }
        self.cross(Hop::Trunk { trunk: number, from }, origin, frame, &wire, way, now);
        Outcome::Taken
    }
}

impl Inner {
    /// The trunk between two switches; where there are several, a number says which, counted from 1.
    fn find_trunk(&self, (a, b): (&str, &str), number: Option<usize>) -> Result<usize, FabricError> {
        let between = self.trunks.iter().enumerate().filter(|(_, trunk)| {
            let names = trunk.ends.map(|(switch, _)| self.switches[switch].name.as_str());
            names == [a, b] || names == [b, a]
        });
        let found: Vec<usize> = between.map(|(index, _)| index).collect();
        match (number, &found[..]) {
            (_, []) => Err(invalid(format!("there is no trunk between {a:?} and {b:?}"))),
            (None, [only]) => Ok(*only),
            (Some(number), _) if (1..=found.len()).contains(&number) => Ok(found[number - 1]),
            (_, [_]) => Err(invalid(format!(
                "there is 1 trunk between {a:?} and {b:?}: its number is 1"
            ))),
            (_, found) => Err(invalid(format!(
                "there are {} trunks between {a:?} and {b:?}: name one by its number, from 1",
                found.len()
            ))),
        }
    }

    /// How many trunks between the same two switches stand before this one, plus 1.
    pub(super) fn trunk_number(&self, index: usize) -> usize {
        let pair = |trunk: &Trunk| {
            let [a, b] = trunk.ends.map(|(switch, _)| switch);
            (a.min(b), a.max(b))
        };
        let before = self.trunks[..index].iter();
        1 + before.filter(|trunk| pair(trunk) == pair(&self.trunks[index])).count()
    }

    /// Refuses a trunk that would close a loop in which no spanning tree keeps frames from circling.
    pub(super) fn check_loops(&self, (a, b): (usize, usize), aggregate: Option<&str>) -> Result<(), FabricError> {
        let known = self.trunks.iter().map(|trunk| {
            let [a, b] = trunk.ends.map(|(switch, _)| switch);
            ((a, b), trunk.options.aggregate.as_deref())
        });
        let mut graph = TrunkGraph::new(self.switches.len());
        let mut aggregates = BTreeSet::new();
        let has_tree = |switch: usize| self.switches[switch].switch.spanning_tree().is_some();
        let (redundant, others): (Vec<_>, Vec<_>) = known
            .chain([((a, b), aggregate)])
            // An aggregate is one trunk.
            .filter(|((a, b), aggregate)| aggregate.is_none_or(|name| aggregates.insert((name, *a.min(b), *a.max(b)))))
            .map(|(ends, _)| ends)
            .partition(|(a, b)| has_tree(*a) && has_tree(*b));
        for (a, b) in redundant {
            graph.join_redundant(a, b).map_err(invalid)?;
        }
        for (a, b) in others {
            graph.join(a, b).map_err(invalid)?;
        }
        Ok(())
    }

    /// The first trunk of the aggregate that one with these `options` between two switches is in, or is going to be in.
    fn first_of_aggregate(&self, (a, b): (usize, usize), options: &TrunkOptions) -> Option<usize> {
        options.aggregate.as_ref()?;
        self.trunks.iter().position(|trunk| {
            let ends = trunk.ends.map(|(switch, _)| switch);
            (ends == [a, b] || ends == [b, a]) && trunk.options.aggregate == options.aggregate
        })
    }

    /// Refuses a trunk that says of its aggregate something else than the first one in it, which stands for all.
    pub(super) fn check_aggregate(&self, ends: (usize, usize), options: &TrunkOptions) -> Result<(), FabricError> {
        let Some(first) = self.first_of_aggregate(ends, options) else {
            return Ok(());
        };
        let of_first = &self.trunks[first].options;
        let differs = [
            ("vlans", options.vlans.is_some() && options.vlans != of_first.vlans),
            (
                "stp_cost",
                options.stp_cost.is_some() && options.stp_cost != of_first.stp_cost,
            ),
        ];
        match differs.into_iter().find(|(_, differs)| *differs) {
            None => Ok(()),
            Some((name, _)) => Err(invalid(format!(
                "a trunk of the aggregate {:?} has other {name} than the first one in it, whose hold for all of them",
                options.aggregate.as_deref().unwrap_or_default()
            ))),
        }
    }

    /// Makes a trunk that was just added part of its aggregate, if it is in one, and tells its switches how it is.
    pub(super) fn trunk_added(&mut self, index: usize, now: Time) -> Result<(), FabricError> {
        let Trunk { ends, options, .. } = &self.trunks[index];
        let ends = *ends;
        let [a, b] = ends.map(|(switch, _)| switch);
        if let Some(first) = self.first_of_aggregate((a, b), options).filter(|first| *first < index) {
            let mut of_first = self.trunks[first].ends;
            if of_first[0].0 != a {
                of_first.reverse();
            }
            for ((switch, port), (_, first)) in ends.into_iter().zip(of_first) {
                let switch = &mut self.switches[switch].switch;
                switch.join_aggregate(first, port).map_err(invalid)?;
            }
        }
        self.trunk_changed(index, now);
        Ok(())
    }

    /// Tells the switches at both ends how a trunk is now: whether it has a carrier, and what its rate makes it cost.
    pub(super) fn trunk_changed(&mut self, index: usize, now: Time) {
        let trunk = &self.trunks[index];
        let is_up = trunk.is_up();
        let rates = trunk
            .links
            .iter()
            .map(|link| link.config().rate_bps)
            .filter(|rate| *rate != 0);
        let mut config = StpPortConfig::of_rate(rates.min().unwrap_or(0));
        if let Some(cost) = trunk.options.stp_cost {
            config.path_cost = cost;
        }
        for (switch, port) in trunk.ends {
            let state = &mut self.switches[switch].switch;
            state.handle(now);
            if state
                .spanning_tree_port(port)
                .is_some_and(|port| port.path_cost != config.path_cost)
            {
                state.set_spanning_tree_port(port, config);
            }
            state.set_port_up(port, is_up);
            self.serve_switch(switch, now);
        }
    }
}

impl Fabric {
    /// Changes the links of the trunk between the switches `a` and `b` (nothing, if no field is given) and returns what is in
    /// force. `number` says which one is meant, counted from 1, where there are several. `a_to_b` and `b_to_a` say which of them are meant, and are as the request names the switches.
    ///
    /// # Errors
    /// No such trunk, or a value out of range; then nothing was changed.
    pub fn set_trunk(
        &self,
        (a, b): (&str, &str),
        number: Option<usize>,
        (a_to_b, b_to_a): (bool, bool),
        change: &LinkChange,
    ) -> Result<TrunkLinks, FabricError> {
        self.shard.with(|inner, now| {
            let index = inner.find_trunk((a, b), number)?;
            let is_turned = inner.switches[inner.trunks[index].ends[0].0].name != a;
            let turn = |links: TrunkLinks| match is_turned {
                true => TrunkLinks {
                    a_to_b: links.b_to_a,
                    b_to_a: links.a_to_b,
                },
                false => links,
            };
            let trunk = &mut inner.trunks[index];
            let mut links = turn(trunk.settings.clone());
            if !change.is_empty() {
                if a_to_b {
                    change.apply_to(&mut links.a_to_b);
                }
                if b_to_a {
                    change.apply_to(&mut links.b_to_a);
                }
                let settings = turn(links.clone());
                let configs = trunk_from(&settings)?;
                for (link, config) in trunk.links.iter_mut().zip(configs) {
                    link.set_config(config);
                }
                trunk.settings = settings;
                inner.trunk_changed(index, now);
                inner.settings_changed(Subject::Trunk(index));
            }
            Ok(links)
        })
    }
}
