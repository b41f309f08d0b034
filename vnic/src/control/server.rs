//! A small server on a Unix or TCP socket: one thread per client, a bounded number of clients, all joined at the end.
//!
//! The control socket and the metrics use it; it knows nothing of them.

use std::io::Write;
use std::net::{Shutdown, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use socket2::Socket;

use crate::session::socket::ClaimedSocket;

/// Time to wait when no connection can be accepted (out of file descriptors, say), so that the attempt does not spin.
const ACCEPT_PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Where a server listens.
#[derive(Debug)]
pub enum Place {
    /// A Unix socket, removed at the end.
    Unix(ClaimedSocket),
    /// A TCP port.
    Tcp(TcpListener),
}

impl Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Place::Unix(socket) => socket.listener().as_fd(),
            Place::Tcp(listener) => listener.as_fd(),
        }
    }

    fn accept(&self) -> std::io::Result<Socket> {
        match self {
            Place::Unix(socket) => socket
                .listener()
                .accept()
                .map(|(stream, _)| Socket::from(OwnedFd::from(stream))),
            Place::Tcp(listener) => listener.accept().map(|(stream, _)| Socket::from(OwnedFd::from(stream))),
        }
    }
}

/// What a server does and allows.
pub struct Service<F> {
    /// Name of its threads, at most 15 bytes.
    pub name: &'static str,
    /// Clients that may be connected together; each costs a thread.
    pub clients_max: usize,
    /// What one client too many is told before it is turned away.
    pub full: &'static [u8],
    /// Serves one client to its end. The connection is closed when it returns.
    pub serve: F,
}

/// A running server. Dropping it closes every connection and joins every thread.
#[derive(Debug)]
#[must_use = "dropping it ends the server"]
pub struct Server {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts to serve `place`.
    ///
    /// # Errors
    /// The system's, if it gives no event descriptor or no thread.
    pub fn start<F>(place: Place, service: Service<F>) -> std::io::Result<Server>
    where
        F: Fn(&Socket) + Send + Sync + 'static,
    {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let own_stop = Arc::clone(&stop);
        let name = service.name.to_owned();
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || accept_all(&place, &own_stop, service))?;
        Ok(Server {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only when the counter is full, and then the event is signalled already.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // What it panicked with was printed where it happened.
            let _ = thread.join();
        }
    }
}

struct Client {
    /// Gone as soon as its thread let go of the connection.
    socket: Weak<Socket>,
    thread: JoinHandle<()>,
}

fn accept_all<F>(place: &Place, stop: &OwnedFd, service: Service<F>)
where
    F: Fn(&Socket) + Send + Sync + 'static,
{
    let serve = Arc::new(service.serve);
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let mut fds = [
            PollFd::new(stop, PollFlags::IN),
            PollFd::from_borrowed_fd(place.as_fd(), PollFlags::IN),
        ];
        // An interrupted wait reports nothing, and the loop waits again.
        let _ = poll(&mut fds, None);
        let [is_stopped, is_incoming] = fds.map(|fd| !fd.revents().is_empty());
        if is_stopped {
            break;
        }
        if !is_incoming {
            continue;
        }
        clients.retain(|client| !client.thread.is_finished());
        match place.accept() {
            Ok(mut socket) if clients.len() >= service.clients_max => {
                tracing::warn!(
                    server = service.name,
                    "more than {} clients: one was turned away",
                    service.clients_max
                );
                // A client that does not read it is turned away nevertheless.
                let _ = socket
                    .set_nonblocking(true)
                    .and_then(|()| socket.write_all(service.full));
            }
            Ok(socket) => {
                let socket = Arc::new(socket);
                let weak = Arc::downgrade(&socket);
                let serve = Arc::clone(&serve);
                let thread = std::thread::Builder::new()
                    .name(service.name.to_owned())
                    .spawn(move || serve(&socket));
                match thread {
                    Ok(thread) => clients.push(Client { socket: weak, thread }),
                    Err(error) => tracing::warn!(server = service.name, "a client cannot be served: {error}"),
                }
            }
            Err(error) => {
                tracing::debug!(server = service.name, "cannot accept a connection: {error}");
                // Whatever this wait says, the loop looks again.
                let _ = poll(&mut [PollFd::new(stop, PollFlags::IN)], Some(&ACCEPT_PAUSE));
            }
        }
    }
    for client in &clients {
        if let Some(socket) = client.socket.upgrade() {
            // Wakes its thread from whatever it waits for.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
    for client in clients {
        let _ = client.thread.join();
    }
}
