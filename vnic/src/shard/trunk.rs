//! Trunks between switches of this shard: their links, and frames that leave a switch over one.
//!
//! That they make no loop is checked where they are added.

use ether::Time;
use fabric::{Link, PortId};

use super::fabric_handle::{invalid, trunk_from};
use super::forward::Dropped;
use super::frame::FrameRef;
use super::pool::Stage;
use super::transmit::TxOrigin;
use super::watch::Subject;
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
    /// Where a frame goes that leaves `switch` over this trunk, and over which link.
    fn out_of(&mut self, switch: usize) -> (Stage, &mut Link) {
        let near = usize::from(self.ends[0].0 != switch);
        let (switch, port) = self.ends[1 - near];
        (Stage::Switch { switch, port }, &mut self.links[near])
    }
}

impl Inner {
    pub(super) fn carry_over_trunk(
        &mut self,
        switch: usize,
        trunk: fabric::TrunkId,
        origin: TxOrigin,
        frame: &FrameRef<'_>,
        now: Time,
    ) -> u32 {
        let mut copies = 0;
        let trunk = usize::from(trunk.0);
        let resolved = self.resolve(frame, |inner, bytes| {
            let Some((stage, link)) = inner.trunks.get_mut(trunk).map(|trunk| trunk.out_of(switch)) else {
                return;
            };
            let admission = link.admit(now, bytes.len());
            let admitted = inner.pool_admitted(bytes, stage, origin, admission);
            let trunk = &mut inner.trunks[trunk];
            match admitted {
                Ok(admitted) => copies += admitted.counted_by(trunk.out_of(switch).1),
                Err(Dropped::PoolShare) => trunk.pool_share += 1,
                Err(Dropped::Link) => {}
            }
        });
        if !resolved {
            self.trunks[trunk].bad_offload += 1;
        }
        copies
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
