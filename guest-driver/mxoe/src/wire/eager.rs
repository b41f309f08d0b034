//! Values of the eager messages: TINY, SMALL and MEDIUM fragments (section 5).

use super::{FRAGMENTS_MAX, Mode, Sizes};

/// A whole message in one frame: TINY up to 32 bytes, SMALL up to 128 (5.1, 5.2). The checksum field is written as 0 and
/// not read (section 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eager<'a> {
    /// Endpoint the message is for.
    pub dst_endpoint: u8,
    /// Endpoint it comes from.
    pub src_endpoint: u8,
    /// Sequence number (7.1).
    pub seqnum: u16,
    /// Acknowledgement of the other direction (7.2).
    pub piggyack: u16,
    /// Match information.
    pub match_info: u64,
    /// The receiver's session id.
    pub session: u32,
    /// The message.
    pub data: &'a [u8],
}

/// One fragment of a medium message (5.3). Its place in the message has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Medium<'a> {
    /// Endpoint the message is for.
    pub dst_endpoint: u8,
    /// Endpoint it comes from.
    pub src_endpoint: u8,
    /// Bytes of the whole message.
    pub length: u32,
    /// The sequence number, which all fragments of a message share.
    pub seqnum: u16,
    /// Acknowledgement of the other direction.
    pub piggyack: u16,
    /// Match information.
    pub match_info: u64,
    /// The receiver's session id.
    pub session: u32,
    /// Number of this fragment, from 0.
    pub frag_seqnum: u8,
    /// Base-2 logarithm of the fragment size in wire mode; 0 in native mode, where the size is configured.
    pub frag_pipeline: u8,
    /// The bytes of this fragment.
    pub data: &'a [u8],
}

impl Medium<'_> {
    /// The pipeline value a sender of these sizes writes: 12 in wire mode, 0 in native mode.
    #[inline]
    pub const fn pipeline_of(sizes: &Sizes) -> u8 {
        match sizes.mode() {
            Mode::Wire => sizes.fragment_payload().ilog2() as u8,
            Mode::Native => 0,
        }
    }

    /// Returns where this fragment's data belongs in the message, in bytes.
    #[inline]
    pub const fn offset(&self, sizes: &Sizes) -> u32 {
        self.frag_seqnum as u32 * self.fragment_size(sizes)
    }

    /// True for the fragment that ends the message.
    #[inline]
    pub const fn is_last(&self, sizes: &Sizes) -> bool {
        self.offset(sizes) + self.data.len() as u32 == self.length
    }

    const fn fragment_size(&self, sizes: &Sizes) -> u32 {
        match sizes.mode() {
            Mode::Wire => {
                1 << (if self.frag_pipeline > Self::PIPELINE_MAX {
                    Self::PIPELINE_MAX
                } else {
                    self.frag_pipeline
                })
            }
            Mode::Native => sizes.fragment_payload(),
        }
    }

    /// Fragments of more than 4096 bytes fit in no receive ring entry of wire mode.
    const PIPELINE_MAX: u8 = 12;

    /// The stateless half of the rules of 5.3: a known fragment number, no message longer than its fragments, every
    /// fragment full but the last, the last ending exactly with the message.
    pub(super) const fn is_well_placed(&self, sizes: &Sizes, data_len: usize) -> bool {
        if matches!(sizes.mode(), Mode::Wire) && self.frag_pipeline > Self::PIPELINE_MAX {
            return false;
        }
        let size = self.fragment_size(sizes);
        if self.frag_seqnum as u32 >= FRAGMENTS_MAX || self.length > size * FRAGMENTS_MAX {
            return false;
        }
        let offset = self.frag_seqnum as u32 * size;
        if offset >= self.length && self.frag_seqnum != 0 {
            return false;
        }
        let rest = self.length - offset;
        let expected = if rest < size { rest } else { size };
        data_len == expected as usize
    }
}
