//! How a program learns of the end of its requests and of messages that it has not received (mx-api 5.6), and how it
//! cancels requests.

use std::time::Duration;

use mxoe::matching::Selector;

use crate::{Endpoint, Error, Request, RequestKind, Status, StatusCode, core::Core, request::State};

pub(crate) fn selector(match_info: u64, match_mask: u64) -> Result<Selector, Error> {
    Selector::new(match_info, match_mask).ok_or(Error::BadMatchMask)
}

impl Endpoint {
    /// Returns the status of a request that is over, and ends the request; `None` while it goes on.
    ///
    /// # Errors
    /// [`Error::BadRequest`], [`Error::BadEndpoint`].
    #[inline]
    pub fn test(&self, request: Request) -> Result<Option<Status>, Error> {
        self.inspect(|core| match core.take(request.0) {
            Some(status) => Ok(Some(status)),
            None if core.store.requests.get(request.0).is_some() => Ok(None),
            None => Err(Error::BadRequest),
        })
    }

    /// Blocks until a request is over; `None` after `timeout` or a wakeup.
    ///
    /// # Errors
    /// [`Error::BadRequest`], [`Error::BadEndpoint`].
    #[inline]
    pub fn wait(&self, request: Request, timeout: Option<Duration>) -> Result<Option<Status>, Error> {
        {
            // A request that is over is handed out without any progress.
            let mut core = self.lock();
            if let Some(status) = core.take(request.0) {
                return Ok(Some(status));
            }
        }
        let found = self.block(timeout, |core| match core.take(request.0) {
            Some(status) => Some(Ok(status)),
            None if core.closed => Some(Err(Error::BadEndpoint)),
            None if core.store.requests.get(request.0).is_some() => None,
            None => Some(Err(Error::BadRequest)),
        });
        match found {
            Some(result) => result.map(Some),
            None if self.lock().closed => Err(Error::BadEndpoint),
            None => Ok(None),
        }
    }

    /// Takes the oldest completed request whose match information matches, with its status.
    ///
    /// # Errors
    /// [`Error::BadMatchMask`], [`Error::BadEndpoint`].
    pub fn test_any(&self, match_info: u64, match_mask: u64) -> Result<Option<(Request, Status)>, Error> {
        let selector = selector(match_info, match_mask)?;
        self.inspect(|core| Ok(core.take_any(selector)))
    }

    /// Makes progress once, and adds completed requests to a list, oldest first, until it has `count_max`.
    ///
    /// # Errors
    /// [`Error::BadEndpoint`].
    pub fn take_completed(&self, count_max: usize, completed: &mut Vec<(Request, Status)>) -> Result<(), Error> {
        let mut core = self.lock();
        core.egress.batching_mut().end_burst();
        let before = core.completions();
        core.poll();
        let mut core = self.stepped(core, before);
        if core.closed {
            return Err(Error::BadEndpoint);
        }
        while completed.len() < count_max
            && let Some(taken) = core.take_first()
        {
            completed.push(taken);
        }
        drop(core);
        self.leave();
        Ok(())
    }

    /// Takes the oldest completed request whose match information matches, blocking until there is one; `None` after `timeout` or a wakeup.
    ///
    /// # Errors
    /// As [`Endpoint::test_any`].
    pub fn wait_any(
        &self,
        match_info: u64,
        match_mask: u64,
        timeout: Option<Duration>,
    ) -> Result<Option<(Request, Status)>, Error> {
        let selector = selector(match_info, match_mask)?;
        self.blocked(timeout, |core| core.take_any(selector))
    }

    /// Names the oldest completed request, which stays as it is.
    ///
    /// # Errors
    /// [`Error::BadEndpoint`].
    pub fn ipeek(&self) -> Result<Option<Request>, Error> {
        self.inspect(|core| Ok(core.store.requests.first_done(Selector::ANY).map(Request)))
    }

    /// Names the oldest completed request, which stays as it is, blocking until there is one; `None` after `timeout` or a wakeup.
    ///
    /// # Errors
    /// [`Error::BadEndpoint`].
    pub fn peek(&self, timeout: Option<Duration>) -> Result<Option<Request>, Error> {
        self.blocked(timeout, |core| {
            core.store.requests.first_done(Selector::ANY).map(Request)
        })
    }

    /// Blocks until a request is complete, or another wakeup comes than the first `wakeups` ones, or `timeout` has passed:
    /// whether one is complete. A program that reads the [count](Endpoint::wakeup_count) before it looks for work of its own
    /// misses no wakeup.
    ///
    /// # Errors
    /// [`Error::BadEndpoint`].
    pub fn wait_for_completion(&self, wakeups: u64, timeout: Option<Duration>) -> Result<bool, Error> {
        let found = self.block_since(wakeups, timeout, |core| core.store.requests.first_done(Selector::ANY));
        if found.is_none() && self.lock().closed {
            return Err(Error::BadEndpoint);
        }
        Ok(found.is_some())
    }

    /// Describes the first matching unexpected message, which stays.
    ///
    /// # Errors
    /// [`Error::BadMatchMask`], [`Error::BadEndpoint`].
    pub fn iprobe(&self, match_info: u64, match_mask: u64) -> Result<Option<Status>, Error> {
        let selector = selector(match_info, match_mask)?;
        self.inspect(|core| Ok(core.probe(selector)))
    }

    /// Describes the first matching unexpected message, which stays, blocking until there is one; `None` after
    /// `timeout` or a wakeup.
    ///
    /// # Errors
    /// As [`Endpoint::iprobe`].
    pub fn probe(&self, match_info: u64, match_mask: u64, timeout: Option<Duration>) -> Result<Option<Status>, Error> {
        let selector = selector(match_info, match_mask)?;
        self.blocked(timeout, |core| core.probe(selector))
    }

    /// Blocks until every message that was sent is acknowledged, fetched or given up, so that the endpoint can be closed
    /// without loss. False after `timeout` or a wakeup.
    ///
    /// # Errors
    /// [`Error::BadEndpoint`].
    pub fn wait_delivered(&self, timeout: Duration) -> Result<bool, Error> {
        let found = self.blocked(Some(timeout), |core| core.is_delivered().then_some(()))?;
        Ok(found.is_some())
    }

    fn blocked<T>(
        &self,
        timeout: Option<Duration>,
        find: impl FnMut(&mut Core) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let found = self.block(timeout, find);
        if found.is_none() && self.lock().closed {
            return Err(Error::BadEndpoint);
        }
        Ok(found)
    }

    /// Cancels a receive that has no message, or a connect that has no answer. True: the request is gone. False: it is
    /// too late, and the request goes on.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for a send.
    pub fn cancel(&self, request: Request) -> Result<bool, Error> {
        self.post(|core| {
            let cancelled = core.cancel(request)?;
            if cancelled {
                core.store.requests.remove(request.0);
            }
            Ok(cancelled)
        })
    }

    /// Cancels as [`Endpoint::cancel`] does, but the request completes with status *cancelled*.
    ///
    /// # Errors
    /// As [`Endpoint::cancel`].
    pub fn cancel_and_keep(&self, request: Request) -> Result<bool, Error> {
        self.post(|core| {
            let cancelled = core.cancel(request)?;
            if cancelled {
                core.store.requests.complete(request.0, StatusCode::Cancelled);
            }
            Ok(cancelled)
        })
    }

    /// Forgets a request: the program will not ask for its completion.
    ///
    /// # Errors
    /// [`Error::BadRequest`].
    pub fn forget(&self, request: Request) -> Result<(), Error> {
        self.inspect(|core| {
            if core.store.requests.forget(request.0) {
                Ok(())
            } else {
                Err(Error::BadRequest)
            }
        })
    }

    /// Returns the context that was given when the request was posted.
    ///
    /// # Errors
    /// [`Error::BadRequest`].
    pub fn context(&self, request: Request) -> Result<u64, Error> {
        let core = self.lock();
        core.store
            .requests
            .get(request.0)
            .map(|entry| entry.status.context)
            .ok_or(Error::BadRequest)
    }

    /// Whether the bytes of a send are safe elsewhere, so that its buffer may be used again.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for anything but a send.
    pub fn is_buffered(&self, request: Request) -> Result<bool, Error> {
        self.inspect(|core| match core.store.requests.get(request.0) {
            Some(entry) if entry.kind == RequestKind::Send => Ok(entry.buffered),
            _ => Err(Error::BadRequest),
        })
    }

    /// Blocks until the buffer of a send may be used again: its bytes are safe elsewhere, or it is over. False after `timeout` or a
    /// wakeup. The request stays as it is.
    ///
    /// # Errors
    /// As [`Endpoint::is_buffered`].
    pub fn wait_buffered(&self, request: Request, timeout: Option<Duration>) -> Result<bool, Error> {
        let found = self.blocked(timeout, |core| match core.store.requests.get(request.0) {
            Some(entry) if entry.kind == RequestKind::Send => {
                (entry.buffered || entry.state == State::Done).then_some(Ok(()))
            }
            _ => Some(Err(Error::BadRequest)),
        })?;
        Ok(found.transpose()?.is_some())
    }
}
