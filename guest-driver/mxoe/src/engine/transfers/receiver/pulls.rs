//! The running pulls of an endpoint: their handles, their turns, and how much data may be outstanding at once (6.2,
//! 6.4).

use alloc::{collections::VecDeque, vec::Vec};

use ether::Time;

use super::{Large, window::PullWindow};
use crate::engine::{DataPath, Token, timers::Timers};

/// A handle can name so many slots (6.2).
const SLOTS_MAX: u32 = 1024;
/// Bits of a handle's generation.
const GENERATION_BITS: u32 = 22;
/// First generation of a slot.
const GENERATION_FIRST: u32 = 0x23;
/// This many frames may be outstanding however long the queues are.
const OUTSTANDING_FRAMES_MIN: u32 = 16;
/// Each reply that did not wait in a queue lets so many more frames be outstanding.
const OUTSTANDING_FRAMES_STEP: u32 = 1;

/// A running pull.
#[derive(Debug)]
pub(super) struct Pull {
    pub(super) large: Large,
    pub(super) session: u32,
    pub(super) token: Token,
    pub(super) length: u32,
    pub(super) window: PullWindow,
    pub(super) started: Time,
    /// The time of the last request or accepted reply.
    pub(super) active_at: Time,
    pub(super) backoff: u8,
    /// The pull is in the queue of those with something to ask for.
    pub(super) in_requests: bool,
    /// The pull is in the queue of those that wait for room.
    pub(super) is_blocked: bool,
    /// The oldest missing frame was asked for since the last reply.
    pub(super) probed: bool,
    /// The request whose first reply will be a sample of the round trip.
    pub(super) sample: Option<(u16, Time)>,
    pub(super) give_up_ns: u64,
    /// The value of [`Pulls::begun`] when the pull began alone; `None`: it began beside others.
    pub(super) begun_alone: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Slot {
    generation: u32,
    pub(super) pull: Option<Pull>,
}

/// The pulls of an endpoint.
#[derive(Debug)]
pub(super) struct Pulls {
    pub(super) slots: Vec<Slot>,
    /// The free slots, by the path on which data for them comes ([`DataPath`]).
    free: [Vec<u16>; 2],
    pub(super) used: u32,
    /// Pulls whose data comes on the bulk path.
    pub(super) bulk: u32,
    /// Pulls since the beginning.
    pub(super) begun: u64,
    pub(super) limit: u32,
    /// Bytes asked for and not arrived.
    pub(super) outstanding: u32,
    outstanding_max: u32,
    /// The limit of `outstanding`, which depends on how long replies wait.
    pub(super) outstanding_allowed: u32,
    /// The time when that limit was last lowered.
    allowed_less_at: Time,
    /// Pulls with something to ask for.
    pub(super) requests: VecDeque<(u16, u32)>,
    /// Pulls whose next block waits for `outstanding` to fall.
    pub(super) blocked: VecDeque<(u16, u32)>,
    pub(super) timers: Timers,
}

impl Pulls {
    pub(super) fn new(limit: u32, outstanding_max: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: [Vec::new(), Vec::new()],
            used: 0,
            bulk: 0,
            begun: 0,
            limit: limit.min(SLOTS_MAX),
            outstanding: 0,
            outstanding_max,
            outstanding_allowed: outstanding_max,
            allowed_less_at: Time::ZERO,
            requests: VecDeque::new(),
            blocked: VecDeque::new(),
            timers: Timers::default(),
        }
    }

    /// Whether any pull may have something to ask for.
    #[inline]
    pub(super) fn may_ask(&self) -> bool {
        !self.requests.is_empty() || !self.blocked.is_empty()
    }

    pub(super) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + self.free.iter().map(Vec::capacity).sum::<usize>() * size_of::<u16>()
            + (self.requests.capacity() + self.blocked.capacity()) * size_of::<(u16, u32)>()
            + self.timers.memory()
    }

    /// Adapts the limit to a reply that came `rtt_ns` after it was asked for, `queue_ns` longer than on the idle path;
    /// more than `queue_ns_max` is too much.
    pub(super) fn adapt_window(&mut self, now: Time, rtt_ns: u64, queue_ns: u64, queue_ns_max: u64, payload: u32) {
        if queue_ns <= queue_ns_max {
            let more = self
                .outstanding_allowed
                .saturating_add(OUTSTANDING_FRAMES_STEP * payload);
            self.outstanding_allowed = more.min(self.outstanding_max);
        } else if now.nanos_since(self.allowed_less_at) > rtt_ns {
            self.allowed_less_at = now;
            let least = (OUTSTANDING_FRAMES_MIN * payload).min(self.outstanding_max);
            self.outstanding_allowed = (self.outstanding_allowed / 2).max(least);
        }
    }

    /// Gives a pull a slot whose data comes on this path, or another slot if all of those are taken.
    pub(super) fn insert(&mut self, path: DataPath, mut pull: Pull) -> Option<u16> {
        if self.used >= self.limit {
            return None;
        }
        if self.free[path as usize].is_empty() && self.slots.len() < SLOTS_MAX as usize {
            self.add_slots();
        }
        let free = self.free[path as usize].pop();
        let at = free.or_else(|| self.free.iter_mut().find_map(Vec::pop))?;
        self.begun += 1;
        pull.begun_alone = (self.used == 0).then_some(self.begun);
        self.used += 1;
        self.bulk += u32::from(DataPath::of_slot(at) == DataPath::Bulk);
        self.slots[usize::from(at)].pull = Some(pull);
        Some(at)
    }

    /// Adds one slot for each path.
    fn add_slots(&mut self) {
        for _ in 0..2 {
            let at = self.slots.len() as u16;
            self.slots.push(Slot {
                generation: GENERATION_FIRST,
                pull: None,
            });
            self.free[DataPath::of_slot(at) as usize].push(at);
        }
    }

    pub(super) fn remove(&mut self, at: u16) -> Option<Pull> {
        let slot = self.slots.get_mut(usize::from(at))?;
        let pull = slot.pull.take()?;
        slot.generation = (slot.generation + 1) & ((1 << GENERATION_BITS) - 1);
        self.outstanding -= pull.window.missing_bytes();
        self.used -= 1;
        let path = DataPath::of_slot(at);
        self.bulk -= u32::from(path == DataPath::Bulk);
        self.free[path as usize].push(at);
        self.timers.cancel(at.into());
        Some(pull)
    }

    pub(super) fn get(&mut self, at: u16, generation: u32) -> Option<&mut Pull> {
        let slot = self.slots.get_mut(usize::from(at))?;
        if slot.generation == generation {
            slot.pull.as_mut()
        } else {
            None
        }
    }

    pub(super) fn by_handle(&self, handle: u32) -> Option<(u16, &Pull)> {
        let at = (handle >> GENERATION_BITS) as u16;
        let slot = self.slots.get(usize::from(at))?;
        if slot.generation != handle & ((1 << GENERATION_BITS) - 1) {
            return None;
        }
        Some((at, slot.pull.as_ref()?))
    }

    pub(super) fn handle_of(&self, at: u16) -> u32 {
        u32::from(at) << GENERATION_BITS | self.slots[usize::from(at)].generation
    }

    /// Queues a pull that has something to ask for. A pull that waits for room still waits with new blocks; lost frames
    /// are asked for immediately, as their arrival makes room.
    pub(super) fn queue(&mut self, at: u16) {
        let slot = &mut self.slots[usize::from(at)];
        if let Some(pull) = &mut slot.pull
            && !pull.in_requests
            && (!pull.is_blocked || pull.window.wants())
        {
            pull.in_requests = true;
            self.requests.push_back((at, slot.generation));
        }
    }

    /// Lets a pull wait for room.
    pub(super) fn block(&mut self, at: u16) {
        let slot = &mut self.slots[usize::from(at)];
        if let Some(pull) = &mut slot.pull
            && !pull.is_blocked
        {
            pull.is_blocked = true;
            self.blocked.push_back((at, slot.generation));
        }
    }
}

/// The next step of a pull that may ask.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    Ask { first: u32, count: u32, again: bool },
    Blocked,
    Nothing,
}

pub(super) fn next_of(pull: &Pull, block_frames: u32, outstanding: u32, outstanding_max: u32) -> Next {
    if let Some((first, count)) = pull.window.next_wanted(block_frames) {
        return Next::Ask {
            first,
            count,
            again: true,
        };
    }
    let Some((first, count)) = pull.window.next_block(block_frames) else {
        return Next::Nothing;
    };
    let room = outstanding_max.saturating_sub(outstanding);
    let frame = pull.window.bytes(first, 1).max(1);
    if pull.window.bytes(first, count) <= room {
        return Next::Ask {
            first,
            count,
            again: false,
        };
    }
    // A part of the block, if it is worth a request: a quarter of a block, or of what may be outstanding at all.
    let fits = room / frame;
    let worth = (block_frames / 4).min(outstanding_max / 4 / frame).min(count).max(1);
    if fits >= worth {
        Next::Ask {
            first,
            count: fits.min(count),
            again: false,
        }
    } else if outstanding == 0 {
        Next::Ask {
            first,
            count: 1,
            again: false,
        }
    } else {
        Next::Blocked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_is_under_way_while_replies_wait_in_queues_and_more_when_they_no_longer_do() {
        const MAX: u32 = 1 << 20;
        const PAYLOAD: u32 = 1000;
        const QUEUE_NS_MAX: u64 = 1_000_000;
        let mut pulls = Pulls::new(8, MAX);
        let slow_ns = 50_000 + QUEUE_NS_MAX + 1;
        let mut now = Time::from_nanos(2 * slow_ns);
        let too_long =
            |pulls: &mut Pulls, now| pulls.adapt_window(now, slow_ns, QUEUE_NS_MAX + 1, QUEUE_NS_MAX, PAYLOAD);
        too_long(&mut pulls, now);
        too_long(&mut pulls, now);
        // Once per round trip: frames in flight say nothing new.
        let mut before = pulls.outstanding_allowed;
        assert_eq!(before, MAX / 2);
        for _ in 0..20 {
            now = now.plus_nanos(slow_ns + 1);
            too_long(&mut pulls, now);
            assert!(pulls.outstanding_allowed <= before);
            before = pulls.outstanding_allowed;
        }
        assert_eq!(before, OUTSTANDING_FRAMES_MIN * PAYLOAD);
        for _ in 0..MAX.div_ceil(OUTSTANDING_FRAMES_STEP * PAYLOAD) {
            pulls.adapt_window(now, slow_ns - 1, QUEUE_NS_MAX, QUEUE_NS_MAX, PAYLOAD);
        }
        assert_eq!(pulls.outstanding_allowed, MAX);
    }
}
