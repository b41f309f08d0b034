//! Where the packets of one sender to one group stand at this node.

use crate::nodes::{Branch, Nodes};

/// New packets after which a node tells its parent without delay: a quarter of what a sender keeps.
const REPORT_EVERY: u32 = crate::SEND_BUFFERS as u32 / 4;

/// The packets of one sender to one group, as this node sees them.
///
/// A sender keeps each packet until every member has it. Members tell their parents how far they and all below them have come
/// ([`stable`](Self::stable)). When a member is removed, the sender makes a new tree of those that are left, and sends on it once
/// more whatever some member may lack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// The members of the present tree.
    pub(crate) alive: Nodes,
    pub(crate) branch: Branch,
    /// The number that comes next: here, or at the sender the one it sends next.
    pub(crate) next: u32,
    /// The program has all below.
    pub(crate) taken: u32,
    /// Each child and all below it have all packets below this number.
    below: [u32; 2],
    /// What the parent was told last.
    reported: u32,
    /// A report waits for its time or to be sent.
    pub(crate) report_waits: bool,
}

impl Stream {
    /// The stream of `origin` among `members`, at `me`.
    pub(crate) fn new(members: Nodes, origin: usize, me: usize) -> Self {
        Self {
            alive: members,
            branch: members.branch(origin, me),
            next: 0,
            taken: 0,
            below: [0; 2],
            reported: 0,
            report_waits: false,
        }
    }

    /// The sender's tree has other members from the packet `first` on; all below `first` are everywhere.
    pub(crate) fn replant(&mut self, alive: Nodes, origin: usize, me: usize, first: u32) {
        self.alive = alive;
        self.branch = alive.branch(origin, me);
        self.below = [first; 2];
        self.reported = first;
        self.report_waits = false;
    }

    /// All members from here on downwards have the packets below this number.
    #[inline]
    pub(crate) fn stable(&self) -> u32 {
        let mut lowest = self.taken;
        for (child, below) in self.branch.children.iter().zip(self.below) {
            if child.is_some() && (below.wrapping_sub(lowest) as i32) < 0 {
                lowest = below;
            }
        }
        lowest
    }

    /// A child tells how far it is: at most `ahead_max` packets farther than this node, as a child of a new tree can be. False if it
    /// is no child, or cannot be so far.
    pub(crate) fn hear(&mut self, child: usize, number: u32, ahead_max: u32) -> bool {
        let Some(nth) = self
            .branch
            .children
            .iter()
            .position(|known| *known == Some(child as u8))
        else {
            return false;
        };
        if number.wrapping_sub(self.next) as i32 > ahead_max as i32 {
            return false;
        }
        if number.wrapping_sub(self.below[nth]) as i32 > 0 {
            self.below[nth] = number;
        }
        true
    }

    /// Packets that are stable and not reported.
    #[inline]
    pub(crate) fn unreported(&self) -> u32 {
        self.stable().wrapping_sub(self.reported)
    }

    /// Whether the parent is to be told without delay.
    #[inline]
    pub(crate) fn report_is_urgent(&self) -> bool {
        self.unreported() >= REPORT_EVERY
    }

    /// Takes the number to report.
    #[inline]
    pub(crate) fn report(&mut self) -> u32 {
        self.report_waits = false;
        self.reported = self.stable();
        self.reported
    }

    /// At the sender: takes how many packets have become stable.
    #[inline]
    pub(crate) fn settle(&mut self) -> u32 {
        let count = self.unreported();
        self.reported = self.reported.wrapping_add(count);
        count
    }

    /// At the sender: the first packet that some member may lack.
    pub(crate) fn first_unstable(&self) -> u32 {
        self.reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_bv6_a_packet_is_stable_when_it_is_everywhere_below() {
        let members = Nodes::first(4);
        let mut stream = Stream::new(members, 0, 0);
        assert_eq!(stream.branch.children, [Some(1), Some(2)]);
        stream.next = 5;
        stream.taken = 5;
        assert_eq!(stream.stable(), 0);
        assert!(stream.hear(1, 4, 0) && stream.hear(2, 3, 0) && stream.hear(2, 1, 0));
        assert!(!stream.hear(3, 5, 0), "no child of the sender");
        assert!(!stream.hear(1, 6, 0), "it was never sent");
        assert_eq!((stream.stable(), stream.settle(), stream.settle()), (3, 3, 0));
        stream.replant(members.without(1), 0, 0, 3);
        assert_eq!(
            (stream.branch.children, stream.stable(), stream.first_unstable()),
            ([Some(2), Some(3)], 3, 3)
        );
    }
}
