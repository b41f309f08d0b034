//! The regions of a sender: which large message can be pulled under which number, and the blocks that pullers asked for
//! (6.1, 6.2). Data and bookkeeping; the packets are handled in `large_send`.

use alloc::{collections::VecDeque, vec::Vec};

use ether::{MacAddr, Time};

use super::{Token, slab::NIL, timers::Timers};
use crate::wire::Pull;

/// Region numbers have eight bits (6.1).
const REGIONS_MAX: u32 = 256;
/// First value of a region's use counter (6.1).
const USE_FIRST: u8 = 23;

/// One region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    /// The large message, or nothing.
    pub message: u32,
    pub partner: u32,
    pub token: Token,
    pub length: u32,
    /// Changes with each use.
    pub use_counter: u8,
    /// The announcement was acknowledged.
    pub acknowledged: bool,
    /// The end came, with this many bytes transferred.
    pub notified: Option<u32>,
    /// When the partner was last heard of about it.
    pub active_at: Time,
    pub give_up_ns: u64,
}

/// What a region is claimed for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub message: u32,
    pub partner: u32,
    pub token: Token,
    pub length: u32,
    pub give_up_ns: u64,
}

/// Part of a block that is to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplyBlock {
    pub region: u8,
    pub use_counter: u8,
    pub mac: MacAddr,
    pub peer: u16,
    pub marks: bool,
    pub handle: u32,
    pub magic: u32,
    pub frame_seqnum: u8,
    /// Bytes the next frame can hold: less than a full one only for the first of a pull.
    pub room: u32,
    pub msg_offset: u32,
    pub rdma_offset: u32,
    pub remaining: u32,
}

/// The regions of an endpoint.
#[derive(Debug)]
pub(super) struct Regions {
    slots: Vec<Region>,
    free: Vec<u8>,
    used: u32,
    limit: u32,
    waiters: VecDeque<u32>,
    pub blocks: VecDeque<ReplyBlock>,
    pub timers: Timers,
}

impl Regions {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            used: 0,
            limit: limit.min(REGIONS_MAX),
            waiters: VecDeque::new(),
            blocks: VecDeque::new(),
            timers: Timers::default(),
        }
    }

    pub(super) const fn in_use(&self) -> u32 {
        self.used
    }

    /// Whether all regions are in use.
    pub(super) const fn is_full(&self) -> bool {
        self.used >= self.limit
    }

    /// Reserves a region; `None` while all are in use.
    pub(super) fn claim(&mut self, claim: Claim) -> Option<u8> {
        if self.is_full() {
            return None;
        }
        self.used += 1;
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Region {
                message: NIL,
                partner: 0,
                token: 0,
                length: 0,
                use_counter: USE_FIRST,
                acknowledged: false,
                notified: None,
                active_at: Time::ZERO,
                give_up_ns: 0,
            });
            (self.slots.len() - 1) as u8
        });
        let region = &mut self.slots[usize::from(number)];
        *region = Region {
            message: claim.message,
            partner: claim.partner,
            token: claim.token,
            length: claim.length,
            use_counter: region.use_counter,
            acknowledged: false,
            notified: None,
            active_at: Time::ZERO,
            give_up_ns: claim.give_up_ns,
        };
        Some(number)
    }

    /// A region that is in use.
    pub(super) fn get(&self, number: u32) -> Option<&Region> {
        self.slots.get(number as usize).filter(|region| region.message != NIL)
    }

    /// A region that is in use.
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Region> {
        self.slots
            .get_mut(number as usize)
            .filter(|region| region.message != NIL)
    }

    /// Gives a region back; its use counter moves on.
    pub(super) fn release(&mut self, number: u8) {
        let Some(region) = self.get_mut(number.into()) else {
            return;
        };
        region.message = NIL;
        region.use_counter = region.use_counter.wrapping_add(1);
        self.timers.cancel(number.into());
        self.free.push(number);
        self.used -= 1;
    }

    /// A partner waits for a region.
    pub(super) fn wait(&mut self, partner: u32) {
        self.waiters.push_back(partner);
    }

    pub(super) fn next_waiter(&mut self) -> Option<u32> {
        self.waiters.pop_front()
    }

    /// The first region of a partner.
    pub(super) fn of_partner(&self, partner: u32) -> Option<u8> {
        self.slots
            .iter()
            .position(|region| region.message != NIL && region.partner == partner)
            .map(|number| number as u8)
    }

    /// Whether all of what is asked for, from this offset of the message on, still waits to be sent to the same puller. Handles are
    /// each endpoint's own: the first pulls of two programs of one host have the same.
    pub(super) fn is_waiting(&self, mac: MacAddr, pull: &Pull, msg_offset: u32) -> bool {
        let end = u64::from(msg_offset) + u64::from(pull.block_length);
        self.blocks.iter().any(|block| {
            (block.handle, block.magic) == (pull.handle, pull.magic)
                && (u32::from(block.region), block.use_counter) == (pull.rdma_id, pull.rdma_seqnum)
                && block.msg_offset <= msg_offset
                && end <= u64::from(block.msg_offset) + u64::from(block.remaining)
                && block.mac == mac
        })
    }

    pub(super) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Region>()
            + self.free.capacity()
            + self.waiters.capacity() * size_of::<u32>()
            + self.blocks.capacity() * size_of::<ReplyBlock>()
            + self.timers.memory()
    }
}
