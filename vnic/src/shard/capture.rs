//! Captures: frames of chosen ports as pcapng blocks, handed to a reader that may be slow without slowing the shard.
//!
//! A received frame is written when its interrupt is decided, and the last frame an interrupt announces carries the
//! reason as its comment; a sent frame is written when the card takes it. Who reads, and where to, is not known here.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ether::{MacAddr, Time, pcapng};
use firmware::Interrupt;

use super::frame::FrameRef;
use super::port::interrupt_comment;

/// Bytes that may wait for a slow reader; what comes then is dropped and counted in the statistics block at the end.
const SINK_BYTES_MAX: usize = 32 << 20;
/// Received frames of one port that may wait for their announcement: more than any ring holds.
const UNANNOUNCED_MAX: usize = 4096;

#[derive(Debug, Default)]
struct SinkState {
    bytes: Vec<u8>,
    closed: bool,
    /// Frames that did not fit, for each interface.
    dropped: Vec<u64>,
    /// The time of the last frame.
    latest: Time,
}

impl SinkState {
    fn drop_at(&mut self, interface: u32) {
        if let Some(dropped) = self.dropped.get_mut(interface as usize) {
            *dropped += 1;
        }
    }
}

#[derive(Debug, Default)]
struct Sink {
    state: Mutex<SinkState>,
    changed: Condvar,
}

impl Sink {
    fn lock(&self) -> MutexGuard<'_, SinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn packet(&self, packet: &pcapng::Packet<'_>) {
        let mut state = self.lock();
        state.latest = state.latest.max(packet.at);
        if state.bytes.len() + packet.bytes.len() > SINK_BYTES_MAX {
            state.drop_at(packet.interface);
            return;
        }
        pcapng::enhanced_packet(&mut state.bytes, packet);
        drop(state);
        self.changed.notify_one();
    }
}

/// What a reader found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Bytes were appended.
    Data,
    /// Nothing came within the time-out.
    Idle,
    /// The shard is gone; nothing more will come.
    Ended,
}

/// The reading end of a capture; the capture ends when it is dropped.
#[derive(Debug)]
pub struct CaptureReader {
    sink: Arc<Sink>,
    origin_unix_ns: u64,
}

impl CaptureReader {
    /// Appends what was captured to `out`, waiting for up to `timeout` if there is nothing. The first bytes are the
    /// file's headers.
    pub fn next_chunk(&self, out: &mut Vec<u8>, timeout: Duration) -> Chunk {
        let state = self.sink.lock();
        let waiting = |state: &mut SinkState| state.bytes.is_empty() && !state.closed;
        let (mut state, _) = self
            .sink
            .changed
            .wait_timeout_while(state, timeout, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        if !state.bytes.is_empty() {
            out.append(&mut state.bytes);
            Chunk::Data
        } else if state.closed {
            Chunk::Ended
        } else {
            Chunk::Idle
        }
    }

    /// Appends the file's last blocks: for each interface, how many frames did not fit into the space for a slow reader.
    pub fn statistics(&self, out: &mut Vec<u8>) {
        let state = self.sink.lock();
        for (interface, dropped) in state.dropped.iter().enumerate() {
            let statistics = pcapng::Statistics {
                interface: interface as u32,
                at: state.latest,
                origin_unix_ns: self.origin_unix_ns,
                received_frames: None,
                dropped_frames: Some(*dropped),
            };
            pcapng::interface_statistics(out, &statistics);
        }
    }
}

impl Drop for CaptureReader {
    fn drop(&mut self) {
        self.sink.lock().closed = true;
    }
}

/// Begins a capture of ports with these names and addresses; one writer per port, in order.
pub fn begin(
    ports: &[(String, Option<MacAddr>)],
    snaplen: u32,
    origin_unix_ns: u64,
) -> (CaptureReader, Vec<PortCapture>) {
    let sink = Arc::new(Sink::default());
    {
        let mut state = sink.lock();
        state.dropped = vec![0; ports.len()];
        pcapng::section_header(&mut state.bytes, concat!("Weft vnicd ", env!("CARGO_PKG_VERSION")));
        for (name, mac) in ports {
            let interface = pcapng::Interface {
                name,
                description: Some("programmable card"),
                mac: *mac,
                snaplen_bytes: snaplen,
            };
            pcapng::interface_description(&mut state.bytes, &interface);
        }
    }
    let writers = (0..ports.len())
        .map(|interface| PortCapture {
            sink: sink.clone(),
            interface: interface as u32,
            snaplen: if snaplen == 0 { usize::MAX } else { snaplen as usize },
            origin_unix_ns,
            unannounced: Vec::new(),
        })
        .collect();
    (CaptureReader { sink, origin_unix_ns }, writers)
}

/// The writing end of a capture at one port.
#[derive(Debug)]
pub struct PortCapture {
    sink: Arc<Sink>,
    interface: u32,
    snaplen: usize,
    origin_unix_ns: u64,
    /// For each receive queue: frames delivered, not announced (kept bytes, length).
    unannounced: Vec<VecDeque<(Box<[u8]>, u32)>>,
}

impl PortCapture {
    /// True if nobody reads any more.
    pub fn is_over(&self) -> bool {
        self.sink.lock().closed
    }

    /// The guest sent `frame`.
    pub fn sent(&mut self, frame: &[u8], now: Time) {
        let bytes = &frame[..frame.len().min(self.snaplen)];
        self.write(bytes, frame.len() as u32, now, pcapng::Direction::Outbound, None);
    }

    /// `frame` was put into receive queue `queue`.
    pub fn delivered(&mut self, queue: usize, frame: &FrameRef<'_>) {
        if self.unannounced.len() <= queue {
            self.unannounced.resize_with(queue + 1, VecDeque::new);
        }
        let mut bytes = vec![0; frame.len as usize];
        frame.gather(&mut bytes);
        bytes.truncate(self.snaplen);
        let frames = &mut self.unannounced[queue];
        if frames.len() < UNANNOUNCED_MAX {
            frames.push_back((bytes.into_boxed_slice(), frame.len));
        } else {
            self.sink.lock().drop_at(self.interface);
        }
    }

    /// The firmware decided an interrupt on `queue`.
    pub fn announced(&mut self, queue: usize, interrupt: &Interrupt) {
        let Some(frames) = self.unannounced.get_mut(queue) else {
            return;
        };
        // A capture that began while packets waited has fewer frames than the interrupt announces.
        let count = frames.len().min(interrupt.packets as usize);
        let announced: Vec<_> = frames.drain(..count).collect();
        for (number, (bytes, len)) in announced.iter().enumerate() {
            let comment = (number + 1 == count).then(|| interrupt_comment(interrupt));
            self.write(
                bytes,
                *len,
                interrupt.decided_at,
                pcapng::Direction::Inbound,
                comment.as_deref(),
            );
        }
    }

    fn write(&self, bytes: &[u8], len: u32, at: Time, direction: pcapng::Direction, comment: Option<&str>) {
        self.sink.packet(&pcapng::Packet {
            interface: self.interface,
            at,
            origin_unix_ns: self.origin_unix_ns,
            bytes,
            original_len: len,
            direction: Some(direction),
            comment,
        });
    }
}

impl Drop for PortCapture {
    fn drop(&mut self) {
        self.sink.lock().closed = true;
        self.sink.changed.notify_one();
    }
}
