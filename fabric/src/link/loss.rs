//! Which frames are lost: each with the same probability, in bursts (Gilbert-Elliott), and every Nth.

use super::chance::{Chance, Use};
use super::config::LinkConfig;

/// Why a frame is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    ByChance,
    ByTurn,
}

/// The state of what loses frames. Each use of randomness has a stream of its own, which draws for each frame.
pub(super) struct Losses {
    chance: Chance,
    state: Chance,
    is_burst: bool,
    /// Frames since the last that was lost because it was its turn.
    turn: u32,
}

impl Losses {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            chance: Chance::new(seed, Use::Loss),
            state: Chance::new(seed, Use::LossState),
            is_burst: false,
            turn: 0,
        }
    }

    /// Goes on under other settings: a burst ends if there are none any more, turns are counted anew if they changed.
    pub(super) fn reconfigure(&mut self, before: &LinkConfig, now: &LinkConfig) {
        if now.loss_enter_ppm == 0 {
            self.is_burst = false;
        }
        if now.loss_every != before.loss_every {
            self.turn = 0;
        }
    }

    /// Whether the next frame on the wire is lost.
    #[inline]
    pub(super) fn next(&mut self, config: &LinkConfig) -> Option<Lost> {
        let by_chance = if config.loss_enter_ppm == 0 {
            self.chance.hits(config.loss_ppm)
        } else {
            self.in_bursts(config)
        };
        if config.loss_every > 0 {
            self.turn += 1;
            if self.turn >= config.loss_every {
                self.turn = 0;
                return Some(Lost::ByTurn);
            }
        }
        by_chance.then_some(Lost::ByChance)
    }

    /// One step of the Gilbert-Elliott model: the state that the frame finds decides about it, and may then change.
    fn in_bursts(&mut self, config: &LinkConfig) -> bool {
        let (loss_ppm, change_ppm) = if self.is_burst {
            (config.loss_in_burst_ppm, config.loss_leave_ppm)
        } else {
            (config.loss_ppm, config.loss_enter_ppm)
        };
        let lost = self.chance.always_draws(loss_ppm);
        self.is_burst ^= self.state.always_draws(change_ppm);
        lost
    }
}
