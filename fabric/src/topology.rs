//! Refuses loops between switches before a frame can circle in them.
//!
//! Learning switches have no hop limit: one broadcast in a loop is copied for ever. A lab's trunks are therefore
//! checked when they are added. Loops that a guest closes itself (a bridge between two of its ports) are not seen here.

use alloc::vec::Vec;
use core::fmt;

/// Which switches are joined so far: a forest, or [`TrunkGraph::join`] refuses.
#[derive(Clone, Debug, Default)]
pub struct TrunkGraph {
    /// For each switch another one of its tree, or itself at the root.
    parent: Vec<usize>,
}

/// The trunk would close a loop between switches; it was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopError {
    /// One end of the refused trunk.
    pub a: usize,
    /// Its other end, which could already be reached from `a`.
    pub b: usize,
}

impl fmt::Display for LoopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { a, b } = self;
        if a == b {
            write!(
                f,
                "a trunk joins switch {a} to itself; broadcasts would circle in it for ever"
            )
        } else {
            write!(
                f,
                "a trunk between switches {a} and {b} closes a loop, since other trunks join them already; broadcasts \
                 would circle in it for ever"
            )
        }
    }
}

impl core::error::Error for LoopError {}

impl TrunkGraph {
    /// `switches` switches, numbered from 0, without trunks.
    pub fn new(switches: usize) -> Self {
        Self {
            parent: (0..switches).collect(),
        }
    }

    /// Adds a trunk between two switches, or refuses it because there is a path between them already.
    ///
    /// # Panics
    /// If `a` or `b` is not below the number of switches given to [`TrunkGraph::new`].
    pub fn join(&mut self, a: usize, b: usize) -> Result<(), LoopError> {
        let (root_a, root_b) = (self.root(a), self.root(b));
        if root_a == root_b {
            return Err(LoopError { a, b });
        }
        self.parent[root_a] = root_b;
        Ok(())
    }

    /// Adds a trunk between two switches that may close a loop, since a spanning tree keeps frames from going round in it. To be
    /// added before all others: then [`join`](Self::join) refuses every loop that is not made of such trunks alone.
    ///
    /// # Errors
    /// A trunk from a switch to itself.
    ///
    /// # Panics
    /// If `a` or `b` is not below the number of switches given to [`TrunkGraph::new`].
    pub fn join_redundant(&mut self, a: usize, b: usize) -> Result<(), LoopError> {
        if a == b {
            return Err(LoopError { a, b });
        }
        let (root_a, root_b) = (self.root(a), self.root(b));
        self.parent[root_a] = root_b;
        Ok(())
    }

    /// One of the switches that can be reached from `switch`; for all of these it is this one.
    ///
    /// # Panics
    /// If `switch` is not below the number of switches given to [`TrunkGraph::new`].
    pub fn network_of(&mut self, switch: usize) -> usize {
        self.root(switch)
    }

    /// The root of the tree that `switch` is in; halves the path there, so that later calls are short.
    fn root(&mut self, mut switch: usize) -> usize {
        while self.parent[switch] != switch {
            self.parent[switch] = self.parent[self.parent[switch]];
            switch = self.parent[switch];
        }
        switch
    }
}
