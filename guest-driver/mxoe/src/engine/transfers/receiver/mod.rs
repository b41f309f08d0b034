//! The receiving side of large messages (6.2 – 6.5): it keeps those that were announced, runs the pulls, asks again,
//! and gives up.

use alloc::collections::VecDeque;

use ether::Time;

mod data_paths;
mod pulls;
mod window;

use self::{
    data_paths::DataPaths,
    pulls::{Next, Pull, Pulls, next_of},
    window::{PullWindow, Refused, Reply},
};
use super::path::TransferPath;
use crate::{
    engine::{
        Counter, Counters, DataPath, DataPathChoice, Event, LargeId, Limits, SendError, Status, Timing, Token,
        slab::Slab,
    },
    wire::{Pull as PullPacket, PullReply, Rndv, Sizes, pull_magic},
};

/// A large message that was announced and is not being pulled yet.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Large {
    pub partner: u32,
    /// The conversation that the message belongs to.
    pub epoch: u32,
    msg_length: u32,
    pub rdma_id: u8,
    pub rdma_seqnum: u8,
    rdma_offset: u16,
    /// The name and the bytes of a pull that waits for a slot.
    waiting: Option<(Token, u32)>,
    /// The time limit of that pull, if the general one does not apply.
    give_up_ns: Option<u64>,
}

impl Large {
    pub(in crate::engine) const fn announced(partner: u32, epoch: u32, p: &Rndv<'_>) -> Self {
        Self {
            partner,
            epoch,
            msg_length: p.msg_length,
            rdma_id: p.rdma_id,
            rdma_seqnum: p.rdma_seqnum,
            rdma_offset: p.rdma_offset,
            waiting: None,
            give_up_ns: None,
        }
    }
}

/// The data from the other parts of the engine that a pull needs to begin.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Begin {
    /// The partner's session *back*.
    pub session: u32,
    /// Bytes of data of a full reply.
    pub payload: u32,
    /// The pull is given up after this time, unless another time was set for it.
    pub give_up_ns: u64,
}

/// The data that every frame and time-out of a pull needs.
#[derive(Debug)]
pub(in crate::engine) struct Transfer<'a> {
    pub now: Time,
    /// The path from the partner.
    pub path: &'a mut TransferPath,
    /// Both ends acknowledge within 1 ms.
    pub short_acks: bool,
    pub timing: &'a Timing,
    pub sizes: &'a Sizes,
    pub counters: &'a mut Counters,
}

/// A block that is to be asked for next.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Ask {
    /// The partner that is asked.
    pub partner: u32,
    at: u16,
    first: u32,
    count: u32,
    again: bool,
}

/// The two ends of a PULL.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Ends {
    pub own: u8,
    pub partner: u8,
}

/// A pull that has ended, with success or without.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Over {
    /// The message that was pulled.
    pub large: Large,
    pub event: Event,
    /// Bytes that were transferred.
    pub transferred: u32,
}

/// The large messages that an endpoint receives.
#[derive(Debug)]
pub(in crate::engine) struct TransferReceiver {
    announced: Slab<Large>,
    /// Announced messages that wait for a slot.
    waiting: VecDeque<LargeId>,
    pulls: Pulls,
    data_paths: DataPaths,
}

impl TransferReceiver {
    pub(in crate::engine) fn new(limits: &Limits, data_path: DataPathChoice) -> Self {
        Self {
            announced: Slab::new(limits.announced),
            waiting: VecDeque::new(),
            pulls: Pulls::new(limits.pulls, limits.pull_bytes_outstanding),
            data_paths: DataPaths::new(data_path),
        }
    }

    /// Whether no pull runs or waits.
    pub(in crate::engine) fn is_idle(&self) -> bool {
        self.pulls.used == 0 && self.waiting.is_empty()
    }

    /// Whether any pull may have something to ask for.
    #[inline]
    pub(in crate::engine) fn may_ask(&self) -> bool {
        self.pulls.may_ask()
    }

    /// Whether data was asked for that comes on the bulk path ([`DataPath::Bulk`]) and has not come yet.
    #[inline]
    pub(in crate::engine) const fn awaits_bulk_data(&self) -> bool {
        self.pulls.bulk > 0
    }

    /// Returns when something is due; [`Time::MAX`] if nothing is.
    #[inline]
    pub(in crate::engine) fn poll_timeout(&self) -> Time {
        self.pulls.timers.next()
    }

    /// Returns the memory in use, in bytes.
    pub(in crate::engine) fn memory(&self) -> usize {
        self.announced.memory() + self.waiting.capacity() * size_of::<LargeId>() + self.pulls.memory()
    }

    /// Remembers an announcement; `None` at the limit.
    pub(in crate::engine) fn announce(&mut self, large: Large) -> Option<LargeId> {
        let slot = self.announced.insert(large)?;
        Some(LargeId {
            slot,
            generation: self.announced.generation(slot),
        })
    }

    /// Forgets an announcement that the host refused.
    pub(in crate::engine) fn forget(&mut self, large: LargeId) {
        self.announced.remove(large.slot);
    }

    /// The first `length` bytes of an announced message are wanted under this name. True: [`TransferReceiver::poll_begin`] follows;
    /// false: nothing is to be transferred, and the message is to be declined.
    pub(in crate::engine) fn pull(&mut self, large: LargeId, receive: Token, length: u32) -> Result<bool, SendError> {
        if !self.announced.is_current(large.slot, large.generation) {
            return Err(SendError::Gone);
        }
        let announced = self.announced.get_mut(large.slot).ok_or(SendError::Gone)?;
        if announced.waiting.is_some() {
            return Err(SendError::Gone);
        }
        let length = length.min(announced.msg_length);
        if length == 0 {
            return Ok(false);
        }
        announced.waiting = Some((receive, length));
        self.waiting.push_back(large);
        Ok(true)
    }

    /// Declines an announced message.
    pub(in crate::engine) fn decline(&mut self, large: LargeId) -> Result<Large, SendError> {
        if !self.announced.is_current(large.slot, large.generation) {
            return Err(SendError::Gone);
        }
        self.announced.remove(large.slot).ok_or(SendError::Gone)
    }

    /// The partner is lost: takes out something that it announced and that was wanted, from slot `from` on. Nothing of it can be had
    /// any more.
    pub(in crate::engine) fn pop_announced_by(&mut self, partner: u32, from: &mut u32) -> Option<Event> {
        while let Some(slot) = self.announced.next_used(*from) {
            *from = slot + 1;
            if self.announced.get(slot).is_none_or(|large| large.partner != partner) {
                continue;
            }
            if let Some((receive, _)) = self.announced.remove(slot).and_then(|large| large.waiting) {
                return Some(Event::Received {
                    receive,
                    status: Status::Unreachable,
                    transferred: 0,
                });
            }
        }
        None
    }

    /// Takes the next wanted message for which there is a slot. [`TransferReceiver::begin`] follows.
    pub(in crate::engine) fn poll_begin(&mut self) -> Option<Large> {
        while self.pulls.used < self.pulls.limit {
            let id = self.waiting.pop_front()?;
            if self.announced.is_current(id.slot, id.generation)
                && let Some(large) = self.announced.remove(id.slot)
                && large.waiting.is_some()
            {
                return Some(large);
            }
        }
        None
    }

    /// Begins to pull.
    pub(in crate::engine) fn begin(&mut self, now: Time, large: Large, begin: Begin) {
        let Some((token, length)) = large.waiting else { return };
        let pull = Pull {
            large,
            session: begin.session,
            token,
            length,
            window: PullWindow::new(length, large.rdma_offset.into(), begin.payload),
            started: now,
            active_at: now,
            backoff: 0,
            in_requests: false,
            is_blocked: false,
            probed: false,
            sample: None,
            give_up_ns: large.give_up_ns.unwrap_or(begin.give_up_ns),
            begun_alone: None,
        };
        let path = self.data_paths.choose(token, length, self.pulls.used == 0);
        if let Some(at) = self.pulls.insert(path, pull) {
            self.pulls.queue(at);
        }
    }

    /// Returns the next block to be asked for. [`TransferReceiver::ask`] follows.
    pub(in crate::engine) fn poll_ask(&mut self, sizes: &Sizes) -> Option<Ask> {
        let block_frames = sizes.block_frames();
        for blocked in [false, true] {
            loop {
                let queue = if blocked {
                    &self.pulls.blocked
                } else {
                    &self.pulls.requests
                };
                let Some((at, generation)) = queue.front().copied() else {
                    break;
                };
                let (outstanding, max) = (self.pulls.outstanding, self.pulls.outstanding_allowed);
                let next = match self.pulls.get(at, generation) {
                    Some(pull) => next_of(pull, block_frames, outstanding, max),
                    None => Next::Nothing,
                };
                if blocked && matches!(next, Next::Blocked) {
                    break;
                }
                let queue = if blocked {
                    &mut self.pulls.blocked
                } else {
                    &mut self.pulls.requests
                };
                queue.pop_front();
                let Some(pull) = self.pulls.get(at, generation) else {
                    continue;
                };
                *(if blocked {
                    &mut pull.is_blocked
                } else {
                    &mut pull.in_requests
                }) = false;
                match next {
                    Next::Nothing => {}
                    Next::Blocked => self.pulls.block(at),
                    Next::Ask { first, count, again } => {
                        let partner = pull.large.partner;
                        // The pull goes to the end of the queue: pulls take turns.
                        self.pulls.queue(at);
                        return Some(Ask {
                            partner,
                            at,
                            first,
                            count,
                            again,
                        });
                    }
                }
            }
        }
        None
    }

    /// Makes the packet that asks for a block.
    pub(in crate::engine) fn ask(
        &mut self,
        now: Time,
        ask: Ask,
        ends: Ends,
        path: &TransferPath,
        (timing, short_acks): (&Timing, bool),
    ) -> Option<PullPacket> {
        let Ask {
            at,
            first,
            count,
            again,
            ..
        } = ask;
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
        let packet = PullPacket {
            dst_endpoint: ends.partner,
            src_endpoint: ends.own,
            session: pull.session,
            total_length: pull.length,
            rdma_id: pull.large.rdma_id.into(),
            rdma_seqnum: pull.large.rdma_seqnum,
            rdma_offset: pull.large.rdma_offset.into(),
            handle,
            magic: pull_magic(ends.own),
            first_frame_offset: pull.window.first_frame_offset(first),
            block_length,
            frame_index: first,
        };
        let rto = path.rto_ns(timing, short_acks, pull.backoff);
        let probe = path.probe_ns().filter(|_| !pull.probed && pull.backoff == 0);
        let wait = probe.map_or(rto, |probe| rto.min(probe));
        self.pulls.timers.at_latest(at.into(), now.plus_nanos(wait));
        Some(packet)
    }

    /// Finds the pull that a handle names, and its partner.
    pub(in crate::engine) fn find(&self, handle: u32) -> Option<(u16, u32)> {
        let (at, pull) = self.pulls.by_handle(handle)?;
        Some((at, pull.large.partner))
    }

    /// A reply to the pull in this slot came in: checks it in the order of 6.3. Where its data are to be delivered, and the pull if it
    /// is complete with it: then [`TransferReceiver::end`] follows.
    pub(in crate::engine) fn handle_reply(
        &mut self,
        at: u16,
        reply: &PullReply<'_>,
        with: Transfer<'_>,
    ) -> Option<Taken> {
        let Transfer {
            now,
            path,
            short_acks,
            timing,
            sizes,
            counters,
        } = with;
        let pull = self.pulls.slots[usize::from(at)].pull.as_mut()?;
        let block_frames = sizes.block_frames();
        let len = reply.data.len() as u32;
        let came = Reply {
            frame_seqnum: reply.frame_seqnum,
            msg_offset: reply.msg_offset,
            len,
            now_ns: now.as_nanos(),
        };
        let longest_ns = path.rto_ns(timing, short_acks, 0);
        let after_silence = pull.probed || pull.backoff > 0;
        let expected = path.late_or_lost(longest_ns, after_silence);
        let taken = match pull.window.arrive(came, expected, block_frames) {
            Ok(taken) => taken,
            Err(refused) => {
                count_refused(refused, path, counters);
                return None;
            }
        };
        path.overtaken(taken.overtaken_by);
        if let Some(late_ns) = taken.late_ns {
            // Whichever of the requests it answers, its round trip was not shorter.
            path.sample(late_ns);
        }
        let waited = sample(pull, now, taken.ordinal, path);
        pull.active_at = now;
        pull.backoff = 0;
        pull.probed = false;
        let (token, length) = (pull.token, pull.length);
        let is_complete = pull.window.is_complete();
        if !is_complete && pull.window.has_gap() {
            self.pulls.timers.at_latest(at.into(), now.plus_nanos(path.gap_ns()));
        }
        let more = pull.window.wants() || pull.window.next_block(block_frames).is_some();
        self.pulls.outstanding -= len;
        if let Some((rtt_ns, queue_ns)) = waited {
            self.pulls
                .adapt_window(now, rtt_ns, queue_ns, timing.pull_queue_ns_max, sizes.reply_payload());
        }
        if taken.done_early {
            counters.count(Counter::PullNonfirstBlockDoneEarly);
        }
        if !is_complete {
            counters.add_to(Counter::PullRequestNotonlyfirstBlocks, taken.lost);
            if more {
                self.pulls.queue(at);
            }
        }
        Some(Taken {
            receive: token,
            complete: is_complete.then_some(length),
        })
    }

    /// Ends the pull in this slot.
    pub(in crate::engine) fn end(&mut self, now: Time, at: u16, status: Status, transferred: u32) -> Option<Over> {
        let pull = self.pulls.remove(at)?;
        let alone = status == Status::Success && pull.begun_alone == Some(self.pulls.begun);
        let took_ns = now.nanos_since(pull.started);
        self.data_paths
            .over(pull.token, DataPath::of_slot(at), (pull.length, took_ns), alone);
        Some(Over {
            large: pull.large,
            event: Event::Received {
                receive: pull.token,
                status,
                transferred,
            },
            transferred,
        })
    }

    /// Takes the next pull for which something is due at `now`, and its partner. [`TransferReceiver::handle_timeout`]
    /// follows.
    pub(in crate::engine) fn poll_due(&mut self, now: Time) -> Option<(u16, u32)> {
        loop {
            let at = self.pulls.timers.pop_due(now)? as u16;
            let slot = self.pulls.slots.get(usize::from(at));
            if let Some(pull) = slot.and_then(|slot| slot.pull.as_ref()) {
                return Some((at, pull.large.partner));
            }
        }
    }

    /// Nothing was heard of a pull for a time-out: its oldest missing frames are asked for again, or the pull is given up. One
    /// first, for its reply tells whether the others are lost too, and if they only wait in a long queue, asking for all would
    /// make it longer; more when that is lost itself. True: it is given up, and [`TransferReceiver::end`] follows.
    pub(in crate::engine) fn handle_timeout(&mut self, at: u16, with: Transfer<'_>) -> bool {
        let Transfer {
            now,
            path,
            short_acks,
            timing,
            sizes,
            counters,
        } = with;
        let Some(pull) = self.pulls.slots[usize::from(at)].pull.as_mut() else {
            return false;
        };
        if !pull.window.is_outstanding() {
            return false;
        }
        let due = pull.active_at.plus_nanos(path.rto_ns(timing, short_acks, pull.backoff));
        let end = pull.started.plus_nanos(pull.give_up_ns);
        // Replies that come, though late, keep it going.
        let is_silent = pull.backoff > 0;
        if now < due && !(is_silent && end <= now) {
            let due = self.detect_loss(at, due, now, path, counters);
            let due = if is_silent { due.min(end) } else { due };
            self.pulls.timers.at_latest(at.into(), due);
            return false;
        }
        if end <= now {
            counters.count(Counter::PullTimeoutAbort);
            return true;
        }
        let (oldest, younger) = pull.window.missing_blocks(sizes.block_frames());
        if oldest {
            counters.count(Counter::PullTimeoutHandlerFirstBlock);
        }
        if younger {
            counters.count(Counter::PullTimeoutHandlerNonfirstBlock);
        }
        pull.window.want_oldest(1 << (2 * pull.backoff).min(8));
        pull.backoff = (pull.backoff + 1).min(16);
        pull.active_at = now;
        pull.sample = None;
        let again = now.plus_nanos(path.rto_ns(timing, short_acks, pull.backoff)).min(end);
        self.pulls.timers.at_latest(at.into(), again);
        self.pulls.queue(at);
        false
    }

    /// Before a pull's time-out `due`: asks again for what is surely lost, or for its oldest missing frame after some
    /// silence. Returns when to check next.
    fn detect_loss(&mut self, at: u16, due: Time, now: Time, path: &TransferPath, counters: &mut Counters) -> Time {
        let Some(pull) = self.pulls.slots[usize::from(at)].pull.as_mut() else {
            return due;
        };
        let gap = pull.window.has_gap().then(|| path.gap_ns());
        let probe = path.probe_ns().filter(|_| !pull.probed && pull.backoff == 0);
        let gap_due = gap.map_or(Time::MAX, |ns| pull.active_at.plus_nanos(ns));
        let probe_due = probe.map_or(Time::MAX, |ns| pull.active_at.plus_nanos(ns));
        if gap_due <= now {
            let lost = pull.window.close_gaps();
            counters.add_to(Counter::PullRequestNotonlyfirstBlocks, lost);
            self.pulls.queue(at);
        } else if probe_due <= now {
            pull.probed = true;
            pull.window.want_oldest(1);
            counters.count(Counter::PullProbes);
            self.pulls.queue(at);
        } else {
            return due.min(gap_due).min(probe_due);
        }
        due
    }

    /// Limits the transfer under this name to this time. False if there is none.
    pub(in crate::engine) fn set_give_up(&mut self, receive: Token, give_up_ns: u64) -> bool {
        for (at, slot) in (0..).zip(&mut self.pulls.slots) {
            if let Some(pull) = slot.pull.as_mut().filter(|pull| pull.token == receive) {
                pull.give_up_ns = give_up_ns;
                let due = pull.started.plus_nanos(give_up_ns);
                self.pulls.timers.at_latest(at, due);
                return true;
            }
        }
        let announced = &mut self.announced;
        let current = |id: &&LargeId| announced.is_current(id.slot, id.generation);
        let ids = self.waiting.iter().filter(current).map(|id| id.slot);
        let found = ids.clone().find(|slot| {
            let waiting = announced.get(*slot).and_then(|large| large.waiting);
            waiting.is_some_and(|(token, _)| token == receive)
        });
        let Some(large) = found.and_then(|slot| self.announced.get_mut(slot)) else {
            return false;
        };
        large.give_up_ns = Some(give_up_ns);
        true
    }
}

/// A reply that was taken.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Taken {
    /// The name under which the data is delivered.
    pub receive: Token,
    /// The bytes of the message, if it is complete now.
    pub complete: Option<u32>,
}

/// Counts a dropped reply, which may say something about the path.
fn count_refused(refused: Refused, path: &mut TransferPath, counters: &mut Counters) {
    let (counter, spurious) = match refused {
        Refused::Wraparound { spurious } => (Counter::DropPullReplyBadSeqnumWraparound, spurious),
        Refused::BadSeqnum => (Counter::DropPullReplyBadSeqnum, None),
        Refused::Duplicate { spurious } => (Counter::DropPullReplyDuplicate, spurious),
    };
    counters.count(counter);
    if let Some(after_ns) = spurious {
        counters.count(Counter::PullSpurious);
        path.spurious(after_ns);
    }
}

/// Takes a sample of the round trip if this reply is the one for it: how long it was, and how long of that it waited in queues, in
/// nanoseconds.
fn sample(pull: &mut Pull, now: Time, ordinal: Option<u16>, path: &mut TransferPath) -> Option<(u64, u64)> {
    let (sampled, sent) = pull.sample?;
    let passed = ordinal?.wrapping_sub(sampled) as i16;
    if passed >= 0 {
        pull.sample = None;
    }
    if passed != 0 {
        return None;
    }
    let rtt_ns = now.nanos_since(sent);
    path.sample(rtt_ns);
    Some((rtt_ns, rtt_ns.saturating_sub(path.min_ns().into())))
}
