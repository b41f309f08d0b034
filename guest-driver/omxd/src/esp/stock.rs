//! Sockets for programs, made ahead on a thread of their own: the kernel waits for all processors when it makes a ring. That takes some
//! ten milliseconds, and a second where programs that yield keep all cores busy, in which handshakes would not be answered.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use netif::{AfPacketOptions, Interface, UnboundSocket};
use weft_authority::OmxdError;

/// Sockets that are ready, each with the memory of its ring: as many programs can begin at the same time without waiting.
const READY: usize = 4;

/// The sockets that are ready, and those that are being made.
pub(super) struct Stock {
    /// Names of the interface, one for each socket that is wanted. The thread ends with this end.
    wanted: Sender<String>,
    made: Receiver<Option<UnboundSocket>>,
    /// Sockets that were asked for and not taken.
    pending: usize,
}

impl Stock {
    /// Begins to make sockets for an interface.
    ///
    /// # Errors
    /// The system's, where it has no thread.
    pub(super) fn new(name: &str, options: AfPacketOptions) -> Result<Self, OmxdError> {
        let (wanted, names) = channel::<String>();
        let (made, taken) = channel();
        let make = move || {
            for name in names {
                // Whoever takes it makes one at once then, and says what is wrong.
                let socket = UnboundSocket::new(&name, &options).ok();
                if made.send(socket).is_err() {
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
    pub(super) fn take(&mut self, interface: &Interface) -> Option<UnboundSocket> {
        let mut found = None;
        while found.is_none()
            && let Ok(made) = self.made.try_recv()
        {
            self.pending -= 1;
            found = made.filter(|made| made.fits(interface));
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
