//! An open endpoint: how it is opened, entered, advanced and closed.

use std::{
    fs::File,
    io::Read,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use ether::{EtherType, MacAddr, Time};
use mxoe::{
    engine::{Config, DataPath, DataPathChoice, Engine, Limits, PeerMap},
    wire::{Preset, SESSION_NONE},
};
use netif::Netif;
use rustix::process::getpid;
use weft_authority::{CounterPage, Session};

use crate::{
    Address, Board, EndpointOptions, Error, binding, clock, environment,
    gather::Gather,
    handler, helper,
    late::LateConnects,
    local::{Local, LocalOptions, PAYLOAD_LEN_MAX},
    number::OpenNumber,
    pace::{Pace, REST_NS},
    peers::{EndpointPeers, SharedPeers},
    progress::Core,
    request::PARTNER_SELF,
    shared::{Locked, Shared},
    sleepers::Sleepers,
    store::Store,
    transmit::Burst,
};

/// Bytes of an endpoint's receive ring, as the authority sets it up by default.
const RING_LEN: usize = 4 << 20;
/// Looks of a thread that spins between two releases of the lock: a few hundred nanoseconds, unless another thread wants it.
const SPIN_LOOKS: u32 = 16;
/// Peers of a port without an authority.
const OWN_PEERS_MAX: u32 = mxoe::engine::PEERS_DEFAULT;

/// An endpoint's place with the authority of its interface.
struct Authority {
    session: Arc<Mutex<Session>>,
    board: Board,
    visits: OwnedFd,
    page: CounterPage,
    pull_queue_ns_max: u64,
    ether_type: EtherType,
    marks: bool,
    data_path: DataPathChoice,
}

/// An open endpoint. Clones are the same endpoint; it is closed by [`Endpoint::close`] or with the last clone. All calls may be
/// made from any thread.
#[derive(Clone)]
pub struct Endpoint {
    pub(crate) shared: Arc<Shared>,
    _open: Arc<Open>,
}

/// What all clones of an endpoint have, and the helper thread has not: that may be anywhere when the last of them goes.
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A thread of the program inside a call.
pub(crate) struct Inside<'a>(&'a Shared);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
        if self.0.looked_at_rarely.load(Ordering::SeqCst) {
            helper::look_soon(self.0);
        }
    }
}

impl Endpoint {
    /// Opens an endpoint on an interface, with its authority.
    ///
    /// # Errors
    /// [`Error::BoardNotFound`], [`Error::Busy`], [`Error::BadEndpoint`], [`Error::BadParameter`],
    /// [`Error::AccessDenied`], [`Error::Authority`].
    pub fn open(options: &EndpointOptions) -> Result<Self, Error> {
        options.context_mask()?;
        let board = match &options.interface {
            Some(name) => Board::named(name)?,
            None => Board::first()?,
        };
        let session = Session::connect(board.interface())?;
        let opened = session.open_endpoint(options.endpoint)?;
        let session = Arc::new(Mutex::new(session));
        let mac = opened.table.own_mac();
        let limits = EndpointOptions::limits(RING_LEN, opened.preset);
        let peers = EndpointPeers::Shared(SharedPeers::new(opened.table, Arc::clone(&session)));
        let port = Box::new(opened.port);
        let identity = (mac, opened.endpoint, opened.preset);
        let authority = Authority {
            session,
            board,
            visits: opened.visits,
            page: opened.counters,
            pull_queue_ns_max: opened.pull_queue_ns_max,
            ether_type: opened.ether_type,
            marks: opened.marks,
            data_path: opened.data_path,
        };
        let endpoint = Self::assemble(options, identity, limits, port, peers, Some(authority))?;
        binding::bind(mac, opened.endpoint);
        endpoint.introduce(opened.preset);
        Ok(endpoint)
    }

    /// Opens an endpoint on a port of the program's own, which no authority serves: inside one process, for tests. Its number
    /// is that of the options, or 0.
    ///
    /// # Errors
    /// [`Error::BadParameter`], [`Error::System`].
    pub fn open_on(options: &EndpointOptions, port: Box<dyn Netif + Send>, preset: Preset) -> Result<Self, Error> {
        let identity = (port.mac(), options.endpoint.unwrap_or(0), preset);
        let peers = EndpointPeers::Own(PeerMap::new(OWN_PEERS_MAX, random()?));
        Self::assemble(options, identity, Limits::DEFAULT, port, peers, None)
    }

    fn assemble(
        options: &EndpointOptions,
        (mac, endpoint, preset): (MacAddr, u8, Preset),
        limits: Limits,
        port: Box<dyn Netif + Send>,
        peers: EndpointPeers,
        authority: Option<Authority>,
    ) -> Result<Self, Error> {
        let context_mask = options.context_mask()?;
        let system = |what| move |source| Error::System { what, source };
        let seed = random()?;
        let number = OpenNumber::take()?;
        let session = match random()? as u32 {
            SESSION_NONE => 0,
            session => session,
        };
        let mut config = Config::new(mac, endpoint, session, preset);
        config.key = options.key;
        config.limits = limits;
        config.seed = seed;
        config.timing.give_up_ns = options.give_up.as_nanos() as u64;
        config.timing.ack_messages_max = options.ack_messages_max;
        config.limits.zombies = options.early_completed_max;
        config.rndv_threshold = options.rndv_threshold.min(preset.sizes().medium_len_max());
        let own = Address {
            mac: mac.0,
            endpoint,
            opened_by: number.0,
            partner: PARTNER_SELF,
            session,
        };
        let port_fd = port.as_fd().try_clone_to_owned().map_err(system("watch the port"))?;
        let bulk_fd = port.bulk_fd().map(|fd| fd.try_clone_to_owned());
        let bulk_fd = bulk_fd.transpose().map_err(system("watch the port"))?;
        if bulk_fd.is_some() {
            config.data_path = DataPathChoice::Fixed(DataPath::Apart);
        }
        let mut local = None;
        let mut page = None;
        let (mut keeper, mut board) = (None, None);
        if let Some(authority) = authority {
            config.timing.pull_queue_ns_max = authority.pull_queue_ns_max;
            config.dialect = config.dialect.with_ether_type(authority.ether_type);
            config.data_path = authority.data_path;
            if !authority.marks {
                config = config.without_marks();
            }
            let options = LocalOptions {
                session,
                key: options.key,
                rndv_threshold: options.shared_rndv_threshold.min(PAYLOAD_LEN_MAX as u32),
                give_up_ns: config.timing.give_up_ns,
                single_copy: options.single_copy,
            };
            local = Some(Local::new(options, Arc::clone(&authority.session), authority.visits)?);
            page = Some(authority.page);
            (keeper, board) = (Some(authority.session), Some(authority.board));
        }
        let others_fd = local
            .as_ref()
            .map(Local::watched)
            .transpose()
            .map_err(system("watch other programs"))?;
        let mut engine = Engine::new(config, peers);
        for (what, every) in &options.packet_loss {
            engine.set_packet_loss(*what, *every);
        }
        let mut store = Store::new(options.unexpected_bytes_max, seed);
        store.copies.keep_registrations(options.registrations_kept);
        let mut core = Core {
            engine,
            store,
            port,
            burst: Burst::new(),
            gather: Gather::new(),
            pace: Pace::new(),
            local,
            loopback: None,
            others_by_frames: options.others_by_frames,
            late: LateConnects::NONE,
            page,
            own,
            now: clock::now(),
            idle_looks: 0,
            context_mask,
            copies_mediums: options.copies_mediums,
            _number: number,
            sleepers: Sleepers::new()?,
            stopped: 0,
            stopped_by_program: false,
            handler: None,
            failure_handler: None,
            handler_runs: None,
            closed: false,
            process: getpid(),
        };
        if options.others_by_frames {
            core.loop_back();
        }
        if options.self_by_frames {
            core.meet_itself()?;
        }
        let own = core.own;
        let shared = Arc::new(Shared {
            core: Mutex::new(core),
            port_fd,
            bulk_fd,
            others_fd,
            signals_end_waits: options.signals_end_waits,
            wakeups: AtomicU64::new(0),
            waiting: options.waiting,
            wanting: AtomicU32::new(0),
            inside: AtomicU32::new(0),
            stepped_at: AtomicU64::new(clock::now().as_nanos()),
            looked_at_rarely: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            holds: AtomicBool::new(false),
            helped: options.progress,
            connects_for_all: options.connects_for_all,
            over: AtomicBool::new(false),
            sought: Arc::default(),
            session: keeper,
            board,
            process: getpid(),
            own,
        });
        helper::register(&shared)?;
        let endpoint = Self {
            _open: Arc::new(Open(Arc::clone(&shared))),
            shared,
        };
        Ok(endpoint)
    }

    /// One line for a program that wants to know (`OMX_VERBOSE`).
    fn introduce(&self, preset: Preset) {
        let Some(board) = self.board().filter(|_| environment::verbose()) else {
            return;
        };
        let peers = match &self.shared.session {
            Some(session) => session
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .status()
                .map_or(0, |(_, table)| table.len().saturating_sub(1)),
            None => 0,
        };
        environment::say(
            Some((self.shared.own_endpoint(), board)),
            &format!(
                "endpoint {} on {} ({}), {} sizes on the wire, {peers} peers known; paths: net for other hosts, shm for endpoints of this one, self",
                self.shared.own_endpoint(),
                board.interface().name,
                self.shared.own.mac(),
                preset,
            ),
        );
    }

    /// The endpoint's own address; what is sent to it is received here.
    pub fn address(&self) -> Address {
        self.shared.own
    }

    /// The interface, where the endpoint was opened on one.
    pub fn board(&self) -> Option<&Board> {
        self.shared.board.as_ref()
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        self.shared.lock()
    }

    /// A call of the program begins.
    #[inline]
    pub(crate) fn enter(&self) -> Inside<'_> {
        let shared = &*self.shared;
        shared.inside.fetch_add(1, Ordering::SeqCst);
        if shared.watched.load(Ordering::SeqCst) {
            helper::leave_to_program(shared);
        }
        Inside(shared)
    }

    /// A call of the program ends that held the lock and did not sleep: it needs no [`Endpoint::enter`], for what the helper
    /// thread said before it took the lock is seen now, and otherwise the helper found the lock taken. Last of all, as to wake a
    /// thread takes longer than to send a message.
    #[inline]
    pub(crate) fn leave(&self) {
        if self.shared.watched.load(Ordering::Relaxed) {
            helper::leave_to_program(&self.shared);
        }
    }

    /// Makes progress and shows the handler what came; ends with the lock.
    #[inline]
    pub(crate) fn advance(&self, now: Option<Time>) -> Locked<'_> {
        let mut core = self.lock();
        core.gather.end_row();
        let before = core.completions();
        self.step(core, now, before)
    }

    /// The same with the lock, for a call in which requests may have completed already.
    #[inline]
    pub(crate) fn step<'a>(&'a self, mut core: Locked<'a>, now: Option<Time>, completions_before: u64) -> Locked<'a> {
        core.step(now);
        self.stepped(core, completions_before)
    }

    /// Spins for a while: looks until something happened or another thread wants the lock, a few times at most.
    #[inline]
    pub(crate) fn spin<'a>(&'a self, mut core: Locked<'a>) -> Locked<'a> {
        let before = core.completions();
        if core.pace.take_rest() {
            self.rest(&mut core);
        }
        for _ in 0..SPIN_LOOKS {
            if core.spin() || self.shared.wanting.load(Ordering::Relaxed) > 0 {
                break;
            }
        }
        self.stepped(core, before)
    }

    /// Looks at nothing for a while, unless another thread wants the lock.
    fn rest(&self, core: &mut Core) {
        core.now = clock::now();
        let until_ns = core.now.as_nanos() + REST_NS;
        while core.now.as_nanos() < until_ns && self.shared.wanting.load(Ordering::Relaxed) == 0 {
            std::hint::spin_loop();
            core.now = clock::now();
        }
    }

    /// After progress: others learn of it.
    #[inline]
    pub(crate) fn stepped<'a>(&'a self, mut core: Locked<'a>, completions_before: u64) -> Locked<'a> {
        self.shared.stepped_at.store(core.now.as_nanos(), Ordering::Relaxed);
        core.wake_if(completions_before);
        if core.store.requests.has_unheard() {
            core = handler::tell_failures(self, core);
        }
        if core.store.unseen.is_empty() {
            return core;
        }
        let before = core.completions();
        let mut core = handler::run(self, core);
        core.wake_if(before);
        core
    }

    /// Closes the endpoint: acknowledgements that are due go out, everything pending is dropped, and calls on other clones
    /// find it closed.
    ///
    /// # Errors
    /// [`Error::InHandler`].
    pub fn close(self) -> Result<(), Error> {
        if self.shared.is_a_childs() {
            return Ok(());
        }
        let _inside = self.enter();
        if self.is_in_handler() {
            return Err(Error::InHandler);
        }
        self.shared.close();
        Ok(())
    }
}

impl Core {
    /// Wakes whoever sleeps if requests were completed since.
    #[inline]
    pub(crate) fn wake_if(&mut self, completions_before: u64) {
        if self.completions() != completions_before {
            self.sleepers.wake();
        }
    }

    /// The last frames of the endpoint.
    pub(crate) fn finish(&mut self) {
        if self.closed {
            return;
        }
        if self.process != getpid() {
            // A child's copy: the acknowledgements are its parent's to send.
            self.closed = true;
            return;
        }
        let now = clock::now();
        self.engine.flush_acks();
        self.flush(now);
        self.publish();
        if let Some(local) = &mut self.local {
            local.close();
        }
        self.closed = true;
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.finish();
    }
}

/// A number that nobody can guess.
fn random() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|source| Error::System {
            what: "get a random number",
            source,
        })?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_closed_with_its_last_clone_wherever_the_helper_thread_is() {
        let macs = [1, 2].map(|last| MacAddr([2, 0, 0, 0, 0, last]));
        let (port, _other) = netif::memory_pair(macs, 9000, 16).unwrap();
        let endpoint = Endpoint::open_on(&EndpointOptions::default(), Box::new(port), Preset::Native9000).unwrap();
        // As the helper thread has it while it looks after the endpoint.
        let helped = Arc::clone(&endpoint.shared);
        let clone = endpoint.clone();
        drop(endpoint);
        assert!(!helped.lock().closed, "a clone is there");
        drop(clone);
        assert!(helped.lock().closed);
    }

    #[test]
    fn handlers_that_own_their_endpoint_keep_nothing_of_it_when_it_is_closed() {
        let macs = [1, 2].map(|last| MacAddr([2, 0, 0, 0, 0, last]));
        let (port, _other) = netif::memory_pair(macs, 9000, 16).unwrap();
        let endpoint = Endpoint::open_on(&EndpointOptions::default(), Box::new(port), Preset::Native9000).unwrap();
        let owners = [endpoint.clone(), endpoint.clone()];
        let [unexpected, failure] = owners;
        endpoint.set_unexpected_handler(Some(Box::new(move |_, _| {
            unexpected.progress();
            crate::Action::Continue
        })));
        endpoint.set_failure_handler(Some(Arc::new(move |_, _| failure.progress())));
        let left = Arc::downgrade(&endpoint._open);
        endpoint.close().unwrap();
        assert!(left.upgrade().is_none());
    }
}
