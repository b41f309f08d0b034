//! Sets of nodes, and the tree that a sender's packets take through one.

use core::fmt;

use crate::config::NODES_MAX;

/// A set of nodes below [`NODES_MAX`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Nodes(pub u128);

impl Nodes {
    /// The nodes `0 .. count`.
    pub const fn first(count: usize) -> Self {
        if count >= NODES_MAX {
            Self(u128::MAX)
        } else {
            Self((1 << count) - 1)
        }
    }

    /// The set of those that `members` names; `None` if one is not below [`NODES_MAX`].
    pub fn of(members: impl IntoIterator<Item = usize>) -> Option<Self> {
        let mut set = Self::default();
        for node in members {
            if node >= NODES_MAX {
                return None;
            }
            set.0 |= 1 << node;
        }
        Some(set)
    }

    /// Whether `node` is in the set.
    #[inline]
    pub const fn has(self, node: usize) -> bool {
        node < NODES_MAX && self.0 & (1 << node) != 0
    }

    /// The set without `node`.
    #[must_use]
    pub const fn without(self, node: usize) -> Self {
        if node < NODES_MAX {
            Self(self.0 & !(1 << node))
        } else {
            self
        }
    }

    /// How many nodes are in the set.
    #[inline]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether no node is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether every node of this set is in `other`.
    #[inline]
    pub const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// The lowest node, if there is one.
    pub const fn lowest(self) -> Option<usize> {
        if self.0 == 0 {
            None
        } else {
            Some(self.0.trailing_zeros() as usize)
        }
    }

    /// The nodes in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let next = Self(left).lowest()?;
            left &= left - 1;
            Some(next)
        })
    }

    /// The place of `node` in the tree of `root`: its distance in the order of the members, which goes round.
    fn place(self, root: usize, node: usize) -> usize {
        let below = |node: usize| Self(self.0 & ((1 << node) - 1)).len();
        let (root, node) = (below(root), below(node));
        if node >= root {
            node - root
        } else {
            node + self.len() - root
        }
    }

    /// The member at a place of the tree of `root`.
    fn at_place(self, root: usize, place: usize) -> Option<usize> {
        let from_root = Self(self.0 & !((1 << root) - 1));
        let behind = from_root.len();
        if place < behind {
            from_root.iter().nth(place)
        } else {
            self.iter().nth(place - behind).filter(|node| *node < root)
        }
    }

    /// The neighbours of `node` in the binary tree of `root`; both must be members.
    pub(crate) fn branch(self, root: usize, node: usize) -> Branch {
        let place = self.place(root, node);
        Branch {
            parent: (place > 0)
                .then(|| self.at_place(root, (place - 1) / 2))
                .flatten()
                .map(|node| node as u8),
            children: [1, 2].map(|nth| self.at_place(root, 2 * place + nth).map(|node| node as u8)),
        }
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The neighbours of a node in a sender's binary tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Branch {
    /// Where packets come from; none at the sender itself.
    pub(crate) parent: Option<u8>,
    /// Where they go.
    pub(crate) children: [Option<u8>; 2],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_hangs_once_below_the_root() {
        for members in [
            Nodes::first(1),
            Nodes::first(2),
            Nodes::first(7),
            Nodes::first(128),
            Nodes(0x8001_1010_f000_0003),
        ] {
            for root in members.iter() {
                assert_eq!(members.branch(root, root).parent, None);
                let mut seen = Nodes(1 << root);
                for node in members.iter() {
                    for child in members.branch(root, node).children.into_iter().flatten() {
                        assert_eq!(members.branch(root, child.into()).parent, Some(node as u8));
                        assert!(!seen.has(child.into()));
                        seen.0 |= 1 << child;
                    }
                }
                assert_eq!(seen, members);
            }
        }
    }

    #[test]
    fn sets_say_what_is_in_them() {
        assert_eq!(Nodes::of([3, 128]), None);
        let set = Nodes::of([3, 127, 3]).unwrap();
        assert_eq!(
            (set.len(), set.lowest(), set.has(127), set.has(128)),
            (2, Some(3), true, false)
        );
        assert!(set.without(3).is_within(set) && !set.is_within(set.without(3)));
        assert!(Nodes::default().is_empty());
        assert_eq!(Nodes::first(128).len(), 128);
    }
}
