//! A queue pair as a port. Its process alone drives it: no system call sends or receives.

use std::{
    collections::VecDeque,
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use ether::{ETHERNET_HEADER_LEN, EtherType, MacAddr};
use rustix::{
    event::PollFlags,
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime},
};

use super::{
    CardFacts, PreparedPair, Route, VirtioError,
    doorbells::Doorbells,
    layout::HEADER_LEN,
    memory::SharedMemory,
    prepared::PairPlace,
    ring::{Direction, Ring, Used},
    told::Told,
};
use crate::{
    BURST_MAX, FrameLender, Interest, LentMemory, Netif, NetifCounters, NetifError, Wake, ready, ready::Readiness,
};

/// Without interrupts a sleeper looks at the rings after pauses that double from the first to the second. A frame is
/// found late by as much again as the port was quiet before, or by the longest pause.
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(4);

/// At most this many frames are kept at once, and at most this part of the slots, so that a burst finds room.
const KEPT_MAX: usize = 64;
const KEPT_PART: usize = 4;

/// What the card has done against the rules, besides what [`NetifCounters`] count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardFaults {
    /// Entries of used rings that named no buffer that the card had.
    pub unknown_buffers: u64,
    /// Received frames whose length was impossible; they are lost.
    pub impossible_lengths: u64,
}

/// What was counted.
#[derive(Default)]
struct Counts {
    port: NetifCounters,
    impossible_lengths: u64,
}

/// The slots whose frames the caller has.
#[derive(Default)]
struct Lent {
    /// That of the last call.
    last: Option<u16>,
    /// Those that the caller keeps for longer, the oldest first.
    kept: VecDeque<u16>,
}

/// When a sleeper looks at the ring again.
struct Looks {
    timer: OwnedFd,
    /// The next pause.
    pause: Duration,
    pause_max: Duration,
}

/// How far the receive ring was looked at.
#[derive(Default)]
struct Looked {
    /// Where the card is told how many entries were processed, and how many they are.
    processed: Option<(usize, u64)>,
    /// The next frame that was found while looking whether there is one.
    found: Option<(u16, usize)>,
}

/// A port over a queue pair of a card; see [`Netif`].
///
/// There are no interrupts: `wait`, and the descriptor of [`AsFd`], look at the ring again and
/// again, after pauses of up to 4 ms; a program that polls the port itself gets frames at once.
pub struct VirtioPort {
    facts: CardFacts,
    route: Route,
    ether_types: [Option<EtherType>; 2],
    receive: Ring,
    transmit: Ring,
    memory: SharedMemory,
    place: PairPlace,
    doorbells: Doorbells,
    /// Transmit slots that hold nothing.
    free: Vec<u16>,
    lent: Lent,
    looked: Looked,
    /// A rule that the card broke: nothing that it says counts any more.
    broken: Option<&'static str>,
    looks: Looks,
    counts: Counts,
    /// What must stay open while the card uses the memory.
    _keep: Vec<OwnedFd>,
}

impl VirtioPort {
    /// Makes a port of a prepared pair, for frames of `ether_type`. What a former process of the pair received and did
    /// not see is dropped; what it sent still goes out. This needs no privilege.
    ///
    /// # Errors
    /// [`NetifError::Virtio`] if the pair is not as it is said to be, [`NetifError::Io`].
    pub fn from_prepared(prepared: PreparedPair, ether_type: EtherType) -> Result<Self, NetifError> {
        let PreparedPair {
            facts,
            route,
            place,
            memory,
            doorbells,
            keep,
        } = prepared;
        let layout = place.layout;
        if !layout.is_sound() {
            return Err(NetifError::io("understand the layout of the queue pair")(
                std::io::Error::from(std::io::ErrorKind::InvalidData),
            ));
        }
        let memory = SharedMemory::of_file(memory, place.memory_offset, layout.len())
            .map_err(NetifError::io("map the queue pair"))?;
        let doorbells =
            Doorbells::map(&doorbells, place.doorbells).map_err(NetifError::io("map the doorbells of the card"))?;
        let attach =
            |ring, direction| Ring::attach(&memory, layout, ring, direction).map_err(|what| broken(&facts, what));
        let receive = attach(layout.receive(), Direction::Receive)?;
        let transmit = attach(layout.transmit(), Direction::Transmit)?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )
        .map_err(NetifError::io("make a timer"))?;
        let mut port = Self {
            free: (0..layout.slots).filter(|slot| !transmit.is_with_card(*slot)).collect(),
            facts,
            route,
            ether_types: [Some(ether_type), None],
            receive,
            transmit,
            memory,
            place,
            doorbells,
            lent: Lent::default(),
            looked: Looked::default(),
            broken: None,
            looks: Looks {
                timer,
                pause: PAUSE_MIN,
                pause_max: PAUSE_MAX,
            },
            counts: Counts::default(),
            _keep: keep,
        };
        for slot in 0..layout.slots {
            if !port.receive.is_with_card(slot) {
                port.receive.post(slot);
            }
        }
        port.publish_receive();
        Ok(port)
    }

    /// Receives frames of another EtherType, too, from now on; `None`: no longer, also those that are there already.
    pub fn also_receive(&mut self, ether_type: Option<EtherType>) {
        self.ether_types[1] = ether_type;
    }

    /// Limits the pauses between two looks at the ring while nothing comes; 4 ms by default, at most a second.
    pub fn limit_pause(&mut self, pause_max: Duration) {
        self.looks.pause_max = pause_max.min(Duration::from_millis(999));
    }

    /// Returns what the card said of itself when the pair was prepared.
    pub const fn facts(&self) -> &CardFacts {
        &self.facts
    }

    /// Returns how many bytes of frames wait in the receive ring at most.
    pub fn receive_len(&self) -> usize {
        self.place.layout.receive_len()
    }

    /// Returns the route to the card.
    pub const fn route(&self) -> Route {
        self.route
    }

    /// Returns what the card has done against the rules.
    pub fn faults(&self) -> CardFaults {
        CardFaults {
            unknown_buffers: u64::from(self.receive.lies()) + u64::from(self.transmit.lies()),
            impossible_lengths: self.counts.impossible_lengths,
        }
    }

    /// Returns how often doorbells were rung.
    #[cfg(test)]
    pub(super) const fn rung(&self) -> u64 {
        self.doorbells.rung()
    }

    /// Returns what this program tells the card of itself, all zeros at first. The word of 8 bytes at `processed_at` is the port's:
    /// entries of the receive ring that were processed, of which the low 16 bits are a used index.
    ///
    /// # Panics
    /// As [`Told::set_long`].
    pub fn told(&mut self, processed_at: usize) -> Told {
        let told = Told::new(self.memory.clone(), self.place.layout.told());
        for at in (0..Told::LEN).step_by(8) {
            told.set_long(at, 0);
        }
        told.set_long(processed_at, self.receive.seen().into());
        self.looked.processed = Some((self.place.layout.told() + processed_at, self.receive.seen().into()));
        told
    }

    /// Tells the card how far this program is.
    #[inline]
    fn tell_processed(&mut self) {
        if let Some((at, processed)) = &mut self.looked.processed {
            *processed += u64::from(self.receive.seen().wrapping_sub(*processed as u16));
            self.memory.long(*at).store(processed.to_le(), Ordering::Release);
        }
    }

    fn publish_receive(&mut self) {
        self.receive.publish();
        if self.receive.wants_doorbell() {
            self.doorbells.ring(0, self.place.queue);
        }
    }

    /// Rings for what the card may have missed.
    #[inline]
    fn ring_late(&mut self) {
        if self.transmit.wants_late_doorbell() {
            self.doorbells.ring(1, self.place.queue + 1);
        }
        if self.receive.wants_late_doorbell() {
            self.doorbells.ring(0, self.place.queue);
        }
    }

    #[inline]
    fn give_back(&mut self) {
        if let Some(slot) = self.lent.last.take() {
            self.receive.post(slot);
            self.publish_receive();
        }
    }

    /// Finds the next frame for the caller, which stays where it is.
    #[inline]
    fn find(&mut self) -> Result<Option<(u16, usize)>, NetifError> {
        while self.looked.found.is_none() {
            if let Some(what) = self.broken {
                return Err(broken(&self.facts, what));
            }
            match self.receive.take_used() {
                Ok(None) => return Ok(None),
                Ok(Some(used)) => {
                    self.tell_processed();
                    self.sort(used);
                }
                Err(what) => self.broken = Some(what),
            }
        }
        Ok(self.looked.found)
    }

    /// Keeps a received frame for the caller, or gives its slot back.
    #[inline]
    fn sort(&mut self, Used { slot, len }: Used) {
        let len = len as usize;
        if len < HEADER_LEN + ETHERNET_HEADER_LEN || len > self.place.layout.slot_len as usize {
            self.counts.impossible_lengths += 1;
        } else if len - HEADER_LEN > self.facts.frame_len_max() {
            self.counts.port.dropped_too_long += 1;
        } else if !self.is_for_caller(slot) {
            self.counts.port.skipped += 1;
        } else {
            self.looked.found = Some((slot, len - HEADER_LEN));
            return;
        }
        self.receive.post(slot);
        self.publish_receive();
    }

    #[inline]
    fn is_for_caller(&self, slot: u16) -> bool {
        let at = self.receive.slot_offset(slot) + HEADER_LEN;
        // SAFETY: the card has just given the slot back (`take_used`), and it is not posted before this returns.
        let header = unsafe { self.memory.slot(at, ETHERNET_HEADER_LEN) };
        let (mac, kind) = (&header[..6], EtherType(u16::from_be_bytes([header[12], header[13]])));
        self.ether_types.contains(&Some(kind)) && (mac[0] & 1 != 0 || *mac == self.facts.mac.0)
    }

    /// Takes transmit slots back that the card is done with.
    fn reclaim(&mut self) -> Result<(), NetifError> {
        while self.broken.is_none() {
            match self.transmit.take_used() {
                Ok(Some(used)) => self.free.push(used.slot),
                Ok(None) => return Ok(()),
                Err(what) => self.broken = Some(what),
            }
        }
        Err(broken(&self.facts, self.broken.unwrap_or_default()))
    }

    fn is_ready(&mut self, interest: Interest) -> Result<bool, NetifError> {
        if interest.receive() && self.find()?.is_some() {
            return Ok(true);
        }
        if interest.send() {
            self.reclaim()?;
            return Ok(!self.free.is_empty());
        }
        Ok(false)
    }

    /// Has the descriptor become readable after a pause, which is longer each time.
    fn arm(&mut self) {
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: 0,
                tv_nsec: self.looks.pause.subsec_nanos().into(),
            },
        };
        self.looks.pause = (2 * self.looks.pause).min(self.looks.pause_max);
        // It also takes back that the timer has run out.
        let _ = timerfd_settime(&self.looks.timer, TimerfdTimerFlags::empty(), &once);
    }
}

#[cold]
fn broken(facts: &CardFacts, what: &'static str) -> NetifError {
    let address = facts.address;
    VirtioError::Broken { address, what }.into()
}

impl AsFd for VirtioPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.looks.timer.as_fd()
    }
}

impl Netif for VirtioPort {
    fn mac(&self) -> MacAddr {
        self.facts.mac
    }

    fn mtu(&self) -> usize {
        self.facts.mtu
    }

    #[inline]
    fn poll_receive(&mut self) -> Result<Option<&[u8]>, NetifError> {
        self.give_back();
        let Some((slot, len)) = self.find()? else {
            self.ring_late();
            return Ok(None);
        };
        self.looked.found = None;
        self.lent.last = Some(slot);
        self.looks.pause = PAUSE_MIN;
        self.counts.port.received += 1;
        let at = self.receive.slot_offset(slot) + HEADER_LEN;
        // SAFETY: the card has given the slot back, and gets it with the next call on this port, before which the caller's borrow ends.
        Ok(Some(unsafe { self.memory.slot(at, len) }))
    }

    fn lender(&mut self) -> Option<&mut dyn FrameLender> {
        Some(self)
    }

    fn send_burst(&mut self, frames: &[&[IoSlice<'_>]]) -> Result<usize, NetifError> {
        if self.free.len() < frames.len().min(BURST_MAX) || self.transmit.has_used() {
            self.reclaim()?;
        }
        let len_max = self.facts.frame_len_max();
        let mut taken = 0;
        for parts in frames.iter().take(BURST_MAX) {
            let len = parts.iter().map(|part| part.len()).sum::<usize>();
            if len > len_max {
                if taken == 0 {
                    return Err(NetifError::FrameTooLong {
                        name: self.facts.address.interface_name(),
                        len_max,
                    });
                }
                break;
            }
            let Some(slot) = self.free.pop() else { break };
            let begin = self.transmit.slot_offset(slot);
            let mut at = begin + HEADER_LEN;
            // SAFETY: the slot is free, so neither the card nor another process reads or writes there.
            unsafe { self.memory.write(begin, &[0; HEADER_LEN]) };
            for part in *parts {
                // SAFETY: as above; all parts fit, as was checked.
                unsafe { self.memory.write(at, part) };
                at += part.len();
            }
            self.transmit.set_len(slot, at - begin);
            self.transmit.post(slot);
            taken += 1;
        }
        if taken > 0 {
            self.transmit.publish();
            if self.transmit.wants_doorbell() {
                self.doorbells.ring(1, self.place.queue + 1);
            }
            self.counts.port.sent += taken as u64;
        }
        Ok(taken)
    }

    fn wait(
        &mut self,
        interest: Interest,
        deadline: Instant,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Wake, NetifError> {
        self.give_back();
        loop {
            self.ring_late();
            let ready = self.is_ready(interest)?;
            let now = Instant::now();
            if stop.is_none() && (ready || deadline <= now) {
                if ready {
                    return Ok(Wake::Ready);
                }
                self.arm();
                return Ok(Wake::Deadline);
            }
            let until = if ready { now } else { deadline };
            self.arm();
            let port = [(self.looks.timer.as_fd(), PollFlags::IN)];
            let ports = if ready { &[][..] } else { &port[..] };
            match ready::poll(ports, until, stop).map_err(NetifError::io("wait for frames"))? {
                Readiness::Stop => return Ok(Wake::Stop),
                Readiness::Deadline if ready => return Ok(Wake::Ready),
                Readiness::Deadline => return Ok(Wake::Deadline),
                Readiness::Port(_) => {}
            }
        }
    }

    fn counters(&mut self) -> NetifCounters {
        self.counts.port
    }
}

// SAFETY: the card has given the slot back, and gets it when it is posted, no earlier than it is released; the memory of the slots stays
// mapped until the port is dropped.
unsafe impl FrameLender for VirtioPort {
    fn kept_max(&self) -> usize {
        KEPT_MAX.min(usize::from(self.place.layout.slots) / KEPT_PART)
    }

    fn keep(&mut self) -> bool {
        if self.lent.kept.len() >= self.kept_max() {
            return false;
        }
        self.lent.kept.extend(self.lent.last);
        self.lent.last.take().is_some()
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn release(&mut self, count: usize) {
        let count = count.min(self.lent.kept.len());
        for slot in self.lent.kept.drain(..count) {
            self.receive.post(slot);
        }
        if count > 0 {
            self.publish_receive();
        }
    }

    fn memory(&self) -> Vec<LentMemory> {
        let layout = self.place.layout;
        let begin = layout.receive().slots;
        // SAFETY: the slots lie in the mapping (`PairLayout::len`).
        let base = unsafe { self.memory.base().add(begin) };
        let len = layout.receive_len();
        vec![LentMemory { base, len }]
    }
}
