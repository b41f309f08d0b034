//! The sizes of frames, fragments and pull blocks in one configuration (section 3).

use super::FRAGMENTS_MAX;

/// Which of the two families of layouts is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Compatible with Myricom's MXoE.
    Wire,
    /// Open-MX's own.
    Native,
}

/// The sizes of one configuration (section 3). Only valid combinations can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sizes {
    mode: Mode,
    frame_len_max: u32,
    reply_payload: u32,
    fragment_payload: u32,
    block_frames: u32,
    fragments: u32,
}

/// Why no sizes can be made of these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizesError {
    /// The longest frame is outside what the fields can say.
    #[error(
        "the longest frame must have between {} and {} bytes",
        Sizes::NATIVE_FRAME_LEN_MIN,
        u16::MAX
    )]
    FrameLength,
    /// The number of frames of a pull block is not usable.
    #[error("the frames per pull block must be a power of two, 64 at most")]
    BlockFrames,
}

impl Sizes {
    /// Smallest longest-frame of native mode that is accepted: every message of up to 128 bytes must fit in one frame,
    /// with room to spare for a fragment worth its header.
    pub const NATIVE_FRAME_LEN_MIN: u32 = 256;

    /// The sizes of wire mode; there is only one set.
    pub const fn wire() -> Self {
        Self {
            mode: Mode::Wire,
            frame_len_max: 4144,
            reply_payload: 4096,
            fragment_payload: 4096,
            block_frames: 8,
            fragments: 8,
        }
    }

    /// Native mode with a longest frame of `frame_len_max` bytes (Open-MX's "MTU", which counts the Ethernet header)
    /// and `block_frames` replies per pull block.
    ///
    /// # Errors
    /// [`SizesError`] if a number is outside what the protocol can carry.
    pub const fn native(frame_len_max: u32, block_frames: u32) -> Result<Self, SizesError> {
        if frame_len_max < Self::NATIVE_FRAME_LEN_MIN || frame_len_max > u16::MAX as u32 {
            return Err(SizesError::FrameLength);
        }
        if !block_frames.is_power_of_two() || block_frames > 64 {
            return Err(SizesError::BlockFrames);
        }
        let room = frame_len_max - 48;
        let fragment_payload = match room {
            0..=4096 => room,
            4097..8192 => 4096,
            _ => 8192,
        };
        Ok(Self {
            mode: Mode::Native,
            frame_len_max,
            reply_payload: frame_len_max - 32,
            fragment_payload,
            block_frames,
            fragments: FRAGMENTS_MAX,
        })
    }

    /// Which layouts.
    #[inline]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Longest frame in bytes, Ethernet header included.
    #[inline]
    pub const fn frame_len_max(&self) -> u32 {
        self.frame_len_max
    }

    /// `F`: data bytes of a full PULL_REPLY.
    #[inline]
    pub const fn reply_payload(&self) -> u32 {
        self.reply_payload
    }

    /// `M`: data bytes of a full MEDIUM fragment.
    #[inline]
    pub const fn fragment_payload(&self) -> u32 {
        self.fragment_payload
    }

    /// `N`: most replies of one pull block.
    #[inline]
    pub const fn block_frames(&self) -> u32 {
        self.block_frames
    }

    /// Bytes of a full pull block, `N·F`.
    #[inline]
    pub const fn block_len(&self) -> u32 {
        self.block_frames * self.reply_payload
    }

    /// Longest message a sender cuts into MEDIUM fragments, in bytes.
    #[inline]
    pub const fn medium_len_max(&self) -> u32 {
        self.fragments * self.fragment_payload
    }

    /// Fragments of a medium message of `len` bytes; one for an empty message.
    #[inline]
    pub const fn fragments_of(&self, len: u32) -> u32 {
        if len == 0 {
            1
        } else {
            len.div_ceil(self.fragment_payload)
        }
    }
}
