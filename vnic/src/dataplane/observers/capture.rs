//! Captures: frames of chosen cards as pcapng blocks, handed to a reader that may be slow without slowing the data plane.
//!
//! Frames are shown as they are on the wire, and a capture changes nothing about their path. A sent frame is written when
//! the card sends it. A received one is written when its interrupt is decided, and the last frame that an interrupt announces
//! carries the reason as its comment; one that no interrupt has announced when the capture or its ring ends is written then. The
//! reader, and where it writes to, are not known here.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ether::{MacAddr, Time, pcapng};
use firmware::{Interrupt, ReasonOf, StrategyKind};

use crate::dataplane::frames::frame_ref::FrameRef;
use crate::dataplane::frames::segments::SegmentBuffer;

/// Bytes that may wait for a slow reader; what comes then is dropped and counted in the statistics block at the end. Two seconds
/// of 1 Gbit/s: guests that transfer more than a processor can copy to a file leave the reader little of it until they have done.
const SINK_BYTES_MAX: usize = 256 << 20;
/// Bytes that the reader takes at once.
const CHUNK_LEN: usize = 1 << 20;
/// Bytes of received frames of one queue that may wait for their announcement: a ring of the usual size full of frames that their
/// guest takes uncut. What comes then is dropped and counted, too.
const UNANNOUNCED_BYTES_MAX: usize = 32 << 20;

/// A received frame that no interrupt has announced yet.
#[derive(Debug)]
struct Unannounced {
    /// What is kept of it.
    bytes: Box<[u8]>,
    len: u32,
    at: Time,
    /// The packet in the ring ends with it, which stands for several if it is uncut.
    ends_packet: bool,
    /// There was no room for it.
    is_missing: bool,
}

/// The unannounced frames of one queue.
#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Unannounced>,
    bytes: usize,
}

impl Queue {
    fn push(&mut self, mut frame: Unannounced) {
        if self.bytes + frame.bytes.len() > UNANNOUNCED_BYTES_MAX {
            frame.bytes = Box::default();
            frame.is_missing = true;
        }
        self.bytes += frame.bytes.len();
        self.frames.push_back(frame);
    }

    /// The frames of the oldest `packets` packets.
    fn take(&mut self, packets: usize) -> Vec<Unannounced> {
        let mut left = packets;
        let mut count = 0;
        for frame in &self.frames {
            if left == 0 {
                break;
            }
            left -= usize::from(frame.ends_packet);
            count += 1;
        }
        let taken: Vec<_> = self.frames.drain(..count).collect();
        self.bytes -= taken.iter().map(|frame| frame.bytes.len()).sum::<usize>();
        taken
    }
}

#[derive(Debug, Default)]
struct SinkState {
    /// Bytes for the reader, in pieces of [`CHUNK_LEN`] or a frame more: what is read is given back at once.
    chunks: VecDeque<Vec<u8>>,
    /// Bytes in all chunks.
    waiting: usize,
    closed: bool,
    /// The queues of each interface.
    queues: Vec<Vec<Queue>>,
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

    fn packet(&mut self, packet: &pcapng::Packet<'_>) {
        self.latest = self.latest.max(packet.at);
        if self.waiting + packet.bytes.len() > SINK_BYTES_MAX {
            return self.drop_at(packet.interface);
        }
        self.write(|bytes| pcapng::enhanced_packet(bytes, packet));
    }

    fn write(&mut self, block: impl FnOnce(&mut Vec<u8>)) {
        if self.chunks.back().is_none_or(|chunk| chunk.len() >= CHUNK_LEN) {
            self.chunks.push_back(Vec::new());
        }
        if let Some(chunk) = self.chunks.back_mut() {
            let before = chunk.len();
            block(chunk);
            self.waiting += chunk.len() - before;
        }
    }

    /// Moves the oldest chunk to the end of `out`: the data plane, which waits meanwhile, should not wait for a copy.
    fn hand_over(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(mut chunk) = self.chunks.pop_front() else {
            return false;
        };
        self.waiting -= chunk.len();
        if out.is_empty() {
            *out = chunk;
        } else {
            out.append(&mut chunk);
        }
        true
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
}

/// What a reader found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Bytes were appended.
    Data,
    /// Nothing came within the time-out.
    Idle,
    /// The data plane is gone; nothing more will come.
    Ended,
}

/// The reading end of a capture; the capture ends when it is dropped.
pub struct CaptureReader {
    sink: Arc<Sink>,
    origin_unix_ns: u64,
    /// Tells the captured cards that the capture has ended; none in tests without a thread.
    end: Option<Box<dyn Fn() + Send>>,
}

impl CaptureReader {
    /// Appends what was captured to `out`, waiting for up to `timeout` if there is nothing. The first bytes are the
    /// file's headers.
    pub fn next_chunk(&self, out: &mut Vec<u8>, timeout: Duration) -> Chunk {
        let state = self.sink.lock();
        let waiting = |state: &mut SinkState| state.chunks.is_empty() && !state.closed;
        let (mut state, _) = self
            .sink
            .changed
            .wait_timeout_while(state, timeout, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        if state.hand_over(out) {
            Chunk::Data
        } else if state.closed {
            Chunk::Ended
        } else {
            Chunk::Idle
        }
    }

    /// This reader, which calls `end` when it has ended.
    pub fn with_end(self, end: impl Fn() + Send + 'static) -> Self {
        let mut reader = self;
        reader.end = Some(Box::new(end));
        reader
    }

    /// Appends the file's last blocks: frames that no interrupt has announced, and for each interface, how many frames did not fit
    /// into the space for a slow reader.
    pub fn finish(&self, out: &mut Vec<u8>) {
        let mut state = self.sink.lock();
        for (interface, queues) in (0..).zip(std::mem::take(&mut state.queues)) {
            for mut queue in queues {
                let frames = queue.take(usize::MAX);
                write_received(&mut state, interface, self.origin_unix_ns, &frames, None);
            }
        }
        while state.hand_over(out) {}
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
        if let Some(end) = &self.end {
            end();
        }
    }
}

/// Writes frames that were received together, as announced by `interrupt`, or at the times they came.
fn write_received(
    state: &mut SinkState,
    interface: u32,
    origin_unix_ns: u64,
    frames: &[Unannounced],
    interrupt: Option<(&Interrupt, StrategyKind)>,
) {
    for (number, frame) in frames.iter().enumerate() {
        if frame.is_missing {
            state.drop_at(interface);
            continue;
        }
        let comment = interrupt
            .filter(|_| number + 1 == frames.len())
            .map(|(interrupt, strategy)| interrupt_comment(interrupt, strategy));
        state.packet(&pcapng::Packet {
            interface,
            at: interrupt.map_or(frame.at, |(interrupt, _)| interrupt.decided_at),
            origin_unix_ns,
            bytes: &frame.bytes,
            original_len: frame.len,
            direction: Some(pcapng::Direction::Inbound),
            comment: comment.as_deref(),
        });
    }
}

/// Begins a capture of cards with these names and addresses; one writer per card, in order.
pub fn begin(
    ports: &[(String, Option<MacAddr>)],
    snaplen: u32,
    origin_unix_ns: u64,
) -> (CaptureReader, Vec<CardCapture>) {
    let sink = Arc::new(Sink::default());
    {
        let mut state = sink.lock();
        state.dropped = vec![0; ports.len()];
        state.queues.resize_with(ports.len(), Vec::new);
        state.write(|bytes| pcapng::section_header(bytes, concat!("Weft vnicd ", env!("CARGO_PKG_VERSION"))));
        for (name, mac) in ports {
            let interface = pcapng::Interface {
                name,
                description: Some("programmable card"),
                mac: *mac,
                snaplen_bytes: snaplen,
            };
            state.write(|bytes| pcapng::interface_description(bytes, &interface));
        }
    }
    let writers = (0..ports.len())
        .map(|interface| CardCapture {
            place: Place {
                sink: sink.clone(),
                interface: interface as u32,
                snaplen: if snaplen == 0 { usize::MAX } else { snaplen as usize },
                origin_unix_ns,
            },
            segments: SegmentBuffer::default(),
        })
        .collect();
    let reader = CaptureReader {
        sink,
        origin_unix_ns,
        end: None,
    };
    (reader, writers)
}

/// An interface of the captured file.
struct Place {
    sink: Arc<Sink>,
    interface: u32,
    snaplen: usize,
    origin_unix_ns: u64,
}

/// The writing end of a capture at one card.
pub struct CardCapture {
    place: Place,
    /// Memory for frames as they are on the wire.
    segments: SegmentBuffer,
}

impl CardCapture {
    /// True if the reader is gone.
    pub fn is_over(&self) -> bool {
        self.place.sink.lock().closed
    }

    /// The card sent `frame`, as it is on the wire.
    pub fn sent(&mut self, frame: &[u8], now: Time) {
        self.place.write(frame, now, pcapng::Direction::Outbound, None);
    }

    /// The card received `frame` and kept it for itself.
    pub fn kept(&mut self, frame: &FrameRef<'_>, now: Time) {
        let bytes = self.segments.joined(frame);
        self.place
            .write(bytes, now, pcapng::Direction::Inbound, Some("for the card"));
    }

    /// `frame` was put into receive queue `queue` as one packet.
    pub fn delivered(&mut self, queue: usize, frame: &FrameRef<'_>, now: Time) {
        let mut state = self.place.sink.lock();
        let Some(queues) = state.queues.get_mut(self.place.interface as usize) else {
            // The reader has read the end.
            return;
        };
        if queues.len() <= queue {
            queues.resize_with(queue + 1, Queue::default);
        }
        let frames = &mut queues[queue];
        let snaplen = self.place.snaplen;
        self.segments.resolve_or_gather(frame, |bytes| {
            frames.push(Unannounced {
                bytes: bytes[..bytes.len().min(snaplen)].into(),
                len: bytes.len() as u32,
                at: now,
                ends_packet: false,
                is_missing: false,
            });
        });
        if let Some(last) = frames.frames.back_mut() {
            last.ends_packet = true;
        }
    }

    /// The firmware decided an interrupt on `queue` while `strategy` was configured.
    pub fn announced(&mut self, queue: usize, interrupt: &Interrupt, strategy: StrategyKind) {
        // A capture that began while packets waited has fewer frames than the interrupt announces.
        self.write_queue(queue, interrupt.packets as usize, Some((interrupt, strategy)));
    }

    /// Queue `queue` has stopped: what no interrupt announced, none will.
    pub fn stopped(&mut self, queue: usize) {
        self.write_queue(queue, usize::MAX, None);
    }

    fn write_queue(&self, queue: usize, packets: usize, interrupt: Option<(&Interrupt, StrategyKind)>) {
        let mut state = self.place.sink.lock();
        let queues = state.queues.get_mut(self.place.interface as usize);
        let Some(frames) = queues.and_then(|queues| queues.get_mut(queue)) else {
            return;
        };
        let taken = frames.take(packets);
        write_received(
            &mut state,
            self.place.interface,
            self.place.origin_unix_ns,
            &taken,
            interrupt,
        );
        drop(state);
        self.place.sink.changed.notify_one();
    }
}

impl Place {
    fn write(&self, frame: &[u8], at: Time, direction: pcapng::Direction, comment: Option<&str>) {
        self.sink.lock().packet(&pcapng::Packet {
            interface: self.interface,
            at,
            origin_unix_ns: self.origin_unix_ns,
            bytes: &frame[..frame.len().min(self.snaplen)],
            original_len: frame.len() as u32,
            direction: Some(direction),
            comment,
        });
        self.sink.changed.notify_one();
    }
}

impl Drop for CardCapture {
    fn drop(&mut self) {
        self.place.sink.lock().closed = true;
        self.place.sink.changed.notify_one();
    }
}

/// The bits of an interrupt, decided while `strategy` was configured, that a capture shows.
fn interrupt_comment(interrupt: &Interrupt, strategy: StrategyKind) -> String {
    let packets = interrupt.packets;
    let plural = if packets == 1 { "" } else { "s" };
    format!(
        "irq {}: {}, {packets} packet{plural}",
        interrupt.sequence,
        ReasonOf::new(interrupt.reason, strategy)
    )
}
