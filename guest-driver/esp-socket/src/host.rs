//! One Ethernet interface as this process uses it: the engine with all connections, the port, and the threads that serve both.
//!
//! Whoever makes a call runs the engine in its own thread. A thread that has to wait spins a little and then sleeps on the port itself:
//! one such thread is the *leader*, which all others sleep behind. A thread in the background serves the engine
//! when no call does.

use std::{
    collections::HashMap,
    hash::BuildHasherDefault,
    os::fd::{AsFd, AsRawFd, RawFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use esp::{Config, ConnectionId, Engine};
use ether::{EtherType, Time};
use netif::{AfPacket, Interface};
use rustix::time::{ClockId, clock_gettime};
use weft_authority::esp::{BLOCK_PORTS, ports_of};

pub(crate) use crate::{
    background, connection::Connection, errno::Errno, id_hasher::IdHasher, own_fds, port::Port, processes, settings,
    spin::Spin, waiter::Waiter,
};

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
    pub(crate) first_port: u16,
    /// Blocks of wire ports.
    pub(crate) blocks: Vec<u8>,
    /// The process that made this.
    pub(crate) generation: u32,
}

/// What a host's lock protects.
pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) port: Port,
    pub(crate) connections: HashMap<ConnectionId, Connection, BuildHasherDefault<IdHasher>>,
    pub(crate) changes: Arc<AtomicU64>,
    /// The thread that sleeps on the port, and those that sleep behind it.
    pub(crate) leader: Option<Arc<Waiter>>,
    pub(crate) followers: Vec<Arc<Waiter>>,
    /// The wire port of the block that is tried next.
    pub(crate) next_port: u16,
    /// Bytes that a connection keeps for sending.
    pub(crate) send_len: usize,
}

impl State {
    /// Takes frames from the port, and does what is due.
    #[inline]
    pub(crate) fn receive(&mut self, now: Time) {
        self.port.receive(&mut self.engine, now);
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
    }

    /// Sends what the engine wants to send; stops when the port is full.
    #[inline]
    pub(crate) fn transmit(&mut self, now: Time) {
        self.port.transmit(&mut self.engine, now);
    }

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
}

/// What a host is made of.
pub(crate) struct HostParts {
    pub(crate) interface: Interface,
    pub(crate) ether_type: EtherType,
    pub(crate) port: AfPacket,
    pub(crate) block: u8,
}

impl Host {
    /// Makes the host of an interface, and starts its thread.
    pub(crate) fn new(parts: HostParts) -> Result<Arc<Self>, Errno> {
        let mtu = u16::try_from(parts.interface.mtu).unwrap_or(u16::MAX);
        let mut config = Config::new(parts.interface.mac, mtu);
        config.ether_type = parts.ether_type;
        let send_len = config.send_buffer as usize;
        let engine = Engine::new(config, crate::random()).map_err(|_| Errno(libc::ENETDOWN))?;
        let packet_fd = parts.port.as_fd().as_raw_fd();
        own_fds::protect(packet_fd);
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
            state: Mutex::new(State {
                engine,
                port,
                connections: HashMap::default(),
                changes,
                leader: None,
                followers: Vec::new(),
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

    /// Returns how long a thread spins before it sleeps.
    pub(crate) const fn spin_ns(&self) -> u64 {
        self.spin_ns
    }

    /// Whether a frame waits; `false` also while another thread runs the engine.
    pub(crate) fn has_frame(&self) -> bool {
        let Ok(mut state) = self.state.try_lock() else {
            return false;
        };
        !state.port.arm()
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

    /// Returns a number that another one follows when something happens to a connection: for [`sleep`](Self::sleep).
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }
}
