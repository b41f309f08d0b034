//! One step of an endpoint: frames in, time, events, frames out. Whoever holds the endpoint's lock may take it.

use std::time::Instant;

use ether::Time;
use mxoe::engine::{Counters, Engine, Event, PartnerId};
use netif::{Interest, Netif, Wake};
use rustix::process::Pid;
use weft_authority::CounterPage;

use crate::{
    StatusCode, clock,
    gather::Gather,
    handler::{FailureHandler, Handler},
    late::LateConnects,
    local::{LOCAL_BASE, Local},
    loopback::{Loopback, Turning},
    number::OpenNumber,
    pace::Pace,
    peers::EndpointPeers,
    request::{Address, Requests, Status},
    slab::Key,
    sleepers::Sleepers,
    store::{Source, Store, Transfer, Unexp, UnexpBody, transfer_key},
    transmit::Burst,
};

/// Frames handled before what they cause is sent.
const FRAMES_PER_STEP: usize = 32;

/// Looks at an empty port between two looks at the clock: about a microsecond, and timers are no finer.
const IDLE_LOOKS: u32 = 16;
/// The same of a thread that spins, whose looks are shorter.
const SPIN_LOOKS: u32 = 48;

/// Everything behind an endpoint's lock.
pub(crate) struct Core {
    pub(crate) engine: Engine<EndpointPeers>,
    pub(crate) store: Store,
    pub(crate) port: Box<dyn Netif + Send>,
    pub(crate) burst: Burst,
    /// Sends that wait to go out together.
    pub(crate) gather: Gather,
    /// Whether messages come from the port in a row.
    pub(crate) pace: Pace,
    /// Endpoints of this host, where the interface has an authority.
    pub(crate) local: Option<Local>,
    /// Frames of this interface that turn round, where some do or did.
    pub(crate) loopback: Option<Box<Loopback>>,
    /// Other endpoints of this host are reached by frames.
    pub(crate) others_by_frames: bool,
    /// Connects that wait for that authority.
    pub(crate) late: LateConnects,
    /// Where the authority sees the counts.
    pub(crate) page: Option<CounterPage>,
    pub(crate) own: Address,
    /// When the call that holds the lock began: reading the clock costs as much as handling a frame.
    pub(crate) now: Time,
    /// Looks at an empty port since the clock was last read.
    pub(crate) idle_looks: u32,
    pub(crate) context_mask: u64,
    /// Medium messages are copied so that they complete early.
    pub(crate) copies_mediums: bool,
    /// Held as long as addresses of this endpoint mean something.
    pub(crate) _number: OpenNumber,
    /// Threads asleep on this endpoint.
    pub(crate) sleepers: Sleepers,
    /// Progress was switched off, by the program or while its handler runs.
    pub(crate) stopped: u32,
    /// The same by the program: idempotent.
    pub(crate) stopped_by_program: bool,
    pub(crate) handler: Option<Handler>,
    pub(crate) failure_handler: Option<FailureHandler>,
    pub(crate) handler_runs: Option<std::thread::ThreadId>,
    pub(crate) closed: bool,
    /// Who opened the endpoint.
    pub(crate) process: Pid,
}

impl Core {
    /// Takes frames, does what is due, sends. Whether there was anything. Without a time the clock is only read when a frame
    /// is there, and now and then.
    pub(crate) fn step(&mut self, now: Option<Time>) -> bool {
        self.step_as(now, now.is_some())
    }

    /// The same at a known time, as cheap as without one: most often there is no frame.
    pub(crate) fn glance(&mut self, now: Time) -> bool {
        self.step_as(Some(now), false)
    }

    #[inline(always)]
    fn step_as(&mut self, mut now: Option<Time>, mut thoroughly: bool) -> bool {
        if self.stopped > 0 || self.closed {
            return false;
        }
        let mut busy = false;
        loop {
            if let Some(local) = &mut self.local {
                busy |= local.step(&mut self.store);
            }
            let frames = self.receive_frames(&mut now);
            if !thoroughly && frames == 0 && self.idle_looks < IDLE_LOOKS && !self.has_work(now) {
                self.idle_looks += 1;
                return busy;
            }
            thoroughly = true;
            self.idle_looks = 0;
            self.now = *now.get_or_insert_with(clock::now);
            if let Some(local) = &mut self.local
                && local.wants_look(self.now)
            {
                local.look(&mut self.store, self.now);
                busy |= local.step(&mut self.store);
                self.publish();
            }
            if self.engine.poll_timeout().is_some_and(|due| due <= self.now) {
                self.engine.handle_timeout(self.now);
            }
            if self.late.due().is_some_and(|due| due <= self.now) {
                self.connect_late();
            }
            busy |= self.flush(self.now) || frames > 0;
            if frames < FRAMES_PER_STEP && !self.has_looped() {
                return busy;
            }
            // Frames may come faster than they are handled, for long: answers to what was just sent would seem to have taken no
            // time, and nothing would become due.
            now = None;
        }
    }

    /// Whether something is to be sent, or is due at `now`.
    #[inline]
    fn has_work(&self, now: Option<Time>) -> bool {
        !self.gather.is_empty()
            || !self.engine.is_quiet()
            || self.burst.is_blocked()
            || now.is_some_and(|now| {
                self.engine.poll_timeout().is_some_and(|due| due <= now)
                    || self.late.due().is_some_and(|due| due <= now)
                    || self.local.as_ref().is_some_and(|local| local.wants_look(now))
            })
    }

    /// A look of a thread that does nothing else: whether there was anything. Frames get the time of the last look at the clock,
    /// which such a thread takes about every microsecond, and when a message is there that nothing is to be sent for, the rest of
    /// a step waits: it would only keep the message from the program.
    #[inline]
    pub(crate) fn spin(&mut self) -> bool {
        if self.stopped > 0 || self.closed || self.idle_looks >= SPIN_LOOKS {
            return self.step(None);
        }
        self.idle_looks += 1;
        let before = self.completions();
        let busy = self.local.as_mut().is_some_and(|local| local.step(&mut self.store));
        let frames = self.receive_frames(&mut Some(self.now));
        if busy || frames > 0 {
            if self.completions() == before || !self.engine.is_quiet() || !self.gather.is_empty() {
                self.step(Some(clock::now()));
            }
            return true;
        }
        // What the last frames acknowledged, now that nothing is there to be handed over.
        !self.engine.is_settled() && self.step(Some(clock::now()))
    }

    /// Takes frames that are there; how many. Without a time the clock is read when there is one.
    #[inline]
    fn receive_frames(&mut self, now: &mut Option<Time>) -> usize {
        let mut frames = 0;
        let before = self.completions();
        // Frames of this interface come first.
        let mut looped = if self.has_looped() { self.next_looped() } else { None };
        while frames < FRAMES_PER_STEP {
            let frame = match &looped {
                Some(frame) => frame.as_slice(),
                // An error: the link is down. Frames arrive again when it is up.
                None => match self.port.poll_receive() {
                    Ok(Some(frame)) => frame,
                    _ => break,
                },
            };
            self.now = *now.get_or_insert_with(clock::now);
            // The one place for both, so that the compiler keeps it in this loop.
            self.engine.handle(self.now, frame, &mut self.store);
            self.store.copies.finish();
            frames += 1;
            if looped.is_some() && frames < FRAMES_PER_STEP {
                looped = self.next_looped();
            }
        }
        self.pace.received(self.completions() - before);
        frames
    }

    /// Sends what is to be sent, then tells what happened: the wire comes first.
    pub(crate) fn flush(&mut self, now: Time) -> bool {
        self.port
            .limit_direct(self.engine.peers_mut().direct_frame_len_max(now));
        let port = self.port.as_mut();
        let mut turning;
        let port: &mut (dyn Netif + Send) = match &mut self.loopback {
            None => port,
            Some(loopback) => {
                turning = Turning { port, loopback };
                &mut turning
            }
        };
        let sent = self.burst.transmit(now, &mut self.engine, &self.store, port);
        if self.loopback.is_some() {
            self.deliver_looped();
        }
        self.gather.flushed();
        self.port.expect_bulk(self.engine.awaits_data_apart());
        self.events();
        sent > 0
    }

    fn events(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Connected { token, partner, status } => self.connected(token, partner, status.into()),
                Event::Sent {
                    token,
                    status,
                    transferred,
                } => self.sent(token, status.into(), transferred),
                Event::Received {
                    receive,
                    status,
                    transferred,
                } => self.transfer_over(receive, status.into(), transferred),
                Event::PartnerLost { partner } => self.partner_lost(partner),
                Event::Mismatch {
                    mac,
                    endpoint,
                    own,
                    theirs,
                } => tracing::error!(
                    "endpoint {endpoint} of {mac} has other sizes on the wire ({theirs}) than this one ({own}), so they cannot connect: give both hosts the same MTU, or `omxd --preset`"
                ),
            }
        }
    }

    /// The address under which the program knows a partner, or the endpoint itself.
    #[inline]
    pub(crate) fn address(&self, source: Source) -> Option<Address> {
        match source {
            Source::Own => Some(self.own),
            Source::Local { endpoint, session } => Some(Address {
                endpoint,
                partner: LOCAL_BASE + u32::from(endpoint),
                session,
                ..self.own
            }),
            Source::Partner { partner, session } => {
                let (mac, endpoint, _) = self.engine.partner_address(partner)?;
                Some(Address {
                    mac: mac.0,
                    endpoint,
                    opened_by: self.own.opened_by,
                    partner: partner.index() as u32,
                    session,
                })
            }
        }
    }

    /// The address of a partner as it is now.
    fn partner_now(&self, partner: PartnerId) -> Option<Address> {
        let (_, _, session) = self.engine.partner_address(partner)?;
        self.address(Source::Partner { partner, session })
    }

    /// Takes the status of a request that is over.
    #[inline(always)]
    pub(crate) fn take(&mut self, request: Key) -> Option<Status> {
        let entry = self.store.requests.take(request)?;
        if self.gather.holds(entry.batch) {
            // What the program knows to be over is on the wire, but for what it posted since.
            self.flush(clock::now());
        }
        Some(Status {
            address: match entry.source {
                Some(source) => self.address(source),
                None => entry.status.address,
            },
            ..entry.status
        })
    }

    fn connected(&mut self, token: u64, partner: PartnerId, code: StatusCode) {
        let address = self.partner_now(partner);
        if let Some(entry) = self.store.requests.get_mut(token) {
            entry.status.address = address.filter(|_| code == StatusCode::Success);
        }
        self.store.requests.complete(token, code);
    }

    fn sent(&mut self, token: u64, code: StatusCode, transferred: u32) {
        let request = match transfer_key(token) {
            Some(key) => match self.store.transfers.remove(key) {
                Some(Transfer::Send { request, .. }) => request,
                _ => None,
            },
            // A short message: its completion was given early, unless it waited.
            None => Some(token),
        };
        match request {
            Some(request) if self.store.requests.get(request).is_some() => {
                self.store.requests.complete_send(request, code, transferred);
            }
            // Complete for the program long ago.
            _ => self.store.requests.unheard(code),
        }
    }

    fn transfer_over(&mut self, token: u64, code: StatusCode, transferred: u32) {
        let Some(transfer) = transfer_key(token).and_then(|key| self.store.transfers.remove(key)) else {
            return;
        };
        match transfer {
            Transfer::Receive { request, .. } => self.store.received(request, code, transferred),
            Transfer::Unexpected { id: Some(id) } => {
                if code != StatusCode::Success {
                    self.store.table.unexpected.remove(id);
                    if let Some(local) = &mut self.local {
                        local.resume();
                    }
                } else if let Some(message) = self.store.table.unexpected.get_mut(id)
                    && let UnexpBody::Partial(_, memory) = &mut message.body
                {
                    message.body = UnexpBody::Whole(std::mem::take(memory));
                }
            }
            Transfer::Unexpected { id: None } | Transfer::Send { .. } => {}
        }
    }

    fn partner_lost(&mut self, partner: PartnerId) {
        let of_partner =
            |message: &Unexp| matches!(message.source, Source::Partner { partner: of, .. } if of == partner);
        let transfers = &mut self.store.transfers;
        self.store.table.unexpected.remove_if(of_partner, |message| {
            if let UnexpBody::Partial(key, _) = message.body {
                transfers.remove(key);
            }
        });
        if let Some(local) = &mut self.local {
            local.resume();
        }
    }

    /// The endpoint's counts.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.engine.counters().clone();
        if let Some(local) = &self.local {
            counters.add(local.counters());
        }
        counters
    }

    /// Shows the counts to the authority: now and then, before sleeping, and at the end.
    pub(crate) fn publish(&self) {
        if let Some(page) = &self.page {
            page.publish(self.counters().values());
        }
    }

    /// When something is due if nothing happens.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let local = self.local.as_ref().and_then(Local::poll_timeout);
        let looped = self.has_looped().then_some(Time::ZERO);
        let times = self.engine.poll_timeout().into_iter();
        times.chain(local).chain(looped).chain(self.late.due()).min()
    }

    /// Before sleeping: whether there is something to do already. Only after it said no do the port's descriptor and that of
    /// the other programs say something.
    pub(crate) fn is_ready(&mut self) -> bool {
        self.publish();
        if self.stopped > 0 {
            return false;
        }
        if !self.engine.is_settled() || self.has_looped() {
            // A look that was in a hurry left something.
            return true;
        }
        // An error: the link is down; timers still run.
        let port = self.port.wait(Interest::Receive, Instant::now(), None);
        matches!(port, Ok(Wake::Ready)) || self.local.as_mut().is_some_and(Local::sleep)
    }

    /// A count that changes with every completion.
    pub(crate) const fn completions(&self) -> u64 {
        let requests: &Requests = &self.store.requests;
        requests.completions
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use ether::MacAddr;
    use mxoe::{engine::Counter, wire::Preset};
    use netif::memory_pair;

    use super::FRAMES_PER_STEP;
    use crate::{Address, Endpoint, EndpointOptions, clock};

    /// Two endpoints without helper threads, joined in memory, and the second one's address as the first knows it. `slots` frames
    /// may be under way.
    fn joined(slots: usize) -> (Endpoint, Endpoint, Address) {
        let macs = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
        let (port_a, port_b) = memory_pair(macs, 1500, slots).unwrap();
        let options = EndpointOptions {
            progress: false,
            ..EndpointOptions::default()
        };
        let a = Endpoint::open_on(&options, Box::new(port_a), Preset::Native1500).unwrap();
        let b = Endpoint::open_on(&options, Box::new(port_b), Preset::Native1500).unwrap();
        let connect = a.iconnect(macs[1], 0, options.key, 0, 0).unwrap();
        loop {
            b.progress();
            if let Some(status) = a.test(connect).unwrap() {
                return (a, b, status.address.unwrap());
            }
        }
    }

    /// Where frames come as fast as they are handled, one step takes long.
    #[test]
    fn time_goes_on_while_more_frames_are_there_than_are_handled_at_once() {
        let (a, b, to_b) = joined(4 * FRAMES_PER_STEP);
        // Of a few, some may be sent again meanwhile.
        for frames in [1, FRAMES_PER_STEP] {
            for _ in 0..frames {
                // SAFETY: what is posted lies in no memory.
                unsafe { a.isend(&[], to_b, 3, 0, false) }.unwrap();
                a.progress();
            }
            let mut core = b.lock();
            let begin = clock::now();
            while clock::now() == begin {}
            assert!(core.step(Some(begin)));
            assert_eq!(core.now > begin, frames == FRAMES_PER_STEP);
        }
    }

    /// Without its helper thread a program has nobody else for its timers.
    #[test]
    fn a_program_that_only_posts_sends_again_what_is_not_acknowledged_as_soon_as_that_is_due() {
        for posts_receives in [false, true] {
            let (a, _b, to_b) = joined(64);
            // SAFETY: what is posted lies in no memory.
            let send = || unsafe { a.isend(&[], to_b, 3, 0, false) }.unwrap();
            // SAFETY: as above.
            let receive = || unsafe { a.irecv(&[], 3, u64::MAX, 0) }.unwrap();
            send();
            let mut posts = 0;
            // Nobody looks at what `b` got.
            while a.counters().get(Counter::ResentMessages) == 0 {
                let due = a.lock().engine.poll_timeout().unwrap();
                while clock::now() < due {
                    thread::yield_now();
                }
                if posts_receives {
                    receive()
                } else {
                    send()
                };
                posts += 1;
                // The timer that comes first may be one that is no longer needed.
                assert!(posts <= 4, "{posts} posts, each after something was due");
            }
        }
    }
}
