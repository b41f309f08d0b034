//! The control socket takes and answers JSON lines, as `docs/spec/control-socket.md` describes.
//!
//! Requests are answered between two rounds of the data plane, never by it. None waits longer than for that: a drain is asked again
//! until it is over, and the others are answered meanwhile.

mod request;
pub mod server;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::dataplane::{Chunk, DRAIN_CHECK_INTERVAL, Drain, Fabric, Watch};
use crate::events::{EventThread, Subscription};
use crate::session::socket::{BACKLOG, ClaimError, ClaimedSocket};
use request::{Follows, answer, drained, error_line};
use server::{Next, Talk};

/// How often captures and flight recorders are emptied: at a million events a second, the usual ring of the latter is a third full by
/// then. The data plane wakes no thread for them.
const STREAM_INTERVAL: Duration = Duration::from_millis(20);

/// Permissions of the control socket: only the user who runs the cards may change them.
const MODE: u32 = 0o600;

/// Serves `path` until what this returns is dropped. `on_shutdown` is called for the operation `shutdown`.
///
/// # Errors
/// [`ClaimError`].
pub fn serve(
    events: &EventThread,
    path: &Path,
    fabric: Fabric,
    started: Instant,
    on_shutdown: Arc<dyn Fn() + Send + Sync>,
) -> Result<Subscription, ClaimError> {
    let welcome = move || Requests {
        fabric: fabric.clone(),
        started,
        on_shutdown: Arc::clone(&on_shutdown),
        drain: None,
        follows: Follows::Nothing,
    };
    server::start(events, ClaimedSocket::bind(path, Some(MODE))?, welcome)
}

/// What a client asks for.
struct Requests {
    fabric: Fabric,
    started: Instant,
    on_shutdown: Arc<dyn Fn() + Send + Sync>,
    /// A drain that is over: nothing is taken from guests until the connection or the process ends.
    drain: Option<Drain>,
    /// From the last line.
    follows: Follows,
}

impl Talk for Requests {
    const NAME: &'static str = "control socket";
    /// A supervisor, captures, and a script or a person for each guest of a large lab.
    const CLIENTS_MAX: usize = BACKLOG as usize;
    /// The longest sensible one, a capture of 1000 ports by name, has half of that.
    const LINE_LEN_MAX: usize = 64 << 10;
    const PATIENCE: Duration = Duration::from_secs(30);
    const IS_ASKED_AT_ONCE: bool = false;

    fn refusal(_: bool, sentence: &str) -> String {
        error_line(sentence)
    }

    fn line(&mut self, client: &Socket, line: &[u8], out: &mut Vec<u8>) -> io::Result<Next> {
        if line.is_empty() {
            return Ok(Next::Line);
        }
        let (text, follows) = answer(line, &self.fabric, self.started);
        out.extend(text.as_bytes());
        if let Follows::Drain(_, drain) = std::mem::replace(&mut self.follows, follows) {
            self.drain = Some(drain);
        }
        match &mut self.follows {
            Follows::Nothing => return Ok(Next::Line),
            Follows::Watch(watch) => *watch = Some(self.fabric.watch(client.try_clone()?.into())),
            _ => {}
        }
        Ok(Next::Later(Duration::ZERO))
    }

    fn go_on(&mut self, has_finished: bool, out: &mut Vec<u8>) -> Next {
        match &mut self.follows {
            Follows::Nothing => Next::Line,
            // What changes behind the last of these lines is written where it changes, until the client closes the connection.
            Follows::Watch(watch) => match watch.as_ref().and_then(Watch::missed) {
                None => Next::Later(Duration::MAX),
                Some(lines) => {
                    out.extend(lines.as_bytes());
                    Next::Later(Duration::ZERO)
                }
            },
            Follows::Capture(capture) => {
                if has_finished {
                    capture.finish();
                }
                match capture.next_chunk(out) {
                    Chunk::Data => Next::Later(Duration::ZERO),
                    Chunk::Idle => Next::Later(STREAM_INTERVAL),
                    Chunk::Ended => Next::End,
                }
            }
            // While a slow reader is waited for, the recorder overwrites its oldest events, and says so.
            Follows::Trace(trace) => {
                trace.take(out);
                if has_finished {
                    Next::End
                } else {
                    Next::Later(STREAM_INTERVAL)
                }
            }
            Follows::Drain(id, drain) => match drained(id, drain) {
                None => Next::Later(DRAIN_CHECK_INTERVAL),
                Some(answer) => {
                    out.extend(answer.as_bytes());
                    Next::Line
                }
            },
            Follows::Shutdown => {
                if let Some(drain) = self.drain.take() {
                    drain.for_good();
                }
                (self.on_shutdown)();
                Next::End
            }
        }
    }
}

#[cfg(test)]
mod tests;
