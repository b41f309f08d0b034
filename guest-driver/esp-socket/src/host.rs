//! One Ethernet interface as this process uses it: the engine with all connections, the port, and the threads that serve both.
//!
//! Whoever makes a call runs the engine in its own thread. A thread that has to wait spins a little and then sleeps on the port itself:
//! one such thread is the *leader*, which all others sleep behind. A thread in the background serves the engine
//! when no call does.

use std::{
    collections::HashMap,
    io::IoSlice,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, RawFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Instant,
};

use esp::{Address, Config, ConnectionId, Engine, Event, Handover, Options, Reason, wire::Names};
use ether::{EtherType, MacAddr, Time};
use libc::{pollfd, sigset_t};
use netif::{AfPacket, Interest, Interface, Netif, NetifError, Wake};
use rustix::time::{ClockId, clock_gettime};
use weft_authority::esp::{BLOCK_PORTS, ports_of};

use crate::{
    background,
    errno::Errno,
    mirror::{Mirror, Readiness},
    mtu::Mtu,
    own_fds::{self, OwnFd},
    processes,
    report::Ends,
    settings,
    spin::Spin,
    system,
    waiter::Waiter,
};

/// Frames that are handed to the port with one system call at most.
const BATCH_FRAMES: usize = 32;
/// The interval in which the end of a process looks whether its last bytes were acknowledged.
const DELIVERY_LOOK_NS: u64 = 5_000_000;
/// So long a process waits for a peer to learn a connection's port.
const SETTLE_LIMIT_NS: u64 = 2_000_000_000;
/// The pause after which a full port is tried again.
const UNSENT_PAUSE_NS: u64 = 50_000;
/// The pause after which a port is tried again whose interface is switched off.
const DOWN_PAUSE_NS: u64 = 10_000_000;
/// Frames that are taken from the port before what they caused is sent.
const TURN_FRAMES: usize = 128;

/// A peer that was silent for so long is asked whether it is there, in nanoseconds: the kernel ends the connections of a program that is
/// killed, and this is how the peers of ours notice.
const KEEP_ALIVE_NS: u64 = 10_000_000_000;

fn options() -> Options {
    Options {
        keep_alive_ns: Some(KEEP_ALIVE_NS),
        ..Options::default()
    }
}

/// Returns the engine's time.
#[inline]
pub(crate) fn now() -> Time {
    let time = clock_gettime(ClockId::Monotonic);
    Time::from_nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

/// One interface with all connections of this process over it.
pub struct Host {
    /// The interface.
    pub interface: Interface,
    /// The descriptor that becomes readable when a frame came.
    packet_fd: RawFd,
    state: Mutex<State>,
    /// Threads of the program that sleep on the port.
    pub(crate) serving: AtomicU32,
    /// Events of connections so far.
    changes: Arc<AtomicU64>,
    /// Calls so far.
    pub(crate) activity: AtomicU64,
    /// The thread in the background sleeps without a limit of its own.
    pub(crate) resting: AtomicBool,
    pub(crate) background: Arc<Waiter>,
    spin_ns: u64,
    /// For waits for several descriptors.
    pub(crate) spin: Spin,
    first_port: u16,
    /// Blocks of wire ports.
    pub(crate) blocks: Vec<u8>,
    /// The process that made this.
    pub(crate) generation: u32,
}

/// What a host's lock protects.
pub(crate) struct State {
    pub(crate) engine: Engine,
    /// None in a forked child, which has no port of its parent's.
    port: Option<AfPacket>,
    frames: Box<[Vec<u8>]>,
    lengths: [usize; BATCH_FRAMES],
    /// Frames of `frames` that are to be sent: from, to.
    unsent: (usize, usize),
    pub(crate) connections: HashMap<ConnectionId, Connection>,
    /// Memory for reports of the connections.
    pub(crate) report: Option<Arc<OwnFd>>,
    changes: Arc<AtomicU64>,
    leader: Option<Arc<Waiter>>,
    followers: Vec<Arc<Waiter>>,
    /// The interface is gone or switched off.
    pub(crate) is_down: bool,
    interface_index: u32,
    pub(crate) mtu: Mtu,
    /// The wire port of the block that is tried next.
    pub(crate) next_port: u16,
    /// Bytes that a connection keeps for sending.
    pub(crate) send_len: usize,
}

/// What is known of a connection beside its engine's state.
#[derive(Default)]
pub(crate) struct Connection {
    pub(crate) waiters: Vec<Arc<Waiter>>,
    pub(crate) mirror: Option<Mirror>,
    pub(crate) is_connected: bool,
    /// The peer knows the port at which it is now.
    pub(crate) is_settled: bool,
    /// Why it ended, until a call returns it.
    pub(crate) error: Option<Errno>,
    /// The peer will send nothing more, or the connection is over.
    pub(crate) is_over: bool,
    /// This side sends nothing more.
    pub(crate) is_shut: bool,
    /// This side wants to receive nothing more.
    pub(crate) is_deaf: bool,
    /// Both directions are over; the engine has forgotten the connection.
    pub(crate) is_ended: bool,
    /// What the program calls it, once it has a socket for it.
    pub(crate) ends: Option<Box<Ends>>,
}

impl State {
    /// Prepares the port's descriptor to be slept on; `false`: there is a frame already.
    fn arm(&mut self) -> bool {
        let port = self.port.as_mut();
        port.is_none_or(|port| matches!(port.wait(Interest::Receive, Instant::now(), None), Ok(Wake::Deadline)))
    }

    /// The port does not work: for as long as the interface is switched off, or for good if it is gone.
    fn go_down(&mut self, now: Time) {
        self.is_down = true;
        // The kernel has a name for every number of an interface that exists.
        let mut name = [0; libc::IF_NAMESIZE];
        // SAFETY: the name has the room that the C library wants.
        if unsafe { libc::if_indextoname(self.interface_index, name.as_mut_ptr()) }.is_null() {
            self.engine.fail_all(now);
        }
    }

    /// Takes frames from the port and runs timers.
    pub(crate) fn receive(&mut self, now: Time) -> usize {
        let mut taken = 0;
        while taken < TURN_FRAMES {
            let Some(port) = self.port.as_mut() else {
                break;
            };
            match port.poll_receive() {
                Ok(Some(frame)) => {
                    // What is not taken, the engine has counted.
                    let _ = self.engine.handle(frame, now);
                }
                Ok(None) => break,
                Err(_) => {
                    self.go_down(now);
                    break;
                }
            }
            taken += 1;
        }
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
        taken
    }

    /// Sends what the engine wants to send; stops when the port is full.
    pub(crate) fn transmit(&mut self, now: Time) {
        loop {
            if self.unsent.0 == self.unsent.1 {
                let mut count = 0;
                while count < BATCH_FRAMES
                    && let Some(len) = self.engine.poll_transmit(now, &mut self.frames[count])
                {
                    self.lengths[count] = len;
                    count += 1;
                }
                self.unsent = (0, count);
                if count == 0 {
                    return;
                }
            }
            let (from, to) = self.unsent;
            let Some(port) = self.port.as_mut() else {
                return;
            };
            let sent = if to - from == 1 {
                port.send(&[IoSlice::new(&self.frames[from][..self.lengths[from]])])
                    .map(usize::from)
            } else {
                let slices: [[IoSlice<'_>; 1]; BATCH_FRAMES] =
                    std::array::from_fn(|at| [IoSlice::new(&self.frames[at][..self.lengths[at]])]);
                let frames: [&[IoSlice<'_>]; BATCH_FRAMES] = std::array::from_fn(|at| &slices[at][..]);
                port.send_burst(&frames[from..to])
            };
            match sent {
                Ok(0) => return,
                Ok(sent) => self.unsent.0 += sent,
                Err(NetifError::FrameTooLong { .. }) => {
                    // The engine sends it again, in pieces that fit.
                    let socket = port.as_fd().as_raw_fd();
                    self.mtu.follow(socket, &mut self.engine, now);
                    self.unsent.0 += 1;
                }
                Err(_) => {
                    // Frames that the port cannot send are lost, as on a cable; the engine repeats them.
                    self.go_down(now);
                    self.unsent.0 = to;
                }
            }
        }
    }

    /// Hands events of the engine to the threads and mirrors of their connections.
    pub(crate) fn settle(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            self.note(event);
        }
    }
}

impl State {
    /// The program has no more use for a connection.
    pub(crate) fn close(&mut self, id: ConnectionId, reset: bool, now: Time) {
        self.connections.remove(&id);
        // A connection that the engine does not know is gone already.
        let _ = if reset {
            self.engine.abort(id)
        } else {
            self.engine.close(id, now)
        };
    }

    fn note(&mut self, event: Event) {
        self.changes.fetch_add(1, Ordering::Release);
        let (id, error, more) = match event {
            Event::Connected(id) => {
                let connection = self.connection(id);
                (connection.is_connected, connection.is_settled) = (true, true);
                (id, None, false)
            }
            Event::Readable(id) => (id, None, true),
            Event::Writable(id) => (id, None, false),
            Event::PeerFinished(id) => {
                self.connection(id).is_over = true;
                (id, None, false)
            }
            Event::Closed { id, reason } => {
                let connection = self.connection(id);
                // A peer that had finished takes nothing more: TCP calls that a broken pipe.
                let is_broken = connection.is_over && reason == Reason::Reset;
                connection.is_over = true;
                connection.is_ended = true;
                (
                    id,
                    Some(Errno(if is_broken { libc::EPIPE } else { reason.errno() })).filter(|error| error.0 != 0),
                    false,
                )
            }
            Event::Settled(id) => {
                self.connection(id).is_settled = true;
                (id, None, false)
            }
            Event::Incoming { .. } => return,
        };
        let connection = self.connection(id);
        if error.is_some() {
            connection.error = error;
        }
        for waiter in &connection.waiters {
            waiter.wake();
        }
        self.show(id, more);
    }

    pub(crate) fn connection(&mut self, id: ConnectionId) -> &mut Connection {
        self.connections.entry(id).or_default()
    }

    /// Returns what calls on the connection would do.
    pub(crate) fn readiness(&self, id: ConnectionId) -> Readiness {
        let Some(connection) = self.connections.get(&id) else {
            return Readiness::default();
        };
        let failed = connection.error.is_some();
        let unread = self.engine.available(id).is_ok_and(|len| len > 0);
        let space = self.engine.space(id).unwrap_or(0);
        Readiness {
            readable: unread || connection.is_over || failed || connection.is_deaf,
            writable: connection.is_ended || failed || connection.is_shut || space * 3 >= self.send_len,
            finished: connection.is_over || connection.is_deaf,
            hung_up: connection.is_ended || connection.is_over && connection.is_shut,
            failed,
        }
    }

    /// Shows the kernel what the connection is ready for, if anybody asked it.
    pub(crate) fn show(&mut self, id: ConnectionId, more: bool) {
        if self
            .connections
            .get(&id)
            .is_none_or(|connection| connection.mirror.is_none())
        {
            return;
        }
        let readiness = self.readiness(id);
        if !readiness.writable {
            // A connection that is gone is writable.
            let _ = self.engine.want_room(id);
        }
        if let Some(mirror) = self.connection(id).mirror.as_mut() {
            mirror.show(readiness, more);
        }
    }
}

/// A thread that is about to sleep; taken back when it woke.
struct Asleep<'a> {
    host: &'a Host,
    waiter: Arc<Waiter>,
    leads: bool,
}

/// What a host is made of.
pub(crate) struct HostParts {
    pub(crate) interface: Interface,
    pub(crate) ether_type: EtherType,
    pub(crate) port: AfPacket,
    pub(crate) block: u8,
    pub(crate) report: OwnFd,
}

impl Host {
    /// Makes the host of an interface, and starts its thread.
    pub(crate) fn new(parts: HostParts) -> Result<Arc<Self>, Errno> {
        let mtu = u16::try_from(parts.port.mtu()).unwrap_or(u16::MAX);
        let mut config = Config::new(parts.interface.mac, mtu);
        config.ether_type = parts.ether_type;
        let send_len = config.send_buffer as usize;
        let engine = Engine::new(config, crate::random()).map_err(|_| Errno(libc::ENETDOWN))?;
        let frame_len = engine.frame_len_max();
        let packet_fd = parts.port.as_fd().as_raw_fd();
        own_fds::protect(packet_fd);
        let ports = ports_of(parts.block);
        let interface_index = parts.interface.index.cast_unsigned();
        let changes = Arc::new(AtomicU64::new(0));
        let host = Arc::new(Self {
            changes: changes.clone(),
            interface: parts.interface,
            packet_fd,
            state: Mutex::new(State {
                engine,
                port: Some(parts.port),
                frames: (0..BATCH_FRAMES).map(|_| vec![0; frame_len]).collect(),
                lengths: [0; BATCH_FRAMES],
                unsent: (0, 0),
                connections: HashMap::new(),
                report: Some(Arc::new(parts.report)),
                changes,
                leader: None,
                followers: Vec::new(),
                is_down: false,
                interface_index,
                mtu: Mtu::new(interface_index, mtu),
                next_port: (crate::random() as u16) % BLOCK_PORTS,
                send_len,
            }),
            spin_ns: settings::get().spin_ns,
            spin: Spin::default(),
            serving: AtomicU32::new(0),
            activity: AtomicU64::new(0),
            resting: AtomicBool::new(false),
            background: Waiter::new()?,
            blocks: vec![parts.block],
            first_port: *ports.start(),
            generation: processes::generation(),
        });
        background::start(&host)?;
        Ok(host)
    }

    /// Begins to connect to a peer; `None` if there can be no more connections.
    pub(crate) fn connect(&self, mac: MacAddr, own: SocketAddr, peer: SocketAddr) -> Option<ConnectionId> {
        let address = Address { mac, port: peer.port() };
        let options = Options {
            names: Some(peer.ip())
                .filter(|ip| !ip.is_unspecified())
                .and_then(|ip| Names::new(own, ip)),
            ..options()
        };
        self.at_a_port(|state, port, now| state.engine.connect(port, address, options, now))
    }

    /// Takes a connection over from the authority or another process.
    pub(crate) fn attach(&self, handover: &[u8]) -> Option<ConnectionId> {
        let handover = Handover::from_bytes(handover).ok()?;
        let id = self.at_a_port(|state, port, now| state.engine.attach(handover.clone(), port, options(), now))?;
        self.run(|state, _| state.connection(id).is_connected = true);
        Some(id)
    }

    /// Returns the wire port that the next connection gets if it is free for it.
    pub(crate) fn upcoming_port(&self) -> u16 {
        self.first_port + self.lock().next_port
    }

    /// Tries one wire port after the other.
    fn at_a_port(
        &self,
        mut make: impl FnMut(&mut State, u16, Time) -> Result<ConnectionId, esp::Error>,
    ) -> Option<ConnectionId> {
        self.run(|state, now| {
            for _ in 0..BLOCK_PORTS {
                let port = self.first_port + state.next_port;
                state.next_port = (state.next_port + 1) % BLOCK_PORTS;
                match make(state, port, now) {
                    Ok(id) => {
                        state.connections.insert(id, Connection::default());
                        return Some(id);
                    }
                    Err(esp::Error::InUse) => {}
                    Err(_) => return None,
                }
            }
            None
        })
    }

    /// Waits until the peer knows the port at which a connection is. A connection must not move twice before: the peer finds it by the
    /// port that it knows.
    pub(crate) fn await_settled(&self, id: ConnectionId) {
        let begin = now();
        loop {
            let seen = self.changes();
            let is_settled = self.run(|state, _| state.connection(id).is_settled || state.connection(id).is_ended);
            let waited = now().nanos_since(begin);
            if is_settled || waited >= SETTLE_LIMIT_NS {
                return;
            }
            // A signal only makes it look once more.
            let _ = self.sleep(
                seen,
                &[id],
                &mut Vec::new(),
                Some(SETTLE_LIMIT_NS - waited),
                std::ptr::null(),
            );
        }
    }

    /// Takes a connection out of the engine, for another process; the pair that shows its state is as it was made.
    /// `moves_to`: the port at which it goes on there.
    pub(crate) fn take_out(&self, id: ConnectionId, moves_to: u16) -> Option<Vec<u8>> {
        self.await_settled(id);
        self.run(|state, now| {
            if let Some(mirror) = state.connection(id).mirror.take() {
                mirror.clear();
            }
            state.connections.remove(&id);
            state.engine.detach(id, Some(moves_to), now).ok()
        })
        .map(|handover| handover.to_bytes())
    }

    /// Copies a connection out of the engine of the parent process, of which this one has a copy.
    pub(crate) fn detach_copy(&self, id: ConnectionId) -> Option<Vec<u8>> {
        let mut state = self.lock();
        let now = now();
        let _ = state.engine.thaw(id, now);
        let handover = state.engine.detach(id, None, now).ok()?;
        state.connections.remove(&id);
        Some(handover.to_bytes())
    }

    /// Closes the parent's port in a forked child.
    pub(crate) fn drop_port(&self) {
        own_fds::release(self.packet_fd);
        let mut state = self.lock();
        (state.port, state.report) = (None, None);
    }

    /// Waits until what the program sent is acknowledged, on connections that it closed too.
    pub(crate) fn deliver(&self, deadline: Time) {
        loop {
            let seen = self.changes();
            let (is_done, time) = self.run(|state, now| (state.engine.is_delivered(), now));
            if is_done || time >= deadline {
                return;
            }
            let left = deadline.nanos_since(time);
            // A signal only makes it look once more.
            let _ = self.sleep(
                seen,
                &[],
                &mut Vec::new(),
                Some(left.min(DELIVERY_LOOK_NS)),
                std::ptr::null(),
            );
        }
    }

    /// Returns how long a thread spins before it sleeps.
    pub(crate) const fn spin_ns(&self) -> u64 {
        self.spin_ns
    }

    /// Whether a frame waits; `false` also while another thread runs the engine.
    pub(crate) fn has_frame(&self) -> bool {
        let Ok(mut state) = self.state.try_lock() else {
            return false;
        };
        let wait = state
            .port
            .as_mut()
            .map(|port| port.wait(Interest::Receive, Instant::now(), None));
        !matches!(wait, Some(Ok(Wake::Deadline)))
    }

    /// Locks the engine. It is only locked for as long as a call runs, never while a thread sleeps.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the engine and a part of a call with it.
    #[inline]
    pub(crate) fn run<T>(&self, call: impl FnOnce(&mut State, Time) -> T) -> T {
        let mut state = self.lock();
        let now = now();
        state.receive(now);
        state.settle();
        let result = call(&mut state, now);
        state.transmit(now);
        state.settle();
        drop(state);
        self.note_activity();
        result
    }

    /// Tells the thread in the background that calls are made again.
    #[inline]
    pub(crate) fn note_activity(&self) {
        self.activity.fetch_add(1, Ordering::SeqCst);
        if self.resting.load(Ordering::SeqCst) && self.resting.swap(false, Ordering::SeqCst) {
            self.background.wake();
        }
    }

    /// Whether a frame waits at the port, for threads that spin.
    pub(crate) fn packet_fd(&self) -> RawFd {
        self.packet_fd
    }

    /// Serves the engine without a call. Returns the nanoseconds until it wants to be served again without a frame.
    pub(crate) fn serve_once(&self) -> Option<u64> {
        let mut state = self.lock();
        let now = now();
        state.receive(now);
        state.settle();
        state.transmit(now);
        state.settle();
        if state.unsent.0 < state.unsent.1 {
            return Some(UNSENT_PAUSE_NS);
        }
        if state.arm() {
            state.engine.poll_timeout().map(|at| at.nanos_since(now))
        } else {
            Some(if state.is_down { DOWN_PAUSE_NS } else { 0 })
        }
    }

    /// Returns a number that another one follows when something happens to a connection: for [`sleep`](Self::sleep).
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Sleeps until a frame comes, something happens to one of `ids`, one of `fds` is ready, or `limit_ns` are over; not at all if
    /// anything happened since [`changes`](Self::changes) was `seen`, which is read before the caller looks whether it has to wait.
    ///
    /// # Errors
    /// `EINTR` after a signal.
    pub(crate) fn sleep(
        &self,
        seen: u64,
        ids: &[ConnectionId],
        fds: &mut Vec<pollfd>,
        limit_ns: Option<u64>,
        mask: *const sigset_t,
    ) -> Result<(), Errno> {
        let waiter = Waiter::of_thread()?;
        let count = fds.len();
        let mut state = self.lock();
        state.settle();
        let now = now();
        let may_sleep = state.arm();
        let due = state.engine.poll_timeout().map(|at| at.nanos_since(now));
        if !may_sleep || due == Some(0) || self.changes() != seen {
            return Ok(());
        }
        for id in ids {
            state.connection(*id).waiters.push(waiter.clone());
        }
        let leads = state.leader.is_none();
        if leads {
            state.leader = Some(waiter.clone());
        } else {
            state.followers.push(waiter.clone());
        }
        let wants_room = state.unsent.0 < state.unsent.1;
        drop(state);
        let limit_ns = if leads {
            [due, limit_ns].into_iter().flatten().min()
        } else {
            limit_ns
        };
        fds.push(pollfd {
            fd: waiter.fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        if leads {
            fds.push(pollfd {
                fd: self.packet_fd,
                events: if wants_room {
                    libc::POLLIN | libc::POLLOUT
                } else {
                    libc::POLLIN
                },
                revents: 0,
            });
            self.serving.fetch_add(1, Ordering::SeqCst);
        }
        let woken = system::poll(fds, limit_ns, mask);
        fds.truncate(count);
        waiter.reset();
        let asleep = Asleep {
            host: self,
            waiter,
            leads,
        };
        asleep.get_up(ids);
        woken.map(drop)
    }
}

impl Asleep<'_> {
    fn get_up(self, ids: &[ConnectionId]) {
        let mut state = self.host.lock();
        for id in ids {
            if let Some(connection) = state.connections.get_mut(id)
                && let Some(at) = connection.waiters.iter().position(|one| Arc::ptr_eq(one, &self.waiter))
            {
                connection.waiters.swap_remove(at);
            }
        }
        if self.leads {
            self.host.serving.fetch_sub(1, Ordering::SeqCst);
            state.leader = None;
            if let Some(next) = state.followers.first() {
                next.wake();
            }
        } else {
            state.followers.retain(|one| !Arc::ptr_eq(one, &self.waiter));
        }
        drop(state);
        self.host.note_activity();
    }
}

/// A host whose engine nobody runs, for the time of a fork.
pub(crate) struct Held {
    // Unlocked before the host is given up.
    _guard: MutexGuard<'static, State>,
    _host: Arc<Host>,
}

impl Held {
    pub(crate) fn new(host: Arc<Host>) -> Self {
        let guard = host.lock();
        // SAFETY: the host lives as long as the guard, which this value drops first.
        let guard = unsafe { std::mem::transmute::<MutexGuard<'_, State>, MutexGuard<'static, State>>(guard) };
        Self {
            _guard: guard,
            _host: host,
        }
    }
}
