//! What a connection allows its program.

use super::{Connection, Phase, send::Fin};
use crate::{Error, Reason};

impl Connection {
    /// Why nothing can be sent any more, if so.
    pub(crate) fn check_send(&self) -> Result<(), Error> {
        if self.flags.is_frozen {
            return Err(Error::Frozen);
        }
        match self.phase {
            Phase::Closed(reason) => Err(Error::Ended(reason)),
            Phase::TimeWait => Err(Error::Shutdown),
            Phase::Away(_) => Err(Error::Unknown),
            _ if self.send.fin != Fin::No => Err(Error::Shutdown),
            Phase::SynSent | Phase::SynReceived => Err(Error::NotConnected),
            Phase::Open => Ok(()),
        }
    }

    /// What a reader gets when no byte is there.
    pub(crate) fn end_of_bytes(&self) -> Result<usize, Error> {
        match self.phase {
            Phase::SynSent | Phase::SynReceived => Err(Error::NotConnected),
            Phase::Closed(Reason::Finished) | Phase::TimeWait => Ok(0),
            _ if self.receive.is_finished() => Ok(0),
            Phase::Closed(reason) => Err(Error::Ended(reason)),
            _ => Err(Error::WouldBlock),
        }
    }

    /// Ends the own stream behind what is there.
    pub(crate) fn finish(&mut self) {
        if self.send.fin == Fin::No {
            self.send.fin = Fin::Wanted;
            self.flags.closed_first = !self.receive.is_finished();
        }
    }
}
