//! The state of an endpoint: its operations, its peers, and the translation of the ends of requests to completions.
//!
//! One lock guards it. It is taken before the lock of the library's endpoint and before that of a completion queue, never
//! behind them.

mod access;
mod connection;
mod errors;
mod kept;
mod operation;
mod receive;
mod serve;
mod statistics;
mod transmit;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ffi::c_void,
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize},
    },
    time::{Duration, Instant},
};

use omx::{Address, Claim, EndpointOptions, Error, Request, SourceKey, Status, StatusCode};
use slab::Slab;

use self::{
    access::CARRIES,
    connection::Connection,
    errors::meaning,
    kept::Kept,
    operation::{Kind, Operation, PREFIX_LEN, Remote, Sent},
    serve::Service,
    statistics::Statistics,
};
pub(super) use self::{access::RemoteAccess, errors::error_number, receive::Receive, transmit::Message};
use crate::{
    abi::*,
    address::PeerAddress,
    address_vector::AddressVector,
    bound::Progress,
    completion_queue::{Completion, CompletionQueue, Failure},
    counter::Counter,
    domain::Domain,
    info::TAG_MASK,
    log::{Level, log},
    regions::{Regions, ServesRegions},
};

/// The connection key of the provider's endpoints: programs with another interface cannot connect by mistake.
const KEY: u32 = 0x6d78_6669;
/// Messages for untagged receives have this bit in their match information.
pub(super) const UNTAGGED: u64 = 1 << 63;
/// Requests with this bit in their context are connections; the others are the numbers of operations.
const CONNECTION: u64 = 1 << 63;
/// An endpoint that is closed waits so long for its peers to acknowledge what it sent.
const LINGER: Duration = Duration::from_secs(10);
/// The longest message to another host that is sent at once, its prefix included: 32 KiB of a program's, as its users know of MX. 64 and
/// 128 KiB took four ranks on two hosts as long as announced messages (veth, MTU 9000), and hold more of a peer's memory.
const EAGER_LEN_MAX: u32 = (32 << 10) + PREFIX_LEN as u32;
/// The longest within a host that is sent at once: what goes through the shared ring. Above it one copy costs less than two.
const SHARED_EAGER_LEN_MAX: u32 = 32 << 10;
/// The messages that are taken from the library at once.
const TAKEN_MAX: usize = 64;
/// The operations that are kept for reuse.
const SPARE_MAX: usize = 256;

/// The peers whose numbers are found without a search, if no two of them share a place.
const SOURCES: usize = 64;

/// A completion queue that an endpoint is bound to.
#[derive(Clone)]
pub(super) struct QueueBinding {
    pub(super) queue: Arc<CompletionQueue>,
    /// Only operations that ask for it have an entry.
    pub(super) is_selective: bool,
}

/// The objects that an endpoint is bound to.
#[derive(Default)]
pub(super) struct Bindings {
    pub(super) peers: Option<Arc<AddressVector>>,
    pub(super) transmit_queue: Option<QueueBinding>,
    pub(super) receive_queue: Option<QueueBinding>,
    /// Counters, with the kinds of operations that they count.
    pub(super) counters: Vec<(u64, Arc<Counter>)>,
}

impl Bindings {
    /// Whether a receive with these flags has an entry in its queue when it succeeds.
    fn shows_receive(&self, flags: u64) -> bool {
        let is_selective = self.receive_queue.as_ref().is_some_and(|binding| binding.is_selective);
        !is_selective || flags & FI_COMPLETION != 0
    }
}

/// The guarded part of an endpoint.
pub(super) struct Guarded {
    pub(super) bindings: Bindings,
    operations: Slab<Operation>,
    /// The numbers of operations that are over.
    spare: Vec<usize>,
    connections: Vec<Connection>,
    /// The sends that wait for connections.
    kept: Kept,
    service: Service,
    /// The changes of the address vector that connections and sources know of.
    changes_known: u64,
    /// The numbers of peers that messages came from, in places that several peers may share.
    sources: [Option<(SourceKey, FiAddr)>; SOURCES],
    /// Messages that a program claimed, by its context.
    pub(super) claims: HashMap<usize, Claim>,
    /// The buffer for many messages that takes all untagged messages now.
    pub(super) multi_receive: Option<usize>,
    /// Untagged receives that were posted behind that buffer.
    pub(super) behind: VecDeque<usize>,
    taken: Vec<(Request, Status)>,
    /// The failures that the user was told of: each once for each peer.
    told: HashSet<(Option<SourceKey>, StatusCode)>,
    statistics: Statistics,
}

/// An endpoint.
pub(crate) struct State {
    pub(super) omx: omx::Endpoint,
    /// Messages can be received from one peer alone.
    pub(super) is_directed: bool,
    /// The program wants to know where messages come from.
    tells_source: bool,
    /// The endpoint may access the memory of others, and they its domain's.
    has_remote_access: bool,
    regions: Arc<Regions>,
    pub(super) enabled: AtomicBool,
    /// The flags of sends that are given none.
    pub(super) transmit_flags: AtomicU64,
    /// The flags of receives that are given none.
    pub(super) receive_flags: AtomicU64,
    /// A buffer for many messages with less room than this is given back.
    pub(super) min_multi_receive_len: AtomicUsize,
    guarded: Mutex<Guarded>,
}

impl State {
    /// Opens an endpoint on the interface of its domain, which keeps up to `sends_kept_max` sends until their peers are connected.
    ///
    /// # Errors
    /// Those of [`omx::Endpoint::open`].
    pub(super) fn open(
        domain: &Domain,
        caps: u64,
        flags: (u64, u64),
        sends_kept_max: usize,
    ) -> Result<Arc<Self>, Error> {
        let options = EndpointOptions {
            interface: domain.interface().map(str::to_owned),
            key: KEY,
            announces_head: true,
            ..EndpointOptions::default()
        }
        .sending_eagerly(EAGER_LEN_MAX, SHARED_EAGER_LEN_MAX);
        let omx = omx::Endpoint::open(&options)?;
        omx.set_failure_handler(Some(Arc::new(|_, code| {
            // A peer that is closed got what it waited for, and its last acknowledgement was lost.
            let level = if code == StatusCode::EndpointClosed {
                Level::Info
            } else {
                Level::Error
            };
            log(level, || {
                format!("a message that was already complete was lost: {code}")
            });
        })));
        let own = omx.address();
        log(Level::Info, || {
            format!("opened endpoint {} of {}", own.endpoint(), own.mac())
        });
        let state = Arc::new(Self {
            omx,
            is_directed: caps & FI_DIRECTED_RECV != 0,
            tells_source: caps & FI_SOURCE != 0,
            has_remote_access: caps & (FI_RMA | FI_ATOMIC) != 0 && domain.has_regions(),
            regions: Arc::clone(domain.regions()),
            enabled: AtomicBool::new(false),
            transmit_flags: AtomicU64::new(flags.0),
            receive_flags: AtomicU64::new(flags.1),
            min_multi_receive_len: AtomicUsize::new(64),
            guarded: Mutex::new(Guarded::new(sends_kept_max)),
        });
        let serves: Arc<dyn ServesRegions> = Arc::clone(&state) as _;
        state.regions.add_endpoint(Arc::downgrade(&serves));
        // A send that was kept goes out while the program computes. The endpoint's handler must not keep it.
        let served = Arc::downgrade(&state);
        state.omx.set_help_handler(Some(Arc::new(move || {
            if let Some(state) = served.upgrade() {
                state.take_completions(&mut state.lock());
            }
        })));
        Ok(state)
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, Guarded> {
        self.guarded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the endpoint's own address.
    pub(super) fn address(&self) -> PeerAddress {
        let own = self.omx.address();
        PeerAddress {
            mac: own.mac(),
            endpoint: own.endpoint(),
            session: own.session(),
        }
    }

    /// Hands the requests that are over to their queues.
    pub(super) fn take_completions(&self, guarded: &mut Guarded) {
        let mut taken = std::mem::take(&mut guarded.taken);
        // An endpoint that is closed has no more completions.
        let _ = self.omx.take_completed(TAKEN_MAX, &mut taken);
        for (_, status) in taken.drain(..) {
            self.over(guarded, &status);
        }
        guarded.taken = taken;
        if !guarded.kept.is_empty() {
            self.post_kept(guarded);
        }
        if !guarded.service.owed.is_empty() {
            self.send_owed(guarded);
        }
    }

    /// Makes the completion of a request that is over. Its context is the number of its operation.
    fn over(&self, guarded: &mut Guarded, status: &Status) {
        if status.context & CONNECTION != 0 {
            return self.connected(guarded, status.context & !CONNECTION, status);
        }
        let number = (status.context & !CARRIES) as usize;
        let Some(operation) = guarded.operations.get(number) else {
            return;
        };
        let kind = operation.kind;
        match kind {
            Kind::None => {}
            Kind::Access(_) if status.context & CARRIES != 0 => self.carried(guarded, number, status),
            Kind::Access(header) => self.answered(guarded, number, &header, status),
            Kind::Request => self.requested(guarded, number, status),
            Kind::Landing(header) => self.landed(guarded, number, &header, status),
            Kind::Answer(_) => self.served(guarded, number),
            Kind::Send => {
                let failure = match status.code {
                    // That the peer took less is the peer's to know.
                    StatusCode::Success | StatusCode::Truncated => None,
                    code => Some(self.failure(guarded, code, status.address)),
                };
                let sent = guarded.operations[number].sent();
                guarded.release(number);
                self.complete_send(guarded, &sent, failure);
            }
            Kind::Receive | Kind::MultiReceive { .. } => {
                let completion = self.received(guarded, number, status);
                match kind {
                    Kind::MultiReceive { used } => self.filled(guarded, number, used, completion),
                    _ => {
                        let is_visible = guarded.operations[number].is_visible;
                        guarded.release(number);
                        self.complete_receive(guarded, completion, is_visible);
                    }
                }
            }
        }
    }

    /// Translates the end of a request that failed, and tells the user once what helps.
    fn failure(&self, guarded: &mut Guarded, code: StatusCode, address: Option<Address>) -> Failure {
        let is_new = guarded.told.insert((address.map(|address| address.source_key()), code));
        let is_on_this_host = address.is_some_and(|address| self.is_on_this_host(address.mac()));
        let (err, advice) = meaning(code, is_on_this_host);
        if is_new && let Some(advice) = advice {
            let peer = address.map_or_else(
                || "a peer".to_owned(),
                |address| format!("endpoint {} of {}", address.endpoint(), address.mac()),
            );
            log(Level::Error, || format!("{peer}: {code}; {advice}"));
        }
        Failure { err, overflow_len: 0 }
    }

    /// Describes the message that a receive took.
    fn received(&self, guarded: &mut Guarded, number: usize, status: &Status) -> Completion {
        let failure = match status.code {
            StatusCode::Success | StatusCode::Truncated => None,
            code => Some(self.failure(guarded, code, status.address)),
        };
        let operation = &guarded.operations[number];
        let beyond_prefix = |len: u32| (len as usize).saturating_sub(PREFIX_LEN);
        let len = beyond_prefix(status.transferred);
        let data = operation.prefix().data();
        let entry = FiCqTaggedEntry {
            op_context: operation.context,
            flags: operation.flags | if data.is_some() { FI_REMOTE_CQ_DATA } else { 0 },
            len,
            buf: operation.buffer,
            data: data.unwrap_or(0),
            tag: status.match_info & TAG_MASK,
        };
        let truncated = (status.code == StatusCode::Truncated).then(|| Failure {
            err: FI_ETRUNC,
            overflow_len: beyond_prefix(status.length) - len,
        });
        Completion {
            entry,
            source: self.source(guarded, status.address),
            failure: failure.or(truncated),
        }
    }

    /// Returns the number of the peer that a message came from.
    pub(super) fn source(&self, guarded: &mut Guarded, address: Option<Address>) -> FiAddr {
        let Some(address) = address.filter(|_| self.tells_source) else {
            return FI_ADDR_NOTAVAIL;
        };
        guarded.notice_changes();
        let Some(vector) = &guarded.bindings.peers else {
            return FI_ADDR_NOTAVAIL;
        };
        let source = address.source_key();
        let place = usize::from(address.mac().0[5]) * 8 + usize::from(address.endpoint());
        let place = &mut guarded.sources[place % SOURCES];
        match place {
            Some((known, number)) if *known == source => *number,
            _ => {
                let number = vector.peers().number(source);
                *place = Some((source, number));
                number
            }
        }
    }

    /// Makes the completion of a send or an access that is over.
    fn complete_send(&self, guarded: &Guarded, sent: &Sent, failure: Option<Failure>) {
        self.count(guarded, sent.flags & (FI_SEND | FI_READ | FI_WRITE), failure.is_some());
        let Some(binding) = &guarded.bindings.transmit_queue else {
            return;
        };
        // A failure is told whether the program wants completions or not, unless it could not tell what failed.
        if failure.map_or(sent.is_visible, |_| !sent.context.is_null()) {
            let entry = FiCqTaggedEntry {
                op_context: sent.context,
                flags: sent.flags,
                len: 0,
                buf: ptr::null_mut(),
                data: 0,
                tag: 0,
            };
            let completion = Completion {
                entry,
                source: FI_ADDR_NOTAVAIL,
                failure,
            };
            binding.queue.push(completion, &self.omx);
        }
    }

    /// Makes the completion of a receive that is over.
    pub(super) fn complete_receive(&self, guarded: &mut Guarded, completion: Completion, is_visible: bool) {
        let Completion { entry, failure, .. } = &completion;
        self.count(guarded, FI_RECV, failure.is_some());
        if failure.is_none() {
            guarded.statistics.received(entry.len);
        }
        // As for a send.
        if failure.map_or(is_visible, |_| !entry.op_context.is_null()) {
            self.tell_receive(guarded, completion);
        }
    }

    /// Adds an entry to the queue of receives.
    pub(super) fn tell_receive(&self, guarded: &Guarded, completion: Completion) {
        if let Some(binding) = &guarded.bindings.receive_queue {
            binding.queue.push(completion, &self.omx);
        }
    }

    fn count(&self, guarded: &Guarded, kind: u64, failed: bool) {
        let counters = guarded.bindings.counters.iter();
        for (_, counter) in counters.filter(|(kinds, _)| kinds & kind != 0) {
            counter.count(failed, &self.omx);
        }
    }

    /// Cancels a receive. `FI_ENOENT`: there is none with this context that has no message.
    pub(super) fn cancel(&self, context: *mut c_void) -> isize {
        let mut guarded = self.lock();
        let found = guarded
            .operations
            .iter()
            .find(|(_, operation)| operation.is_receive() && operation.context == context);
        let Some((number, operation)) = found else {
            return -FI_ENOENT as isize;
        };
        match operation.request {
            Some(request) if !self.omx.cancel(request).unwrap_or(false) => return -FI_ENOENT as isize,
            Some(_) => {}
            None => guarded.behind.retain(|waiting| *waiting != number),
        }
        let operation = &guarded.operations[number];
        let entry = FiCqTaggedEntry {
            op_context: context,
            flags: operation.flags,
            len: 0,
            buf: operation.buffer,
            data: 0,
            tag: 0,
        };
        guarded.release(number);
        if guarded.multi_receive == Some(number) {
            self.next_multi_receive(&mut guarded);
        }
        let failure = Failure {
            err: FI_ECANCELED,
            overflow_len: 0,
        };
        let completion = Completion {
            entry,
            source: FI_ADDR_NOTAVAIL,
            failure: Some(failure),
        };
        self.complete_receive(&mut guarded, completion, true);
        0
    }

    /// Waits until no send is kept. False: there still are some at that time.
    fn post_all_kept(&self, until: Instant) -> bool {
        loop {
            let wakes = self.wakes();
            let mut guarded = self.lock();
            self.take_completions(&mut guarded);
            if guarded.kept.is_empty() {
                return true;
            }
            drop(guarded);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.wait(wakes, Some(left));
        }
    }

    /// Closes the endpoint. What was sent is delivered first, as long as peers answer.
    pub(super) fn close(self: &Arc<Self>) {
        let until = Instant::now() + LINGER;
        let left = || until.saturating_duration_since(Instant::now());
        if !self.post_all_kept(until) || !matches!(self.omx.wait_delivered(left()), Ok(true)) {
            log(Level::Warn, || "closed before everything was acknowledged".to_owned());
        }
        let mut guarded = self.lock();
        self.take_completions(&mut guarded);
        let queues = [
            guarded.bindings.transmit_queue.take(),
            guarded.bindings.receive_queue.take(),
        ];
        let counters = std::mem::take(&mut guarded.bindings.counters);
        guarded.statistics.report(&self.omx);
        drop(guarded);
        let this: Arc<dyn Progress> = Arc::clone(self) as _;
        for binding in queues.into_iter().flatten() {
            binding.queue.endpoints.remove(&this);
        }
        for (_, counter) in counters {
            counter.endpoints.remove(&this);
        }
        // It is closed with its last clone otherwise, and the program may have posted buffers that it now frees.
        let _ = self.omx.clone().close();
        // Regions can be closed now.
        let mut guarded = self.lock();
        for (_, operation) in &mut guarded.operations {
            operation.remote.region = None;
        }
    }
}

impl Progress for State {
    fn progress(&self) {
        if let Ok(mut guarded) = self.guarded.try_lock() {
            self.take_completions(&mut guarded);
        }
    }

    fn wakes(&self) -> u64 {
        self.omx.wakeup_count()
    }

    fn wait(&self, wakes: u64, limit: Option<Duration>) {
        let guarded = self.lock();
        let limit = match Self::time_until_told(&guarded) {
            Some(told) => Some(limit.map_or(told, |limit| limit.min(told))),
            None => limit,
        };
        drop(guarded);
        // An error is told by the next call.
        let _ = self.omx.wait_for_completion(wakes, limit);
    }

    fn wake(&self) {
        self.omx.wakeup();
    }
}

impl Guarded {
    fn new(sends_kept_max: usize) -> Self {
        Self {
            bindings: Bindings::default(),
            operations: Slab::new(),
            spare: Vec::new(),
            connections: Vec::new(),
            kept: Kept::new(sends_kept_max),
            service: Service::default(),
            changes_known: 0,
            sources: [None; SOURCES],
            claims: HashMap::new(),
            multi_receive: None,
            behind: VecDeque::new(),
            taken: Vec::with_capacity(TAKEN_MAX),
            told: HashSet::new(),
            statistics: Statistics::default(),
        }
    }

    /// Forgets what may have changed in the address vector.
    #[inline]
    fn notice_changes(&mut self) {
        if let Some(vector) = &self.bindings.peers
            && vector.changes() != self.changes_known
        {
            self.changes_known = vector.changes();
            self.sources = [None; SOURCES];
            let peers = vector.peers();
            for (at, connection) in self.connections.iter_mut().enumerate() {
                if peers.get(at as FiAddr).is_none() {
                    *connection = Connection::None;
                }
            }
        }
    }

    /// Returns an operation to be filled in, and its number.
    fn operation(&mut self) -> (usize, &mut Operation) {
        let number = match self.spare.pop() {
            Some(number) => number,
            None => self.operations.insert(Operation::new()),
        };
        (number, &mut self.operations[number])
    }

    /// Ends an operation, which is kept for the next one.
    pub(super) fn release(&mut self, number: usize) {
        if self.spare.len() >= SPARE_MAX {
            self.operations.remove(number);
            return;
        }
        let operation = &mut self.operations[number];
        operation.kind = Kind::None;
        operation.request = None;
        operation.pieces.clear();
        operation.copy = Vec::new();
        operation.remote = Remote::default();
        self.spare.push(number);
    }
}
