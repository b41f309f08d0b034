//! Which endpoints hand short frames straight to the driver, and when.
//!
//! The memory of the interface's queue is one user's ([`netif::DirectPool`]): of the first one whose endpoint could have a socket of it,
//! until another user wants it and none of the first one's endpoints is open. Whether such sockets are used, all endpoints read in the peer
//! table: the authority says it anew with every look, and what it has not said for a while does not hold any more.

use std::{
    io,
    time::{Duration, Instant},
};

use netif::{DirectPool, Interface, PreparedDirect};
use weft_authority::ENDPOINTS;

/// Who has a socket of the memory can keep it as it is, with an interface of his own, when its queue is long another user's. So it is not
/// made anew more often than this, for whomever,
const BETWEEN_POOLS: Duration = Duration::from_secs(60);
/// and tried again when that failed,
const BETWEEN_TRIES: Duration = Duration::from_secs(1);
/// nor made more often than this while the authority runs: 64 MiB.
const POOLS_MAX: u32 = 32;

/// The user whom the system names for all those that it has no number for here, by default: any number of them.
const NOBODY: u32 = 65_534;

/// What there is for sending past everything.
#[derive(Debug)]
pub(crate) struct DirectTransmit {
    allowed: bool,
    pool: Option<Pool>,
    pools_made: u32,
    /// When the next one may be made.
    pool_due: Option<Instant>,
    /// Why an endpoint does without, as it was said last.
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

    /// A socket for an endpoint of this user that is being opened, if it can have one. `open`: a bit for each endpoint that is.
    pub(crate) fn socket(
        &mut self,
        interface: &Interface,
        endpoint: u8,
        user: u32,
        open: u32,
    ) -> Option<PreparedDirect> {
        // The queue of a card may be wanted by somebody who can use it.
        if !self.allowed || user == NOBODY || !interface.copies_frames_of_direct_pools() {
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
                "user {} has the queue of {}; user {user} does without",
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
                self.say(format!(
                    "{error}; endpoint {endpoint} does not hand frames straight to the driver"
                ));
                None
            }
        }
    }

    /// Takes the queue for this user if it may be tried again, from whoever has it.
    fn make_pool(&mut self, interface: &Interface, user: u32) {
        if self.pools_made >= POOLS_MAX || self.pool_due.is_some_and(|due| due > Instant::now()) {
            return;
        }
        // The kernel gives it back some time later: this endpoint may have to do without.
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
                    "{error}; no endpoint hands frames straight to the driver of {}",
                    interface.name
                ));
            }
        }
    }

    /// Once for each reason: it costs speed alone, and endpoints may come and go often.
    fn say(&mut self, sentence: String) {
        if self.said != sentence {
            tracing::debug!("{sentence}");
            self.said = sentence;
        }
    }

    /// How long frames may be that are handed straight to the driver now. Sockets of endpoints that are open may be from before this
    /// authority began.
    pub(crate) fn frame_len_max(&mut self, interface: &Interface, open: u32) -> usize {
        if !self.allowed || open == 0 || !interface.up {
            return 0;
        }
        match interface.egress_is_bare() {
            Ok(true) => interface.frame_len_max(),
            Ok(false) => 0,
            Err(error) => {
                self.say(format!(
                    "{error}; what else sees the frames that {} sends is not known",
                    interface.name
                ));
                0
            }
        }
    }
}

/// Nothing will be different next time.
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
            assert!(on.socket(&interface, 0, NOBODY, 0).is_none());
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
