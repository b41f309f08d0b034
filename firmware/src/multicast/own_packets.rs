//! The packets of the own guest to a reliable group: how many it has given, how many have left, and what it was told.

use alloc::vec::Vec;

use super::{BufferId, SEND_BUFFERS};

/// The packets of the own guest to a reliable group, counted.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct OwnPackets {
    /// Buffers for those that wait for credits.
    pub(super) free: Vec<BufferId>,
    taken: u32,
    left: u32,
    told: u32,
    report_asked: bool,
}

/// Packets that have left their card after which the guest is told without having asked.
const REPORT_EVERY: u32 = SEND_BUFFERS as u32 / 4;

impl OwnPackets {
    /// None, and these buffers for those that will wait.
    pub(super) fn new(free: Vec<BufferId>) -> Self {
        Self {
            free,
            ..Self::default()
        }
    }

    pub(super) fn take(&mut self, report: bool) {
        self.taken = self.taken.wrapping_add(1);
        self.report_asked |= report;
    }

    pub(super) fn leave(&mut self) {
        self.left = self.left.wrapping_add(1);
    }

    /// The guest gave this many to a process before, from which all have left: it is told so at once.
    pub(super) fn go_on_from(&mut self, count: u32) {
        self.taken = self.taken.wrapping_add(count);
        self.left = self.left.wrapping_add(count);
        self.told = self.left;
        self.report_asked = true;
    }

    /// How many the guest has given.
    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    /// How many have left, if the guest is to be told now.
    pub(super) fn report(&self) -> Option<u32> {
        let news = self.left.wrapping_sub(self.told);
        let all_left = self.report_asked && self.left == self.taken;
        (news >= REPORT_EVERY || all_left).then_some(self.left)
    }

    pub(super) fn reported(&mut self) {
        self.told = self.left;
        self.report_asked &= self.left != self.taken;
    }
}
