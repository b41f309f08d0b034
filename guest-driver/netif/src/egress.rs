//! Finds out what stands between a socket and the driver of an interface, without any privilege.

use std::{fs, io, time::Duration};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
    sockopt::{Timeout, set_socket_timeout},
};

/// All packet sockets of the network namespace.
const PACKET_SOCKETS: &str = "/proc/self/net/packet";
/// The protocol of those that get every frame, also what this host sends.
const EVERY_PROTOCOL: u16 = libc::ETH_P_ALL as u16;

/// Bytes of `struct nlmsghdr`, `struct tcmsg` and `struct rtattr` (linux/netlink.h, linux/rtnetlink.h).
const MESSAGE_HEADER_LEN: usize = 16;
const QUEUEING_LEN: usize = 20;
const ATTRIBUTE_HEADER_LEN: usize = 4;
/// Messages and attributes begin at multiples of it.
const ALIGNMENT: usize = 4;
/// The flag of an answer during which something changed (`NLM_F_DUMP_INTR`).
const INTERRUPTED: u16 = 0x10;
/// The attribute with a queueing discipline's name.
const TCA_KIND: u16 = 1;
/// A queueing discipline that keeps nothing, and one that sees what arrives alone.
const HARMLESS: [&[u8]; 2] = [b"noqueue", b"ingress"];
/// More than the kernel puts into one datagram.
const ANSWER_LEN: usize = 64 << 10;
/// The kernel answers at once.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Whether a packet socket gets what this interface sends.
pub(crate) fn has_listener(index: i32) -> io::Result<bool> {
    lists_listener(&fs::read_to_string(PACKET_SOCKETS)?, index)
}

/// Whether a socket in the kernel's table of packet sockets gets what this interface sends.
fn lists_listener(table: &str, index: i32) -> io::Result<bool> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    for line in table.lines().skip(1) {
        // Address, users, type, protocol, interface (0: all of them), …
        let mut fields = line.split_ascii_whitespace().skip(3);
        let mut next = || fields.next().ok_or_else(invalid);
        let protocol = u16::from_str_radix(next()?, 16).map_err(|_| invalid())?;
        let interface: i32 = next()?.parse().map_err(|_| invalid())?;
        if protocol == EVERY_PROTOCOL && (interface == 0 || interface == index) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether no queueing discipline of the interface has to do with what it sends.
pub(crate) fn has_no_queue(index: i32) -> io::Result<bool> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // Of netlink's families number 0, routing and what belongs to it.
        None,
    )?;
    set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_LIMIT))?;
    let mut request = [0; MESSAGE_HEADER_LEN + QUEUEING_LEN];
    request[..4].copy_from_slice(&((MESSAGE_HEADER_LEN + QUEUEING_LEN) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&libc::RTM_GETQDISC.to_ne_bytes());
    request[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    send(&socket, &request, SendFlags::empty())?;
    // The kernel tells the disciplines of a single interface to all listeners for changes.
    let mut found = false;
    let mut answer = vec![0; ANSWER_LEN];
    loop {
        let len = recv(&socket, &mut answer[..], RecvFlags::empty())?.1;
        match read_queues(answer.get(..len).unwrap_or_default(), index)? {
            Queues::Queueing => return Ok(false),
            Queues::Over { harmless } => return Ok(found | harmless),
            Queues::More { harmless } => found |= harmless,
        }
    }
}

/// What a datagram says of an interface's queueing disciplines; `harmless`: it has one that keeps nothing.
#[derive(Debug, PartialEq, Eq)]
enum Queues {
    More { harmless: bool },
    Over { harmless: bool },
    Queueing,
}

fn read_queues(mut datagram: &[u8], index: i32) -> io::Result<Queues> {
    let mut harmless = false;
    while !datagram.is_empty() {
        let (header, rest) = split(datagram, MESSAGE_HEADER_LEN)?;
        let len = u32::from_ne_bytes(array(header, 0)?) as usize;
        let len = len.checked_sub(MESSAGE_HEADER_LEN).ok_or(io::ErrorKind::InvalidData)?;
        let (message, _) = split(rest, len)?;
        datagram = rest.get(len.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        let (kind, flags) = (
            u16::from_ne_bytes(array(header, 4)?),
            u16::from_ne_bytes(array(header, 6)?),
        );
        if flags & INTERRUPTED != 0 {
            // Something changed meanwhile, and may be missing.
            return Err(io::ErrorKind::Interrupted.into());
        }
        match i32::from(kind) {
            libc::NLMSG_DONE if message.iter().all(|byte| *byte == 0) => return Ok(Queues::Over { harmless }),
            libc::NLMSG_DONE | libc::NLMSG_ERROR => {
                return Err(io::Error::from_raw_os_error(
                    i32::from_ne_bytes(array(message, 0)?).wrapping_neg(),
                ));
            }
            _ if kind == libc::RTM_NEWQDISC && i32::from_ne_bytes(array(message, 4)?) == index => {
                if !HARMLESS.contains(&name(split(message, QUEUEING_LEN)?.1)?) {
                    return Ok(Queues::Queueing);
                }
                harmless = true;
            }
            _ => {}
        }
    }
    Ok(Queues::More { harmless })
}

/// Finds the name among the attributes of a queueing discipline.
fn name(mut attributes: &[u8]) -> io::Result<&[u8]> {
    while !attributes.is_empty() {
        let len = usize::from(u16::from_ne_bytes(array(attributes, 0)?));
        let (attribute, _) = split(attributes, len)?;
        let (header, value) = split(attribute, ATTRIBUTE_HEADER_LEN)?;
        if u16::from_ne_bytes(array(header, 2)?) == TCA_KIND {
            return Ok(value.strip_suffix(b"\0").unwrap_or(value));
        }
        attributes = attributes.get(len.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    }
    Err(io::ErrorKind::InvalidData.into())
}

fn split(bytes: &[u8], at: usize) -> io::Result<(&[u8], &[u8])> {
    bytes
        .split_at_checked(at)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> io::Result<[u8; N]> {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk());
    bytes.copied().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{AfPacket, AfPacketOptions, Interface};
    use weft_guest_driver_testkit::{Veth, in_private_network};

    fn is_bare(interface: &str) -> bool {
        Interface::find(interface).unwrap().egress_is_bare().unwrap()
    }

    #[test]
    fn a_queue_a_filter_and_whoever_listens_stand_in_the_way_of_frames_while_they_are_there() {
        let test =
            "egress::tests::a_queue_a_filter_and_whoever_listens_stand_in_the_way_of_frames_while_they_are_there";
        in_private_network(test, || {
            let veth = Veth::new(1500);
            assert!(is_bare(&veth.a) && is_bare(&veth.b) && !is_bare("lo"));
            let tc = |arguments: &[&str]| {
                let status = std::process::Command::new("tc").args(arguments).status().unwrap();
                assert!(status.success(), "tc {arguments:?}");
            };
            for (add, bare) in [
                (&["root", "pfifo"][..], false),
                (
                    &["root", "tbf", "rate", "1gbit", "burst", "64k", "latency", "1ms"],
                    false,
                ),
                (&["clsact"], false),
                (&["ingress"], true),
            ] {
                tc(&[&["qdisc", "add", "dev", &veth.a], add].concat());
                assert_eq!((is_bare(&veth.a), is_bare(&veth.b)), (bare, true), "{add:?}");
                let place = if add.len() > 1 { "root" } else { add[0] };
                tc(&["qdisc", "del", "dev", &veth.a, place]);
                assert!(is_bare(&veth.a), "{add:?}");
            }
            // Sockets of one protocol see nothing that is sent.
            let own = AfPacket::open(&veth.a, ether::EtherType::MXOE, &AfPacketOptions::default()).unwrap();
            assert!(is_bare(&veth.a));
            let all = AfPacket::open(&veth.a, ether::EtherType(EVERY_PROTOCOL), &AfPacketOptions::default()).unwrap();
            assert!(!is_bare(&veth.a) && is_bare(&veth.b));
            drop((own, all));
            assert!(is_bare(&veth.a));
        });
    }

    #[test]
    fn a_listener_is_one_for_all_protocols_on_this_interface_or_on_all() {
        let table = |line: &str| {
            format!(
                "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n000000005b2b1c3f 3      3    {line}\n"
            )
        };
        for (line, expected) in [
            ("0003   7     1 0      0      21307", true),
            ("0003   0     1 0      0      21307", true),
            ("0003   8     1 0      0      21307", false),
            ("86df   7     1 0      0      21307", false),
            ("0000   0     0 0      0      21307", false),
        ] {
            assert_eq!(lists_listener(&table(line), 7).unwrap(), expected, "{line}");
        }
        assert!(!lists_listener("", 7).unwrap());
        assert!(lists_listener(&table("x"), 7).is_err());
    }

    proptest! {
        #[test]
        fn whatever_the_answer_is_reading_it_ends(datagram in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_queues(&datagram, 7);
        }
    }
}
