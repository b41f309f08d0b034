//! Completion: takes the engine's events, the status of requests that are over, and cancelled requests.

use mxoe::{
    engine::{Event, PartnerId},
    matching::{Filter, Selector},
};

use super::Core;
use crate::{
    Error, Request, RequestKind, Status, StatusCode,
    address::{Address, LOCAL_BASE},
    clock,
    request::{State, Taken},
    slab::Key,
    store::{Source, Transfer, Unexp, UnexpBody, transfer_key},
};

impl Core {
    /// Takes the status of the oldest request that is over and matches.
    pub(crate) fn take_any(&mut self, selector: Selector) -> Option<(Request, Status)> {
        let request = self.store.requests.first_done(selector)?;
        Some((Request(request), self.take(request)?))
    }

    /// Takes the status of the request that was over first.
    #[inline]
    pub(crate) fn take_first(&mut self) -> Option<(Request, Status)> {
        let (request, taken) = self.store.requests.take_first()?;
        Some((Request(request), self.status(taken)))
    }

    /// Describes the first matching unexpected message.
    pub(crate) fn probe(&self, filter: impl Into<Filter>) -> Option<Status> {
        let (_, message) = self.store.table.unexpected.peek(filter)?;
        Some(self.describe(message))
    }

    /// Describes an unexpected message.
    pub(crate) fn describe(&self, message: &Unexp) -> Status {
        Status {
            code: StatusCode::Success,
            address: self.address(message.source),
            match_info: message.envelope.match_info,
            length: message.length,
            transferred: message.length,
            context: 0,
        }
    }

    /// Cancels a receive without a message or a connect without an answer, and returns whether it could.
    pub(crate) fn cancel(&mut self, request: Request) -> Result<bool, Error> {
        let entry = self.store.requests.get_mut(request.0).ok_or(Error::BadRequest)?;
        match entry.kind {
            RequestKind::Send => Err(Error::BadRequest),
            RequestKind::Connect => {
                let pending = entry.state == State::Pending;
                let local = self.local.as_mut();
                Ok(pending
                    && (self.connecting.cancel(request.0)
                        || self.engine.cancel_connect(request.0)
                        || local.is_some_and(|local| local.cancel_connect(request.0))))
            }
            RequestKind::Receive => {
                let posted = entry.posted.take();
                Ok(posted.is_some_and(|posted| self.store.table.posted.cancel(posted).is_some()))
            }
        }
    }

    /// Takes the engine's events.
    pub(super) fn events(&mut self) {
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
                Event::PartnerLost { partner, given_up } => self.partner_lost(partner, given_up),
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

    /// Returns the address under which the program knows a partner, or the endpoint itself.
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

    /// Returns the address of a partner as it is now.
    fn partner_now(&self, partner: PartnerId) -> Option<Address> {
        let (_, _, session) = self.engine.partner_address(partner)?;
        self.address(Source::Partner { partner, session })
    }

    /// Takes the status of a request that is over.
    #[inline(always)]
    pub(crate) fn take(&mut self, request: Key) -> Option<Status> {
        let taken = self.store.requests.take(request)?;
        Some(self.status(taken))
    }

    /// Returns the status of a request that was taken out.
    #[inline(always)]
    fn status(&mut self, entry: Taken) -> Status {
        if self.egress.batching().contains(entry.batch) {
            // What the program knows to be over is on the wire, but for what it posted since.
            self.flush(clock::now());
        }
        Status {
            address: match entry.source {
                Some(source) => self.address(source),
                None => entry.status.address,
            },
            ..entry.status
        }
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
            Transfer::Receive { request, last_copy, .. } => self.copied(request, code, transferred, last_copy),
            Transfer::Unexpected { id: Some(id) } => {
                if code != StatusCode::Success {
                    self.store.table.unexpected.remove(id);
                    if let Some(local) = &mut self.local {
                        local.resume();
                    }
                } else if let Some(message) = self.store.table.unexpected.get_mut(id)
                    && let UnexpBody::Partial { data, .. } = &mut message.body
                {
                    message.body = UnexpBody::Whole(std::mem::take(data));
                }
            }
            Transfer::Unexpected { id: None } | Transfer::Send { .. } => {}
        }
    }

    /// Discards what came from a partner that is lost. One that was given up will not send what is waited for
    /// either: receives that no other peer can fulfil fail. A program that waits for its peer, and whose last message
    /// to it was complete when it was lost, would not notice otherwise.
    fn partner_lost(&mut self, partner: PartnerId, given_up: bool) {
        if given_up && let Some(address) = self.partner_now(partner) {
            for request in self.store.table.posted.take_all_from(address.source_key()) {
                if let Some(entry) = self.store.requests.get_mut(request) {
                    entry.posted = None;
                    entry.status.address = Some(address);
                }
                self.store.requests.complete(request, StatusCode::Unreachable);
            }
        }
        let of_partner =
            |message: &Unexp| matches!(message.source, Source::Partner { partner: of, .. } if of == partner);
        let transfers = &mut self.store.transfers;
        self.store.table.unexpected.remove_if(of_partner, |message| {
            if let UnexpBody::Partial { transfer, .. } = message.body {
                transfers.remove(transfer);
            }
        });
        if let Some(local) = &mut self.local {
            local.resume();
        }
    }
}
