//! Direct transmit: which endpoints hand short frames directly to the driver, and when.
//!
//! The memory of the interface's queue belongs to one user ([`netif::DirectPool`]): the first one whose endpoint could
//! have a socket of it, until another user wants it and none of the first one's endpoints is open. All endpoints read
//! in the peer table whether such sockets may be used: the authority writes it anew with every check, and what it has
//! not repeated for a while is not valid any more.

use std::{
    io,
    time::{Duration, Instant},
};

use netif::{DirectPool, Interface, PreparedDirect};
use weft_authority::ENDPOINTS;

/// A pool is made anew no more often than this, for all users together: a user with a socket of the memory can keep it,
/// with an interface of his own, long after its queue has become another user's.
const BETWEEN_POOLS: Duration = Duration::from_secs(60);
/// A pool that could not be made is tried again after this time.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);
/// The authority makes at most so many pools while it runs: 64 MiB.
const POOLS_MAX: u32 = 32;

/// The user that the system names in place of all users without a number here, by default: there may be any number of
/// them.
const UNMAPPED_USER: u32 = 65_534;

/// The pool for direct transmit and what is known about it.
#[derive(Debug)]
pub(crate) struct DirectTransmit {
    allowed: bool,
    pool: Option<Pool>,
    pools_made: u32,
    /// The time from which the next pool may be made.
    pool_due: Option<Instant>,
    /// The last reason that was logged for an endpoint without direct transmit.
    said: String,
}

#[derive(Debug)]
struct Pool {
    memory: DirectPool,
    user: u32,
    /// A bit for each endpoint with a socket.
    endpoints: u32,
}

impl DirectTransmit {
    pub(crate) const fn new(allowed: bool) -> Self {
        Self {
            allowed,
            pool: None,
            pools_made: 0,
            pool_due: None,
            said: String::new(),
        }
    }

    /// Makes a socket for an endpoint of this user that is being opened, if it can have one. `open`: a bit for each
    /// open endpoint.
    pub(crate) fn socket(
        &mut self,
        interface: &Interface,
        endpoint: u8,
        user: u32,
        open: u32,
    ) -> Option<PreparedDirect> {
        // A program that can use the card's queue may want it.
        if !self.allowed || user == UNMAPPED_USER || !DirectPool::copies_frames_of(interface) {
            return None;
        }
        match interface.has_no_queue() {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => {
                self.say(format!("{error}; whether {} has a queue is not known", interface.name));
                return None;
            }
        }
        if self
            .pool
            .as_ref()
            .is_none_or(|pool| pool.user != user && pool.endpoints & open == 0)
        {
            self.make_pool(interface, user);
        }
        let pool = self.pool.as_mut()?;
        if pool.user != user {
            let sentence = format!(
                "user {} has the queue of {}; endpoints of user {user} use packet sockets only",
                pool.user, interface.name
            );
            self.say(sentence);
            return None;
        }
        match pool.memory.socket(endpoint.into()) {
            Ok(socket) => {
                pool.endpoints = pool.endpoints & open | 1 << endpoint;
                Some(socket)
            }
            Err(error) => {
                self.say(format!("{error}; endpoint {endpoint} sends by packet sockets only"));
                None
            }
        }
    }

    /// Takes the queue for this user, if it may be tried again, from the user who has it.
    fn make_pool(&mut self, interface: &Interface, user: u32) {
        if self.pools_made >= POOLS_MAX || self.pool_due.is_some_and(|due| due > Instant::now()) {
            return;
        }
        // The kernel gives it back some time later: this endpoint may get no socket.
        self.pool = None;
        match DirectPool::new(interface, ENDPOINTS.into()) {
            Ok(memory) => {
                self.pools_made += 1;
                self.pool_due = Some(Instant::now() + BETWEEN_POOLS);
                self.pool = Some(Pool {
                    memory,
                    user,
                    endpoints: 0,
                });
            }
            Err(error) => {
                self.allowed = !is_final(&error);
                self.pool_due = Some(Instant::now() + BETWEEN_TRIES);
                self.say(format!(
                    "{error}; no endpoint hands frames directly to the driver of {}",
                    interface.name
                ));
            }
        }
    }

    /// Logs a reason once: it costs only speed, and endpoints may come and go often.
    fn say(&mut self, sentence: String) {
        if self.said != sentence {
            tracing::debug!("{sentence}");
            self.said = sentence;
        }
    }

    /// Returns the longest frame that may use direct transmit now. Sockets of open endpoints may be from before this
    /// authority started.
    pub(crate) fn frame_len_max(&mut self, interface: &Interface, open: u32) -> usize {
        if !self.allowed || open == 0 || !interface.up {
            return 0;
        }
        match interface.egress_is_bare() {
            Ok(true) => interface.frame_len_max(),
            Ok(false) => 0,
            Err(error) => {
                self.say(format!(
                    "{error}; it is not known what observes the frames that {} sends",
                    interface.name
                ));
                0
            }
        }
    }
}

/// Whether another attempt would fail, too.
fn is_final(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
        || [
            libc::EPERM,
            libc::EACCES,
            libc::EOPNOTSUPP,
            libc::EAFNOSUPPORT,
            libc::ENOPROTOOPT,
        ]
        .map(Some)
        .contains(&error.raw_os_error())
}

#[cfg(test)]
mod tests {
    use weft_guest_driver_testkit::{Veth, has_direct_pools, in_private_network};

    use super::*;

    #[test]
    fn a_queue_is_one_user_s_until_its_endpoints_are_closed() {
        let test = "direct::tests::a_queue_is_one_user_s_until_its_endpoints_are_closed";
        in_private_network(test, || {
            let veth = Veth::new(1500);
            let interface = Interface::find(&veth.a).unwrap();
            let mut direct = DirectTransmit::new(true);
            let first = direct.socket(&interface, 3, 0, 0);
            assert_eq!(first.is_some(), has_direct_pools());
            let Some(first) = first else { return };
            assert_eq!(first.part, 3);
            let second = direct.socket(&interface, 4, 0, 1 << 3).unwrap();
            assert!(direct.socket(&interface, 5, 1000, 1 << 3 | 1 << 4).is_none());
            // The number of an endpoint that is over is another one's now.
            assert!(direct.socket(&interface, 3, 0, 1 << 4).is_some());
            drop((first, second));
            // Not yet.
            assert!(direct.socket(&interface, 5, 1000, 1 << 6).is_none());
            assert!(direct.socket(&interface, 3, 0, 0).is_some());
            // The kernel gives it back some time after it was let go.
            let begin = Instant::now();
            let mut other = None;
            while other.is_none() {
                assert!(begin.elapsed() < Duration::from_secs(10));
                direct.pool_due = None;
                other = direct.socket(&interface, 5, 1000, 1 << 6);
            }
            assert!(direct.socket(&interface, 3, 0, 1 << 5).is_none());
            // So often and no more.
            direct.pools_made = POOLS_MAX;
            direct.pool_due = None;
            assert!(direct.socket(&interface, 3, 0, 0).is_none());
            assert!(direct.socket(&interface, 5, 1000, 0).is_some());
        });
    }

    #[test]
    fn nobody_has_a_queue_of_loopback_or_where_it_is_switched_off_or_as_a_user_without_a_number() {
        let test =
            "direct::tests::nobody_has_a_queue_of_loopback_or_where_it_is_switched_off_or_as_a_user_without_a_number";
        in_private_network(test, || {
            let veth = Veth::new(1500);
            let interface = Interface::find(&veth.a).unwrap();
            let loopback = Interface::find("lo").unwrap();
            assert!(DirectTransmit::new(true).socket(&loopback, 0, 0, 0).is_none());
            let mut off = DirectTransmit::new(false);
            assert!(off.socket(&interface, 0, 0, 0).is_none());
            let mut on = DirectTransmit::new(true);
            assert!(on.socket(&interface, 0, UNMAPPED_USER, 0).is_none());
            assert_eq!(on.socket(&interface, 0, 0, 0).is_some(), has_direct_pools());
            assert_eq!(
                on.frame_len_max(&interface, 1),
                if has_direct_pools() { 1514 } else { 0 }
            );
            assert_eq!(on.frame_len_max(&interface, 0), 0);
            assert_eq!(on.frame_len_max(&loopback, 1), 0);
            assert_eq!(off.frame_len_max(&interface, 1), 0);
            let down = Interface { up: false, ..interface };
            assert_eq!(on.frame_len_max(&down, 1), 0);
        });
    }
}
