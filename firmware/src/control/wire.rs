//! Bytes of control frames: the common header, and a bounded reader and writer.
//!
//! All fields wider than a byte are big-endian. Nothing here can panic on what a frame contains.

use ether::{EtherType, MacAddr};

use super::{CONTROL_FRAME_MAX, CONTROL_FRAME_MIN, CONTROL_VERSION};

/// "WC", so that another user of the experimental EtherType is not taken for a guest.
pub(super) const MAGIC: u16 = 0x5743;
/// Ethernet header and common header; the body follows.
pub(super) const HEADER_LEN: usize = 24;
/// The longest body.
pub(super) const BODY_MAX: usize = CONTROL_FRAME_MAX - HEADER_LEN;
/// Set in the operation of a reply.
pub(super) const REPLY_BIT: u8 = 0x80;
/// "All queues" or "sum of all queues".
pub(super) const QUEUE_ALL: u16 = 0xffff;
/// "Sum of all strategies".
pub(super) const STRATEGY_ALL: u8 = 0xff;

/// Operation codes.
pub(crate) mod operation {
    pub(crate) const HELLO: u8 = 1;
    pub(crate) const GET_COALESCING: u8 = 2;
    pub(crate) const SET_COALESCING: u8 = 3;
    pub(crate) const GET_COUNTERS: u8 = 4;
    pub(crate) const GET_STEERING: u8 = 5;
    pub(crate) const SET_STEERING: u8 = 6;
    pub(crate) const GET_WATCHDOG: u8 = 7;
    pub(crate) const SET_WATCHDOG: u8 = 8;
    pub(crate) const ARM_TIMER: u8 = 9;
    pub(crate) const DISARM_TIMER: u8 = 10;
    pub(crate) const TIMER_EXPIRED: u8 = 11;
    pub(crate) const GET_ADAPTIVE: u8 = 16;
    pub(crate) const JOIN_GROUP: u8 = 12;
    pub(crate) const LEAVE_GROUP: u8 = 13;
    pub(crate) const GET_GROUPS: u8 = 14;
    pub(crate) const GET_COPY_ENGINE: u8 = 15;
    pub(crate) const GET_STRATEGIES: u8 = 17;
    pub(crate) const SET_HOST_RECORD: u8 = 18;
}

/// The common header without its constant parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: u8,
    pub(super) operation: u8,
    pub(super) id: u16,
    /// 0 in requests and in replies to requests that were done.
    pub(super) status: u16,
}

/// Takes bytes from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }
}

/// Appends to a frame; what does not fit is a fault of the caller and is left out.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    frame: &'a mut [u8; CONTROL_FRAME_MAX],
    len: usize,
}

impl<'a> Writer<'a> {
    /// Starts a frame with its headers.
    pub(super) fn new(frame: &'a mut [u8; CONTROL_FRAME_MAX], dst: MacAddr, src: MacAddr, header: Header) -> Self {
        frame.fill(0);
        let mut writer = Self { frame, len: 0 };
        writer.bytes(&dst.0);
        writer.bytes(&src.0);
        writer.u16(EtherType::CARD_CONTROL.0);
        writer.u16(MAGIC);
        writer.u8(header.version);
        writer.u8(header.operation);
        writer.u16(header.id);
        writer.u16(header.status);
        writer.u16(0); // body length, see `finish`
        debug_assert_eq!(writer.len, HEADER_LEN);
        writer
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        debug_assert!(
            self.len + bytes.len() <= CONTROL_FRAME_MAX,
            "control frames are bounded by their layouts"
        );
        if let Some(room) = self.frame.get_mut(self.len..self.len + bytes.len()) {
            room.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_be_bytes());
    }

    /// Writes the length of the body and says that of the frame, padding included.
    pub(super) fn finish(self) -> usize {
        let body_len = (self.len - HEADER_LEN) as u16;
        self.frame[HEADER_LEN - 2..HEADER_LEN].copy_from_slice(&body_len.to_be_bytes());
        self.len.max(CONTROL_FRAME_MIN)
    }
}

/// A frame whose header could be read, and its body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Envelope<'a> {
    pub(super) header: Header,
    pub(super) body: &'a [u8],
}

weft_settings::errors! {
    /// What is wrong with a header.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum HeaderError {
        TooShort = "the frame is shorter than the control header",
        TooLong = "the frame is longer than a control frame may be",
        Magic = "the frame does not carry the magic number of the control protocol",
        BodyLength = "the body is longer than the frame",
    }
}

impl<'a> Envelope<'a> {
    /// Splits a frame. Addresses, EtherType and version are not checked.
    pub(super) fn parse(frame: &'a [u8]) -> Result<Self, HeaderError> {
        if frame.len() > CONTROL_FRAME_MAX {
            return Err(HeaderError::TooLong);
        }
        let (head, rest) = frame.split_at_checked(HEADER_LEN).ok_or(HeaderError::TooShort)?;
        let mut reader = Reader(&head[ether::ETHERNET_HEADER_LEN..]);
        let parts = (|| {
            let magic = reader.u16()?;
            let header = Header {
                version: reader.u8()?,
                operation: reader.u8()?,
                id: reader.u16()?,
                status: reader.u16()?,
            };
            Some((magic, header, reader.u16()?))
        })();
        let (magic, header, body_len) = parts.ok_or(HeaderError::TooShort)?;
        if magic != MAGIC {
            return Err(HeaderError::Magic);
        }
        let body = rest.get(..usize::from(body_len)).ok_or(HeaderError::BodyLength)?;
        Ok(Self { header, body })
    }
}

/// The header of everything that is sent under the one version there is.
pub(super) const fn header(operation: u8, id: u16, status: u16) -> Header {
    Header {
        version: CONTROL_VERSION,
        operation,
        id,
        status,
    }
}
