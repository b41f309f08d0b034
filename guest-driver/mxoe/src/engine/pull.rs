//! The receiving side of large messages: asking for blocks, taking replies, asking again, giving up (6.2 – 6.4).

use ether::Time;

use super::{
    Counter, DataPath, Engine, Event, Host, Peers, Status,
    pull_window::{PullWindow, Refused, Reply},
    pulls::{Next, Pull, next_of},
};
use crate::wire::{Head, NackMcp, Pull as PullPacket, PullReply, endpoint_of_pull_magic, pull_magic};

/// Reordering that is waited for at most, in frames: beyond it, asking again costs less than waiting.
const REORDERING_MAX: u16 = 24;
/// What a frame that was asked for needlessly adds to the reordering that is waited for.
const REORDERING_STEP: u16 = 2;

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
                give_up_ns: large.give_up_ns.unwrap_or(self.give_up_ns),
                begun_alone: None,
            };
            let path = self.data_paths.choose(token, length, self.pulls.used == 0);
            if let Some(at) = self.pulls.insert(path, pull) {
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
                let (outstanding, max) = (self.pulls.outstanding, self.pulls.outstanding_allowed);
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
        let mut waited = None;
        if let (Some(ordinal), Some((sampled, sent))) = (taken.ordinal, pull.sample) {
            let passed = ordinal.wrapping_sub(sampled) as i16;
            if passed == 0 {
                let rtt_ns = now.nanos_since(sent);
                partner.path.sample(rtt_ns);
                waited = Some((rtt_ns, rtt_ns.saturating_sub(partner.path.min_ns().into())));
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
        if let Some((rtt_ns, queue_ns)) = waited {
            let payload = self.dialect.sizes().reply_payload();
            self.pulls
                .pace(now, rtt_ns, queue_ns, self.config.timing.pull_queue_ns_max, payload);
        }
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
        let alone = status == Status::Success && pull.begun_alone == Some(self.pulls.begun);
        let took_ns = now.nanos_since(pull.started);
        self.data_paths
            .over(pull.token, DataPath::of_slot(at), (pull.length, took_ns), alone);
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
        let end = pull.started.plus_nanos(pull.give_up_ns);
        // Replies that come, though late, keep it going.
        let is_silent = pull.backoff > 0;
        if now < due && !(is_silent && end <= now) {
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
            if is_silent {
                due = due.min(end);
            }
            self.pulls.timers.at_latest(at.into(), due);
            return;
        }
        if end <= now {
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
        let again = now.plus_nanos(rto_of(pull.backoff)).min(end);
        self.pulls.timers.at_latest(at.into(), again);
        self.pulls.queue(at);
    }
}
