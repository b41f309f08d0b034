//! A frame as the plain frames that it is on the wire: checksums complete, segments cut.

use firmware::copy_engine::COPY_FRAME_LEN_MAX;

use super::FRAME_LEN_MAX;
use super::frame_ref::FrameRef;
use crate::offload::{Segments, complete_checksum};

/// The longest frame of all: one that asks for a copy.
const LEN_MAX: usize = COPY_FRAME_LEN_MAX as usize;

const _: () = assert!(FRAME_LEN_MAX <= LEN_MAX);

/// Private memory in which one frame at a time is completed or segmented.
#[derive(Default)]
pub struct SegmentBuffer {
    /// The frame as its guest handed it over.
    whole: Vec<u8>,
    /// A segment of it.
    segment: Vec<u8>,
}

impl SegmentBuffer {
    /// Hands each plain frame that `frame` stands for to `each`. False if its headers do not allow that.
    pub fn resolve(&mut self, frame: &FrameRef<'_>, mut each: impl FnMut(&[u8])) -> bool {
        if let (Some(bytes), true) = (frame.whole, frame.header.is_plain()) {
            each(bytes);
            return true;
        }
        let bytes = frame.copy_into(grown(&mut self.whole));
        if frame.header.is_segmented() {
            let Ok(mut segments) = Segments::new(bytes, frame.header) else {
                return false;
            };
            let segment = grown(&mut self.segment);
            while let Some(len) = segments.write_next(segment) {
                each(&segment[..len]);
            }
            return true;
        }
        let complete = !frame.header.needs_checksum() || complete_checksum(bytes, frame.header).is_ok();
        if complete {
            each(bytes);
        }
        complete
    }

    /// As [`resolve`](Self::resolve); a frame whose headers do not allow that is handed to `each` as it is.
    pub fn resolve_or_gather(&mut self, frame: &FrameRef<'_>, mut each: impl FnMut(&[u8])) {
        if !self.resolve(frame, &mut each) {
            each(self.joined(frame));
        }
    }

    /// The bytes of `frame` as its guest handed it over, in one piece.
    pub fn joined(&mut self, frame: &FrameRef<'_>) -> &mut [u8] {
        frame.copy_into(grown(&mut self.whole))
    }
}

/// The memory with room for the longest frame, which it gets when it is used first.
fn grown(memory: &mut Vec<u8>) -> &mut [u8] {
    memory.resize(LEN_MAX, 0);
    memory
}
