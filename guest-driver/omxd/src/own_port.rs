//! The authority's own port: a packet socket, or the first queue pair of a card that programs drive themselves.

use std::{
    collections::VecDeque,
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use ether::EtherType;
use netif::{
    AfPacket, AfPacketOptions, Interest, Interface, Netif, NetifError, VirtioPort, Wake,
    virtio::{Card, PAIRS_MAX},
};

use crate::filter;

/// Ring of the authority's own socket, in bytes: a few hundred queries and stray frames.
pub(crate) const OWN_RING_LEN: usize = 512 << 10;
/// A card without interrupts is looked at this often while nothing comes: queries of other hosts can wait, and looking
/// takes time from the programs.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// The authority's own port.
pub(crate) enum OwnPort {
    Socket(Box<AfPacket>),
    Card(Box<OwnCard>),
}

/// A card, and a port on its first queue pair.
pub(crate) struct OwnCard {
    // Before the card is reset.
    pub(crate) port: VirtioPort,
    pub(crate) card: Card,
    /// Frames of other hosts that came while the authority talked with the card.
    pub(crate) kept: VecDeque<Vec<u8>>,
    /// The one that the caller has.
    lent: Vec<u8>,
}

impl OwnPort {
    /// Opens the port, for all frames that are not for the endpoints in `open`. `programs` may have endpoints from before.
    pub(crate) fn open(
        interface: &Interface,
        ether_type: EtherType,
        open: u32,
        programs: &[u32],
    ) -> Result<Self, NetifError> {
        match interface.card() {
            Some(address) => {
                let card = Card::open(address, PAIRS_MAX, programs)?;
                let mut port = VirtioPort::from_prepared(card.prepare(0)?, ether_type)?;
                port.limit_pause(PAUSE_MAX);
                Ok(Self::Card(Box::new(OwnCard {
                    port,
                    card,
                    kept: VecDeque::new(),
                    lent: Vec::new(),
                })))
            }
            None => Self::open_socket(&interface.name, ether_type, open).map(|port| Self::Socket(Box::new(port))),
        }
    }

    /// Opens a socket for all frames that are not for the endpoints in `open`.
    pub(crate) fn open_socket(interface: &str, ether_type: EtherType, open: u32) -> Result<AfPacket, NetifError> {
        let own_ring = AfPacketOptions {
            ring_len: OWN_RING_LEN,
            ..AfPacketOptions::default()
        };
        let port = AfPacket::open(interface, ether_type, &own_ring)?;
        port.set_filter(&filter::for_authority(open))?;
        Ok(port)
    }

    /// Passes only frames that are not for the endpoints in `open`. A card steers those of endpoints away.
    pub(crate) fn set_open(&self, open: u32) -> Result<(), NetifError> {
        match self {
            Self::Socket(port) => port.set_filter(&filter::for_authority(open)),
            Self::Card(_) => Ok(()),
        }
    }

    pub(crate) fn card(&mut self) -> Option<&mut OwnCard> {
        match self {
            Self::Socket(_) => None,
            Self::Card(own) => Some(own),
        }
    }

    pub(crate) fn poll_receive(&mut self) -> Result<Option<&[u8]>, NetifError> {
        match self {
            Self::Socket(port) => port.poll_receive(),
            Self::Card(own) => match own.kept.pop_front() {
                Some(frame) => {
                    own.lent = frame;
                    Ok(Some(&own.lent))
                }
                None => own.port.poll_receive(),
            },
        }
    }

    pub(crate) fn send(&mut self, frame: &[u8]) -> Result<bool, NetifError> {
        let parts = [IoSlice::new(frame)];
        match self {
            Self::Socket(port) => port.send(&parts),
            Self::Card(own) => own.port.send(&parts),
        }
    }

    /// Prepares for waiting on the port's descriptor. Returns true if a frame is there already.
    pub(crate) fn is_ready(&mut self) -> bool {
        match self {
            Self::Socket(_) => false,
            Self::Card(own) => {
                let frame = own.port.wait(Interest::Receive, Instant::now(), None);
                !own.kept.is_empty() || matches!(frame, Ok(Wake::Ready))
            }
        }
    }
}

impl AsFd for OwnPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Socket(port) => port.as_fd(),
            Self::Card(own) => own.port.as_fd(),
        }
    }
}
