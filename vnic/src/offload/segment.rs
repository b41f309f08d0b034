//! Completing checksums and cutting TCP frames in software, for links and receivers that take neither.
//!
//! It works on one whole frame in private memory; every field that the cut depends on is checked against the frame first.

use ether::EtherType;
use ether::checksum::{finish, pseudo_header_v4, pseudo_header_v6, sum};

use super::{BadOffload, NetHeader};

/// Segments one frame may become. 64 KiB at the smallest segment that TCP uses in practice (88 bytes) are 745; more
/// would let a guest turn one frame into a flood.
pub const SEGMENTS_MAX: usize = 1024;

const TCP: u8 = 6;
const TCP_HEADER_MIN: usize = 20;
const TCP_CHECKSUM_AT: usize = 16;
const FLAGS_LAST_ONLY: u8 = 0x09; // FIN, PSH
const FLAG_FIRST_ONLY: u8 = 0x80; // CWR

/// Writes the checksum that `header` asks for into `frame`.
///
/// # Errors
/// [`BadOffload`] if the checksum field is not inside the frame.
pub fn complete_checksum(frame: &mut [u8], header: NetHeader) -> Result<(), BadOffload> {
    let (start, field) = header.checksum_place();
    if start > frame.len() || field + 2 > frame.len() {
        return Err(BadOffload);
    }
    // The field holds the sum of the pseudo header, so that summing over it gives the whole.
    let value = match finish(sum(&frame[start..])) {
        0 => 0xffff, // UDP reserves 0 for "none"; for TCP both have one meaning.
        value => value,
    };
    frame[field..field + 2].copy_from_slice(&value.to_be_bytes());
    Ok(())
}

/// Bytes of a frame within which the headers that are cut along must lie: Ethernet with two VLAN tags, IPv6 with some extension
/// headers, and TCP without its options.
pub const HEADERS_MAX: usize = 192;

/// How a TCP frame is cut: where its headers are, how long its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    network: usize,
    transport: usize,
    payload: usize,
    segment_len: usize,
    frame_len: usize,
    ipv6: bool,
}

/// What a frame is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnWire {
    /// Frames that it becomes.
    pub frames: u32,
    /// The bytes of these segments.
    pub bytes: u64,
    /// Bytes of the longest.
    pub longest: u32,
}

impl Cut {
    /// Decides how a frame of `frame_len` bytes that begins with `head`, its first [`HEADERS_MAX`] bytes or all it has, is cut as
    /// `header` asks.
    ///
    /// # Errors
    /// [`BadOffload`] if the frame is not the TCP frame that the header promises or would become more than
    /// [`SEGMENTS_MAX`] segments.
    pub fn new(head: &[u8], frame_len: usize, header: NetHeader) -> Result<Self, BadOffload> {
        let head = &head[..head.len().min(HEADERS_MAX)];
        let (transport, checksum) = header.checksum_place();
        let (ether_type, network) = network_header(head).ok_or(BadOffload)?;
        let ipv6 = match ether_type {
            EtherType::IPV4 => false,
            EtherType::IPV6 => true,
            _ => return Err(BadOffload),
        };
        let network_min = if ipv6 { 40 } else { 20 };
        let is_tcps = checksum == transport + TCP_CHECKSUM_AT;
        if transport < network + network_min || transport + TCP_HEADER_MIN > head.len() || !is_tcps {
            return Err(BadOffload);
        }
        let version = head[network] >> 4;
        if version != if ipv6 { 6 } else { 4 } {
            return Err(BadOffload);
        }
        if !ipv6 && (usize::from(head[network] & 15) * 4 != transport - network || head[network + 9] != TCP) {
            return Err(BadOffload);
        }
        let payload = transport + usize::from(head[transport + 12] >> 4) * 4;
        let segment_len = usize::from(header.segment_len());
        if payload < transport + TCP_HEADER_MIN || payload > frame_len || segment_len == 0 {
            return Err(BadOffload);
        }
        if (frame_len - payload).div_ceil(segment_len) > SEGMENTS_MAX {
            return Err(BadOffload);
        }
        Ok(Self {
            network,
            transport,
            payload,
            segment_len,
            frame_len,
            ipv6,
        })
    }

    /// What the frame is on the wire.
    pub fn on_wire(&self) -> OnWire {
        let data = self.frame_len - self.payload;
        let frames = data.div_ceil(self.segment_len).max(1);
        OnWire {
            frames: frames as u32,
            bytes: (frames * self.payload + data) as u64,
            longest: (self.payload + data.min(self.segment_len)) as u32,
        }
    }
}

/// The segments of one TCP frame, in order, each a whole frame with all checksums right.
#[derive(Debug)]
pub struct Segments<'a> {
    frame: &'a [u8],
    cut: Cut,
    next: usize,
}

impl<'a> Segments<'a> {
    /// Prepares to cut `frame` as `header` asks.
    ///
    /// # Errors
    /// Those of [`Cut::new`].
    pub fn new(frame: &'a [u8], header: NetHeader) -> Result<Self, BadOffload> {
        let cut = Cut::new(frame, frame.len(), header)?;
        let next = cut.payload;
        Ok(Self { frame, cut, next })
    }

    /// Writes the next segment into `out` and returns its length; `None` when all were written. `out` must hold the
    /// headers plus one segment; a frame without payload is one segment.
    pub fn write_next(&mut self, out: &mut [u8]) -> Option<usize> {
        let Cut {
            payload, segment_len, ..
        } = self.cut;
        let first = self.next == payload;
        if self.next >= self.frame.len() && !(first && self.next == self.frame.len()) {
            return None;
        }
        let end = (self.next + segment_len).min(self.frame.len());
        let data = &self.frame[self.next..end];
        let len = payload + data.len();
        out[..payload].copy_from_slice(&self.frame[..payload]);
        out[payload..len].copy_from_slice(data);
        self.write_headers(&mut out[..len], first, end == self.frame.len());
        self.next = if end == self.frame.len() { usize::MAX } else { end };
        Some(len)
    }

    fn write_headers(&self, out: &mut [u8], first: bool, last: bool) {
        let Cut { network, transport, .. } = self.cut;
        let offset = self.next - self.cut.payload;
        let sequence = u32::from_be_bytes([0, 1, 2, 3].map(|i| out[transport + 4 + i]));
        out[transport + 4..transport + 8].copy_from_slice(&sequence.wrapping_add(offset as u32).to_be_bytes());
        if !last {
            out[transport + 13] &= !FLAGS_LAST_ONLY;
        }
        if !first {
            out[transport + 13] &= !FLAG_FIRST_ONLY;
        }
        let segment_len = out.len() - transport;
        let pseudo = if self.cut.ipv6 {
            let payload_len = (out.len() - network - 40) as u16;
            out[network + 4..network + 6].copy_from_slice(&payload_len.to_be_bytes());
            let address = |at: usize| std::array::from_fn(|i| out[network + at + i]);
            pseudo_header_v6(address(8), address(24), TCP, segment_len as u32)
        } else {
            let total_len = (out.len() - network) as u16;
            out[network + 2..network + 4].copy_from_slice(&total_len.to_be_bytes());
            let id = u16::from_be_bytes([out[network + 4], out[network + 5]]);
            let id = id.wrapping_add((offset / self.cut.segment_len) as u16);
            out[network + 4..network + 6].copy_from_slice(&id.to_be_bytes());
            out[network + 10..network + 12].fill(0);
            let value = finish(sum(&out[network..transport]));
            out[network + 10..network + 12].copy_from_slice(&value.to_be_bytes());
            let address = |at: usize| std::array::from_fn(|i| out[network + at + i]);
            pseudo_header_v4(address(12), address(16), TCP, segment_len as u16)
        };
        out[transport + 16..transport + 18].fill(0);
        let value = finish(pseudo + sum(&out[transport..]));
        out[transport + 16..transport + 18].copy_from_slice(&value.to_be_bytes());
    }
}

/// The EtherType and where the network header starts, behind up to two VLAN tags.
fn network_header(frame: &[u8]) -> Option<(EtherType, usize)> {
    let mut at = 12;
    for _ in 0..3 {
        let ether_type = EtherType(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
        at += 2;
        if ether_type != EtherType::VLAN && ether_type.0 != 0x88a8 {
            return Some((ether_type, at));
        }
        at += 2;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offload::Offloads;

    fn tcp_frame(payload: usize) -> Vec<u8> {
        let mut frame = vec![0; 54 + payload];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&((40 + payload) as u16).to_be_bytes());
        frame[18..20].copy_from_slice(&7u16.to_be_bytes());
        frame[23] = TCP;
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        frame[38..42].copy_from_slice(&0xffff_ff00u32.to_be_bytes());
        frame[46] = 0x50;
        frame[47] = 0x99; // CWR ACK PSH FIN
        for (i, byte) in frame[54..].iter_mut().enumerate() {
            *byte = i as u8;
        }
        frame
    }

    fn header(gso_size: u16) -> NetHeader {
        let mut bytes = [0; 12];
        bytes[0] = 1;
        bytes[1] = 1;
        bytes[4..6].copy_from_slice(&gso_size.to_le_bytes());
        bytes[6] = 34;
        bytes[8] = 16;
        NetHeader::parse(&bytes)
    }

    fn cut(frame: &[u8], size: u16) -> Vec<Vec<u8>> {
        let mut segments = Segments::new(frame, header(size)).unwrap();
        let on_wire = segments.cut.on_wire();
        let mut out = [0; 2000];
        let mut all = Vec::new();
        while let Some(len) = segments.write_next(&mut out) {
            all.push(out[..len].to_vec());
        }
        let bytes: usize = all.iter().map(Vec::len).sum();
        let longest = all.iter().map(Vec::len).max();
        assert_eq!((on_wire.frames as usize, on_wire.bytes as usize), (all.len(), bytes));
        assert_eq!(longest, Some(on_wire.longest as usize));
        all
    }

    #[test]
    fn segments_carry_every_byte_once_with_right_headers() {
        let frame = tcp_frame(3001);
        let all = cut(&frame, 1000);
        assert_eq!(all.len(), 4);
        let mut data = Vec::new();
        for (number, segment) in all.iter().enumerate() {
            assert_eq!(finish(sum(&segment[14..34])), 0, "IP header checksum");
            let pseudo = pseudo_header_v4([10, 0, 0, 1], [10, 0, 0, 2], TCP, (segment.len() - 34) as u16);
            assert_eq!(finish(pseudo + sum(&segment[34..])), 0, "TCP checksum");
            assert_eq!(
                usize::from(u16::from_be_bytes([segment[16], segment[17]])),
                segment.len() - 14
            );
            assert_eq!(u16::from_be_bytes([segment[18], segment[19]]), 7 + number as u16);
            let sequence = u32::from_be_bytes([0, 1, 2, 3].map(|i| segment[38 + i]));
            assert_eq!(sequence, 0xffff_ff00u32.wrapping_add(1000 * number as u32));
            assert_eq!(segment[47] & 0x80 != 0, number == 0, "CWR in the first only");
            assert_eq!(segment[47] & 0x09 != 0, number == 3, "FIN and PSH in the last only");
            data.extend_from_slice(&segment[54..]);
        }
        assert_eq!(data, frame[54..]);
    }

    #[test]
    fn a_frame_without_payload_is_one_segment() {
        assert_eq!(cut(&tcp_frame(0), 1000).len(), 1);
    }

    #[test]
    fn a_flood_of_tiny_segments_is_refused() {
        assert!(Segments::new(&tcp_frame(60_000), header(1)).is_err());
        assert!(Segments::new(&tcp_frame(60_000), header(64)).is_ok());
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut state = 1u64;
        let mut next = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as u8
        };
        let all = Offloads {
            checksum: true,
            tso4: true,
            tso6: true,
            ecn: true,
        };
        let mut cut = 0;
        for round in 0..20_000 {
            let mut frame = tcp_frame(usize::from(next()) * 4);
            for _ in 0..round % 5 {
                let at = usize::from(next()) % frame.len();
                frame[at] = next();
            }
            let mut bytes = header(100 + u16::from(next())).to_bytes(1);
            for _ in 0..round % 3 {
                let at = usize::from(next()) % bytes.len();
                bytes[at] = next();
            }
            let Ok(header) = NetHeader::parse(&bytes).checked(all, frame.len() as u32) else {
                continue;
            };
            if let Ok(mut segments) = Segments::new(&frame, header) {
                let mut out = vec![0; 70_000];
                while segments.write_next(&mut out).is_some() {
                    cut += 1;
                }
            }
            let _ = complete_checksum(&mut frame, header);
        }
        assert!(cut > 10_000);
    }
}
