//! The walk over the ports that a frame goes to.

use super::{Egress, Forward, Switch};
use crate::ports::{PortId, take_lowest};

/// The ports that a frame leaves the switch by, in rising order; made by [`Switch::flood_targets`].
pub struct FloodTargets<'a> {
    switch: &'a Switch,
    ingress: PortId,
    forward: Forward,
    one: Option<Egress>,
    bits: u64,
    word: usize,
    /// Words that are still to come end here.
    words: usize,
}

impl<'a> FloodTargets<'a> {
    #[inline]
    pub(super) fn new(switch: &'a Switch, ingress: PortId, forward: Forward) -> Self {
        let (one, words) = match forward {
            Forward::One(egress) => (Some(egress), 0),
            Forward::Several | Forward::Taken | Forward::Inspect | Forward::Drop(_) => (None, 0),
            Forward::Flood | Forward::Group(_) => (None, switch.words()),
        };
        Self {
            switch,
            ingress,
            forward,
            one,
            bits: switch.target_word(ingress, forward, 0),
            word: 0,
            words,
        }
    }
}

impl Iterator for FloodTargets<'_> {
    type Item = Egress;

    #[inline]
    fn next(&mut self) -> Option<Egress> {
        if let Some(egress) = self.one.take() {
            return Some(egress);
        }
        loop {
            if let Some(port) = take_lowest(&mut self.bits, self.word) {
                return self.switch.egress(port);
            }
            self.word += 1;
            if self.word >= self.words {
                return None;
            }
            self.bits = self.switch.target_word(self.ingress, self.forward, self.word);
        }
    }
}
