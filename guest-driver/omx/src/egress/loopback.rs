//! Frames between endpoints of one interface, which does not carry frames to itself. Where messages to the endpoint
//! itself or to others of this host are to take the network's path (`OMX_DISABLE_SELF`, `OMX_DISABLE_SHARED`), their
//! frames turn round before the port. The frames are made by `mxoe`, as on any wire; to other programs they go through
//! the memory shared with those (`local`).

use std::{
    collections::VecDeque,
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

use ether::{MacAddr, Time};
use mxoe::{
    authority::{Authority, AuthorityConfig},
    engine::Peers,
    wire::Dialect,
};
use netif::{Interest, Netif, NetifCounters, NetifError, Wake};

/// At most this many bytes of frames to the endpoint itself wait, as many as a receive ring holds: what is beyond is
/// lost as there, and sent again.
const ARRIVING_LEN_MAX: usize = 4 << 20;
/// The longest refusal, in bytes.
const REFUSAL_LEN_MAX: usize = 64;

/// The frames that turn round.
pub(crate) struct Loopback {
    /// Frames to this interface that wait to turn round.
    outgoing: VecDeque<Vec<u8>>,
    /// Frames to this endpoint that wait to be taken.
    arriving: VecDeque<Vec<u8>>,
    arriving_len: usize,
    /// Answers for endpoints that are not open, as the interface's authority gives them on the wire.
    authority: Authority,
}

impl Loopback {
    pub(crate) fn new(mac: MacAddr, dialect: Dialect) -> Self {
        let authority = Authority::new(AuthorityConfig {
            mac,
            dialect,
            endpoints: weft_authority::ENDPOINTS.into(),
            name: Box::default(),
        });
        Self {
            outgoing: VecDeque::new(),
            arriving: VecDeque::new(),
            arriving_len: 0,
            authority,
        }
    }

    /// Whether a frame is there for the endpoint.
    pub(crate) fn is_empty(&self) -> bool {
        self.arriving.is_empty()
    }

    /// Adds a frame for the endpoint; beyond the limit it is lost.
    pub(crate) fn arrive(&mut self, frame: Vec<u8>) {
        if self.arriving_len + frame.len() <= ARRIVING_LEN_MAX {
            self.arriving_len += frame.len();
            self.arriving.push_back(frame);
        }
    }

    /// Returns the next frame to this interface that waits to turn round.
    pub(crate) fn poll_outgoing(&mut self) -> Option<Vec<u8>> {
        self.outgoing.pop_front()
    }

    /// Tells the sender of a frame that no endpoint has the number that it is for.
    pub(crate) fn refuse(&mut self, now: Time, frame: &[u8], peers: &mut impl Peers) {
        self.authority.handle(now, frame, peers, |_| false);
        let mut refusal = [0; REFUSAL_LEN_MAX];
        while let Some(len) = self.authority.poll_transmit(peers, &mut refusal) {
            self.arrive(refusal[..len].to_vec());
        }
    }

    /// Takes the next frame for the endpoint.
    pub(crate) fn poll_receive(&mut self) -> Option<Vec<u8>> {
        let frame = self.arriving.pop_front()?;
        self.arriving_len -= frame.len();
        Some(frame)
    }
}

/// A port in front of which frames to its own interface turn round.
pub(crate) struct Turning<'a> {
    pub(crate) port: &'a mut (dyn Netif + Send),
    pub(crate) loopback: &'a mut Loopback,
}

impl Turning<'_> {
    fn turns(&self, parts: &[IoSlice<'_>]) -> bool {
        parts.first().is_some_and(|head| head.starts_with(&self.port.mac().0))
    }
}

impl AsFd for Turning<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

impl Netif for Turning<'_> {
    fn mac(&self) -> MacAddr {
        self.port.mac()
    }

    fn mtu(&self) -> usize {
        self.port.mtu()
    }

    fn poll_receive(&mut self) -> Result<Option<&[u8]>, NetifError> {
        self.port.poll_receive()
    }

    fn send_burst(&mut self, frames: &[&[IoSlice<'_>]]) -> Result<usize, NetifError> {
        let mut taken = 0;
        while taken < frames.len() {
            if self.turns(frames[taken]) {
                let parts = frames[taken].iter().flat_map(|part| part.iter().copied());
                self.loopback.outgoing.push_back(parts.collect());
                taken += 1;
                continue;
            }
            let rest = &frames[taken..];
            let row = rest.iter().position(|parts| self.turns(parts)).unwrap_or(rest.len());
            match self.port.send_burst(&rest[..row]) {
                Ok(sent) => taken += sent,
                // Said again with the next call, when it is about the first frame.
                Err(_) if taken > 0 => return Ok(taken),
                Err(error) => return Err(error),
            }
            if frames.get(taken).is_some_and(|parts| !self.turns(parts)) {
                return Ok(taken);
            }
        }
        Ok(taken)
    }

    fn wait(
        &mut self,
        interest: Interest,
        deadline: Instant,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Wake, NetifError> {
        self.port.wait(interest, deadline, stop)
    }

    fn counters(&mut self) -> NetifCounters {
        self.port.counters()
    }
}
