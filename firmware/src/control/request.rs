//! What a guest asks of its card, and the layouts of these requests.
//!
//! Decoding is strict: a body of another length, or anything but zero where zero must be, is refused with a reason.

use ether::{EtherType, Frame, MacAddr};

use super::{
    CONTROL_FRAME_MAX, CONTROL_VERSION, RefusalCode, StrategyCode, groups, host_record, steering, timed,
    wire::{Envelope, QUEUE_ALL, REPLY_BIT, Reader, STRATEGY_ALL, Writer, header, operation},
};
use crate::{CoalescingChange, HostRecordPlace, SteeringChange, SteeringTable, TimerKind};

/// What a guest asks of its card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Which version do we speak, and what can you do?
    Hello {
        /// Lowest version that the guest speaks.
        version_min: u8,
        /// Highest version that the guest speaks.
        version_max: u8,
    },
    /// What are the coalescing settings of this queue?
    GetCoalescing {
        /// Number of the receive queue.
        queue: u16,
    },
    /// Change coalescing settings.
    SetCoalescing {
        /// Number of the receive queue; `None` = all.
        queue: Option<u16>,
        /// What to change.
        change: CoalescingChange<StrategyCode>,
    },
    /// Which strategies are there, and what are their names?
    GetStrategies {
        /// The strategies from this code on.
        first: StrategyCode,
    },
    /// What was counted?
    GetCounters {
        /// Number of the receive queue; `None` = sum of all.
        queue: Option<u16>,
        /// While this strategy was configured; `None` = sum of all.
        strategy: Option<StrategyCode>,
    },
    /// How are receive queues chosen?
    GetSteering {
        /// Which table is to be told, besides the settings.
        table: SteeringTable,
        /// From which entry on.
        first: u16,
    },
    /// Change how receive queues are chosen.
    SetSteering {
        /// What to change.
        change: SteeringChange,
    },
    /// What did adaptive moderation measure and choose?
    GetAdaptive {
        /// Number of the receive queue.
        queue: u16,
    },
    /// How is the polling watchdog set, and what did it count?
    GetWatchdog {
        /// Number of the receive queue; `None` = all.
        queue: Option<u16>,
    },
    /// Set the polling watchdog.
    SetWatchdog {
        /// Number of the receive queue; `None` = all.
        queue: Option<u16>,
        /// Its delay; 0 = off.
        delay_ns: u64,
    },
    /// Arm a timer, or arm it anew.
    ArmTimer {
        /// The guest's number for it, not 65535.
        timer: u16,
        /// One-shot or clock.
        kind: TimerKind,
        /// After what time, or how often, it rings.
        time_ns: u64,
    },
    /// Disarm a timer; none is no mistake.
    DisarmTimer {
        /// The guest's number for it; `None` only asks what was counted.
        timer: Option<u16>,
    },
    /// Join a multicast group.
    JoinGroup {
        /// Its number, not 0.
        group: u16,
    },
    /// Leave a multicast group.
    LeaveGroup {
        /// Its number, not 0.
        group: u16,
    },
    /// Which group is the card in, and what was counted there?
    GetGroups {
        /// The one with the lowest number above this one.
        after: u16,
    },
    /// What did the copy engine of a self-connected card do?
    GetCopyEngine,
    /// Read the host's state from a record in its memory, or infer it from the rings again.
    SetHostRecord {
        /// Number of the receive queue.
        queue: u16,
        /// Where the record is; `None` = none.
        place: Option<HostRecordPlace>,
    },
}

/// Which settings a SET_COALESCING changes.
mod field {
    pub(super) const STRATEGY: u8 = 1 << 0;
    pub(super) const DELAY: u8 = 1 << 1;
    pub(super) const FRAMES: u8 = 1 << 2;
    pub(super) const MARKS: u8 = 1 << 3;
    pub(super) const ALL: u8 = STRATEGY | DELAY | FRAMES | MARKS;
}

/// Why a request is refused: a code for programs and a sentence for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reject {
    pub(crate) code: RefusalCode,
    pub(crate) reason: &'static str,
}

impl Reject {
    pub(crate) const fn new(code: RefusalCode, reason: &'static str) -> Self {
        Self { code, reason }
    }
}

/// What a frame turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// A reply, or a frame that is not for the card: never answered.
    NotARequest,
    /// A request; `id` 0 and `operation` 0 if they could not be read.
    Request {
        id: u16,
        operation: u8,
        request: Result<Request, Reject>,
    },
}

impl Request {
    /// Writes the request as a frame from `src` (the guest's address) to its card; returns its length. `id` is chosen by
    /// the guest and comes back in the reply.
    ///
    /// Delays above `u32::MAX` ns cannot be said and are sent as `u32::MAX`, which every card refuses.
    pub fn encode(&self, src: MacAddr, id: u16, frame: &mut [u8; CONTROL_FRAME_MAX]) -> usize {
        let mut writer = Writer::new(frame, MacAddr::CARD, src, header(self.operation(), id, 0));
        match *self {
            Self::Hello {
                version_min,
                version_max,
            } => {
                writer.u8(version_min);
                writer.u8(version_max);
                writer.u16(0);
            }
            Self::GetCoalescing { queue } => {
                writer.u16(queue);
                writer.u16(0);
            }
            Self::SetCoalescing { queue, change } => {
                let mut fields = 0;
                for (present, bit) in [
                    (change.strategy.is_some(), field::STRATEGY),
                    (change.delay_ns.is_some(), field::DELAY),
                    (change.frames_max.is_some(), field::FRAMES),
                    (change.marks.is_some(), field::MARKS),
                ] {
                    if present {
                        fields |= bit;
                    }
                }
                writer.u16(queue.unwrap_or(QUEUE_ALL));
                writer.u8(fields);
                writer.u8(change.strategy.map_or(0, |strategy| strategy.0));
                writer.u32(u32::try_from(change.delay_ns.unwrap_or(0)).unwrap_or(u32::MAX));
                writer.u32(change.frames_max.unwrap_or(0));
                writer.u8(change.marks.unwrap_or(false).into());
                writer.bytes(&[0; 3]);
            }
            Self::GetCounters { queue, strategy } => {
                writer.u16(queue.unwrap_or(QUEUE_ALL));
                writer.u8(strategy.map_or(STRATEGY_ALL, |strategy| strategy.0));
                writer.u8(0);
            }
            Self::GetSteering { table, first } => steering::write_get(&mut writer, table, first),
            Self::SetSteering { change } => steering::write_change(&mut writer, &change),
            Self::GetAdaptive { queue } => {
                writer.u16(queue);
                writer.u16(0);
            }
            Self::GetWatchdog { queue } => {
                writer.u16(queue.unwrap_or(QUEUE_ALL));
                writer.u16(0);
            }
            Self::SetWatchdog { queue, delay_ns } => {
                writer.u16(queue.unwrap_or(QUEUE_ALL));
                writer.u16(0);
                writer.u32(u32::try_from(delay_ns).unwrap_or(u32::MAX));
            }
            Self::ArmTimer { timer, kind, time_ns } => timed::write_arm(&mut writer, timer, kind, time_ns),
            Self::DisarmTimer { timer } => {
                writer.u16(timed::timer_code(timer));
                writer.u16(0);
            }
            Self::JoinGroup { group: number }
            | Self::LeaveGroup { group: number }
            | Self::GetGroups { after: number } => {
                groups::write_request(&mut writer, number);
            }
            Self::GetCopyEngine => writer.u32(0),
            Self::SetHostRecord { queue, place } => host_record::write_request(&mut writer, queue, place),
            Self::GetStrategies { first } => {
                writer.u8(first.0);
                writer.bytes(&[0; 3]);
            }
        }
        writer.finish()
    }

    fn operation(&self) -> u8 {
        match self {
            Self::Hello { .. } => operation::HELLO,
            Self::GetCoalescing { .. } => operation::GET_COALESCING,
            Self::SetCoalescing { .. } => operation::SET_COALESCING,
            Self::GetCounters { .. } => operation::GET_COUNTERS,
            Self::GetSteering { .. } => operation::GET_STEERING,
            Self::SetSteering { .. } => operation::SET_STEERING,
            Self::GetAdaptive { .. } => operation::GET_ADAPTIVE,
            Self::GetWatchdog { .. } => operation::GET_WATCHDOG,
            Self::SetWatchdog { .. } => operation::SET_WATCHDOG,
            Self::ArmTimer { .. } => operation::ARM_TIMER,
            Self::DisarmTimer { .. } => operation::DISARM_TIMER,
            Self::JoinGroup { .. } => operation::JOIN_GROUP,
            Self::LeaveGroup { .. } => operation::LEAVE_GROUP,
            Self::GetGroups { .. } => operation::GET_GROUPS,
            Self::GetCopyEngine => operation::GET_COPY_ENGINE,
            Self::GetStrategies { .. } => operation::GET_STRATEGIES,
            Self::SetHostRecord { .. } => operation::SET_HOST_RECORD,
        }
    }

    /// Reads a frame that came from a guest.
    pub(crate) fn decode(frame: &[u8]) -> Decoded {
        let for_card = Frame::new(frame)
            .is_some_and(|frame| frame.dst() == MacAddr::CARD && frame.ether_type() == EtherType::CARD_CONTROL);
        if !for_card {
            return Decoded::NotARequest;
        }
        let envelope = match Envelope::parse(frame) {
            Ok(envelope) => envelope,
            Err(error) => {
                let reject = Reject::new(RefusalCode::Malformed, error.sentence());
                return Decoded::Request {
                    id: 0,
                    operation: 0,
                    request: Err(reject),
                };
            }
        };
        let header = envelope.header;
        if header.operation & REPLY_BIT != 0 {
            return Decoded::NotARequest;
        }
        let request = if header.version != CONTROL_VERSION {
            Err(Reject::new(
                RefusalCode::Version,
                "this card speaks version 1 of the control protocol",
            ))
        } else if header.status != 0 {
            Err(Reject::new(
                RefusalCode::Reserved,
                "the status of a request must be zero",
            ))
        } else {
            decode_body(header.operation, envelope.body)
        };
        Decoded::Request {
            id: header.id,
            operation: header.operation,
            request,
        }
    }
}

const LENGTH: Reject = Reject::new(
    RefusalCode::Malformed,
    "the body does not have the length of this operation",
);
pub(super) const RESERVED: Reject = Reject::new(RefusalCode::Reserved, "reserved bits and bytes must be zero");

fn decode_body(code: u8, body: &[u8]) -> Result<Request, Reject> {
    let body_len = match code {
        operation::HELLO
        | operation::GET_COALESCING
        | operation::GET_COUNTERS
        | operation::GET_STEERING
        | operation::GET_WATCHDOG
        | operation::GET_COPY_ENGINE
        | operation::GET_ADAPTIVE
        | operation::GET_STRATEGIES
        | operation::DISARM_TIMER => 4,
        operation::SET_WATCHDOG | operation::ARM_TIMER => 8,
        operation::SET_COALESCING => 16,
        operation::SET_HOST_RECORD => host_record::REQUEST_LEN,
        operation::SET_STEERING => steering::CHANGE_LEN,
        operation::JOIN_GROUP | operation::LEAVE_GROUP | operation::GET_GROUPS => 4,
        _ => {
            return Err(Reject::new(
                RefusalCode::Operation,
                "the card does not know this operation",
            ));
        }
    };
    if body.len() != body_len {
        return Err(LENGTH);
    }
    let mut reader = Reader(body);
    match code {
        operation::HELLO => hello(&mut reader).ok_or(LENGTH)?,
        operation::GET_COALESCING => get(&mut reader, |queue| Request::GetCoalescing { queue }).ok_or(LENGTH)?,
        operation::SET_COALESCING => set_coalescing(&mut reader).ok_or(LENGTH)?,
        operation::GET_STEERING => steering::read_get(&mut reader).ok_or(LENGTH)?,
        operation::SET_STEERING => steering::read_change(&mut reader).ok_or(LENGTH)?,
        operation::GET_ADAPTIVE => get(&mut reader, |queue| Request::GetAdaptive { queue }).ok_or(LENGTH)?,
        operation::GET_WATCHDOG | operation::SET_WATCHDOG => watchdog(code, &mut reader).ok_or(LENGTH)?,
        operation::ARM_TIMER | operation::DISARM_TIMER => timer(code, &mut reader).ok_or(LENGTH)?,
        operation::JOIN_GROUP | operation::LEAVE_GROUP | operation::GET_GROUPS => {
            groups::read_request(code, &mut reader).ok_or(LENGTH)?
        }
        operation::GET_STRATEGIES => get_strategies(&mut reader).ok_or(LENGTH)?,
        operation::SET_HOST_RECORD => host_record::read_request(&mut reader).ok_or(LENGTH)?,
        operation::GET_COPY_ENGINE => zero(reader.u32().ok_or(LENGTH)?, Request::GetCopyEngine),
        _ => get_counters(&mut reader).ok_or(LENGTH)?,
    }
}

fn zero(value: u32, request: Request) -> Result<Request, Reject> {
    if value == 0 { Ok(request) } else { Err(RESERVED) }
}

fn hello(reader: &mut Reader) -> Option<Result<Request, Reject>> {
    let (version_min, version_max, reserved) = (reader.u8()?, reader.u8()?, reader.u16()?);
    Some(zero(
        reserved.into(),
        Request::Hello {
            version_min,
            version_max,
        },
    ))
}

/// A request that names one queue and nothing else.
fn get(reader: &mut Reader, of_queue: impl FnOnce(u16) -> Request) -> Option<Result<Request, Reject>> {
    let (queue, reserved) = (reader.u16()?, reader.u16()?);
    Some(zero(reserved.into(), of_queue(queue)))
}

fn set_coalescing(reader: &mut Reader) -> Option<Result<Request, Reject>> {
    let (queue, fields, strategy) = (reader.u16()?, reader.u8()?, reader.u8()?);
    let (delay_ns, frames_max, marks) = (reader.u32()?, reader.u32()?, reader.u8()?);
    let mut reserved = u32::from(reader.u8()?) | u32::from(reader.u16()?) | u32::from(fields & !field::ALL);
    // A setting that is not to be changed must be zero, so that a guest that forgot to say so is told.
    let mut take = |bit: u8, value: u32| {
        if fields & bit == 0 {
            reserved |= value;
            None
        } else {
            Some(value)
        }
    };
    let strategy = take(field::STRATEGY, strategy.into());
    let delay_ns = take(field::DELAY, delay_ns).map(u64::from);
    let frames_max = take(field::FRAMES, frames_max);
    let marks = take(field::MARKS, marks.into());
    // It was a byte.
    let strategy = strategy.map(|code| StrategyCode(code as u8));
    let marks = match marks {
        None => None,
        Some(0) => Some(false),
        Some(1) => Some(true),
        Some(_) => return Some(Err(Reject::new(RefusalCode::Range, "marks must be 0 or 1"))),
    };
    let change = CoalescingChange {
        strategy,
        delay_ns,
        frames_max,
        marks,
    };
    Some(zero(
        reserved,
        Request::SetCoalescing {
            queue: some_queue(queue),
            change,
        },
    ))
}

fn get_counters(reader: &mut Reader) -> Option<Result<Request, Reject>> {
    let (queue, code, reserved) = (reader.u16()?, reader.u8()?, reader.u8()?);
    let strategy = (code != STRATEGY_ALL).then_some(StrategyCode(code));
    Some(zero(
        reserved.into(),
        Request::GetCounters {
            queue: some_queue(queue),
            strategy,
        },
    ))
}

fn get_strategies(reader: &mut Reader) -> Option<Result<Request, Reject>> {
    let (first, reserved) = (StrategyCode(reader.u8()?), reader.u8()?);
    let reserved = u32::from(reserved) | u32::from(reader.u16()?);
    Some(zero(reserved, Request::GetStrategies { first }))
}

fn watchdog(code: u8, reader: &mut Reader) -> Option<Result<Request, Reject>> {
    let (queue, reserved) = (some_queue(reader.u16()?), reader.u16()?);
    let request = if code == operation::GET_WATCHDOG {
        Request::GetWatchdog { queue }
    } else {
        let delay_ns = reader.u32()?.into();
        Request::SetWatchdog { queue, delay_ns }
    };
    Some(zero(reserved.into(), request))
}

fn timer(code: u8, reader: &mut Reader) -> Option<Result<Request, Reject>> {
    if code == operation::DISARM_TIMER {
        let (timer, reserved) = (timed::timer_of(reader.u16()?), reader.u16()?);
        return Some(zero(reserved.into(), Request::DisarmTimer { timer }));
    }
    Some(
        timed::read_arm(reader)?.and_then(|(timer, kind, time_ns, reserved)| {
            zero(reserved.into(), Request::ArmTimer { timer, kind, time_ns })
        }),
    )
}

fn some_queue(queue: u16) -> Option<u16> {
    (queue != QUEUE_ALL).then_some(queue)
}
