//! The calls of an endpoint (mx-api 5.3 – 5.6). Each makes some progress, and only those that say so block.

use std::{sync::atomic::Ordering, time::Duration};

use ether::{MacAddr, Time};
use mxoe::{engine::Counters, matching::Filter};

use crate::{
    Address, CopyEngine, Endpoint, Error, FailureHandler, Handler, HelpHandler, MessageFilter, Request, RequestKind,
    Segment, SendUntil, Status, StatusCode,
    address::PARTNER_SELF,
    clock,
    core::{Core, INLINE_LEN_MAX, ImmediateSend, Wanted},
    helper,
    memory::Segments,
    request::NO_REQUEST,
    shared::Locked,
    slab::Key,
};

impl Endpoint {
    /// Posts a request: `with` gets the endpoint, what it caused is sent, and sleeping threads learn of it.
    #[inline]
    pub(crate) fn post<T>(&self, with: impl FnOnce(&mut Core) -> Result<T, Error>) -> Result<T, Error> {
        let now = clock::now();
        self.post_at(self.lock(), now, with)
    }

    /// Posts a receive. One that no message is there for makes no progress as long as nothing is due: a program that posts receives
    /// also takes completions.
    pub(crate) fn post_receive(&self, memory: Segments, filter: Filter, context: u64) -> Result<Request, Error> {
        let mut core = self.lock();
        if !core.may_receive_later() {
            return self.post_at(core, clock::now(), |core| {
                core.receive(memory, filter, context).map(Request)
            });
        }
        core.egress.batching_mut().end_burst();
        let request = core.receive(memory, filter, context).map(Request);
        drop(core);
        self.leave();
        request
    }

    #[inline]
    fn post_at<T>(
        &self,
        mut core: Locked<'_>,
        now: Time,
        with: impl FnOnce(&mut Core) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if core.closed {
            return Err(Error::BadEndpoint);
        }
        core.now = now;
        core.egress.batching_mut().end_burst();
        let before = core.completions();
        let result = with(&mut core);
        core.glance(now);
        drop(self.stepped(core, before));
        self.leave();
        result
    }

    /// Makes some progress and then lets `with` inspect the endpoint.
    #[inline]
    pub(crate) fn inspect<T>(&self, with: impl FnOnce(&mut Core) -> Result<T, Error>) -> Result<T, Error> {
        let mut core = self.advance(None);
        let result = if core.closed {
            Err(Error::BadEndpoint)
        } else {
            with(&mut core)
        };
        core.store.copies.leave();
        drop(core);
        self.leave();
        result
    }

    /// Starts a connection; its completion holds the address of the remote endpoint, and `match_info` and `context` as given.
    ///
    /// # Errors
    /// [`Error::PeerNotFound`], [`Error::NoResources`], [`Error::BadEndpoint`], [`Error::SameInterface`].
    pub fn iconnect(
        &self,
        mac: MacAddr,
        endpoint: u8,
        key: u32,
        match_info: u64,
        context: u64,
    ) -> Result<Request, Error> {
        self.post(|core| {
            let request = core
                .store
                .requests
                .add(RequestKind::Connect, match_info, context)
                .ok_or(Error::NoResources)?;
            if mac == core.own.mac() && endpoint == core.own.endpoint && core.own.partner == PARTNER_SELF {
                let own = core.own;
                let fits = key == core.engine.config().key;
                if let Some(entry) = core.store.requests.get_mut(request) {
                    entry.status.address = fits.then_some(own);
                }
                let code = if fits { StatusCode::Success } else { StatusCode::BadKey };
                core.store.requests.complete(request, code);
                return Ok(Request(request));
            }
            let wanted = Wanted {
                mac,
                endpoint,
                key,
                request,
            };
            if let Err(error) = core.connect(wanted) {
                core.store.requests.remove(request);
                return Err(error);
            }
            Ok(Request(request))
        })
    }

    /// Connects, and blocks until there is an answer or `timeout` has passed.
    ///
    /// # Errors
    /// [`Error::Timeout`] (also after [`Endpoint::wakeup`]), [`Error::Failed`], and those of [`Endpoint::iconnect`].
    pub fn connect(&self, mac: MacAddr, endpoint: u8, key: u32, timeout: Option<Duration>) -> Result<Address, Error> {
        let request = self.iconnect(mac, endpoint, key, 0, 0)?;
        let _all = self.shared.connects_for_all.then(helper::AllWanted::begin);
        let Some(status) = self.wait(request, timeout)? else {
            if !self.cancel(request)? {
                self.forget(request)?;
            }
            return Err(Error::Timeout);
        };
        match status.address {
            Some(address) if status.code == StatusCode::Success => Ok(address),
            _ => Err(Error::Failed(status.code)),
        }
    }

    /// Ends the conversation with a partner: what is pending with it ends as unreachable. An address that is not one of this
    /// endpoint's, or is from before the partner was opened anew, ends nothing.
    ///
    /// # Errors
    /// [`Error::BadEndpoint`].
    pub fn disconnect(&self, address: Address) -> Result<(), Error> {
        self.post(|core| {
            if core.wrong_address(address).is_some() || address == core.own {
                return Ok(());
            }
            if let (Some(endpoint), Some(local)) = (address.local_endpoint(), &mut core.local) {
                local.disconnect(&mut core.store, endpoint, address.session);
            } else if let Some(partner) = core.engine.partner_at(address.partner as usize) {
                core.engine.disconnect(partner);
            }
            Ok(())
        })
    }

    /// Posts a message. `synchronous`: it completes only when it was matched.
    /// Otherwise as [`SendUntil::Standard`].
    ///
    /// # Safety
    /// The segments must stay valid and unchanged until the request is over, whichever thread takes its completion, or
    /// the last clone of the endpoint is gone.
    ///
    /// # Errors
    /// [`Error::BadSegments`], [`Error::NoResources`], [`Error::BadEndpoint`].
    pub unsafe fn isend(
        &self,
        segments: &[Segment],
        to: Address,
        match_info: u64,
        context: u64,
        synchronous: bool,
    ) -> Result<Request, Error> {
        let until = if synchronous {
            SendUntil::Matched
        } else {
            SendUntil::Standard
        };
        // SAFETY: the caller's promise.
        unsafe { self.isend_until(segments, to, match_info, context, until) }
    }

    /// Posts a message that completes when the program says.
    ///
    /// # Safety
    /// As [`Endpoint::isend`].
    ///
    /// # Errors
    /// As [`Endpoint::isend`].
    pub unsafe fn isend_until(
        &self,
        segments: &[Segment],
        to: Address,
        match_info: u64,
        context: u64,
        until: SendUntil,
    ) -> Result<Request, Error> {
        // SAFETY: the caller's promise is that of `Segments::new`.
        let memory = unsafe { Segments::new(segments) }?;
        let mut core = self.lock();
        if core.closed {
            return Err(Error::BadEndpoint);
        }
        let before = core.completions();
        if until.may_be_early()
            && let Some(data) = memory.as_slice()
            && let Some(immediate) = core.begin_immediate_send(data, to, match_info)
        {
            // The clock, too, is read while the frame is in flight.
            core.now = clock::now();
            let request = core.add_immediate_request(memory.len(), to, (match_info, context));
            self.finish_immediate_send(core, before, immediate, data, match_info, request.unwrap_or(NO_REQUEST));
            return request.map(Request).ok_or(Error::NoResources);
        }
        self.post_send(core, memory, to, (match_info, context), until)
    }

    /// Sends a short message if it can go now and needs no memory of the program: it is complete when this returns, and
    /// there is no request. False: nothing was done, and the message is to be [posted](Endpoint::isend_until).
    ///
    /// A failure that shows later is told to the [failure handler](Endpoint::set_failure_handler).
    ///
    /// # Errors
    /// [`Error::BadEndpoint`].
    pub fn send_immediately(&self, data: &[u8], to: Address, match_info: u64) -> Result<bool, Error> {
        if data.len() > INLINE_LEN_MAX {
            return Ok(false);
        }
        let mut core = self.lock();
        if core.closed {
            return Err(Error::BadEndpoint);
        }
        if core.send_local_immediately(data, to, match_info) {
            drop(core);
            self.leave();
            return Ok(true);
        }
        let before = core.completions();
        let Some(immediate) = core.begin_immediate_send(data, to, match_info) else {
            return Ok(false);
        };
        core.now = clock::now();
        self.finish_immediate_send(core, before, immediate, data, match_info, NO_REQUEST);
        Ok(true)
    }

    /// Records a message whose frame is in flight, and makes some progress.
    #[inline]
    fn finish_immediate_send(
        &self,
        mut core: Locked<'_>,
        completions_before: u64,
        sent: ImmediateSend,
        data: &[u8],
        match_info: u64,
        request: Key,
    ) {
        let watched = self.shared.helped.is_wanted && !core.is_stopped();
        core.finish_immediate_send(sent, data, match_info, request, watched);
        let now = core.now;
        core.glance(now);
        drop(self.stepped(core, completions_before));
        self.leave();
    }

    /// Posts a send that is no immediate one: it is deferred for a batch, or goes out with all that waits.
    #[inline]
    fn post_send<'a>(
        &'a self,
        mut core: Locked<'a>,
        memory: Segments,
        to: Address,
        (match_info, context): (u64, u64),
        until: SendUntil,
    ) -> Result<Request, Error> {
        let before = core.completions();
        // The engine asks for no time when a short message is posted.
        let may_do_without =
            until.may_be_early() && memory.len() as usize <= INLINE_LEN_MAX && to.local_endpoint().is_none();
        let mut now = (!may_do_without || core.egress.batching().wants_time()).then(clock::now);
        core.now = now.unwrap_or(core.now);
        let sent = core.send(memory, to, match_info, context, until).map(Request);
        let others_deferred = !core.egress.batching().is_empty();
        let watched = self.shared.helped.is_wanted && !core.is_stopped();
        if core.egress.batching_mut().posted(now, watched)
            && let Some(request) = sent
        {
            core.record_deferred(request);
            self.shared
                .helped
                .stepped_at
                .store(core.now.as_nanos(), Ordering::Relaxed);
            core.wake_if(before);
            drop(core);
            if !self.shared.helped.has_deferred.load(Ordering::Relaxed) {
                helper::schedule_flush(&self.shared);
            }
            self.leave();
            return Ok(request);
        }
        let now = *now.get_or_insert_with(clock::now);
        core.now = now;
        if !core.is_stopped() {
            // What was posted goes out before anything else is done.
            core.flush(now);
        }
        core.glance(now);
        let mut core = self.stepped(core, before);
        if others_deferred {
            core.egress.batching_mut().goes_on(clock::now());
        }
        drop(core);
        self.leave();
        sent.ok_or(Error::NoResources)
    }

    /// Posts a receive for messages whose information, masked, is `match_info`.
    ///
    /// # Safety
    /// The segments must stay valid, and must not be used elsewhere, until the request is over or the last clone of the
    /// endpoint is gone.
    ///
    /// # Errors
    /// [`Error::BadMatchMask`], [`Error::BadMaskForContextId`], [`Error::BadSegments`], [`Error::NoResources`],
    /// [`Error::BadEndpoint`].
    pub unsafe fn irecv(
        &self,
        segments: &[Segment],
        match_info: u64,
        match_mask: u64,
        context: u64,
    ) -> Result<Request, Error> {
        let filter = MessageFilter {
            match_info,
            match_mask,
            source: None,
        };
        // SAFETY: the caller's promise.
        unsafe { self.irecv_filtered(segments, filter, context) }
    }

    /// Sends and blocks until the buffer may be used again.
    ///
    /// # Errors
    /// [`Error::Failed`], and those of [`Endpoint::isend`].
    pub fn send(&self, data: &[u8], to: Address, match_info: u64) -> Result<Status, Error> {
        // SAFETY: `data` is borrowed until `finish` returns, which is when the request is over.
        let request = unsafe { self.isend(&[Segment::of(data)], to, match_info, 0, false) }?;
        self.finish(request)
    }

    /// Receives and blocks until a message is there. One that is too long is cut, with status *truncated*.
    ///
    /// # Errors
    /// [`Error::Failed`] (not for *truncated*), and those of [`Endpoint::irecv`].
    pub fn receive(&self, buffer: &mut [u8], match_info: u64, match_mask: u64) -> Result<Status, Error> {
        // SAFETY: `buffer` is borrowed until `finish` returns, which is when the request is over.
        let request = unsafe { self.irecv(&[Segment::of_mut(buffer)], match_info, match_mask, 0) }?;
        self.finish(request)
    }

    /// Blocks until a request is over, whatever wakes it up.
    fn finish(&self, request: Request) -> Result<Status, Error> {
        loop {
            if let Some(status) = self.wait(request, None)? {
                return match status.code {
                    StatusCode::Success | StatusCode::Truncated => Ok(status),
                    code => Err(Error::Failed(code)),
                };
            }
            // A wakeup: not for this call, whose buffers are borrowed.
        }
    }

    /// Sets the time without an answer after which `request`, or every request posted from now on, is given up; with a
    /// connect or a send, everything else that is pending with the same partner is given up, too. For a receive it
    /// limits the transfer of a large message, unless data still come; the time that it waits for a message is not
    /// limited.
    ///
    /// # Errors
    /// [`Error::BadRequest`].
    pub fn set_request_timeout(&self, request: Option<Request>, timeout: Duration) -> Result<(), Error> {
        let give_up_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.post(|core| {
            match request {
                None => {
                    core.engine.set_give_up(give_up_ns);
                    if let Some(local) = &mut core.local {
                        local.set_give_up(give_up_ns);
                    }
                }
                Some(request) => {
                    let entry = core.store.requests.get_mut(request.0).ok_or(Error::BadRequest)?;
                    entry.give_up_ns = Some(give_up_ns);
                    let kind = entry.kind;
                    if let Some(send) = entry.send {
                        core.engine.set_send_give_up(send, give_up_ns);
                    }
                    match kind {
                        RequestKind::Connect => _ = core.engine.set_connect_give_up(request.0, give_up_ns),
                        RequestKind::Receive => core.limit_transfer(request.0, give_up_ns),
                        RequestKind::Send => {}
                    }
                    let until = core.now.plus_nanos(give_up_ns);
                    core.set_connect_until(request.0, until);
                }
            }
            Ok(())
        })
    }

    /// Returns how often the endpoint's threads were [woken up](Endpoint::wakeup).
    pub fn wakeup_count(&self) -> u64 {
        self.shared.wakeups.load(Ordering::SeqCst)
    }

    /// Makes the threads that block on this endpoint return without a result. A thread that begins to block later does not
    /// hear of it, unless it [says](Endpoint::wait_for_completion) which wakeups it knows.
    pub fn wakeup(&self) {
        self.shared.wakeups.fetch_add(1, Ordering::SeqCst);
        self.lock().sleepers.wake();
    }

    /// Makes progress and nothing else.
    pub fn progress(&self) {
        let mut core = self.advance(Some(clock::now()));
        core.store.copies.leave();
        drop(core);
        self.leave();
    }

    /// Stops all progress, whichever thread calls, until [`Endpoint::reenable_progression`]; waits for a running
    /// unexpected handler.
    pub fn disable_progression(&self) {
        loop {
            let mut core = self.lock();
            if core.handlers.running.is_none() || core.handlers.running == Some(std::thread::current().id()) {
                core.stop_by_program();
                return;
            }
            drop(core);
            std::thread::yield_now();
        }
    }

    /// Ends [`Endpoint::disable_progression`], and advances once.
    pub fn reenable_progression(&self) {
        let mut core = self.lock();
        core.go_on_by_program();
        core.sleepers.wake();
        drop(core);
        self.progress();
    }

    /// Calls `handler` for every message that matches no posted receive, from inside whichever call makes progress;
    /// `None` ends that. Messages that are unexpected already are not shown. A handler that owns a clone of the
    /// endpoint keeps it open until [`Endpoint::close`].
    pub fn set_unexpected_handler(&self, handler: Option<Handler>) {
        let mut core = self.lock();
        core.store.has_handler = handler.is_some();
        core.store.unseen.clear();
        let before = std::mem::replace(&mut core.handlers.unexpected, handler);
        // What it owns may call the endpoint when it goes.
        drop(core);
        drop(before);
    }

    /// Whether this thread is inside the unexpected handler, where the endpoint cannot be closed.
    pub fn is_in_handler(&self) -> bool {
        !self.shared.is_a_childs() && self.lock().handlers.running == Some(std::thread::current().id())
    }

    /// Calls `handler` for every send and forgotten request that failed after its completion could be taken, from
    /// inside whichever call of the program makes progress, also one that blocks; at most 64 failures are kept until
    /// there is such a call. With `None`, the initial value, they are logged. The handler keeps what it owns as
    /// [`Endpoint::set_unexpected_handler`] says.
    pub fn set_failure_handler(&self, handler: Option<FailureHandler>) {
        let before = std::mem::replace(&mut self.lock().handlers.failure, handler);
        drop(before);
    }

    /// Calls `handler` from the helper thread when requests are over that the program, which is elsewhere, has not taken: it is to
    /// [take them](Endpoint::take_completed). With `None`, the initial value, they wait for the program. The handler keeps what it
    /// owns as [`Endpoint::set_unexpected_handler`] says.
    pub fn set_help_handler(&self, handler: Option<HelpHandler>) {
        let before = std::mem::replace(&mut self.lock().handlers.help, handler);
        drop(before);
    }

    /// Lets `engine` copy long messages from other hosts to their place, in the place of the engine that
    /// [`EndpointOptions::copy_engine`](crate::EndpointOptions::copy_engine) chose. With `None` the processor copies them.
    pub fn set_copy_engine(&self, engine: Option<Box<dyn CopyEngine>>) {
        self.lock().set_copy_engine(engine);
    }

    /// Returns what happened to the frames of this endpoint.
    pub fn counters(&self) -> Counters {
        self.lock().counters()
    }
}
