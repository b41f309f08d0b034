//! Trunks as they are added and changed: which loops and aggregates are allowed, and what switches are told.

use std::collections::BTreeSet;

use ether::Time;
use fabric::{StpPortConfig, TrunkGraph};

use super::{Fabric, trunk_from};
use crate::dataplane::DataPlane;
use crate::dataplane::error::{FabricError, invalid};
use crate::dataplane::observers::watchers::Subject;
use crate::dataplane::wiring::trunk::{Trunk, TrunkOptions};
use vnicd_protocol::{LinkChange, TrunkLinks};

impl DataPlane {
    /// The trunk between two switches; where there are several, a number says which, counted from 1.
    fn find_trunk(&self, (a, b): (&str, &str), number: Option<usize>) -> Result<usize, FabricError> {
        let between = self.forwarding.wiring.trunks.iter().enumerate().filter(|(_, trunk)| {
            let names = trunk
                .ends
                .map(|(switch, _)| self.forwarding.switches[switch].name.as_str());
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
    pub(in crate::dataplane) fn trunk_number(&self, index: usize) -> usize {
        let pair = |trunk: &Trunk| {
            let [a, b] = trunk.ends.map(|(switch, _)| switch);
            (a.min(b), a.max(b))
        };
        let before = self.forwarding.wiring.trunks[..index].iter();
        1 + before
            .filter(|trunk| pair(trunk) == pair(&self.forwarding.wiring.trunks[index]))
            .count()
    }

    /// Refuses a trunk that would close a loop in which no spanning tree keeps frames from circling.
    pub(in crate::dataplane) fn check_loops(
        &self,
        (a, b): (usize, usize),
        aggregate: Option<&str>,
    ) -> Result<(), FabricError> {
        let known = self.forwarding.wiring.trunks.iter().map(|trunk| {
            let [a, b] = trunk.ends.map(|(switch, _)| switch);
            ((a, b), trunk.options.aggregate.as_deref())
        });
        let mut graph = TrunkGraph::new(self.forwarding.switches.len());
        let mut aggregates = BTreeSet::new();
        let has_tree = |switch: usize| self.forwarding.switches[switch].switch.spanning_tree().is_some();
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
        self.forwarding.wiring.trunks.iter().position(|trunk| {
            let ends = trunk.ends.map(|(switch, _)| switch);
            (ends == [a, b] || ends == [b, a]) && trunk.options.aggregate == options.aggregate
        })
    }

    /// Refuses a trunk that says of its aggregate something else than the first one in it, which stands for all.
    pub(in crate::dataplane) fn check_aggregate(
        &self,
        ends: (usize, usize),
        options: &TrunkOptions,
    ) -> Result<(), FabricError> {
        let Some(first) = self.first_of_aggregate(ends, options) else {
            return Ok(());
        };
        let of_first = &self.forwarding.wiring.trunks[first].options;
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
                "a trunk of the aggregate {:?} has other {name} than the first one in it; those of the first hold for all of them",
                options.aggregate.as_deref().unwrap_or_default()
            ))),
        }
    }

    /// Makes a trunk that was just added part of its aggregate, if it is in one, and tells its switches how it is.
    pub(in crate::dataplane) fn trunk_added(&mut self, index: usize, now: Time) -> Result<(), FabricError> {
        let Trunk { ends, options, .. } = &self.forwarding.wiring.trunks[index];
        let ends = *ends;
        let [a, b] = ends.map(|(switch, _)| switch);
        if let Some(first) = self.first_of_aggregate((a, b), options).filter(|first| *first < index) {
            let mut of_first = self.forwarding.wiring.trunks[first].ends;
            if of_first[0].0 != a {
                of_first.reverse();
            }
            for ((switch, port), (_, first)) in ends.into_iter().zip(of_first) {
                let switch = &mut self.forwarding.switches[switch].switch;
                switch.join_aggregate(first, port).map_err(invalid)?;
            }
        }
        self.trunk_changed(index, now);
        Ok(())
    }

    /// Tells the switches at both ends how a trunk is now: whether it has a carrier, and what its rate makes it cost.
    pub(in crate::dataplane) fn trunk_changed(&mut self, index: usize, now: Time) {
        let trunk = &self.forwarding.wiring.trunks[index];
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
            let state = &mut self.forwarding.switches[switch].switch;
            state.handle(now);
            if state
                .spanning_tree_port(port)
                .is_some_and(|port| port.path_cost != config.path_cost)
            {
                state.set_spanning_tree_port(port, config);
            }
            state.set_port_up(port, is_up);
            self.forwarding.serve_switch(switch, now);
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
        self.runner.with(|plane, now| {
            let index = plane.find_trunk((a, b), number)?;
            let is_turned = plane.forwarding.switches[plane.forwarding.wiring.trunks[index].ends[0].0].name != a;
            let turn = |links: TrunkLinks| match is_turned {
                true => TrunkLinks {
                    a_to_b: links.b_to_a,
                    b_to_a: links.a_to_b,
                },
                false => links,
            };
            let trunk = &mut plane.forwarding.wiring.trunks[index];
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
                plane.trunk_changed(index, now);
                plane.settings_changed(Subject::Trunk(index));
            }
            Ok(links)
        })
    }
}
