//! The sending side of large messages: answering pulls, and the end of a message (6.2, 6.3, 6.5).

use ether::Time;

use super::{Counter, Engine, Peers, Status, connect::Control, region::ReplyBlock};
use crate::wire::{Head, NackCode, Notify, Pull, PullShapeError};

impl<P: Peers> Engine<P> {
    /// A PULL came in: checks it in the order of 6.2 and queues the block.
    pub(super) fn handle_pull(&mut self, now: Time, head: &Head, pull: &Pull) {
        self.counters.count(Counter::RecvPullReq);
        if self.peers.mac(head.peer_index) != Some(head.src) {
            self.counters.count(Counter::DropBadPeerIndex);
            return;
        }
        if pull.dst_endpoint != self.config.endpoint {
            self.counters.count(Counter::DropBadEndpoint);
            return;
        }
        let puller = self.find_partner(head.src, pull.src_endpoint);
        if pull.session != self.config.session && !self.may_leave_out(pull.session, puller) {
            self.counters.count(Counter::DropBadSession);
            self.nack_pull(head, pull, NackCode::BadSession);
            return;
        }
        let shape = pull.frames(self.dialect.sizes());
        if shape == Err(PullShapeError::BadReplies) {
            self.counters.count(Counter::DropPullBadReplies);
            return;
        }
        let region = self.regions.get_mut(pull.rdma_id);
        let region = region.filter(|region| region.use_counter == pull.rdma_seqnum && Some(region.partner) == puller);
        let Some(region) = region else {
            self.counters.count(Counter::DropPullBadRegion);
            self.nack_pull(head, pull, NackCode::BadRdmaWindow);
            return;
        };
        let offset = block_offset(pull, self.dialect.sizes().reply_payload(), region.length);
        let (Ok(_), Some(msg_offset)) = (shape, offset) else {
            self.counters.count(Counter::DropPullBadOffsetLength);
            return;
        };
        region.active_at = now;
        let use_counter = region.use_counter;
        if self.regions.is_waiting(head.src, pull, msg_offset) {
            // A puller that asks again while we were too slow to answer: the first answer is still to be sent.
            self.counters.count(Counter::DropPullRepeated);
            return;
        }
        if self.regions.blocks.len() >= self.config.limits.reply_blocks as usize {
            self.counters.count(Counter::DropReplyBlocksFull);
            return;
        }
        let marks = puller.is_some_and(|slot| self.partners[slot as usize].marks);
        self.regions.blocks.push_back(ReplyBlock {
            // It names a region, so it has eight bits.
            region: pull.rdma_id as u8,
            use_counter,
            mac: head.src,
            peer: head.peer_index,
            marks,
            handle: pull.handle,
            magic: pull.magic,
            frame_seqnum: pull.frame_index as u8,
            room: self.dialect.sizes().reply_payload() - pull.first_frame_offset,
            msg_offset,
            rdma_offset: pull.rdma_offset,
            remaining: pull.block_length,
        });
    }

    fn nack_pull(&mut self, head: &Head, pull: &Pull, code: NackCode) {
        self.queue_control(Control::NackMcp {
            mac: head.src,
            peer: head.peer_index,
            src_endpoint: pull.src_endpoint,
            code,
            handle: pull.handle,
            magic: pull.magic,
        });
    }

    /// The partner says that a large message is over; its sequence number has been consumed.
    pub(super) fn handle_notify(&mut self, now: Time, slot: u32, notify: &Notify) {
        let region = self.regions.get_mut(notify.rdma_id.into());
        let region = region.filter(|region| region.use_counter == notify.rdma_seqnum && region.partner == slot);
        let Some(region) = region else {
            self.counters.count(Counter::DropStrayNotify);
            return;
        };
        region.notified = Some(notify.total_length.min(region.length));
        region.active_at = now;
        if region.acknowledged {
            self.end_large(notify.rdma_id);
        }
    }

    /// The announcement of a large message was acknowledged: it has left the list of unacknowledged messages.
    pub(super) fn region_acknowledged(&mut self, now: Time, number: u8) {
        let Some(region) = self.regions.get_mut(number.into()) else {
            return;
        };
        region.acknowledged = true;
        // It may have been asked for since the acknowledgement came.
        region.active_at = region.active_at.max(now);
        if region.notified.is_some() {
            self.end_large(number);
        } else {
            let due = now.plus_nanos(region.give_up_ns);
            self.regions.timers.at_latest(number.into(), due);
        }
    }

    fn end_large(&mut self, number: u8) {
        let Some(region) = self.regions.get(number.into()) else {
            return;
        };
        let (message, length, transferred) = (region.message, region.length, region.notified.unwrap_or(0));
        let status = if transferred < length {
            Status::Truncated
        } else {
            Status::Success
        };
        self.free_region(number);
        self.end_message(message, status, transferred);
    }

    /// Neither a pull nor the end was seen for long: this message ends; the partner may be alive and never post a receive.
    pub(super) fn region_timeout(&mut self, now: Time, number: u32) {
        let Some(region) = self.regions.get(number) else { return };
        let due = region.active_at.plus_nanos(region.give_up_ns);
        if now < due {
            self.regions.timers.at_latest(number, due);
            return;
        }
        let message = region.message;
        self.free_region(number as u8);
        self.end_message(message, Status::Timeout, 0);
    }

    /// Gives a region back and lets those go on that wait for one.
    pub(super) fn free_region(&mut self, number: u8) {
        self.regions.release(number);
        // One of them may not need it any more.
        while !self.regions.is_full() {
            let Some(waiter) = self.regions.next_waiter() else {
                return;
            };
            self.partners[waiter as usize].waits_for_region = false;
            self.pump(waiter);
        }
    }

    /// Ends every large message to a partner that was acknowledged; the others stand in its lists.
    pub(super) fn end_regions_of(&mut self, slot: u32) {
        while let Some(number) = self.regions.of_partner(slot) {
            let message = self.regions.get(number.into()).map(|region| region.message);
            self.free_region(number);
            if let Some(message) = message {
                self.end_message(message, Status::Unreachable, 0);
            }
        }
    }
}

/// Position in the message of the first byte asked for; `None` if any of them is outside the region (6.3).
fn block_offset(pull: &Pull, payload: u32, region_length: u32) -> Option<u32> {
    let skipped = i64::from(pull.rdma_offset % payload);
    let msg_offset = i64::from(pull.frame_index) * i64::from(payload) - skipped + i64::from(pull.first_frame_offset);
    let end = msg_offset.checked_add(i64::from(pull.rdma_offset))? + i64::from(pull.block_length);
    if end > i64::from(region_length) {
        return None;
    }
    u32::try_from(msg_offset).ok()
}
