//! Frames from values.

use super::{
    BULK_FRAME_LEN_MIN, Body, CHECK_LEN, COUNTED_PAYLOAD_MAX, FRAME_LEN_MIN, Flags, HEAD_LEN, Header, Kind, PIECE_LEN,
    Path, VERSION, WINDOW_LEN, blocks::NAMES,
};

/// Why a frame cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// The buffer is shorter than the frame.
    #[error("the buffer is shorter than the frame")]
    Room,
    /// The kind of packet needs a window or an acknowledgement that the header has not, or has one that it cannot have.
    #[error("the header does not fit the kind of the packet")]
    Header,
    /// The payload is longer than its length field can say.
    #[error("the payload is longer than its length field can say")]
    Length,
}

/// Writes a frame into `buffer` and returns its length, at least [`FRAME_LEN_MIN`]. With `check`, the kinds that have a check sequence
/// get one.
///
/// # Errors
/// [`EmitError`], if the buffer is too short or the values contradict each other.
pub fn emit(buffer: &mut [u8], path: &Path, header: &Header, body: &Body<'_>, check: bool) -> Result<usize, EmitError> {
    if let Body::Data(payload) | Body::Datagram(payload) = body {
        return emit_payload(buffer, path, header, body.kind(), None, payload.len(), check, |room| {
            room.copy_from_slice(payload);
        });
    }
    if let Body::Piece(piece) = body {
        let place = Some((piece.offset, piece.total));
        return emit_payload(
            buffer,
            path,
            header,
            Kind::Piece,
            place,
            piece.payload.len(),
            check,
            |room| {
                room.copy_from_slice(piece.payload);
            },
        );
    }
    let mut at = write_head(buffer, path, header, body.kind(), 0)?;
    let mut is_whole = true;
    let mut put = |bytes: &[u8]| {
        match buffer.get_mut(at..at + bytes.len()) {
            Some(room) => room.copy_from_slice(bytes),
            None => is_whole = false,
        }
        at += bytes.len();
    };
    write_body(body, &mut put);
    if !is_whole {
        return Err(EmitError::Room);
    }
    finish(buffer, at, check && body.kind().is_checked(), FRAME_LEN_MIN)
}

/// Writes a frame of a kind with payload, which `fill` copies to its place of `len` bytes: so a sender copies once. `place` is a piece's
/// offset and total.
///
/// # Errors
/// As [`emit`]'s.
#[inline]
#[expect(clippy::too_many_arguments, reason = "a frame has that many parts")]
pub fn emit_payload(
    buffer: &mut [u8],
    path: &Path,
    header: &Header,
    kind: Kind,
    place: Option<(u16, u16)>,
    len: usize,
    check: bool,
    fill: impl FnOnce(&mut [u8]),
) -> Result<usize, EmitError> {
    if len > usize::from(u16::MAX) || kind.has_payload() && (kind == Kind::Piece) != place.is_some() {
        return Err(EmitError::Length);
    }
    let is_bulk = header.bulk && kind == Kind::Data;
    let is_counted = is_bulk || len <= COUNTED_PAYLOAD_MAX;
    let mut at = write_head(buffer, path, header, kind, if is_counted { Flags::LENGTH } else { 0 })?;
    if is_counted {
        buffer
            .get_mut(at..at + 2)
            .ok_or(EmitError::Room)?
            .copy_from_slice(&(len as u16).to_be_bytes());
        at += 2;
    }
    if let Some((offset, total)) = place {
        let room = buffer.get_mut(at..at + PIECE_LEN).ok_or(EmitError::Room)?;
        room[..2].copy_from_slice(&offset.to_be_bytes());
        room[2..].copy_from_slice(&total.to_be_bytes());
        at += PIECE_LEN;
    }
    fill(buffer.get_mut(at..at + len).ok_or(EmitError::Room)?);
    let len_min = if is_bulk { BULK_FRAME_LEN_MIN } else { FRAME_LEN_MIN };
    finish(buffer, at + len, check && kind.is_checked(), len_min)
}

/// Writes all that comes before the body, and returns its length.
#[inline]
fn write_head(buffer: &mut [u8], path: &Path, header: &Header, kind: Kind, mut flags: u8) -> Result<usize, EmitError> {
    let needs_window = matches!(kind, Kind::Ack | Kind::Syn | Kind::SynAck | Kind::Moved);
    if needs_window && header.window.is_none()
        || kind.is_edp() && header.window.is_some()
        || kind == Kind::SynAck && header.ack.is_none()
    {
        return Err(EmitError::Header);
    }
    let head: &mut [u8; HEAD_LEN] = buffer.first_chunk_mut().ok_or(EmitError::Room)?;
    head[..6].copy_from_slice(&path.destination.0);
    head[6..12].copy_from_slice(&path.source.0);
    head[12..14].copy_from_slice(&path.ether_type.0.to_be_bytes());
    flags |= if header.push { Flags::PUSH } else { 0 };
    flags |= if header.ack.is_some() { Flags::ACK } else { 0 };
    flags |= if header.window.is_some() { Flags::WINDOW } else { 0 };
    head[14] = (kind as u8) << 4 | flags;
    head[15..17].copy_from_slice(&header.source_port.to_be_bytes());
    head[17..19].copy_from_slice(&header.destination_port.to_be_bytes());
    head[19..23].copy_from_slice(&header.number.to_be_bytes());
    head[23..27].copy_from_slice(&header.ack.unwrap_or(0).to_be_bytes());
    let Some(window) = header.window else {
        return Ok(HEAD_LEN);
    };
    let room = buffer.get_mut(HEAD_LEN..HEAD_LEN + WINDOW_LEN).ok_or(EmitError::Room)?;
    room.copy_from_slice(&window.to_be_bytes());
    Ok(HEAD_LEN + WINDOW_LEN)
}

fn write_body(body: &Body<'_>, put: &mut impl FnMut(&[u8])) {
    match body {
        Body::Datagram(_) | Body::Data(_) | Body::Piece(_) | Body::Fin | Body::Probe => {}
        Body::Ping(ping) => ping.write(put),
        Body::Pong(pong) => pong.write(put),
        Body::Ack(ranges) => {
            put(&[ranges.as_slice().len() as u8]);
            for (first, end) in ranges.as_slice() {
                put(&first.to_be_bytes());
                put(&end.to_be_bytes());
            }
        }
        Body::Syn(syn) => {
            put(&[VERSION]);
            put(&syn.instance.to_be_bytes());
            put(&syn.payload_max.to_be_bytes());
            let (bytes, len) = syn.blocks.to_bytes();
            put(&bytes[..len]);
            if let Some(names) = &syn.names {
                let (bytes, len) = names.to_bytes();
                put(&[NAMES, len as u8]);
                put(&bytes[..len]);
            }
        }
        Body::SynAck(syn_ack) => {
            put(&[VERSION]);
            put(&syn_ack.instance.to_be_bytes());
            put(&syn_ack.peer_instance.to_be_bytes());
            put(&syn_ack.listened_port.to_be_bytes());
            put(&syn_ack.payload_max.to_be_bytes());
            let (bytes, len) = syn_ack.blocks.to_bytes();
            put(&bytes[..len]);
        }
        Body::Reset(code) => put(&[*code as u8]),
        Body::Moved(moved) => {
            put(&moved.old_port.to_be_bytes());
            put(&moved.instance.to_be_bytes());
        }
    }
}

/// Adds the check sequence and the padding.
#[inline]
fn finish(buffer: &mut [u8], mut end: usize, check: bool, len_min: usize) -> Result<usize, EmitError> {
    if check {
        let sequence = crc32fast::hash(&buffer[ether::ETHERNET_HEADER_LEN..end]);
        let room = buffer.get_mut(end..end + CHECK_LEN).ok_or(EmitError::Room)?;
        room.copy_from_slice(&sequence.to_be_bytes());
        end += CHECK_LEN;
    }
    if end < len_min {
        buffer.get_mut(end..len_min).ok_or(EmitError::Room)?.fill(0);
        end = len_min;
    }
    Ok(end)
}
