//! Sends to peers that are not connected yet: kept in their order, and posted when there is an answer. A peer that cannot be reached ends
//! each of them with an error.

use std::{
    collections::{HashMap, VecDeque},
    ffi::c_int,
};

use omx::SendUntil;

use super::{Guarded, State, connection::Connection};
use crate::{abi::*, completion_queue::Failure};

/// What the library is to be asked for to send the message of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posting {
    /// The number of the operation.
    pub(super) number: usize,
    /// The bytes of the message that are behind the prefix in the operation's own memory.
    pub(super) small_len: usize,
    pub(super) match_info: u64,
    pub(super) until: SendUntil,
    /// The bytes of the message.
    pub(super) len: usize,
}

/// The sends that wait for connections.
pub(super) struct Kept {
    /// Oldest first, by the number of the peer. No queue is empty.
    queues: HashMap<FiAddr, VecDeque<Posting>>,
    count: usize,
    count_max: usize,
}

impl Kept {
    /// Makes room for so many sends to all peers together.
    pub(super) fn new(count_max: usize) -> Self {
        Self {
            queues: HashMap::new(),
            count: 0,
            count_max,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) const fn has_room(&self) -> bool {
        self.count < self.count_max
    }

    /// Returns the peers that sends wait for.
    pub(super) fn peers(&self) -> impl Iterator<Item = FiAddr> {
        self.queues.keys().copied()
    }

    pub(super) fn push(&mut self, to: FiAddr, posting: Posting) {
        self.queues.entry(to).or_default().push_back(posting);
        self.count += 1;
    }

    fn first(&self, to: FiAddr) -> Option<Posting> {
        self.queues.get(&to)?.front().copied()
    }

    fn pop(&mut self, to: FiAddr) -> Option<Posting> {
        let queue = self.queues.get_mut(&to)?;
        let first = queue.pop_front();
        self.count -= usize::from(first.is_some());
        if queue.is_empty() {
            self.queues.remove(&to);
        }
        first
    }
}

impl State {
    /// Posts the sends whose peers are connected, and ends those whose peers cannot be reached.
    #[cold]
    pub(super) fn post_kept(&self, guarded: &mut Guarded) {
        guarded.notice_changes();
        let peers: Vec<_> = guarded.kept.peers().collect();
        for number in peers {
            let connection = guarded.connections.get_mut(number as usize);
            match connection.map_or(Connection::None, |connection| *connection) {
                Connection::Asked { .. } => self.tell_silence(guarded, number),
                Connection::Answered(address) | Connection::Made(address) => {
                    while let Some(posting) = guarded.kept.first(number) {
                        match self.hand_over(guarded, &posting, address) {
                            Ok(()) => {}
                            // The library has no room now.
                            Err(FI_EAGAIN) => break,
                            Err(err) => self.give_up(guarded, posting.number, err),
                        }
                        guarded.kept.pop(number);
                    }
                    if guarded.kept.first(number).is_none() {
                        guarded.connections[number as usize] = Connection::Made(address);
                    }
                }
                // A send that the program cannot be told of leaves the error to the next call.
                Connection::Failed(err) => {
                    if self.give_up_all(guarded, number, err) {
                        guarded.connections[number as usize] = Connection::None;
                    }
                }
                // The peer was removed.
                Connection::None => _ = self.give_up_all(guarded, number, FI_ECANCELED),
            }
        }
    }

    /// Ends all sends to a peer with an error. Returns whether the program is told of one of them.
    fn give_up_all(&self, guarded: &mut Guarded, number: FiAddr, err: c_int) -> bool {
        let mut is_told = false;
        while let Some(posting) = guarded.kept.pop(number) {
            is_told |= !guarded.operations[posting.number].context.is_null();
            self.give_up(guarded, posting.number, err);
        }
        is_told
    }

    fn give_up(&self, guarded: &mut Guarded, number: usize, err: c_int) {
        let sent = guarded.operations[number].sent();
        guarded.release(number);
        self.complete_send(guarded, &sent, Some(Failure { err, overflow_len: 0 }));
    }
}
