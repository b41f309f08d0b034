//! The Internet checksum (RFC 1071) over pieces, and the pseudo headers of TCP and UDP.
//!
//! Sums are taken over 16-bit big-endian words and can be combined: a frame that lies in several buffers is summed piece
//! by piece. Finding the headers in a frame and writing the result into one is the caller's business.

/// The partial sum of `bytes`, taken as big-endian 16-bit words; an odd last byte counts as the high byte of a word.
///
/// The result is at most 0xffff, so up to 65 537 results may be added with `+` before [`fold`]. A piece that starts at
/// an odd offset of the summed area must go through [`at_offset`] first.
#[inline]
pub fn sum(bytes: &[u8]) -> u32 {
    // Native-endian words of four bytes into 64 bits: the compiler vectorises this, and RFC 1071 (2.B) lets the byte
    // order be mended once at the end. 2³² words of four bytes cannot overflow the accumulator.
    let mut words = bytes.chunks_exact(4);
    let mut wide: u64 = 0;
    for word in &mut words {
        wide += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    }
    let mut tail = [0; 4];
    let rest = words.remainder();
    tail[..rest.len()].copy_from_slice(rest);
    wide += u64::from(u32::from_ne_bytes(tail));
    let wide = (wide >> 32) + (wide & 0xffff_ffff);
    let wide = (wide >> 32) + (wide & 0xffff_ffff);
    // 32 bits now: one fold to 16 and the carry of that fold.
    let narrow = fold(wide as u32);
    u32::from(u16::from_be(narrow))
}

/// The sum of a piece that starts `offset` bytes into the summed area: at an odd offset its bytes change places.
#[inline]
pub const fn at_offset(piece_sum: u32, offset: usize) -> u32 {
    let folded = fold(piece_sum);
    if offset.is_multiple_of(2) {
        folded as u32
    } else {
        folded.swap_bytes() as u32
    }
}

/// Brings a sum to 16 bits (end-around carry). This is the ones' complement *sum*, not yet the checksum: see [`finish`].
#[inline]
pub const fn fold(sum: u32) -> u16 {
    let once = (sum >> 16) + (sum & 0xffff);
    ((once >> 16) + (once & 0xffff)) as u16
}

/// The checksum field that belongs to a sum: the complement of [`fold`].
///
/// A sum over data that already holds a correct checksum gives 0 here. For UDP a result of 0 is sent as 0xffff
/// (RFC 768).
#[inline]
pub const fn finish(sum: u32) -> u16 {
    !fold(sum)
}

/// The Internet checksum of `bytes`, as it is written big-endian into an IPv4 or ICMP header.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    finish(sum(bytes))
}

/// The partial sum of the pseudo header of TCP or UDP over IPv4 (RFC 9293 3.1, RFC 768).
///
/// `protocol` is 6 for TCP, 17 for UDP; `segment_len` counts the transport header and its payload, in bytes.
#[inline]
pub fn pseudo_header_v4(src: [u8; 4], dst: [u8; 4], protocol: u8, segment_len: u16) -> u32 {
    sum(&src) + sum(&dst) + u32::from(protocol) + u32::from(segment_len)
}

/// The partial sum of the pseudo header of TCP or UDP over IPv6 (RFC 8200 8.1).
///
/// `protocol` is 6 for TCP, 17 for UDP; `segment_len` counts the transport header and its payload, in bytes.
#[inline]
pub fn pseudo_header_v6(src: [u8; 16], dst: [u8; 16], protocol: u8, segment_len: u32) -> u32 {
    sum(&src) + sum(&dst) + u32::from(protocol) + (segment_len >> 16) + (segment_len & 0xffff)
}

/// Sums an area that comes in pieces of any length, odd ones too.
///
/// Up to 2⁶⁴ bytes may be pushed; the sum is folded after each piece, so it cannot overflow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Accumulator {
    sum: u32,
    odd: bool,
}

impl Accumulator {
    /// Starts from a partial sum, such as a pseudo header's; the first piece then starts at an even offset.
    #[inline]
    pub const fn new(start: u32) -> Self {
        Self {
            sum: fold(start) as u32,
            odd: false,
        }
    }

    /// Adds the next piece.
    #[inline]
    pub fn push(&mut self, piece: &[u8]) {
        let added = at_offset(sum(piece), usize::from(self.odd));
        self.sum = u32::from(fold(self.sum + added));
        self.odd ^= piece.len() % 2 == 1;
    }

    /// The sum of everything pushed, at most 0xffff; [`finish`] makes the checksum of it.
    #[inline]
    pub const fn sum(self) -> u32 {
        self.sum
    }

    /// The checksum of everything pushed.
    #[inline]
    pub const fn finish(self) -> u16 {
        finish(self.sum)
    }
}
