//! Reads and writes of the own memory by others: what the endpoint that is asked for them does, whichever thread makes progress.
//!
//! What others say is checked here: the key, the right, and every byte against its region. An access that is refused is answered, too.

use std::{collections::VecDeque, ffi::c_int, ptr, sync::Arc};

use omx::{Address, Error, MessageFilter, Segment, SendUntil, Status, StatusCode};

use super::{
    Guarded, State,
    access::{ANSWER, Action, Header, REQUEST, REQUEST_LEN_MAX, WRITTEN},
    error_number,
    operation::{Kind, Remote},
};
use crate::{
    abi::*,
    atomic::Atomic,
    completion_queue::Completion,
    log::{Level, log},
    regions::{Region, ServesRegions},
};

/// Requests that are taken while others are served.
const REQUESTS: usize = 16;
/// Accesses that are served at once; further requests wait for their end.
const SERVED_MAX: usize = 1024;

/// The accesses of others, and the own ones as far as they go on.
#[derive(Default)]
pub(super) struct Service {
    /// The number of the last access to another endpoint's memory.
    pub(super) accesses: u64,
    /// The accesses of others that are not over.
    served: usize,
    /// Operations for requests of others, while enough of them are served.
    resting: Vec<usize>,
    /// Operations whose message the library had no room for.
    pub(super) owed: VecDeque<usize>,
}

impl State {
    /// Takes requests of others from now on. Returns 0 or a negative error number.
    pub(in crate::endpoint) fn begin_to_serve(&self) -> c_int {
        if !self.has_remote_access {
            return 0;
        }
        let mut guarded = self.lock();
        for _ in 0..REQUESTS {
            let (number, operation) = guarded.operation();
            operation.kind = Kind::Request;
            operation.copy = vec![0; REQUEST_LEN_MAX];
            if let Err(error) = self.await_request(&mut guarded, number) {
                return -error_number(&error);
            }
        }
        0
    }

    /// Waits for the next request.
    fn await_request(&self, guarded: &mut Guarded, number: usize) -> Result<(), Error> {
        let operation = &mut guarded.operations[number];
        let filter = MessageFilter {
            match_info: REQUEST,
            match_mask: u64::MAX,
            source: None,
        };
        let memory = [Segment::of_mut(&mut operation.copy)];
        // SAFETY: the memory is the operation's own, which stays until the request is over.
        operation.request = Some(unsafe { self.omx.irecv_filtered(&memory, filter, number as u64) }?);
        Ok(())
    }

    /// Serves a request, and waits for the next one.
    pub(super) fn requested(&self, guarded: &mut Guarded, number: usize, status: &Status) {
        let request = std::mem::take(&mut guarded.operations[number].copy);
        let peer = status.address.filter(|_| status.code == StatusCode::Success);
        if let Some(peer) = peer
            && let Some(received) = request.get(..status.transferred as usize)
        {
            match Header::read(received) {
                Some((header, data)) => self.serve(guarded, &header, data, peer),
                None => log(Level::Warn, || {
                    format!(
                        "endpoint {} of {} asks for nothing that makes sense",
                        peer.endpoint(),
                        peer.mac()
                    )
                }),
            }
        }
        guarded.operations[number].copy = request;
        guarded.service.resting.push(number);
        self.await_requests(guarded);
    }

    /// Waits for further requests, unless there is enough to be done.
    pub(super) fn await_requests(&self, guarded: &mut Guarded) {
        while guarded.service.served < SERVED_MAX
            && let Some(number) = guarded.service.resting.pop()
        {
            match self.await_request(guarded, number) {
                Ok(()) => {}
                Err(Error::NoResources) => return guarded.service.resting.push(number),
                // The endpoint is closed.
                Err(_) => guarded.release(number),
            }
        }
    }

    fn serve(&self, guarded: &mut Guarded, header: &Header, data: &[u8], peer: Address) {
        let right = match header.action {
            Action::Read => FI_REMOTE_READ,
            Action::Write => FI_REMOTE_WRITE,
            Action::Atomic(atomic) => {
                let reads = if atomic.fetches { FI_REMOTE_READ } else { 0 };
                reads | if atomic.has_operand() { FI_REMOTE_WRITE } else { 0 }
            }
        };
        let region = self.regions.get(header.key);
        let found = region.and_then(|region| Some((region.memory(header.address, header.len, right)?, region)));
        let (number, operation) = guarded.operation();
        operation.remote = Remote {
            peer: Some(peer),
            ..Remote::default()
        };
        operation.set_header(header);
        operation.kind = Kind::Answer(header.number);
        if let Some((memory, region)) = &found {
            operation.remote.region = Some(Arc::clone(region));
            match header.action {
                Action::Read => operation.pieces.push(*memory),
                Action::Write if header.data_follow => operation.pieces.push(*memory),
                // SAFETY: it is inside a region, which the program lets others write, until it is closed; `data` is as long.
                Action::Write => unsafe { ptr::copy_nonoverlapping(data.as_ptr(), memory.ptr, data.len()) },
                Action::Atomic(atomic) => {
                    operation.copy = self.apply(atomic, *memory, data);
                    if atomic.fetches {
                        operation.pieces.push(Segment::of_mut(&mut operation.copy));
                    }
                }
            }
        } else {
            operation.set_answer(FI_EACCES);
            log(Level::Warn, || {
                format!(
                    "endpoint {} of {} asks for {} bytes that no region lets it access",
                    peer.endpoint(),
                    peer.mac(),
                    header.len
                )
            });
        }
        guarded.service.served += 1;
        if header.data_follow {
            self.await_written(guarded, number, header, peer);
        } else {
            if found.is_some() {
                self.written(guarded, header);
                guarded.operations[number].set_answer(0);
            }
            guarded.service.owed.push_back(number);
            self.send_owed(guarded);
        }
    }

    /// Makes an atomic operation on memory, and returns the old values.
    fn apply(&self, atomic: Atomic, memory: Segment, data: &[u8]) -> Vec<u8> {
        let len = memory.len as usize;
        let (operand, compared) = data.split_at(if atomic.has_operand() { len } else { 0 });
        let _alone = self.regions.alone();
        let mut values = vec![0; len];
        // SAFETY: it is inside a region, which the program lets others read and write, until it is closed.
        unsafe { ptr::copy_nonoverlapping(memory.ptr.cast_const(), values.as_mut_ptr(), len) };
        let old = values.clone();
        atomic.apply(&mut values, operand, compared);
        if atomic.has_operand() {
            // SAFETY: as above.
            unsafe { ptr::copy_nonoverlapping(values.as_ptr(), memory.ptr, len) };
        }
        old
    }

    /// Receives the data of a write in their place. Those of one that is refused have none.
    fn await_written(&self, guarded: &mut Guarded, number: usize, header: &Header, peer: Address) {
        let operation = &mut guarded.operations[number];
        operation.kind = Kind::Landing(*header);
        let filter = MessageFilter {
            match_info: WRITTEN | header.number,
            match_mask: u64::MAX,
            source: Some(peer.source_key()),
        };
        // SAFETY: the memory is inside a region, which the operation keeps from being closed.
        match unsafe { self.omx.irecv_filtered(&operation.pieces, filter, number as u64) } {
            Ok(request) => operation.request = Some(request),
            Err(_) => self.land(guarded, number, header, Some(FI_EIO)),
        }
    }

    /// Takes the end of the data of a write.
    pub(super) fn landed(&self, guarded: &mut Guarded, number: usize, header: &Header, status: &Status) {
        let is_refused = guarded.operations[number].remote.region.is_none();
        let err = match status.code {
            _ if is_refused => Some(FI_EACCES),
            StatusCode::Success if u64::from(status.transferred) == header.len => None,
            _ => Some(FI_EIO),
        };
        self.land(guarded, number, header, err);
    }

    fn land(&self, guarded: &mut Guarded, number: usize, header: &Header, err: Option<c_int>) {
        if err.is_none() {
            self.written(guarded, header);
        }
        let operation = &mut guarded.operations[number];
        operation.request = None;
        operation.pieces.clear();
        operation.remote.region = None;
        operation.kind = Kind::Answer(header.number);
        operation.set_answer(err.unwrap_or(0));
        guarded.service.owed.push_back(number);
        self.send_owed(guarded);
    }

    /// Tells the program of immediate data that came with a write.
    fn written(&self, guarded: &Guarded, header: &Header) {
        let Some(data) = header.prefix.data().filter(|_| header.action == Action::Write) else {
            return;
        };
        let entry = FiCqTaggedEntry {
            op_context: ptr::null_mut(),
            flags: FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
            len: header.len as usize,
            buf: ptr::null_mut(),
            data,
            tag: 0,
        };
        let completion = Completion {
            entry,
            source: FI_ADDR_NOTAVAIL,
            failure: None,
        };
        self.tell_receive(guarded, completion);
    }

    /// Sends the data and answers that there was no room for, oldest first.
    pub(super) fn send_owed(&self, guarded: &mut Guarded) {
        while let Some(number) = guarded.service.owed.front().copied() {
            let went = match guarded.operations.get(number).map(|operation| operation.kind) {
                Some(Kind::Access(header)) => self.send_written(guarded, number, &header),
                Some(Kind::Answer(access)) => self.send_answer(guarded, number, access),
                _ => true,
            };
            if !went {
                return;
            }
            guarded.service.owed.pop_front();
        }
    }

    /// Answers an access, with what was read. False: the library has no room now.
    fn send_answer(&self, guarded: &mut Guarded, number: usize, access: u64) -> bool {
        let operation = &guarded.operations[number];
        let Some(to) = operation.remote.peer else { return true };
        let list = [&[operation.scratch(0)][..], &operation.pieces].concat();
        // SAFETY: the memory is the operation's own, or inside a region, which the operation keeps from being closed.
        let sent = unsafe {
            self.omx
                .isend_until(&list, to, ANSWER | access, number as u64, SendUntil::Buffered)
        };
        match sent {
            Ok(_) => true,
            Err(Error::NoResources) => false,
            Err(_) => {
                self.served(guarded, number);
                true
            }
        }
    }

    /// Notes that an access of another endpoint is over.
    pub(super) fn served(&self, guarded: &mut Guarded, number: usize) {
        guarded.release(number);
        guarded.service.served -= 1;
        self.await_requests(guarded);
    }
}

impl ServesRegions for State {
    fn leave(&self, region: &Arc<Region>) {
        let mut guarded = self.lock();
        self.take_completions(&mut guarded);
        let landing: Vec<_> = guarded.using(region).collect();
        for number in landing {
            let operation = &guarded.operations[number];
            if let (Kind::Landing(header), Some(request)) = (operation.kind, operation.request)
                && self.omx.cancel(request).unwrap_or(false)
            {
                // The data, when they come, have no place.
                let operation = &mut guarded.operations[number];
                let peer = operation.remote.peer;
                operation.pieces.clear();
                operation.remote.region = None;
                if let Some(peer) = peer {
                    self.await_written(&mut guarded, number, &header, peer);
                }
            }
        }
    }

    fn break_off(&self, region: &Arc<Region>) {
        let mut guarded = self.lock();
        let peers: Vec<_> = guarded
            .using(region)
            .filter_map(|number| guarded.operations[number].remote.peer)
            .collect();
        for peer in peers {
            log(Level::Error, || {
                format!(
                    "endpoint {} of {} did not end its access to memory that is closed: the conversation with it ends",
                    peer.endpoint(),
                    peer.mac()
                )
            });
            let _ = self.omx.disconnect(peer);
        }
        self.take_completions(&mut guarded);
    }
}

impl Guarded {
    /// Lists the operations that use a region.
    fn using(&self, region: &Arc<Region>) -> impl Iterator<Item = usize> {
        let uses = |operation: &super::Operation| {
            let used = operation.remote.region.as_ref();
            used.is_some_and(|used| Arc::ptr_eq(used, region))
        };
        self.operations
            .iter()
            .filter(move |(_, operation)| uses(operation))
            .map(|(number, _)| number)
    }
}
