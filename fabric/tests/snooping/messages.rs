//! What hosts, routers and other switches say, as frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ether::{MacAddr, checksum};

use crate::common::station;

pub fn mac_of(group: IpAddr) -> MacAddr {
    match group {
        IpAddr::V4(ip) => {
            let [_, b, c, d] = ip.octets();
            MacAddr([1, 0, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V6(ip) => {
            let [.., a, b, c, d] = ip.octets();
            MacAddr([0x33, 0x33, a, b, c, d])
        }
    }
}

/// A packet to a group: data, or a message with its checksum put in.
pub fn packet(from: u8, source: IpAddr, group: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = [mac_of(group).0, station(from).0].concat();
    match (source, group) {
        (IpAddr::V4(source), IpAddr::V4(group)) => {
            let mut payload = payload.to_vec();
            if protocol == 2 {
                let sum = checksum::checksum(&payload);
                payload[2..4].copy_from_slice(&sum.to_be_bytes());
            }
            let [high, low] = (24 + payload.len() as u16).to_be_bytes();
            let mut ip = vec![0x46, 0xc0, high, low, 0, 0, 0, 0, 1, protocol, 0, 0];
            ip.extend_from_slice(&source.octets());
            ip.extend_from_slice(&group.octets());
            ip.extend_from_slice(&[0x94, 4, 0, 0]);
            let sum = checksum::checksum(&ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend([&[8, 0], &ip[..], &payload].concat());
        }
        (IpAddr::V6(source), IpAddr::V6(group)) => {
            let (mut payload, mut options) = (payload.to_vec(), vec![]);
            let mut next = protocol;
            if protocol == 58 {
                options = vec![58, 0, 5, 2, 0, 0, 1, 0];
                next = 0;
                let pseudo = checksum::pseudo_header_v6(source.octets(), group.octets(), 58, payload.len() as u32);
                let sum = checksum::finish(pseudo + checksum::sum(&payload));
                payload[2..4].copy_from_slice(&sum.to_be_bytes());
            }
            let [high, low] = ((options.len() + payload.len()) as u16).to_be_bytes();
            let ip = [
                &[0x60, 0, 0, 0, high, low, next, 1],
                &source.octets()[..],
                &group.octets(),
            ]
            .concat();
            frame.extend([&[0x86, 0xdd], &ip[..], &options, &payload].concat());
        }
        mixed => panic!("{mixed:?}"),
    }
    frame
}

pub fn host(from: u8, group: IpAddr) -> IpAddr {
    match group {
        IpAddr::V4(_) => Ipv4Addr::new(10, 0, 0, from).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, from.into()).into(),
    }
}

pub fn data(from: u8, group: IpAddr) -> Vec<u8> {
    packet(from, host(from, group), group, 17, &[0; 40])
}

pub fn octets(group: IpAddr) -> Vec<u8> {
    match group {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// A report or leaving of an older version: IGMPv1, IGMPv2 or MLDv1.
pub fn old(from: u8, kind: u8, group: IpAddr) -> Vec<u8> {
    let (protocol, mut message) = match group {
        IpAddr::V4(_) => (2, vec![kind, 0, 0, 0]),
        IpAddr::V6(_) => (58, vec![kind, 0, 0, 0, 0, 0, 0, 0]),
    };
    message.extend(octets(group));
    packet(from, host(from, group), group, protocol, &message)
}

/// A report of IGMPv3 or MLDv2: kinds of records, groups, and numbers of sources.
pub fn report(from: u8, records: &[(u8, IpAddr, u8)]) -> Vec<u8> {
    let is_v4 = records[0].1.is_ipv4();
    let kind = if is_v4 { 0x22 } else { 143 };
    let [high, low] = (records.len() as u16).to_be_bytes();
    let mut message = vec![kind, 0, 0, 0, 0, 0, high, low];
    for (kind, group, sources) in records {
        message.extend([*kind, 0, 0, *sources]);
        message.extend(octets(*group));
        message.resize(message.len() + usize::from(*sources) * octets(*group).len(), 9);
    }
    let all: IpAddr = if is_v4 { ip("224.0.0.22") } else { ip("ff02::16") };
    packet(from, host(from, all), all, if is_v4 { 2 } else { 58 }, &message)
}

pub fn query(from: u8, source: IpAddr, group: Option<IpAddr>) -> Vec<u8> {
    match source {
        IpAddr::V4(_) => {
            let mut message = vec![0x11, 100, 0, 0];
            message.extend(group.map_or(vec![0; 4], octets));
            packet(from, source, group.unwrap_or(ip("224.0.0.1")), 2, &message)
        }
        IpAddr::V6(_) => {
            let mut message = vec![130, 0, 0, 0, 0x27, 0x10, 0, 0];
            message.extend(group.map_or(vec![0; 16], octets));
            packet(from, source, group.unwrap_or(ip("ff02::1")), 58, &message)
        }
    }
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}
