//! Connecting: by ESP where the peer speaks it, otherwise as ever.
//!
//! The handshake with the peer's authority takes as long as a round trip, so a call that does not wait makes it, too; the program gets
//! its `EINPROGRESS` and a descriptor that is writable at once. Two things make such a call take longer: an address of the Ethernet for
//! which no host answers, a third of a second once in five seconds, and a peer that answered a short time ago and does not now, a second.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::RawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use esp::ConnectionId;
use ether::MacAddr;
use libc::{sockaddr, socklen_t};
use weft_authority::esp::EspRoute;

use crate::{
    address::{self, RawAddress},
    counters::{self, Count},
    errno::Errno,
    host::{Host, now},
    links,
    processes::Frozen,
    reserve::Reserved,
    settings,
    spin::Spin,
    stream::Stream,
    system,
    table::{self, Entry},
};

/// So long a handshake may take before the program gets its connection by TCP.
const HANDSHAKE_LIMIT_NS: u64 = 1_000_000_000;
/// The kernel's number for a socket that is neither connected nor listens.
const TCP_CLOSE: u8 = 7;

/// What becomes of a call.
#[derive(Debug)]
pub enum Way {
    /// The kernel makes it.
    Tcp,
    /// It is done.
    Esp(Result<(), Errno>),
}

/// Connects by ESP if that is possible.
///
/// # Safety
/// `to` points to `len` bytes, or is null.
pub unsafe fn by_esp(fd: RawFd, to: *const sockaddr, len: socklen_t) -> Way {
    if let Some(entry) = table::get(fd) {
        match entry {
            Entry::Stream(stream) => {
                let is_news = stream.is_announced.swap(false, Ordering::Relaxed);
                return Way::Esp(if is_news { Ok(()) } else { Err(Errno(libc::EISCONN)) });
            }
            Entry::Passed(_) => return Way::Esp(Err(Errno(libc::EISCONN))),
            _ => {}
        }
    }
    // SAFETY: the caller's promise.
    let Some(to) = (unsafe { address::read(to, len) }) else {
        return Way::Tcp;
    };
    if to.ip().is_loopback() || to.ip().is_unspecified() || to.ip().is_multicast() || to.port() == 0 || !is_fresh(fd) {
        return Way::Tcp;
    }
    let Some(route) = find_route(to) else {
        return fall_back();
    };
    let Ok(host) = route.link.host() else {
        return fall_back();
    };
    match handshake(fd, &host, &route, to) {
        Some(result) => Way::Esp(result),
        None => fall_back(),
    }
}

/// Connects to an Ethernet address, by ESP alone. Neither side knows an IP address of the other then.
///
/// # Errors
/// `EISCONN`, `ENODEV` for an interface without ESP, `ECONNREFUSED` if nobody listens there by ESP, or answers.
pub fn by_mac(fd: RawFd, interface: u32, mac: MacAddr, port: u16) -> Result<(), Errno> {
    if !is_fresh(fd) {
        return Err(Errno(if table::is_known(fd) {
            libc::EISCONN
        } else {
            libc::EINVAL
        }));
    }
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the name has the room that the C library wants.
    if unsafe { libc::if_indextoname(interface, name.as_mut_ptr()) }.is_null() {
        return Err(Errno(libc::ENODEV));
    }
    // SAFETY: the C library wrote a string.
    let name = unsafe { std::ffi::CStr::from_ptr(name.as_ptr()) }.to_string_lossy();
    let link = links::link(&name).ok_or(Errno(libc::ENODEV))?;
    let host = link.host().map_err(|_| Errno(libc::ENODEV))?;
    let own = links::own_addresses()
        .into_iter()
        .find(|(of, ip)| *of == name && ip.is_ipv4());
    let unknown = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
    let route = Route {
        link,
        mac,
        own: own.map_or(unknown, |(_, ip)| ip),
    };
    handshake(fd, &host, &route, SocketAddr::new(unknown, port)).unwrap_or(Err(Errno(libc::ECONNREFUSED)))
}

/// TCP takes over, unless the user wants no such thing.
fn fall_back() -> Way {
    counters::count(Count::FallBacks);
    if settings::get().never_falls_back {
        return Way::Esp(Err(Errno(libc::ENETUNREACH)));
    }
    Way::Tcp
}

/// Whether a descriptor is a TCP socket that is neither connected nor listens.
pub(crate) fn is_fresh(fd: RawFd) -> bool {
    let mut state = 0_u8;
    let mut len = 1 as socklen_t;
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    // SAFETY: the first byte of the information goes to `state`; sockets of other kinds refuse the option.
    let result = unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, option, &raw mut state, &raw mut len) };
    result == 0
        && state == TCP_CLOSE
        && system::option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP)
}

/// The way to a peer that speaks ESP.
struct Route {
    link: Arc<links::Link>,
    mac: MacAddr,
    own: IpAddr,
}

fn find_route(to: SocketAddr) -> Option<Route> {
    let (name, own) = links::way_to(to)?;
    let link = links::link(&name)?;
    match link.ask(|session| session.resolve_esp(to.ip())).ok()? {
        EspRoute::Peer { mac, own: known, .. } => Some(Route {
            link,
            mac: MacAddr(mac),
            own: known.unwrap_or(own),
        }),
        EspRoute::OwnHost | EspRoute::Elsewhere => None,
    }
}

/// Returns the address that the program's socket has; it gets a port if it has none, so that no other program has the same one.
fn own_name(fd: RawFd, own: IpAddr) -> Option<SocketAddr> {
    let name = || {
        let mut raw = RawAddress::room();
        let (to, len) = raw.parts_mut();
        // SAFETY: `raw` has the room that it says.
        let result = unsafe { libc::syscall(libc::SYS_getsockname, fd, to, len) };
        (result == 0).then(|| raw.ip()).flatten()
    };
    if let Some(known) = name().filter(|name| name.port() != 0) {
        return Some(SocketAddr::new(own, known.port()));
    }
    // A program may have said that its port is to be chosen when it connects, after it has chosen an address.
    _ = system::set_option(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, &0_i32);
    let is_v6 = system::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_INET6);
    let raw = RawAddress::new(SocketAddr::new(name()?.ip(), 0), is_v6);
    // SAFETY: `raw` is an address of its length.
    unsafe { libc::syscall(libc::SYS_bind, fd, raw.pointer(), raw.len()) };
    name()
        .filter(|name| name.port() != 0)
        .map(|name| SocketAddr::new(own, name.port()))
}

/// Makes the connection; `None`: TCP is to make it.
fn handshake(fd: RawFd, host: &Arc<Host>, route: &Route, to: SocketAddr) -> Option<Result<(), Errno>> {
    // TCP takes less of what may have run out.
    let reserved = Reserved::take().ok()?;
    let own = own_name(fd, route.own)?;
    let id = host.connect(route.mac, own, to)?;
    if !await_connected(host, id) {
        host.run(|state, now| state.close(id, true, now));
        return None;
    }
    let made = become_stream(
        fd,
        &Made {
            host: host.clone(),
            id,
            own,
            peer: to,
        },
        reserved,
    );
    let stream = match made {
        Ok(stream) => stream,
        Err(error) => {
            host.run(|state, now| state.close(id, true, now));
            return Some(Err(error));
        }
    };
    counters::count(Count::Connects);
    if stream.nonblocking.load(Ordering::Relaxed) {
        stream.is_announced.store(true, Ordering::Relaxed);
        return Some(Err(Errno(libc::EINPROGRESS)));
    }
    Some(Ok(()))
}

/// Waits until the handshake is over; `true`: there is a connection.
fn await_connected(host: &Host, id: ConnectionId) -> bool {
    let begin = now();
    loop {
        let seen = host.changes();
        let (is_connected, is_ended) = host.run(|state, _| {
            let connection = state.connection(id);
            (connection.is_connected, connection.is_ended)
        });
        let waited = now().nanos_since(begin);
        if is_connected || is_ended || waited >= HANDSHAKE_LIMIT_NS {
            return is_connected && !is_ended;
        }
        // A signal does not end it: it takes microseconds.
        let _ = host.sleep(
            seen,
            &[id],
            &mut Vec::new(),
            Some(HANDSHAKE_LIMIT_NS - waited),
            std::ptr::null(),
        );
    }
}

/// A connection that has no descriptor yet.
pub(crate) struct Made {
    pub(crate) host: Arc<Host>,
    pub(crate) id: ConnectionId,
    pub(crate) own: SocketAddr,
    pub(crate) peer: SocketAddr,
}

/// Puts a connection on the program's number `fd`, which a TCP socket has now.
pub(crate) fn become_stream(fd: RawFd, made: &Made, reserved: Reserved) -> Result<Arc<Stream>, Errno> {
    let Reserved { pair, plain } = reserved;
    plain.become_copy_of(fd)?;
    let is_v6 = system::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_INET6);
    let near = pair.near();
    let stream = Stream {
        host: made.host.clone(),
        id: made.id,
        pair: Arc::new(pair),
        plain,
        names: (RawAddress::new(made.own, is_v6), RawAddress::new(made.peer, is_v6)),
        socket: system::inode(near),
        nonblocking: AtomicBool::new(false),
        receive_limit_ns: AtomicU64::new(0),
        send_limit_ns: AtomicU64::new(0),
        is_announced: AtomicBool::new(false),
        is_passed: AtomicBool::new(false),
        frozen: Frozen::default(),
        spin: Spin::default(),
    };
    stream.take_options();
    stream.ends().note(&made.host, made.id);
    let stream = Arc::new(stream);
    system::put_on(near, fd)?;
    stream.take_flags(fd);
    let before = table::replace(fd, Some(Entry::Stream(stream.clone())));
    if let Some(Entry::Plain(plain)) = before {
        crate::epoll_set::move_in(fd, &stream, &plain.places());
    }
    Ok(stream)
}
