//! The state of a stopped guest as a stream of bytes: out of one QEMU, into another that was started with equal
//! arguments.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};

use super::Qmp;
use crate::qemu::QemuError;

/// Bandwidth in bytes per second: QEMU's own limit is made for networks.
const BANDWIDTH_MAX: u64 = 1 << 40;

/// Event that QEMU sends when a transfer begins, progresses or ends, if it is told to.
const EVENT: &str = "MIGRATION";

/// Name that QEMU gives the file that was passed to it.
const FILE_NAME: &str = "state";

/// The possible ends of a transfer of a guest's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The whole state was transferred.
    Completed,
    /// The transfer failed, for the reason that QEMU gave.
    Failed(String),
}

impl Qmp {
    /// Returns why the guest's state cannot be saved now, in QEMU's words; empty if it can.
    ///
    /// # Errors
    /// Fails when QEMU does not answer.
    pub fn why_not_savable(&mut self) -> Result<Vec<String>, QemuError> {
        let answer = self.execute("query-migrate", Value::Null)?;
        let reasons = answer["blocked-reasons"].as_array().into_iter().flatten();
        Ok(reasons.filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// Begins to write the guest's state into `pipe`; the guest should be stopped.
    ///
    /// # Errors
    /// Fails when QEMU refuses or does not answer.
    pub fn begin_save(&mut self, pipe: BorrowedFd<'_>) -> Result<(), QemuError> {
        self.execute("migrate-set-parameters", json!({"max-bandwidth": BANDWIDTH_MAX}))?;
        self.want_events()?;
        self.give(pipe)?;
        self.execute("migrate", json!({"uri": format!("fd:{FILE_NAME}")}))
            .map(drop)
    }

    /// Begins to read the guest's state from `pipe`; QEMU was started to wait for that.
    ///
    /// # Errors
    /// Fails when QEMU refuses or does not answer.
    pub fn begin_restore(&mut self, pipe: BorrowedFd<'_>) -> Result<(), QemuError> {
        self.want_events()?;
        self.give(pipe)?;
        self.execute("migrate-incoming", json!({"uri": format!("fd:{FILE_NAME}")}))
            .map(drop)
    }

    fn want_events(&mut self) -> Result<(), QemuError> {
        let events = json!({"capabilities": [{"capability": "events", "state": true}]});
        self.execute("migrate-set-capabilities", events).map(drop)
    }

    /// Returns how the last transfer ended; `None` while it is in progress.
    fn transfer(&mut self) -> Result<Option<Transfer>, QemuError> {
        let answer = self.execute("query-migrate", Value::Null)?;
        Ok(match answer["status"].as_str() {
            Some("completed") => Some(Transfer::Completed),
            Some("failed" | "cancelled" | "none") => {
                let why = answer["error-desc"].as_str().unwrap_or("it gives no reason");
                Some(Transfer::Failed(why.to_owned()))
            }
            _ => None,
        })
    }

    /// Waits for the end of the last transfer, however long it takes.
    ///
    /// # Errors
    /// Fails when QEMU does not answer: it ends when it cannot read a state.
    pub fn wait_for_transfer(&mut self) -> Result<Transfer, QemuError> {
        loop {
            if let Some(end) = self.transfer()? {
                return Ok(end);
            }
            // An event that came before the answer is not awaited any more, so that none is missed.
            self.wait_for_event(EVENT)?;
        }
    }

    /// Passes an open file to QEMU under the name [`FILE_NAME`]: without a path, none can be misinterpreted.
    fn give(&mut self, file: BorrowedFd<'_>) -> Result<(), QemuError> {
        let request = json!({"execute": "getfd", "arguments": {"fdname": FILE_NAME}});
        let text = format!("{request}\n");
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut files = SendAncillaryBuffer::new(&mut space);
        let attached = [file];
        let sent = if files.push(SendAncillaryMessage::ScmRights(&attached)) {
            // A file is sent with the first byte, and a request of one short line is sent in one piece.
            let stream = self.reader.get_ref().as_fd();
            sendmsg(
                stream,
                &[IoSlice::new(text.as_bytes())],
                &mut files,
                SendFlags::NOSIGNAL,
            )
            .map_err(io::Error::from)
        } else {
            Err(io::Error::other("there is no room for a file"))
        };
        match sent {
            Ok(len) if len == text.len() => self.answer("getfd").map(drop),
            Ok(_) => Err(QemuError::Monitor(io::ErrorKind::WriteZero.into())),
            Err(error) => Err(QemuError::Monitor(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

    use super::*;

    /// Returns the next line that QEMU would read, with the file that came along.
    fn line_with_file(stream: &std::os::unix::net::UnixStream) -> (String, Option<OwnedFd>) {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut files = RecvAncillaryBuffer::new(&mut space);
        let mut pieces = [io::IoSliceMut::new(&mut bytes)];
        let len = recvmsg(stream, &mut pieces, &mut files, RecvFlags::empty())
            .unwrap()
            .bytes;
        let file = files.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        (String::from_utf8(bytes[..len].to_vec()).unwrap(), file)
    }

    #[test]
    fn a_state_is_written_into_the_pipe_that_qemu_was_given() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        let qemu = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let say = |text: &str| (&stream).write_all(format!("{text}\r\n").as_bytes()).unwrap();
            say(r#"{"QMP": {"version": {}, "capabilities": []}}"#);
            let mut pipe = None;
            for (expected, answer) in [
                ("qmp_capabilities", r#"{"return": {}}"#),
                (
                    "query-migrate",
                    r#"{"return": {"blocked-reasons": ["a folder of the host is mounted"]}}"#,
                ),
                ("migrate-set-parameters", r#"{"return": {}}"#),
                (r#""capability":"events""#, r#"{"return": {}}"#),
                (r#""fdname":"state""#, r#"{"return": {}}"#),
                (r#""uri":"fd:state""#, r#"{"return": {}}"#),
                (
                    "query-migrate",
                    "{\"event\": \"MIGRATION\"}\n{\"return\": {\"status\": \"active\"}}",
                ),
                // One event comes before the answer, and one after it among others.
                (
                    "query-migrate",
                    "{\"return\": {\"status\": \"active\"}}\n{\"event\": \"STOP\"}\n{\"event\": \"MIGRATION\"}",
                ),
                (
                    "query-migrate",
                    r#"{"return": {"status": "failed", "error-desc": "no space"}}"#,
                ),
            ] {
                let (line, file) = line_with_file(&stream);
                assert!(line.contains(expected) && line.ends_with('\n'), "{line}");
                assert_eq!(file.is_some(), line.contains("getfd"), "{line}");
                pipe = pipe.or(file);
                say(answer);
            }
            std::fs::File::from(pipe.unwrap())
                .write_all(b"state of a guest")
                .unwrap();
        });
        let mut qmp = Qmp::connect(&path, Duration::from_secs(5)).unwrap();
        assert_eq!(qmp.why_not_savable().unwrap(), ["a folder of the host is mounted"]);
        let (mut reads, writes) = std::io::pipe().unwrap();
        qmp.begin_save(writes.as_fd()).unwrap();
        drop(writes);
        assert_eq!(
            qmp.wait_for_transfer().unwrap(),
            Transfer::Failed("no space".to_owned())
        );
        let mut text = String::new();
        reads.read_to_string(&mut text).unwrap();
        assert_eq!(text, "state of a guest");
        qemu.join().unwrap();
        assert!(qmp.wait_for_transfer().is_err(), "QEMU is gone");
    }
}
