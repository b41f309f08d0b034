//! Sockets for programs, made ahead on a thread of their own: the kernel waits for all processors when it makes a ring, and when it closes
//! a socket. That takes some ten milliseconds, and a second where programs that yield keep all cores busy, in which handshakes would not be
//! answered.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use netif::{AfPacketOptions, Interface, NetifError, UnboundSocket};
use weft_authority::OmxdError;

use crate::own_port::OWN_RING_LEN;

/// Sockets that are ready, each with the memory of its ring: as many programs can begin at the same time without waiting.
const READY: usize = 4;

/// What is made for one program.
pub(super) struct Made {
    pub(super) socket: UnboundSocket,
    /// A port for the authority that is younger than the program's sockets, where those are two and may share a lookup with it.
    pub(super) port: Option<UnboundSocket>,
}

impl Made {
    /// Makes the sockets for one program; two where `bulk` says so and the process may.
    pub(super) fn new(name: &str, options: &AfPacketOptions, bulk: bool) -> Result<Self, NetifError> {
        let socket = if bulk {
            UnboundSocket::with_bulk(name, options, options.ring_len)?
        } else {
            UnboundSocket::new(name, options)?
        };
        let own_ring = AfPacketOptions {
            ring_len: OWN_RING_LEN,
            ..AfPacketOptions::default()
        };
        let port = socket.has_bulk().then(|| UnboundSocket::new(name, &own_ring));
        Ok(Self {
            port: port.transpose()?,
            socket,
        })
    }
}

/// Closes sockets without waiting for it. Without a thread it is done here.
pub(super) fn close_later(sockets: impl Send + 'static) {
    let _ = thread::Builder::new().spawn(move || drop(sockets));
}

/// The sockets that are ready, and those that are being made.
pub(super) struct Stock {
    /// Names of the interface, one for each socket that is wanted. The thread ends with this end.
    wanted: Sender<String>,
    made: Receiver<Option<Made>>,
    /// Sockets that were asked for and not taken.
    pending: usize,
}

impl Stock {
    /// Begins to make sockets for an interface.
    ///
    /// # Errors
    /// The system's, where it has no thread.
    pub(super) fn new(name: &str, options: AfPacketOptions, bulk: bool) -> Result<Self, OmxdError> {
        let (wanted, names) = channel::<String>();
        let (made, taken) = channel();
        let make = move || {
            for name in names {
                // Whoever takes it makes one at once then, and says what is wrong.
                if made.send(Made::new(&name, &options, bulk).ok()).is_err() {
                    return;
                }
            }
        };
        let start = || thread::Builder::new().name("stock".to_owned()).spawn(make);
        weft_authority::without_signals(start).map_err(OmxdError::io("start a thread"))?;
        let mut stock = Self {
            wanted,
            made: taken,
            pending: 0,
        };
        stock.fill(name);
        Ok(stock)
    }

    /// Takes a socket that fits the interface as it is, if one is ready.
    pub(super) fn take(&mut self, interface: &Interface) -> Option<Made> {
        let mut found = None;
        while found.is_none()
            && let Ok(made) = self.made.try_recv()
        {
            self.pending -= 1;
            found = made.filter(|made| made.socket.fits(interface));
        }
        self.fill(&interface.name);
        found
    }

    fn fill(&mut self, name: &str) {
        while self.pending < READY && self.wanted.send(name.to_owned()).is_ok() {
            self.pending += 1;
        }
    }
}
