//! The virtio-net header (virtio 1.2 section 5.1.6) as a checked value.

use virtio_bindings::virtio_net as net;

/// Bytes of the header in front of every frame; the same with and without mergeable buffers under VERSION_1.
pub const NET_HEADER_LEN: usize = 12;

const FLAG_NEEDS_CSUM: u8 = net::VIRTIO_NET_HDR_F_NEEDS_CSUM as u8;
const GSO_NONE: u8 = net::VIRTIO_NET_HDR_GSO_NONE as u8;
const GSO_TCP4: u8 = net::VIRTIO_NET_HDR_GSO_TCPV4 as u8;
const GSO_TCP6: u8 = net::VIRTIO_NET_HDR_GSO_TCPV6 as u8;
const GSO_ECN: u8 = net::VIRTIO_NET_HDR_GSO_ECN as u8;

/// What a guest asks of its card for one frame, or what a card tells a guest about one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetHeader {
    flags: u8,
    gso_type: u8,
    hdr_len: u16,
    gso_size: u16,
    csum_start: u16,
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
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
        }
    }

    /// The bytes for a receiver whose frame occupies `buffers` descriptor chains.
    #[inline]
    pub fn to_bytes(self, buffers: u16) -> [u8; NET_HEADER_LEN] {
        let mut bytes = [0; NET_HEADER_LEN];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        bytes[2..4].copy_from_slice(&self.hdr_len.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.gso_size.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.csum_start.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.csum_offset.to_le_bytes());
        bytes[10..12].copy_from_slice(&buffers.to_le_bytes());
        bytes
    }

    /// True if the frame is complete as it is and nobody has to know anything about it.
    #[inline]
    pub fn is_plain(self) -> bool {
        self.flags & FLAG_NEEDS_CSUM == 0 && self.gso_type == GSO_NONE
    }

    /// True if the frame must be cut before it fits a link.
    #[inline]
    pub fn is_segmented(self) -> bool {
        self.gso_type != GSO_NONE
    }

    /// True if the checksum field holds only a part of the checksum.
    #[inline]
    pub fn needs_checksum(self) -> bool {
        self.flags & FLAG_NEEDS_CSUM != 0
    }

    /// Payload bytes per segment.
    #[inline]
    pub fn segment_len(self) -> u16 {
        self.gso_size
    }

    /// Where the transport header starts, and where the checksum field is.
    #[inline]
    pub fn checksum_place(self) -> (usize, usize) {
        let start = usize::from(self.csum_start);
        (start, start + usize::from(self.csum_offset))
    }

    /// The header that goes to a receiver: only what is defined for that direction (a sender's other bits end here).
    ///
    /// # Errors
    /// [`BadOffload`] if the sender did not negotiate what it asks for, or if it does not fit a frame of `frame_len`
    /// bytes.
    #[inline]
    pub fn checked(self, sender: Offloads, frame_len: u32) -> Result<Self, BadOffload> {
        if self.flags & FLAG_NEEDS_CSUM == 0 && self.gso_type == GSO_NONE {
            return Ok(Self::default());
        }
        self.checked_request(sender, frame_len)
    }

    fn checked_request(self, sender: Offloads, frame_len: u32) -> Result<Self, BadOffload> {
        let (_, field) = self.checksum_place();
        if !sender.checksum || !self.needs_checksum() || field as u64 + 2 > u64::from(frame_len) {
            return Err(BadOffload);
        }
        let ecn = self.gso_type & GSO_ECN != 0;
        let supported = match self.gso_type & !GSO_ECN {
            GSO_NONE => !ecn,
            GSO_TCP4 => sender.tso4 && (!ecn || sender.ecn),
            GSO_TCP6 => sender.tso6 && (!ecn || sender.ecn),
            _ => false,
        };
        if !supported || (self.is_segmented() && self.gso_size == 0) {
            return Err(BadOffload);
        }
        Ok(Self {
            flags: FLAG_NEEDS_CSUM,
            ..self
        })
    }

    /// True if a receiver that negotiated `receiver` can take the frame as it is.
    #[inline]
    pub fn suits(self, receiver: Offloads) -> bool {
        if self.is_plain() {
            return true;
        }
        let ecn = self.gso_type & GSO_ECN == 0 || receiver.ecn;
        receiver.checksum
            && match self.gso_type & !GSO_ECN {
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

    fn tso4() -> NetHeader {
        NetHeader {
            flags: 1,
            gso_type: 1,
            hdr_len: 54,
            gso_size: 1448,
            csum_start: 34,
            csum_offset: 16,
        }
    }

    #[test]
    fn header_bytes_survive_a_round_trip() {
        let header = tso4();
        assert_eq!(NetHeader::parse(&header.to_bytes(1)), header);
        assert_eq!(header.to_bytes(3)[10], 3);
    }

    #[test]
    fn requests_that_were_not_negotiated_are_refused() {
        assert_eq!(tso4().checked(ALL, 3000), Ok(tso4()));
        assert_eq!(tso4().checked(Offloads { tso4: false, ..ALL }, 3000), Err(BadOffload));
        assert_eq!(tso4().checked(Offloads::default(), 3000), Err(BadOffload));
        assert_eq!(
            NetHeader {
                gso_type: 0x81,
                ..tso4()
            }
            .checked(Offloads { ecn: false, ..ALL }, 3000),
            Err(BadOffload)
        );
        assert_eq!(NetHeader { gso_type: 3, ..tso4() }.checked(ALL, 3000), Err(BadOffload));
        assert_eq!(NetHeader { gso_size: 0, ..tso4() }.checked(ALL, 3000), Err(BadOffload));
    }

    #[test]
    fn a_checksum_field_outside_the_frame_is_refused() {
        assert_eq!(tso4().checked(ALL, 51), Err(BadOffload));
        assert!(tso4().checked(ALL, 52).is_ok());
    }

    #[test]
    fn bits_that_mean_nothing_from_a_sender_do_not_travel() {
        let odd = NetHeader {
            flags: net::VIRTIO_NET_HDR_F_DATA_VALID as u8 | 0x80,
            hdr_len: 99,
            ..NetHeader::default()
        };
        assert_eq!(odd.checked(ALL, 60), Ok(NetHeader::default()));
    }
}
