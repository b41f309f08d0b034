//! The fields that the dissector must show of a frame that `mxoe::wire` decodes or refuses.

use ::mxoe::wire::{Announcement, ConnectKind, Dialect, Eager, Mode, Packet, WireError, endpoint_of_pull_magic};

/// Returns the sentence that the dissector's expert information begins with.
pub fn expert(error: WireError) -> &'static str {
    match error {
        WireError::HeaderTooShort => "header too short",
        WireError::BadLength => "bad length",
        WireError::Truncated => "truncated",
        WireError::RawTooLarge => "raw too large",
        WireError::InvalidType(_) => "invalid type",
        WireError::UnknownType(_) => "unknown type",
        WireError::UnknownTruc(_) => "unknown TRUC",
        WireError::UnknownNack(_) => "unknown nack",
        WireError::NotMxoe => unreachable!("every generated frame has the EtherType"),
    }
}

/// Adds what the dissector shows beyond the decoder's values: parts of numbers, and the place of a frame in its pull.
fn derived(dialect: &Dialect, packet: &Packet<'_>, list: &mut Vec<(&'static str, u64)>) {
    let of = |name| list.iter().find(|(field, _)| *field == name).map(|(_, value)| *value);
    let (seqnum, handle) = (of("seqnum"), of("handle"));
    list.extend(
        seqnum
            .into_iter()
            .flat_map(|seqnum| [("seq_number", seqnum & 0x3fff), ("seq_session", seqnum >> 14)]),
    );
    list.extend(
        handle
            .into_iter()
            .flat_map(|handle| [("handle_slot", handle >> 22), ("handle_generation", handle & 0x3f_ffff)]),
    );
    let block_frames = u64::from(dialect.sizes().block_frames());
    match packet {
        Packet::Pull(p) if p.frames(dialect.sizes()).is_ok() => {
            list.push(("pull_block", u64::from(p.frame_index) / block_frames));
        }
        Packet::PullReply(p) => {
            let frame = u64::from(p.msg_offset.div_ceil(dialect.sizes().reply_payload()));
            list.extend([("frame", frame), ("pull_block", frame / block_frames)]);
        }
        _ => {}
    }
}

/// Returns the byte that the specification calls unused, in the types that have it.
pub fn generation(packet: &Packet<'_>, bytes: &[u8]) -> Option<u64> {
    match packet {
        Packet::Raw(_) | Packet::HostQuery(_) | Packet::HostReply(_) | Packet::PullReply(_) => None,
        Packet::NackLib(_) | Packet::NackMcp(_) => Some(bytes[18].into()),
        _ => Some(bytes[19].into()),
    }
}

/// Returns everything that the dissector shows of a decoded packet but its data, under the dissector's names.
pub fn shown(dialect: &Dialect, packet: &Packet<'_>) -> Vec<(&'static str, u64)> {
    let mut list = fields(dialect, packet);
    derived(dialect, packet, &mut list);
    list
}

/// Returns every field of a decoded packet under the dissector's names.
fn fields(dialect: &Dialect, packet: &Packet<'_>) -> Vec<(&'static str, u64)> {
    let endpoints = |dst: u8, src: u8| vec![("dst_endpoint", dst.into()), ("src_endpoint", src.into())];
    let eager = |p: &Eager<'_>| {
        let mut list = endpoints(p.dst_endpoint, p.src_endpoint);
        list.extend([
            ("seqnum", p.seqnum.into()),
            ("piggyack", p.piggyack.into()),
            ("match_info", p.match_info),
            ("session", p.session.into()),
        ]);
        list
    };
    let magic = |list: &mut Vec<(&'static str, u64)>, handle: u32, magic: u32| {
        list.extend([("handle", handle.into()), ("magic", magic.into())]);
        list.extend(endpoint_of_pull_magic(magic).map(|endpoint| ("pull_endpoint", endpoint.into())));
    };
    match packet {
        Packet::Raw(raw) => match Announcement::from_payload(raw.payload) {
            Some(a) if raw.payload[..17] == [0; 17] => vec![("board", a.board), ("serial", a.serial.into())],
            _ => vec![],
        },
        Packet::HostQuery(p) => vec![("src_dst_peer_index", p.peer_index.into()), ("magic", p.magic.into())],
        Packet::HostReply(p) => vec![("src_dst_peer_index", p.peer_index.into()), ("magic", p.magic.into())],
        Packet::Ack(p) => {
            let mut list = endpoints(p.dst_endpoint, p.src_endpoint);
            list.extend([
                ("session", p.session.into()),
                ("truc_type", 0x55),
                ("ack", p.ack.into()),
                ("session_id", p.session_id.into()),
                ("acknum", p.acknum.into()),
                ("send_seq", p.send_seq.into()),
                ("resent", p.resent.into()),
            ]);
            list
        }
        Packet::Connect(p) => {
            let mut list = endpoints(p.dst_endpoint, p.src_endpoint);
            list.extend([
                ("seqnum", p.seqnum.into()),
                ("src_dst_peer_index", p.peer_index.into()),
                ("src_session", p.src_session.into()),
                ("recv_seqnum_start", p.recv_seqnum_start.into()),
                ("connect_seqnum", p.connect_seqnum.into()),
            ]);
            match p.kind {
                ConnectKind::Request { key } => list.extend([("is_reply", 0), ("key", key.into())]),
                ConnectKind::Reply { session, status } => {
                    list.extend([
                        ("is_reply", 1),
                        ("target_session", session.into()),
                        ("status", status.into()),
                    ]);
                }
            }
            if let Some(extension) = p.extension {
                list.extend([
                    ("extension", 0x5746_5431),
                    ("ext_mark", u64::from(extension.flags & 1)),
                    ("ext_short_ack", u64::from(extension.flags >> 1 & 1)),
                    ("ext_block_frames_log2", extension.block_frames_log2.into()),
                    ("ext_preset", extension.preset.into()),
                ]);
            }
            list
        }
        Packet::Tiny(p) | Packet::Small(p) => {
            let mut list = eager(p);
            list.extend([("length", p.data.len() as u64), ("data_length", p.data.len() as u64)]);
            list
        }
        Packet::Medium(p) => {
            let mut list = endpoints(p.dst_endpoint, p.src_endpoint);
            list.extend([
                ("length", p.length.into()),
                ("seqnum", p.seqnum.into()),
                ("piggyack", p.piggyack.into()),
                ("match_info", p.match_info),
                ("session", p.session.into()),
                ("data_length", p.data.len() as u64),
                ("frag_seqnum", p.frag_seqnum.into()),
                ("frag_offset", p.offset(dialect.sizes()).into()),
                ("frag_last", p.is_last(dialect.sizes()).into()),
            ]);
            if dialect.sizes().mode() == Mode::Wire {
                list.push(("frag_pipeline", p.frag_pipeline.into()));
            }
            list
        }
        Packet::Rndv(p) => {
            let mut list = endpoints(p.dst_endpoint, p.src_endpoint);
            list.extend([
                ("seqnum", p.seqnum.into()),
                ("piggyack", p.piggyack.into()),
                ("match_info", p.match_info),
                ("session", p.session.into()),
                ("msg_length", p.msg_length.into()),
                ("rdma_id", p.rdma_id.into()),
                ("rdma_seqnum", p.rdma_seqnum.into()),
                ("rdma_offset", p.rdma_offset.into()),
                ("data_length", p.head.len() as u64),
            ]);
            list
        }
        Packet::Pull(p) => {
            let mut list = endpoints(p.dst_endpoint, p.src_endpoint);
            list.extend([
                ("session", p.session.into()),
                ("total_length", p.total_length.into()),
                ("rdma_id", p.rdma_id.into()),
                ("rdma_seqnum", p.rdma_seqnum.into()),
                ("rdma_offset", p.rdma_offset.into()),
                ("first_frame_offset", p.first_frame_offset.into()),
                ("block_length", p.block_length.into()),
                ("frame_index", p.frame_index.into()),
            ]);
            list.extend(
                p.frames(dialect.sizes())
                    .ok()
                    .map(|frames| ("block_frames", frames.into())),
            );
            magic(&mut list, p.handle, p.magic);
            list
        }
        Packet::PullReply(p) => {
            let mut list = vec![
                ("frame_seqnum", p.frame_seqnum.into()),
                ("msg_offset", p.msg_offset.into()),
                ("length", p.data.len() as u64),
                ("data_length", p.data.len() as u64),
            ];
            magic(&mut list, p.handle, p.magic);
            list
        }
        Packet::Notify(p) => {
            let mut list = endpoints(p.dst_endpoint, p.src_endpoint);
            list.extend([
                ("session", p.session.into()),
                ("total_length", p.total_length.into()),
                ("rdma_id", p.rdma_id.into()),
                ("rdma_seqnum", p.rdma_seqnum.into()),
                ("seqnum", p.seqnum.into()),
                ("piggyack", p.piggyack.into()),
            ]);
            list
        }
        Packet::NackLib(p) => {
            let mut list = endpoints(p.dst_endpoint, p.src_endpoint);
            list.extend([
                ("nack_code", p.code as u64),
                ("src_dst_peer_index", p.peer_index.into()),
                ("seqnum", p.seqnum.into()),
            ]);
            list
        }
        Packet::NackMcp(p) => {
            let mut list = vec![("src_endpoint", p.src_endpoint.into()), ("nack_code", p.code as u64)];
            magic(&mut list, p.handle, p.magic);
            list
        }
    }
}
