//! Bursts of frames from the engine to the port, made of headers and the program's memory without a copy. Frames that
//! the port does not take at once are kept and go first the next time.

use std::io::IoSlice;

use ether::Time;
use mxoe::engine::{Engine, HEAD_BUFFER_LEN, Transmit};
use netif::{BURST_MAX, Netif};

use crate::{peers::EndpointPeers, store::Store};

/// Zeros at the end of a short frame.
static PAD: [u8; 64] = [0; 64];

/// A burst of frames between the engine and the port.
pub(crate) struct Burst {
    heads: Box<[[u8; HEAD_BUFFER_LEN]; BURST_MAX]>,
    frames: Vec<Transmit>,
    /// How many of the frames the port has taken.
    taken: usize,
}

impl Burst {
    pub(crate) fn new() -> Self {
        Self {
            heads: Box::new([[0; HEAD_BUFFER_LEN]; BURST_MAX]),
            frames: Vec::with_capacity(BURST_MAX),
            taken: 0,
        }
    }

    /// Returns room for a frame that is no part of a burst: no frame may be [blocked](Self::is_blocked).
    pub(crate) const fn first_head(&mut self) -> &mut [u8; HEAD_BUFFER_LEN] {
        &mut self.heads[0]
    }

    /// Whether the port was full.
    pub(crate) const fn is_blocked(&self) -> bool {
        self.taken < self.frames.len()
    }

    /// Sends all that there is to be sent, until the port is full. Returns how many frames went out.
    #[inline]
    pub(crate) fn transmit(
        &mut self,
        now: Time,
        engine: &mut Engine<EndpointPeers>,
        store: &Store,
        port: &mut (dyn Netif + Send),
    ) -> usize {
        let mut sent = 0;
        loop {
            if self.is_blocked() {
                let before = self.taken;
                self.hand_over(store, port);
                sent += self.taken - before;
                if self.is_blocked() {
                    return sent;
                }
            }
            self.frames.clear();
            self.taken = 0;
            while self.frames.len() < BURST_MAX {
                let Some(frame) = engine.poll_transmit(now, &mut self.heads[self.frames.len()]) else {
                    break;
                };
                self.frames.push(frame);
                if engine.is_quiet() {
                    // It goes out before anything else is done.
                    break;
                }
            }
            if self.frames.is_empty() {
                return sent;
            }
        }
    }

    fn hand_over(&mut self, store: &Store, port: &mut (dyn Netif + Send)) {
        if let [frame] = self.frames[..]
            && frame.payload.is_none()
        {
            // One piece costs the kernel less than two. A short frame with its zeros has room there.
            let end = frame.head_len + frame.pad_len;
            self.heads[0][frame.head_len..end].fill(0);
            // An error (the link is down): lost like any frame on the wire, and sent again by the engine.
            let taken = port.send(&[IoSlice::new(&self.heads[0][..end])]);
            self.taken = usize::from(taken.unwrap_or(true));
            return;
        }
        let mut parts: Vec<IoSlice<'_>> = Vec::with_capacity(3 * (self.frames.len() - self.taken));
        // Where each frame's parts end, and which frame it is: those whose send is over are left out.
        let mut ends = Vec::with_capacity(self.frames.len());
        for at in self.taken..self.frames.len() {
            let frame = &self.frames[at];
            let begin = parts.len();
            parts.push(IoSlice::new(&self.heads[at][..frame.head_len]));
            if let Some(payload) = frame.payload
                && !store.append_parts(payload.token, payload.offset, payload.len, &mut parts)
            {
                parts.truncate(begin);
                continue;
            }
            if frame.pad_len > 0 {
                parts.push(IoSlice::new(&PAD[..frame.pad_len]));
            }
            ends.push((at, begin, parts.len()));
        }
        let frames: Vec<&[IoSlice<'_>]> = ends.iter().map(|(_, begin, end)| &parts[*begin..*end]).collect();
        // An error: the first one is lost, as above; the next call says how it is about the others.
        let taken = port.send_burst(&frames).unwrap_or(1);
        self.taken = ends.get(taken).map_or(self.frames.len(), |(at, ..)| *at);
    }
}
