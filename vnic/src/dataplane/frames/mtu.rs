//! The MTU check: which frames an MTU lets pass.

/// The longest frame that an MTU lets pass: it does not count the Ethernet header and up to two VLAN tags.
#[inline(always)]
pub const fn frame_len_max(mtu: u32) -> u32 {
    mtu + fabric::FRAME_OVERHEAD_BYTES
}

/// Whether an MTU lets a frame of `len` bytes pass.
#[inline(always)]
pub const fn fits(len: u32, mtu: u32) -> bool {
    len <= frame_len_max(mtu)
}
