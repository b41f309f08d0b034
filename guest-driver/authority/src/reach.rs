//! Finding the authority of an interface: one that runs, one that is being started again, for which the caller waits,
//! or a new one that is started. [`Session`](crate::Session) then makes the requests.

use std::{
    fs,
    io::ErrorKind,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use netif::Interface;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
        sockopt::{Timeout, set_socket_timeout},
    },
};

use crate::{
    OmxdError, Place,
    protocol::{self, Reply, Request},
    set_up, start,
};

/// An answer takes microseconds; an authority that needs longer than this counts as absent.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// The time limit for a connection and its first answer, and for the answer to an open: they come behind the rings of
/// all endpoints that are being opened at the same time, up to 32 of them. The kernel makes a ring in a millisecond, on
/// a swamped machine in a third of a second.
pub(crate) const OPEN_LIMIT: Duration = Duration::from_secs(10);
/// The time limit until an authority listens that is just starting, ending, or being started again.
pub const START_LIMIT: Duration = Duration::from_secs(5);
/// The pause between two attempts in that time. Only an attempt shows when the wait is over: no descriptor becomes
/// readable when another process releases a file lock, or listens.
pub(crate) const START_PAUSE: Duration = Duration::from_millis(20);
/// At most this many authorities are remembered, more than a process has interfaces.
const KNOWN_MAX: usize = 64;

/// A connection that was answered.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) socket: OwnedFd,
    /// The authority was started by a program: another one like it may take its place.
    pub(crate) on_demand: bool,
}

/// The authorities that this process reached before, and whether those were started on demand.
static KNOWN: Mutex<Vec<(Place, bool)>> = Mutex::new(Vec::new());

fn known(place: &Place) -> Option<bool> {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known
        .iter()
        .find(|(of, _)| of == place)
        .map(|(_, on_demand)| *on_demand)
}

fn remember(place: &Place, on_demand: bool) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|(of, _)| of != place);
    if known.len() >= KNOWN_MAX {
        known.remove(0);
    }
    known.push((place.clone(), on_demand));
}

/// Whether an authority that is away is waited for. One with settings is started again by the service that has its
/// settings.
fn comes_back(interface: &Interface, place: &Place) -> bool {
    set_up::is_marked(place, interface.mac)
        || match known(place) {
            Some(false) => true,
            Some(true) => !start::may_start(interface),
            // A socket on which no process listens was left by an authority that was killed.
            None => !start::may_start(interface) && place.socket().exists(),
        }
}

/// Finds the authority: waits for one that is being started again, and starts one where none is to come back.
pub(crate) fn patiently(interface: &Interface, place: &Place) -> Result<Reached, OmxdError> {
    let comes_back = comes_back(interface, place);
    let begin = Instant::now();
    while comes_back && begin.elapsed() < START_LIMIT {
        if let Some(reached) = running(interface, place)? {
            return Ok(reached);
        }
        // Not without its interface.
        Interface::find_by_index(interface.index)?;
        thread::sleep(START_PAUSE);
    }
    or_start(interface, place)
}

/// Finds the authority, or starts one if this process may and none with settings is to come back: another one would
/// serve without those. (A started authority checks again when it has the interface's lock.)
pub(crate) fn or_start(interface: &Interface, place: &Place) -> Result<Reached, OmxdError> {
    if let Some(reached) = running(interface, place)? {
        return Ok(reached);
    }
    if !start::may_start(interface) {
        return Err(OmxdError::NoAuthority {
            interface: interface.name.clone(),
        });
    }
    if set_up::is_marked(place, interface.mac) {
        return Err(OmxdError::SetUpIsAway {
            interface: interface.name.clone(),
        });
    }
    // Another one may own the interface: one that is just starting, or one that was killed and is not quite gone.
    let begin = Instant::now();
    loop {
        // It may have been renamed since.
        start::start(&Interface::find_by_index(interface.index)?.name)?;
        if let Some(reached) = running(interface, place)? {
            return Ok(reached);
        }
        if begin.elapsed() > START_LIMIT {
            return Err(OmxdError::NotStarted {
                sentence: "another one owns the interface and does not listen".to_owned(),
            });
        }
        thread::sleep(START_PAUSE);
    }
}

/// Finds the authority if one runs; [`OmxdError::Late`] if it is there and does not answer.
pub(crate) fn running(interface: &Interface, place: &Place) -> Result<Option<Reached>, OmxdError> {
    let path = place.socket();
    let address = SocketAddrUnix::new(path.as_os_str().as_bytes()).map_err(OmxdError::io("name omxd's socket"))?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(OmxdError::io("open a socket"))?;
    let until = Instant::now() + OPEN_LIMIT;
    let left = || until.saturating_duration_since(Instant::now());
    // The kernel lets those wait whom the authority has not accepted yet, if they are many; a signal ends that.
    let connected = loop {
        // None at all would be no limit.
        let limit = Some(left().max(Duration::from_millis(1)));
        set_socket_timeout(&socket, Timeout::Send, limit).map_err(OmxdError::io("limit the wait for omxd"))?;
        match connect(&socket, &address) {
            Err(Errno::INTR) => {}
            connected => break connected.map_err(std::io::Error::from),
        }
    };
    let reached = match connected {
        Ok(()) => greet(socket, left())?,
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(OmxdError::Late),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => None,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(OmxdError::NotInGroup {
                interface: interface.name.clone(),
                group: served_group(place),
            });
        }
        Err(error) => return Err(OmxdError::io("connect to omxd")(error)),
    };
    if let Some(reached) = &reached {
        remember(place, reached.on_demand);
    }
    Ok(reached)
}

/// Returns the group that the authority of an interface serves: its name, or its number where it has none. `None`: it
/// serves only root, or there is no authority.
#[must_use]
pub fn group_in_force(interface: &Interface) -> Option<String> {
    served_group(&Place::of(interface.index).ok()?)
}

/// Returns the group that an authority serves, as its socket says: its name, or its number where it has none; `None`:
/// only root.
fn served_group(place: &Place) -> Option<String> {
    let group = fs::metadata(place.socket()).ok()?.gid();
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let named = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(group)).then(|| name.to_owned())
    });
    (group != 0).then(|| named.unwrap_or_else(|| group.to_string()))
}

/// Waits for the authority's first answer, which makes the connection count: an authority that is about to end still
/// takes connections.
fn greet(socket: OwnedFd, limit: Duration) -> Result<Option<Reached>, OmxdError> {
    match ask(socket.as_fd(), &Request::Hello, &[], limit) {
        Ok((Reply::Hello { on_demand }, _)) => Ok(Some(Reached { socket, on_demand })),
        Ok(_) => Err(OmxdError::Protocol),
        // It may have ended the connection with a message.
        Err(OmxdError::Gone) => match hear(socket.as_fd(), ANSWER_LIMIT) {
            Ok((Reply::Refused { reason, sentence }, _)) => Err(OmxdError::Refused { reason, sentence }),
            _ => Ok(None),
        },
        Err(error) => Err(error),
    }
}

/// Has an authority that was started on demand end, for one that was set up for `interface`. False: the present one
/// stays.
///
/// # Errors
/// [`OmxdError`] when the one there is does not answer, or answers something else.
pub fn replace_on_demand(interface: &Interface, place: &Place) -> Result<bool, OmxdError> {
    let Some(Reached { socket, .. }) = running(interface, place)? else {
        // It is just starting, or ending.
        thread::sleep(START_PAUSE);
        return Ok(true);
    };
    match ask(socket.as_fd(), &Request::GiveWay, &[], ANSWER_LIMIT) {
        // It closes the connection when everything that it had is free.
        Ok((Reply::Done, _)) => match hear(socket.as_fd(), ANSWER_LIMIT) {
            Err(OmxdError::Gone) => Ok(true),
            Err(error) => Err(error),
            Ok(_) => Err(OmxdError::Protocol),
        },
        Ok(_) => Err(OmxdError::Protocol),
        Err(OmxdError::Gone) => Ok(true),
        Err(OmxdError::Refused { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes the next answer; [`OmxdError::Gone`] if there is no authority. Signals do not extend the limit.
pub(crate) fn hear(socket: BorrowedFd<'_>, limit: Duration) -> Result<(Reply, Vec<OwnedFd>), OmxdError> {
    let until = Instant::now() + limit;
    loop {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
        match poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return Err(OmxdError::Late),
            // It does not block now.
            Ok(_) => return protocol::receive(socket)?.ok_or(OmxdError::Late),
            Err(Errno::INTR) => {}
            Err(error) => return Err(OmxdError::io("wait for omxd")(error)),
        }
    }
}

/// Makes a request with these descriptors, and takes its answer, which is the next one.
pub(crate) fn ask(
    socket: BorrowedFd<'_>,
    request: &Request,
    fds: &[BorrowedFd<'_>],
    limit: Duration,
) -> Result<(Reply, Vec<OwnedFd>), OmxdError> {
    protocol::send(socket, request, fds)?;
    let (reply, fds) = hear(socket, limit)?;
    if let Reply::Refused { reason, sentence } = reply {
        return Err(OmxdError::Refused { reason, sentence });
    }
    Ok((reply, fds))
}
