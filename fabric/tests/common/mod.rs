//! Frames for the tests.

use ether::MacAddr;

/// The station number `n`.
pub fn station(n: u8) -> MacAddr {
    MacAddr([0x52, 0x54, 0, 0, 0, n])
}

/// The header of an IPv4 frame.
pub fn header(dst: MacAddr, src: MacAddr) -> [u8; 14] {
    typed_header(dst, src, 0x0800)
}

/// A header with any EtherType.
pub fn typed_header(dst: MacAddr, src: MacAddr, ether_type: u16) -> [u8; 14] {
    let mut bytes = [0; 14];
    bytes[..6].copy_from_slice(&dst.0);
    bytes[6..12].copy_from_slice(&src.0);
    bytes[12..].copy_from_slice(&ether_type.to_be_bytes());
    bytes
}
