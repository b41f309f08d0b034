//! Frames as values: whatever is written is read as it was, and no cut or changed frame passes a check sequence.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use esp::wire::{
    Addresses, BULK_FRAME_LEN_MIN, Blocks, Body, CHECK_LEN, COUNTED_PAYLOAD_MAX, FRAME_LEN_MIN, Frame, HEAD_LEN,
    Header, Kind, Moved, Names, Path, Piece, Ping, Pong, Question, Ranges, ResetCode, Syn, SynAck, emit,
};
use ether::{EtherType, MacAddr};
use proptest::prelude::*;

const PATH: Path = Path {
    destination: MacAddr([2, 0, 0, 0, 0, 1]),
    source: MacAddr([2, 0, 0, 0, 0, 2]),
    ether_type: EtherType::ESP,
};

prop_compose! {
    fn any_header()(
        source_port: u16, destination_port: u16, number: u32, ack: Option<u32>, window: Option<u32>, push: bool, bulk: bool,
    ) -> Header {
        Header { source_port, destination_port, number, ack, window, push, bulk }
    }
}

/// A header that fits a kind.
fn fitting(header: Header, kind: Kind) -> Header {
    let needs_window = matches!(kind, Kind::Ack | Kind::Syn | Kind::SynAck | Kind::Moved);
    Header {
        window: header.window.or(needs_window.then_some(9)).filter(|_| !kind.is_edp()),
        ack: header.ack.or((kind == Kind::SynAck).then_some(9)),
        bulk: header.bulk && kind == Kind::Data,
        ..header
    }
}

/// What a program calls the ends, of either family or not at all.
fn names(number: u64) -> Option<Names> {
    let half = (number >> 16) as u32;
    let four = half.to_be_bytes().into();
    let six = (u128::from(number) << 50).to_be_bytes().into();
    let [source, destination]: [IpAddr; 2] = match number >> 3 & 3 {
        0 => return None,
        1 => [IpAddr::V4(four), IpAddr::V4(Ipv4Addr::LOCALHOST)],
        _ => [IpAddr::V6(six), IpAddr::V6(Ipv6Addr::LOCALHOST)],
    };
    Names::new(SocketAddr::new(source, number as u16), destination)
}

fn body<'a>(kind: Kind, number: u64, payload: &'a [u8], ranges: &[(u32, u16)]) -> Body<'a> {
    let blocks = Blocks {
        selective: number & 1 != 0,
        mark: number & 2 != 0,
        check: number & 4 != 0,
    };
    let payload_max = (number >> 8) as u16 | 1;
    match kind {
        Kind::Datagram => Body::Datagram(payload),
        Kind::Ping if number & 1 == 0 => Body::Ping(Ping {
            cookie: number,
            question: Question::Anyone,
        }),
        Kind::Ping => {
            let question = Question::Owner((number as u32).to_be_bytes().into());
            Body::Ping(Ping {
                cookie: number,
                question,
            })
        }
        Kind::Pong => {
            let four = ranges.iter().map(|(first, _)| first.to_be_bytes().into());
            let six = ranges
                .iter()
                .map(|(first, _)| (u128::from(*first) << 70).to_be_bytes().into());
            let addresses: Addresses = four.chain(six).collect();
            Body::Pong(Pong {
                cookie: number,
                mtu: payload_max,
                addresses,
            })
        }
        Kind::Data => Body::Data(payload),
        Kind::Ack => {
            let mut list = Ranges::NONE;
            for (first, len) in ranges {
                list.push(*first, first.wrapping_add(1 + u32::from(*len)));
            }
            Body::Ack(list)
        }
        Kind::Syn => Body::Syn(Syn {
            instance: number,
            payload_max,
            blocks,
            names: names(number),
        }),
        Kind::SynAck => Body::SynAck(SynAck {
            instance: number,
            peer_instance: !number,
            listened_port: number as u16,
            payload_max,
            blocks,
        }),
        Kind::Fin => Body::Fin,
        Kind::Reset => Body::Reset([ResetCode::Unknown, ResetCode::Refused, ResetCode::Aborted][number as usize % 3]),
        Kind::Probe => Body::Probe,
        Kind::Moved => Body::Moved(Moved {
            old_port: number as u16,
            instance: !number,
        }),
        Kind::Piece => {
            let offset = number as u16 % 1_000;
            let total = offset + payload.len() as u16 + (number >> 60) as u16;
            Body::Piece(Piece { offset, total, payload })
        }
    }
}

proptest! {
    #[test]
    fn m_hr2_what_is_written_is_read_as_it_was(
        kind in 0..12u8,
        header in any_header(),
        number: u64,
        payload in prop::collection::vec(any::<u8>(), 1..1_500),
        ranges in prop::collection::vec(any::<(u32, u16)>(), 0..=8),
        check: bool,
        cut in 1..1_600usize,
        flip in 0..16_000usize,
    ) {
        let kind = Kind::from_number(kind).unwrap();
        let header = fitting(header, kind);
        let body = body(kind, number, &payload, &ranges);
        let mut buffer = [0xff; 1_600];
        let len = emit(&mut buffer, &PATH, &header, &body, check).unwrap();
        let frame = &buffer[..len];
        let len_min = if header.bulk { BULK_FRAME_LEN_MIN } else { FRAME_LEN_MIN };
        prop_assert!(len >= len_min);
        let parsed = Frame::parse(frame, EtherType::ESP).unwrap();
        prop_assert_eq!((parsed.kind, parsed.header), (kind, header));
        prop_assert_eq!(parsed.body(check), Ok(body));
        prop_assert_eq!((parsed.destination, parsed.source), (PATH.destination, PATH.source));
        if kind == Kind::Data && payload.len() > COUNTED_PAYLOAD_MAX && header.window.is_none() && !header.bulk && !check {
            prop_assert_eq!(len, HEAD_LEN + payload.len(), "13 bytes beyond Ethernet's header");
        }
        // Too small a buffer is an error.
        prop_assert!(emit(&mut [0; 1_600][..len - 1], &PATH, &header, &body, check).is_err());
        // A check sequence finds what was cut off or changed.
        if check && kind.is_checked() {
            let mut changed = frame.to_vec();
            let at = 14 + flip / 8 % (len - 14);
            changed[at] ^= 1 << (flip % 8);
            let padding_from = HEAD_LEN + CHECK_LEN;
            if let Ok(other) = Frame::parse(&changed, EtherType::ESP)
                && other.kind.is_checked()
                && other.body(true).is_ok()
            {
                prop_assert!(at >= padding_from && len == len_min, "bit {} of byte {}", flip % 8, at);
            }
            if len > len_min {
                let short = &frame[..len - 1 - cut % (len - len_min)];
                let passes = Frame::parse(short, EtherType::ESP).is_ok_and(|short| short.body(true).is_ok());
                prop_assert!(!passes, "cut to {} of {}", short.len(), len);
            }
        }
    }

    #[test]
    fn any_bytes_behind_a_header_are_a_body_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..120), check: bool) {
        let mut frame = vec![0; 14];
        frame[12..14].copy_from_slice(&EtherType::ESP.0.to_be_bytes());
        frame.extend(bytes);
        if let Ok(parsed) = Frame::parse(&frame, EtherType::ESP)
            && let Ok(body) = parsed.body(check)
        {
            prop_assert_eq!(body.kind(), parsed.kind);
        }
    }
}
