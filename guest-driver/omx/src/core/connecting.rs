//! Connects that need the authority of the interface while it is away: they are tried again until it is back, or until
//! their time is over. This module does no handshake.

use ether::{MacAddr, Time};
use mxoe::engine::SendError;

use super::Core;
use crate::{
    Error, StatusCode,
    local::{Local, Reach},
    slab::Key,
};

/// The authority is asked again after this interval.
const AGAIN_NS: u64 = 50_000_000;

/// The target and the options of a connect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) mac: MacAddr,
    pub(crate) endpoint: u8,
    pub(crate) key: u32,
    pub(crate) request: Key,
}

/// The connects that wait for the authority; there may be as many as requests for connects.
#[derive(Debug)]
pub(crate) struct LateConnects {
    list: Vec<(Wanted, Time)>,
    /// The time when the authority is asked again.
    due: Time,
    /// Other endpoints of this host are reached by frames, not over shared memory.
    others_by_frames: bool,
}

impl LateConnects {
    pub(super) const fn new(others_by_frames: bool) -> Self {
        Self {
            list: Vec::new(),
            due: Time::MAX,
            others_by_frames,
        }
    }

    pub(crate) fn due(&self) -> Option<Time> {
        (self.due != Time::MAX).then_some(self.due)
    }

    /// Forgets a connect. False if there is none of this name.
    pub(crate) fn cancel(&mut self, request: Key) -> bool {
        let before = self.list.len();
        self.list.retain(|(wanted, _)| wanted.request != request);
        self.list.len() < before
    }

    /// Sets the time when a connect is given up.
    pub(crate) fn set_until(&mut self, request: Key, until: Time) {
        for (_, end) in self.list.iter_mut().filter(|(wanted, _)| wanted.request == request) {
            *end = until;
        }
    }
}

impl Core {
    /// Sets the time when a connect without an answer is given up.
    pub(crate) fn set_connect_until(&mut self, request: Key, until: Time) {
        if let Some(local) = &mut self.local {
            local.set_until(request, until);
        }
        self.connecting.set_until(request, until);
    }

    /// Begins to connect, now or when the authority is back.
    pub(crate) fn connect(&mut self, wanted: Wanted) -> Result<(), Error> {
        if !self.try_connect(wanted)? {
            let limit_ns = self.local.as_ref().map_or(0, Local::give_up_ns);
            let until = self.now.plus_nanos(limit_ns);
            self.connecting.list.push((wanted, until));
            self.connecting.due = self.connecting.due.min(self.now.plus_nanos(AGAIN_NS));
        }
        Ok(())
    }

    /// Tries to connect. False: the authority is needed, and away.
    fn try_connect(&mut self, wanted: Wanted) -> Result<bool, Error> {
        let Wanted {
            mac,
            endpoint,
            key,
            request,
        } = wanted;
        if mac == self.own.mac() && endpoint != self.own.endpoint {
            let local = self.local.as_mut().ok_or(Error::SameInterface)?;
            if !self.connecting.others_by_frames {
                return local.connect(&mut self.store, self.now, endpoint, key, request);
            }
            local.poll(&mut self.store, self.now);
            match local.pair_with(&mut self.store, endpoint)? {
                Reach::Now => {}
                Reach::Later => return Ok(false),
                Reach::Never(code) => {
                    self.store.requests.complete(request, code);
                    return Ok(true);
                }
            }
        }
        let mut connecting = self.engine.connect(self.now, mac, endpoint, key, request);
        if connecting == Err(SendError::UnknownPeer)
            && let Some(authority) = self.local.as_ref().map(Local::authority)
        {
            // New here, and the authority was not at hand at once. Busy: the connection is being made anew.
            let Ok(session) = authority.try_lock() else {
                return Ok(false);
            };
            match session.try_add_peer(mac) {
                Err(error) if error.is_away() => return Ok(false),
                added => added?,
            };
            drop(session);
            connecting = self.engine.connect(self.now, mac, endpoint, key, request);
        }
        match connecting {
            Ok(_) => Ok(true),
            Err(SendError::UnknownPeer) => Err(Error::PeerNotFound),
            Err(_) => Err(Error::NoResources),
        }
    }

    /// Tries again to make the connects that wait.
    #[cold]
    pub(crate) fn connect_late(&mut self) {
        self.connecting.due = Time::MAX;
        for (wanted, until) in std::mem::take(&mut self.connecting.list) {
            match self.try_connect(wanted) {
                Ok(true) => {
                    // Its time began when it was posted.
                    let left_ns = until.nanos_since(self.now);
                    self.engine.set_connect_give_up(wanted.request, left_ns);
                    if let Some(local) = &mut self.local {
                        local.set_until(wanted.request, until);
                    }
                }
                Ok(false) if until > self.now => {
                    self.connecting.list.push((wanted, until));
                    self.connecting.due = self.now.plus_nanos(AGAIN_NS);
                }
                Ok(false) => self.store.requests.complete(wanted.request, StatusCode::Unreachable),
                Err(error) => {
                    tracing::debug!("{error}");
                    self.store.requests.complete(wanted.request, StatusCode::Unreachable);
                }
            }
        }
    }
}
