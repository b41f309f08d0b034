//! Where an MXoE frame's header says what the card reads: type and mark, endpoints, fragments of a MEDIUM.
//!
//! Only byte positions are here, from `mxoe-wire.md` (sections 1.5, 2, 5.3 and 15); the protocol itself is the hosts' business.

use ether::EtherType;

/// Frame offset of the packet type, whose highest bit is the latency-sensitive mark.
pub(crate) const TYPE_OFFSET: usize = 16;
/// The mark within the packet type; all type codes are below 0x40 (section 15).
pub(crate) const MARK: u8 = 0x80;

/// Packet types that the card distinguishes (section 2).
mod kind {
    pub(super) const TRUC: u8 = 35;
    pub(super) const CONNECT: u8 = 36;
    pub(super) const TINY: u8 = 37;
    pub(super) const MEDIUM: u8 = 39;
    pub(super) const PULL: u8 = 41;
    pub(super) const PULL_REPLY: u8 = 42;
    pub(super) const NOTIFY: u8 = 43;
    pub(super) const NACK_LIB: u8 = 44;
    pub(super) const NACK_MCP: u8 = 45;
}

/// Destination endpoint of types 35 – 41 and 43.
const DST_ENDPOINT_OFFSET: usize = 17;
/// Source endpoint of these types.
const SRC_ENDPOINT_OFFSET: usize = 18;
/// Destination endpoint of NACK_LIB.
const NACK_LIB_ENDPOINT_OFFSET: usize = 25;
/// Low byte of the magic number of a pull, in PULL_REPLY and NACK_MCP: the endpoint that pulls, XOR [`MAGIC_XOR`].
const MAGIC_LOW_OFFSET: usize = 31;
/// What the low byte of the magic number of endpoint 0 is.
const MAGIC_XOR: u8 = 0x80;

/// Total length of a MEDIUM message: u32 in native mode, u16 and two bytes of padding in wire mode (section 5.3).
const MEDIUM_LENGTH_OFFSET: usize = 20;
/// Sequence number of a MEDIUM message, which all its fragments carry.
const MEDIUM_SEQUENCE_OFFSET: usize = 24;
/// Bytes of data in this fragment.
const MEDIUM_FRAGMENT_LENGTH_OFFSET: usize = 40;
/// Number of this fragment, from 0.
const MEDIUM_FRAGMENT_NUMBER_OFFSET: usize = 42;
/// Wire mode: log2 of the fragment size, 12. Native mode: padding, which senders of the mark fill with zero.
const MEDIUM_PIPELINE_OFFSET: usize = 43;
/// Largest log2 of a fragment size that a length of 16 bits leaves any use for.
const PIPELINE_MAX: u8 = 15;

/// True for a frame that carries MXoE without a VLAN tag; one that has no type byte any more is none.
#[inline]
pub(crate) fn is_mxoe(header: &[u8]) -> bool {
    header.len() > TYPE_OFFSET && header[12..14] == EtherType::MXOE.0.to_be_bytes()
}

/// The endpoint that an MXoE frame is for, at the receiver; `None` for types that name none, unknown types, and a header that
/// is cut off before it. [`is_mxoe`] was asked before.
///
/// The mark is cleared before the type is read, whatever the card does with marks otherwise: so does every receiver.
#[inline]
pub(crate) fn destination_endpoint(header: &[u8]) -> Option<u8> {
    let offset = match header.get(TYPE_OFFSET)? & !MARK {
        kind::PULL_REPLY | kind::NACK_MCP => return header.get(MAGIC_LOW_OFFSET).map(|low| low ^ MAGIC_XOR),
        kind::TRUC..=kind::PULL | kind::NOTIFY => DST_ENDPOINT_OFFSET,
        kind::NACK_LIB => NACK_LIB_ENDPOINT_OFFSET,
        _ => return None,
    };
    header.get(offset).copied()
}

/// What a frame of the sending side is to the misordering injector (`papers.md` M-GF6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// A new connection to a partner begins: what was known of it may no longer hold.
    Connect(Partner),
    /// A fragment of a MEDIUM message.
    Fragment(Partner, Fragment),
    /// Any other frame with a mark.
    Marked(Partner),
}

/// Who talks to whom: the destination's address and endpoint, and the source's endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partner(pub(crate) u64);

/// A fragment of a MEDIUM message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// Sequence number of the message.
    pub(crate) sequence: u16,
    /// Number of the fragment, from 0.
    pub(crate) number: u8,
    /// The sending driver marked it: it is the last of its message.
    pub(crate) marked: bool,
    /// If it is not the last: the number of the last one (section 5.3: every fragment but the last is full).
    pub(crate) last: u32,
}

impl Sent {
    /// Reads the header of a frame that the guest sends; `None` for all that the injector has nothing to do with.
    #[inline]
    pub(crate) fn read(header: &[u8]) -> Option<Self> {
        if !is_mxoe(header) {
            return None;
        }
        let (kind, marked) = (header[TYPE_OFFSET] & !MARK, header[TYPE_OFFSET] & MARK != 0);
        match kind {
            kind::CONNECT => Some(Self::Connect(partner(header)?)),
            kind::MEDIUM => Some(Self::Fragment(partner(header)?, fragment(header, marked)?)),
            kind::TINY..=kind::PULL | kind::NOTIFY if marked => Some(Self::Marked(partner(header)?)),
            _ => None,
        }
    }
}

fn partner(header: &[u8]) -> Option<Partner> {
    let [a, b, c, d, e, f] = *header.first_chunk()?;
    let (dst, src) = (*header.get(DST_ENDPOINT_OFFSET)?, *header.get(SRC_ENDPOINT_OFFSET)?);
    Some(Partner(u64::from_be_bytes([a, b, c, d, e, f, dst, src])))
}

fn fragment(header: &[u8], marked: bool) -> Option<Fragment> {
    let u16_at = |at: usize| Some(u16::from_be_bytes(*header.get(at..)?.first_chunk()?));
    let (high, low) = (u16_at(MEDIUM_LENGTH_OFFSET)?, u16_at(MEDIUM_LENGTH_OFFSET + 2)?);
    let fragment_length = u32::from(u16_at(MEDIUM_FRAGMENT_LENGTH_OFFSET)?);
    let (length, full) = match *header.get(MEDIUM_PIPELINE_OFFSET)? {
        0 => (u32::from(high) << 16 | u32::from(low), fragment_length),
        pipeline @ 1..=PIPELINE_MAX if low == 0 => (u32::from(high), 1 << pipeline),
        _ => return None,
    };
    Some(Fragment {
        sequence: u16_at(MEDIUM_SEQUENCE_OFFSET)?,
        number: *header.get(MEDIUM_FRAGMENT_NUMBER_OFFSET)?,
        marked,
        last: length.checked_sub(1)?.checked_div(full)?,
    })
}
