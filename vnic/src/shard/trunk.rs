//! Trunks between switches of this shard: their links, and frames that leave a switch over one.
//!
//! That they make no loop is checked where they are added.

use ether::Time;
use fabric::{Link, PortId};

use super::crossing::Hop;
use super::fabric_handle::{invalid, trunk_from};
use super::forward::Outcome;
use super::frame::FrameRef;
use super::pool::Stage;
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
    /// Frames dropped because their senders used up their shares of the pool.
    pub pool_share: u64,
    /// Frames dropped because they could not be cut.
    pub bad_offload: u64,
}

impl Trunk {
    /// Where a frame goes that leaves the trunk's end `from` over it, and over which link.
    pub(super) fn out_of(&mut self, from: usize) -> (Stage, &mut Link) {
        let (switch, port) = self.ends[1 - from];
        (Stage::Switch { switch, port }, &mut self.links[from])
    }
}

/// Trunks that a frame crosses straight one after the other; behind so many it waits for its turn in the pool, since each takes
/// a part of the stack.
const STRAIGHT_TRUNKS_MAX: u32 = 32;

impl Inner {
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
        let (Some(trunk), Some(wire)) = (self.trunks.get_mut(number), frame.on_wire()) else {
            return Outcome::Taken;
        };
        let from = usize::from(trunk.ends[0].0 != switch);
        let (stage, link) = trunk.out_of(from);
        let way = way_over(link, wire.longest, now, self.shortcuts);
        if way == Way::Straight
            && self.trunks_deep < STRAIGHT_TRUNKS_MAX
            && let Stage::Switch { switch, port } = stage
        {
            link.count_passed(u64::from(wire.frames), wire.bytes);
            self.trunks_deep += 1;
            let outcome = self.switch_on(switch, port, origin, frame, now, may_hold);
            self.trunks_deep -= 1;
            return outcome;
        }
        self.cross(Hop::Trunk { trunk: number, from }, origin, frame, &wire, way, now);
        Outcome::Taken
    }
}

impl Fabric {
    /// Changes the links of the trunk between the switches `a` and `b` (nothing, if no field is given) and returns what is in
    /// force. `a_to_b` and `b_to_a` say which of them are meant, and are as the request names the switches.
    ///
    /// # Errors
    /// No such trunk, or a value out of range; then nothing was changed.
    pub fn set_trunk(
        &self,
        (a, b): (&str, &str),
        (a_to_b, b_to_a): (bool, bool),
        change: &LinkChange,
    ) -> Result<TrunkLinks, FabricError> {
        self.shard.with(|inner, _| {
            let names = |trunk: &Trunk| trunk.ends.map(|(switch, _)| inner.switches[switch].name.as_str());
            let found = inner.trunks.iter().position(|trunk| {
                let names = names(trunk);
                names == [a, b] || names == [b, a]
            });
            let index = found.ok_or_else(|| invalid(format!("there is no trunk between {a:?} and {b:?}")))?;
            let is_turned = names(&inner.trunks[index])[0] != a;
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
                inner.settings_changed(Subject::Trunk(index));
            }
            Ok(links)
        })
    }
}
