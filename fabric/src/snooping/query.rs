//! Queries that a switch sends where no router does: IGMPv3 and MLDv2, which hosts of older versions understand, too.

use ether::{ETHERNET_HEADER_LEN, MacAddr, checksum};

use super::message::{Family, GroupAddr, QuerierRank};
use crate::control_frame::{CONTROL_FRAME_LEN_MIN, ControlFrame};

const IPV4_LEN: usize = 24;
const IGMP_LEN: usize = 12;
const IPV6_LEN: usize = 48;
const MLD_LEN: usize = 28;

/// Interval between general queries, in seconds, and how often each message is expected to be lost: told to hosts and routers.
pub(super) const INTERVAL_S: u8 = 125;
const ROBUSTNESS: u8 = 2;

/// What the IPv6 addresses of querying switches begin with; the Ethernet address follows. Nearly as high as an address of the link
/// can be, since the lowest one becomes the querier, and a router is the better one.
const SWITCHES: [u8; 10] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0xff, 0xfe];

/// Whether an address is that of a querying switch.
pub(super) fn is_switch(address: [u8; 16]) -> bool {
    address.starts_with(&SWITCHES)
}

fn address_v6(mac: MacAddr) -> [u8; 16] {
    let mut address = [0; 16];
    address[..10].copy_from_slice(&SWITCHES);
    address[10..].copy_from_slice(&mac.0);
    address
}

/// The rank of a querying switch.
pub(super) fn rank(family: Family, mac: MacAddr) -> QuerierRank {
    let address = match family {
        Family::V4 => [0xff; 16],
        Family::V6 => address_v6(mac),
    };
    QuerierRank(address, mac)
}

/// A query from the switch at `mac`: for one group, or for all.
pub(super) fn frame(mac: MacAddr, family: Family, group: Option<GroupAddr>, answer_within_ms: u16) -> ControlFrame {
    match family {
        Family::V4 => frame_v4(mac, group, answer_within_ms),
        Family::V6 => frame_v6(mac, group, answer_within_ms),
    }
}

fn frame_v4(mac: MacAddr, group: Option<GroupAddr>, answer_within_ms: u16) -> ControlFrame {
    let mut frame = ControlFrame::zeroed(CONTROL_FRAME_LEN_MIN);
    let bytes = frame.bytes_mut();
    let dst = group.map_or(MacAddr([0x01, 0x00, 0x5e, 0, 0, 1]), GroupAddr::mac);
    ethernet(bytes, dst, mac, [0x08, 0x00]);
    let (ip, rest) = bytes[ETHERNET_HEADER_LEN..].split_at_mut(IPV4_LEN);
    // Version and length; internetwork control; total length.
    ip[..4].copy_from_slice(&[0x46, 0xc0, 0, (IPV4_LEN + IGMP_LEN) as u8]);
    // Time to live, IGMP. The source is 0.0.0.0, as of any switch that queries.
    ip[8..10].copy_from_slice(&[1, 2]);
    ip[16..20].copy_from_slice(group.as_ref().map_or(&[224, 0, 0, 1], GroupAddr::octets));
    // Router alert.
    ip[20..].copy_from_slice(&[0x94, 4, 0, 0]);
    let sum = checksum::checksum(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let igmp = &mut rest[..IGMP_LEN];
    // Tenths of a second, as they are up to 12.7 s.
    igmp[..2].copy_from_slice(&[0x11, (answer_within_ms / 100).min(127) as u8]);
    if let Some(group) = &group {
        igmp[4..8].copy_from_slice(group.octets());
    }
    igmp[8..10].copy_from_slice(&[ROBUSTNESS, INTERVAL_S]);
    let sum = checksum::checksum(igmp);
    igmp[2..4].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn frame_v6(mac: MacAddr, group: Option<GroupAddr>, answer_within_ms: u16) -> ControlFrame {
    const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mut frame = ControlFrame::zeroed(ETHERNET_HEADER_LEN + IPV6_LEN + MLD_LEN);
    let bytes = frame.bytes_mut();
    let dst = group.map_or(MacAddr([0x33, 0x33, 0, 0, 0, 1]), GroupAddr::mac);
    ethernet(bytes, dst, mac, [0x86, 0xdd]);
    let (ip, mld) = bytes[ETHERNET_HEADER_LEN..].split_at_mut(IPV6_LEN);
    let source = address_v6(mac);
    let mut destination = ALL_NODES;
    if let Some(group) = &group {
        destination.copy_from_slice(group.octets());
    }
    ip[0] = 0x60;
    // Payload length, hop-by-hop options next, hop limit.
    ip[4..8].copy_from_slice(&[0, (8 + MLD_LEN) as u8, 0, 1]);
    ip[8..24].copy_from_slice(&source);
    ip[24..40].copy_from_slice(&destination);
    // ICMPv6 next; router alert for MLD; padding.
    ip[40..].copy_from_slice(&[58, 0, 5, 2, 0, 0, 1, 0]);
    mld[0] = 130;
    mld[4..6].copy_from_slice(&answer_within_ms.to_be_bytes());
    if let Some(group) = &group {
        mld[8..24].copy_from_slice(group.octets());
    }
    mld[24..26].copy_from_slice(&[ROBUSTNESS, INTERVAL_S]);
    let sum = checksum::pseudo_header_v6(source, destination, 58, MLD_LEN as u32) + checksum::sum(mld);
    mld[2..4].copy_from_slice(&checksum::finish(sum).to_be_bytes());
    frame
}

fn ethernet(frame: &mut [u8], dst: MacAddr, src: MacAddr, ether_type: [u8; 2]) {
    frame[..6].copy_from_slice(&dst.0);
    frame[6..12].copy_from_slice(&src.0);
    frame[12..ETHERNET_HEADER_LEN].copy_from_slice(&ether_type);
}
