//! The virtio-net header (virtio 1.2 section 5.1.6) as a checked value.

use virtio_bindings::virtio_net as net;

/// Bytes of the header in front of every frame; under VERSION_1 it has this length with and without mergeable buffers.
pub const NET_HEADER_LEN: usize = 12;
/// Bytes of the header of legacy virtio-net without mergeable buffers, which ends before num_buffers.
pub const LEGACY_NET_HEADER_LEN: usize = 10;

const FLAG_NEEDS_CSUM: u8 = net::VIRTIO_NET_HDR_F_NEEDS_CSUM as u8;
const GSO_NONE: u8 = net::VIRTIO_NET_HDR_GSO_NONE as u8;
const GSO_TCP4: u8 = net::VIRTIO_NET_HDR_GSO_TCPV4 as u8;
const GSO_TCP6: u8 = net::VIRTIO_NET_HDR_GSO_TCPV6 as u8;
const GSO_ECN: u8 = net::VIRTIO_NET_HDR_GSO_ECN as u8;

/// Bits of a request that are all 0 in a header that asks nothing: [`FLAG_NEEDS_CSUM`], and the type, whose none is 0.
const ASKS: u64 = FLAG_NEEDS_CSUM as u64 | 0xff << 8;
const _: () = assert!(GSO_NONE == 0);

/// What a guest asks of its card for one frame, or what a card tells a guest about one.
///
/// Kept as the words it has in memory: a header is copied for every frame, and copying fields costs more than all of
/// their uses together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetHeader {
    /// flags, gso_type, hdr_len, gso_size, csum_start; 8, 8, 16, 16, 16 bits from the lowest.
    request: u64,
    csum_offset: u16,
}

/// A request in the header that was not negotiated or does not fit the frame. The frame is dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the virtio-net header asks for an offload that was not negotiated or does not fit its frame")]
pub struct BadOffload;

/// Which requests one side of a port negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Partial checksums.
    pub checksum: bool,
    /// TCP segmentation over IPv4.
    pub tso4: bool,
    /// TCP segmentation over IPv6.
    pub tso6: bool,
    /// TCP segmentation of frames with ECN's CWR bit.
    pub ecn: bool,
}

impl Offloads {
    /// What the guest may ask of the card, from the negotiated feature bits.
    pub fn of_sender(features: u64) -> Self {
        let has = |bit: u32| features & 1 << bit != 0;
        Self {
            checksum: has(net::VIRTIO_NET_F_CSUM),
            tso4: has(net::VIRTIO_NET_F_HOST_TSO4),
            tso6: has(net::VIRTIO_NET_F_HOST_TSO6),
            ecn: has(net::VIRTIO_NET_F_HOST_ECN),
        }
    }

    /// What the card may hand to the guest, from the negotiated feature bits.
    pub fn of_receiver(features: u64) -> Self {
        let has = |bit: u32| features & 1 << bit != 0;
        Self {
            checksum: has(net::VIRTIO_NET_F_GUEST_CSUM),
            tso4: has(net::VIRTIO_NET_F_GUEST_TSO4),
            tso6: has(net::VIRTIO_NET_F_GUEST_TSO6),
            ecn: has(net::VIRTIO_NET_F_GUEST_ECN),
        }
    }
}

impl NetHeader {
    /// Reads the header's bytes; nothing is judged yet.
    #[inline]
    pub fn parse(bytes: &[u8; NET_HEADER_LEN]) -> Self {
        let (request, rest) = bytes.split_at(8);
        Self {
            request: request.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)),
            csum_offset: u16::from_le_bytes([rest[0], rest[1]]),
        }
    }

    /// The bytes for a receiver whose frame occupies `buffers` descriptor chains.
    #[inline]
    pub fn to_bytes(self, buffers: u16) -> [u8; NET_HEADER_LEN] {
        let mut bytes = [0; NET_HEADER_LEN];
        bytes[..8].copy_from_slice(&self.request.to_le_bytes());
        let rest = u32::from(self.csum_offset) | u32::from(buffers) << 16;
        bytes[8..].copy_from_slice(&rest.to_le_bytes());
        bytes
    }

    #[inline]
    const fn flags(self) -> u8 {
        self.request as u8
    }

    #[inline]
    const fn gso_type(self) -> u8 {
        (self.request >> 8) as u8
    }

    /// True if the frame is complete as it is: no card has to finish it.
    #[inline]
    pub fn is_plain(self) -> bool {
        self.request & ASKS == 0
    }

    /// True if the frame must be cut before it fits a link.
    #[inline]
    pub fn is_segmented(self) -> bool {
        self.gso_type() != GSO_NONE
    }

    /// True if the checksum field holds only a part of the checksum.
    #[inline]
    pub fn needs_checksum(self) -> bool {
        self.flags() & FLAG_NEEDS_CSUM != 0
    }

    /// Payload bytes per segment.
    #[inline]
    pub fn segment_len(self) -> u16 {
        (self.request >> 32) as u16
    }

    /// Where the transport header starts, and where the checksum field is.
    #[inline]
    pub fn checksum_place(self) -> (usize, usize) {
        let start = usize::from((self.request >> 48) as u16);
        (start, start + usize::from(self.csum_offset))
    }

    /// The header for the frame with everything behind its addresses moved by so many bytes, as a VLAN tag that comes or goes
    /// moves it.
    #[must_use]
    pub fn moved_by(self, bytes: i16) -> Self {
        if self.is_plain() {
            return self;
        }
        let moved = |shift: u32| u64::from(((self.request >> shift) as u16).saturating_add_signed(bytes)) << shift;
        // hdr_len, of which 0 is as good as any, and csum_start.
        let hdr_len = if self.request >> 16 & 0xffff == 0 { 0 } else { moved(16) };
        Self {
            request: self.request & !(0xffff << 16 | 0xffff << 48) | hdr_len | moved(48),
            ..self
        }
    }

    /// The header that goes to a receiver: only what is defined for that direction (a sender's other bits end here).
    ///
    /// # Errors
    /// [`BadOffload`] if the sender did not negotiate what it asks for, or if it does not fit a frame of `frame_len`
    /// bytes.
    #[inline]
    pub fn checked(self, sender: Offloads, frame_len: u32) -> Result<Self, BadOffload> {
        if self.is_plain() {
            return Ok(Self::default());
        }
        self.checked_request(sender, frame_len)
    }

    fn checked_request(self, sender: Offloads, frame_len: u32) -> Result<Self, BadOffload> {
        let (_, field) = self.checksum_place();
        if !sender.checksum || !self.needs_checksum() || field as u64 + 2 > u64::from(frame_len) {
            return Err(BadOffload);
        }
        let ecn = self.gso_type() & GSO_ECN != 0;
        let supported = match self.gso_type() & !GSO_ECN {
            GSO_NONE => !ecn,
            GSO_TCP4 => sender.tso4 && (!ecn || sender.ecn),
            GSO_TCP6 => sender.tso6 && (!ecn || sender.ecn),
            _ => false,
        };
        if !supported || (self.is_segmented() && self.segment_len() == 0) {
            return Err(BadOffload);
        }
        Ok(Self {
            request: self.request & !0xff | u64::from(FLAG_NEEDS_CSUM),
            ..self
        })
    }

    /// True if a receiver that negotiated `receiver` can take the frame as it is.
    #[inline]
    pub fn suits(self, receiver: Offloads) -> bool {
        if self.is_plain() {
            return true;
        }
        let ecn = self.gso_type() & GSO_ECN == 0 || receiver.ecn;
        receiver.checksum
            && match self.gso_type() & !GSO_ECN {
                GSO_NONE => true,
                GSO_TCP4 => receiver.tso4 && ecn,
                GSO_TCP6 => receiver.tso6 && ecn,
                _ => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Offloads = Offloads {
        checksum: true,
        tso4: true,
        tso6: true,
        ecn: true,
    };

    const TSO4: [u8; NET_HEADER_LEN] = [1, 1, 54, 0, 0xa8, 5, 34, 0, 16, 0, 0, 0];

    fn tso4() -> NetHeader {
        NetHeader::parse(&TSO4)
    }

    /// The TSO4 header with one byte changed.
    fn with(at: usize, byte: u8) -> NetHeader {
        let mut bytes = TSO4;
        bytes[at] = byte;
        NetHeader::parse(&bytes)
    }

    #[test]
    fn header_bytes_survive_a_round_trip() {
        let header = tso4();
        assert_eq!(NetHeader::parse(&header.to_bytes(1)), header);
        assert_eq!(header.to_bytes(3)[10], 3);
    }

    #[test]
    fn a_tag_moves_what_lies_behind_it() {
        let tagged = tso4().moved_by(4);
        assert_eq!(tagged.to_bytes(1), [1, 1, 58, 0, 0xa8, 5, 38, 0, 16, 0, 1, 0]);
        assert_eq!(tagged.moved_by(-4), tso4());
        assert_eq!(NetHeader::default().moved_by(4), NetHeader::default());
    }

    #[test]
    fn requests_that_were_not_negotiated_are_refused() {
        assert_eq!(tso4().checked(ALL, 3000), Ok(tso4()));
        assert_eq!(tso4().checked(Offloads { tso4: false, ..ALL }, 3000), Err(BadOffload));
        assert_eq!(tso4().checked(Offloads::default(), 3000), Err(BadOffload));
        assert_eq!(
            with(1, 0x81).checked(Offloads { ecn: false, ..ALL }, 3000),
            Err(BadOffload)
        );
        assert_eq!(with(1, 3).checked(ALL, 3000), Err(BadOffload));
        let mut no_size = TSO4;
        no_size[4..6].fill(0);
        assert_eq!(NetHeader::parse(&no_size).checked(ALL, 3000), Err(BadOffload));
    }

    #[test]
    fn a_checksum_field_outside_the_frame_is_refused() {
        assert_eq!(tso4().checked(ALL, 51), Err(BadOffload));
        assert!(tso4().checked(ALL, 52).is_ok());
    }

    #[test]
    fn bits_that_mean_nothing_from_a_sender_do_not_travel() {
        let odd = NetHeader::parse(&[
            net::VIRTIO_NET_HDR_F_DATA_VALID as u8 | 0x80,
            0,
            99,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ]);
        assert_eq!(odd.checked(ALL, 60), Ok(NetHeader::default()));
    }
}
