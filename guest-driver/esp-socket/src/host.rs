//! One Ethernet interface as this process uses it: the engine with all connections, the port, and the threads that serve both.
//!
//! Whoever makes a call runs the engine in its own thread. A thread that has to wait spins a little and then sleeps on the port itself:
//! one such thread is the *leader*, which all others sleep behind. A thread in the background serves the engine
//! when no call does.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, RawFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use esp::{Address, Config, ConnectionId, Engine, Handover, Options, wire::Names};
use ether::{EtherType, MacAddr, Time};
use libc::{pollfd, sigset_t};
use netif::{AfPacket, Interface, Netif};
use rustix::time::{ClockId, clock_gettime};
use weft_authority::esp::{BLOCK_PORTS, ports_of};

use crate::{
    background,
    connection::Connection,
    errno::Errno,
    own_fds::{self, OwnFd},
    port::Port,
    processes, settings,
    spin::Spin,
    state::State,
    system,
    waiter::Waiter,
};

/// The interval in which the end of a process looks whether its last bytes were acknowledged.
const DELIVERY_LOOK_NS: u64 = 5_000_000;
/// So long a process waits for a peer to learn a connection's port.
const SETTLE_LIMIT_NS: u64 = 2_000_000_000;
/// A peer that was silent for so long is asked whether it is there, in nanoseconds: the kernel ends the connections of a program that is
/// killed, and this is how the peers of ours notice.
const KEEP_ALIVE_NS: u64 = 10_000_000_000;
/// The pause after which a full port is tried again.
const UNSENT_PAUSE_NS: u64 = 50_000;
/// The pause after which a port is tried again whose interface is switched off.
const DOWN_PAUSE_NS: u64 = 10_000_000;
/// How long a thread sleeps at a time that no other thread can wake.
const NAP_NS: u64 = 1_000_000;

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
    /// A second one for packets that are some of many.
    bulk_fd: Option<RawFd>,
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
        let engine = Engine::new(config, crate::random()).map_err(|_| Errno(libc::ENETDOWN))?;
        let packet_fd = parts.port.as_fd().as_raw_fd();
        let bulk_fd = parts.port.bulk_fd().map(|fd| fd.as_raw_fd());
        own_fds::protect(packet_fd);
        bulk_fd.into_iter().for_each(own_fds::protect);
        let ports = ports_of(parts.block);
        let port = Port::new(
            parts.port,
            engine.frame_len_max(),
            parts.interface.index.cast_unsigned(),
        );
        let changes = Arc::new(AtomicU64::new(0));
        let host = Arc::new(Self {
            changes: changes.clone(),
            interface: parts.interface,
            packet_fd,
            bulk_fd,
            state: Mutex::new(State::new(engine, port, parts.report, changes)),
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
        self.bulk_fd.into_iter().for_each(own_fds::release);
        let mut state = self.lock();
        state.port.close();
        state.report = None;
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
        state.port.has_frame()
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

    /// Returns the descriptors that become readable when a frame comes.
    pub(crate) fn frame_fds(&self) -> impl Iterator<Item = RawFd> {
        [self.packet_fd].into_iter().chain(self.bulk_fd)
    }

    /// After a poll of descriptors that may be among them.
    pub(crate) fn note_polled(&self, fds: &[pollfd]) {
        let is_bulk = |one: &pollfd| Some(one.fd) == self.bulk_fd && one.revents != 0;
        if fds.iter().any(is_bulk) {
            self.note_bulk();
        }
    }

    /// The descriptor for packets that are some of many was readable.
    pub(crate) fn note_bulk(&self) {
        self.lock().port.bulk_came(now());
    }

    /// Returns a number that another one follows when something happens to a connection: for [`sleep`](Self::sleep).
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Serves the engine without a call. Returns the nanoseconds until it wants to be served again without a frame.
    pub(crate) fn serve_once(&self) -> Option<u64> {
        let mut state = self.lock();
        let now = now();
        state.receive(now);
        state.settle();
        state.transmit(now);
        state.settle();
        if state.port.is_full() {
            return Some(UNSENT_PAUSE_NS);
        }
        if state.port.arm() {
            state.engine.poll_timeout().map(|at| at.nanos_since(now))
        } else {
            Some(if state.port.is_down() { DOWN_PAUSE_NS } else { 0 })
        }
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
        let Ok(waiter) = Waiter::of_thread() else {
            return self.nap(fds, limit_ns, mask);
        };
        let count = fds.len();
        let mut state = self.lock();
        state.settle();
        let now = now();
        let may_sleep = state.port.arm();
        let due = state.engine.poll_timeout().map(|at| at.nanos_since(now));
        if !may_sleep || due == Some(0) || self.changes() != seen {
            return Ok(());
        }
        for id in ids {
            state.connection(*id).waiters.push(waiter.clone());
        }
        let leads = state.sleepers.lie_down(&waiter);
        let wants_room = state.port.is_full();
        drop(state);
        let limit_ns = if leads {
            [due, limit_ns].into_iter().flatten().min()
        } else {
            limit_ns
        };
        fds.push(system::readable(waiter.fd()));
        if leads {
            fds.extend(self.frame_fds().map(system::readable));
            if wants_room {
                fds[count + 1].events |= libc::POLLOUT;
            }
            self.serving.fetch_add(1, Ordering::SeqCst);
        }
        let woken = system::poll(fds, limit_ns, mask);
        self.note_polled(&fds[count..]);
        fds.truncate(count);
        waiter.reset();
        self.get_up(&waiter, leads, ids);
        woken.map(drop)
    }

    /// Sleeps for a moment, as a thread does that no other one can wake, since the program has no descriptor left for that.
    fn nap(&self, fds: &mut [pollfd], limit_ns: Option<u64>, mask: *const sigset_t) -> Result<(), Errno> {
        let limit_ns = limit_ns.map_or(NAP_NS, |limit_ns| limit_ns.min(NAP_NS));
        let woken = system::poll(fds, Some(limit_ns), mask);
        self.note_activity();
        woken.map(drop)
    }

    /// A thread woke that slept for something to happen to `ids`.
    fn get_up(&self, waiter: &Arc<Waiter>, leads: bool, ids: &[ConnectionId]) {
        let mut state = self.lock();
        for id in ids {
            if let Some(connection) = state.connections.get_mut(id) {
                connection.forget_waiter(waiter);
            }
        }
        if leads {
            self.serving.fetch_sub(1, Ordering::SeqCst);
        }
        state.sleepers.get_up(waiter, leads);
        drop(state);
        self.note_activity();
    }
}
