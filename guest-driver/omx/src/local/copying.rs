//! Long messages between endpoints of one host: they are copied once, from the memory of the other program, or asked
//! for in pieces where that is not allowed.

use std::io;

use mxoe::engine::Counter;

use super::{
    Local,
    pair::{Pull, Scope},
};
use crate::{StatusCode, clock, store::Store};

/// This many bytes are copied from other programs in one step: about a millisecond, after which the interface gets its
/// turn.
const COPY_PER_STEP: u32 = 8 << 20;

impl Local {
    /// Copies matched messages from the memory of other programs.
    pub(super) fn copy(&mut self, store: &mut Store) {
        let mut budget = COPY_PER_STEP;
        while budget > 0
            && let Some(pull) = self.pulls.pop_front()
        {
            let Some(at) = self.pairs.iter().position(|pair| pair.id == pull.large.pair) else {
                store.received(pull.request, StatusCode::Unreachable, 0);
                continue;
            };
            budget -= self.copy_some(store, at, pull, budget);
        }
    }

    /// Copies a matched message from the memory of the program of the pair at this place, `budget` bytes at most, or
    /// asks for it piece by piece. An unfinished copy comes first the next time. Returns how many bytes were copied.
    fn copy_some(&mut self, store: &mut Store, at: usize, mut pull: Pull, budget: u32) -> u32 {
        let mut copied = 0;
        let single_copy = self.options.single_copy;
        let pair = &mut self.pairs[at];
        let pid = if single_copy && !pair.two_copies {
            pair.pid()
        } else {
            None
        };
        let mut scope = scope!(self, store);
        let entry = scope.store.requests.get(pull.request);
        let give_up_ns = entry
            .and_then(|entry| entry.give_up_ns)
            .unwrap_or(self.options.give_up_ns);
        if pull.wanted > 0 && pid.is_none() && pull.offset == 0 {
            let until = clock::now().plus_nanos(give_up_ns);
            pair.ask(&pull, until, &mut scope);
            pair.write_waiting(&mut scope);
            return 0;
        }
        let now = (pull.wanted - pull.offset).min(budget);
        let read = match (scope.store.requests.get_mut(pull.request), pid) {
            _ if now == 0 => Ok(0),
            (Some(entry), Some(pid)) => {
                let memory = &mut entry.memory;
                memory.read_process(pid, &pull.large.list, pull.offset, now)
            }
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        match read {
            Ok(read) if read > 0 || now == 0 => {
                pull.offset += read;
                copied = read;
                if pull.offset < pull.wanted {
                    self.pulls.push_front(pull);
                    return copied;
                }
                if pull.wanted > 0 && pair.may_be_withdrawn(&pull.large) {
                    // What was read may be something else by now. The other side knows.
                    let until = clock::now().plus_nanos(give_up_ns);
                    pair.ask(&pull, until, &mut scope);
                    pair.write_waiting(&mut scope);
                    return copied;
                }
                scope.counters.count(Counter::SharedPull);
                scope.store.received(pull.request, StatusCode::Success, pull.wanted);
                pair.finish(pull.large.id, Some(pull.wanted), &mut scope);
            }
            Err(error) if pull.offset == 0 && may_not(&error) => {
                tracing::info!(
                    "the memory of endpoint {}'s program cannot be read ({error}); long messages are copied twice",
                    pair.endpoint
                );
                pair.two_copies = true;
                self.pulls.push_front(pull);
                return 0;
            }
            // Its memory is not what it said, or it is gone.
            _ => {
                scope.store.received(pull.request, StatusCode::BadRdmaWindow, 0);
                pair.finish(pull.large.id, None, &mut scope);
            }
        }
        pair.write_waiting(&mut scope);
        copied
    }
}

/// Whether the system forbids reading other programs' memory, or does not know how.
fn may_not(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    errno == Some(libc::EPERM) || errno == Some(libc::ENOSYS)
}
