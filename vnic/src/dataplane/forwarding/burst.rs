//! Bursts: frames of one batch behind a frame that went directly from one card to another. They go the same route without being
//! decided on again, so switch and links are asked, and counters written, once for all of them.
//!
//! Which frames may follow is decided in [`Shortcuts::burst_len_max`](crate::dataplane::route::Shortcuts::burst_len_max).

use ether::Time;

use super::Forwarding;
use crate::dataplane::card::transmit_batch::TransmitBatch;
use crate::dataplane::frames::frame_ref::FrameRef;
use crate::dataplane::frames::transit::Transit;
use crate::dataplane::wiring::Wiring;

/// What frames of a burst have in common.
type Header = [u8; ether::ETHERNET_HEADER_LEN];

/// A header as it is compared: its first and its last eight bytes, which overlap.
#[inline(always)]
fn words_of(header: &Header) -> (u64, u64) {
    let word = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (word(0), word(ether::ETHERNET_HEADER_LEN - 8))
}

/// Frames with the same addresses and protocol from one card directly to another.
pub struct Burst {
    /// The card that they go to, which has one queue pair.
    to: usize,
    header: Header,
    /// Longest frame that may go.
    len_max: u32,
}

impl Burst {
    /// The burst behind `frame`, which went directly to the card `to`, if a frame that begins with `next` may be part of it.
    #[inline]
    pub fn behind(wiring: &Wiring, frame: &FrameRef<'_>, to: usize, next: &Header) -> Option<Self> {
        let header = *frame.inline.first_chunk()?;
        if header != *next {
            return None;
        }
        let from = &wiring.cards[frame.transit.card()];
        let len_max = wiring.shortcuts.burst_len_max(from, &wiring.cards[to], &header)?;
        Some(Self { to, header, len_max })
    }
}

impl Forwarding {
    /// Sends the frames of `batch` from number `first` on that are part of `burst` and find buffers. Returns how many.
    // A function of its own: inlined, its loops lack registers.
    #[inline(never)]
    pub fn send_burst(
        &mut self,
        burst: &Burst,
        batch: &TransmitBatch,
        first: usize,
        transit: Transit,
        now: Time,
    ) -> usize {
        let Ok([from, to]) = self.wiring.cards.get_disjoint_mut([transit.card(), burst.to]) else {
            return 0;
        };
        // By value: what lies behind a reference would be read again for each frame.
        let (words, len_max) = (words_of(&burst.header), burst.len_max);
        let alike = batch.compact_frames(first).take_while(move |frame| {
            frame.header.is_plain()
                && (ether::ETHERNET_HEADER_LEN as u32..=len_max).contains(&frame.len)
                && frame.inline.first_chunk().map(words_of) == Some(words)
        });
        // A frame that is refused is decided on by itself, with what follows from the refusal.
        let delivered = to.deliver_burst(batch, first, alike, &burst.header, now);
        let count = delivered.frames as u64;
        if count > 0 {
            let ring = from.transmit_ring_mut(transit.pair());
            ring.finish_each(batch.heads(first, delivered.frames), now);
            from.count_sent_burst(count, delivered.bytes, now);
            let at = from.attachment();
            self.switches[at.switch]
                .switch
                .count_repeated(at.port, &burst.header, count, delivered.bytes);
        }
        delivered.frames
    }
}
