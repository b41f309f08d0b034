//! What both ends of every measurement use: a buffer, and one message there or back.

use std::thread;

use anyhow::{bail, ensure};
use omx::{Address, Endpoint, Segment, Status, StatusCode};

use super::parameters::MATCH_INFO;

/// Buffers begin at a multiple of this when they are to be aligned.
const ALIGNMENT: usize = 64 << 10;
/// Longest message: what a peer may ask this side to allocate.
const LENGTH_MAX: usize = 1 << 30;

/// What is done while a message is on its way.
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

/// One end.
pub(super) struct Side<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) polling: Polling,
    pub(super) synchronous: bool,
}

impl Side<'_> {
    pub(super) fn over(&self, request: omx::Request) -> anyhow::Result<Status> {
        let status = loop {
            let status = match self.polling {
                Polling::Wait => self.endpoint.wait(request, None)?,
                Polling::Yield => {
                    let status = self.endpoint.test(request)?;
                    if status.is_none() {
                        thread::yield_now();
                    }
                    status
                }
            };
            if let Some(status) = status {
                break status;
            }
        };
        match status.code {
            StatusCode::Success => Ok(status),
            code => bail!("a message failed: {code}"),
        }
    }

    pub(super) fn send(&self, data: &[u8], to: Address) -> anyhow::Result<()> {
        // SAFETY: `data` is borrowed until the request is over, or the process ends.
        let request = unsafe {
            self.endpoint
                .isend(&[Segment::of(data)], to, MATCH_INFO, 0, self.synchronous)
        }?;
        self.over(request).map(drop)
    }

    pub(super) fn receive(&self, buffer: &mut [u8]) -> anyhow::Result<Status> {
        // SAFETY: `buffer` is borrowed until the request is over, or the process ends.
        let request = unsafe { self.endpoint.irecv(&[Segment::of_mut(buffer)], MATCH_INFO, u64::MAX, 0) }?;
        self.over(request)
    }
}
