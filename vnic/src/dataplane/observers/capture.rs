//! Captures: frames of chosen cards as pcapng blocks, kept for a reader that comes now and then without slowing the data plane.
//!
//! Frames are shown as they are on the wire, in the order of their times, and a capture changes nothing about their path. A sent frame
//! carries the time at which the card sends it. A received one carries that at which its interrupt is decided, and the last frame that an
//! interrupt announces the reason as its comment; one that no interrupt has announced when the capture or its ring ends is written
//! then. The reader, and where it writes to, are not known here.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// Chunks that were read and are kept to be filled again: what comes at 10 Gbit/s between two looks of the reader.
const SPARE_CHUNKS_MAX: usize = 24;
/// Room behind [`CHUNK_LEN`] for the last frame of a chunk.
const CHUNK_SPARE_LEN: usize = 128 << 10;

/// A received frame that no interrupt has announced yet.
#[derive(Clone, Copy, Debug)]
struct Unannounced {
    /// Bytes that are kept of it.
    kept: usize,
    len: u32,
    at: Time,
    /// The packet in the ring ends with it, which stands for several if it is uncut.
    ends_packet: bool,
    /// There was no room for it.
    is_missing: bool,
}

/// The unannounced frames of one queue, and what is kept of them one behind the other.
#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Unannounced>,
    bytes: VecDeque<u8>,
}

impl Queue {
    fn push(&mut self, bytes: &[u8], mut frame: Unannounced) {
        if self.bytes.len() + bytes.len() > UNANNOUNCED_BYTES_MAX {
            frame.kept = 0;
            frame.is_missing = true;
        } else {
            self.bytes.extend(bytes);
        }
        self.frames.push_back(frame);
    }

    /// Number of frames of the oldest `packets` packets.
    fn frames_of(&self, packets: usize) -> usize {
        let mut left = packets;
        let mut count = 0;
        for frame in &self.frames {
            if left == 0 {
                break;
            }
            left -= usize::from(frame.ends_packet);
            count += 1;
        }
        count
    }

    /// Calls `each` with the oldest `count` frames and their bytes, which are gone then.
    fn take(&mut self, count: usize, mut each: impl FnMut(usize, &Unannounced, &[u8])) {
        let bytes = self.bytes.make_contiguous();
        let mut at = 0;
        for (number, frame) in self.frames.drain(..count).enumerate() {
            each(number, &frame, &bytes[at..at + frame.kept]);
            at += frame.kept;
        }
        self.bytes.drain(..at);
    }
}

/// A block among those that are not in order yet: when what it shows happened, and its bytes.
#[derive(Debug)]
struct Block {
    at: Time,
    bytes: Range<usize>,
}

#[derive(Debug, Default)]
struct SinkState {
    /// Bytes for the reader, in pieces of [`CHUNK_LEN`] or a frame more.
    chunks: VecDeque<Vec<u8>>,
    /// Empty ones: what one thread allocates and another frees again and again would stay with the process.
    spare: Vec<Vec<u8>>,
    /// Bytes in all chunks.
    waiting: usize,
    /// Bytes of blocks since the last round of the data plane: what is noticed late within a round happened before other things.
    unsorted: Vec<u8>,
    blocks: Vec<Block>,
    closed: bool,
    /// The queues of each interface.
    queues: Vec<Vec<Queue>>,
    /// Frames that did not fit, for each interface.
    dropped: Vec<u64>,
    /// The time of the last frame in a chunk.
    latest: Time,
}

impl SinkState {
    fn drop_at(&mut self, interface: u32) {
        if let Some(dropped) = self.dropped.get_mut(interface as usize) {
            *dropped += 1;
        }
    }

    fn packet(&mut self, packet: &pcapng::Packet<'_>) {
        let start = self.unsorted.len();
        if self.closed {
            return;
        }
        if self.waiting + start + packet.bytes.len() > SINK_BYTES_MAX {
            return self.drop_at(packet.interface);
        }
        pcapng::enhanced_packet(&mut self.unsorted, packet);
        let bytes = start..self.unsorted.len();
        self.blocks.push(Block { at: packet.at, bytes });
    }

    /// Hands the blocks of a round over in the order of their times, behind those of earlier rounds.
    fn sort(&mut self) {
        let (mut blocks, mut unsorted) = (std::mem::take(&mut self.blocks), std::mem::take(&mut self.unsorted));
        let Some(latest) = blocks.iter().map(|block| block.at).max() else {
            return;
        };
        self.latest = self.latest.max(latest);
        blocks.sort_by_key(|block| block.at);
        for block in &blocks {
            self.append(&unsorted[block.bytes.clone()]);
        }
        blocks.clear();
        unsorted.clear();
        if unsorted.capacity() <= 2 * CHUNK_LEN {
            (self.blocks, self.unsorted) = (blocks, unsorted);
        }
    }

    /// The unannounced frames of a queue, to be put back; `None` if there are none, or the reader has read the end.
    fn take_queue(&mut self, interface: usize, queue: usize) -> Option<Queue> {
        self.queues.get_mut(interface)?.get_mut(queue).map(std::mem::take)
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.chunks.back().is_none_or(|chunk| chunk.len() >= CHUNK_LEN) {
            let spare = self.spare.pop();
            self.chunks
                .push_back(spare.unwrap_or_else(|| Vec::with_capacity(CHUNK_LEN + CHUNK_SPARE_LEN)));
        }
        if let Some(chunk) = self.chunks.back_mut() {
            chunk.extend_from_slice(bytes);
            self.waiting += bytes.len();
        }
    }

    /// Moves the oldest chunk to the end of `out`: the data plane, which waits meanwhile, should not wait for a copy.
    fn hand_over(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(mut chunk) = self.chunks.pop_front() else {
            return false;
        };
        self.waiting -= chunk.len();
        if out.is_empty() {
            std::mem::swap(out, &mut chunk);
        } else {
            out.append(&mut chunk);
        }
        if self.spare.len() < SPARE_CHUNKS_MAX && chunk.capacity() >= CHUNK_LEN {
            self.spare.push(chunk);
        }
        true
    }

    /// Writes the frames of the oldest `packets` packets of a queue, as announced by `interrupt`, or as what none has announced.
    fn write_received(&mut self, queue: &mut Queue, packets: usize, announcement: &Announcement<'_>) {
        let count = queue.frames_of(packets);
        queue.take(count, |number, frame, bytes| {
            if frame.is_missing {
                return self.drop_at(announcement.interface);
            }
            let interrupt = announcement.interrupt;
            let comment = interrupt
                .filter(|_| number + 1 == count)
                .map(|(interrupt, strategy)| interrupt_comment(interrupt, strategy));
            self.packet(&pcapng::Packet {
                interface: announcement.interface,
                at: interrupt.map_or(frame.at.max(self.latest), |(interrupt, _)| interrupt.decided_at),
                origin_unix_ns: announcement.origin_unix_ns,
                bytes,
                original_len: frame.len,
                direction: Some(pcapng::Direction::Inbound),
                comment: comment.as_deref(),
            });
        });
    }
}

/// How received frames become known.
struct Announcement<'a> {
    interface: u32,
    origin_unix_ns: u64,
    /// The interrupt, decided while this strategy was configured; none if the capture or the ring has ended.
    interrupt: Option<(&'a Interrupt, StrategyKind)>,
}

/// Shared by the reader and the writers.
#[derive(Clone, Debug, Default)]
struct Sink(Arc<Mutex<SinkState>>);

impl Sink {
    fn lock(&self) -> MutexGuard<'_, SinkState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a reader found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Bytes were appended.
    Data,
    /// Nothing has come yet.
    Idle,
    /// Nothing more will come.
    Ended,
}

/// The reading end of a capture; the capture ends when it is dropped.
pub struct CaptureReader {
    sink: Sink,
    origin_unix_ns: u64,
    /// Tells the captured cards that the capture has ended; none in tests without a thread.
    end: Option<Box<dyn Fn() + Send>>,
}

impl CaptureReader {
    /// Appends a piece of what was captured to `out`. The first bytes are the file's headers.
    pub fn next_chunk(&self, out: &mut Vec<u8>) -> Chunk {
        let mut state = self.sink.lock();
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

    /// Ends the capture. Its last blocks are still to be read: frames that no interrupt has announced, and for each interface, how many
    /// frames did not fit into the space for a slow reader.
    pub fn finish(&self) {
        let mut state = self.sink.lock();
        if state.closed {
            return;
        }
        state.sort();
        for (interface, queues) in (0..).zip(std::mem::take(&mut state.queues)) {
            let ended = Announcement {
                interface,
                origin_unix_ns: self.origin_unix_ns,
                interrupt: None,
            };
            for mut queue in queues {
                state.write_received(&mut queue, usize::MAX, &ended);
            }
        }
        state.sort();
        state.closed = true;
        let mut last = Vec::new();
        for (interface, dropped) in state.dropped.iter().enumerate() {
            let statistics = pcapng::Statistics {
                interface: interface as u32,
                at: state.latest,
                origin_unix_ns: self.origin_unix_ns,
                received_frames: None,
                dropped_frames: Some(*dropped),
            };
            pcapng::interface_statistics(&mut last, &statistics);
        }
        state.append(&last);
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

/// Begins a capture of cards with these names and addresses; one writer per card, in order.
pub fn begin(
    ports: &[(String, Option<MacAddr>)],
    snaplen: u32,
    origin_unix_ns: u64,
) -> (CaptureReader, Vec<CardCapture>) {
    let sink = Sink::default();
    {
        let mut state = sink.lock();
        state.dropped = vec![0; ports.len()];
        state.queues.resize_with(ports.len(), Vec::new);
        let mut headers = Vec::new();
        pcapng::section_header(&mut headers, concat!("Weft vnicd ", env!("CARGO_PKG_VERSION")));
        for (name, mac) in ports {
            let interface = pcapng::Interface {
                name,
                description: Some("programmable card"),
                mac: *mac,
                snaplen_bytes: snaplen,
            };
            pcapng::interface_description(&mut headers, &interface);
        }
        state.append(&headers);
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
    sink: Sink,
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
    #[inline(never)]
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
            let kept = &bytes[..bytes.len().min(snaplen)];
            let frame = Unannounced {
                kept: kept.len(),
                len: bytes.len() as u32,
                at: now,
                ends_packet: false,
                is_missing: false,
            };
            frames.push(kept, frame);
        });
        if let Some(last) = frames.frames.back_mut() {
            last.ends_packet = true;
        }
    }

    /// The firmware decided an interrupt on `queue` while `strategy` was configured.
    #[inline(never)]
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
        let interface = self.place.interface as usize;
        let Some(mut frames) = state.take_queue(interface, queue) else {
            return;
        };
        let announcement = Announcement {
            interface: self.place.interface,
            origin_unix_ns: self.place.origin_unix_ns,
            interrupt,
        };
        state.write_received(&mut frames, packets, &announcement);
        state.queues[interface][queue] = frames;
    }

    /// The data plane has done everything up to now: what was captured until then is put into order and shown to the reader.
    pub fn settle(&self) {
        self.place.sink.lock().sort();
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
    }
}

impl Drop for CardCapture {
    fn drop(&mut self) {
        let mut state = self.place.sink.lock();
        state.sort();
        state.closed = true;
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
