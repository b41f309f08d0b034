//! The fields that all packets with a sequence number have in common (7.1).

use super::Packet;

/// The fields that every sequenced packet carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequenced {
    pub(crate) dst_endpoint: u8,
    pub(crate) src_endpoint: u8,
    pub(crate) session: u32,
    pub(crate) seqnum: u16,
    pub(crate) piggyack: u16,
    /// The session is the one that the sender knows *back* (4.4).
    pub(crate) is_back: bool,
}

/// Returns the sequence header of a packet that has one.
#[inline]
pub(crate) fn sequenced(packet: &Packet<'_>) -> Option<Sequenced> {
    macro_rules! header {
        ($packet:ident, $is_back:literal) => {
            Sequenced {
                dst_endpoint: $packet.dst_endpoint,
                src_endpoint: $packet.src_endpoint,
                session: $packet.session,
                seqnum: $packet.seqnum,
                piggyack: $packet.piggyack,
                is_back: $is_back,
            }
        };
    }
    Some(match packet {
        Packet::Tiny(p) | Packet::Small(p) => header!(p, false),
        Packet::Medium(p) => header!(p, false),
        Packet::Rndv(p) => header!(p, false),
        Packet::Notify(p) => header!(p, true),
        _ => return None,
    })
}
