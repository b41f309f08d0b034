//! The sending side of an endpoint, and its port: frames in bursts ([`burst`]), short sends that share a system call
//! ([`batching`]), and frames to the endpoint's own interface, which turn round before the port ([`loopback`]).

use std::{io::IoSlice, time::Instant};

use ether::{MacAddr, Time};
use mxoe::{
    engine::{Engine, HEAD_BUFFER_LEN},
    wire::Dialect,
};
use netif::{FrameLender, Interest, LentMemory, Netif, Wake};

mod batching;
mod burst;
pub(crate) mod loopback;

pub(crate) use batching::Batching;

use self::{
    burst::Burst,
    loopback::{Loopback, Turning},
};
use crate::{peers::EndpointPeers, store::Store};

/// The destination and the source of an endpoint's frames.
pub(crate) struct Egress {
    port: Box<dyn Netif + Send>,
    burst: Burst,
    /// Sends that wait to go out together.
    batching: Batching,
    /// Frames of this interface that turn round, where some do or did.
    loopback: Option<Box<Loopback>>,
}

impl Egress {
    pub(crate) fn new(port: Box<dyn Netif + Send>) -> Self {
        Self {
            port,
            burst: Burst::new(),
            batching: Batching::new(),
            loopback: None,
        }
    }

    /// Returns what is known of the sends that were posted last.
    #[inline]
    pub(crate) const fn batching(&self) -> &Batching {
        &self.batching
    }

    /// Returns what is known of the sends that were posted last, to note another one.
    #[inline]
    pub(crate) const fn batching_mut(&mut self) -> &mut Batching {
        &mut self.batching
    }

    /// Whether the port was full.
    #[inline]
    pub(crate) const fn is_blocked(&self) -> bool {
        self.burst.is_blocked()
    }

    /// Whether nothing waits here to be sent.
    #[inline]
    pub(crate) const fn is_idle(&self) -> bool {
        self.batching.is_empty() && !self.burst.is_blocked()
    }

    /// Whether a frame to this interface may go to the port before any other. `is_own`: the interface is the endpoint's own.
    #[inline]
    pub(crate) fn may_send_immediately(&self, is_own: impl FnOnce() -> bool) -> bool {
        !self.batching.may_defer() && !self.burst.is_blocked() && (self.loopback.is_none() || !is_own())
    }

    /// Returns room for a frame that is sent immediately, if it [may be](Self::may_send_immediately).
    #[inline]
    pub(crate) const fn immediate_head(&mut self) -> &mut [u8; HEAD_BUFFER_LEN] {
        self.burst.first_head()
    }

    /// Hands the frame of `len` bytes in [`Egress::immediate_head`] to the port, and returns whether the port took it.
    /// `direct_len_max`: the longest frame that may use direct transmit, in bytes.
    #[inline]
    pub(crate) fn send_immediately(&mut self, len: usize, direct_len_max: usize) -> bool {
        self.port.limit_direct(direct_len_max);
        let head = self.burst.first_head();
        // An error: lost like any frame on the wire, and sent again by the engine.
        self.port.send(&[IoSlice::new(&head[..len])]).unwrap_or(true)
    }

    /// Sends all that there is to be sent, until the port is full, and returns how many frames went out.
    #[inline]
    pub(crate) fn transmit(&mut self, now: Time, engine: &mut Engine<EndpointPeers>, store: &Store) -> usize {
        self.port.limit_direct(engine.peers_mut().direct_frame_len_max(now));
        let port = self.port.as_mut();
        let mut turning;
        let port: &mut (dyn Netif + Send) = match &mut self.loopback {
            None => port,
            Some(loopback) => {
                turning = Turning { port, loopback };
                &mut turning
            }
        };
        self.burst.transmit(now, engine, store, port)
    }

    /// Notes that everything has gone out. `awaits_bulk`: data is expected on the bulk path.
    #[inline]
    pub(crate) fn transmitted(&mut self, awaits_bulk: bool) {
        self.batching.flushed();
        self.port.expect_bulk(awaits_bulk);
    }

    /// Returns the next frame that the port received. An error means that the link is down: frames arrive again when it
    /// is up.
    #[inline]
    pub(crate) fn poll_receive(&mut self) -> Option<&[u8]> {
        self.port.poll_receive().ok().flatten()
    }

    /// Returns how many frames the port keeps at once; 0: none.
    pub(crate) fn kept_max(&mut self) -> usize {
        self.port.lender().map_or(0, |lender| lender.kept_max())
    }

    /// Returns how many frames the port keeps at once, and the memory in which they lie, as far as it is known.
    pub(crate) fn lent(&mut self) -> (usize, Vec<LentMemory>) {
        let of = |lender: &mut dyn FrameLender| (lender.kept_max(), lender.memory());
        self.port.lender().map(of).unwrap_or_default()
    }

    /// Keeps the frame that was received last until it is released. False: the port cannot.
    pub(crate) fn keep(&mut self) -> bool {
        self.port.lender().is_some_and(FrameLender::keep)
    }

    /// Whether a thread can sleep on the port while it keeps the frames that it keeps now.
    pub(crate) fn may_wait(&mut self) -> bool {
        self.port.lender().is_none_or(|lender| lender.may_wait())
    }

    /// Gives the `count` frames back to the port that were kept first.
    pub(crate) fn release(&mut self, count: usize) {
        if let Some(lender) = self.port.lender() {
            lender.release(count);
        }
    }

    /// Tells the port that data may come on the bulk path.
    pub(crate) fn expect_bulk(&mut self) {
        self.port.expect_bulk(true);
    }

    /// Whether a frame is there. Only after it said no does the port's descriptor say something.
    pub(crate) fn has_frame(&mut self) -> bool {
        // An error: the link is down; timers still run.
        matches!(self.port.wait(Interest::Receive, Instant::now(), None), Ok(Wake::Ready))
    }

    /// Prepares for frames of this interface.
    pub(crate) fn loop_back(&mut self, mac: MacAddr, dialect: Dialect) -> &mut Loopback {
        self.loopback
            .get_or_insert_with(|| Box::new(Loopback::new(mac, dialect)))
    }

    /// Returns the frames of this interface, where there are some or were.
    #[inline]
    pub(crate) fn loopback(&self) -> Option<&Loopback> {
        self.loopback.as_deref()
    }

    /// Returns the frames of this interface, where there are some or were, to take or add one.
    #[inline]
    pub(crate) fn loopback_mut(&mut self) -> Option<&mut Loopback> {
        self.loopback.as_deref_mut()
    }
}
