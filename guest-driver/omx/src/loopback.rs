//! Frames between endpoints of one interface, which does not carry frames to itself: where messages to the endpoint itself or to others
//! of this host are to take the way of the network (`OMX_DISABLE_SELF`, `OMX_DISABLE_SHARED`), they turn round before the port. What they
//! are is `mxoe`'s, as on any wire; to other programs they go through the memory shared with those (`local`).

use std::{
    collections::VecDeque,
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd},
    thread,
    time::{Duration, Instant},
};

use ether::{MacAddr, Time};
use mxoe::{
    authority::{Authority, AuthorityConfig},
    wire::{Connect, ConnectKind, Dialect, Packet, endpoint_of_pull_magic},
};
use netif::{Interest, Netif, NetifCounters, NetifError, Wake};

use crate::{Error, RequestKind, StatusCode, clock, local::Reach, progress::Core};

/// Bytes of frames to the endpoint itself that wait, as many as a receive ring holds: what is beyond is lost as there, and sent again.
const ARRIVING_LEN_MAX: usize = 4 << 20;
/// Longest refusal, in bytes.
const REFUSAL_LEN_MAX: usize = 64;

/// Frames that turn round.
pub(crate) struct Loopback {
    /// To this interface, on their way out.
    outgoing: VecDeque<Vec<u8>>,
    /// To this endpoint.
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

    fn arrive(&mut self, frame: Vec<u8>) {
        if self.arriving_len + frame.len() <= ARRIVING_LEN_MAX {
            self.arriving_len += frame.len();
            self.arriving.push_back(frame);
        }
    }

    fn next(&mut self) -> Option<Vec<u8>> {
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

/// The endpoint that a packet is for, and that it is from where it says so.
fn ends(packet: &Packet<'_>) -> (Option<u8>, Option<u8>) {
    let (to, from) = match packet {
        Packet::Tiny(p) | Packet::Small(p) => (p.dst_endpoint, p.src_endpoint),
        Packet::Medium(p) => (p.dst_endpoint, p.src_endpoint),
        Packet::Rndv(p) => (p.dst_endpoint, p.src_endpoint),
        Packet::Notify(p) => (p.dst_endpoint, p.src_endpoint),
        Packet::Connect(p) => (p.dst_endpoint, p.src_endpoint),
        Packet::Ack(p) => (p.dst_endpoint, p.src_endpoint),
        Packet::Pull(p) => (p.dst_endpoint, p.src_endpoint),
        Packet::NackLib(p) => (p.dst_endpoint, p.src_endpoint),
        Packet::NackMcp(p) => return (endpoint_of_pull_magic(p.magic), Some(p.src_endpoint)),
        Packet::PullReply(p) => return (endpoint_of_pull_magic(p.magic), None),
        Packet::Raw(_) | Packet::HostQuery(_) | Packet::HostReply(_) => return (None, None),
    };
    (Some(to), Some(from))
}

impl Core {
    /// How frames of this interface are read, whatever the two ends agreed on.
    fn dialect(&self) -> Dialect {
        self.engine.config().dialect.with_marks(true)
    }

    /// Frames of this interface are possible from now on.
    pub(crate) fn loop_back(&mut self) -> &mut Loopback {
        let (mac, dialect) = (self.own.mac(), self.dialect());
        self.loopback
            .get_or_insert_with(|| Box::new(Loopback::new(mac, dialect)))
    }

    /// Connects the endpoint to itself as to any other one: its own address is that of the conversation from then on.
    ///
    /// # Errors
    /// [`Error::NoResources`], [`Error::Failed`].
    pub(crate) fn meet_itself(&mut self) -> Result<(), Error> {
        self.loop_back();
        self.now = clock::now();
        let request = self.store.requests.add(RequestKind::Connect, 0, 0);
        let request = request.ok_or(Error::NoResources)?;
        let (own, key) = (self.own, self.engine.config().key);
        self.engine
            .connect(self.now, own.mac(), own.endpoint, key, request)
            .map_err(|_| Error::NoResources)?;
        loop {
            self.step(Some(clock::now()));
            if let Some(status) = self.take(request) {
                self.own = status.address.ok_or(Error::Failed(status.code))?;
                return Ok(());
            }
            // Only where frames are lost on purpose: until it is sent again.
            let due = self.poll_timeout().unwrap_or(Time::ZERO);
            thread::sleep(Duration::from_nanos(due.nanos_since(clock::now())));
        }
    }

    /// Frames that turned round go where they are for.
    pub(crate) fn deliver_looped(&mut self) {
        let dialect = self.dialect();
        loop {
            let Some(loopback) = &mut self.loopback else { return };
            let Some(frame) = loopback.outgoing.pop_front() else {
                break;
            };
            let Ok((_, packet)) = dialect.decode(&frame) else {
                continue;
            };
            let is_request = matches!(
                packet,
                Packet::Connect(Connect {
                    kind: ConnectKind::Request { .. },
                    ..
                })
            );
            let (Some(to), _) = ends(&packet) else { continue };
            if to == self.own.endpoint {
                loopback.arrive(frame);
                continue;
            }
            let reach = match &mut self.local {
                Some(local) if is_request && !local.knows(to) => {
                    local.meet(&mut self.store, to).unwrap_or(Reach::Later)
                }
                Some(local) if local.knows(to) => Reach::Now,
                _ => Reach::Never(StatusCode::EndpointClosed),
            };
            match (reach, &mut self.local) {
                (Reach::Now, Some(local)) => local.send_frame(to, frame),
                // As on a wire on which it is lost: sent again.
                (Reach::Later, _) => {}
                _ => self.refuse_looped(&frame),
            }
        }
        if let Some(local) = &mut self.local {
            local.write_frames(&mut self.store);
        }
    }

    /// Nobody has the endpoint that a frame is for.
    fn refuse_looped(&mut self, frame: &[u8]) {
        let now = self.now;
        let Some(loopback) = &mut self.loopback else { return };
        let peers = self.engine.peers_mut();
        loopback.authority.handle(now, frame, peers, |_| false);
        let mut refusal = [0; REFUSAL_LEN_MAX];
        while let Some(len) = loopback.authority.poll_transmit(peers, &mut refusal) {
            loopback.arrive(refusal[..len].to_vec());
        }
    }

    /// The next frame of this interface that has come.
    #[cold]
    pub(crate) fn next_looped(&mut self) -> Option<Vec<u8>> {
        if let Some(frame) = self.loopback.as_mut().and_then(|loopback| loopback.next()) {
            return Some(frame);
        }
        let dialect = self.dialect();
        while let Some((sender, frame)) = self.local.as_mut()?.next_frame() {
            let decoded = dialect.decode(&frame);
            // Nobody on this host is taken for another one.
            let is_its_own = decoded.is_ok_and(|(head, packet)| {
                let (_, from) = ends(&packet);
                head.src == self.own.mac() && from.is_none_or(|from| from == sender)
            });
            if is_its_own {
                // Answers go the same way.
                self.loop_back();
                return Some(frame);
            }
        }
        None
    }

    /// Whether frames of this interface wait to be taken.
    pub(crate) fn has_looped(&self) -> bool {
        self.loopback.as_ref().is_some_and(|loopback| !loopback.is_empty())
            || self.local.as_ref().is_some_and(|local| local.has_frames())
    }
}
