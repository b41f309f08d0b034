//! Multicast trees as pure functions of the shape, the number of members and the sender, and the table rows that
//! follow from them (`papers.md` M-BV5).
//!
//! Members are numbered by their *rank*, the order of their addresses. In the tree of a sender each has a *place*: its
//! distance from the sender in that order, which goes round. A parent always has a lower place than its children; why that
//! matters is in `docs/spec/card-multicast.md`. Nothing here knows frames or credits.

use alloc::vec::Vec;

use super::Class;

/// The most members of a group: the paper's cluster.
pub const MEMBERS_MAX: usize = 128;

/// The most children that a member may have: those of the root of a binomial tree of [`MEMBERS_MAX`] members.
pub const CHILDREN_MAX: usize = 7;

weft_settings::named! {
    /// How the members of a group hang below a sender.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum TreeShape, or UnknownShape: "a tree is binary, binomial or chain" {
        /// Two children each, filled from the top: what the paper's systems use.
        #[default]
        Binary = "binary",
        /// Each member that has the packet passes it to a new member in each step: as many steps, more children near the root.
        Binomial = "binomial",
        /// One after the other: the least work for each card, the longest path.
        Chain = "chain",
    }
}

/// The places of the children of `place` in a tree of `members` places, the one with the most below it first. The sender is
/// place 0.
pub fn children(shape: TreeShape, members: usize, place: usize) -> impl Iterator<Item = usize> {
    let (first, step) = match shape {
        TreeShape::Binary => (2 * place + 1, 1),
        TreeShape::Chain => (place + 1, 0),
        // The lowest power of two above the place, and all higher ones.
        TreeShape::Binomial => (0, 1usize << (usize::BITS - place.leading_zeros())),
    };
    let count = match shape {
        TreeShape::Binary => 2,
        TreeShape::Chain => 1,
        TreeShape::Binomial => CHILDREN_MAX,
    };
    (0..count)
        .map(move |nth| match shape {
            TreeShape::Binary | TreeShape::Chain => first + nth * step,
            TreeShape::Binomial => place + (step << nth),
        })
        .take_while(move |child| *child < members)
}

/// The place that `place` gets its packets from; none for the sender.
pub fn parent(shape: TreeShape, place: usize) -> Option<usize> {
    let top = usize::BITS.checked_sub(place.leading_zeros() + 1)?;
    Some(match shape {
        TreeShape::Binary => (place - 1) / 2,
        TreeShape::Chain => place - 1,
        TreeShape::Binomial => place & !(1 << top),
    })
}

/// Hops from the sender to the farthest member.
pub fn height(shape: TreeShape, members: usize) -> usize {
    let depth = |place| core::iter::successors(Some(place), |place| parent(shape, *place)).count() - 1;
    (0..members).map(depth).max().unwrap_or(0)
}

/// The least number of forwarding buffers with which no schedule can deadlock, from any sender: `docs/spec/card-multicast.md` has the
/// argument.
pub fn buffers_min(shape: TreeShape, members: usize) -> u16 {
    height(shape, members).saturating_sub(1).min(2) as u16
}

/// As [`buffers_min`], for groups of a class: in a reliable one each card that gets a packet needs a buffer for it.
pub fn buffers_min_of(class: Class, shape: TreeShape, members: usize) -> u16 {
    match class {
        Class::Plain => buffers_min(shape, members),
        Class::Reliable => height(shape, members).min(2) as u16,
    }
}

/// A child of a row: who, and whether it forwards in its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Child {
    /// The rank of the child.
    pub rank: u8,
    /// The child has children in this tree, so it needs a buffer.
    pub forwards: bool,
}

/// What a card does with the packets of one sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Rank of the member that they come from; none in the sender's own row.
    pub parent: Option<u8>,
    /// The path from the sender to here went past the highest rank to the lowest.
    pub wrapped: bool,
    children: [Child; CHILDREN_MAX],
    len: u8,
}

impl Row {
    /// A row without children.
    pub fn new(parent: Option<u8>, wrapped: bool) -> Self {
        Self {
            parent,
            wrapped,
            ..Self::default()
        }
    }

    /// Adds a child behind the others; false if there are [`CHILDREN_MAX`] already.
    #[must_use]
    pub fn push(&mut self, child: Child) -> bool {
        match self.children.get_mut(usize::from(self.len)) {
            Some(place) => {
                *place = child;
                self.len += 1;
                true
            }
            None => false,
        }
    }

    /// The children, in the order in which they are served.
    pub fn children(&self) -> &[Child] {
        &self.children[..usize::from(self.len)]
    }
}

/// The table rows for the member of rank `own`, one for each sender by rank. `members` is at most [`MEMBERS_MAX`].
pub fn rows(shape: TreeShape, members: usize, own: usize) -> Vec<Row> {
    let members = members.min(MEMBERS_MAX);
    let row = |sender: usize| {
        let place = (own + members - sender) % members;
        let rank = |place: usize| ((sender + place) % members) as u8;
        let mut row = Row::new(parent(shape, place).map(rank), sender + place >= members);
        for child in children(shape, members, place) {
            let fits = row.push(Child {
                rank: rank(child),
                forwards: children(shape, members, child).next().is_some(),
            });
            debug_assert!(fits, "no shape has more children");
        }
        row
    };
    (0..members).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_hangs_below_a_lower_one_and_is_its_child_once() {
        for shape in TreeShape::ALL {
            assert_eq!(shape.name().parse(), Ok(shape));
            for members in 1..=MEMBERS_MAX {
                let mut seen = alloc::vec![0; members];
                for place in 0..members {
                    for child in children(shape, members, place) {
                        assert!(child > place);
                        assert_eq!(parent(shape, child), Some(place), "{shape} {members}");
                        seen[child] += 1;
                    }
                }
                assert_eq!((seen[0], parent(shape, 0)), (0, None));
                assert!(seen[1..].iter().all(|times| *times == 1), "{shape} {members}");
            }
        }
    }

    #[test]
    fn heights_are_those_of_the_shapes() {
        let heights = |members| TreeShape::ALL.map(|shape| height(shape, members));
        assert_eq!(heights(1), [0, 0, 0]);
        assert_eq!(heights(2), [1, 1, 1]);
        assert_eq!(heights(8), [3, 3, 7]);
        assert_eq!(heights(128), [7, 7, 127]);
        let least = |members| TreeShape::ALL.map(|shape| buffers_min(shape, members));
        assert_eq!(least(2), [0, 0, 0]);
        assert_eq!(least(4), [1, 1, 2]);
        assert_eq!(least(8), [2, 2, 2]);
    }
}
