//! The flow hash of receive-side scaling: Toeplitz over addresses and ports, with Microsoft's well-known key.
//!
//! The hash reads no more of a frame than its inline header. Which queue a hash means is not here.

use ether::EtherType;

/// The key of Microsoft's verification suite, which drivers of real cards start with too.
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

/// The longest input: two IPv6 addresses and two ports.
const INPUT_LEN_MAX: usize = 36;

/// What each half byte at each place adds to the hash: 4.5 KiB, little enough to stay in a processor's first cache (with
/// whole bytes it would be 36).
static TABLE: [[u32; 16]; 2 * INPUT_LEN_MAX] = table();

const fn table() -> [[u32; 16]; 2 * INPUT_LEN_MAX] {
    let mut table = [[0; 16]; 2 * INPUT_LEN_MAX];
    let mut place = 0;
    while place < table.len() {
        let mut value = 1;
        while value < 16 {
            let mut bit = 0;
            while bit < 4 {
                if value & 8 >> bit != 0 {
                    table[place][value] ^= key_window(4 * place + bit);
                }
                bit += 1;
            }
            value += 1;
        }
        place += 1;
    }
    table
}

/// 32 bits of the key from bit `at` on.
const fn key_window(at: usize) -> u32 {
    let first = at / 8;
    let mut bits = 0u64;
    let mut byte = 0;
    while byte < 5 {
        let key = if first + byte < KEY.len() { KEY[first + byte] } else { 0 };
        bits = bits << 8 | key as u64;
        byte += 1;
    }
    (bits >> (8 - at % 8)) as u32
}

/// What `bytes`, which stand at `place` (in bytes) of the input, add to the hash.
#[inline(always)]
fn hash_at<const LEN: usize>(place: usize, bytes: &[u8; LEN]) -> u32 {
    let mut hash = 0;
    for (index, byte) in bytes.iter().enumerate() {
        let at = 2 * (place + index);
        hash ^= TABLE[at][usize::from(byte >> 4)] ^ TABLE[at + 1][usize::from(byte & 15)];
    }
    hash
}

/// The Toeplitz hash of source address, destination address and, for TCP and UDP, source port and destination port.
///
/// Up to two VLAN tags are skipped. A fragment of an IP packet, the first one included, is hashed over its addresses alone, as
/// the others do not have the ports; so is one whose ports do not lie within `header` (many IP options, two tags in front of
/// IPv6) or behind IPv6 extension headers. `None` for everything but IP, and for an IP header that is cut off.
#[inline]
pub fn flow_hash(header: &[u8]) -> Option<u32> {
    const TAG_LEN: usize = 4;
    let mut at = 12;
    for _ in 0..2 {
        match EtherType(u16::from_be_bytes(*header.get(at..)?.first_chunk()?)) {
            EtherType::VLAN | EtherType::SERVICE_VLAN => at += TAG_LEN,
            _ => break,
        }
    }
    let packet = header.get(at + 2..)?;
    match EtherType(u16::from_be_bytes(*header.get(at..)?.first_chunk()?)) {
        EtherType::IPV4 => v4(packet),
        EtherType::IPV6 => v6(packet),
        _ => None,
    }
}

/// Protocols that have ports where TCP has them.
const fn has_ports(protocol: u8) -> bool {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    matches!(protocol, TCP | UDP)
}

#[inline]
fn v4(packet: &[u8]) -> Option<u32> {
    const SHORTEST: usize = 20;
    let header = packet.first_chunk::<SHORTEST>()?;
    let header_len = usize::from(header[0] & 15) * 4;
    if header[0] >> 4 != 4 || header_len < SHORTEST {
        return None;
    }
    let addresses = hash_at(0, header[12..].first_chunk::<8>()?);
    // More fragments follow, or this one is not the first.
    let fragment = header[6] & 0x3f != 0 || header[7] != 0;
    let ports = packet.get(header_len..).and_then(<[u8]>::first_chunk::<4>);
    Some(match ports {
        Some(ports) if has_ports(header[9]) && !fragment => addresses ^ hash_at(8, ports),
        _ => addresses,
    })
}

#[inline]
fn v6(packet: &[u8]) -> Option<u32> {
    const HEADER_LEN: usize = 40;
    let header = packet.first_chunk::<HEADER_LEN>()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let addresses = hash_at(0, header[8..].first_chunk::<32>()?);
    let ports = packet[HEADER_LEN..].first_chunk::<4>();
    Some(match ports {
        Some(ports) if has_ports(header[6]) => addresses ^ hash_at(32, ports),
        _ => addresses,
    })
}
