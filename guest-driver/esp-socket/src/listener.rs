//! Listening and accepting. A listener stays a TCP socket; the authorities announce connections over ESP by connecting to it from an
//! address of their own, so that the kernel's queue, its sets of epoll and forked workers all work as ever.

use std::{
    net::SocketAddr,
    os::fd::RawFd,
    sync::{Arc, Mutex, Once, PoisonError},
    thread,
    time::Duration,
};

use libc::{sockaddr, socklen_t};
use weft_authority::{
    OmxdError, Refusal,
    esp::{EspKey, EspListener, may_be_token},
};

use crate::{
    address::RawAddress,
    connect::{Made, become_stream},
    counters::{self, Count},
    errno::Errno,
    links::{self, Alive, Link, OpenLink},
    own_fds,
    reserve::Reserved,
    rights, system,
    table::{self, Entry},
};

/// The interval in which lost authorities are looked for.
const LOOK: Duration = Duration::from_millis(200);

/// A listening TCP socket that the authorities know.
pub struct Listener {
    address: SocketAddr,
    only_v6: bool,
    known: Mutex<Vec<Known>>,
}

/// A listener at one authority.
struct Known {
    link: Arc<Link>,
    id: u64,
    key: EspKey,
    alive: own_fds::OwnFd,
}

impl Listener {
    /// Registers the listener at an authority.
    fn register(&self, link: &Arc<Link>) {
        // A connection that has been announced cannot go back to TCP, so there must be ports to take it up.
        let listened = link
            .host()
            .and_then(|_| link.ask(|session| session.listen_esp(self.address, self.only_v6)));
        let Ok(EspListener { id, key, alive }) = listened else {
            // Connections come by TCP then.
            return;
        };
        let alive = own_fds::OwnFd::new(alive);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|one| !Arc::ptr_eq(&one.link, link));
        known.push(Known {
            link: link.clone(),
            id,
            key,
            alive,
        });
    }

    /// Returns the interfaces over which connections come; a forked child connects to their authorities anew, and opens ports. That is done
    /// before a connection is taken out of the queue of the kernel's socket, since a program that has no numbers left afterwards loses it.
    ///
    /// # Errors
    /// `EMFILE`.
    fn open_links(&self) -> Result<Vec<OpenLink>, Errno> {
        let names: Vec<_> = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.iter().map(|one| one.link.interface.name.clone()).collect()
        };
        let mut open = links::open_links(|interface| names.contains(&interface.name));
        let is_there = |name: &String| open.iter().any(|(link, _)| link.interface.name == *name);
        if !names.iter().all(is_there) {
            own_fds::check_room(links::FDS)?;
            // Connections of an authority that is gone, or has no ports left, cannot be taken up.
            let links = names.iter().filter_map(|name| links::link(name));
            open = links.filter_map(links::with_host).collect();
        }
        Ok(open)
    }

    fn key_at(&self, link: &Link) -> Option<EspKey> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known
            .iter()
            .find(|one| one.link.interface.index == link.interface.index);
        found.map(|one| one.key)
    }
}

fn name_of(fd: RawFd) -> Option<SocketAddr> {
    let mut raw = RawAddress::room();
    let (to, len) = raw.parts_mut();
    // SAFETY: `raw` has the room that it says.
    let result = unsafe { libc::syscall(libc::SYS_getsockname, fd, to, len) };
    (result == 0).then(|| raw.ip()).flatten()
}

/// What became of an announcement.
struct Announced {
    /// Nothing was announced of the socket before.
    is_new: bool,
    /// All authorities know what they can know of it.
    is_complete: bool,
}

/// Tells the authorities that a socket listens, or is about to.
fn announce(fd: RawFd) -> Announced {
    let mut announced = Announced {
        is_new: false,
        is_complete: true,
    };
    if system::option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) != Ok(libc::IPPROTO_TCP) {
        return announced;
    }
    let known = match table::get(fd) {
        Some(Entry::Listener(listener)) => Some(listener),
        _ => None,
    };
    let Some(address) = name_of(fd).filter(|address| !address.ip().is_loopback()) else {
        return announced;
    };
    if address.port() == 0 {
        // It gets one when it listens.
        announced.is_complete = false;
        return announced;
    }
    let own = links::own_addresses();
    let links: Vec<_> = if address.ip().is_unspecified() {
        links::all()
    } else {
        let interface = own.iter().find(|(_, ip)| *ip == address.ip());
        interface.and_then(|(name, _)| links::link(name)).into_iter().collect()
    };
    announced.is_new = known.is_none();
    let only_v6 = address.is_ipv6() && system::option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Ok(1);
    let listener = known.unwrap_or_else(|| {
        Arc::new(Listener {
            address,
            only_v6,
            known: Mutex::new(Vec::new()),
        })
    });
    for link in &links {
        if listener.key_at(link).is_none() {
            listener.register(link);
        }
    }
    announced.is_complete = links.iter().all(|link| listener.key_at(link).is_some());
    if announced.is_new {
        table::replace(fd, Some(Entry::Listener(listener)));
        crate::set_in_use();
        rights::share();
        watch();
    }
    announced
}

/// Has a socket listen, by the kernel's call, for connections over ESP and TCP. A client that finds it by TCP is to find it by ESP, too, so
/// the authorities are told first. One of them may not take it before the call: that an ordinary user has the port is seen once the kernel
/// listens, and a socket without a port gets it then.
///
/// # Errors
/// Those of the call; nothing stays announced then.
pub fn listen<T>(fd: RawFd, call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let announced = announce(fd);
    let done = call();
    if done.is_err() && announced.is_new {
        shut_down(fd);
        table::replace(fd, None);
    } else if done.is_ok() && !announced.is_complete {
        announce(fd);
    }
    done
}

/// A listener takes no more connections.
pub fn shut_down(fd: RawFd) {
    if let Some(Entry::Listener(listener)) = table::get(fd) {
        let known = std::mem::take(&mut *listener.known.lock().unwrap_or_else(PoisonError::into_inner));
        for one in known {
            // An authority that is gone has forgotten it.
            let _ = one.link.ask(|session| session.forget_esp_listener(one.id, one.key));
            drop(one.alive);
        }
    }
}

/// Registers listeners anew at authorities that come back.
fn watch() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let generation = crate::processes::generation();
        let look = move || {
            while generation == crate::processes::generation() {
                thread::sleep(LOOK);
                look_after();
            }
        };
        let start = || {
            thread::Builder::new()
                .name("esp-listen".to_owned())
                .stack_size(256 << 10)
                .spawn(look)
        };
        // Without the thread, listeners are lost with their authority.
        let _ = weft_authority::without_signals(start);
    });
}

fn look_after() {
    // A copy of a connection would keep it in the program's sets of epoll while the program closes it.
    let listeners = table::pick(|entry| match entry {
        Entry::Listener(listener) => Some(listener.clone()),
        _ => None,
    });
    if listeners.is_empty() {
        return;
    }
    for link in links::present() {
        // Whoever was cut off from the authority stays so, and could not take up what is announced.
        if link.is_alive() == Alive::Again && !rights::are_missing() {
            for (_, listener) in &listeners {
                listener.register(&link);
            }
        }
    }
}

/// Accepts a connection of either kind.
///
/// # Safety
/// `from` has the room that `len` says, or is null.
///
/// # Errors
/// As `accept4(2)`.
pub unsafe fn accept(fd: RawFd, from: *mut sockaddr, len: *mut socklen_t, flags: i32) -> Result<RawFd, Errno> {
    let listener = match table::get(fd) {
        Some(Entry::Listener(listener)) => Some(listener),
        _ => None,
    };
    loop {
        let mut raw = RawAddress::room();
        let (to, raw_len) = raw.parts_mut();
        let (open_links, reserved) = match &listener {
            Some(listener) => (Some(listener.open_links()?), Some(Reserved::take()?)),
            None => (None, None),
        };
        // SAFETY: `raw` has the room that it says.
        let accepted = match unsafe { system::accept(fd, to, raw_len, flags) } {
            Ok(accepted) => accepted,
            Err(error) => {
                Reserved::put_back(reserved);
                return Err(error);
            }
        };
        // A number of a descriptor that was closed behind the library's back.
        table::replace(accepted, None);
        let peer = match raw.ip().filter(|ip| may_be_token(ip.ip())) {
            None => {
                Reserved::put_back(reserved);
                raw
            }
            Some(token) => match claim(listener.as_deref(), open_links, accepted, token, reserved) {
                Claim::Made(peer) => peer,
                Claim::Ordinary => raw,
                Claim::Failed => {
                    own_fds::close_raw(accepted);
                    continue;
                }
            },
        };
        if !from.is_null() {
            // SAFETY: the caller's promise.
            if let Err(error) = unsafe { peer.give(from, len) } {
                table::replace(accepted, None);
                own_fds::close_raw(accepted);
                return Err(error);
            }
        }
        return Ok(accepted);
    }
}

/// What an accepted connection from a token's address is.
enum Claim {
    /// One over ESP, from this peer.
    Made(RawAddress),
    /// A program's of this host.
    Ordinary,
    /// One over ESP that is over already.
    Failed,
}

/// Takes a connection up that was announced. The listener, its links and what is reserved are `None` for a socket that was made to listen by
/// another program.
fn claim(
    listener: Option<&Listener>,
    open_links: Option<Vec<OpenLink>>,
    accepted: RawFd,
    token: SocketAddr,
    reserved: Option<Reserved>,
) -> Claim {
    let Ok(reserved) = reserved.map_or_else(Reserved::take, Ok) else {
        return Claim::Failed;
    };
    let open_links = open_links.unwrap_or_else(|| links::all().into_iter().filter_map(links::with_host).collect());
    for (link, host) in open_links {
        let key = listener.and_then(|listener| listener.key_at(&link));
        let claimed = match link.ask(|session| session.claim_esp(token, key)) {
            Ok(claimed) => claimed,
            Err(OmxdError::Refused {
                reason: Refusal::NoToken,
                ..
            }) => continue,
            Err(_) => return Claim::Failed,
        };
        let Some(id) = host.attach(&claimed.handover) else {
            counters::count(Count::Unserved);
            return Claim::Failed;
        };
        let made = Made {
            host: host.clone(),
            id,
            own: claimed.local,
            peer: claimed.peer,
        };
        return match become_stream(accepted, &made, reserved) {
            Ok(stream) => {
                counters::count(Count::Accepts);
                Claim::Made(stream.names.1)
            }
            Err(_) => {
                host.run(|state, now| state.close(id, true, now));
                Claim::Failed
            }
        };
    }
    if token.ip().is_ipv6() {
        Claim::Ordinary
    } else {
        Claim::Failed
    }
}
