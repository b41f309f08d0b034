//! A verb's end of `weft.sock`: requests to the supervisor of a running lab.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;

use super::protocol::{Answer, LabStatus, Request, SaveNews, SaveReport};
use crate::{
    guest_channel::GuestChannel,
    lab::topology::Topology,
    state::StateDir,
    vnicd_client::{Ends, VnicdClient, VnicdError},
};

/// Time to wait for the replacement of a `vnicd` that has ended: the start of another one takes milliseconds.
const NEXT_VNICD_TIMEOUT: Duration = Duration::from_secs(30);

/// Time that a verb waits for the replacement before it reports that `vnicd` does not answer.
const RESTART_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval at which the next `vnicd` is polled for: only its socket, which the supervisor's next child makes, shows
/// that it is there.
const NEXT_VNICD_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A client of a running lab.
#[derive(Clone, Debug)]
pub struct Client {
    state: StateDir,
}

impl Client {
    /// Makes a client of the lab whose supervisor lives in `state`.
    #[must_use]
    pub fn new(state: StateDir) -> Self {
        Self { state }
    }

    /// Returns the lab's folder.
    #[must_use]
    pub fn state(&self) -> &StateDir {
        &self.state
    }

    fn send(&self, request: &Request) -> Result<BufReader<UnixStream>> {
        let lab = self.state.lab();
        let path = self.state.supervisor_socket()?;
        let mut stream = UnixStream::connect(&path).with_context(|| format!("the lab {lab} does not answer"))?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        Ok(BufReader::new(stream))
    }

    /// Reads an answer, which a lab that has ended does not give.
    fn answer<T: DeserializeOwned>(&self, reader: &mut impl BufRead) -> Result<T> {
        read_answer(reader)?.with_context(|| format!("the lab {} has ended", self.state.lab()))
    }

    /// Requests the state of the lab and its nodes.
    ///
    /// # Errors
    /// Fails when the supervisor does not answer.
    pub fn status(&self) -> Result<LabStatus> {
        self.request(&Request::Status)
    }

    /// Requests nodes, switches and cables of the lab, with the current settings of cables.
    ///
    /// # Errors
    /// Fails when the supervisor does not answer.
    pub fn topology(&self) -> Result<Topology> {
        self.request(&Request::Topology)
    }

    /// Calls `seen` with the current state and after each change, until it returns something. `None` means that the lab
    /// has ended.
    ///
    /// # Errors
    /// Fails when the supervisor does not answer.
    pub fn watch<T>(&self, mut seen: impl FnMut(&LabStatus) -> Option<T>) -> Result<Option<T>> {
        let mut reader = self.send(&Request::Watch)?;
        while let Some(status) = read_answer::<LabStatus>(&mut reader)? {
            if let Some(result) = seen(&status) {
                return Ok(Some(result));
            }
        }
        Ok(None)
    }

    /// Makes any request with a plain answer.
    ///
    /// # Errors
    /// Fails with the supervisor's sentence.
    pub fn request<T: DeserializeOwned>(&self, request: &Request) -> Result<T> {
        self.answer(&mut self.send(request)?)
    }

    /// Opens a channel to the agent of a node.
    ///
    /// # Errors
    /// Fails when the node is off.
    pub fn agent(&self, node: &str) -> Result<GuestChannel> {
        let mut reader = self.send(&Request::Agent { node: node.to_owned() })?;
        self.answer::<()>(&mut reader)?;
        // Nothing more was sent yet: the relay answers only requests.
        Ok(GuestChannel::over(reader.into_inner())?)
    }

    /// Connects to the control socket of the lab's `vnicd`. If `vnicd` has just ended, this waits for its replacement.
    ///
    /// # Errors
    /// Fails when none answers.
    pub fn vnicd(&self) -> Result<VnicdClient> {
        let unreachable = match self.vnicd_now() {
            Err(error @ VnicdError::Unreachable(_)) => error,
            answered => return Ok(answered?),
        };
        // The supervisor reports when the end of one is noticed, and when the next one answers.
        let deadline = Instant::now() + RESTART_TIMEOUT;
        let mut reader = self.send(&Request::Watch)?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(unreachable.into());
            }
            reader.get_ref().set_read_timeout(Some(left))?;
            match read_answer::<LabStatus>(&mut reader) {
                Ok(Some(status)) if status.vnicd_pid.is_none() => {}
                Ok(Some(_)) => match self.vnicd_now() {
                    Err(VnicdError::Unreachable(_)) => {}
                    answered => return Ok(answered?),
                },
                Ok(None) => bail!("the lab {} has ended", self.state.lab()),
                Err(_) if Instant::now() >= deadline => return Err(unreachable.into()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Connects to the `vnicd` that answers now: one that is just ending may accept a connection without answering.
    fn vnicd_now(&self) -> Result<VnicdClient, VnicdError> {
        let socket = self
            .state
            .vnicd_socket()
            .map_err(|error| VnicdError::Unreachable(std::io::Error::other(error)))?;
        let mut client = VnicdClient::connect(&socket)?;
        client.ping()?;
        Ok(client)
    }

    /// Begins an operation again in the `vnicd` that replaces one that has ended, as soon as it answers. `ends` can
    /// stop the wait.
    ///
    /// # Errors
    /// Fails when the lab has ended too, no `vnicd` comes, or the operation cannot begin.
    pub fn in_next_vnicd<T>(&self, ends: &Ends, begin: impl Fn(VnicdClient) -> Result<T>) -> Result<T> {
        let deadline = Instant::now() + NEXT_VNICD_TIMEOUT;
        loop {
            match self.vnicd_now().map_err(Into::into).and_then(&begin) {
                Err(_) if Instant::now() < deadline && !ends.is_asked() => {
                    // The wait ends with the lab.
                    self.status()?;
                    std::thread::sleep(NEXT_VNICD_POLL_INTERVAL);
                }
                outcome => return outcome,
            }
        }
    }

    /// Saves the lab, as [`Request::Save`] says; `progress` is called with the current step and the number of its bytes
    /// so far. If that ends the lab, returns when nothing of it is left.
    ///
    /// # Errors
    /// Fails with the supervisor's sentence. Then the lab keeps running.
    pub fn save(&self, request: &Request, mut progress: impl FnMut(&str, u64)) -> Result<SaveReport> {
        let mut reader = self.send(request)?;
        loop {
            match self.answer(&mut reader)? {
                SaveNews::Step { what, bytes } => progress(&what, bytes),
                SaveNews::Done(report) => {
                    if report.ended {
                        _ = reader.read(&mut [0]);
                    }
                    return Ok(report);
                }
            }
        }
    }

    /// Ends the lab; returns when nothing of it is left.
    ///
    /// # Errors
    /// Fails when the supervisor does not answer.
    pub fn down(&self) -> Result<()> {
        let mut reader = self.send(&Request::Down)?;
        // The end of the connection is the end of the supervisor.
        _ = reader.read(&mut [0]);
        Ok(())
    }
}

fn read_answer<T: DeserializeOwned>(reader: &mut impl BufRead) -> Result<Option<T>> {
    let mut line = String::new();
    match reader.read_line(&mut line) {
        Ok(0) => return Ok(None),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    match serde_json::from_str(&line).context("the supervisor is of another version of weft")? {
        Answer::Ok(value) => Ok(Some(value)),
        Answer::Error(sentence) => bail!("{sentence}"),
    }
}
