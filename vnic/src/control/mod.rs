//! The control socket takes and answers JSON lines, as `docs/spec/control-socket.md` describes.
//!
//! A client that stalls blocks only the thread that serves it: requests are answered between two rounds of the data plane, never by it.

mod request;
pub mod server;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;

use crate::dataplane::{CaptureReader, Chunk, Fabric, TraceReader};
use crate::session::socket::{ClaimError, ClaimedSocket};
use request::{Next, answer, error_line};
use server::{Place, Server, Service};

/// Longest request line, its end included: the longest sensible one, a capture of 1000 ports by name, has half of that.
pub const LINE_LEN_MAX: u64 = 64 << 10;

/// Clients that may be connected together: a supervisor, a person with some shells, and captures; each costs a thread.
pub const CLIENTS_MAX: usize = 32;

/// How long a client may leave its answer unread before it is let go, so that its place becomes free.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a capture without traffic checks whether its reader is still there; the end of the process waits for that too.
const CAPTURE_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// How often a flight recorder is emptied: at a million events a second, the usual ring is a third full by then.
const TRACE_INTERVAL: Duration = Duration::from_millis(20);

/// Permissions of the control socket: only the user who runs the cards may change them.
const MODE: u32 = 0o600;

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Its path cannot be claimed.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The system gives no thread.
    #[error("cannot serve the control socket")]
    System(#[from] std::io::Error),
}

/// Serves `path` until the returned server is dropped. `on_shutdown` is called for the operation `shutdown`.
///
/// # Errors
/// [`ControlError`].
pub fn serve(
    path: &Path,
    fabric: Fabric,
    started: Instant,
    on_shutdown: Arc<dyn Fn() + Send + Sync>,
) -> Result<Server, ControlError> {
    let socket = ClaimedSocket::bind(path, Some(MODE))?;
    let service = Service {
        name: "control",
        clients_max: CLIENTS_MAX,
        full:
            b"{\"id\":null,\"error\":\"the control socket serves 32 clients at a time, and that many are connected\"}\n",
        serve: move |socket: &Socket| {
            // A client that goes away in the middle is its own affair.
            if let Err(error) = serve_client(socket, &fabric, started, &*on_shutdown) {
                tracing::debug!("a control client went away: {error}");
            }
        },
    };
    Ok(Server::start(Place::Unix(socket), service)?)
}

fn serve_client(
    socket: &Socket,
    fabric: &Fabric,
    started: Instant,
    on_shutdown: &(dyn Fn() + Send + Sync),
) -> std::io::Result<()> {
    socket.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let mut reader = BufReader::new(socket);
    let mut line = Vec::new();
    let mut drain = None;
    loop {
        line.clear();
        let len = (&mut reader).take(LINE_LEN_MAX).read_until(b'\n', &mut line)?;
        if len == 0 {
            return Ok(());
        }
        let is_whole = line.last() == Some(&b'\n');
        if !is_whole && len as u64 == LINE_LEN_MAX {
            let sentence = format!("the line is longer than {LINE_LEN_MAX} bytes");
            return write_all(socket, error_line(&sentence).as_bytes());
        }
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let (text, next) = answer(line, fabric, started);
        write_all(socket, text.as_bytes())?;
        match next {
            Next::Go => {}
            Next::Watch => return serve_watch(socket, fabric),
            Next::Capture(capture) => return serve_capture(socket, &capture),
            Next::Trace(trace) => return serve_trace(socket, &trace),
            Next::Drain(new) => drain = Some(new),
            Next::Shutdown => {
                if let Some(drain) = drain {
                    drain.for_good();
                }
                on_shutdown();
                return Ok(());
            }
        }
    }
}

/// Carries changes of settings until the client closes the connection.
fn serve_watch(socket: &Socket, fabric: &Fabric) -> std::io::Result<()> {
    let watch = fabric.watch(socket.try_clone()?.into());
    while let Some(lines) = watch.missed() {
        write_all(socket, lines.as_bytes())?;
    }
    // What changes from now on is written where it changes. Only a hang-up is reported while nothing is asked for.
    while !is_gone(socket, None)? {}
    Ok(())
}

/// Carries a capture until the client closes the connection, or its sending side of it: then what was captured and the
/// counts of what was missed come before the end. A slow reader is waited for as long as it takes: the capture's own bound
/// decides what it misses.
fn serve_capture(socket: &Socket, capture: &CaptureReader) -> std::io::Result<()> {
    socket.set_write_timeout(None)?;
    let mut bytes = Vec::new();
    loop {
        match capture.next_chunk(&mut bytes, CAPTURE_CHECK_INTERVAL) {
            Chunk::Data => {
                write_all(socket, &bytes)?;
                bytes.clear();
            }
            Chunk::Idle => {}
            Chunk::Ended => return Ok(()),
        }
        if is_finished(socket)? {
            while capture.next_chunk(&mut bytes, Duration::ZERO) == Chunk::Data {}
            capture.finish(&mut bytes);
            return write_all(socket, &bytes);
        }
    }
}

/// Carries a card's flight recorder until the client closes the connection, or its sending side of it: then what is still
/// in the recorder comes before the end. While a slow reader is waited for, the recorder overwrites its oldest events, and
/// says so.
fn serve_trace(socket: &Socket, trace: &TraceReader) -> std::io::Result<()> {
    socket.set_write_timeout(None)?;
    let mut bytes = Vec::new();
    loop {
        let is_last = is_finished_within(socket, TRACE_INTERVAL)?;
        bytes.clear();
        trace.take(&mut bytes);
        write_all(socket, &bytes)?;
        if is_last {
            return Ok(());
        }
    }
}

/// True once the peer has nothing more to say, whether it still listens or not.
fn is_finished(socket: &Socket) -> std::io::Result<bool> {
    is_finished_within(socket, Duration::ZERO)
}

/// As [`is_finished`], after waiting for that no longer than `limit`.
fn is_finished_within(socket: &Socket, limit: Duration) -> std::io::Result<bool> {
    let limit = Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: limit.subsec_nanos().into(),
    };
    match poll(&mut [PollFd::new(socket, PollFlags::RDHUP)], Some(&limit)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// True once the peer closed the connection; not if it only has nothing more to say. Waits for that no longer than `limit`.
fn is_gone(socket: &Socket, limit: Option<Duration>) -> std::io::Result<bool> {
    let limit = limit.map(|limit| Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: limit.subsec_nanos().into(),
    });
    match poll(&mut [PollFd::new(socket, PollFlags::empty())], limit.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn write_all(mut socket: &Socket, bytes: &[u8]) -> std::io::Result<()> {
    socket.write_all(bytes)
}

#[cfg(test)]
mod tests;
