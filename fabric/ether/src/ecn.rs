//! Explicit congestion notification (RFC 3168): telling the ends of a transport that a queue is long, without dropping.
//!
//! It changes one field of a frame that the caller has. When a queue is long is decided elsewhere.

use crate::{ETHERNET_HEADER_LEN, EtherType, checksum};

/// The two bits: neither set, the transport does not understand marks; both set, the frame found congestion.
const ECN: u8 = 0b11;
const NOT_ECT: u8 = 0b00;

/// Bytes of a VLAN tag, and how many may stand in front of a packet.
const VLAN_TAG_LEN: usize = 4;
const VLAN_TAGS_MAX: usize = 2;

/// Shortest IPv4 header, and where its checksum stands.
const IPV4_HEADER_LEN: usize = 20;
const IPV4_CHECKSUM_AT: usize = 10;
const IPV6_HEADER_LEN: usize = 40;

/// Marks an IPv4 or IPv6 packet of an ECN-capable transport as having met congestion, and mends the IPv4 header's
/// checksum (one that was wrong stays wrong). At most two VLAN tags may stand in front. True if the packet carries the
/// mark now; false, and nothing is changed, if its transport does not know marks, or it is no whole IP header.
pub fn mark(frame: &mut [u8]) -> bool {
    let Some((protocol, at)) = payload(frame) else {
        return false;
    };
    let packet = &mut frame[at..];
    let Some(version) = packet.first().map(|byte| byte >> 4) else {
        return false;
    };
    match (protocol, version) {
        (EtherType::IPV4, 4) if packet.len() >= IPV4_HEADER_LEN => mark_ipv4(packet),
        (EtherType::IPV6, 6) if packet.len() >= IPV6_HEADER_LEN => {
            // The traffic class lies across the first two bytes, its lowest bits in the upper half of the second.
            let marked = packet[1] >> 4 & ECN != NOT_ECT;
            if marked {
                packet[1] |= ECN << 4;
            }
            marked
        }
        _ => false,
    }
}

fn mark_ipv4(packet: &mut [u8]) -> bool {
    if packet[1] & ECN == NOT_ECT {
        return false;
    }
    let word = |packet: &[u8], at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let before = word(packet, 0);
    packet[1] |= ECN;
    // RFC 1624, equation 3: the sum without the old word and with the new one.
    let sum = u32::from(!word(packet, IPV4_CHECKSUM_AT)) + u32::from(!before) + u32::from(word(packet, 0));
    packet[IPV4_CHECKSUM_AT..IPV4_CHECKSUM_AT + 2].copy_from_slice(&checksum::finish(sum).to_be_bytes());
    true
}

/// The protocol behind VLAN tags, and where it begins.
fn payload(frame: &[u8]) -> Option<(EtherType, usize)> {
    let mut at = ETHERNET_HEADER_LEN;
    for tags in 0..=VLAN_TAGS_MAX {
        let protocol = EtherType(u16::from_be_bytes(*frame.get(at - 2..at)?.first_chunk()?));
        if !matches!(protocol, EtherType::VLAN | EtherType::SERVICE_VLAN) || tags == VLAN_TAGS_MAX {
            return Some((protocol, at));
        }
        at += VLAN_TAG_LEN;
    }
    None
}
