//! Which endpoints hand short frames straight to the driver, and when.
//!
//! The memory of the interface's queue is one user's ([`netif::DirectPool`]): of the first one whose endpoint could have a socket of it,
//! until none of that user's endpoints has been open for a while. Whether such sockets are used, all endpoints read in the peer table.

use std::time::{Duration, Instant};

use netif::{DirectPool, Interface, PreparedDirect};

use crate::ENDPOINTS;

/// How long the memory is kept for the next endpoint: making it takes the kernel milliseconds, and giving it back, too.
const KEPT: Duration = Duration::from_secs(5);

/// The user whom the system names for all those that it has no number for here, by default: any number of them.
const NOBODY: u32 = 65_534;

/// What there is for sending past everything.
#[derive(Debug)]
pub(crate) struct DirectTransmit {
    allowed: bool,
    pool: Option<Pool>,
    /// Why the kernel gave no queue, as it was said last.
    said: String,
}

#[derive(Debug)]
struct Pool {
    memory: DirectPool,
    user: u32,
    /// A bit for each endpoint with a socket.
    endpoints: u32,
    /// When one of them was seen open.
    used: Instant,
}

impl DirectTransmit {
    pub(crate) const fn new(allowed: bool) -> Self {
        Self {
            allowed,
            pool: None,
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
        if !self.allowed || user == NOBODY || !interface.has_no_queue().unwrap_or(false) {
            return None;
        }
        if self
            .pool
            .as_ref()
            .is_some_and(|pool| pool.user != user && pool.endpoints & open == 0)
        {
            self.pool = None;
        }
        if self.pool.is_none() {
            match DirectPool::new(interface, ENDPOINTS.into()) {
                Ok(memory) => {
                    self.pool = Some(Pool {
                        memory,
                        user,
                        endpoints: 0,
                        used: Instant::now(),
                    });
                }
                Err(error) => {
                    let may_change = [libc::EBUSY, libc::ENOBUFS, libc::ENOMEM, libc::EMFILE, libc::ENFILE].map(Some);
                    self.allowed = may_change.contains(&error.raw_os_error());
                    self.say(format!(
                        "{error}; no endpoint hands frames straight to the driver of {}",
                        interface.name
                    ));
                }
            }
        }
        let pool = self.pool.as_mut()?;
        if pool.user != user {
            let sentence = format!(
                "user {} has the queue of {}; endpoint {endpoint} does without",
                pool.user, interface.name
            );
            self.say(sentence);
            return None;
        }
        match pool.memory.socket(endpoint.into()) {
            Ok(socket) => {
                pool.endpoints = pool.endpoints & open | 1 << endpoint;
                pool.used = Instant::now();
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

    /// Gives the queue back when nobody has needed it for a while.
    pub(crate) fn look(&mut self, open: u32) {
        let Some(pool) = &mut self.pool else { return };
        if pool.endpoints & open != 0 {
            pool.used = Instant::now();
        } else if pool.used.elapsed() > KEPT {
            let pool = self.pool.take();
            // It takes the kernel milliseconds, in which nobody would be served. Without a thread it is done here.
            let _ = std::thread::Builder::new().spawn(move || drop(pool));
        }
    }
}

#[cfg(test)]
mod tests {
    use netif::testing::{Veth, has_direct_pools, in_private_network};

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
            // The kernel gives it back some time after it was let go.
            let begin = Instant::now();
            while direct.socket(&interface, 5, 1000, 1 << 6).is_none() {
                assert!(begin.elapsed() < Duration::from_secs(10));
                std::thread::yield_now();
            }
            assert!(direct.socket(&interface, 3, 0, 1 << 5).is_none());
            // Kept for the next one for a while.
            direct.look(0);
            assert!(direct.pool.is_some());
            direct.pool.as_mut().unwrap().used -= KEPT;
            direct.look(1 << 5);
            direct.look(0);
            assert!(direct.pool.is_some());
            direct.pool.as_mut().unwrap().used -= KEPT;
            direct.look(0);
            assert!(direct.pool.is_none());
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
