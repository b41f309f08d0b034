//! Serves the `weft.agent` port: takes the host's frames and starts what they ask for. There is one session at a time,
//! as the port has one host end; whatever an older session left running is ended.

mod command;
mod copy;
mod port;
mod report;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use rustix::system::RebootCommand;
use signal_hook::consts::SIGURG;
use signal_hook::iterator::Signals;
use weft_agent::frame::{Frame, Kind};
use weft_agent::message::{COMMANDS_MAX, Failed, Hello, PORT_NAME, PROTOCOL_VERSION, Power, Welcome};

use command::Command;
use port::{Port, Sender};

/// Serves the port until it breaks. `arguments` may name a device in place of the virtio port.
pub fn serve(arguments: &[String]) -> Result<()> {
    let mut port = match arguments {
        [] => Port::open(&port::find(PORT_NAME)?)?,
        [device] => Port::open(device.as_ref())?,
        _ => anyhow::bail!("serve takes one device at most"),
    };
    let out = port.sender();
    out.send(&Frame::new(0, 0, Kind::Ready, Vec::new()));
    let mut session = Session::new(0, out.clone());
    let current = Arc::new(Mutex::new(Arc::clone(&session)));
    tell_news(&current)?;
    loop {
        match port.receive()? {
            // The host end is gone, and with it every reader of answers.
            None => {
                session.end();
                port.wait_host()?;
            }
            Some(frame) if frame.kind == Kind::Hello => {
                session.end();
                session = Session::new(frame.session, out.clone());
                current
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone_from(&session);
                session.hello(&frame);
            }
            Some(frame) if frame.session == session.number && session.number != 0 => session.handle(frame),
            Some(_) => {}
        }
    }
}

/// Tells the host anew what is wrong when process 1 has noted more of it.
fn tell_news(current: &Arc<Mutex<Arc<Session>>>) -> Result<()> {
    let (mut news, current) = (Signals::new([SIGURG])?, Arc::clone(current));
    let tell = move || {
        for _ in news.forever() {
            let session = Arc::clone(&current.lock().unwrap_or_else(PoisonError::into_inner));
            session.say(0, Kind::Welcome, &welcome());
        }
    };
    std::thread::Builder::new().name("news".into()).spawn(tell)?;
    Ok(())
}

/// A session holds what one host end has running.
pub struct Session {
    number: u32,
    out: Sender,
    commands: Mutex<HashMap<u32, Arc<Command>>>,
}

impl Session {
    fn new(number: u32, out: Sender) -> Arc<Self> {
        Arc::new(Self {
            number,
            out,
            commands: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Arc<Command>>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends bytes unchanged.
    fn send(&self, id: u32, kind: Kind, body: Vec<u8>) {
        self.out.send(&Frame::new(self.number, id, kind, body));
    }

    /// Sends a message as JSON.
    fn say(&self, id: u32, kind: Kind, message: &impl serde::Serialize) {
        match Frame::json(self.number, id, kind, message) {
            Ok(frame) => self.out.send(&frame),
            Err(why) => self.fail(id, why, false),
        }
    }

    /// Ends a request with the reason of its failure.
    fn fail(&self, id: u32, message: impl Into<String>, not_found: bool) {
        let mut message = message.into();
        message.truncate(message.floor_char_boundary(1024));
        let frame = Frame::json(self.number, id, Kind::Failed, &Failed { message, not_found });
        self.out.send(&frame.expect("a sentence fits into a frame"));
    }

    fn hello(&self, frame: &Frame) {
        match frame.parse::<Hello>() {
            Ok(hello) if hello.protocol == PROTOCOL_VERSION => self.say(0, Kind::Welcome, &welcome()),
            Ok(hello) => {
                let theirs = hello.protocol;
                self.fail(
                    0,
                    format!("it speaks protocol version {PROTOCOL_VERSION}, not {theirs}"),
                    false,
                );
            }
            Err(why) => self.fail(0, why, false),
        }
    }

    fn handle(self: &Arc<Self>, frame: Frame) {
        let id = frame.id;
        let existing = self.lock().get(&id).cloned();
        match (frame.kind, existing) {
            (Kind::Exec | Kind::CopyIn | Kind::CopyOut, None) => self.start(&frame),
            (Kind::Report, None) => match report::report() {
                Ok(report) => self.say(id, Kind::ReportAnswer, &report),
                Err(error) => self.fail(id, format!("the counters cannot be read: {error:#}"), false),
            },
            (Kind::Ping, None) => self.send(id, Kind::Done, Vec::new()),
            (Kind::Power, None) => match frame.parse::<Power>() {
                Ok(what) => self.power(id, what),
                Err(why) => self.fail(id, why, false),
            },
            (Kind::Stdin, Some(command)) => command.input(frame.body),
            (Kind::StdinEnd, Some(command)) => command.input_end(),
            (Kind::Abort, Some(command)) => {
                self.lock().remove(&id);
                command.abort();
            }
            (Kind::CreditOutput, Some(command)) => {
                if let Some((stream, bytes)) = frame.credit() {
                    command.credit(stream, bytes);
                }
            }
            (Kind::Signal, Some(command)) => {
                if let Ok(signal) = frame.parse::<weft_agent::message::Signal>() {
                    command.signal(signal.number);
                }
            }
            (Kind::Resize, Some(command)) => {
                if let Ok(size) = frame.parse() {
                    command.resize(size);
                }
            }
            // The rest concerns commands that have ended meanwhile, or is not for an agent.
            _ => {}
        }
    }

    fn start(self: &Arc<Self>, frame: &Frame) {
        let id = frame.id;
        if self.lock().len() >= COMMANDS_MAX {
            return self.fail(id, format!("the guest runs {COMMANDS_MAX} commands already"), false);
        }
        let started = match frame.kind {
            Kind::Exec => match frame.parse() {
                Ok(exec) => command::start(self, id, &exec),
                Err(why) => Err(command::StartError::other(why)),
            },
            Kind::CopyIn => frame
                .parse()
                .map(|copy| copy::copy_in(self, id, copy))
                .map_err(Into::into),
            _ => frame
                .parse()
                .map(|copy| copy::copy_out(self, id, copy))
                .map_err(Into::into),
        };
        if let Err(error) = started {
            if let Some(command) = self.lock().remove(&id) {
                command.abort();
            }
            self.fail(id, error.message, error.not_found);
        }
    }

    /// Notes a command before it can send or end anything.
    fn add(&self, id: u32, command: Arc<Command>) {
        self.lock().insert(id, command);
    }

    /// Forgets a command that has ended and reports how. A command that was aborted reports nothing.
    fn finish(&self, id: u32, kind: Kind, message: &impl serde::Serialize) {
        if self.lock().remove(&id).is_some() {
            self.say(id, kind, message);
        }
    }

    fn power(&self, id: u32, what: Power) {
        self.send(id, Kind::Done, Vec::new());
        // The answer must be sent before the machine is switched off.
        self.out.flush();
        crate::init::power(match what {
            Power::Off => RebootCommand::PowerOff,
            Power::Reboot => RebootCommand::Restart,
        });
    }

    fn end(&self) {
        for (_, command) in std::mem::take(&mut *self.lock()) {
            command.abort();
        }
    }
}

fn welcome() -> Welcome {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    Welcome {
        protocol: PROTOCOL_VERSION,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        hostname: read("/proc/sys/kernel/hostname"),
        boot_id: read("/proc/sys/kernel/random/boot_id"),
        kernel: read("/proc/sys/kernel/osrelease"),
        problems: read(crate::init::PROBLEMS).lines().map(str::to_owned).collect(),
    }
}
