//! The sending side of large messages: the regions under whose numbers they can be pulled, the blocks that pullers asked for, and the
//! end of a message (6.1, 6.2, 6.3, 6.5).

use alloc::{collections::VecDeque, vec::Vec};

use ether::{MacAddr, Time};

use crate::{
    engine::{Counter, Payload, Status, Token, slab::NIL, timers::Timers},
    wire::{NackCode, Notify, Pull, PullReply, PullShapeError, Sizes},
};

/// Region numbers have eight bits (6.1).
const REGIONS_MAX: u32 = 256;
/// A partner that says nothing of an announced message is asked for it after this time, in nanoseconds, and again.
const ASK_NS: u64 = 1_000_000_000;
/// First value of a region's use counter (6.1).
const USE_FIRST: u8 = 23;

/// One region.
#[derive(Clone, Copy, Debug)]
struct Region {
    /// The large message in the region, or none.
    message: u32,
    partner: u32,
    token: Token,
    length: u32,
    /// The use counter, which changes with each use.
    use_counter: u8,
    /// The announcement was acknowledged.
    acknowledged: bool,
    /// The end came, with this many bytes transferred.
    notified: Option<u32>,
    /// The time when the partner last said something about the message.
    active_at: Time,
    /// The time when the partner was last asked for it.
    asked_at: Time,
    give_up_ns: u64,
}

impl Region {
    const UNUSED: Self = Self {
        message: NIL,
        partner: 0,
        token: 0,
        length: 0,
        use_counter: USE_FIRST,
        acknowledged: false,
        notified: None,
        active_at: Time::ZERO,
        asked_at: Time::ZERO,
        give_up_ns: 0,
    };

    /// Returns when the message is given up, unless its partner says something of it.
    const fn give_up_at(&self) -> Time {
        self.active_at.plus_nanos(self.give_up_ns)
    }

    /// Returns when the partner is to be asked for the message, or it is given up.
    fn due(&self) -> Time {
        let ask_at = self.active_at.max(self.asked_at).plus_nanos(ASK_NS);
        ask_at.min(self.give_up_at())
    }

    /// Begins a use of the region.
    const fn claim(&mut self, claim: Claim) {
        *self = Self {
            message: claim.message,
            partner: claim.partner,
            token: claim.token,
            length: claim.length,
            give_up_ns: claim.give_up_ns,
            use_counter: self.use_counter,
            ..Self::UNUSED
        };
    }
}

/// The purpose for which a region is claimed.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Claim {
    pub message: u32,
    pub partner: u32,
    pub token: Token,
    pub length: u32,
    pub give_up_ns: u64,
}

/// Part of a block that is to be sent.
#[derive(Clone, Copy, Debug)]
struct ReplyBlock {
    region: u8,
    use_counter: u8,
    puller: Puller,
    handle: u32,
    magic: u32,
    frame_seqnum: u8,
    /// Bytes the next frame can hold: less than a full one only for the first of a pull.
    room: u32,
    msg_offset: u32,
    rdma_offset: u32,
    remaining: u32,
}

/// The destination of the replies to a PULL.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Puller {
    pub mac: MacAddr,
    /// The peer's index in our table.
    pub peer: u16,
    /// Marks are sent to it.
    pub marks: bool,
}

/// Why a PULL is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct PullDrop {
    pub counter: Counter,
    /// The refusal that the puller gets.
    pub nack: Option<NackCode>,
}

/// One frame of an answer.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Reply {
    pub puller: Puller,
    /// It is the last one of its block.
    pub is_last: bool,
    /// The packet without its data.
    pub packet: PullReply<'static>,
    pub payload: Payload,
}

/// A large message that is over. Its region is to be given back first ([`TransferSender::release`]).
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Ended {
    pub region: u8,
    pub message: u32,
    pub status: Status,
    pub transferred: u32,
}

/// What is to be done about a message whose partner says nothing of it.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum Silent {
    /// The announcement is to be sent again: if the partner is gone, its host refuses it.
    Ask { message: u32 },
    /// It is over.
    Over(Ended),
}

/// The large messages that an endpoint sends.
#[derive(Debug)]
pub(in crate::engine) struct TransferSender {
    regions: Vec<Region>,
    free: Vec<u8>,
    used: u32,
    limit: u32,
    /// Partners whose next message waits for a region.
    waiters: VecDeque<u32>,
    blocks: VecDeque<ReplyBlock>,
    blocks_max: usize,
    timers: Timers,
}

impl TransferSender {
    /// Makes a sender with at most `regions_max` regions, and `blocks_max` blocks that wait to be answered.
    pub(in crate::engine) fn new(regions_max: u32, blocks_max: u32) -> Self {
        Self {
            regions: Vec::new(),
            free: Vec::new(),
            used: 0,
            limit: regions_max.min(REGIONS_MAX),
            waiters: VecDeque::new(),
            blocks: VecDeque::new(),
            blocks_max: blocks_max as usize,
            timers: Timers::default(),
        }
    }

    /// Whether no region is in use.
    pub(in crate::engine) const fn is_idle(&self) -> bool {
        self.used == 0
    }

    /// Whether no block is to be answered.
    #[inline]
    pub(in crate::engine) fn is_quiet(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Whether all regions are in use.
    const fn is_full(&self) -> bool {
        self.used >= self.limit
    }

    /// Returns when a message may have to be given up; [`Time::MAX`] if none is.
    #[inline]
    pub(in crate::engine) fn poll_timeout(&self) -> Time {
        self.timers.next()
    }

    /// Returns the memory in use, in bytes.
    pub(in crate::engine) fn memory(&self) -> usize {
        self.regions.capacity() * size_of::<Region>()
            + self.free.capacity()
            + self.waiters.capacity() * size_of::<u32>()
            + self.blocks.capacity() * size_of::<ReplyBlock>()
            + self.timers.memory()
    }

    /// Reserves a region; `None` while all are in use.
    pub(in crate::engine) fn claim(&mut self, claim: Claim) -> Option<u8> {
        if self.is_full() {
            return None;
        }
        self.used += 1;
        let number = self.free.pop().unwrap_or_else(|| {
            self.regions.push(Region::UNUSED);
            (self.regions.len() - 1) as u8
        });
        self.regions[usize::from(number)].claim(claim);
        Some(number)
    }

    /// Lets a partner wait for a region.
    pub(in crate::engine) fn wait(&mut self, partner: u32) {
        self.waiters.push_back(partner);
    }

    /// Takes a partner that waits for a region. It may not need it any more.
    pub(in crate::engine) fn poll_waiter(&mut self) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        self.waiters.pop_front()
    }

    fn get(&self, number: u32) -> Option<&Region> {
        self.regions.get(number as usize).filter(|region| region.message != NIL)
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Region> {
        self.regions
            .get_mut(number as usize)
            .filter(|region| region.message != NIL)
    }

    /// Gives a region back; its use counter moves on.
    pub(in crate::engine) fn release(&mut self, number: u8) {
        let Some(region) = self.get_mut(number.into()) else {
            return;
        };
        region.message = NIL;
        region.use_counter = region.use_counter.wrapping_add(1);
        self.timers.cancel(number.into());
        self.free.push(number);
        self.used -= 1;
    }

    /// Returns the use counter of a region, which its announcement carries.
    pub(in crate::engine) fn use_counter(&self, number: u8) -> Option<u8> {
        Some(self.get(number.into())?.use_counter)
    }

    /// Whether the announcement of the message in a region was acknowledged.
    pub(in crate::engine) fn is_acknowledged(&self, number: u8) -> bool {
        self.get(number.into()).is_some_and(|region| region.acknowledged)
    }

    /// Returns the regions of large messages to a partner whose announcement was acknowledged, and these messages.
    pub(in crate::engine) fn acknowledged_to(&self, partner: u32) -> impl Iterator<Item = (u8, u32)> {
        let regions = (0..=u8::MAX)
            .zip(&self.regions)
            .filter(move |(_, region)| region.message != NIL && region.partner == partner && region.acknowledged);
        regions.map(|(number, region)| (number, region.message))
    }

    /// Takes a large message over that has its region. False: another message has the region.
    pub(in crate::engine) fn take_over(&mut self, number: u8, use_counter: u8, claim: Claim) -> bool {
        while self.regions.len() <= usize::from(number) {
            self.regions.push(Region::UNUSED);
        }
        if self.get(number.into()).is_some() {
            return false;
        }
        self.used += 1;
        let region = &mut self.regions[usize::from(number)];
        region.use_counter = use_counter;
        region.claim(claim);
        true
    }

    /// Handles a PULL from this partner, if it is one: checks it as 6.2 says, after its address and session, and queues
    /// the block.
    pub(in crate::engine) fn handle_pull(
        &mut self,
        now: Time,
        partner: Option<u32>,
        puller: Puller,
        pull: &Pull,
        sizes: &Sizes,
    ) -> Result<(), PullDrop> {
        let dropped = |counter| PullDrop { counter, nack: None };
        let shape = pull.frames(sizes);
        if shape == Err(PullShapeError::BadReplies) {
            return Err(dropped(Counter::DropPullBadReplies));
        }
        let region = self.get_mut(pull.rdma_id);
        let region = region.filter(|region| region.use_counter == pull.rdma_seqnum && Some(region.partner) == partner);
        let Some(region) = region else {
            return Err(PullDrop {
                counter: Counter::DropPullBadRegion,
                nack: Some(NackCode::BadRdmaWindow),
            });
        };
        let offset = block_offset(pull, sizes.reply_payload(), region.length);
        let (Ok(_), Some(msg_offset)) = (shape, offset) else {
            return Err(dropped(Counter::DropPullBadOffsetLength));
        };
        region.active_at = now;
        let use_counter = region.use_counter;
        if self.is_waiting(puller.mac, pull, msg_offset) {
            // The puller asked again before it was answered: the first answer is still to be sent.
            return Err(dropped(Counter::DropPullRepeated));
        }
        if self.blocks.len() >= self.blocks_max {
            return Err(dropped(Counter::DropReplyBlocksFull));
        }
        self.blocks.push_back(ReplyBlock {
            // It names a region, so it has eight bits.
            region: pull.rdma_id as u8,
            use_counter,
            puller,
            handle: pull.handle,
            magic: pull.magic,
            frame_seqnum: pull.frame_index as u8,
            room: sizes.reply_payload() - pull.first_frame_offset,
            msg_offset,
            rdma_offset: pull.rdma_offset,
            remaining: pull.block_length,
        });
        Ok(())
    }

    /// Whether all of what is asked for, from this offset of the message on, still waits to be sent to this puller.
    /// Each endpoint numbers its handles by itself: the first pulls of two programs of one host have equal ones.
    fn is_waiting(&self, mac: MacAddr, pull: &Pull, msg_offset: u32) -> bool {
        let end = u64::from(msg_offset) + u64::from(pull.block_length);
        self.blocks.iter().any(|block| {
            (block.handle, block.magic) == (pull.handle, pull.magic)
                && (u32::from(block.region), block.use_counter) == (pull.rdma_id, pull.rdma_seqnum)
                && block.msg_offset <= msg_offset
                && end <= u64::from(block.msg_offset) + u64::from(block.remaining)
                && block.puller.mac == mac
        })
    }

    /// Takes the next frame of the blocks that were asked for.
    #[inline]
    pub(in crate::engine) fn poll_reply(&mut self, sizes: &Sizes) -> Option<Reply> {
        loop {
            let block = self.blocks.front_mut()?;
            let region = block.region;
            let len = block.room.min(block.remaining);
            let packet = PullReply {
                frame_seqnum: block.frame_seqnum,
                msg_offset: block.msg_offset,
                handle: block.handle,
                magic: block.magic,
                data: &[],
            };
            let offset = block.msg_offset + block.rdma_offset;
            let (puller, use_counter) = (block.puller, block.use_counter);
            block.frame_seqnum = block.frame_seqnum.wrapping_add(1);
            block.msg_offset += len;
            block.remaining -= len;
            block.room = sizes.reply_payload();
            let is_last = block.remaining == 0;
            if is_last {
                self.blocks.pop_front();
            }
            // The message may be over meanwhile.
            let region = self.get(region.into());
            let Some(region) = region.filter(|region| region.use_counter == use_counter) else {
                if !is_last {
                    self.blocks.pop_front();
                }
                continue;
            };
            let payload = Payload {
                token: region.token,
                offset,
                len,
            };
            return Some(Reply {
                puller,
                is_last,
                packet,
                payload,
            });
        }
    }

    /// Handles a partner's word that a large message is over. `Err`: it names none of its messages.
    pub(in crate::engine) fn handle_notify(
        &mut self,
        now: Time,
        partner: u32,
        notify: &Notify,
    ) -> Result<Option<Ended>, Counter> {
        let region = self.get_mut(notify.rdma_id.into());
        let region = region.filter(|region| region.use_counter == notify.rdma_seqnum && region.partner == partner);
        let region = region.ok_or(Counter::DropStrayNotify)?;
        region.notified = Some(notify.total_length.min(region.length));
        region.active_at = now;
        let is_over = region.acknowledged;
        Ok(if is_over { self.ended(notify.rdma_id) } else { None })
    }

    /// Notes that the announcement of a large message was acknowledged.
    pub(in crate::engine) fn handle_acknowledged(&mut self, now: Time, number: u8) -> Option<Ended> {
        let region = self.get_mut(number.into())?;
        region.acknowledged = true;
        // It may have been asked for since the acknowledgement came.
        region.active_at = region.active_at.max(now);
        if region.notified.is_some() {
            return self.ended(number);
        }
        let due = region.due();
        self.timers.at_latest(number.into(), due);
        None
    }

    fn ended(&self, number: u8) -> Option<Ended> {
        let region = self.get(number.into())?;
        let transferred = region.notified.unwrap_or(0);
        let status = if transferred < region.length {
            Status::Truncated
        } else {
            Status::Success
        };
        Some(Ended {
            region: number,
            message: region.message,
            status,
            transferred,
        })
    }

    /// Finds a message of which neither a pull nor the end was seen for a while. Its partner may be alive and not have posted a
    /// receive, or be gone without anybody's word: it is asked, and the message ends when it was silent for long.
    pub(in crate::engine) fn handle_timeout(&mut self, now: Time) -> Option<Silent> {
        while let Some(number) = self.timers.pop_due(now) {
            let Some(region) = self.get_mut(number) else { continue };
            let (due, message) = (region.due(), region.message);
            if now < due {
                self.timers.at_latest(number, due);
                continue;
            }
            if now < region.give_up_at() {
                region.asked_at = now;
                let next = region.due();
                self.timers.at_latest(number, next);
                return Some(Silent::Ask { message });
            }
            return Some(Silent::Over(Ended {
                region: number as u8,
                message,
                status: Status::Timeout,
                transferred: 0,
            }));
        }
        None
    }

    /// Limits the message of a region to this time.
    pub(in crate::engine) fn set_give_up(&mut self, number: u8, message: u32, give_up_ns: u64) {
        let Some(region) = self.get_mut(number.into()).filter(|region| region.message == message) else {
            return;
        };
        region.give_up_ns = give_up_ns;
        let due = region.due();
        if region.acknowledged {
            self.timers.at_latest(number.into(), due);
        }
    }

    /// Finds a large message to a partner whose conversation is over, and its region.
    pub(in crate::engine) fn of_partner(&self, partner: u32) -> Option<Ended> {
        let number = self
            .regions
            .iter()
            .position(|region| region.message != NIL && region.partner == partner)?;
        Some(Ended {
            region: number as u8,
            message: self.regions[number].message,
            status: Status::Unreachable,
            transferred: 0,
        })
    }
}

/// Returns the position in the message of the first byte asked for; `None` if any byte is outside the region (6.3).
fn block_offset(pull: &Pull, payload: u32, region_length: u32) -> Option<u32> {
    let skipped = i64::from(pull.rdma_offset % payload);
    let msg_offset = i64::from(pull.frame_index) * i64::from(payload) - skipped + i64::from(pull.first_frame_offset);
    let end = msg_offset.checked_add(i64::from(pull.rdma_offset))? + i64::from(pull.block_length);
    if end > i64::from(region_length) {
        return None;
    }
    u32::try_from(msg_offset).ok()
}
