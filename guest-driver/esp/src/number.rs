//! Packet numbers and positions in a stream: they count modulo 2³².

/// Whether `a` comes before `b`.
#[inline]
pub(crate) const fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

/// The later of two.
#[inline]
pub(crate) const fn later(a: u32, b: u32) -> u32 {
    if is_before(a, b) { b } else { a }
}
