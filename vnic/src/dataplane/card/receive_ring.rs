//! One receive ring of a card: buffers are read ahead, frames copied in, and packets published as the firmware completes them.
//!
//! Which frame comes here and when an interrupt is due is decided elsewhere.

use crate::session::SessionVring;
use ether::Time;
use firmware::{HostRecord, HostRecordPlace, HostState, INLINE_HEADER_LEN, Reason};

use super::buffer_writes::{write_frame, write_plain, write_scattered};
use super::driver_progress::DriverProgress;
use super::fifo::Fifo;
use super::lifecycle::signal;
use super::transmit_batch::CompactFrame;
use crate::dataplane::frames::frame_ref::FrameRef;
use crate::memory::{CACHE_LINE, MemoryMap, Piece, prefetch_for_write};
use crate::offload::NET_HEADER_LEN;
use crate::ring::{Direction, DriverWords, FRAME_PIECES_MAX, Halt, Rule, SplitRing};

/// Receive buffers that are read ahead: as many as a batch has frames.
const READ_AHEAD: usize = 64;

/// Receive buffers that were read ahead and packets that are not published, together, a power of two: what the pipeline takes, and as
/// many as one frame may need. What a larger ring has beyond that stays in the ring.
const IN_HAND_MAX: usize = firmware::PENDING_MAX;

/// Pieces of chains that are read in one go while reading ahead; the rest is read the next time.
const READ_AHEAD_PIECES: usize = 512;

/// Why a frame was not put into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The ring is not started, or not enabled.
    NotReady,
    /// The driver posted no (or not enough) buffers.
    NoBuffer,
    /// Without mergeable buffers, the next buffer is too short for the frame.
    BufferTooSmall,
    /// The driver broke a rule.
    Rule(Rule),
}

/// Whether the next receive buffer is the one that a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// It is the next one.
    Next,
    /// It was used before: the frame comes a second time.
    Past,
    /// Others are before it, whose frames were lost, or there is no ring.
    Missing,
}

/// A chain that was read ahead.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    /// The only piece of the chain.
    ptr: *mut u8,
    /// Its length; 0 if the chain must be walked.
    len: u32,
    head: u16,
}

// SAFETY: an address and a length, as a `Piece` is.
unsafe impl Send for Buffer {}

impl Buffer {
    /// A chain that must be walked.
    const fn chain(head: u16) -> Self {
        Self {
            ptr: std::ptr::null_mut(),
            len: 0,
            head,
        }
    }

    /// The only piece of the chain, or `None` if the chain must be walked.
    fn piece(self) -> Option<Piece> {
        (self.len != 0).then_some(Piece {
            ptr: self.ptr,
            len: self.len,
        })
    }
}

/// What is missing of the buffers that a frame needs.
#[derive(Clone, Copy, Debug, Default)]
struct Shortage {
    /// Bytes of buffers.
    lacking: u64,
    /// The translation of the next buffer, which was asked for.
    awaits_translation: bool,
}

impl Shortage {
    /// Whether there is a buffer; one that cannot be looked at for want of a translation counts as not posted yet.
    #[inline]
    fn unless_available(&mut self, found: Result<bool, Halt>) -> Result<bool, Refused> {
        match found {
            Ok(is_there) => Ok(is_there),
            Err(Halt::Untranslated) => {
                self.awaits_translation = true;
                Ok(false)
            }
            Err(Halt::Broken(rule)) => Err(Refused::Rule(rule)),
        }
    }
}

/// How far a guest is with a ring.
#[derive(Default)]
struct GuestProgress {
    /// What the driver has processed, as far as the ring tells.
    progress: DriverProgress,
    /// Where the guest's library says how far it is, if it does.
    host_record: Option<HostRecordPlace>,
    /// The watchdog's last decision was by that record.
    is_exact: bool,
}

impl GuestProgress {
    /// Packets are published that end at the used indices `ends`.
    #[inline(never)]
    fn follow(&mut self, ends: impl Iterator<Item = u16>, ring: &SplitRing) {
        ends.for_each(|end| self.progress.publish(end, || ring.driver_words()));
    }

    /// Whether the driver asks for a call of the watchdog.
    #[cold]
    #[inline(never)]
    fn asks_for_call(&self, ring: &SplitRing) -> bool {
        let words = ring.driver_words();
        if self.is_exact {
            // The record's flag stands for used_event; a driver that never takes calls says so in its ring.
            words.event.is_some() || !words.no_interrupt
        } else {
            self.progress.asks_for_call(&words)
        }
    }
}

/// A receive ring and what the card keeps for it.
pub struct ReceiveRing {
    /// The ring while it is started.
    ring: Option<SplitRing>,
    /// The frontend's ring object, for its call eventfd.
    vring: Option<SessionVring>,
    /// Whether the frontend enabled the ring.
    enabled: bool,
    /// Frames that the batch in work delivered here, not yet in the card's counters, and their bytes.
    batch_counts: (u64, u64),
    /// Whether the queue is in the list of queues to announce.
    touched: bool,
    /// Since when frames find no buffer; cleared by the next delivery.
    stalled_since: Option<Time>,
    /// What the last frame that found too few buffers waits for.
    shortage: Shortage,
    /// Buffers read ahead. A frame that needs more than [`READ_AHEAD`] reads further, but never beyond the ring.
    ahead: Fifo<Buffer, IN_HAND_MAX>,
    /// For each packet that is not published: the used index behind its last entry.
    packet_ends: Fifo<u16, IN_HAND_MAX>,
    /// Bytes of the header before each frame; without num_buffers for a legacy driver.
    header_len: usize,
    /// How far the guest is, for the card's watchdog.
    guest: GuestProgress,
    // Scratch for frames that need several buffers or chains.
    chains: Vec<(u16, u32)>,
    pieces: Vec<Piece>,
    /// Frames that are delivered before one panics, in tests of what follows from that.
    #[cfg(test)]
    deliveries_until_panic: Option<u32>,
    /// Publishing packets panics, in tests of what follows from that.
    #[cfg(test)]
    panics_at_publication: bool,
}

impl Default for ReceiveRing {
    fn default() -> Self {
        Self {
            ring: None,
            vring: None,
            enabled: false,
            batch_counts: (0, 0),
            touched: false,
            stalled_since: None,
            shortage: Shortage::default(),
            ahead: Fifo::filled_with(Buffer::chain(0)),
            packet_ends: Fifo::filled_with(0),
            header_len: NET_HEADER_LEN,
            guest: GuestProgress::default(),
            chains: Vec::new(),
            pieces: Vec::new(),
            #[cfg(test)]
            deliveries_until_panic: None,
            #[cfg(test)]
            panics_at_publication: false,
        }
    }
}

impl ReceiveRing {
    /// Installs a started ring, which is enabled from now on if it is `enabled` or was before. Its driver wants a header of `header_len`
    /// bytes before each frame.
    pub fn start(&mut self, ring: SplitRing, vring: SessionVring, enabled: bool, header_len: usize) {
        let size = usize::from(ring.size()).min(FRAME_PIECES_MAX);
        self.header_len = header_len;
        self.shortage.awaits_translation = false;
        self.ahead.clear();
        self.packet_ends.clear();
        self.chains.reserve(size);
        self.pieces.reserve(size);
        self.guest.progress.watch(false, 0, || ring.driver_words());
        self.set_host_record(None);
        // A stall goes on until a frame is taken: starting a ring anew earns no waiting time.
        self.ring = Some(ring);
        self.vring = Some(vring);
        self.enabled |= enabled;
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
        self.shortage.awaits_translation = false;
        self.forget_read_ahead();
        self.ring.as_mut().map_or(Ok(()), |ring| ring.move_to(map))
    }

    /// Translations have changed: frames that found no buffer may find one, and buffers are read ahead so that what is missing of
    /// them is asked for before a frame needs it. True if the driver is to be told of used entries.
    pub fn translations_changed(&mut self, map: &MemoryMap) -> bool {
        self.shortage = Shortage::default();
        let told = self.ring.as_mut().is_some_and(SplitRing::catch_up);
        if told && let Some(vring) = &self.vring {
            signal(vring);
        }
        if self.is_ready() {
            // A broken rule is found again by the frame that needs a buffer.
            _ = self.has_buffer(map);
        }
        told
    }

    /// Stops the ring: what was delivered is published, buffers read ahead are given back. Returns the next available
    /// index.
    pub fn stop(&mut self) -> Option<u16> {
        self.vring = None;
        self.shortage.awaits_translation = false;
        self.set_host_record(None);
        self.forget_read_ahead();
        self.packet_ends.clear();
        let mut ring = self.ring.take()?;
        ring.publish();
        Some(ring.next_avail())
    }

    /// Gives buffers that were read ahead back to the ring, because their pointers are about to become invalid.
    pub fn forget_read_ahead(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.untake(self.ahead.len() as u16);
        }
        self.ahead.clear();
    }

    /// True if frames can be delivered here.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.ring.is_some() && self.enabled
    }

    /// Whether the ring is started.
    #[inline]
    pub fn is_started(&self) -> bool {
        self.ring.is_some()
    }

    /// The frontend's ring object.
    #[inline]
    pub fn vring(&self) -> Option<&SessionVring> {
        self.vring.as_ref()
    }

    /// Counts frames and bytes of a burst that was delivered here.
    #[inline]
    pub fn add_to_batch(&mut self, frames: u64, bytes: u64) {
        self.batch_counts.0 += frames;
        self.batch_counts.1 += bytes;
    }

    /// Frames and bytes that the batch in work delivered here.
    pub fn batch_counts(&self) -> (u64, u64) {
        self.batch_counts
    }

    /// Takes these counts: the card counts them from now on.
    #[inline]
    pub fn take_batch_counts(&mut self) -> (u64, u64) {
        std::mem::take(&mut self.batch_counts)
    }

    /// Notes that there is something to announce. True if that was not known yet.
    #[inline]
    pub fn touch(&mut self) -> bool {
        !std::mem::replace(&mut self.touched, true)
    }

    /// What there was to announce is being announced.
    #[inline]
    pub fn untouch(&mut self) {
        self.touched = false;
    }

    /// Since when frames find no buffer.
    #[inline]
    pub fn stalled_since(&self) -> Option<Time> {
        self.stalled_since
    }

    /// Whether a translation is missing for the next buffer, and was asked for.
    pub fn awaits_translation(&self) -> bool {
        self.shortage.awaits_translation
    }

    /// A frame found no buffer.
    pub fn begin_stall(&mut self, now: Time) {
        self.stalled_since = Some(now);
    }

    /// A frame was delivered: since when none could be.
    pub fn end_stall(&mut self) -> Option<Time> {
        self.stalled_since.take()
    }

    /// Whether no buffer may be read ahead before packets were published, which are in flight into host memory.
    pub fn is_in_flight(&self) -> bool {
        self.room() == 0
    }

    /// Buffers that may be read ahead beside those that are.
    fn room(&self) -> usize {
        IN_HAND_MAX - self.ahead.len() - self.packet_ends.len()
    }

    /// Reads buffers ahead if there are none; false if the driver posted none.
    #[inline]
    fn has_buffer(&mut self, map: &MemoryMap) -> Result<bool, Halt> {
        if self.ahead.is_empty() {
            self.read_ahead(map)?;
        }
        Ok(!self.ahead.is_empty())
    }

    /// True if a frame that was refused for want of buffers would be again. New buffers are read ahead and counted.
    pub fn is_short(&mut self, map: &MemoryMap) -> Result<bool, Rule> {
        match self.count_new_buffers(map) {
            Ok(()) => Ok(self.shortage.lacking > 0),
            // There may be some, and there may not.
            Err(Halt::Untranslated) => {
                self.shortage.awaits_translation = true;
                Ok(true)
            }
            Err(Halt::Broken(rule)) => Err(rule),
        }
    }

    /// Reads new buffers ahead until there are no more or enough.
    fn count_new_buffers(&mut self, map: &MemoryMap) -> Result<(), Halt> {
        let Some(ring) = &mut self.ring else {
            self.shortage.lacking = 0;
            return Ok(());
        };
        let mut room = IN_HAND_MAX - self.ahead.len() - self.packet_ends.len();
        while self.shortage.lacking > 0 && room > 0 && ring.refresh()? > 0 {
            room -= 1;
            let head = ring.take_head();
            self.pieces.clear();
            if let Err(halt) = ring.walk(map, head, Direction::Receive, &mut self.pieces) {
                ring.untake(1);
                return Err(halt);
            }
            let capacity: u64 = self.pieces.iter().map(|piece| u64::from(piece.len)).sum();
            self.shortage.lacking = self.shortage.lacking.saturating_sub(capacity);
            self.ahead.push(match self.pieces[..] {
                [Piece { ptr, len }] if self.header_len == NET_HEADER_LEN => Buffer { ptr, len, head },
                _ => Buffer::chain(head),
            });
        }
        if self.shortage.lacking == 0 {
            ring.kicks_off();
        }
        Ok(())
    }

    #[inline(never)]
    fn read_ahead(&mut self, map: &MemoryMap) -> Result<(), Halt> {
        let outcome = self.read_buffers(map);
        if self.header_len != NET_HEADER_LEN {
            // The short paths write the longer header.
            self.ahead.replace_each(|buffer| Buffer::chain(buffer.head));
        }
        outcome
    }

    #[inline(always)]
    fn read_buffers(&mut self, map: &MemoryMap) -> Result<(), Halt> {
        let room = self.room();
        let Some(ring) = &mut self.ring else {
            return Ok(());
        };
        // New buffers are found when they are needed; only while frames wait for them is the driver asked to kick.
        ring.kicks_off();
        let count = usize::from(ring.refresh()?).min(room).min(READ_AHEAD);
        let mut heads = [0; READ_AHEAD];
        let heads = &mut heads[..count];
        ring.take_heads(heads);
        let heads = &*heads;
        let mut walked = 0;
        for (number, &head) in heads.iter().enumerate() {
            let mut buffer = Buffer::chain(head);
            match ring.single(map, head, Direction::Receive) {
                Some(Piece { ptr, len }) => {
                    prefetch_for_write(ptr);
                    prefetch_for_write(ptr.wrapping_add(CACHE_LINE));
                    buffer = Buffer { ptr, len, head };
                }
                None => {
                    // Rules are checked now; the pieces are read again when a frame needs them.
                    self.pieces.clear();
                    let first = ring.walk_first(map, &heads[number..], Direction::Receive, &mut self.pieces);
                    if let Err(halt) = first {
                        ring.untake((count - number) as u16);
                        // What was read before it is there all the same.
                        let suffices = halt == Halt::Untranslated && number > 0;
                        return if suffices { Ok(()) } else { Err(halt) };
                    }
                    walked += self.pieces.len();
                    if let [Piece { ptr, len }] = self.pieces[..] {
                        buffer = Buffer { ptr, len, head };
                    }
                }
            }
            self.ahead.push(buffer);
            if walked > READ_AHEAD_PIECES {
                ring.untake((count - number - 1) as u16);
                break;
            }
        }
        Ok(())
    }

    /// Copies `frame` into the next buffer or buffers; its used entries are written, not published.
    ///
    /// # Errors
    /// See [`Refused`]; nothing was taken from the ring then.
    #[inline(always)]
    pub fn deliver(&mut self, map: &MemoryMap, frame: &FrameRef<'_>, mergeable: bool) -> Result<(), Refused> {
        #[cfg(test)]
        count_down(&mut self.deliveries_until_panic);
        let need = NET_HEADER_LEN as u32 + frame.len;
        let found = self.has_buffer(map);
        if !self.shortage.unless_available(found)? {
            self.shortage.lacking = if mergeable { u64::from(need) } else { 1 };
            return Err(Refused::NoBuffer);
        }
        let Buffer { ptr, len, head } = self.ahead.get(0);
        if len >= need
            && let Some(ring) = &mut self.ring
        {
            self.ahead.skip(1);
            // SAFETY: the piece is mapped for `need` bytes, and so are the frame's pieces for their lengths.
            unsafe { write_frame(ptr, frame) };
            ring.push_used(head, need);
            self.packet_ends.push(ring.next_used());
            self.count_frame(frame);
            return Ok(());
        }
        self.deliver_scattered(map, frame, mergeable, need)?;
        self.count_frame(frame);
        Ok(())
    }

    #[inline(always)]
    fn count_frame(&mut self, frame: &FrameRef<'_>) {
        let (frames, bytes) = frame.on_wire().map_or((1, 0), |wire| (wire.frames, wire.bytes));
        self.add_to_batch(u64::from(frames), bytes);
    }

    /// Copies frames into one buffer each, all with a header that asks nothing, until one does not fit or there is no
    /// buffer; their used entries are written, not published. Returns how many, at most `limit`. Whether a frame that was
    /// left finds other buffers, and why not, is decided by [`deliver`](Self::deliver).
    #[inline(always)]
    pub fn deliver_burst<'a>(
        &mut self,
        map: &MemoryMap,
        limit: usize,
        mut frames: impl Iterator<Item = CompactFrame<'a>>,
    ) -> usize {
        const SHORTEST: u32 = (NET_HEADER_LEN + INLINE_HEADER_LEN) as u32;
        let mut delivered = 0;
        while delivered < limit
            && self.has_buffer(map) == Ok(true)
            && let Some(ring) = &mut self.ring
        {
            #[cfg(test)]
            let panics = &mut self.deliveries_until_panic;
            let buffers = self.ahead.iter().zip(&mut frames).map_while(|(buffer, frame)| {
                #[cfg(test)]
                count_down(panics);
                let need = NET_HEADER_LEN as u32 + frame.len;
                (buffer.len >= need.max(SHORTEST)).then(|| {
                    // SAFETY: the buffer is mapped for the header, the first bytes and what follows them.
                    unsafe { write_plain(buffer.ptr, &frame) };
                    (buffer.head, need)
                })
            });
            let before = ring.next_used();
            let count = ring.push_used_each(buffers);
            self.packet_ends.extend_counting(before, count);
            let all = count == self.ahead.len();
            self.ahead.skip(count);
            delivered += count;
            if !all {
                break;
            }
        }
        delivered
    }

    #[cold]
    fn deliver_scattered(
        &mut self,
        map: &MemoryMap,
        frame: &FrameRef<'_>,
        mergeable: bool,
        need: u32,
    ) -> Result<(), Refused> {
        let need = need - (NET_HEADER_LEN - self.header_len) as u32;
        self.collect_chains(map, mergeable, need)?;
        let Some(ring) = &mut self.ring else {
            return Err(Refused::NoBuffer);
        };
        let header = frame.header.to_bytes(self.chains.len() as u16);
        // SAFETY: the pieces are mapped for their lengths, and so are the frame's.
        unsafe { write_scattered(&self.pieces, &header[..self.header_len], frame) };
        let mut left = need;
        for &(head, capacity) in &self.chains {
            let written = left.min(capacity);
            ring.push_used(head, written);
            left -= written;
        }
        self.packet_ends.push(ring.next_used());
        Ok(())
    }

    /// Takes as many chains as `need` bytes need into `chains` and `pieces`, or none.
    fn collect_chains(&mut self, map: &MemoryMap, mergeable: bool, need: u32) -> Result<(), Refused> {
        self.chains.clear();
        self.pieces.clear();
        let Some(ring) = &mut self.ring else {
            return Err(Refused::NoBuffer);
        };
        let mut capacity_all = 0u64;
        while capacity_all < u64::from(need) {
            if capacity_all > 0 && !mergeable {
                return Err(Refused::BufferTooSmall);
            }
            if self.chains.len() == FRAME_PIECES_MAX {
                return Err(Refused::Rule(Rule::ChainTooScattered));
            }
            // The buffers read ahead may be fewer than the frame needs: read more, but never beyond the ring.
            if self.chains.len() == self.ahead.len() {
                let has_room = self.ahead.len() + self.packet_ends.len() < IN_HAND_MAX;
                if !self
                    .shortage
                    .unless_available(ring.refresh().map(|entries| entries > 0 && has_room))?
                {
                    // Without mergeable buffers the first one is enough or never will be.
                    self.shortage.lacking = u64::from(need).saturating_sub(capacity_all);
                    return Err(Refused::NoBuffer);
                }
                self.ahead.push(Buffer::chain(ring.take_head()));
            }
            let buffer = self.ahead.get(self.chains.len());
            let first = self.pieces.len();
            match buffer.piece() {
                Some(piece) => self.pieces.push(piece),
                None => {
                    let walked = ring.walk(map, buffer.head, Direction::Receive, &mut self.pieces);
                    if !self.shortage.unless_available(walked.map(|()| true))? {
                        self.shortage.lacking = u64::from(need).saturating_sub(capacity_all);
                        return Err(Refused::NoBuffer);
                    }
                }
            }
            let capacity: u64 = self.pieces[first..].iter().map(|piece| u64::from(piece.len)).sum();
            if capacity < self.header_len as u64 {
                return Err(Refused::Rule(Rule::ReceiveBufferTooShort));
            }
            if self.pieces.len() > FRAME_PIECES_MAX {
                return Err(Refused::Rule(Rule::ChainTooScattered));
            }
            capacity_all += capacity;
            let capacity = capacity.min(u64::from(u32::MAX)) as u32;
            self.chains.push((buffer.head, capacity));
        }
        self.ahead.skip(self.chains.len());
        Ok(())
    }

    /// The index in the available ring of the buffer that the next frame gets, modulo 2¹⁶.
    pub fn next_buffer(&self) -> Option<u16> {
        let ahead = self.ahead.len() as u16;
        Some(self.ring.as_ref()?.next_avail().wrapping_sub(ahead))
    }

    /// Publishes the oldest `count` packets.
    #[inline]
    pub fn publish_packets(&mut self, count: u32) {
        #[cfg(test)]
        assert!(!self.panics_at_publication, "a panic was asked for");
        let count = (count as usize).min(self.packet_ends.len());
        let Some(last) = count.checked_sub(1) else { return };
        let end = self.packet_ends.get(last);
        if let Some(ring) = &mut self.ring {
            if self.guest.progress.is_watched() {
                self.guest.follow(self.packet_ends.iter().take(count), ring);
            }
            ring.publish_to(end);
        }
        self.packet_ends.skip(count);
    }

    /// Follows what the driver processes from now on (or no more); `waiting` packets are not announced.
    #[inline]
    pub fn follow_driver(&mut self, watched: bool, waiting: u32) {
        if let Some(ring) = &self.ring {
            self.guest.progress.watch(watched, waiting, || ring.driver_words());
        }
    }

    /// What the ring's memory says about its driver.
    pub fn driver_words(&self) -> Option<DriverWords> {
        self.ring.as_ref().map(SplitRing::driver_words)
    }

    /// Where the guest's library says how far it is with this ring, as long as the ring runs.
    pub fn set_host_record(&mut self, place: Option<HostRecordPlace>) {
        self.guest.host_record = place;
        self.guest.is_exact = false;
    }

    /// Where it does, if it does.
    pub fn host_record(&self) -> Option<HostRecordPlace> {
        self.guest.host_record
    }

    /// The host's state for the card's watchdog, of whose packets `delivered` are in the ring: what was not processed is
    /// known by ends of packets, the rest is. The guest's `record` is exact; without it, the ring tells.
    pub fn host_state(&mut self, delivered: u64, record: Option<HostRecord>) -> HostState {
        self.guest.is_exact = record.is_some();
        let Some(words) = self.driver_words() else {
            return HostState {
                interrupts_enabled: false,
                processed: delivered,
            };
        };
        if let Some(record) = record {
            let unprocessed = self
                .guest
                .progress
                .update_exactly(words.published, record.processed as u16);
            return HostState {
                interrupts_enabled: record.interrupts_enabled,
                processed: delivered.saturating_sub(unprocessed),
            };
        }
        let unprocessed = self.guest.progress.update(&words);
        HostState {
            interrupts_enabled: self.guest.progress.asks_for_call(&words),
            processed: delivered.saturating_sub(unprocessed),
        }
    }

    /// Whether the driver wants the call for a decided interrupt, asked once for each. The watchdog's own is for entries that
    /// an earlier decision may have passed over: it asks by the rule by which the host's state was fetched.
    #[inline]
    pub fn driver_wants_call(&mut self, reason: Reason) -> bool {
        let Some(ring) = &mut self.ring else { return false };
        let mut wanted = ring.driver_wants_notification();
        if reason == Reason::Watchdog {
            wanted = self.guest.asks_for_call(ring);
        }
        if wanted {
            ring.note_signalled();
        }
        wanted
    }

    /// Asks the driver to kick when it posts buffers. Returns how many are there already.
    ///
    /// # Errors
    /// The rule that the ring breaks.
    pub fn ask_for_kicks(&mut self) -> Result<u16, Halt> {
        match &mut self.ring {
            Some(ring) if self.enabled => {
                let entries = ring.kicks_on()?;
                let has_room = self.ahead.len() + self.packet_ends.len() < IN_HAND_MAX;
                // Those that cannot be looked at are looked at when their translation has come, or packets were published.
                Ok(if self.shortage.awaits_translation || !has_room {
                    0
                } else {
                    entries
                })
            }
            _ => Ok(0),
        }
    }

    /// A panic follows so many deliveries, in tests of what follows from that.
    #[cfg(test)]
    pub fn panic_after(&mut self, deliveries: u32) {
        self.deliveries_until_panic = Some(deliveries);
    }

    /// Publishing packets panics, in tests of what follows from that.
    #[cfg(test)]
    pub fn panic_at_publication(&mut self) {
        self.panics_at_publication = true;
    }
}

/// Panics when as many deliveries were made as a test asked for.
#[cfg(test)]
fn count_down(deliveries: &mut Option<u32>) {
    if let Some(left) = deliveries {
        *left = left.checked_sub(1).expect("a panic was asked for");
    }
}
