//! One transmit ring of a card: batches of chains are taken from it, and completed in order.
//!
//! Where the frames go is decided elsewhere.

use std::collections::VecDeque;

use ether::Time;
use vhost_user_backend::VringT;

use super::lifecycle::signal;
use super::transmit_batch::TransmitBatch;
use crate::dataplane::frames::transit::Transit;
use crate::memory::MemoryMap;
use crate::ring::{Halt, SplitRing};
use crate::session::SessionVring;

/// A transmit ring and what the card keeps for it.
#[derive(Default)]
pub struct TransmitRing {
    /// The ring while it is started.
    ring: Option<SplitRing>,
    /// The frontend's ring object, for its call eventfd.
    vring: Option<SessionVring>,
    /// Whether the frontend enabled the ring.
    enabled: bool,
    /// Bytes of the header before each frame; without num_buffers for a legacy driver.
    header_len: usize,
    /// The driver is not asked to kick, whatever waits: this process ends.
    is_quiet: bool,
    /// The first entry of a quiet ring that its driver does not kick for.
    quiet_from: u16,
    /// Used entries were written since the last publication.
    completed: bool,
    /// What the head frame waits for, since a decision that must not be taken twice.
    blocked: Option<Blocked>,
    /// A translation is missing for the head frame, and was asked for.
    awaits_translation: bool,
    /// Chains whose frames have not left the card yet, oldest first, and when they have: a cable takes its time to send them.
    in_flight: VecDeque<(u16, Time)>,
}

/// What the head frame of a transmit ring waits for: it was switched already, but its receiver had no buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The card that has no buffer.
    pub card: usize,
    /// Its receive queue.
    pub queue: usize,
    /// Until when the frame may wait, whatever becomes of its receiver.
    pub until: Time,
}

impl Blocked {
    /// The transit data of a frame that may have been `blocked`: one that has waited long enough waits no longer.
    pub fn transit_of(blocked: Option<&Self>, transit: Transit, now: Time) -> Transit {
        match blocked {
            Some(blocked) if now >= blocked.until => transit.without_waiting(),
            _ => transit,
        }
    }
}

impl TransmitRing {
    /// Installs a started ring, which is enabled from now on if it is `enabled` or was before. Its driver puts a header of `header_len`
    /// bytes before each frame.
    pub fn start(&mut self, ring: SplitRing, vring: SessionVring, enabled: bool, header_len: usize) {
        self.header_len = header_len;
        // What an earlier ring left behind means nothing to this one.
        self.forget();
        self.in_flight.reserve(usize::from(ring.size()));
        self.ring = Some(ring);
        self.vring = Some(vring);
        self.enabled |= enabled;
        self.set_quiet(self.is_quiet);
    }

    /// The frontend enabled or disabled the ring.
    pub fn enable(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// The ring goes on in another memory table.
    ///
    /// # Errors
    /// Why it has no place there; it stays where it is.
    pub fn move_to(&mut self, map: &MemoryMap) -> Result<(), Halt> {
        self.awaits_translation = false;
        self.ring.as_mut().map_or(Ok(()), |ring| ring.move_to(map))
    }

    /// A translation is missing for the head frame: it is not tried before something has changed.
    pub fn await_translation(&mut self) {
        self.awaits_translation = true;
    }

    /// The driver is to leave its frames in the ring without a kick, or (not `quiet`) to kick again as soon as the data plane asks
    /// for it. QEMU throws the frames in a ring away at a kick that no process takes, so a driver is not to kick while none is there, and
    /// the entries that it may kick for yet are still taken.
    pub fn set_quiet(&mut self, quiet: bool) {
        self.is_quiet = quiet;
        if quiet && let Some(ring) = &mut self.ring {
            // A ring that breaks a rule is not emptied.
            let kicked_for = ring.refuse_kicks().unwrap_or(0);
            self.quiet_from = ring.next_avail().wrapping_add(kicked_for);
        }
    }

    /// Takes nothing more from a quiet ring.
    pub fn leave_the_rest(&mut self) {
        if let Some(ring) = &self.ring {
            self.quiet_from = ring.next_avail();
        }
    }

    /// Entries of a quiet ring that the driver may kick for yet: these are still to be taken.
    pub fn kicked_for(&self) -> u16 {
        match &self.ring {
            Some(ring) if self.is_quiet && self.enabled => self.quiet_from.wrapping_sub(ring.next_avail()),
            _ => 0,
        }
    }

    /// Takes the kicks that are there, for nothing.
    pub fn take_kicks(&self) {
        if let Some(vring) = &self.vring
            && let Err(error) = vring.read_kick()
        {
            tracing::debug!(%error, "kick eventfd not read");
        }
    }

    /// Whether a translation is missing for the head frame.
    #[inline]
    pub fn awaits_translation(&self) -> bool {
        self.awaits_translation
    }

    /// Translations have changed: what waited for one is done. True if the driver is to be told of it.
    pub fn translations_changed(&mut self) -> bool {
        self.awaits_translation = false;
        let told = self.ring.as_mut().is_some_and(SplitRing::catch_up);
        if told && let Some(vring) = &self.vring {
            signal(vring);
        }
        told
    }

    /// Stops the ring: every taken chain comes back, also those whose frames are still in flight. Returns the next
    /// available index.
    pub fn stop(&mut self) -> Option<u16> {
        self.vring = None;
        let mut ring = self.ring.take()?;
        for (head, _) in self.in_flight.drain(..) {
            ring.push_used(head, 0);
        }
        self.forget();
        ring.publish();
        Some(ring.next_avail())
    }

    /// Gives back what was taken and neither handed over nor finished, because the batch it was in is gone.
    pub fn give_back_unfinished(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.untake(ring.taken_unused().saturating_sub(self.in_flight.len() as u16));
        }
    }

    fn forget(&mut self) {
        self.in_flight.clear();
        self.blocked = None;
        self.completed = false;
        self.awaits_translation = false;
    }

    /// True if frames can be taken from here.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.ring.is_some() && self.enabled
    }

    /// Whether the ring is started.
    #[inline]
    pub fn is_started(&self) -> bool {
        self.ring.is_some()
    }

    /// What the head frame waits for.
    #[inline]
    pub fn blocked(&self) -> Option<&Blocked> {
        self.blocked.as_ref()
    }

    /// The head frame is tried again: what it waited for.
    #[inline]
    pub fn take_blocked(&mut self) -> Option<Blocked> {
        self.blocked.take()
    }

    /// The head frame waits for a receiver.
    pub fn block(&mut self, blocked: Blocked) {
        self.blocked = Some(blocked);
    }

    /// The head frame, which is blocked, waits no longer than until `until`.
    pub fn limit_blocked(&mut self, until: Time) {
        if let Some(blocked) = &mut self.blocked {
            blocked.until = until;
        }
    }

    /// Takes a batch of at most `limit` frames from the ring, if it is started: why a chain could not be taken, which ends the batch
    /// before it.
    #[inline]
    pub fn take_batch(&mut self, map: &MemoryMap, batch: &mut TransmitBatch, limit: u16) -> Option<Result<(), Halt>> {
        let limit = if self.is_quiet {
            limit.min(self.kicked_for())
        } else {
            limit
        };
        let ring = self.ring.as_mut()?;
        ring.kicks_off();
        batch.clear();
        // Most rings are empty most of the time.
        Some(match ring.refresh() {
            Ok(0) => Ok(()),
            Ok(available) => batch.fill(ring, map, available.min(limit), self.header_len),
            Err(halt) => Err(halt),
        })
    }

    /// Returns the last `entries` available entries that were taken: they are read anew.
    pub fn give_back(&mut self, entries: u16) {
        if let Some(ring) = &mut self.ring {
            ring.untake(entries);
        }
    }

    /// Asks the driver to kick when it queues frames. Returns how many are there already.
    ///
    /// # Errors
    /// The rule that the ring breaks.
    pub fn ask_for_kicks(&mut self) -> Result<u16, Halt> {
        match &mut self.ring {
            Some(ring) if self.enabled && !self.is_quiet => ring.kicks_on(),
            _ => Ok(0),
        }
    }

    /// False only if nothing was completed and no frame is about to leave the card.
    #[inline(always)]
    pub fn may_publish(&self) -> bool {
        self.completed || !self.in_flight.is_empty()
    }

    /// Publishes what was completed and signals the driver if it wants that: whether it did; `None` if nothing was completed.
    #[inline]
    pub fn publish_completed(&mut self, now: Time) -> Option<bool> {
        self.complete_left(now);
        if !self.completed {
            return None;
        }
        self.completed = false;
        let ring = self.ring.as_mut()?;
        ring.publish();
        let wanted = ring.driver_wants_notification();
        if wanted && let Some(vring) = &self.vring {
            signal(vring);
        }
        Some(wanted)
    }

    /// When the oldest frame that has not left the card will have.
    #[inline]
    pub fn next_left(&self) -> Option<Time> {
        self.in_flight.front().map(|(_, left_at)| *left_at)
    }

    /// The frame of the chain at `head` was taken, and has left the card at `left_at`.
    #[inline(always)]
    pub fn finish(&mut self, head: u16, left_at: Time, now: Time) {
        let Some(ring) = &mut self.ring else {
            // The card failed while its batch was in work: there is no ring to give the chain back to.
            return;
        };
        if left_at <= now && self.in_flight.is_empty() {
            ring.push_used(head, 0);
            self.completed = true;
            return;
        }
        self.in_flight.push_back((head, left_at));
    }

    /// The frames of the chains at `heads` were taken, and have left the card.
    #[inline]
    pub fn finish_each(&mut self, heads: impl Iterator<Item = u16>, now: Time) {
        let Some(ring) = &mut self.ring else {
            return;
        };
        if self.in_flight.is_empty() {
            ring.push_used_each(heads.map(|head| (head, 0)));
            self.completed = true;
            return;
        }
        heads.for_each(|head| self.finish(head, now, now));
    }

    /// Gives back the chains whose frames have left the card by now, in order.
    #[inline]
    fn complete_left(&mut self, now: Time) {
        if !self.in_flight.is_empty() {
            self.complete_front(now);
        }
    }

    #[cold]
    fn complete_front(&mut self, now: Time) {
        let Some(ring) = &mut self.ring else { return };
        while let Some(&(head, left_at)) = self.in_flight.front()
            && left_at <= now
        {
            self.in_flight.pop_front();
            ring.push_used(head, 0);
            self.completed = true;
        }
    }
}
