//! A client of QEMU's monitor: the few commands that weft needs, one at a time, and its events. A monitor serves one
//! client: a client that waits for events all the time needs a monitor of its own.

mod migration;

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use migration::Transfer;

use super::QemuError;

/// Time that QEMU may take for an answer. A QEMU that is starved of processor time still answers within seconds.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// Pause between two attempts to connect to a monitor socket that does not exist yet.
const CONNECT_PAUSE: Duration = Duration::from_millis(10);

/// Number of events kept for [`Qmp::into_events`]; the oldest are dropped first. A guest that reboots sends three.
const EVENTS_MAX: usize = 256;

/// Longest line that is read from QEMU, in bytes.
const LINE_MAX: u64 = 1 << 20;

/// A connection to one QEMU's monitor.
#[derive(Debug)]
pub struct Qmp {
    reader: BufReader<UnixStream>,
    events: VecDeque<String>,
}

impl Qmp {
    /// Connects, and waits up to `patience` for QEMU to listen.
    ///
    /// # Errors
    /// Fails when nothing listens in time, or the listener does not speak QMP.
    pub fn connect(socket: &Path, patience: Duration) -> Result<Self, QemuError> {
        let deadline = Instant::now() + patience;
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() >= deadline => return Err(QemuError::Monitor(error)),
                Err(_) => std::thread::sleep(CONNECT_PAUSE),
            }
        };
        let set = |stream: &UnixStream| {
            stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
            stream.set_write_timeout(Some(ANSWER_TIME_MAX))
        };
        set(&stream).map_err(QemuError::Monitor)?;
        let mut qmp = Self {
            reader: BufReader::new(stream),
            events: VecDeque::new(),
        };
        let greeting = qmp.line().map_err(QemuError::Monitor)?;
        if greeting.get("QMP").is_none() {
            return Err(QemuError::Monitor(io::Error::other("what listens is not QMP")));
        }
        qmp.execute("qmp_capabilities", Value::Null)?;
        Ok(qmp)
    }

    /// Sets a card's link up or down, as the guest sees it; `card` is [`super::Nic::link_name`].
    ///
    /// # Errors
    /// Fails when QEMU refuses or does not answer.
    pub fn set_link(&mut self, card: &str, up: bool) -> Result<(), QemuError> {
        self.execute("set_link", json!({"name": card, "up": up})).map(drop)
    }

    /// Returns whether a card's backend is connected, and QEMU has done all that it does then, such as setting the link
    /// up; `socket` is [`super::Nic::socket_name`].
    ///
    /// # Errors
    /// Fails when QEMU does not answer.
    pub fn socket_is_connected(&mut self, socket: &str) -> Result<bool, QemuError> {
        // Both happen in one turn of QEMU's main loop, which answers us in another.
        let all = self.execute("query-chardev", Value::Null)?;
        let found = all.as_array().into_iter().flatten().find(|one| one["label"] == socket);
        let name = found.and_then(|one| one["filename"].as_str());
        Ok(name.is_some_and(|name| !name.starts_with("disconnected:")))
    }

    /// Stops the guest's processors.
    ///
    /// # Errors
    /// Fails when QEMU refuses or does not answer.
    pub fn stop(&mut self) -> Result<(), QemuError> {
        self.execute("stop", Value::Null).map(drop)
    }

    /// Lets the guest's processors continue.
    ///
    /// # Errors
    /// Fails when QEMU refuses or does not answer.
    pub fn cont(&mut self) -> Result<(), QemuError> {
        self.execute("cont", Value::Null).map(drop)
    }

    /// Ends QEMU.
    ///
    /// # Errors
    /// Fails when QEMU refuses or does not answer.
    pub fn quit(&mut self) -> Result<(), QemuError> {
        self.execute("quit", Value::Null).map(drop)
    }

    /// Presses the power button, which a cooperative guest takes as a request to switch itself off.
    ///
    /// # Errors
    /// Fails when QEMU refuses or does not answer.
    pub fn system_powerdown(&mut self) -> Result<(), QemuError> {
        self.execute("system_powerdown", Value::Null).map(drop)
    }

    /// Presses the reset button.
    ///
    /// # Errors
    /// Fails when QEMU refuses or does not answer.
    pub fn system_reset(&mut self) -> Result<(), QemuError> {
        self.execute("system_reset", Value::Null).map(drop)
    }

    /// Returns whether the guest's processors run.
    ///
    /// # Errors
    /// Fails when QEMU does not answer.
    pub fn running(&mut self) -> Result<bool, QemuError> {
        let status = self.execute("query-status", Value::Null)?;
        Ok(status.get("running").and_then(Value::as_bool).unwrap_or(false))
    }

    /// Executes any command; `arguments` is an object or null. Returns QEMU's result.
    ///
    /// # Errors
    /// Fails when QEMU refuses or does not answer.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, QemuError> {
        let mut request = json!({"execute": command});
        if !arguments.is_null() {
            request["arguments"] = arguments;
        }
        let mut text = request.to_string();
        text.push('\n');
        self.reader
            .get_mut()
            .write_all(text.as_bytes())
            .map_err(QemuError::Monitor)?;
        self.answer(command)
    }

    /// Waits for the answer to a command that was sent.
    fn answer(&mut self, command: &str) -> Result<Value, QemuError> {
        loop {
            let mut answer = self.line().map_err(QemuError::Monitor)?;
            if let Some(event) = answer.get("event").and_then(Value::as_str) {
                if self.events.len() == EVENTS_MAX {
                    self.events.pop_front();
                }
                self.events.push_back(event.to_owned());
            } else if let Some(error) = answer.get("error") {
                let why = error
                    .get("desc")
                    .and_then(Value::as_str)
                    .unwrap_or("no reason given")
                    .to_owned();
                return Err(QemuError::Refused {
                    command: command.to_owned(),
                    why,
                });
            } else {
                return Ok(answer.get_mut("return").map_or(Value::Null, Value::take));
            }
        }
    }

    /// Returns the names of the events (`RESET`, `SHUTDOWN`, …): first those that came before answers, then more as
    /// they come. It waits for each, and ends with QEMU.
    ///
    /// # Errors
    /// Fails when the connection cannot be set to wait.
    pub fn into_events(mut self) -> Result<impl Iterator<Item = String>, QemuError> {
        let unlimited = self.reader.get_mut().set_read_timeout(None);
        unlimited.map_err(QemuError::Monitor)?;
        Ok(std::iter::from_fn(move || {
            while self.events.is_empty() {
                let line = self.line().ok()?;
                let event = line.get("event").and_then(Value::as_str);
                self.events.extend(event.map(str::to_owned));
            }
            self.events.pop_front()
        }))
    }

    /// Waits for an event, however long that takes; one that came before an answer counts. Others are forgotten.
    ///
    /// # Errors
    /// Fails when QEMU ends.
    fn wait_for_event(&mut self, name: &str) -> Result<(), QemuError> {
        let mut wait = || {
            self.reader.get_ref().set_read_timeout(None)?;
            loop {
                match self.events.pop_front() {
                    Some(event) if event == name => break,
                    Some(_) => {}
                    None => {
                        let line = self.line()?;
                        let event = line.get("event").and_then(Value::as_str);
                        self.events.extend(event.map(str::to_owned));
                    }
                }
            }
            self.reader.get_ref().set_read_timeout(Some(ANSWER_TIME_MAX))
        };
        wait().map_err(QemuError::Monitor)
    }

    fn line(&mut self) -> io::Result<Value> {
        let mut line = Vec::new();
        io::Read::take(&mut self.reader, LINE_MAX).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "QEMU has closed it"));
        }
        serde_json::from_slice(&line).map_err(io::Error::from)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn events_between_answers_are_kept_and_refusals_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        let qemu = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let say = |text: &str| (&stream).write_all(format!("{text}\r\n").as_bytes()).unwrap();
            say(r#"{"QMP": {"version": {}, "capabilities": []}}"#);
            assert!(lines.next().unwrap().unwrap().contains("qmp_capabilities"));
            say(r#"{"return": {}}"#);
            assert_eq!(
                lines.next().unwrap().unwrap(),
                r#"{"arguments":{"name":"nic0","up":false},"execute":"set_link"}"#
            );
            say(r#"{"event": "RESET", "timestamp": {}}"#);
            say(r#"{"return": {}}"#);
            lines.next().unwrap().unwrap();
            say(r#"{"error": {"class": "GenericError", "desc": "not now"}}"#);
            say(r#"{"event": "SHUTDOWN", "timestamp": {}}"#);
        });
        let mut qmp = Qmp::connect(&path, Duration::from_secs(5)).unwrap();
        qmp.set_link("nic0", false).unwrap();
        assert_eq!(qmp.stop().unwrap_err().to_string(), "QEMU refused stop: not now");
        qemu.join().unwrap();
        let events: Vec<_> = qmp.into_events().unwrap().collect();
        assert_eq!(events, ["RESET", "SHUTDOWN"]);
        let error = Qmp::connect(&path, Duration::ZERO).unwrap_err().to_string();
        assert!(error.starts_with("QEMU's monitor does not answer"), "{error}");
    }
}
