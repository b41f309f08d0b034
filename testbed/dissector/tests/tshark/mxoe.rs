//! Tests the MXoE part of the dissector against `mxoe::wire`, on thousands of generated frames, good ones and bad ones.

use std::collections::BTreeMap;

use crate::{
    common::{Fields, Numbers, number, tshark},
    expected,
};
use ::mxoe::wire::{Announcement, Dialect, Eager, Head, Medium, Mode, Packet, PacketType, Preset, PullShapeError, Raw};
use ether::MacAddr;

const EXPERT: &str = "_ws.expert.message";
const FIELDS: &[&str] = &[
    EXPERT,
    "mxoe.peer_index",
    "mxoe.type",
    "mxoe.mark",
    "mxoe.dst_endpoint",
    "mxoe.src_endpoint",
    "mxoe.src_generation",
    "mxoe.seqnum",
    "mxoe.seq_number",
    "mxoe.seq_session",
    "mxoe.piggyack",
    "mxoe.match_info",
    "mxoe.session",
    "mxoe.length",
    "mxoe.data_length",
    "mxoe.msg_length",
    "mxoe.frag_seqnum",
    "mxoe.frag_pipeline",
    "mxoe.frag_offset",
    "mxoe.frag_last",
    "mxoe.rdma_id",
    "mxoe.rdma_seqnum",
    "mxoe.rdma_offset",
    "mxoe.total_length",
    "mxoe.handle",
    "mxoe.handle_slot",
    "mxoe.handle_generation",
    "mxoe.magic",
    "mxoe.pull_endpoint",
    "mxoe.first_frame_offset",
    "mxoe.block_length",
    "mxoe.frame_index",
    "mxoe.block_frames",
    "mxoe.pull_block",
    "mxoe.frame",
    "mxoe.frame_seqnum",
    "mxoe.msg_offset",
    "mxoe.src_session",
    "mxoe.is_reply",
    "mxoe.key",
    "mxoe.target_session",
    "mxoe.recv_seqnum_start",
    "mxoe.connect_seqnum",
    "mxoe.status",
    "mxoe.src_dst_peer_index",
    "mxoe.extension",
    "mxoe.ext_mark",
    "mxoe.ext_short_ack",
    "mxoe.ext_block_frames_log2",
    "mxoe.ext_preset",
    "mxoe.truc_type",
    "mxoe.ack",
    "mxoe.session_id",
    "mxoe.acknum",
    "mxoe.send_seq",
    "mxoe.resent",
    "mxoe.nack_code",
    "mxoe.name",
    "mxoe.data",
    "mxoe.board",
    "mxoe.serial",
];

/// Number of frames generated for all presets together.
const FRAMES: usize = 100_000;
/// Number of reasons of `WireError` that a frame with our EtherType can give, and the two of `PullShapeError`.
const REASONS: usize = 8 + 2;
const EXPERT_BAD_REPLIES: &str = "bad replies";
const EXPERT_BAD_RANGE: &str = "bad offset or length";

/// Makes a frame whose length fields are plausible more often than not.
fn frame(numbers: &mut Numbers, dialect: &Dialect) -> Vec<u8> {
    let sizes = dialect.sizes();
    let kind = PacketType::ALL[numbers.below(PacketType::ALL.len())];
    let mut bytes = numbers.bytes(16 + 32 + 200);
    bytes[12..14].copy_from_slice(&dialect.ether_type().0.to_be_bytes());
    // Addresses of groups never send, and tshark would remark upon one that does.
    bytes[6] &= !1;
    bytes[16] = kind.code() | if numbers.below(2) == 0 { 0x80 } else { 0 };
    let mut len = dialect.header_len(kind);
    let body = &mut bytes[16..];
    match kind {
        PacketType::Tiny | PacketType::Small => {
            let max = if kind == PacketType::Tiny { 32 } else { 128 };
            let length = numbers.below(max + 1 + max / 8);
            body[4..6].copy_from_slice(&(length as u16).to_be_bytes());
            len += length;
        }
        PacketType::Medium => {
            let size = sizes.fragment_payload() as usize;
            let count = numbers.below(if sizes.mode() == Mode::Wire { 8 } else { 32 }) + 1;
            let length = (count - 1) * size + numbers.below(size + 1);
            let frag = numbers.below(count + 1);
            let frag_length = length.saturating_sub(frag * size).min(size) + usize::from(numbers.below(8) == 0);
            if sizes.mode() == Mode::Wire {
                body[4..6].copy_from_slice(&(length as u16).to_be_bytes());
                body[27] = if numbers.below(8) == 0 {
                    numbers.below(20) as u8
                } else {
                    12
                };
            } else {
                body[4..8].copy_from_slice(&(length as u32).to_be_bytes());
            }
            body[24..26].copy_from_slice(&(frag_length as u16).to_be_bytes());
            body[26] = frag as u8 + if numbers.below(8) == 0 { 30 } else { 0 };
            len += frag_length;
        }
        PacketType::Rndv => body[4..6].copy_from_slice(&(5 + numbers.below(20) as u16).to_be_bytes()),
        PacketType::Connect => {
            body[4] = 12 + numbers.below(12) as u8;
            body[26] = numbers.below(3) as u8;
            if numbers.below(2) == 0 {
                body[12..16].copy_from_slice(b"WFT1");
            }
        }
        PacketType::Truc => {
            body[4] = 12 + numbers.below(12) as u8;
            body[12] = if numbers.below(8) == 0 { 0x54 } else { 0x55 };
        }
        PacketType::Pull => {
            let at = if sizes.mode() == Mode::Wire { 24..28 } else { 32..40 };
            let half = at.len() / 2;
            let first = numbers.below(sizes.reply_payload() as usize * 9 / 8) as u32;
            let block = numbers.below(sizes.block_len() as usize * 9 / 8) as u32;
            let block = if numbers.below(16) == 0 { 0 } else { block };
            body[at.start..at.start + half].copy_from_slice(&first.to_be_bytes()[4 - half..]);
            body[at.start + half..at.end].copy_from_slice(&block.to_be_bytes()[4 - half..]);
            if numbers.below(2) == 0 {
                let magic = if sizes.mode() == Mode::Wire { 20 } else { 28 };
                body[magic..magic + 3].copy_from_slice(&[0x21, 0x07, 0x19]);
            }
        }
        PacketType::PullReply => {
            let length = numbers.below(sizes.reply_payload() as usize + 1);
            body[2..4].copy_from_slice(&(length as u16).to_be_bytes());
            len += length;
            if numbers.below(2) == 0 {
                body[12..15].copy_from_slice(&[0x21, 0x07, 0x19]);
            }
        }
        PacketType::NackLib | PacketType::NackMcp => body[3] = numbers.below(6) as u8,
        PacketType::HostReply => {
            let length = numbers.below(90);
            body[1] = length as u8;
            for byte in &mut body[16..] {
                *byte = b'a' + *byte % 26;
            }
            if length > 0 {
                body[16 + numbers.below(length)] = 0;
            }
            len += length;
        }
        PacketType::Raw => {
            len = 17 + numbers.below(1024);
            // This is the announcement of a board, or nearly.
            if numbers.below(4) == 0 {
                body[1..16].fill(0);
                body[16..18].fill(u8::from(numbers.below(8) == 0));
            }
        }
        PacketType::HostQuery | PacketType::Notify => {}
    }
    if numbers.below(20) == 0 {
        bytes[16] = numbers.number() as u8;
    }
    len += numbers.below(40);
    bytes.resize(len.max(bytes.len()), 0x5a);
    bytes.truncate(match numbers.below(6) {
        0 => 14 + numbers.below(len - 13),
        _ => len,
    });
    bytes
}

/// Fields that may be shown although the value does not have them: lengths and checksums that decoding checks or skips.
const UNCOMPARED: &[&str] = &["mxoe.length", "mxoe.data", EXPERT, "mxoe.name"];

/// Returns a byte of a name as the dissector shows it.
fn plain(byte: u8) -> char {
    match byte {
        b'\\' => '.',
        b' '..=b'~' => byte.into(),
        _ => '.',
    }
}

fn compare(dialect: &Dialect, bytes: &[u8], shown: &Fields) {
    let expert = shown.get(EXPERT).map(String::as_str);
    let (head, packet) = match dialect.decode(bytes) {
        Ok(decoded) => decoded,
        Err(error) => {
            assert_eq!(expert, Some(expected::expert(error)), "{error}");
            if let Some(byte) = bytes.get(16) {
                assert_eq!(number(shown, "mxoe.type"), Some(u64::from(byte & 0x7f)));
                assert_eq!(number(shown, "mxoe.mark"), Some(u64::from(byte >> 7)));
            }
            return;
        }
    };
    let shape = match packet {
        Packet::Pull(pull) => pull.frames(dialect.sizes()).err(),
        _ => None,
    };
    assert_eq!(
        expert,
        shape.map(|error| match error {
            PullShapeError::BadReplies => EXPERT_BAD_REPLIES,
            PullShapeError::BadOffsetLength => EXPERT_BAD_RANGE,
        })
    );
    let mut fields = expected::shown(dialect, &packet);
    fields.extend(expected::generation(&packet, bytes).map(|byte| ("src_generation", byte)));
    fields.extend([
        ("type", packet.packet_type().code().into()),
        ("mark", head.marked.into()),
        ("peer_index", head.peer_index.into()),
    ]);
    for (name, value) in &fields {
        let name = format!("mxoe.{name}");
        let found = match name.as_str() {
            "mxoe.board" => shown
                .get(&name)
                .map(|mac| mac.split('|').next_back().unwrap().parse::<MacAddr>().unwrap().to_u64()),
            _ => number(shown, &name),
        };
        assert_eq!(found, Some(*value), "{name}");
    }
    for name in shown.keys().filter(|name| !UNCOMPARED.contains(&name.as_str())) {
        assert!(
            fields
                .iter()
                .any(|(field, _)| name.strip_prefix("mxoe.") == Some(field)),
            "{name} is shown without need"
        );
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match packet {
        Packet::HostReply(p) => {
            assert_eq!(
                shown.get("mxoe.name").map_or("", |name| name.as_str()),
                p.name.iter().map(|byte| plain(*byte)).collect::<String>()
            );
        }
        _ if packet.data().is_empty() => assert_eq!(shown.get("mxoe.data"), None),
        _ => assert_eq!(
            shown.get("mxoe.data").map(|data| data.replace(':', "")),
            Some(hex(packet.data()))
        ),
    }
}

fn check(preset: Preset, seed: u64, count: usize) {
    let dialect = Dialect::new(preset.sizes()).with_marks(true);
    let mut numbers = Numbers(seed);
    let frames: Vec<(Vec<u8>, usize)> = (0..count)
        .map(|_| {
            let bytes = frame(&mut numbers, &dialect);
            let len = bytes.len();
            (bytes, len)
        })
        .collect();
    let rows = tshark(&frames, &[&format!("mxoe.preset:{preset}")], FIELDS);
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (number, ((bytes, _), shown)) in frames.iter().zip(&rows).enumerate() {
        let decoded = dialect.decode(bytes);
        let outcome = std::panic::catch_unwind(|| compare(&dialect, bytes, shown));
        assert!(
            outcome.is_ok(),
            "{preset}, seed {seed}, frame {number}: {bytes:02x?}\n{decoded:?}\n{shown:#?}"
        );
        let kind = match &decoded {
            Ok((head, packet)) => format!("{}{}", packet.packet_type(), if head.marked { " marked" } else { "" }),
            Err(error) => expected::expert(*error).to_owned(),
        };
        *seen.entry(kind).or_default() += 1;
        if let Some(EXPERT_BAD_REPLIES | EXPERT_BAD_RANGE) = shown.get(EXPERT).map(String::as_str) {
            *seen.entry(shown[EXPERT].clone()).or_default() += 1;
        }
    }
    // The counts are of every type, marked and not, and of every reason to drop a frame.
    println!("{preset}: {seen:?}");
    assert_eq!(seen.len(), 2 * PacketType::ALL.len() + REASONS, "{seen:?}");
    let rarest = seen.iter().min_by_key(|(_, count)| **count).unwrap();
    assert!(*rarest.1 >= count / 1000, "only {} frames are {}", rarest.1, rarest.0);
}

/// Runs a tenth of a million frames in all.
#[test]
fn every_generated_frame_is_read_as_our_decoder_reads_it() {
    for (seed, preset) in Preset::ALL.into_iter().enumerate() {
        check(preset, seed as u64 + 1, FRAMES / Preset::ALL.len() + 1);
    }
}

#[test]
fn a_board_announcement_is_named() {
    let dialect = Dialect::new(Preset::Native1500.sizes());
    let announcement = Announcement {
        board: 0x0200_0000_000a,
        serial: 0x6b8b_4567,
    };
    let payload = announcement.to_payload();
    let head = Head {
        dst: MacAddr::BROADCAST,
        src: MacAddr([2; 6]),
        peer_index: 0,
        marked: false,
    };
    let mut bytes = vec![0; 64];
    dialect
        .emit(&head, &Packet::Raw(Raw { payload: &payload }), &mut bytes)
        .unwrap();
    let rows = tshark(&[(bytes.clone(), 64)], &[], FIELDS);
    compare(&dialect.with_marks(true), &bytes, &rows[0]);
    assert_eq!(rows[0]["mxoe.serial"], "0x6b8b4567");
}

#[test]
fn frames_cut_by_the_capture_are_not_called_malformed() {
    let dialect = Dialect::new(Preset::Native1500.sizes()).with_marks(true);
    let data = [7; 1452];
    let packet = Packet::Medium(Medium {
        dst_endpoint: 1,
        src_endpoint: 3,
        length: 32_768,
        seqnum: 9,
        piggyack: 1,
        match_info: 5,
        session: 6,
        frag_seqnum: 21,
        frag_pipeline: 0,
        data: &data,
    });
    let head = Head {
        dst: MacAddr([2; 6]),
        src: MacAddr([4; 6]),
        peer_index: 7,
        marked: true,
    };
    let mut bytes = vec![0; 1500];
    dialect.emit(&head, &packet, &mut bytes).unwrap();
    let frames: Vec<_> = [1500, 64, 48, 47, 17, 16, 14]
        .into_iter()
        .map(|kept| (bytes.clone(), kept))
        .collect();
    let rows = tshark(&frames, &[], FIELDS);
    for row in &rows[..3] {
        assert_eq!(
            (row.get(EXPERT), number(row, "mxoe.frag_offset")),
            (None, Some(21 * 1452))
        );
    }
    for row in &rows[3..6] {
        assert_eq!(row.get(EXPERT).map(String::as_str), Some("cut by the capture"));
    }
}

#[test]
fn the_info_column_says_what_happens() {
    let dialect = Dialect::new(Preset::Native1500.sizes()).with_marks(true);
    let packet = Packet::Tiny(Eager {
        dst_endpoint: 1,
        src_endpoint: 3,
        seqnum: 1,
        piggyack: 2,
        match_info: 0x0123_4567_89ab_cdef,
        session: 0x0bad_cafe,
        data: b"hello",
    });
    let head = Head {
        dst: MacAddr([2; 6]),
        src: MacAddr([4; 6]),
        peer_index: 7,
        marked: true,
    };
    let mut bytes = vec![0; 60];
    dialect.emit(&head, &packet, &mut bytes).unwrap();
    let rows = tshark(&[(bytes, 60)], &[], &["_ws.col.Protocol", "_ws.col.Info"]);
    assert_eq!(rows[0]["_ws.col.Protocol"], "MXoE");
    assert_eq!(
        rows[0]["_ws.col.Info"],
        "TINY [mark] 3 > 1 seq 1 ack 2 len 5 match 0x0123456789abcdef"
    );
}
