//! Serves a second process over a Unix socket as if it were the guest's agent, so that the owner of the guest (the
//! supervisor) and a short-lived `weft exec` use one client. It maps sessions and ids, and interprets nothing else.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};

use parking_lot::{Mutex, MutexGuard};
use weft_agent::credit::WINDOW;
use weft_agent::frame::{Decoder, Frame, Kind};
use weft_agent::message::{Failed, Hello, PROTOCOL_VERSION};

use super::ChannelError;
use super::link::{Link, Sink, ends_request};

/// Number of bytes that are read from the client at a time.
const READ_LEN: usize = 64 * 1024;

/// The client's requests in flight, by the client's ids.
type Requests = Arc<Mutex<HashMap<u32, Relayed>>>;

#[derive(Debug)]
struct Relayed {
    /// Id on the guest's side.
    id: u32,
    /// Input bytes that were forwarded and not yet consumed by the guest.
    input_outstanding: u32,
}

/// The destination of answers to one of the client's requests.
#[derive(Clone, Debug)]
pub(super) struct RelaySink {
    out: mpsc::Sender<Vec<u8>>,
    requests: Requests,
    session: u32,
    id: u32,
}

impl RelaySink {
    pub(super) fn deliver(&self, mut frame: Frame) {
        {
            let mut requests = self.requests.lock();
            if ends_request(frame.kind) {
                requests.remove(&self.id);
            } else if let (Kind::CreditInput, Some(request)) = (frame.kind, requests.get_mut(&self.id)) {
                let bytes = frame.credit().map_or(0, |(_, bytes)| bytes);
                request.input_outstanding = request.input_outstanding.saturating_sub(bytes);
            }
        }
        (frame.session, frame.id) = (self.session, self.id);
        // The thread that reads from the client notices that it is gone.
        let _ = self.out.send(frame.encode());
    }

    pub(super) fn end(&self, why: &ChannelError) {
        self.requests.lock().remove(&self.id);
        // After a restart a `Ready` informs the client, and when the guest is gone the client's connection ends.
        if let ChannelError::Protocol(_) = why {
            let _ = self.out.send(failed(self.session, self.id, why.to_string()));
        }
    }
}

fn failed(session: u32, id: u32, mut message: String) -> Vec<u8> {
    message.truncate(message.floor_char_boundary(1024));
    let failed = Failed {
        message,
        not_found: false,
    };
    Frame::json(session, id, Kind::Failed, &failed)
        .expect("a sentence fits into a frame")
        .encode()
}

pub(super) fn serve(link: &Arc<Link>, stream: UnixStream) -> io::Result<()> {
    let (out, frames) = mpsc::channel::<Vec<u8>>();
    let Some(relay) = link.add_relay(out.clone()) else {
        return Ok(());
    };
    let mut client = Client {
        link: Arc::clone(link),
        out,
        requests: Requests::default(),
        session: 0,
    };
    let result = std::thread::scope(|scope| {
        let (reading, writing) = (&stream, &stream);
        std::thread::Builder::new()
            .name("relay-writer".into())
            .spawn_scoped(scope, move || write(writing, &frames))?;
        let result = client.read(reading);
        // From here on no sender is left, so the writer ends too.
        link.remove_relay(relay);
        for (_, request) in std::mem::take(&mut *client.lock()) {
            link.abort(request.id);
        }
        drop(client);
        // The writer may be in the middle of a write that is never read.
        let _ = stream.shutdown(Shutdown::Both);
        result
    });
    link.remove_relay(relay);
    result
}

/// Writes frames until the last sender is gone, or an empty one says that the guest is gone.
fn write(mut stream: &UnixStream, frames: &mpsc::Receiver<Vec<u8>>) {
    for frame in frames {
        if frame.is_empty() || stream.write_all(&frame).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

struct Client {
    link: Arc<Link>,
    out: mpsc::Sender<Vec<u8>>,
    requests: Requests,
    session: u32,
}

impl Client {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Relayed>> {
        self.requests.lock()
    }

    fn read(&mut self, mut stream: &UnixStream) -> io::Result<()> {
        let mut decoder = Decoder::default();
        let mut buffer = vec![0; READ_LEN];
        let mut broken = false;
        while !broken {
            let len = match stream.read(&mut buffer) {
                Ok(0) => break,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(len) => len,
                Err(error) => return Err(error),
            };
            decoder.feed(&buffer[..len], |frame| match frame {
                Ok(frame) => broken |= !self.handle(frame),
                Err(error) => tracing::debug!(%error, "dropped bytes from a client"),
            });
        }
        Ok(())
    }

    /// Handles one frame; returns false when the client violates the protocol and must go.
    fn handle(&mut self, frame: Frame) -> bool {
        if frame.kind == Kind::Hello {
            self.hello(&frame);
            return true;
        }
        if frame.session != self.session {
            return true;
        }
        match frame.kind {
            Kind::Exec | Kind::CopyIn | Kind::CopyOut | Kind::Report | Kind::Ping | Kind::Power => self.request(frame),
            Kind::Stdin => {
                let mut requests = self.lock();
                let Some(request) = requests.get_mut(&frame.id) else {
                    return true;
                };
                request.input_outstanding = request.input_outstanding.saturating_add(frame.body.len() as u32);
                let (id, within) = (request.id, request.input_outstanding <= WINDOW);
                drop(requests);
                if within {
                    self.link.send(id, Kind::Stdin, frame.body);
                }
                within
            }
            Kind::CreditOutput => {
                if let (Some(id), Some((stream, bytes))) = (self.id(frame.id), frame.credit()) {
                    self.link.credit_output(id, stream, bytes);
                }
                true
            }
            Kind::Abort => {
                let request = self.lock().remove(&frame.id);
                if let Some(request) = request {
                    self.link.abort(request.id);
                }
                true
            }
            Kind::StdinEnd | Kind::Signal | Kind::Resize => {
                if let Some(id) = self.id(frame.id) {
                    self.link.send(id, frame.kind, frame.body);
                }
                true
            }
            _ => false,
        }
    }

    fn id(&self, id: u32) -> Option<u32> {
        self.lock().get(&id).map(|request| request.id)
    }

    fn hello(&mut self, frame: &Frame) {
        self.session = frame.session;
        let left: Vec<u32> = self.lock().drain().map(|(_, request)| request.id).collect();
        for id in left {
            self.link.abort(id);
        }
        let answer = match frame.parse::<Hello>() {
            Ok(hello) if hello.protocol == PROTOCOL_VERSION => match self.link.welcome() {
                Some(welcome) => Frame::json(self.session, 0, Kind::Welcome, &welcome).map(|frame| frame.encode()),
                // The agent is not ready yet: the client gets a `Ready` later and asks again.
                None => return,
            },
            Ok(hello) => Err(format!(
                "it speaks protocol version {PROTOCOL_VERSION}, not {}",
                hello.protocol
            )),
            Err(why) => Err(why),
        };
        let _ = self.out.send(answer.unwrap_or_else(|why| failed(self.session, 0, why)));
    }

    fn request(&mut self, frame: Frame) -> bool {
        if self.id(frame.id).is_some() {
            return false;
        }
        let sink = RelaySink {
            out: self.out.clone(),
            requests: Arc::clone(&self.requests),
            session: self.session,
            id: frame.id,
        };
        // The entry is made while the link is locked (as everywhere: the link's lock first, then the map's), so that no
        // answer comes before it.
        let note = |id| {
            self.lock().insert(
                frame.id,
                Relayed {
                    id,
                    input_outstanding: 0,
                },
            );
            Sink::Relay(sink)
        };
        if let Err(why) = self.link.register(frame.kind, frame.body, note) {
            let _ = self.out.send(failed(self.session, frame.id, why.to_string()));
        }
        true
    }
}
