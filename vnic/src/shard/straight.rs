//! Frames in a row between two cards: the way of the first is the way of all, so switch and links are asked once.
//!
//! Counting for many frames at once is here too. Whether frames may go in a row is decided in [`way`](super::way).

use ether::Time;
use firmware::PacketInfo;

use super::Inner;
use super::frame::FrameRef;
use super::transmit::{Batch, TxOrigin};

/// Frames of these types are looked at one by one: more of them than the Ethernet header says where they go.
const ETHER_TYPES_ALONE: [ether::EtherType; 3] = [
    ether::EtherType::CARD_CONTROL,
    ether::EtherType::CARD_TO_CARD,
    ether::EtherType::VLAN,
];

/// What frames of a run have in common.
type Header = [u8; ether::ETHERNET_HEADER_LEN];

/// A header as it is compared: its first and its last eight bytes, which overlap.
#[inline(always)]
fn words_of(header: &Header) -> (u64, u64) {
    let word = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (word(0), word(ether::ETHERNET_HEADER_LEN - 8))
}

/// Frames in a row from one card straight to another, with the same addresses and protocol: looked up once.
pub(super) struct Run {
    /// The port they go to, which has one queue pair.
    to: usize,
    header: Header,
    /// Longest frame that may go.
    len_max: u32,
    /// Frames behind the first.
    frames: u64,
    bytes: u64,
}

impl Inner {
    /// Counts what came straight to a receive queue, for the port and for its link.
    #[inline]
    pub(super) fn count_straight(&mut self, index: usize, queue: usize) {
        let port = &mut self.ports[index];
        let (frames, bytes) = port.count_batch(queue);
        port.to_guest.count_passed(frames, bytes);
    }

    /// Sends the frames of `batch` from number `taken` on the way of the one before them, as far as they go the same way
    /// and find buffers. Returns how many.
    #[inline]
    pub(super) fn follow(
        &mut self,
        run: &mut Run,
        (from, pair): (usize, usize),
        batch: &Batch,
        taken: usize,
        now: Time,
    ) -> usize {
        self.working_on = Some(run.to);
        let followed = self.follow_unguarded(run, (from, pair), batch, taken, now);
        self.working_on = None;
        followed
    }

    #[inline]
    fn follow_unguarded(
        &mut self,
        run: &mut Run,
        (from, pair): (usize, usize),
        batch: &Batch,
        taken: usize,
        now: Time,
    ) -> usize {
        let Ok([from, to]) = self.ports.get_disjoint_mut([from, run.to]) else {
            return 0;
        };
        let Some(map) = &to.map else {
            return 0;
        };
        let receiver = &mut to.pairs[0].rx;
        // By value: what lies behind a reference would be read again for each frame.
        let (words, len_max) = (words_of(&run.header), run.len_max);
        let alike = batch.compact_frames(taken).take_while(move |frame| {
            frame.header.is_plain()
                && (ether::ETHERNET_HEADER_LEN as u32..=len_max).contains(&frame.len)
                && frame.inline.first_chunk().map(words_of) == Some(words)
        });
        // A frame that is refused goes the long way, which knows what follows from that.
        let followed = receiver.deliver_plain_run(map, batch.len() - taken, alike);
        if followed == 0 {
            return 0;
        }
        from.pairs[pair].tx.finish_each(batch.heads(taken, followed), now);
        let pipeline = to.nic.rx(0);
        let mut bytes = 0;
        // A ring holds no more packets than the pipeline (see `port`).
        let marks = pipeline.coalescing().marks;
        let arrived = if PacketInfo::may_be_marked(&run.header, marks) {
            let packets = batch.beginnings(taken, followed).map(|(len, inline)| {
                bytes += u64::from(len);
                PacketInfo::classify(inline, len, marks)
            });
            pipeline.arrive_together(now, packets)
        } else {
            let packets = batch.lengths(taken, followed).map(|len| {
                bytes += u64::from(len);
                PacketInfo { len, marked: false }
            });
            pipeline.arrive_together(now, packets)
        };
        debug_assert!(arrived.is_ok());
        run.bytes += bytes;
        receiver.batch_frames += followed as u64;
        receiver.batch_bytes += bytes;
        run.frames += followed as u64;
        followed
    }

    /// The run that the frame just taken from `origin`'s port begins, if it went straight to a card and the `next` one may
    /// follow it.
    #[inline]
    pub(super) fn begin_run(&mut self, origin: TxOrigin, frame: &FrameRef<'_>, next: &Header) -> Option<Run> {
        let to = self.last_straight.take()?;
        let header = *frame.inline.first_chunk()?;
        if header != *next {
            return None;
        }
        let ether_type = ether::EtherType(u16::from_be_bytes([header[12], header[13]]));
        if ETHER_TYPES_ALONE.contains(&ether_type) {
            return None;
        }
        let len_max = self.row_limit(&self.ports[origin.port()], &self.ports[to])?;
        Some(Run {
            to,
            header,
            len_max,
            frames: 0,
            bytes: 0,
        })
    }

    /// Counts the frames of a run that ended.
    #[inline]
    pub(super) fn end_run(&mut self, port: usize, run: &Run, now: Time) {
        if run.frames == 0 {
            return;
        }
        let port = &mut self.ports[port];
        port.counters.tx_frames += run.frames;
        port.counters.tx_bytes += run.bytes;
        port.from_guest.count_passed(run.frames, run.bytes);
        port.nic.note_forwarded(now, run.frames as u32, run.bytes);
        let (switch, ingress) = (port.switch, port.switch_port);
        self.switches[switch]
            .switch
            .count_repeated(ingress, &run.header, run.frames, run.bytes);
    }
}
