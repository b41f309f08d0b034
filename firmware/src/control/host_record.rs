//! SET_HOST_RECORD: where a host keeps the record that its card reads, the values and layouts of this operation.

use ether::MacAddr;

use super::{
    RefusalCode, Request,
    request::Reject,
    wire::{Reader, Writer},
};
use crate::{HOST_RECORD_LEN, HostRecordCounters, HostRecordPlace};

/// The length of a request's body.
pub(super) const REQUEST_LEN: usize = 16;

/// What a guest wants its card to read; only the driver of the firmware knows which memory the card reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRecordRequest {
    /// The receive queue that the record is about, which exists.
    pub queue: u16,
    /// Where the record is, aligned; `None` = the card is to read none any more.
    pub place: Option<HostRecordPlace>,
    /// The address that the guest sent the request from.
    pub guest: MacAddr,
    /// Number of the control frame, which the reply repeats.
    pub(crate) id: u16,
}

weft_settings::errors! {
    /// Why a card does not read a record.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum HostRecordRefusal {
        /// It is not at a multiple of [`HOST_RECORD_LEN`].
        Misaligned = "the host's record must stand at an address that is a multiple of 32",
        /// It is outside of the guest's memory; behind an IOMMU, also where the card has no translation of its address.
        Unreachable = "the host's record is not in memory that the card reaches",
        /// Its first word is another one.
        Key = "the host's record does not begin with the key that the request names",
    }
}

impl From<HostRecordRefusal> for Reject {
    fn from(refusal: HostRecordRefusal) -> Self {
        Self::new(RefusalCode::Range, refusal.sentence())
    }
}

/// What a card reads of a queue's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRecordReport {
    /// The receive queue.
    pub queue: u16,
    /// The card reads a record: the state of the host is exact as long as the record is there.
    pub is_read: bool,
    /// What the card counted.
    pub counters: HostRecordCounters,
}

pub(super) fn write_request(writer: &mut Writer, queue: u16, place: Option<HostRecordPlace>) {
    let HostRecordPlace { address, key } = place.unwrap_or(HostRecordPlace { address: 0, key: 0 });
    writer.u16(queue);
    writer.u16(0);
    writer.u32(key);
    writer.u64(address);
}

pub(super) fn read_request(reader: &mut Reader) -> Option<Result<Request, Reject>> {
    let (queue, reserved, key, address) = (reader.u16()?, reader.u16()?, reader.u32()?, reader.u64()?);
    Some(if reserved != 0 || key == 0 && address != 0 {
        Err(super::request::RESERVED)
    } else if !address.is_multiple_of(HOST_RECORD_LEN as u64) {
        Err(HostRecordRefusal::Misaligned.into())
    } else {
        let place = (key != 0).then_some(HostRecordPlace { address, key });
        Ok(Request::SetHostRecord { queue, place })
    })
}

pub(super) fn write_report(writer: &mut Writer, report: &HostRecordReport) {
    writer.u16(report.queue);
    writer.u8(report.is_read.into());
    writer.u8(0);
    writer.u32(0);
    let named = report.counters.named();
    named.iter().for_each(|(_, count)| writer.u64(*count));
}

pub(super) fn read_report(reader: &mut Reader) -> Option<HostRecordReport> {
    let (queue, is_read, _, _) = (reader.u16()?, reader.u8()? != 0, reader.u8()?, reader.u32()?);
    Some(HostRecordReport {
        queue,
        is_read,
        counters: HostRecordCounters {
            exact: reader.u64()?,
            inferred: reader.u64()?,
            unreachable: reader.u64()?,
            replaced: reader.u64()?,
            refused: reader.u64()?,
        },
    })
}
