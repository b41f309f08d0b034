//! Frames as the data plane handles them: borrowed from a guest's memory, or copied into a pool where they wait for their time.
//!
//! Nothing here knows switches or cards but by their numbers.

pub mod frame_ref;
pub mod mtu;
pub mod pool;
pub mod segments;
pub mod transit;

/// Longest frame that a guest may hand over for segmentation: 64 KiB of network layer.
pub const SEGMENTED_FRAME_MAX: u32 = mtu::frame_len_max(65_535);

/// Longest frame inside: a switch may put one tag in front of what a guest handed over, and never a second one, since it reads
/// the first as the frame's own from then on.
pub const FRAME_LEN_MAX: usize = SEGMENTED_FRAME_MAX as usize + fabric::VLAN_TAG_LEN;
