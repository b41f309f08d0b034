//! Layouts of the operations about steering, GET_STEERING and SET_STEERING, and the card's answer to them.
//!
//! Values and their limits are `crate::steering`'s.

use super::{
    RefusalCode, ReplyError, Request, SteeringReport,
    request::{RESERVED, Reject},
    wire::{Reader, Writer},
};
use crate::{
    SteeringChange, SteeringCounters, SteeringError, SteeringMode, SteeringTable, TABLE_ENTRIES_MAX, TableChange,
    TableEntries,
};

/// Which settings a SET_STEERING changes.
mod field {
    pub(super) const MODE: u8 = 1 << 0;
    pub(super) const TABLE: u8 = 1 << 1;
    pub(super) const PROPOSED: u8 = 1 << 2;
    pub(super) const ALL: u8 = MODE | TABLE | PROPOSED;
}

/// Which tables of a report are spread evenly.
mod even {
    pub(super) const ENDPOINTS: u8 = 1 << 0;
    pub(super) const INDIRECTION: u8 = 1 << 1;
}

/// Length of the body of a SET_STEERING.
pub(super) const CHANGE_LEN: usize = 8 + TABLE_ENTRIES_MAX;

const MODE: Reject = Reject::new(RefusalCode::Range, "the card does not know this steering mode");
const TABLE: Reject = Reject::new(
    RefusalCode::Range,
    "the steering tables are 1 (endpoints) and 2 (indirection)",
);
const ENTRIES: Reject = Reject::new(
    RefusalCode::Range,
    "at most 128 entries of a steering table can be set at a time",
);

pub(super) fn write_get(writer: &mut Writer, table: SteeringTable, first: u16) {
    writer.u8(table.code());
    writer.u8(0);
    writer.u16(first);
}

pub(super) fn read_get(reader: &mut Reader) -> Option<Result<Request, Reject>> {
    let (table, reserved, first) = (reader.u8()?, reader.u8()?, reader.u16()?);
    Some(match SteeringTable::from_code(table) {
        None => Err(TABLE),
        Some(_) if reserved != 0 => Err(RESERVED),
        Some(table) => Ok(Request::GetSteering { table, first }),
    })
}

pub(super) fn write_change(writer: &mut Writer, change: &SteeringChange) {
    let (mut fields, mut table, mut first, mut queues) = (0, 0, 0, &[][..]);
    if change.mode.is_some() {
        fields |= field::MODE;
    }
    if change.proposed {
        fields |= field::PROPOSED;
    }
    if let Some((which, change)) = &change.table {
        fields |= field::TABLE;
        table = which.code();
        if let TableChange::Entries(entries) = change {
            (first, queues) = (entries.first(), entries.queues());
        }
    }
    writer.u8(fields);
    writer.u8(change.mode.map_or(0, SteeringMode::code));
    writer.u8(table);
    writer.u8(queues.len() as u8);
    writer.u16(first);
    writer.u16(0);
    writer.bytes(queues);
    writer.bytes(&[0; TABLE_ENTRIES_MAX][queues.len()..]);
}

pub(super) fn read_change(reader: &mut Reader) -> Option<Result<Request, Reject>> {
    let (fields, mode, table, count) = (reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?);
    let (first, reserved) = (reader.u16()?, reader.u16()?);
    let mut queues = [0; TABLE_ENTRIES_MAX];
    for queue in &mut queues {
        *queue = reader.u8()?;
    }
    Some(change(fields, mode, (table, first, count), &queues, reserved))
}

fn change(
    fields: u8,
    mode: u8,
    (table, first, count): (u8, u16, u8),
    queues: &[u8; TABLE_ENTRIES_MAX],
    reserved: u16,
) -> Result<Request, Reject> {
    let (used, unused) = queues.split_at_checked(count.into()).ok_or(ENTRIES)?;
    let unused_fields = (fields & field::MODE == 0 && mode != 0)
        || (fields & field::TABLE == 0 && (table != 0 || count != 0))
        || (count == 0 && first != 0);
    if fields & !field::ALL != 0 || reserved != 0 || unused_fields || unused.iter().any(|&queue| queue != 0) {
        return Err(RESERVED);
    }
    let mut change = SteeringChange {
        proposed: fields & field::PROPOSED != 0,
        ..SteeringChange::default()
    };
    if fields & field::MODE != 0 {
        change.mode = Some(SteeringMode::from_code(mode).ok_or(MODE)?);
    }
    if fields & field::TABLE != 0 {
        let entries = TableEntries::new(first, used).map_or(TableChange::Even, TableChange::Entries);
        change.table = Some((SteeringTable::from_code(table).ok_or(TABLE)?, entries));
    }
    Ok(Request::SetSteering { change })
}

pub(super) fn write_report(writer: &mut Writer, report: &SteeringReport) {
    let mut spread = 0;
    if report.endpoints_even {
        spread |= even::ENDPOINTS;
    }
    if report.indirection_even {
        spread |= even::INDIRECTION;
    }
    writer.u8(report.mode.code());
    writer.u8(spread);
    writer.u16(report.queue_pairs);
    writer.u16(report.ready);
    writer.u8(report.table.code());
    writer.u8(report.entries.queues().len() as u8);
    writer.u16(report.entries.first());
    writer.u16(0);
    let SteeringCounters {
        by_endpoint,
        by_flow,
        to_first,
    } = report.counters;
    [by_endpoint, by_flow, to_first]
        .into_iter()
        .for_each(|count| writer.u64(count));
    writer.bytes(report.entries.queues());
    writer.bytes(&[0; TABLE_ENTRIES_MAX][report.entries.queues().len()..]);
}

pub(super) fn read_report(reader: &mut Reader) -> Result<Option<SteeringReport>, ReplyError> {
    let parts = (|| {
        let head = (reader.u8()?, reader.u8()?, reader.u16()?, reader.u16()?);
        let table = (reader.u8()?, reader.u8()?, reader.u16()?, reader.u16()?);
        let counters = SteeringCounters {
            by_endpoint: reader.u64()?,
            by_flow: reader.u64()?,
            to_first: reader.u64()?,
        };
        let mut queues = [0; TABLE_ENTRIES_MAX];
        for queue in &mut queues {
            *queue = reader.u8()?;
        }
        Some((head, table, counters, queues))
    })();
    let Some(((mode, spread, queue_pairs, ready), (table, count, first, _), counters, queues)) = parts else {
        return Ok(None);
    };
    let entries = queues
        .get(..usize::from(count))
        .and_then(|used| TableEntries::new(first, used));
    Ok(Some(SteeringReport {
        mode: SteeringMode::from_code(mode).ok_or(ReplyError::UnknownValue)?,
        endpoints_even: spread & even::ENDPOINTS != 0,
        indirection_even: spread & even::INDIRECTION != 0,
        queue_pairs,
        ready,
        counters,
        table: SteeringTable::from_code(table).ok_or(ReplyError::UnknownValue)?,
        entries: entries.ok_or(ReplyError::Malformed)?,
    }))
}

impl From<SteeringError> for Reject {
    fn from(error: SteeringError) -> Self {
        let code = match error {
            SteeringError::UnknownQueue => RefusalCode::Queue,
            SteeringError::BeyondTable => RefusalCode::Range,
        };
        Self::new(code, error.sentence())
    }
}
