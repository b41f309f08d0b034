//! Numbered test frames whose every byte follows from (stream, sequence, length), and a tracker that
//! finds lost, repeated, reordered and damaged ones. It knows Ethernet's 14 bytes, nothing above.

use ether::MacAddr;

/// EtherType of numbered frames: Ethernet configuration testing (0x9000), which no part of Weft treats specially.
const ETHER_TYPE: [u8; 2] = [0x90, 0x00];
/// Ethernet header, stream, sequence, checksum.
pub const FRAME_LEN_MIN: usize = 14 + 4 + 8 + 8;

/// A numbered frame's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbered {
    /// Which sender and purpose.
    pub stream: u32,
    /// Position in the stream, from 0.
    pub sequence: u64,
}

impl Numbered {
    /// Fills `frame` (at least `FRAME_LEN_MIN` bytes) completely.
    pub fn write(self, frame: &mut [u8], destination: MacAddr, source: MacAddr) {
        assert!(
            frame.len() >= FRAME_LEN_MIN,
            "a numbered frame has at least {FRAME_LEN_MIN} bytes"
        );
        frame[..6].copy_from_slice(&destination.0);
        frame[6..12].copy_from_slice(&source.0);
        frame[12..14].copy_from_slice(&ETHER_TYPE);
        frame[14..18].copy_from_slice(&self.stream.to_be_bytes());
        frame[18..26].copy_from_slice(&self.sequence.to_be_bytes());
        let seed = self.seed(frame.len());
        let mut state = seed;
        let (head, payload) = frame.split_at_mut(FRAME_LEN_MIN);
        for piece in payload.chunks_mut(8) {
            state = step(state);
            let len = piece.len();
            piece.copy_from_slice(&state.to_le_bytes()[..len]);
        }
        head[26..34].copy_from_slice(&checksum(seed, payload).to_be_bytes());
    }

    /// Reads a frame; `None` when it is not a numbered one, `Some(Err)` when its contents are damaged.
    #[allow(clippy::result_unit_err)]
    pub fn read(frame: &[u8]) -> Option<Result<Self, Self>> {
        if frame.len() < FRAME_LEN_MIN || frame[12..14] != ETHER_TYPE {
            return None;
        }
        let stream = u32::from_be_bytes(frame[14..18].try_into().expect("4 bytes"));
        let sequence = u64::from_be_bytes(frame[18..26].try_into().expect("8 bytes"));
        let claimed = u64::from_be_bytes(frame[26..34].try_into().expect("8 bytes"));
        let numbered = Numbered { stream, sequence };
        let actual = checksum(numbered.seed(frame.len()), &frame[FRAME_LEN_MIN..]);
        Some(if claimed == actual { Ok(numbered) } else { Err(numbered) })
    }

    fn seed(self, len: usize) -> u64 {
        step(self.sequence ^ (u64::from(self.stream) << 40) ^ ((len as u64) << 17) ^ 0x9e37_79b9_7f4a_7c15)
    }
}

/// One step of a multiplicative generator (the constants of PCG's underlying LCG).
fn step(state: u64) -> u64 {
    (state ^ (state >> 29))
        .wrapping_mul(0x5851_f42d_4c95_7f2d)
        .wrapping_add(0x1405_7b7e_f767_814f)
}

/// Checksum that depends on the place of every byte; the seed makes two frames with swapped payloads differ.
fn checksum(seed: u64, payload: &[u8]) -> u64 {
    payload.chunks(8).fold(seed, |sum, piece| {
        let mut word = [0; 8];
        word[..piece.len()].copy_from_slice(piece);
        step(sum ^ u64::from_le_bytes(word))
    })
}

/// Sequences that a tracker can distinguish (its bitmap then takes 32 MiB).
const SEQUENCES_MAX: u64 = 1 << 28;

/// What became of one stream of numbered frames.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tracker {
    /// The stream followed; frames of others are `foreign`.
    pub stream: u32,
    /// Different sequences received intact.
    pub unique: u64,
    /// Intact frames whose sequence had come before.
    pub repeated: u64,
    /// Intact frames with a lower sequence than one received before, for the first time.
    pub reordered: u64,
    /// Frames with damaged contents.
    pub damaged: u64,
    /// Frames that are not of this stream.
    pub foreign: u64,
    next: u64,
    seen: Vec<u64>,
}

impl Tracker {
    /// Follows `stream`.
    pub fn new(stream: u32) -> Self {
        Tracker {
            stream,
            ..Tracker::default()
        }
    }

    /// Notes a received frame.
    pub fn note(&mut self, frame: &[u8]) {
        match Numbered::read(frame) {
            Some(Ok(numbered)) if numbered.stream == self.stream && numbered.sequence < SEQUENCES_MAX => {
                self.note_sequence(numbered.sequence);
            }
            Some(Err(numbered)) if numbered.stream == self.stream => self.damaged += 1,
            _ => self.foreign += 1,
        }
    }

    fn note_sequence(&mut self, sequence: u64) {
        let (word, bit) = ((sequence / 64) as usize, 1 << (sequence % 64));
        if word >= self.seen.len() {
            self.seen.resize((word + 1).next_power_of_two(), 0);
        }
        if self.seen[word] & bit != 0 {
            self.repeated += 1;
            return;
        }
        self.seen[word] |= bit;
        self.unique += 1;
        if sequence < self.next {
            self.reordered += 1;
        } else {
            self.next = sequence + 1;
        }
    }

    /// One more than the highest sequence received.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// How many of the first `sent` sequences never came.
    pub fn missing(&self, sent: u64) -> u64 {
        sent - (0..sent).filter(|sequence| self.has(*sequence)).count() as u64
    }

    /// Whether this sequence came.
    pub fn has(&self, sequence: u64) -> bool {
        self.seen
            .get((sequence / 64) as usize)
            .is_some_and(|word| word >> (sequence % 64) & 1 == 1)
    }

    /// Whether exactly the first `sent` sequences came, each once, in order and intact.
    pub fn is_perfect(&self, sent: u64) -> bool {
        self.unique == sent && self.next == sent && self.repeated == 0 && self.reordered == 0 && self.damaged == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    #[test]
    fn numbered_frames_reveal_any_flipped_bit() {
        let mut frame = [0; 77];
        let numbered = Numbered {
            stream: 7,
            sequence: 1234,
        };
        numbered.write(&mut frame, A, B);
        assert_eq!(Numbered::read(&frame), Some(Ok(numbered)));
        for bit in 14 * 8..frame.len() * 8 {
            let mut damaged = frame;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(Numbered::read(&damaged), Some(Ok(numbered)), "bit {bit}");
        }
    }

    #[test]
    fn tracker_tells_loss_repeat_and_reorder_apart() {
        let mut tracker = Tracker::new(1);
        for sequence in [0, 1, 3, 2, 2, 6] {
            let mut frame = [0; 60];
            Numbered { stream: 1, sequence }.write(&mut frame, A, B);
            tracker.note(&frame);
        }
        assert_eq!((tracker.unique, tracker.repeated, tracker.reordered), (5, 1, 1));
        assert_eq!((tracker.missing(7), tracker.next()), (2, 7));
        assert!(!tracker.is_perfect(7));
    }
}
