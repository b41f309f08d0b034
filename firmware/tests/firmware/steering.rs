//! M-GF9: MXoE goes to the queue of its endpoint, IP to that of its flow, and nothing to a queue that is not there.

use firmware::{
    Card, CardConfig, ENDPOINTS, INDIRECTION_LEN, Steering, SteeringChange, SteeringCounters, SteeringError,
    SteeringMode, SteeringSettings, SteeringTable, TableChange, TableEntries, flow_hash,
};

use crate::support::Numbers;

/// Microsoft's verification suite for receive-side scaling: destination and source address and port, hash over the addresses,
/// hash over addresses and ports.
type Vector<A> = ((A, u16), (A, u16), u32, u32);

const V4: [Vector<[u8; 4]>; 5] = [
    (
        ([161, 142, 100, 80], 1766),
        ([66, 9, 149, 187], 2794),
        0x323e_8fc2,
        0x51cc_c178,
    ),
    (
        ([65, 69, 140, 83], 4739),
        ([199, 92, 111, 2], 14230),
        0xd718_262a,
        0xc626_b0ea,
    ),
    (
        ([12, 22, 207, 184], 38024),
        ([24, 19, 198, 95], 12898),
        0xd2d0_a5de,
        0x5c2b_394a,
    ),
    (
        ([209, 142, 163, 6], 2217),
        ([38, 27, 205, 30], 48228),
        0x8298_9176,
        0xafc7_327f,
    ),
    (
        ([202, 188, 127, 2], 1303),
        ([153, 39, 163, 191], 44251),
        0x5d18_09c5,
        0x10e8_28a2,
    ),
];

const V6: [Vector<&str>; 3] = [
    (
        ("3ffe:2501:200:3::1", 1766),
        ("3ffe:2501:200:1fff::7", 2794),
        0x2cc1_8cd5,
        0x4020_7d3d,
    ),
    (
        ("ff02::1", 4739),
        ("3ffe:501:8::260:97ff:fe40:efab", 14230),
        0x0f0c_461c,
        0xdde5_1bbf,
    ),
    (
        ("fe80::200:f8ff:fe21:67cf", 38024),
        ("3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251),
        0x4b61_e985,
        0x02d1_feef,
    ),
];

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
/// More fragments follow.
const MORE: u16 = 0x2000;

fn v4(protocol: u8, fragment: u16, options: usize, src: ([u8; 4], u16), dst: ([u8; 4], u16)) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend_from_slice(&[0x08, 0x00, 0x45 + options as u8, 0, 0, 60, 0, 1]);
    frame.extend_from_slice(&fragment.to_be_bytes());
    frame.extend_from_slice(&[64, protocol, 0, 0]);
    frame.extend_from_slice(&src.0);
    frame.extend_from_slice(&dst.0);
    frame.resize(frame.len() + 4 * options, 1);
    frame.extend_from_slice(&src.1.to_be_bytes());
    frame.extend_from_slice(&dst.1.to_be_bytes());
    frame.resize(frame.len() + 30, 0x77);
    frame
}

fn v6(next_header: u8, src: (&str, u16), dst: (&str, u16)) -> Vec<u8> {
    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("an address").octets();
    let mut frame = vec![2; 12];
    frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 60, next_header, 64]);
    frame.extend_from_slice(&address(src.0));
    frame.extend_from_slice(&address(dst.0));
    frame.extend_from_slice(&src.1.to_be_bytes());
    frame.extend_from_slice(&dst.1.to_be_bytes());
    frame.resize(frame.len() + 30, 0x77);
    frame
}

/// The frame with a VLAN tag of this type in front of its EtherType.
fn tagged(mut frame: Vec<u8>, tag: u16) -> Vec<u8> {
    let [high, low] = tag.to_be_bytes();
    frame.splice(12..12, [high, low, 0x20, 0x05]);
    frame
}

/// What the card sees of a frame.
fn seen(frame: &[u8]) -> &[u8] {
    &frame[..frame.len().min(firmware::INLINE_HEADER_LEN)]
}

fn hash(frame: &[u8]) -> Option<u32> {
    flow_hash(seen(frame))
}

/// An MXoE frame of this type whose destination endpoint is written where that type has it; every other place that could be
/// taken for it names endpoint 0.
fn mxoe(kind: u8, marked: bool, endpoint: u8) -> Vec<u8> {
    let mut frame = vec![0; 64];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa]);
    frame[12..14].copy_from_slice(&[0x86, 0xdf]);
    frame[16] = kind | if marked { 0x80 } else { 0 };
    frame[31] = 0x80;
    match kind {
        42 | 45 => frame[31] = endpoint ^ 0x80,
        44 => frame[25] = endpoint,
        _ => frame[17] = endpoint,
    }
    frame
}

/// All types with a destination endpoint.
const WITH_ENDPOINT: std::ops::RangeInclusive<u8> = 35..=45;

fn card(queue_pairs: u16, mode: SteeringMode) -> Card {
    let mut nic = Card::new(CardConfig {
        queue_pairs,
        ..CardConfig::default()
    });
    let settings = SteeringSettings {
        mode,
        ..SteeringSettings::DEFAULT
    };
    nic.steering_mut().set(settings).expect("no table");
    nic.steering_mut().set_ready(u64::MAX);
    nic
}

fn entries(table: SteeringTable, first: u16, queues: &[u8]) -> SteeringChange {
    let entries = TableEntries::new(first, queues).expect("few enough");
    SteeringChange {
        table: Some((table, TableChange::Entries(entries))),
        ..SteeringChange::default()
    }
}

#[test]
fn m_gf9_the_flow_hash_is_that_of_the_published_verification_suite() {
    for (dst, src, addresses, ports) in V4 {
        assert_eq!(hash(&v4(TCP, 0, 0, src, dst)), Some(ports));
        assert_eq!(hash(&v4(UDP, 0, 0, src, dst)), Some(ports));
        assert_eq!(hash(&v4(ICMP, 0, 0, src, dst)), Some(addresses));
    }
    for (dst, src, addresses, ports) in V6 {
        assert_eq!(hash(&v6(TCP, src, dst)), Some(ports));
        assert_eq!(hash(&v6(58, src, dst)), Some(addresses));
    }
}

#[test]
fn m_gf9_all_fragments_of_a_datagram_are_one_flow() {
    let (dst, src, addresses, _) = V4[0];
    for fragment in [MORE, MORE | 185, 370, 0x1fff] {
        assert_eq!(hash(&v4(UDP, fragment, 0, src, dst)), Some(addresses));
    }
    // "Don't fragment" is no fragment.
    assert_eq!(hash(&v4(UDP, 0x4000, 0, src, dst)), Some(V4[0].3));
    let (dst, src, addresses, _) = V6[0];
    assert_eq!(hash(&v6(44, src, dst)), Some(addresses));
}

#[test]
fn m_gf9_vlan_tags_and_ip_options_do_not_change_the_flow() {
    let (dst, src, _, ports) = V4[1];
    let frame = v4(TCP, 0, 0, src, dst);
    assert_eq!(hash(&tagged(frame.clone(), 0x8100)), Some(ports));
    assert_eq!(hash(&tagged(tagged(frame, 0x8100), 0x88a8)), Some(ports));
    assert_eq!(hash(&v4(TCP, 0, 6, src, dst)), Some(ports));
    // Ports behind the 64 bytes that the card sees.
    assert_eq!(hash(&v4(TCP, 0, 10, src, dst)), Some(V4[1].2));
    let (dst, src, addresses, ports) = V6[1];
    let frame = v6(TCP, src, dst);
    assert_eq!(hash(&tagged(frame.clone(), 0x8100)), Some(ports));
    assert_eq!(hash(&tagged(tagged(frame, 0x8100), 0x8100)), Some(addresses));
}

#[test]
fn m_gf9_headers_that_are_cut_off_are_hashed_as_far_as_they_go() {
    let (dst, src, addresses, ports) = V4[2];
    let frame = v4(TCP, 0, 0, src, dst);
    let expected = |len| match len {
        0..34 => None,
        34..38 => Some(addresses),
        _ => Some(ports),
    };
    (0..=64).for_each(|len| assert_eq!(hash(&frame[..len.min(frame.len())]), expected(len), "{len} bytes"));
    let (dst, src, addresses, ports) = V6[2];
    let frame = v6(UDP, src, dst);
    let expected = |len| match len {
        0..54 => None,
        54..58 => Some(addresses),
        _ => Some(ports),
    };
    (0..=64).for_each(|len| assert_eq!(hash(&frame[..len]), expected(len), "{len} bytes"));
    // Wrong versions and lengths of headers are not IP.
    for first in [0x65, 0x44, 0x00] {
        let mut frame = v4(TCP, 0, 0, src_v4(), src_v4());
        frame[14] = first;
        assert_eq!(hash(&frame), None);
    }
}

const fn src_v4() -> ([u8; 4], u16) {
    V4[0].1
}

#[test]
fn m_gf9_endpoints_that_collide_under_the_flow_hash_get_queues_of_their_own() {
    // With three queues every bit of the endpoint counts, the one that magic numbers turn over (1.5) included.
    for queues in [4, 3] {
        let mut flow = card(queues, SteeringMode::Flow);
        let mut endpoint = card(queues, SteeringMode::Endpoint);
        for kind in WITH_ENDPOINT {
            for marked in [false, true] {
                for number in 0..=255 {
                    let frame = mxoe(kind, marked, number);
                    assert_eq!(flow.steering_mut().queue(seen(&frame)), Some(0), "type {kind}");
                    let expected = u16::from(number) % queues;
                    assert_eq!(
                        endpoint.steering_mut().queue(seen(&frame)),
                        Some(expected),
                        "type {kind}, marked {marked}, endpoint {number}, {queues} queues"
                    );
                }
            }
        }
        let counted = endpoint.steering().counters();
        assert_eq!((counted.by_endpoint, counted.to_first), (11 * 2 * 256, 0));
        assert_eq!(flow.steering().counters().to_first, 11 * 2 * 256);
    }
}

#[test]
fn m_gf9_worked_frames_of_an_endpoint_meet_on_its_queue() {
    // `mxoe-wire.md` section 14, to A's endpoint 3: a pull, a marked reply of one (magic 0x21071981 XOR 0x80 = endpoint 1, B's),
    // the nack of a message, the nack of a pull.
    let bytes = |kind: u8, body: [u8; 15]| {
        let mut frame = vec![2, 0, 0, 0, 0, 0xa, 2, 0, 0, 0, 0, 0xb, 0x86, 0xdf, 0, 5, kind];
        frame.extend_from_slice(&body);
        frame.resize(60, 0);
        frame
    };
    let pull = bytes(
        0x29,
        [3, 1, 0, 0xa1, 0xb2, 0xc3, 0xd4, 0, 0x0f, 0x42, 0x40, 4, 0x17, 0, 0],
    );
    let reply_body = [9, 0x10, 0, 0, 0, 0x90, 0, 0, 0, 0, 0x23, 0x21, 0x07, 0x19, 0x81];
    let (reply, marked_reply) = (bytes(0x2a, reply_body), bytes(0xaa, reply_body));
    let nack_lib = bytes(0x2c, [1, 0, 2, 0, 0, 0, 0, 0, 3, 0, 5, 0, 4, 0, 0]);
    let nack_mcp = bytes(0x2d, [1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0x23, 0x21, 0x07, 0x19, 0x81]);
    let mut nic = card(8, SteeringMode::Endpoint);
    let mut queue = |frame: &[u8]| nic.steering_mut().queue(seen(frame)).expect("ready");
    assert_eq!((queue(&pull), queue(&nack_lib)), (3, 3));
    assert_eq!((queue(&reply), queue(&marked_reply), queue(&nack_mcp)), (1, 1, 1));
}

#[test]
fn m_gf9_frames_without_endpoint_go_to_the_first_queue_and_ip_is_never_taken_for_mxoe() {
    let mut nic = card(4, SteeringMode::Endpoint);
    let steering = nic.steering_mut();
    for kind in (0..=127).filter(|kind| !WITH_ENDPOINT.contains(kind)) {
        let mut frame = mxoe(kind, false, 3);
        frame[25] = 3;
        frame[31] = 3 ^ 0x80;
        assert_eq!(steering.queue(&frame), Some(0), "type {kind}");
    }
    // Cut off before the endpoint, or before the type.
    for (kind, len) in [(37, 17), (44, 25), (42, 31), (37, 16), (37, 13), (37, 0)] {
        assert_eq!(steering.queue(&mxoe(kind, true, 3)[..len]), Some(0));
    }
    // An IPv4 packet of 0x2503 bytes reads like a TINY to endpoint 3, but for its EtherType.
    let (dst, src, ..) = V4[0];
    let mut ip = v4(TCP, 0, 0, src, dst);
    ip[16..18].copy_from_slice(&[0x25, 3]);
    let mut same_flow = ip.clone();
    same_flow[16..18].copy_from_slice(&[0, 60]);
    assert_eq!(steering.queue(seen(&ip)), steering.queue(seen(&same_flow)));
    assert_eq!(steering.counters().by_flow, 2);
    // Not IP, not MXoE; a VLAN tag in front of MXoE, which the protocol does not have.
    let mut arp = mxoe(37, false, 3);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(steering.queue(&arp), Some(0));
    assert_eq!(steering.queue(&tagged(mxoe(37, false, 3), 0x8100)), Some(0));
}

#[test]
fn m_gf9_tables_say_which_queue_and_what_is_not_ready_is_stood_in_for() {
    let mut nic = card(4, SteeringMode::Endpoint);
    let steering = nic.steering_mut();
    steering
        .change(&entries(SteeringTable::Endpoints, 5, &[3, 3, 1]))
        .expect("four queues");
    let queue_of = |steering: &mut Steering, endpoint| steering.queue(&mxoe(37, true, endpoint));
    let got: Vec<_> = (4..10).map(|endpoint| queue_of(steering, endpoint)).collect();
    assert_eq!(got, [0, 3, 3, 1, 0, 1].map(Some));
    // A flow's entry of the indirection table.
    let (dst, src, _, ports) = V4[0];
    let frame = v4(TCP, 0, 0, src, dst);
    let entry = (ports as usize % INDIRECTION_LEN) as u16;
    steering
        .change(&entries(SteeringTable::Indirection, entry, &[2]))
        .expect("four queues");
    assert_eq!(steering.queue(seen(&frame)), Some(2));
    // Queues 0, 1 and 2 alone are ready: 3 is stood in for by the one that is 3 modulo 3.
    steering.set_ready(0b0111);
    assert_eq!(queue_of(steering, 5), Some(0));
    assert_eq!(steering.queue(seen(&frame)), Some(2));
    steering.set_ready(0b1000);
    assert_eq!((steering.queue(seen(&frame)), steering.ready_queues()), (Some(3), 1));
    steering.set_ready(0);
    assert_eq!(steering.queue(seen(&frame)), None);
    // And all is as it was set when they come back.
    steering.set_ready(0b1111);
    assert_eq!(queue_of(steering, 5), Some(3));
    let even = SteeringChange {
        table: Some((SteeringTable::Endpoints, TableChange::Even)),
        ..SteeringChange::default()
    };
    steering.change(&even).expect("always");
    assert_eq!(queue_of(steering, 5), Some(1));
    assert!(!steering.settings().indirection.is_even());
}

#[test]
fn m_gf9_queues_that_are_ready_stand_in_whichever_they_are() {
    let mut nic = card(5, SteeringMode::Endpoint);
    let steering = nic.steering_mut();
    // Queues 1, 3 and 4: endpoints go round them.
    steering.set_ready(0b1_1010);
    let queues = |steering: &mut Steering| -> Vec<_> {
        (0..6)
            .map(|endpoint| steering.queue(&mxoe(37, false, endpoint)))
            .collect()
    };
    assert_eq!(queues(steering), [1, 3, 4, 1, 3, 4].map(Some));
    assert_eq!(steering.table(SteeringTable::Indirection)[..4], [1, 3, 4, 1]);
    // What has no endpoint goes to the first that is ready.
    let mut arp = mxoe(37, false, 3);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(steering.queue(&arp), Some(1));
    // The table names 0 … 4: of these 0 and 2 are not ready, and the first and the third that are stand in.
    steering
        .change(&entries(SteeringTable::Endpoints, 0, &[0, 1, 2, 3, 4, 0]))
        .expect("five queues");
    assert_eq!(queues(steering), [1, 1, 4, 3, 4, 1].map(Some));
    steering.set_ready(0b1_0000);
    assert_eq!(queues(steering), [4; 6].map(Some));
}

#[test]
fn m_gf9_a_change_that_names_a_missing_queue_or_entry_changes_nothing() {
    let mut nic = card(2, SteeringMode::Flow);
    let steering = nic.steering_mut();
    for (change, error) in [
        (
            entries(SteeringTable::Indirection, 0, &[0, 1, 2]),
            SteeringError::UnknownQueue,
        ),
        (
            entries(SteeringTable::Endpoints, 255, &[0, 1]),
            SteeringError::BeyondTable,
        ),
        (
            entries(SteeringTable::Indirection, 128, &[0]),
            SteeringError::BeyondTable,
        ),
        (
            entries(SteeringTable::Endpoints, 0xffff, &[0]),
            SteeringError::BeyondTable,
        ),
    ] {
        let change = SteeringChange {
            mode: Some(SteeringMode::Off),
            ..change
        };
        assert_eq!(steering.change(&change), Err(error));
        assert_eq!(*steering.settings(), SteeringSettings::DEFAULT);
    }
    assert_eq!(TableEntries::new(0, &[0; 129]), None);
    assert_eq!(TableEntries::new(0, &[]), None);
    let settings = SteeringSettings {
        endpoints: [2; ENDPOINTS].into(),
        ..SteeringSettings::DEFAULT
    };
    assert_eq!(steering.set(settings), Err(SteeringError::UnknownQueue));
}

#[test]
fn m_gf9_no_frame_ever_meets_a_queue_that_is_not_there() {
    let mut numbers = Numbers::new(9);
    let mut steered = SteeringCounters::default();
    for _ in 0..300 {
        let queue_pairs = 1 + numbers.below(64) as u16;
        let mut nic = card(queue_pairs, numbers.one_of(&SteeringMode::ALL));
        let steering = nic.steering_mut();
        let mut ready = u64::MAX >> (64 - queue_pairs);
        for _ in 0..400 {
            match numbers.below(10) {
                0 => {
                    // Bits of queues that there are not must not count.
                    let said = numbers.next() & numbers.next();
                    ready = said & u64::MAX >> (64 - queue_pairs);
                    steering.set_ready(said);
                }
                1 => {
                    let table = numbers.one_of(&[SteeringTable::Endpoints, SteeringTable::Indirection]);
                    let beyond = u64::from(numbers.percent(10));
                    let queues: Vec<_> = (0..1 + numbers.below(128))
                        .map(|_| numbers.below(u64::from(queue_pairs) + beyond) as u8)
                        .collect();
                    let _ = steering.change(&entries(table, numbers.below(200) as u16, &queues));
                }
                2 => {
                    let change = SteeringChange {
                        mode: Some(numbers.one_of(&SteeringMode::ALL)),
                        table: numbers
                            .percent(20)
                            .then_some((SteeringTable::Endpoints, TableChange::Even)),
                        proposed: false,
                    };
                    steering.change(&change).expect("no queue is named");
                }
                _ => {}
            }
            let mut frame = match numbers.below(3) {
                0 => mxoe(numbers.below(64) as u8, numbers.percent(50), numbers.next() as u8),
                1 => v4(
                    numbers.one_of(&[TCP, UDP, ICMP]),
                    0,
                    0,
                    src_v4(),
                    (numbers.next().to_be_bytes()[..4].try_into().expect("4"), 9),
                ),
                _ => (0..64).map(|_| numbers.next() as u8).collect(),
            };
            frame.truncate(numbers.below(65) as usize);
            match steering.queue(&frame) {
                None => assert_eq!(ready, 0),
                Some(queue) => assert!(ready & 1 << queue != 0, "queue {queue} of {ready:b}"),
            }
        }
        let counted = steering.counters();
        steered.by_endpoint += counted.by_endpoint;
        steered.by_flow += counted.by_flow;
    }
    assert!(steered.by_endpoint > 1000 && steered.by_flow > 1000, "{steered:?}");
}
