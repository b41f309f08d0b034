//! The parts that both ends of every measurement use: a buffer, and one message in either direction.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use omx::{Address, Endpoint, Request, Segment, Status, StatusCode};

use super::parameters::KEY;

/// Buffers begin at a multiple of this when they are to be aligned.
const ALIGNMENT: usize = 64 << 10;
/// The longest message: a peer may make this side allocate no more.
const LENGTH_MAX: usize = 1 << 30;

/// After this long without a message the other end is asked whether it is still there; one that pauses says so.
pub(super) const SILENCE: Duration = Duration::from_millis(500);
/// The other end answers within this, or counts as gone: a program that was stopped by its terminal may go on.
const PARTNER_LIMIT: Duration = Duration::from_secs(30);

/// What the program does while a message is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Polling {
    /// The endpoint's own wait.
    Wait,
    /// Tests, and yields the processor in between.
    Yield,
}

/// A buffer, aligned or not.
pub(super) struct Buffer {
    memory: Vec<u8>,
    at: usize,
    len: usize,
}

impl Buffer {
    pub(super) fn new(len: usize, aligned: bool) -> anyhow::Result<Self> {
        ensure!(
            len <= LENGTH_MAX,
            "messages of {len} bytes are too long: at most {LENGTH_MAX}"
        );
        let memory = vec![0x5a; len + ALIGNMENT];
        let at = if aligned {
            memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT)
        } else {
            0
        };
        Ok(Self { memory, at, len })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.at..self.at + self.len]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.at..self.at + self.len]
    }
}

/// One end of a measurement.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) polling: Polling,
    pub(super) synchronous: bool,
    /// The address of the other end.
    pub(super) partner: Address,
    /// Match information of the messages.
    pub(super) match_info: u64,
}

impl Side<'_> {
    /// Waits until a request is over, or the partner is gone: then it is over, too.
    pub(super) fn over(&self, request: Request) -> anyhow::Result<Status> {
        loop {
            match self.wait(request)? {
                Some(status) if status.code == StatusCode::Success => return Ok(status),
                Some(status) => bail!("a message failed: {}", status.code),
                None => {
                    if let Err(error) = self.ask_partner() {
                        self.end(request)?;
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Waits for a request; returns `None` after a while.
    fn wait(&self, request: Request) -> Result<Option<Status>, omx::Error> {
        if self.polling == Polling::Wait {
            return self.endpoint.wait(request, Some(SILENCE));
        }
        let begin = Instant::now();
        loop {
            let status = self.endpoint.test(request)?;
            if status.is_some() || begin.elapsed() > SILENCE {
                return Ok(status);
            }
            thread::yield_now();
        }
    }

    /// Checks that the partner is still there: one that was killed after it took a message never answers it, and
    /// nothing that it would have to acknowledge is in flight.
    fn ask_partner(&self) -> anyhow::Result<()> {
        let (mac, number) = (self.partner.mac(), self.partner.endpoint());
        let there = self.endpoint.connect(mac, number, KEY, Some(PARTNER_LIMIT));
        let there = there.with_context(|| format!("endpoint {number} of {mac}, the other end, is gone"))?;
        ensure!(
            there == self.partner,
            "endpoint {number} of {mac}, the other end, is gone: another program has this endpoint now"
        );
        Ok(())
    }

    /// Ends a request, however it went.
    pub(super) fn end(&self, request: Request) -> Result<(), omx::Error> {
        if matches!(self.endpoint.cancel(request), Ok(true)) {
            return Ok(());
        }
        while self.endpoint.wait(request, Some(SILENCE))?.is_none() {
            // It began, and waits for a partner that is gone.
            self.endpoint.disconnect(self.partner)?;
        }
        Ok(())
    }

    pub(super) fn send(&self, data: &[u8]) -> anyhow::Result<()> {
        // SAFETY: `data` is borrowed until the request is over.
        let request = unsafe {
            self.endpoint
                .isend(&[Segment::of(data)], self.partner, self.match_info, 0, self.synchronous)
        }?;
        self.over(request).map(drop)
    }

    pub(super) fn receive(&self, buffer: &mut [u8]) -> anyhow::Result<Status> {
        self.receive_masked(buffer, u64::MAX)
    }

    /// Receives a message of which not all of the match information is known.
    pub(super) fn receive_masked(&self, buffer: &mut [u8], mask: u64) -> anyhow::Result<Status> {
        let info = self.match_info & mask;
        // SAFETY: `buffer` is borrowed until the request is over.
        let request = unsafe { self.endpoint.irecv(&[Segment::of_mut(buffer)], info, mask, 0) }?;
        self.over(request)
    }
}
