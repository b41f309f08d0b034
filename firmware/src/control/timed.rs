//! The operations about the watchdog and the guest's timers: their values and layouts.
//!
//! Meanings are in `docs/spec/card-control.md`; the machines are in `watchdog`, `clock` and `timers`.

use super::{
    CONTROL_FRAME_MAX, RefusalCode, Reply, ReplyError,
    request::Reject,
    wire::{QUEUE_ALL, Reader, Writer},
};
use crate::{
    Lateness, TimerKind,
    clock::ClockCounters,
    timers::{Expiry, TimerCounters},
    watchdog::WatchdogCounters,
};

/// The number that names no timer.
const NO_TIMER: u16 = 0xffff;
const KIND_ONCE: u8 = 0;
const KIND_CLOCK: u8 = 1;

/// The watchdog of a queue, or of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchdogReport {
    /// The queue; `None` = all: the delay is that of queue 0, the counters are the sum.
    pub queue: Option<u16>,
    /// The delay in nanoseconds; 0 = off.
    pub delay_ns: u32,
    /// The shortest delay that the card allows.
    pub delay_ns_min: u32,
    /// The longest delay.
    pub delay_ns_max: u32,
    /// What was counted.
    pub counters: WatchdogCounters,
}

/// The card's timers after one was armed, disarmed or asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerReport {
    /// The timer that was named; `None` if none was.
    pub timer: Option<u16>,
    /// It is armed now.
    pub is_armed: bool,
    /// Timers that are armed.
    pub armed: u8,
    /// The shortest time of a timer that the card allows, in nanoseconds.
    pub shortest_ns: u32,
    /// The longest.
    pub longest_ns: u32,
    /// What was counted. All lateness is in `lateness`, that of clocks included.
    pub counters: TimerCounters,
}

/// A timer rang: what the card says unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbell {
    /// The guest's number for the timer.
    pub timer: u16,
    /// One-shot or clock.
    pub kind: TimerKind,
    /// How late the card was, in nanoseconds.
    pub late_ns: u32,
    /// The n-th doorbell of this card, counted from 1: a gap tells of lost ones.
    pub sequence: u64,
}

/// Writes the doorbell frame for `expiry`, to who armed the timer; returns its length. It is a frame for receive queue 0.
pub fn doorbell_frame(expiry: &Expiry, frame: &mut [u8; CONTROL_FRAME_MAX]) -> usize {
    let doorbell = Doorbell {
        timer: expiry.timer,
        kind: expiry.kind,
        late_ns: u32::try_from(expiry.late_ns).unwrap_or(u32::MAX),
        sequence: expiry.sequence,
    };
    Reply::TimerExpired(doorbell).encode(expiry.owner, 0, 0, frame)
}

pub(super) fn write_doorbell(writer: &mut Writer, doorbell: &Doorbell) {
    writer.u16(doorbell.timer);
    writer.u8(kind_code(doorbell.kind));
    writer.u8(0);
    writer.u32(doorbell.late_ns);
    writer.u64(doorbell.sequence);
}

pub(super) fn read_doorbell(reader: &mut Reader) -> Result<Option<Doorbell>, ReplyError> {
    let parts = (|| Some((reader.u16()?, reader.u8()?, reader.u8()?, reader.u32()?, reader.u64()?)))();
    let Some((timer, kind, _, late_ns, sequence)) = parts else {
        return Ok(None);
    };
    Ok(Some(Doorbell {
        timer,
        kind: kind_of(kind).ok_or(ReplyError::UnknownValue)?,
        late_ns,
        sequence,
    }))
}

fn kind_code(kind: TimerKind) -> u8 {
    match kind {
        TimerKind::Once => KIND_ONCE,
        TimerKind::Clock => KIND_CLOCK,
    }
}

fn kind_of(code: u8) -> Option<TimerKind> {
    match code {
        KIND_ONCE => Some(TimerKind::Once),
        KIND_CLOCK => Some(TimerKind::Clock),
        _ => None,
    }
}

pub(super) fn write_arm(writer: &mut Writer, timer: u16, kind: TimerKind, time_ns: u64) {
    writer.u16(timer);
    writer.u8(kind_code(kind));
    writer.u8(0);
    writer.u32(u32::try_from(time_ns).unwrap_or(u32::MAX));
}

/// The parts of an ARM_TIMER, and its reserved byte.
pub(super) fn read_arm(reader: &mut Reader) -> Option<Result<(u16, TimerKind, u64, u8), Reject>> {
    let (timer, kind, reserved, time_ns) = (reader.u16()?, reader.u8()?, reader.u8()?, reader.u32()?);
    if timer == NO_TIMER {
        return Some(Err(Reject::new(
            RefusalCode::Range,
            "a timer's number must be below 65535",
        )));
    }
    Some(match kind_of(kind) {
        Some(kind) => Ok((timer, kind, time_ns.into(), reserved)),
        None => Err(Reject::new(
            RefusalCode::Range,
            "the kind of a timer must be 0 (once) or 1 (clock)",
        )),
    })
}

pub(super) fn timer_code(timer: Option<u16>) -> u16 {
    timer.unwrap_or(NO_TIMER)
}

pub(super) fn timer_of(code: u16) -> Option<u16> {
    (code != NO_TIMER).then_some(code)
}

fn write_lateness(writer: &mut Writer, lateness: &Lateness) {
    writer.u64(lateness.max_ns());
    lateness.counts().iter().for_each(|&count| writer.u64(count));
}

fn read_lateness(reader: &mut Reader) -> Option<Lateness> {
    let max_ns = reader.u64()?;
    let mut counts = [0; Lateness::BUCKETS];
    for count in &mut counts {
        *count = reader.u64()?;
    }
    Some(Lateness::from_parts(counts, max_ns))
}

pub(super) fn write_watchdog(writer: &mut Writer, report: &WatchdogReport) {
    writer.u16(report.queue.unwrap_or(QUEUE_ALL));
    writer.u16(0);
    writer.u32(report.delay_ns);
    writer.u32(report.delay_ns_min);
    writer.u32(report.delay_ns_max);
    let counters = &report.counters;
    for value in [
        counters.started,
        counters.cancelled,
        counters.restarted_disabled,
        counters.restarted_progress,
        counters.restarted_pending,
        counters.fired,
    ] {
        writer.u64(value);
    }
    write_lateness(writer, &counters.lateness);
}

pub(super) fn read_watchdog(reader: &mut Reader) -> Option<WatchdogReport> {
    let (queue, _) = (reader.u16()?, reader.u16()?);
    Some(WatchdogReport {
        queue: (queue != QUEUE_ALL).then_some(queue),
        delay_ns: reader.u32()?,
        delay_ns_min: reader.u32()?,
        delay_ns_max: reader.u32()?,
        counters: WatchdogCounters {
            started: reader.u64()?,
            cancelled: reader.u64()?,
            restarted_disabled: reader.u64()?,
            restarted_progress: reader.u64()?,
            restarted_pending: reader.u64()?,
            fired: reader.u64()?,
            lateness: read_lateness(reader)?,
        },
    })
}

pub(super) fn write_timers(writer: &mut Writer, report: &TimerReport) {
    writer.u16(timer_code(report.timer));
    writer.u8(report.is_armed.into());
    writer.u8(report.armed);
    writer.u32(report.shortest_ns);
    writer.u32(report.longest_ns);
    writer.u32(0);
    let counters = &report.counters;
    for value in [
        counters.armed,
        counters.disarmed,
        counters.rung_once,
        counters.lost,
        counters.clocks.idle,
        counters.clocks.polled,
        counters.clocks.rung,
        counters.clocks.missed,
    ] {
        writer.u64(value);
    }
    write_lateness(writer, &counters.lateness);
}

pub(super) fn read_timers(reader: &mut Reader) -> Option<TimerReport> {
    let (timer, is_armed, armed) = (reader.u16()?, reader.u8()?, reader.u8()?);
    let (shortest_ns, longest_ns, _) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let (armed_total, disarmed, rung_once, lost) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
    Some(TimerReport {
        timer: timer_of(timer),
        is_armed: is_armed != 0,
        armed,
        shortest_ns,
        longest_ns,
        counters: TimerCounters {
            armed: armed_total,
            disarmed,
            rung_once,
            lost,
            clocks: ClockCounters {
                idle: reader.u64()?,
                polled: reader.u64()?,
                rung: reader.u64()?,
                missed: reader.u64()?,
                lateness: Lateness::default(),
            },
            lateness: read_lateness(reader)?,
        },
    })
}
