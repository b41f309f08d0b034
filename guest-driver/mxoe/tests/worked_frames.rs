//! The worked frames of `mxoe-wire.md` section 14, in `tests/frames`: from hex to values and from values to the same hex.

use ether::MacAddr;
use mxoe::wire::{
    Ack, Announcement, Connect, ConnectKind, Dialect, Eager, HOST_MAGIC_FIRST, Head, HostQuery, HostReply, Medium,
    NackCode, NackLib, NackMcp, Notify, Packet, Preset, Pull, PullReply, Raw, Rndv, Sizes, pull_magic,
};

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0a]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0b]);
const SESSION_A: u32 = 0xa1b2_c3d4;
const SESSION_B: u32 = 0x0bad_cafe;
const MATCH: u64 = 0x0123_4567_89ab_cdef;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn a_to_b(peer_index: u16) -> Head {
    Head {
        dst: B,
        src: A,
        peer_index,
        marked: false,
    }
}

fn b_to_a(peer_index: u16) -> Head {
    Head {
        dst: A,
        src: B,
        peer_index,
        marked: false,
    }
}

/// `text` is the frame without its padding; data after the header may be left out of it.
#[track_caller]
fn check_round_trip(dialect: Dialect, text: &str, head: Head, packet: Packet<'_>) {
    let mut frame = hex(text);
    let header_len = dialect.header_len(packet.packet_type());
    if frame.len() == header_len {
        frame.extend_from_slice(packet.data());
    }
    if frame.len() < 60 {
        frame.resize(60, 0);
    }
    if let Packet::HostReply(reply) = packet {
        frame.resize(60 + reply.name.len() + 1, 0);
    }
    assert_eq!(dialect.decode(&frame), Ok((head, packet)));
    let mut out = [0xee; 9000];
    let len = dialect.emit(&head, &packet, &mut out).unwrap();
    assert_eq!(out[..len], frame[..], "emitted frame differs from the worked one");

    let mut header = [0; 60];
    assert_eq!(dialect.emit_header(&head, &packet, &mut header), Ok(header_len));
    assert_eq!(header[..header_len], frame[..header_len]);
}

fn every_dialect() -> [Dialect; 3] {
    Preset::ALL.map(|preset| Dialect::new(preset.sizes()))
}

#[test]
fn packets_that_are_alike_in_all_modes_match_the_worked_frames() {
    for d in every_dialect() {
        check_round_trip(
            d,
            include_str!("frames/host_query.hex"),
            a_to_b(0),
            Packet::HostQuery(HostQuery {
                peer_index: 5,
                magic: HOST_MAGIC_FIRST,
            }),
        );
        check_round_trip(
            d,
            include_str!("frames/host_reply.hex"),
            b_to_a(0),
            Packet::HostReply(HostReply {
                peer_index: 7,
                magic: HOST_MAGIC_FIRST,
                name: b"nodeB:0",
            }),
        );
        check_round_trip(
            d,
            include_str!("frames/connect_request.hex"),
            a_to_b(7),
            Packet::Connect(Connect {
                dst_endpoint: 1,
                src_endpoint: 3,
                seqnum: 0,
                peer_index: 5,
                src_session: SESSION_A,
                recv_seqnum_start: 1,
                connect_seqnum: 0,
                kind: ConnectKind::Request { key: 0x1234_5678 },
                extension: None,
            }),
        );
        check_round_trip(
            d,
            include_str!("frames/connect_reply.hex"),
            b_to_a(5),
            Packet::Connect(Connect {
                dst_endpoint: 3,
                src_endpoint: 1,
                seqnum: 0,
                peer_index: 7,
                src_session: SESSION_A,
                recv_seqnum_start: 1,
                connect_seqnum: 0,
                kind: ConnectKind::Reply {
                    session: SESSION_B,
                    status: 0,
                },
                extension: None,
            }),
        );
        check_round_trip(
            d,
            include_str!("frames/tiny.hex"),
            a_to_b(7),
            Packet::Tiny(Eager {
                dst_endpoint: 1,
                src_endpoint: 3,
                seqnum: 1,
                piggyack: 1,
                match_info: MATCH,
                session: SESSION_B,
                data: b"hello",
            }),
        );
        check_round_trip(
            d,
            include_str!("frames/liback.hex"),
            b_to_a(5),
            Packet::Ack(Ack {
                dst_endpoint: 3,
                src_endpoint: 1,
                session: SESSION_A,
                ack: 2,
                session_id: SESSION_A,
                acknum: 1,
                send_seq: 2,
                resent: 0,
            }),
        );
        check_round_trip(
            d,
            include_str!("frames/rndv.hex"),
            a_to_b(7),
            Packet::Rndv(Rndv {
                dst_endpoint: 1,
                src_endpoint: 3,
                seqnum: 3,
                piggyack: 1,
                match_info: MATCH,
                session: SESSION_B,
                msg_length: 1_000_000,
                rdma_id: 4,
                rdma_seqnum: 0x17,
                rdma_offset: 0,
                head: &[],
            }),
        );
        check_round_trip(
            d,
            include_str!("frames/notify.hex"),
            b_to_a(5),
            Packet::Notify(Notify {
                dst_endpoint: 3,
                src_endpoint: 1,
                session: SESSION_A,
                total_length: 1_000_000,
                rdma_id: 4,
                rdma_seqnum: 0x17,
                seqnum: 1,
                piggyack: 4,
            }),
        );
        check_round_trip(
            d,
            include_str!("frames/nack_lib.hex"),
            b_to_a(5),
            Packet::NackLib(NackLib {
                src_endpoint: 1,
                dst_endpoint: 3,
                code: NackCode::EndpointClosed,
                peer_index: 5,
                seqnum: 4,
            }),
        );
        check_round_trip(
            d,
            include_str!("frames/nack_mcp.hex"),
            a_to_b(7),
            Packet::NackMcp(NackMcp {
                src_endpoint: 1,
                code: NackCode::BadRdmaWindow,
                handle: 0x23,
                magic: pull_magic(1),
            }),
        );
    }
}

#[test]
fn board_announcement_matches_the_worked_frame() {
    let announcement = Announcement {
        board: A.to_u64(),
        serial: 0x6b8b_4567,
    };
    let payload = announcement.to_payload();
    let head = Head {
        dst: MacAddr::BROADCAST,
        src: A,
        peer_index: 0,
        marked: false,
    };
    check_round_trip(
        Dialect::new(Preset::Native9000.sizes()),
        include_str!("frames/announcement.hex"),
        head,
        Packet::Raw(Raw { payload: &payload }),
    );
    assert_eq!(Announcement::from_payload(&payload), Some(announcement));
    let mut foreign = payload;
    foreign[15] = 1;
    assert_eq!(
        Announcement::from_payload(&foreign),
        None,
        "a board address has 48 bits"
    );
    assert_eq!(Announcement::from_payload(&payload[..46]), None);
}

fn medium(length: u32, frag_seqnum: u8, frag_pipeline: u8, data: &[u8]) -> Medium<'_> {
    Medium {
        dst_endpoint: 1,
        src_endpoint: 3,
        length,
        seqnum: 2,
        piggyack: 1,
        match_info: MATCH,
        session: SESSION_B,
        frag_seqnum,
        frag_pipeline,
        data,
    }
}

fn pull(block_length: u32, frame_index: u32) -> Pull {
    Pull {
        dst_endpoint: 3,
        src_endpoint: 1,
        session: SESSION_A,
        total_length: 1_000_000,
        rdma_id: 4,
        rdma_seqnum: 0x17,
        rdma_offset: 0,
        handle: 0x23,
        magic: pull_magic(1),
        first_frame_offset: 0,
        block_length,
        frame_index,
    }
}

#[test]
fn wire_mode_matches_the_worked_frames() {
    let d = Dialect::new(Preset::Wire.sizes());
    let data = [0x5a; 4096];
    check_round_trip(
        d,
        include_str!("frames/wire_medium_1.hex"),
        a_to_b(7),
        Packet::Medium(medium(10_000, 1, 12, &data)),
    );
    check_round_trip(
        d,
        include_str!("frames/wire_pull_0.hex"),
        b_to_a(5),
        Packet::Pull(pull(0x8000, 0)),
    );
    check_round_trip(
        d,
        include_str!("frames/wire_pull_1.hex"),
        b_to_a(5),
        Packet::Pull(pull(0x8000, 8)),
    );
    check_round_trip(
        d,
        include_str!("frames/wire_pull_reply_9.hex"),
        a_to_b(0),
        Packet::PullReply(PullReply {
            frame_seqnum: 9,
            msg_offset: 9 * 4096,
            handle: 0x23,
            magic: pull_magic(1),
            data: &data,
        }),
    );
}

#[test]
fn native_mode_matches_the_worked_frames() {
    let d = Dialect::new(Preset::Native9000.sizes());
    let data = [0x5a; 8968];
    check_round_trip(
        d,
        include_str!("frames/native_9000_medium_1.hex"),
        a_to_b(7),
        Packet::Medium(medium(10_000, 1, 0, &data[..0x710])),
    );
    check_round_trip(
        d,
        include_str!("frames/native_9000_pull_0.hex"),
        b_to_a(5),
        Packet::Pull(pull(0x46100, 0)),
    );
    check_round_trip(
        d,
        include_str!("frames/native_9000_pull_1.hex"),
        b_to_a(5),
        Packet::Pull(pull(0x46100, 0x20)),
    );
    check_round_trip(
        d,
        include_str!("frames/native_9000_pull_reply_33.hex"),
        a_to_b(0),
        Packet::PullReply(PullReply {
            frame_seqnum: 33,
            msg_offset: 33 * 8968,
            handle: 0x23,
            magic: pull_magic(1),
            data: &data,
        }),
    );
}

#[test]
fn sizes_are_those_of_section_3() {
    let table = |preset: Preset| {
        let s = preset.sizes();
        [
            s.frame_len_max(),
            s.reply_payload(),
            s.fragment_payload(),
            s.block_frames(),
            s.block_len(),
            s.medium_len_max(),
        ]
    };
    assert_eq!(table(Preset::Wire), [4144, 4096, 4096, 8, 32_768, 32_768]);
    assert_eq!(table(Preset::Native9000), [9000, 8968, 8192, 32, 286_976, 262_144]);
    assert_eq!(table(Preset::Native1500), [1500, 1468, 1452, 32, 46_976, 46_464]);
    assert_eq!(Preset::Native1500.sizes().fragments_of(32 * 1024), 23);
    assert_eq!(5 * Preset::Native1500.sizes().block_len(), 234_880);
    // The steps of the rule for M.
    let fragment = |mtu| Sizes::native(mtu, 32).unwrap().fragment_payload();
    assert_eq!([4144, 4145, 8239, 8240].map(fragment), [4096, 4096, 4096, 8192]);
    assert!(Sizes::native(255, 32).is_err() && Sizes::native(65_536, 32).is_err());
    assert!(Sizes::native(1500, 24).is_err() && Sizes::native(1500, 128).is_err());
}

#[test]
fn a_pull_of_a_million_bytes_takes_the_blocks_and_frames_of_section_14() {
    for (preset, expected) in [
        (Preset::Wire, (31, 245)),
        (Preset::Native9000, (4, 112)),
        (Preset::Native1500, (22, 682)),
    ] {
        let sizes = preset.sizes();
        let (mut blocks, mut frames, mut rest) = (0, 0, 1_000_000);
        while rest > 0 {
            let length = rest.min(sizes.block_len());
            frames += pull(length, frames).frames(&sizes).unwrap();
            rest -= length;
            blocks += 1;
        }
        assert_eq!((blocks, frames), expected, "{preset}");
    }
}
