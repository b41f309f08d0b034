//! Which frames are lost: each with equal probability, in bursts (Gilbert-Elliott), and every Nth.

use super::chance::{Chance, Odds, Use};
use super::config::LinkConfig;

/// Why a frame is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    ByChance,
    ByTurn,
}

/// What loses frames. Each use of randomness has a stream of its own, which draws for each frame.
pub(super) struct LossModel {
    chance: Chance,
    state: Chance,
    /// Of frames outside of a burst.
    outside: Odds,
    in_burst: Odds,
    /// That a burst begins behind a frame outside of one, and ends behind one in it.
    enter: Odds,
    leave: Odds,
    has_bursts: bool,
    is_burst: bool,
    /// Every so many frames, one is lost; 0 = none.
    every: u32,
    /// Frames since the last of those.
    turn: u32,
}

impl LossModel {
    pub(super) fn new(config: &LinkConfig) -> Self {
        let mut model = Self {
            chance: Chance::new(config.seed, Use::Loss),
            state: Chance::new(config.seed, Use::LossState),
            outside: Odds::default(),
            in_burst: Odds::default(),
            enter: Odds::default(),
            leave: Odds::default(),
            has_bursts: false,
            is_burst: false,
            every: 0,
            turn: 0,
        };
        model.reconfigure(config);
        model
    }

    /// Goes on under other settings: a burst ends if there are none any more, turns are counted anew if they changed.
    pub(super) fn reconfigure(&mut self, config: &LinkConfig) {
        self.outside = Odds::of_ppm(config.loss_ppm);
        self.in_burst = Odds::of_ppm(config.loss_in_burst_ppm);
        self.enter = Odds::of_ppm(config.loss_enter_ppm);
        self.leave = Odds::of_ppm(config.loss_leave_ppm);
        self.has_bursts = config.loss_enter_ppm > 0;
        self.is_burst &= self.has_bursts;
        if config.loss_every != self.every {
            self.every = config.loss_every;
            self.turn = 0;
        }
    }

    /// Whether the next frame on the wire is lost.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Lost> {
        let by_chance = if self.has_bursts {
            self.in_bursts()
        } else {
            self.chance.hits(self.outside)
        };
        if self.every > 0 {
            self.turn += 1;
            if self.turn >= self.every {
                self.turn = 0;
                return Some(Lost::ByTurn);
            }
        }
        by_chance.then_some(Lost::ByChance)
    }

    /// One step of the Gilbert-Elliott model: the state that the frame finds decides about it, and may then change.
    fn in_bursts(&mut self) -> bool {
        let (loss, change) = if self.is_burst {
            (self.in_burst, self.leave)
        } else {
            (self.outside, self.enter)
        };
        let lost = self.chance.always_draws(loss);
        self.is_burst ^= self.state.always_draws(change);
        lost
    }
}
