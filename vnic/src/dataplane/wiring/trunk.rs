//! A trunk between two switches of this data plane: its links, and what is lost on them.

use fabric::{Link, PortId};

use super::Wiring;
use crate::dataplane::frames::frame_ref::FrameRef;
use crate::dataplane::frames::pool::Stage;
use crate::dataplane::frames::transit::Transit;
use crate::dataplane::route::Loss;
use vnicd_protocol::{TrunkLinks, VlanSettings};

/// Trunks that a frame crosses, if there are as many; then it is dropped. Without a loop it crosses none twice, and loops are
/// refused or cut by the spanning tree: so a frame that crosses more than there are circles by mistake, and over ideal trunks
/// that would go on for ever without time going by. Four times as many as a lab has switches.
pub const TRUNKS_CROSSED_MAX: u32 = 64;

/// A trunk between two switches.
pub struct Trunk {
    /// The switches, each with its port of the trunk.
    pub ends: [(usize, PortId); 2],
    /// The link away from each end.
    pub links: [Link; 2],
    /// Their settings; `a` is the first end.
    pub settings: TrunkLinks,
    /// What it has beyond its links.
    pub options: TrunkOptions,
    /// Frames that do not arrive over it for other reasons than its link's, away from each end.
    pub lost: [TrunkLosses; 2],
}

/// What a trunk may have beyond its links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrunkOptions {
    /// VLANs that both of its ends carry; none if they were not given, or as the first trunk of its aggregate has them.
    pub vlans: Option<VlanSettings>,
    /// Name of the aggregate that it is in with other trunks between the same switches.
    pub aggregate: Option<String>,
    /// What its path costs in the spanning tree; none: by its rate, or as the first trunk of its aggregate says.
    pub stp_cost: Option<u32>,
}

/// Frames that leave a switch over a trunk and do not arrive, its link's own drops aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrunkLosses {
    /// Their senders had used up their shares of the pool.
    pub pool_share: u64,
    /// They could not be cut.
    pub bad_offload: u64,
    /// They had crossed as many trunks as there are, or [`TRUNKS_CROSSED_MAX`].
    pub too_many_trunks: u64,
}

impl TrunkLosses {
    /// Counts frames that are lost. What the link drops is counted by the link.
    pub fn count(&mut self, loss: Loss, frames: u32) {
        let counter = match loss {
            Loss::PoolShare => &mut self.pool_share,
            Loss::BadOffload => &mut self.bad_offload,
            Loss::TooManyTrunks => &mut self.too_many_trunks,
            _ => return,
        };
        *counter += u64::from(frames);
    }
}

impl Trunk {
    /// Whether it has a carrier: as on a cable with one broken wire, both ends have none if one direction is down.
    pub fn is_up(&self) -> bool {
        self.links.iter().all(|link| link.config().up)
    }

    /// The end that is at `switch`.
    pub fn end_at(&self, switch: usize) -> usize {
        usize::from(self.ends[0].0 != switch)
    }

    /// Where a frame goes that leaves the trunk's end `from` over it, and over which link.
    pub fn out_of(&mut self, from: usize) -> (Stage, &mut Link) {
        let (switch, port) = self.ends[1 - from];
        (Stage::Switch { switch, port }, &mut self.links[from])
    }
}

impl Wiring {
    /// The transit data of a frame, so many on the wire, that sets out over a trunk from its end `from`; `None`, and it is
    /// counted, if it crossed too many.
    #[inline]
    pub fn set_out(&mut self, trunk: usize, from: usize, frame: &FrameRef<'_>, frames: u32) -> Option<Transit> {
        if frame.transit.trunks_crossed() >= TRUNKS_CROSSED_MAX.min(self.trunks.len() as u32) {
            self.trunks[trunk].lost[from].count(Loss::TooManyTrunks, frames);
            return None;
        }
        Some(frame.transit.behind_trunk())
    }
}
