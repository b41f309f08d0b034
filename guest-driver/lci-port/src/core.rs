//! The engine and its port behind one lock, and what the threads of a node share beside it.

use std::{
    collections::VecDeque,
    io::IoSlice,
    os::fd::OwnedFd,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use ether::Time;
use lci::{BufferId, Delivery, Engine, Event, HEAD_LEN_MAX, RemovalReason, Transmit};
use netif::{Netif, NetifError, virtio::ForkMark};

use crate::{
    Lci, LciError, Packet,
    arena::Arena,
    clock,
    host_state::HostState,
    idle::{Idle, TAKEN_NS},
    statistics::Interrupts,
};

/// Frames that one call takes from the port at most, so that it ends.
const RECEIVE_MAX: usize = 256;
/// Frames that go to the port in one call.
const BURST: usize = 16;
/// What the work on a frame takes at most, on a slow or emulated processor.
const FRAME_NS: u64 = 20_000;
const ZEROS: [u8; 60] = [0; 60];

/// The program's function for packets.
pub(crate) type Upcall = Box<dyn FnMut(&Lci, Packet) + Send>;

/// What the threads of a node share.
pub(crate) struct Shared {
    pub(crate) core: Mutex<Core>,
    pub(crate) arena: Arena,
    /// Taken while packets are delivered: upcalls are never nested, and never at the same time.
    pub(crate) upcall: Mutex<Option<Upcall>>,
    /// The thread that delivers packets, by [`crate::node::thread_number`].
    pub(crate) deliverer: AtomicU64,
    pub(crate) flags: Flags,
    /// What the card is told of this node, if the card looks after it.
    pub(crate) state: Option<HostState>,
    pub(crate) interrupts: Interrupts,
    pub(crate) idle: Idle,
    /// Time of pumps that found frames.
    pub(crate) busy_ns: AtomicU64,
    pub(crate) me: usize,
    pub(crate) size: usize,
    /// Tells the process of the node from its children.
    pub(crate) mark: ForkMark,
}

/// Words that are read without the lock.
pub(crate) struct Flags {
    /// M-BV9: the program does not want to be interrupted.
    pub(crate) disabled: AtomicBool,
    /// An interrupt came, or packets were taken in one, while it did not: it is to be told when it does.
    pub(crate) parked: AtomicBool,
    /// Packets may wait that who looked last could not deliver, because another thread was about to end its deliveries.
    pub(crate) look_again: AtomicBool,
    /// What wakes the handler then.
    pub(crate) unpark: OwnedFd,
    /// Packets that were delivered.
    pub(crate) processed: AtomicU64,
    /// When the program looked at the clock last.
    pub(crate) polled_at: AtomicU64,
}

impl Flags {
    /// Notes that the handler is to be woken when the program enables interrupts; false if it has done so meanwhile.
    pub(crate) fn park(&self) -> bool {
        self.parked.store(true, Ordering::SeqCst);
        let is_disabled = self.disabled.load(Ordering::SeqCst);
        if !is_disabled {
            self.parked.store(false, Ordering::SeqCst);
        }
        is_disabled
    }

    /// Has the handler look for packets.
    pub(crate) fn wake_handler(&self) {
        // Full is as good as written: it is readable.
        let _ = rustix::io::write(&self.unpark, &1u64.to_ne_bytes());
    }

    /// The handler was woken.
    pub(crate) fn woken(&self) {
        // It may have nothing: then the program enabled interrupts and disabled them again.
        let _ = rustix::io::read(&self.unpark, &mut [0; 8]);
    }
}

/// The engine and its port.
pub(crate) struct Core {
    pub(crate) engine: Engine,
    pub(crate) port: Box<dyn Netif + Send>,
    /// Frames that the port had no room for.
    stalled: VecDeque<Vec<u8>>,
    pub(crate) events: VecDeque<Event>,
    /// What the card is told of the engine's timers.
    state: Option<HostState>,
    /// Why the port does not work any more, or packets are lost.
    pub(crate) failure: Option<LciError>,
}

impl Core {
    pub(crate) fn new(engine: Engine, port: Box<dyn Netif + Send>, state: Option<HostState>) -> Self {
        Self {
            engine,
            port,
            stalled: VecDeque::new(),
            events: VecDeque::new(),
            state,
            failure: None,
        }
    }

    /// Takes frames from the port, does what is due, and sends what is to be sent. Returns how many frames there were.
    pub(crate) fn pump(&mut self, arena: &Arena, now: Time) -> u64 {
        let mut frames = 0;
        if let Err(error) = self.try_pump(arena, now, &mut frames) {
            self.fail(error);
        }
        self.tell_timers();
        while let Some(event) = self.engine.poll_event() {
            let lost = match event {
                Event::Removed {
                    node,
                    reason: RemovalReason::Lost,
                } => Some(LciError::Lost { node }),
                Event::Excluded { by } if by == self.engine.me() => Some(LciError::RemovedByCard),
                _ => None,
            };
            if let Some(error) = lost {
                self.failure.get_or_insert(error);
            }
            self.events.push_back(event);
        }
        frames
    }

    /// The port does not work any more.
    pub(crate) fn fail(&mut self, error: NetifError) {
        self.failure.get_or_insert(error.into());
    }

    fn try_pump(&mut self, arena: &Arena, now: Time, frames: &mut u64) -> Result<(), NetifError> {
        for _ in 0..RECEIVE_MAX {
            if !self.engine.can_receive() {
                break;
            }
            let Some(frame) = self.port.poll_receive()? else { break };
            *frames += 1;
            if let Some((buffer, start, end)) = self.engine.handle(now, frame).store {
                // SAFETY: the engine has just taken this buffer for these bytes.
                unsafe { arena.store(buffer, frame.get(start..end).unwrap_or_default()) };
            }
        }
        if self.engine.poll_timeout() <= now {
            self.engine.handle_timeout(now);
        }
        self.transmit(arena, now)
    }

    /// Tells the card how many timers run.
    #[inline]
    pub(crate) fn tell_timers(&self) {
        if let Some(state) = &self.state {
            state.set_timers(self.engine.timers_running());
        }
    }

    /// Sends what the engine has, as long as the port takes it.
    pub(crate) fn transmit(&mut self, arena: &Arena, now: Time) -> Result<(), NetifError> {
        while let Some(frame) = self.stalled.front() {
            if !self.port.send(&[IoSlice::new(frame)])? {
                return Ok(());
            }
            self.stalled.pop_front();
        }
        // Most calls find nothing to send, and most others one frame: no room for a burst is prepared for these.
        let mut head = [0; HEAD_LEN_MAX];
        while let Some(first) = self.engine.poll_transmit(now, &mut head) {
            let mut next = [0; HEAD_LEN_MAX];
            let Some(second) = self.engine.poll_transmit(now, &mut next) else {
                let parts = parts(arena, &head, &first);
                if !self.port.send(&parts)? {
                    self.stall(&parts);
                }
                return Ok(());
            };
            if !self.transmit_burst(arena, now, [(head, first), (next, second)])? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Sends a burst that begins with `first`; whether there may be more to send, and the port had room for all of this.
    fn transmit_burst(
        &mut self,
        arena: &Arena,
        now: Time,
        first: [([u8; HEAD_LEN_MAX], Transmit); 2],
    ) -> Result<bool, NetifError> {
        let mut heads = [[0; HEAD_LEN_MAX]; BURST];
        let mut frames = [const { None }; BURST];
        let mut count = 0;
        for (head, frame) in first {
            (heads[count], frames[count]) = (head, Some(frame));
            count += 1;
        }
        while count < BURST {
            frames[count] = self.engine.poll_transmit(now, &mut heads[count]);
            if frames[count].is_none() {
                break;
            }
            count += 1;
        }
        let parts: [[IoSlice<'_>; 3]; BURST] = std::array::from_fn(|at| {
            frames[at].map_or([IoSlice::new(&[]); 3], |frame| parts(arena, &heads[at], &frame))
        });
        let bursts: [&[IoSlice<'_>]; BURST] = std::array::from_fn(|at| &parts[at][..]);
        let sent = self.port.send_burst(&bursts[..count])?.min(count);
        for parts in &parts[sent..count] {
            self.stall(parts);
        }
        Ok(sent == count && count == BURST)
    }

    /// Keeps a frame that the port has no room for. A copy, because a buffer may be another packet's soon.
    fn stall(&mut self, parts: &[IoSlice<'_>]) {
        self.stalled
            .push_back(parts.iter().flat_map(|part| part.iter().copied()).collect());
    }

    /// Takes the next packet for the program.
    pub(crate) fn next_delivery(&mut self) -> Option<Delivery> {
        self.engine.poll_delivery()
    }

    /// Allocates a packet.
    pub(crate) fn allocate(&mut self) -> Option<BufferId> {
        self.engine.allocate()
    }
}

fn parts<'a>(arena: &'a Arena, head: &'a [u8; HEAD_LEN_MAX], frame: &Transmit) -> [IoSlice<'a>; 3] {
    let payload = frame.payload.map_or(&[][..], |(buffer, len)| {
        // SAFETY: the engine sends buffers that are launched or received. The program has no right to write to the former; what
        // it writes to the latter goes to the packet's other receivers, which is its own fault and no one else's memory.
        unsafe { arena.bytes(buffer, len) }
    });
    [
        IoSlice::new(&head[..frame.head_len]),
        IoSlice::new(payload),
        IoSlice::new(&ZEROS[..frame.pad_len.min(ZEROS.len())]),
    ]
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        // A panic of an upcall does not happen under this lock.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pumps once; returns the time at which it did, and how many frames there were.
    pub(crate) fn pump(&self) -> (Time, u64) {
        let now = clock::now();
        if let Some(state) = &self.state {
            state.polled(now);
        }
        let frames = self.lock().pump(&self.arena, now);
        if frames > 0 {
            self.idle.found();
            let took_ns = clock::now().nanos_since(now);
            // Longer ones were interrupted: the processor was another's meanwhile.
            if took_ns < TAKEN_NS + frames * FRAME_NS {
                self.busy_ns.fetch_add(took_ns, Ordering::Relaxed);
            }
        }
        (now, frames)
    }
}
