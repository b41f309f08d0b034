//! The connected programs: they are accepted up to limits that keep a single user from taking everything, heard, and
//! released as soon as the program has ended, even if another process still has the connection.

use std::{
    os::fd::{AsFd, OwnedFd},
    time::Instant,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{SocketFlags, accept_with, sockopt},
    process::{PidfdFlags, pidfd_open},
};

use super::Daemon;
use weft_authority::{
    ENDPOINTS, QuarantinedSocket,
    esp::BLOCK_FIRST,
    protocol::{self, Refusal, Reply, Request},
};

/// Blocks of wire ports for ESP, of which a program has one.
const ESP_BLOCKS: usize = 256 - BLOCK_FIRST as usize;
/// Connections at once: every endpoint, every program that has ports for ESP, and as many and more programs that only ask or listen.
pub(super) const CONNECTIONS_MAX: usize = 4 * ENDPOINTS as usize + 2 * ESP_BLOCKS;
/// Connections of one user other than root: every endpoint, as many blocks of ports as one user may have, and as many programs that ask,
/// which leaves as many for others.
const USER_CONNECTIONS_MAX: usize = CONNECTIONS_MAX / 2;

/// A program that is connected.
pub(super) struct Connection {
    pub(super) id: u64,
    pub(super) socket: QuarantinedSocket,
    /// Readable when the program has ended, even if a child of it still has the socket. `None` where the system does
    /// not say.
    program: Option<OwnedFd>,
    pub(super) pid: u32,
    pub(super) user: u32,
    /// The program is root's, or the one that started this authority.
    pub(super) privileged: bool,
}

impl Connection {
    /// Returns the descriptors to be watched: the socket, and the one that says that the program has ended.
    pub(super) fn watched(&self) -> [PollFd<'_>; 2] {
        let program = match &self.program {
            Some(program) => PollFd::new(program, PollFlags::IN),
            None => PollFd::new(&self.socket, PollFlags::empty()),
        };
        [PollFd::new(&self.socket, PollFlags::IN), program]
    }

    /// Whether the program has ended, or hung up.
    fn is_over(&self) -> bool {
        let mut fds = self.watched();
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
            && (fds[0].revents().contains(PollFlags::HUP) || !fds[1].revents().is_empty())
    }
}

impl Daemon {
    pub(super) fn accept(&mut self) {
        let socket = match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => QuarantinedSocket::from(socket),
            Err(error) => {
                if [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS].contains(&error) {
                    tracing::warn!("no program can connect until another one ends: {error}");
                    self.clients.deaf = true;
                }
                return;
            }
        };
        let who = sockopt::socket_peercred(&socket);
        let user = who.map_or(u32::MAX, |who| who.uid.as_raw());
        let privileged = who.is_ok_and(|who| who.uid.is_root() || who.uid == rustix::process::geteuid());
        let of_user = self
            .clients
            .connections
            .iter()
            .filter(|other| other.user == user)
            .count();
        let full = if self.clients.connections.len() >= CONNECTIONS_MAX {
            Some(format!("all {CONNECTIONS_MAX} connections to omxd are taken"))
        } else if !privileged && of_user >= USER_CONNECTIONS_MAX {
            Some(format!(
                "user {user} has {of_user} connections to omxd, as many as one user may; end some of its programs"
            ))
        } else {
            None
        };
        if let Some(sentence) = full {
            tracing::warn!("{sentence}; another one was refused");
            let reason = Refusal::Busy;
            // A program that does not wait for the answer needs none.
            let _ = protocol::send(socket.as_fd(), &Reply::Refused { reason, sentence }, &[]);
            return;
        }
        let pid = who.ok().map(|who| who.pid);
        self.clients.connections.push(Connection {
            id: self.clients.next,
            socket,
            program: pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
            pid: pid.map_or(0, |pid| pid.as_raw_nonzero().get().cast_unsigned()),
            user,
            privileged,
        });
        self.clients.next += 1;
    }

    pub(super) fn serve(&mut self, at: usize) {
        match protocol::receive_shown::<Request>(self.clients.connections[at].socket.as_fd()) {
            Ok(Some((request, shows_proof))) => {
                if let Err(error) = self.answer(at, request, shows_proof) {
                    tracing::debug!("{error}");
                    self.disconnect(at);
                }
            }
            Ok(None) => {}
            Err(_) => self.disconnect(at),
        }
    }

    /// Frees what ended programs had, also where their end was not heard yet: a program that reconnects has hung up
    /// before it asks.
    pub(super) fn release_what_is_over(&mut self) {
        let over = self
            .clients
            .connections
            .iter()
            .filter(|connection| connection.is_over());
        for id in over.map(|connection| connection.id).collect::<Vec<_>>() {
            self.release(id);
        }
        let ended = self.endpoints.expire_ended();
        self.forget_endpoints(&ended);
    }

    /// Frees the endpoint of a connection, if it has one, and finishes for it.
    pub(super) fn release_endpoint(&mut self, connection: u64) {
        let number = self.endpoints.number_of(connection);
        self.endpoints.release(connection);
        self.pairing.forget(connection);
        let handover = self.counters.forget(connection);
        // No program speaks for another endpoint than its own.
        if let Some(handover) = handover.filter(|handover| Some(handover.endpoint) == number) {
            self.endpoints.finishers.take_over(self.now(), handover);
        }
    }

    fn release(&mut self, connection: u64) {
        self.release_endpoint(connection);
        if self.clients.raw.take_if(|(of, _)| *of == connection).is_some() {
            self.authority.set_raw_open(false);
        }
        self.release_esp(connection);
    }

    pub(super) fn disconnect(&mut self, at: usize) {
        let connection = self.clients.connections.remove(at);
        self.release(connection.id);
        self.endpoints_changed();
        self.state.idle_since = Instant::now();
        self.clients.deaf = false;
    }
}
