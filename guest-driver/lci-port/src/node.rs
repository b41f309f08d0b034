//! A node: what the paper's Table 1 has, and what goes with it.

use std::{
    sync::{
        Arc, Mutex, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
    },
    thread,
    time::{Duration, Instant},
};

use ether::{EtherType, MacAddr};
use lci::{Config, Engine, Event, GroupId, HEAD_LEN_MAX, Nodes, RemovalReason};
use netif::{
    AfPacket, AfPacketOptions, Netif, NetifError,
    virtio::{CardAddress, ForkMark},
};
use rustix::event::{EventfdFlags, eventfd};

use crate::{
    LciError, Options, PACKET_LEN_MAX, Packet, SendPacket, Statistics,
    arena::Arena,
    clock,
    core::{Core, Flags, Shared},
    idle::Idle,
    interrupt::Handler,
    own_card::{OwnCard, Watched},
    statistics::Interrupts,
};

/// No thread has this number.
const NO_THREAD: u64 = 0;
/// How long a node that has finished waits for others that may not have heard of it.
const LINGER: Duration = Duration::from_secs(1);

/// A number of this thread, never [`NO_THREAD`].
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(NO_THREAD + 1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// One node of a program. It may be used from several threads; packets are delivered by one at a time.
#[derive(Clone)]
pub struct Lci {
    shared: Arc<Shared>,
    handler: Arc<Mutex<Option<Handler>>>,
    watchdog: (Duration, Duration),
    /// Where the card does it.
    watched: Option<Arc<Watched>>,
}

impl Lci {
    /// Makes the node that has the interface `interface`, which may be a card that the program drives itself (`virtio:0000:00:11.0`), and waits until all of `nodes` were heard of.
    ///
    /// # Errors
    /// [`LciError`] if the interface cannot be used, is no node's, or nodes were not heard of in time.
    pub fn open(interface: &str, nodes: &[MacAddr], options: &Options) -> Result<Self, LciError> {
        if let Some(address) = CardAddress::of_interface(interface).map_err(NetifError::from)? {
            let mut card = OwnCard::open(address)?;
            let config = Self::config(card.mac(), nodes, options)?;
            config.check()?;
            let watched = match options.by_card {
                true => Some(card.watch(options)?.ok_or(LciError::NoWatchdog)?),
                false => None,
            };
            // Each node is in the group before any hears of it, so who has heard of all can send to all.
            if let Some(group) = config.card_group() {
                card.join(group, nodes.len())?;
            }
            return Self::with(Box::new(card), config, options, Idle::new(None), watched);
        }
        let port = AfPacket::open(interface, EtherType::CARD_TO_CARD, &AfPacketOptions::default())?;
        Self::over(Box::new(port), nodes, options)
    }

    /// Makes a node over a port that is open, as [`open`](Self::open) does.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn over(port: Box<dyn Netif + Send>, nodes: &[MacAddr], options: &Options) -> Result<Self, LciError> {
        let policy = options.policy;
        if !policy.retransmits() {
            let policy = policy.name();
            return Err(LciError::NeedsOwnCard { policy });
        }
        if options.by_card {
            return Err(LciError::NoWatchdog);
        }
        let config = Self::config(port.mac(), nodes, options)?;
        let readable = port.as_fd().try_clone_to_owned().map_err(|source| LciError::System {
            what: "copy a descriptor",
            source,
        })?;
        Self::with(port, config, options, Idle::new(Some(readable)), None)
    }

    fn config(mac: MacAddr, nodes: &[MacAddr], options: &Options) -> Result<Config, LciError> {
        let me = nodes
            .iter()
            .position(|node| *node == mac)
            .ok_or(LciError::NotListed { mac })?;
        let now = clock::now();
        // Two starts of a node are never in the same nanosecond; which one was first does not matter.
        let session = (now.as_nanos() ^ now.as_nanos() >> 32) as u32 ^ std::process::id().rotate_left(16);
        Ok(Config {
            job: options.job,
            policy: options.policy,
            timing: options.timing,
            limits: options.limits,
            ..Config::new(me, nodes.to_vec(), session)
        })
    }

    fn with(
        port: Box<dyn Netif + Send>,
        config: Config,
        options: &Options,
        idle: Idle,
        watched: Option<Watched>,
    ) -> Result<Self, LciError> {
        let state = watched.as_ref().map(|watched| watched.state.clone());
        let (me, size) = (config.me, config.nodes.len());
        let needed = HEAD_LEN_MAX - ether::ETHERNET_HEADER_LEN + PACKET_LEN_MAX;
        if port.mtu() < needed {
            let mtu = port.mtu();
            return Err(LciError::ShortMtu { mtu, needed });
        }
        let engine = Engine::new(config, clock::now())?;
        let unpark = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| LciError::System {
            what: "make an event descriptor",
            source: error.into(),
        })?;
        let shared = Shared {
            arena: Arena::new(engine.buffers()),
            me,
            size,
            mark: ForkMark::new().map_err(|source| LciError::System {
                what: "make memory that tells a process from its children",
                source,
            })?,
            core: Mutex::new(Core::new(engine, port, state.clone())),
            upcall: Mutex::new(None),
            deliverer: AtomicU64::new(NO_THREAD),
            flags: Flags {
                disabled: AtomicBool::new(true),
                parked: AtomicBool::new(false),
                look_again: AtomicBool::new(false),
                unpark,
                processed: AtomicU64::new(0),
                polled_at: AtomicU64::new(0),
            },
            interrupts: Interrupts::default(),
            idle,
            busy_ns: AtomicU64::new(0),
            state,
        };
        let node = Self {
            shared: Arc::new(shared),
            handler: Arc::default(),
            watchdog: (options.watchdog, options.clock_period),
            watched: watched.map(Arc::new),
        };
        node.await_ready(options.ready_timeout)?;
        Ok(node)
    }

    fn await_ready(&self, timeout: Duration) -> Result<(), LciError> {
        let deadline = Instant::now() + timeout;
        loop {
            self.shared.pump();
            let mut core = self.shared.lock();
            if core.engine.is_ready() {
                core.events.retain(|event| *event != Event::Ready);
                return Ok(());
            }
            if let Some(error) = core.failure.take() {
                return Err(error);
            }
            let other = |event: &Event| match event {
                Event::Mismatch { node } => Some(*node),
                _ => None,
            };
            if let Some(node) = core.events.iter().find_map(other) {
                return Err(LciError::Mismatch { node });
            }
            let present = core.engine.present();
            drop(core);
            if Instant::now() > deadline {
                return Err(LciError::Missing {
                    missing: (0..self.shared.size).filter(|node| !present.has(*node)).collect(),
                    seconds: timeout.as_secs(),
                });
            }
            self.idle();
        }
    }

    /// Whether this is the process that made the node. A child that it forked has the same memory, but shares the interface with it, and none of its
    /// threads: it is to leave the node alone.
    #[inline]
    pub fn is_own(&self) -> bool {
        self.shared.mark.is_own()
    }

    /// This node.
    pub fn me(&self) -> usize {
        self.shared.me
    }

    /// Nodes of the program.
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// The nodes that are there.
    pub fn present(&self) -> Vec<usize> {
        self.shared.lock().engine.present().iter().collect()
    }

    /// Sets the program's function for packets, which has each packet until it drops it. Until the function is set, packets wait.
    pub fn set_upcall(&self, upcall: impl FnMut(&Self, Packet) + Send + 'static) {
        *self.shared.upcall.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(upcall));
        // Packets that an interrupt has taken before wait for it.
        self.shared.flags.wake_handler();
    }

    /// Takes what has arrived, and calls the upcall for each packet. Returns how many there were. Within an upcall, or while another
    /// thread delivers packets, it moves frames and delivers none.
    pub fn poll(&self) -> usize {
        let (now, _) = self.shared.pump();
        self.shared.flags.polled_at.store(now.as_nanos(), Ordering::Relaxed);
        self.deliver(false)
    }

    /// Calls the upcall for each packet that waits; in an interrupt only if the program still lets itself be interrupted.
    ///
    /// Only the thread that took a packet's frame from the port is told of it, by the port or by a card. So no packet is left behind here
    /// unless another call delivers it: that of the thread that has the upcall, or the handler's when interrupts are enabled again.
    pub(crate) fn deliver(&self, is_interrupt: bool) -> usize {
        let shared = &*self.shared;
        if shared.deliverer.load(Ordering::Relaxed) == thread_number() {
            return 0;
        }
        let mut count = 0;
        loop {
            // Who has the upcall looks at this word after giving it back, and this thread at the upcall after setting the word. The
            // fences order the two, so one of the threads sees the other.
            shared.flags.look_again.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let Some(delivered) = self.try_deliver(is_interrupt) else {
                return count;
            };
            count += delivered;
            fence(Ordering::SeqCst);
            if !shared.flags.look_again.load(Ordering::Relaxed) {
                return count;
            }
        }
    }

    /// Delivers what there is; `None` if someone else has the upcall, there is none, or the program does not let itself be interrupted.
    fn try_deliver(&self, is_interrupt: bool) -> Option<usize> {
        let shared = &*self.shared;
        let mut slot = match shared.upcall.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        shared.flags.look_again.swap(false, Ordering::SeqCst);
        let upcall = slot.as_mut()?;
        shared.deliverer.store(thread_number(), Ordering::SeqCst);
        let reset = ResetOnDrop(&shared.deliverer);
        // The program sets this word first and looks for a deliverer then, so one of the two sees the other.
        if is_interrupt && shared.flags.disabled.load(Ordering::SeqCst) && shared.flags.park() {
            Interrupts::count(&shared.interrupts.suppressed);
            return None;
        }
        let mut count = 0;
        loop {
            let Some(delivery) = shared.lock().next_delivery() else {
                break;
            };
            count += 1;
            shared.flags.processed.fetch_add(1, Ordering::Release);
            upcall(self, Packet::new(self.shared.clone(), delivery));
        }
        if count > 0 {
            // What became deliverable or acknowledged by it goes out.
            let now = clock::now();
            let mut core = shared.lock();
            if let Err(error) = core.transmit(&shared.arena, now) {
                core.fail(error);
            }
        }
        drop(reset);
        Some(count)
    }

    /// Allocates a packet, if one is free.
    pub fn try_allocate(&self) -> Option<SendPacket> {
        let buffer = self.shared.lock().allocate()?;
        Some(SendPacket::new(self.shared.clone(), buffer))
    }

    /// Allocates a packet; polls until one is free. Within an upcall, polling delivers no packets.
    pub fn allocate(&self) -> SendPacket {
        self.wait_until(|node| node.try_allocate())
    }

    /// Polls until `done` has something.
    pub fn wait_until<T>(&self, mut done: impl FnMut(&Self) -> Option<T>) -> T {
        loop {
            if let Some(value) = done(self) {
                return value;
            }
            if self.poll() == 0 {
                self.idle();
            }
        }
    }

    /// A poll has found nothing that the program waits for. If that has been so for a while, this sleeps until a frame comes, something
    /// is due, or a millisecond is over: other programs, and other guests, may need this processor. A card that the program drives itself
    /// has no interrupts; there a frame is found late by as long again as nothing had come before, at most.
    pub fn idle(&self) {
        let due = self.shared.lock().engine.poll_timeout();
        self.shared.idle.rest(clock::now(), due);
    }

    /// Sends the first `size` bytes of a packet to node `destination`.
    ///
    /// # Errors
    /// [`LciError::Launch`]; the packet is given back.
    pub fn unicast(&self, destination: usize, packet: SendPacket, size: usize) -> Result<(), LciError> {
        self.launch(packet, |core, now, buffer| {
            core.engine.launch_unicast(now, destination, buffer, size)
        })?;
        // No port and no card tells of a packet to oneself, and the program may not poll. Within an upcall the packet is next.
        let shared = &self.shared;
        if destination == shared.me
            && shared.deliverer.load(Ordering::Relaxed) != thread_number()
            && !shared.flags.park()
        {
            shared.flags.wake_handler();
        }
        Ok(())
    }

    /// Sends the first `size` bytes of a packet to all other nodes.
    ///
    /// # Errors
    /// [`LciError::Launch`]; the packet is given back.
    pub fn broadcast(&self, packet: SendPacket, size: usize) -> Result<(), LciError> {
        self.multicast(GroupId::ALL, packet, size)
    }

    /// Sends the first `size` bytes of a packet to all other members of a group.
    ///
    /// # Errors
    /// [`LciError::Launch`]; the packet is given back.
    pub fn multicast(&self, group: GroupId, packet: SendPacket, size: usize) -> Result<(), LciError> {
        self.launch(packet, |core, now, buffer| {
            core.engine.launch_multicast(now, group, buffer, size)
        })
    }

    fn launch(
        &self,
        packet: SendPacket,
        launch: impl FnOnce(&mut Core, ether::Time, lci::BufferId) -> Result<(), lci::LaunchError>,
    ) -> Result<(), LciError> {
        let now = clock::now();
        let mut core = self.shared.lock();
        launch(&mut core, now, packet.buffer())?;
        let sent = core.transmit(&self.shared.arena, now);
        if let Err(error) = sent {
            core.fail(error);
        }
        core.tell_timers();
        drop(core);
        packet.launched();
        Ok(())
    }

    /// Creates a group: all of `members` call this, with the same list, and get the same name.
    ///
    /// # Errors
    /// [`LciError::Group`] if there can be no such group, or a member is gone.
    pub fn create_group(&self, members: &[usize]) -> Result<GroupId, LciError> {
        let wanted = Nodes::of(members.iter().copied()).ok_or(lci::GroupError::Members)?;
        self.shared.lock().engine.create_group(wanted)?;
        self.wait_until(|node| {
            let mut core = node.shared.lock();
            let mut found = None;
            core.events.retain(|event| match event {
                Event::GroupCreated { group, members } if *members == wanted && found.is_none() => {
                    found = Some(Ok(*group));
                    false
                }
                Event::GroupFailed { members } if *members == wanted && found.is_none() => {
                    found = Some(Err(lci::GroupError::MemberGone.into()));
                    false
                }
                _ => true,
            });
            found
        })
    }

    /// Takes the next event: a node that was removed, a timer that ended.
    pub fn next_event(&self) -> Option<Event> {
        self.shared.lock().events.pop_front()
    }

    /// Why the port does not work any more, or that cards have lost packets ([`LciError::Lost`], [`LciError::RemovedByCard`]), if it is so; told once.
    pub fn take_failure(&self) -> Option<LciError> {
        self.shared.lock().failure.take()
    }

    /// Starts timer `timer` of the program, below 64: [`Event::Timer`] follows. False if there is no such timer.
    pub fn start_timer(&self, timer: usize, after: Duration) -> bool {
        let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        let mut core = self.shared.lock();
        let is_one = core.engine.start_timer(clock::now(), timer, after_ns);
        core.tell_timers();
        is_one
    }

    /// Stops a timer of the program; false if it does not run.
    pub fn stop_timer(&self, timer: usize) -> bool {
        let mut core = self.shared.lock();
        let did_run = core.engine.stop_timer(timer);
        core.tell_timers();
        did_run
    }

    /// The program does not want to be interrupted: sets one word (M-BV9). When it returns, no upcall runs in another thread.
    #[inline]
    pub fn disable_interrupts(&self) {
        // The card first: where this thread loses the processor between the two, no interrupt comes that would find them disabled.
        if let Some(state) = &self.shared.state {
            state.set_interrupts(false);
        }
        self.shared.flags.disabled.store(true, Ordering::SeqCst);
        let shared = &self.shared;
        while ![NO_THREAD, thread_number()].contains(&shared.deliverer.load(Ordering::SeqCst)) {
            thread::yield_now();
        }
    }

    /// The program lets itself be interrupted by packets and timers: sets one word. The first call starts the handler, a thread.
    ///
    /// # Errors
    /// [`LciError::System`] if the handler cannot be started.
    #[inline]
    pub fn enable_interrupts(&self) -> Result<(), LciError> {
        let flags = &self.shared.flags;
        flags.disabled.store(false, Ordering::SeqCst);
        if let Some(state) = &self.shared.state {
            state.set_interrupts(true);
        }
        if flags.parked.swap(false, Ordering::SeqCst) {
            flags.wake_handler();
        }
        self.start_handler()
    }

    fn start_handler(&self) -> Result<(), LciError> {
        let mut handler = self.handler.lock().unwrap_or_else(PoisonError::into_inner);
        if handler.is_none() {
            let node = Self {
                shared: self.shared.clone(),
                // The handler must not keep itself alive.
                handler: Arc::default(),
                watchdog: self.watchdog,
                watched: self.watched.clone(),
            };
            *handler = Some(Handler::start(node, self.watchdog, self.watched.clone())?);
        }
        Ok(())
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The counts of this node.
    pub fn statistics(&self) -> Statistics {
        let mut core = self.shared.lock();
        Statistics {
            engine: core.engine.counters().clone(),
            port: core.port.counters(),
            interrupts: self.shared.interrupts.read(),
            busy: Duration::from_nanos(self.shared.busy_ns.load(Ordering::Relaxed)),
            card_looks: self.watched.is_some(),
        }
    }

    /// Ends the conversations in order, with all other nodes, which do the same. What was launched arrives. Returns nodes that did not
    /// end in time, or were removed before.
    pub fn finalize(&self) -> Vec<usize> {
        let dead = Duration::from_nanos(self.shared.lock().engine.config().timing.dead_ns);
        let deadline = Instant::now() + dead + dead / 2;
        self.shared.lock().engine.leave(clock::now());
        let mut left_at = None;
        self.wait_until(|node| {
            let core = node.shared.lock();
            let now = Instant::now();
            if core.engine.all_have_left() {
                left_at.get_or_insert(now);
            }
            let over = left_at.is_some_and(|at| now > at + LINGER)
                || now > deadline
                || matches!(core.failure, Some(LciError::Port(_)));
            (over || core.engine.has_finished()).then_some(())
        });
        let mut core = self.shared.lock();
        if left_at.is_none() {
            core.engine.abandon(clock::now());
        }
        core.pump(&self.shared.arena, clock::now());
        let present = core.engine.present();
        let lost = |node: &usize| !present.has(*node) || left_at.is_none() && *node != self.shared.me;
        let lost = (0..self.shared.size).filter(lost).collect();
        let removed = |event: &Event| matches!(event, Event::Removed { reason, .. } if *reason != RemovalReason::Left);
        core.events.retain(removed);
        drop(core);
        *self.handler.lock().unwrap_or_else(PoisonError::into_inner) = None;
        lost
    }

    /// Gives a packet back of which the program has the first byte; false if it has none that begins there.
    pub fn free(&self, pointer: *mut u8) -> bool {
        let buffer = self.shared.arena.buffer_at(pointer);
        buffer.is_some_and(|buffer| self.shared.lock().engine.release(buffer))
    }

    /// Allocates a packet and returns its first byte: the program has it until it is launched or freed.
    pub fn allocate_raw(&self) -> *mut u8 {
        let packet = self.allocate();
        let pointer = self.shared.arena.pointer(packet.buffer());
        packet.launched();
        pointer
    }

    /// Takes a packet back that [`allocate_raw`](Self::allocate_raw) gave, to launch it; `None` if the program has no such.
    pub fn packet_at(&self, pointer: *mut u8) -> Option<SendPacket> {
        let buffer = self.shared.arena.buffer_at(pointer)?;
        let is_programs = buffer.index() < lci::SEND_BUFFERS && self.shared.lock().engine.is_programs(buffer);
        is_programs.then(|| SendPacket::new(self.shared.clone(), buffer))
    }
}

/// No thread delivers when this is over, whatever the upcall does.
struct ResetOnDrop<'a>(&'a AtomicU64);

impl Drop for ResetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(NO_THREAD, Ordering::SeqCst);
    }
}
