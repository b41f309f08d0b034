//! Promises over generated packets and arbitrary bytes: round trips, padding, marks, refusals; never a panic.

use ether::{EtherType, MacAddr};
use mxoe::wire::{
    Ack, Connect, ConnectKind, Dialect, Eager, EmitError, Extension, FRAGMENTS_MAX, Head, HostQuery, HostReply, Medium,
    Mode, NackCode, NackLib, NackMcp, Notify, Packet, PacketType, Preset, Pull, PullReply, PullShapeError,
    RNDV_HEAD_MAX, Raw, Rndv, WireError, clear_mark, endpoint_of_pull_magic, is_marked, pull_magic, set_mark,
};
use proptest::prelude::*;

/// Fields of any packet, before they are forced into one type's limits.
type Fields = ([u8; 8], [u16; 4], [u32; 8], u64, usize, Vec<u8>);

fn fields() -> impl Strategy<Value = Fields> {
    let bytes = any::<u64>().prop_map(|seed| {
        let mut state = seed | 1;
        let next = std::iter::repeat_with(move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        next.take(9000).collect()
    });
    (
        any::<[u8; 8]>(),
        any::<[u16; 4]>(),
        any::<[u32; 8]>(),
        any::<u64>(),
        any::<usize>(),
        bytes,
    )
}

fn dialect() -> impl Strategy<Value = Dialect> {
    (prop::sample::select(&Preset::ALL[..]), any::<bool>())
        .prop_map(|(preset, marks)| Dialect::new(preset.sizes()).with_marks(marks))
}

fn head() -> impl Strategy<Value = Head> {
    (any::<[u8; 6]>(), any::<[u8; 6]>(), any::<u16>(), any::<bool>()).prop_map(|(dst, src, peer_index, marked)| Head {
        dst: MacAddr(dst),
        src: MacAddr(src),
        peer_index,
        marked,
    })
}

fn packet<'a>(dialect: &Dialect, kind: PacketType, (b, h, w, match_info, at, bytes): &'a Fields) -> Packet<'a> {
    let sizes = dialect.sizes();
    let wire = sizes.mode() == Mode::Wire;
    let narrow = |value: u32, bits: u32| if wire { value & ((1 << bits) - 1) } else { value };
    let eager = |len_max: usize| Eager {
        dst_endpoint: b[0],
        src_endpoint: b[1],
        seqnum: h[0],
        piggyack: h[1],
        match_info: *match_info,
        session: w[0],
        data: &bytes[..at % (len_max + 1)],
    };
    match kind {
        // Long enough that no padding is added, which would be part of the payload when it is read back.
        PacketType::Raw => Packet::Raw(Raw {
            payload: &bytes[..43 + at % (1024 - 17 - 43 + 1)],
        }),
        PacketType::HostQuery => Packet::HostQuery(HostQuery {
            peer_index: h[0],
            magic: w[0],
        }),
        PacketType::HostReply => {
            let name = &bytes[..at % 80];
            let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
            Packet::HostReply(HostReply {
                peer_index: h[0],
                magic: w[0],
                name,
            })
        }
        PacketType::Truc => Packet::Ack(Ack {
            dst_endpoint: b[0],
            src_endpoint: b[1],
            session: w[0],
            ack: h[0],
            session_id: w[1],
            acknum: w[2],
            send_seq: h[1],
            resent: b[2],
        }),
        PacketType::Connect => Packet::Connect(Connect {
            dst_endpoint: b[0],
            src_endpoint: b[1],
            seqnum: h[0],
            peer_index: h[1],
            src_session: w[0],
            recv_seqnum_start: h[2],
            connect_seqnum: b[2],
            kind: if b[3] & 1 == 0 {
                ConnectKind::Request { key: w[1] }
            } else {
                ConnectKind::Reply {
                    session: w[1],
                    status: b[4],
                }
            },
            extension: (b[3] & 2 == 0).then_some(Extension {
                flags: b[5],
                block_frames_log2: b[6],
                preset: b[7],
            }),
        }),
        PacketType::Tiny => Packet::Tiny(eager(32)),
        PacketType::Small => Packet::Small(eager(128)),
        PacketType::Medium => {
            let size = sizes.fragment_payload();
            let length_max = (size * FRAGMENTS_MAX).min(if wire { 65_535 } else { u32::MAX });
            let length = w[1] % (length_max + 1);
            let frag_seqnum = (at % sizes.fragments_of(length) as usize) as u32;
            let len = (length - frag_seqnum * size).min(size) as usize;
            Packet::Medium(Medium {
                dst_endpoint: b[0],
                src_endpoint: b[1],
                length,
                seqnum: h[0],
                piggyack: h[1],
                match_info: *match_info,
                session: w[0],
                frag_seqnum: frag_seqnum as u8,
                frag_pipeline: Medium::pipeline_of(sizes),
                data: &bytes[..len],
            })
        }
        PacketType::Rndv => Packet::Rndv(Rndv {
            dst_endpoint: b[0],
            src_endpoint: b[1],
            seqnum: h[0],
            piggyack: h[1],
            match_info: *match_info,
            session: w[0],
            msg_length: w[1],
            rdma_id: b[2],
            rdma_seqnum: b[3],
            rdma_offset: h[2],
            head: &bytes[..at % (RNDV_HEAD_MAX + 1)],
        }),
        PacketType::Pull => Packet::Pull(Pull {
            dst_endpoint: b[0],
            src_endpoint: b[1],
            session: w[0],
            total_length: w[1],
            rdma_id: narrow(w[2], 8),
            rdma_seqnum: b[2],
            rdma_offset: narrow(w[3], 16),
            handle: w[4],
            magic: w[5],
            first_frame_offset: narrow(w[6], 16),
            block_length: narrow(w[7], 16),
            frame_index: w[1].rotate_left(7),
        }),
        PacketType::PullReply => Packet::PullReply(PullReply {
            frame_seqnum: b[0],
            msg_offset: w[0],
            handle: w[1],
            magic: w[2],
            data: &bytes[..at % (sizes.reply_payload() as usize + 1)],
        }),
        PacketType::Notify => Packet::Notify(Notify {
            dst_endpoint: b[0],
            src_endpoint: b[1],
            session: w[0],
            total_length: w[1],
            rdma_id: b[2],
            rdma_seqnum: b[3],
            seqnum: h[0],
            piggyack: h[1],
        }),
        PacketType::NackLib => Packet::NackLib(NackLib {
            src_endpoint: b[0],
            dst_endpoint: b[1],
            code: NackCode::from_code(1 + b[2] % 3).unwrap(),
            peer_index: h[0],
            seqnum: h[1],
        }),
        PacketType::NackMcp => Packet::NackMcp(NackMcp {
            src_endpoint: b[0],
            code: NackCode::from_code(1 + b[2] % 4).unwrap(),
            handle: w[0],
            magic: w[1],
        }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_packet_comes_back_from_its_frame(
        dialect in dialect(), head in head(), kind in prop::sample::select(&PacketType::ALL[..]), fields in fields(),
        garbage in any::<u8>(),
    ) {
        let packet = packet(&dialect, kind, &fields);
        let mut buffer = [garbage; 9100];
        let len = dialect.emit(&head, &packet, &mut buffer).unwrap();
        prop_assert_eq!(len, dialect.frame_len(&packet));
        prop_assert!(len >= 60 && len <= dialect.sizes().frame_len_max() as usize);
        let frame = &buffer[..len];
        let expected = Head { marked: head.marked && dialect.marks(), ..head };
        prop_assert_eq!(dialect.decode(frame), Ok((expected, packet)));
        prop_assert_eq!(is_marked(frame), expected.marked);

        // Without padding it still decodes; one byte less than that and it does not.
        let exact = dialect.header_len(kind) + packet.data().len() + usize::from(kind == PacketType::HostReply);
        prop_assert_eq!(dialect.decode(&frame[..exact]), Ok((expected, packet)));
        if kind != PacketType::Raw {
            let cut = dialect.decode(&frame[..exact - 1]);
            prop_assert!(matches!(cut, Err(WireError::HeaderTooShort | WireError::Truncated)), "{:?}", cut);
        }
        prop_assert_eq!(
            dialect.emit(&head, &packet, &mut buffer[..len - 1]),
            Err(EmitError::BufferTooSmall { needed: len })
        );
    }

    #[test]
    fn arbitrary_bytes_are_decoded_or_refused_and_decoding_is_stable(
        dialect in dialect(), code in any::<u8>(), len in 0..200_usize, mut bytes in prop::collection::vec(any::<u8>(), 200),
    ) {
        bytes[12..14].copy_from_slice(&EtherType::MXOE.0.to_be_bytes());
        // Small numbers make lengths plausible often enough to reach the code behind the checks.
        bytes[16] = if code & 1 == 0 { code >> 1 } else { 0x80 | (code >> 1) };
        for at in [17, 20, 40, 60] { bytes[at] %= 64; }
        if let Ok((head, packet)) = dialect.decode(&bytes[..len]) {
            let mut out = [0; 1500];
            let written = dialect.emit(&head, &packet, &mut out).unwrap();
            let (head_again, packet_again) = dialect.decode(&out[..written]).unwrap();
            prop_assert_eq!(head_again, head);
            if let (Packet::Raw(was), Packet::Raw(is)) = (packet, packet_again) {
                prop_assert!(is.payload.starts_with(was.payload));
            } else {
                prop_assert_eq!(packet_again, packet);
            }
        }
        if let Ok(view) = dialect.view(&bytes[..len]) {
            let _ = view.destination_endpoint();
        }
        let _ = dialect.decode(&bytes[17..len.max(17)]);
    }

    #[test]
    fn fragments_without_a_place_in_their_message_are_refused(
        dialect in dialect(), fields in fields(), length in 0..400_000_u32, frag in 0..40_u8, len in 0..9000_usize,
    ) {
        let Packet::Medium(medium) = packet(&dialect, PacketType::Medium, &fields) else { unreachable!() };
        let wrong = Medium { length, frag_seqnum: frag, data: &fields.5[..len], ..medium };
        let size = u64::from(dialect.sizes().fragment_payload());
        let offset = u64::from(frag) * size;
        let last = offset + len as u64 == u64::from(length);
        let placed = u32::from(frag) < FRAGMENTS_MAX
            && u64::from(length) <= size * u64::from(FRAGMENTS_MAX)
            && (len as u64 == size && offset + size <= u64::from(length) || last && len as u64 <= size)
            && (frag == 0 || len > 0)
            && (dialect.sizes().mode() == Mode::Native || length <= 65_535);
        let head = Head { dst: MacAddr([2; 6]), src: MacAddr([4; 6]), peer_index: 0, marked: false };
        prop_assert_eq!(dialect.emit(&head, &Packet::Medium(wrong), &mut [0; 9100]).is_ok(), placed);
    }

    #[test]
    fn a_pull_asks_for_one_to_n_frames_or_is_refused(
        dialect in dialect(), fields in fields(), first in 0..20_000_u32, length in any::<u32>(), small in any::<bool>(),
    ) {
        let Packet::Pull(pull) = packet(&dialect, PacketType::Pull, &fields) else { unreachable!() };
        let length = if small { length % 300_000 } else { length };
        let pull = Pull { first_frame_offset: first, block_length: length, ..pull };
        let sizes = dialect.sizes();
        let (f, n) = (u64::from(sizes.reply_payload()), u64::from(sizes.block_frames()));
        match pull.frames(sizes) {
            Ok(frames) => {
                prop_assert!((1..=n).contains(&u64::from(frames)) && u64::from(first) < f && length > 0);
                let covered = u64::from(frames) * f;
                let wanted = u64::from(first) + u64::from(length);
                prop_assert!(covered >= wanted && covered - wanted < f);
            }
            Err(PullShapeError::BadReplies) => prop_assert!(u64::from(first) + u64::from(length) > n * f),
            Err(PullShapeError::BadOffsetLength) => prop_assert!(u64::from(first) >= f || length == 0),
        }
    }

    #[test]
    fn the_mark_is_one_bit_of_mxoe_frames_and_of_nothing_else(mut frame in prop::collection::vec(any::<u8>(), 0..64)) {
        let before = frame.clone();
        let mxoe = frame.len() > 16 && frame[12..14] == [0x86, 0xdf];
        set_mark(&mut frame);
        prop_assert_eq!(is_marked(&frame), mxoe);
        if !mxoe { prop_assert_eq!(&frame, &before); }
        clear_mark(&mut frame);
        prop_assert!(!is_marked(&frame));
        if frame.len() > 16 {
            frame[12..14].copy_from_slice(&[0x86, 0xdf]);
            set_mark(&mut frame);
            prop_assert_eq!(frame[16], before[16] | 0x80);
        }
    }
}

#[test]
fn without_marking_a_marked_frame_is_of_unknown_type() {
    let marking = Dialect::new(Preset::Native1500.sizes()).with_marks(true);
    let query = Packet::HostQuery(HostQuery {
        peer_index: 1,
        magic: 2,
    });
    let head = Head {
        dst: MacAddr([2; 6]),
        src: MacAddr([4; 6]),
        peer_index: 0,
        marked: true,
    };
    let mut frame = [0; 60];
    marking.emit(&head, &query, &mut frame).unwrap();
    assert_eq!(marking.decode(&frame), Ok((head, query)));
    assert_eq!(
        marking.with_marks(false).decode(&frame),
        Err(WireError::UnknownType(0x83))
    );
}

#[test]
fn every_refusal_names_its_counter() {
    let d = Dialect::new(Preset::Native1500.sizes());
    let frame = |code: u8, body: &[(usize, u8)], len: usize| {
        let mut bytes = vec![0_u8; len];
        bytes[12..14].copy_from_slice(&[0x86, 0xdf]);
        bytes[16] = code;
        for (offset, value) in body {
            bytes[16 + offset] = *value;
        }
        d.decode(&bytes).map(|_| ()).map_err(|error| (error, error.counter()))
    };
    assert_eq!(frame(37, &[], 39), Err((WireError::HeaderTooShort, Some(49))));
    assert_eq!(frame(37, &[(5, 33)], 100), Err((WireError::BadLength, Some(50))));
    assert_eq!(frame(38, &[(5, 129)], 200), Err((WireError::BadLength, Some(50))));
    assert_eq!(frame(38, &[(5, 128)], 167), Err((WireError::Truncated, Some(51))));
    assert_eq!(frame(40, &[(5, 7)], 60), Err((WireError::BadLength, Some(50))));
    assert_eq!(frame(36, &[(4, 15)], 60), Err((WireError::BadLength, Some(50))));
    assert_eq!(frame(4, &[(1, 0)], 60), Err((WireError::BadLength, Some(50))));
    assert_eq!(frame(4, &[(1, 81)], 200), Err((WireError::BadLength, Some(50))));
    assert_eq!(frame(1, &[], 1024), Ok(()));
    assert_eq!(frame(1, &[], 1025), Err((WireError::RawTooLarge, Some(68))));
    for code in [2, 32, 33, 34] {
        assert_eq!(frame(code, &[], 60), Err((WireError::InvalidType(code), Some(70))));
    }
    for code in [0, 5, 31, 46, 127, 165, 255] {
        assert_eq!(frame(code, &[], 60), Err((WireError::UnknownType(code), Some(71))));
    }
    assert_eq!(
        frame(35, &[(4, 16), (12, 0x54)], 60),
        Err((WireError::UnknownTruc(0x54), None))
    );
    for (kind, code) in [(44, 0), (44, 4), (45, 0), (45, 5), (45, 6)] {
        assert_eq!(frame(kind, &[(3, code)], 60), Err((WireError::UnknownNack(code), None)));
    }
    assert_eq!(d.decode(&[0; 60]), Err(WireError::NotMxoe));
    assert_eq!(d.decode(&[]), Err(WireError::NotMxoe));
}

#[test]
fn wire_mode_takes_the_fragment_size_it_received() {
    let d = Dialect::new(Preset::Wire.sizes());
    let medium = Medium {
        dst_endpoint: 0,
        src_endpoint: 0,
        length: 3000,
        seqnum: 1,
        piggyack: 1,
        match_info: 0,
        session: 0,
        frag_seqnum: 2,
        frag_pipeline: 10,
        data: &[7; 952],
    };
    assert_eq!((medium.offset(d.sizes()), medium.is_last(d.sizes())), (2048, true));
    let head = Head {
        dst: MacAddr([2; 6]),
        src: MacAddr([4; 6]),
        peer_index: 0,
        marked: false,
    };
    let mut frame = [0; 1500];
    let len = d.emit(&head, &Packet::Medium(medium), &mut frame).unwrap();
    assert_eq!(d.decode(&frame[..len]), Ok((head, Packet::Medium(medium))));
    for pipeline in 13..=255 {
        frame[16 + 27] = pipeline;
        assert_eq!(d.decode(&frame[..len]).unwrap_err(), WireError::BadLength);
    }
}

#[test]
fn the_steering_positions_of_section_1_5_give_the_endpoint() {
    for preset in Preset::ALL {
        let d = Dialect::new(preset.sizes()).with_marks(true);
        for endpoint in [0, 1, 31, 0x7f, 0x80, 255] {
            let bytes: Fields = ([endpoint; 8], [1; 4], [pull_magic(endpoint); 8], 0, 0, vec![0; 9000]);
            for kind in PacketType::ALL {
                let mut frame = [0; 9100];
                let head = Head {
                    dst: MacAddr([2; 6]),
                    src: MacAddr([4; 6]),
                    peer_index: 0,
                    marked: true,
                };
                let len = d.emit(&head, &packet(&d, kind, &bytes), &mut frame).unwrap();
                let found = d.view(&frame[..len]).unwrap().destination_endpoint();
                let none = matches!(kind, PacketType::Raw | PacketType::HostQuery | PacketType::HostReply);
                assert_eq!(found, (!none).then_some(endpoint), "{kind}");
            }
        }
    }
}

#[test]
fn all_32_bits_of_a_pull_magic_are_verified() {
    for endpoint in 0..=255 {
        assert_eq!(endpoint_of_pull_magic(pull_magic(endpoint)), Some(endpoint));
    }
    assert_eq!(pull_magic(1), 0x2107_1981);
    for bit in 8..32 {
        assert_eq!(endpoint_of_pull_magic(pull_magic(3) ^ (1 << bit)), None);
    }
}
