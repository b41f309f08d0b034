//! How a connection ends.

use super::{Connection, Due, Phase, send::Fin, shared::Shared};
use crate::{Reason, event};

impl Connection {
    /// It is over: what was not sent is forgotten; what can be read stays.
    pub(crate) fn end(&mut self, reason: Reason, shared: &mut Shared) {
        if self.phase != Phase::TimeWait {
            self.events |= event::CLOSED;
        }
        self.phase = Phase::Closed(reason);
        self.due = Due::NEVER;
        self.ends.moving_from = None;
        self.send.clear(&mut shared.memory, &mut shared.sent_lists);
        self.receive.clear_parked(&mut shared.memory, &mut shared.parked_lists);
    }

    /// Gives all memory back.
    pub(crate) fn clear(&mut self, shared: &mut Shared) {
        self.send.clear(&mut shared.memory, &mut shared.sent_lists);
        self.receive.clear(&mut shared.memory, &mut shared.parked_lists);
    }

    /// Whether the peer's stream has ended, and the peer has taken all that was sent.
    pub(crate) fn has_heard_all(&self) -> bool {
        self.phase == Phase::Open && self.receive.is_finished() && self.send.sent.is_empty()
    }

    /// Whether both streams have ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.phase == Phase::Open && self.send.fin == Fin::Acknowledged && self.receive.is_finished()
    }
}
