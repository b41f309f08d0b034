//! The receiving side of large messages: asking for blocks, taking replies, asking again, giving up (6.2 – 6.4).

use alloc::{collections::VecDeque, vec::Vec};

use ether::Time;

use super::{
    Counter, Engine, Event, Host, LargeId, Peers, Status, Token,
    large_receive::Large,
    pull_window::{PullWindow, Refused, Reply},
    timers::Timers,
};
use crate::wire::{Head, NackMcp, Pull as PullPacket, PullReply, endpoint_of_pull_magic, pull_magic};

/// Slots a handle can name (6.2).
const SLOTS_MAX: u32 = 1024;
/// Bits of a handle's generation.
const GENERATION_BITS: u32 = 22;
/// First generation of a slot.
const GENERATION_FIRST: u32 = 0x23;
/// Reordering that is waited for at most, in frames: beyond it, asking again costs less than waiting.
const REORDERING_MAX: u16 = 24;
/// What a frame that was asked for needlessly adds to the reordering that is waited for.
const REORDERING_STEP: u16 = 2;

/// A running pull.
#[derive(Debug)]
pub(super) struct Pull {
    large: Large,
    session: u32,
    token: Token,
    length: u32,
    window: PullWindow,
    started: Time,
    /// Last request or accepted reply.
    active_at: Time,
    backoff: u8,
    /// It is among those with something to ask for.
    in_requests: bool,
    /// It is among those that wait for room.
    in_held: bool,
    /// The oldest missing frame was asked for since the last reply.
    probed: bool,
    /// A request whose first reply will be a sample of the round trip.
    sample: Option<(u16, Time)>,
    give_up_ns: u64,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    pull: Option<Pull>,
}

/// The pulls of an endpoint.
#[derive(Debug)]
pub(super) struct Pulls {
    slots: Vec<Slot>,
    free: Vec<u16>,
    used: u32,
    limit: u32,
    /// Bytes asked for and not arrived.
    outstanding: u32,
    outstanding_max: u32,
    /// Pulls with something to ask for.
    requests: VecDeque<(u16, u32)>,
    /// Pulls whose next block waits for `outstanding` to fall.
    held: VecDeque<(u16, u32)>,
    /// Announced messages that wait for a slot.
    pub waiting: VecDeque<LargeId>,
    pub timers: Timers,
}

impl Pulls {
    pub(super) fn new(limit: u32, outstanding_max: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            used: 0,
            limit: limit.min(SLOTS_MAX),
            outstanding: 0,
            outstanding_max,
            requests: VecDeque::new(),
            held: VecDeque::new(),
            waiting: VecDeque::new(),
            timers: Timers::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == 0 && self.waiting.is_empty()
    }

    /// Whether any pull may have something to ask for.
    #[inline]
    pub(super) fn may_ask(&self) -> bool {
        !self.requests.is_empty() || !self.held.is_empty()
    }

    pub(super) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + self.free.capacity() * size_of::<u16>()
            + (self.requests.capacity() + self.held.capacity()) * size_of::<(u16, u32)>()
            + self.waiting.capacity() * size_of::<LargeId>()
            + self.timers.memory()
    }

    fn insert(&mut self, pull: Pull) -> Option<u16> {
        if self.used >= self.limit {
            return None;
        }
        self.used += 1;
        if let Some(at) = self.free.pop() {
            self.slots[usize::from(at)].pull = Some(pull);
            return Some(at);
        }
        self.slots.push(Slot {
            generation: GENERATION_FIRST,
            pull: Some(pull),
        });
        Some((self.slots.len() - 1) as u16)
    }

    fn remove(&mut self, at: u16) -> Option<Pull> {
        let slot = self.slots.get_mut(usize::from(at))?;
        let pull = slot.pull.take()?;
        slot.generation = (slot.generation + 1) & ((1 << GENERATION_BITS) - 1);
        self.outstanding -= pull.window.missing_bytes();
        self.used -= 1;
        self.free.push(at);
        self.timers.cancel(at.into());
        Some(pull)
    }

    fn get(&mut self, at: u16, generation: u32) -> Option<&mut Pull> {
        let slot = self.slots.get_mut(usize::from(at))?;
        if slot.generation == generation {
            slot.pull.as_mut()
        } else {
            None
        }
    }

    fn by_handle(&self, handle: u32) -> Option<(u16, &Pull)> {
        let at = (handle >> GENERATION_BITS) as u16;
        let slot = self.slots.get(usize::from(at))?;
        if slot.generation != handle & ((1 << GENERATION_BITS) - 1) {
            return None;
        }
        Some((at, slot.pull.as_ref()?))
    }

    fn handle_of(&self, at: u16) -> u32 {
        u32::from(at) << GENERATION_BITS | self.slots[usize::from(at)].generation
    }

    /// A pull has something to ask for. If it waits for room, that holds for new blocks; what is lost is asked for at once, as
    /// its arrival is what makes room.
    fn queue(&mut self, at: u16) {
        let slot = &mut self.slots[usize::from(at)];
        if let Some(pull) = &mut slot.pull
            && !pull.in_requests
            && (!pull.in_held || pull.window.wants())
        {
            pull.in_requests = true;
            self.requests.push_back((at, slot.generation));
        }
    }

    /// A pull waits for room.
    fn hold(&mut self, at: u16) {
        let slot = &mut self.slots[usize::from(at)];
        if let Some(pull) = &mut slot.pull
            && !pull.in_held
        {
            pull.in_held = true;
            self.held.push_back((at, slot.generation));
        }
    }
}

/// What to ask for next.
#[derive(Clone, Copy, Debug)]
enum Next {
    Ask { first: u32, count: u32, again: bool },
    Held,
    Nothing,
}

fn next_of(pull: &Pull, block_frames: u32, outstanding: u32, outstanding_max: u32) -> Next {
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
        Next::Held
    }
}

impl<P: Peers> Engine<P> {
    /// Starts pulls that wait, as long as there are slots.
    pub(super) fn start_pulls(&mut self, now: Time) {
        while self.pulls.used < self.pulls.limit {
            let Some(id) = self.pulls.waiting.pop_front() else {
                return;
            };
            if !self.larges.is_current(id.slot, id.generation) {
                continue;
            }
            let Some(large) = self.larges.remove(id.slot) else {
                continue;
            };
            let Some((token, length)) = large.waiting else { continue };
            let payload = self.dialect.sizes().reply_payload();
            let pull = Pull {
                large,
                session: self.partners[large.partner as usize].back,
                token,
                length,
                window: PullWindow::new(length, large.rdma_offset.into(), payload),
                started: now,
                active_at: now,
                backoff: 0,
                in_requests: false,
                in_held: false,
                probed: false,
                sample: None,
                give_up_ns: self.give_up_ns,
            };
            if let Some(at) = self.pulls.insert(pull) {
                self.pulls.queue(at);
            }
        }
    }

    /// The next PULL to be sent, and to whom.
    pub(super) fn next_pull(&mut self, now: Time) -> Option<(u32, PullPacket)> {
        let block_frames = self.dialect.sizes().block_frames();
        for held in [false, true] {
            loop {
                let queue = if held { &self.pulls.held } else { &self.pulls.requests };
                let Some((at, generation)) = queue.front().copied() else {
                    break;
                };
                let (outstanding, max) = (self.pulls.outstanding, self.pulls.outstanding_max);
                let next = match self.pulls.get(at, generation) {
                    Some(pull) => next_of(pull, block_frames, outstanding, max),
                    None => Next::Nothing,
                };
                if held && matches!(next, Next::Held) {
                    break;
                }
                let queue = if held {
                    &mut self.pulls.held
                } else {
                    &mut self.pulls.requests
                };
                queue.pop_front();
                let Some(pull) = self.pulls.get(at, generation) else {
                    continue;
                };
                *(if held { &mut pull.in_held } else { &mut pull.in_requests }) = false;
                match next {
                    Next::Nothing => {}
                    Next::Held => self.pulls.hold(at),
                    Next::Ask { first, count, again } => {
                        // To the end: pulls take turns.
                        self.pulls.queue(at);
                        return self.ask(now, at, first, count, again);
                    }
                }
            }
        }
        None
    }

    fn ask(&mut self, now: Time, at: u16, first: u32, count: u32, again: bool) -> Option<(u32, PullPacket)> {
        let handle = self.pulls.handle_of(at);
        let pull = self.pulls.slots[usize::from(at)].pull.as_mut()?;
        let block_length = pull.window.bytes(first, count);
        let ordinal = pull.window.request(first, count, now.as_nanos());
        if !again {
            self.pulls.outstanding += block_length;
            if pull.sample.is_none() {
                pull.sample = Some((ordinal, now));
            }
        }
        pull.active_at = now;
        let partner = &self.partners[pull.large.partner as usize];
        let packet = PullPacket {
            dst_endpoint: partner.endpoint,
            src_endpoint: self.config.endpoint,
            session: pull.session,
            total_length: pull.length,
            rdma_id: pull.large.rdma_id.into(),
            rdma_seqnum: pull.large.rdma_seqnum,
            rdma_offset: pull.large.rdma_offset.into(),
            handle,
            magic: pull_magic(self.config.endpoint),
            first_frame_offset: pull.window.first_frame_offset(first),
            block_length,
            frame_index: first,
        };
        let rto = partner
            .path
            .rto_of(&self.config.timing, partner.short_acks, pull.backoff);
        let probe = partner.probe_ns().filter(|_| !pull.probed && pull.backoff == 0);
        let wait = probe.map_or(rto, |probe| rto.min(probe));
        let slot = pull.large.partner;
        self.pulls.timers.at_latest(at.into(), now.plus_nanos(wait));
        Some((slot, packet))
    }

    /// A PULL_REPLY came in: checks it in the order of 6.3.
    pub(super) fn handle_pull_reply<H: Host>(&mut self, now: Time, head: &Head, reply: &PullReply<'_>, host: &mut H) {
        self.counters.count(Counter::RecvPullReply);
        if endpoint_of_pull_magic(reply.magic) != Some(self.config.endpoint) {
            self.counters.count(Counter::DropPullReplyBadMagicEndpoint);
            return;
        }
        let partners = &self.partners;
        let found = self.pulls.by_handle(reply.handle);
        let found = found.filter(|(_, pull)| partners[pull.large.partner as usize].mac == head.src);
        let Some((at, _)) = found else {
            self.counters.count(Counter::DropPullReplyBadWireHandle);
            return;
        };
        let Some(pull) = self.pulls.slots[usize::from(at)].pull.as_mut() else {
            return;
        };
        let block_frames = self.dialect.sizes().block_frames();
        let partner = &mut self.partners[pull.large.partner as usize];
        let len = reply.data.len() as u32;
        let came = Reply {
            frame_seqnum: reply.frame_seqnum,
            msg_offset: reply.msg_offset,
            len,
            now_ns: now.as_nanos(),
        };
        let longest_ns = partner.path.rto_of(&self.config.timing, partner.short_acks, 0);
        let after_silence = pull.probed || pull.backoff > 0;
        let path = partner.late_or_lost(longest_ns, after_silence);
        let arrived = pull.window.arrive(came, path, block_frames);
        let taken = match arrived {
            Ok(taken) => taken,
            Err(refused) => {
                let (counter, spurious) = match refused {
                    Refused::Wraparound { spurious } => (Counter::DropPullReplyBadSeqnumWraparound, spurious),
                    Refused::BadSeqnum => (Counter::DropPullReplyBadSeqnum, None),
                    Refused::Duplicate { spurious } => (Counter::DropPullReplyDuplicate, spurious),
                };
                self.counters.count(counter);
                if let Some(after_ns) = spurious {
                    self.counters.count(Counter::PullSpurious);
                    if after_ns > 0 {
                        // Two copies, two requests: it answers the second.
                        partner.path.sample(after_ns);
                    }
                    partner.reordering = (partner.reordering + REORDERING_STEP).min(REORDERING_MAX);
                }
                return;
            }
        };
        partner.reordering = partner.reordering.max(taken.overtaken_by.min(REORDERING_MAX));
        if let Some(late_ns) = taken.late_ns {
            // Whichever request it answers, its round trip was not shorter.
            partner.path.sample(late_ns);
        }
        if let (Some(ordinal), Some((sampled, sent))) = (taken.ordinal, pull.sample) {
            let passed = ordinal.wrapping_sub(sampled) as i16;
            if passed == 0 {
                partner.path.sample(now.nanos_since(sent));
            }
            if passed >= 0 {
                pull.sample = None;
            }
        }
        pull.active_at = now;
        pull.backoff = 0;
        pull.probed = false;
        let (token, length) = (pull.token, pull.length);
        let complete = pull.window.is_complete();
        if !complete && pull.window.has_gap() {
            self.pulls.timers.at_latest(at.into(), now.plus_nanos(partner.gap_ns()));
        }
        let more = pull.window.wants() || pull.window.next_block(block_frames).is_some();
        self.pulls.outstanding -= len;
        if taken.done_early {
            self.counters.count(Counter::PullNonfirstBlockDoneEarly);
        }
        host.deliver(token, reply.msg_offset, reply.data);
        if complete {
            self.end_pull(now, at, Status::Success, length);
            return;
        }
        self.counters.add_to(Counter::PullRequestNotonlyfirstBlocks, taken.lost);
        if more {
            self.pulls.queue(at);
        }
    }

    /// A NACK_MCP came in (8.3).
    pub(super) fn handle_nack_mcp(&mut self, now: Time, head: &Head, nack: &NackMcp) {
        self.counters.count(Counter::RecvNackMcp);
        let Some(()) = self.check_nack_peer(head) else { return };
        if endpoint_of_pull_magic(nack.magic) != Some(self.config.endpoint) {
            self.counters.count(Counter::DropNackMcpBadMagicEndpoint);
            return;
        }
        let partners = &self.partners;
        let found = self.pulls.by_handle(nack.handle);
        let found = found.filter(|(_, pull)| partners[pull.large.partner as usize].mac == head.src);
        match found.map(|(at, _)| at) {
            Some(at) => self.end_pull(now, at, nack.code.into(), 0),
            None => self.counters.count(Counter::DropNackMcpBadWireHandle),
        }
    }

    fn end_pull(&mut self, now: Time, at: u16, status: Status, transferred: u32) {
        let Some(pull) = self.pulls.remove(at) else { return };
        self.events.push_back(Event::Received {
            receive: pull.token,
            status,
            transferred,
        });
        self.notify(&pull.large, transferred);
        self.start_pulls(now);
    }

    /// Nothing was heard of a pull for a time-out: its oldest missing frames are asked for again, or the pull is given up. One
    /// first, for its reply tells whether the others are lost too, and if they only wait in a long queue, asking for all would
    /// make it longer; more when that is lost itself.
    pub(super) fn pull_timeout(&mut self, now: Time, at: u32) {
        let at = at as u16;
        let block_frames = self.dialect.sizes().block_frames();
        let Some(pull) = self
            .pulls
            .slots
            .get_mut(usize::from(at))
            .and_then(|slot| slot.pull.as_mut())
        else {
            return;
        };
        if !pull.window.is_outstanding() {
            return;
        }
        let partner = &self.partners[pull.large.partner as usize];
        let rto_of = |backoff| partner.path.rto_of(&self.config.timing, partner.short_acks, backoff);
        let mut due = pull.active_at.plus_nanos(rto_of(pull.backoff));
        if now < due {
            let gap = pull.window.has_gap().then(|| partner.gap_ns());
            let probe = partner.probe_ns().filter(|_| !pull.probed && pull.backoff == 0);
            let gap_due = gap.map_or(Time::MAX, |ns| pull.active_at.plus_nanos(ns));
            let probe_due = probe.map_or(Time::MAX, |ns| pull.active_at.plus_nanos(ns));
            if gap_due <= now {
                let lost = pull.window.close_gaps();
                self.counters.add_to(Counter::PullRequestNotonlyfirstBlocks, lost);
                self.pulls.queue(at);
            } else if probe_due <= now {
                pull.probed = true;
                pull.window.want_oldest(1);
                self.counters.count(Counter::PullProbes);
                self.pulls.queue(at);
            } else {
                due = due.min(gap_due).min(probe_due);
            }
            self.pulls.timers.at_latest(at.into(), due);
            return;
        }
        if now.nanos_since(pull.started) >= pull.give_up_ns {
            self.counters.count(Counter::PullTimeoutAbort);
            self.end_pull(now, at, Status::Timeout, 0);
            return;
        }
        let (oldest, younger) = pull.window.missing_blocks(block_frames);
        if oldest {
            self.counters.count(Counter::PullTimeoutHandlerFirstBlock);
        }
        if younger {
            self.counters.count(Counter::PullTimeoutHandlerNonfirstBlock);
        }
        pull.window.want_oldest(1 << (2 * pull.backoff).min(8));
        pull.backoff = (pull.backoff + 1).min(16);
        pull.active_at = now;
        pull.sample = None;
        let again = now.plus_nanos(rto_of(pull.backoff));
        self.pulls.timers.at_latest(at.into(), again);
        self.pulls.queue(at);
    }
}
