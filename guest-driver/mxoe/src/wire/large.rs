//! The values of large messages: RNDV, PULL, PULL_REPLY, NOTIFY (section 6).

use super::Sizes;

/// Announces a large message (6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rndv<'a> {
    /// Endpoint the message is for.
    pub dst_endpoint: u8,
    /// Endpoint it comes from.
    pub src_endpoint: u8,
    /// Sequence number.
    pub seqnum: u16,
    /// Acknowledgement of the other direction.
    pub piggyack: u16,
    /// Match information.
    pub match_info: u64,
    /// The receiver's session id.
    pub session: u32,
    /// Bytes of the message.
    pub msg_length: u32,
    /// Region to pull from.
    pub rdma_id: u8,
    /// Use counter of that region.
    pub rdma_seqnum: u8,
    /// Byte offset in the region.
    pub rdma_offset: u16,
    /// The first bytes of the message, if the sender puts them here. Open-MX sends none, and takes no notice of them.
    pub head: &'a [u8],
}

/// Requests one block of a large message (6.2). The ranges are the sender's claim: see [`Pull::frames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pull {
    /// The endpoint that sent the RNDV.
    pub dst_endpoint: u8,
    /// The puller.
    pub src_endpoint: u8,
    /// Session id of `dst_endpoint`.
    pub session: u32,
    /// Bytes this pull will transfer in all.
    pub total_length: u32,
    /// Region, from the RNDV; at most 255 in wire mode.
    pub rdma_id: u32,
    /// Use counter of the region, from the RNDV.
    pub rdma_seqnum: u8,
    /// Byte offset in the region, from the RNDV; at most 65535 in wire mode.
    pub rdma_offset: u32,
    /// The puller's handle, echoed by replies.
    pub handle: u32,
    /// The puller's magic, echoed by replies; see [`pull_magic`].
    pub magic: u32,
    /// Bytes skipped at the start of the first frame; at most 65535 in wire mode.
    pub first_frame_offset: u32,
    /// Bytes requested; at most 65535 in wire mode.
    pub block_length: u32,
    /// Number of the first frame of this block.
    pub frame_index: u32,
}

/// Why the range that a PULL asks for is impossible. Such a PULL is dropped and counted, without a nack (6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullShapeError {
    /// More frames than a block holds (counter 56).
    #[error("the pull asks for more frames than a block holds; it is dropped")]
    BadReplies,
    /// Nothing is asked for, or the first frame is skipped whole (counter 58).
    #[error("the pull asks for an empty or impossible range; it is dropped")]
    BadOffsetLength,
}

impl Pull {
    /// Returns how many replies this request asks for: between 1 and `N`.
    ///
    /// # Errors
    /// [`PullShapeError`] if the range cannot be one block's.
    #[inline]
    pub const fn frames(&self, sizes: &Sizes) -> Result<u32, PullShapeError> {
        let payload = sizes.reply_payload() as u64;
        let frames = (self.first_frame_offset as u64 + self.block_length as u64).div_ceil(payload);
        if frames > sizes.block_frames() as u64 {
            return Err(PullShapeError::BadReplies);
        }
        if self.first_frame_offset as u64 >= payload || self.block_length == 0 {
            return Err(PullShapeError::BadOffsetLength);
        }
        Ok(frames as u32)
    }
}

/// One frame of a requested block (6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullReply<'a> {
    /// Number of the frame in the pull, modulo 256.
    pub frame_seqnum: u8,
    /// Position of the data in the message.
    pub msg_offset: u32,
    /// Echo of the PULL's handle.
    pub handle: u32,
    /// Echo of the PULL's magic.
    pub magic: u32,
    /// The bytes.
    pub data: &'a [u8],
}

/// Tells the sender of a large message that it is over (6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notify {
    /// The endpoint that sent the RNDV.
    pub dst_endpoint: u8,
    /// The receiver of the message.
    pub src_endpoint: u8,
    /// Session id of `dst_endpoint`.
    pub session: u32,
    /// Bytes actually transferred.
    pub total_length: u32,
    /// Region, from the RNDV.
    pub rdma_id: u8,
    /// Use counter of the region, from the RNDV.
    pub rdma_seqnum: u8,
    /// Sequence number of this direction.
    pub seqnum: u16,
    /// Acknowledgement of the other direction.
    pub piggyack: u16,
}

const PULL_MAGIC: u32 = 0x2107_1980;

/// Returns the magic of a puller's endpoint (6.2): packet dumps and steering hardware rely on it.
#[inline]
pub const fn pull_magic(endpoint: u8) -> u32 {
    endpoint as u32 ^ PULL_MAGIC
}

/// Returns the endpoint a magic stands for; all 32 bits are verified.
#[inline]
pub const fn endpoint_of_pull_magic(magic: u32) -> Option<u8> {
    let endpoint = magic ^ PULL_MAGIC;
    if endpoint <= u8::MAX as u32 {
        Some(endpoint as u8)
    } else {
        None
    }
}
