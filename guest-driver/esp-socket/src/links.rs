//! The interfaces of this host whose authority speaks ESP, as this process uses them.

use std::{
    collections::{HashMap, HashSet},
    ffi::CStr,
    net::{IpAddr, SocketAddr, UdpSocket},
    ptr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use netif::Interface;
use weft_authority::{OmxdError, Refusal, Session};

use crate::{
    host::{Host, HostParts},
    own_fds, report, starter,
};

/// An interface without an authority is asked again after this time.
const ABSENT_LIMIT: Duration = Duration::from_secs(1);

/// More descriptors than opening an interface takes at a time: a session, a port, its report, and what they are moved from.
pub(crate) const FDS: usize = 8;

/// One interface whose authority this process knows.
pub(crate) struct Link {
    pub(crate) interface: Interface,
    session: Mutex<Option<Session>>,
    host: Mutex<Option<Arc<Host>>>,
}

#[derive(Default)]
struct Links {
    present: Vec<Arc<Link>>,
    absent: HashMap<String, Instant>,
    /// Interfaces whose authority was to be started.
    started: HashSet<String>,
}

static LINKS: Mutex<Option<Links>> = Mutex::new(None);

fn with<T>(act: impl FnOnce(&mut Links) -> T) -> T {
    act(LINKS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert_default())
}

impl Link {
    /// Makes a request; an authority that was started again meanwhile gets it, too.
    pub(crate) fn ask<T>(&self, request: impl Fn(&Session) -> Result<T, OmxdError>) -> Result<T, OmxdError> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        match session.as_ref().map(&request) {
            Some(Err(OmxdError::Gone)) | None => {}
            Some(answer) => return answer,
        }
        self.renew(&mut session)?;
        session.as_ref().map_or(Err(OmxdError::Gone), request)
    }

    /// Connects to the authority anew, and takes the blocks of wire ports back.
    fn renew(&self, session: &mut Option<Session>) -> Result<(), OmxdError> {
        let host = self.host.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match (session.as_mut(), host) {
            (Some(session), Some(host)) => {
                own_fds::release_session(session);
                let renewed = session.resume_esp(&host.blocks, host.lock().port.mtu_max());
                own_fds::protect_session(session);
                report::go_on_in(&host, own_fds::OwnFd::new(renewed?));
                Ok(())
            }
            _ => {
                let mut new = Session::connect_to_running(&self.interface)?.ok_or(OmxdError::Gone)?;
                new.place_descriptors_from(own_fds::first());
                own_fds::protect_session(&new);
                *session = Some(new);
                Ok(())
            }
        }
    }

    /// Whether the authority is there; it is connected to anew if it was away.
    pub(crate) fn is_alive(&self) -> Alive {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        match session.as_ref() {
            Some(known) if !known.is_gone() => Alive::Yes,
            _ => match self.renew(&mut session) {
                Ok(()) => Alive::Again,
                Err(_) => Alive::No,
            },
        }
    }

    /// Whether this process can connect to the authority as it is now, with the rights that it has left.
    pub(crate) fn can_be_reached(&self) -> bool {
        matches!(Session::connect_to_running(&self.interface), Ok(Some(_)))
    }

    /// Returns the interface's host, which is made at the first connection.
    pub(crate) fn host(&self) -> Result<Arc<Host>, OmxdError> {
        if let Some(host) = self.host.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            return Ok(host.clone());
        }
        let opened = self.ask(Session::open_esp)?;
        let mut place = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = place.as_ref() {
            // Another thread was quicker; what this one got stays unused.
            return Ok(host.clone());
        }
        let host = Host::new(HostParts {
            interface: self.interface.clone(),
            ether_type: opened.ether_type,
            port: opened.port.port,
            block: opened.port.block,
            report: own_fds::OwnFd::new(opened.report),
        })
        .map_err(|_| OmxdError::Protocol)?;
        *place = Some(host.clone());
        crate::set_in_use();
        Ok(host)
    }
}

/// Whether an authority answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alive {
    Yes,
    /// It is another one than before.
    Again,
    No,
}

/// Addresses of this host's interfaces.
pub(crate) fn own_addresses() -> Vec<(String, IpAddr)> {
    let mut all = Vec::new();
    let mut list = ptr::null_mut();
    // SAFETY: the list is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } < 0 {
        return all;
    }
    let mut at = list;
    // SAFETY: the C library's list, until it is freed.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        if entry.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: the address has the length of its family; `read` looks at the family first.
        let address = unsafe {
            let len = match i32::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => size_of::<libc::sockaddr_in>(),
                libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
                _ => continue,
            };
            crate::address::read(entry.ifa_addr, len as libc::socklen_t)
        };
        // SAFETY: a C string of the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        all.extend(address.map(|address| (name, address.ip())));
    }
    // SAFETY: made above.
    unsafe { libc::freeifaddrs(list) };
    all
}

/// Returns the interface over which the kernel would send to `to`, and the own address there; `None` for a way inside this host.
pub(crate) fn way_to(to: SocketAddr) -> Option<(String, IpAddr)> {
    let any: SocketAddr = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().ok()?;
    let probe = UdpSocket::bind(any).ok()?;
    probe.connect(to).ok()?;
    let own = probe.local_addr().ok()?.ip();
    if own.is_loopback() || own == to.ip() {
        return None;
    }
    own_addresses().into_iter().find(|(_, address)| *address == own)
}

/// Returns an interface if an authority speaks ESP there.
pub(crate) fn link(name: &str) -> Option<Arc<Link>> {
    let known = with(|links| {
        if let Some(link) = links.present.iter().find(|link| link.interface.name == name) {
            return Some(Some(link.clone()));
        }
        let absent = links.absent.get(name)?;
        (absent.elapsed() < ABSENT_LIMIT).then_some(None)
    });
    if let Some(known) = known {
        return known;
    }
    let opened = open(name);
    with(|links| match opened {
        Some(link) => {
            links.absent.remove(name);
            if let Some(link) = links.present.iter().find(|link| link.interface.name == name) {
                return Some(link.clone());
            }
            links.present.push(link.clone());
            Some(link)
        }
        None => {
            links.absent.insert(name.to_owned(), Instant::now());
            None
        }
    })
}

/// Whether no authority of an interface was started for this process before: one that did not start, or was ended since, is left so.
fn is_first_time(name: &str) -> bool {
    with(|links| links.started.insert(name.to_owned()))
}

fn open(name: &str) -> Option<Arc<Link>> {
    let interface = Interface::find(name)
        .ok()
        .filter(|interface| interface.up && !interface.loopback)?;
    let mut session = match Session::connect_to_running(&interface).ok()? {
        Some(session) => session,
        None if is_first_time(name) => {
            starter::start(name).ok()?;
            Session::connect_to_running(&interface).ok()??
        }
        None => return None,
    };
    session.place_descriptors_from(own_fds::first());
    own_fds::protect_session(&session);
    let has_esp = match session.esp_status() {
        Ok(status) => status.off.is_none(),
        Err(OmxdError::Refused {
            reason: Refusal::NoEsp, ..
        }) => false,
        Err(_) => false,
    };
    has_esp.then(|| {
        Arc::new(Link {
            interface,
            session: Mutex::new(Some(session)),
            host: Mutex::new(None),
        })
    })
}

/// Returns all interfaces with an authority that speaks ESP.
pub(crate) fn all() -> Vec<Arc<Link>> {
    let mut names: Vec<_> = own_addresses().into_iter().map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    names
        .iter()
        .filter(|name| *name != "lo")
        .filter_map(|name| link(name))
        .collect()
}

/// Returns the interfaces that this process knows already.
pub(crate) fn present() -> Vec<Arc<Link>> {
    with(|links| links.present.clone())
}

/// An interface and its host.
pub(crate) type OpenLink = (Arc<Link>, Arc<Host>);

/// Returns an interface with its host, which is made if there is none.
pub(crate) fn with_host(link: Arc<Link>) -> Option<OpenLink> {
    let host = link.host().ok()?;
    Some((link, host))
}

/// Returns those of the interfaces that this process has ports of.
pub(crate) fn open_links(wanted: impl Fn(&Interface) -> bool) -> Vec<OpenLink> {
    let mut links = present();
    links.retain(|link| wanted(&link.interface));
    let host = |link: &Link| link.host.lock().unwrap_or_else(PoisonError::into_inner).clone();
    links
        .into_iter()
        .filter_map(|link| host(&link).map(|host| (link, host)))
        .collect()
}

/// Returns the interfaces that this process has connections over.
pub(crate) fn hosts() -> Vec<Arc<Host>> {
    open_links(|_| true).into_iter().map(|(_, host)| host).collect()
}

/// In a forked child: the parent's sessions are closed, which tells nobody anything, and this process has none.
pub(crate) fn forget() {
    let links = with(std::mem::take);
    with(|new| new.started = links.started);
    for link in links.present {
        let session = link.session.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(session) = session {
            own_fds::release_session(&session);
        }
        if let Some(host) = link.host.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            host.drop_port();
        }
    }
}
