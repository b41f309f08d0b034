//! The port over which `nicctl` talks with a card: a packet socket, or, where programs drive the card themselves, the
//! authority that owns it.

use std::{
    collections::VecDeque,
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use ether::{EtherType, MacAddr};
use netif::{AfPacket, AfPacketOptions, Interest, Interface, Netif, NetifCounters, NetifError, Wake};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weft_authority::{OmxdError, Session};
use weft_card_control::CONTROL_RING_LEN;

/// A port for control frames.
pub(super) enum ControlPort {
    Socket(Box<AfPacket>),
    Relay(Relay),
}

/// Control frames through the authority of a card, which answers each with what the card said.
pub(super) struct Relay {
    session: Session,
    mac: MacAddr,
    mtu: usize,
    answers: VecDeque<Vec<u8>>,
    lent: Vec<u8>,
}

impl ControlPort {
    /// Opens a port to the card behind `interface`; of a card that programs drive, the authority is started where none
    /// runs.
    ///
    /// # Errors
    /// One sentence: no such interface, no privilege, or no authority.
    pub(super) fn open(interface: &str) -> anyhow::Result<Self> {
        let found = Interface::find(interface)?;
        if found.card().is_none() {
            let options = AfPacketOptions {
                ring_len: CONTROL_RING_LEN,
                ..AfPacketOptions::default()
            };
            let port = AfPacket::open(interface, EtherType::CARD_CONTROL, &options)?;
            return Ok(Self::Socket(Box::new(port)));
        }
        Ok(Self::Relay(Relay {
            session: Session::connect(&found)?,
            mac: found.mac,
            mtu: found.mtu,
            answers: VecDeque::new(),
            lent: Vec::new(),
        }))
    }
}

impl Relay {
    fn send(&mut self, frame: &[IoSlice<'_>]) -> Result<(), NetifError> {
        let frame: Vec<u8> = frame.iter().flat_map(|part| part.iter().copied()).collect();
        match self.session.converse(frame) {
            Ok(answers) => {
                self.answers.extend(answers);
                Ok(())
            }
            Err(OmxdError::Interface(error)) => Err(error),
            Err(error) => Err(NetifError::Io {
                what: "ask the card through omxd",
                source: std::io::Error::other(error.to_string()),
            }),
        }
    }

    fn wait(&self, deadline: Instant, stop: Option<BorrowedFd<'_>>) -> Wake {
        if !self.answers.is_empty() {
            return Wake::Ready;
        }
        // All answers came with the question: there is nothing to wait for but the end.
        let left: Duration = deadline.saturating_duration_since(Instant::now());
        let mut fds: Vec<_> = stop.iter().map(|stop| PollFd::new(stop, PollFlags::IN)).collect();
        match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
            Ok(ready) if ready > 0 => Wake::Stop,
            _ => Wake::Deadline,
        }
    }
}

impl AsFd for ControlPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Socket(port) => port.as_fd(),
            Self::Relay(relay) => relay.session.as_fd(),
        }
    }
}

impl Netif for ControlPort {
    fn mac(&self) -> MacAddr {
        match self {
            Self::Socket(port) => port.mac(),
            Self::Relay(relay) => relay.mac,
        }
    }

    fn mtu(&self) -> usize {
        match self {
            Self::Socket(port) => port.mtu(),
            Self::Relay(relay) => relay.mtu,
        }
    }

    fn poll_receive(&mut self) -> Result<Option<&[u8]>, NetifError> {
        match self {
            Self::Socket(port) => port.poll_receive(),
            Self::Relay(relay) => Ok(relay.answers.pop_front().map(|answer| {
                relay.lent = answer;
                &relay.lent[..]
            })),
        }
    }

    fn send_burst(&mut self, frames: &[&[IoSlice<'_>]]) -> Result<usize, NetifError> {
        match self {
            Self::Socket(port) => port.send_burst(frames),
            Self::Relay(relay) => match frames.first() {
                Some(frame) => relay.send(frame).map(|()| 1),
                None => Ok(0),
            },
        }
    }

    fn wait(
        &mut self,
        interest: Interest,
        deadline: Instant,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Wake, NetifError> {
        match self {
            Self::Socket(port) => port.wait(interest, deadline, stop),
            Self::Relay(relay) => Ok(relay.wait(deadline, stop)),
        }
    }

    fn counters(&mut self) -> NetifCounters {
        match self {
            Self::Socket(port) => port.counters(),
            Self::Relay(_) => NetifCounters::default(),
        }
    }
}
