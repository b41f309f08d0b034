//! What a card answers its guest and says unasked, and the layouts of these replies.
//!
//! Decoding ignores what follows the known part of a body, so that a later card may say more.

use alloc::{borrow::Cow, string::String};

use ether::{EtherType, Frame, MacAddr};

use super::{
    Abilities, AdaptiveReport, CONTROL_FRAME_MAX, CoalescingReport, CopyEngineReport, CounterReport, Doorbell,
    GroupReport, HostRecordReport, Refusal, SteeringReport, StrategyCode, StrategyNames, StrategySet, TimerReport,
    WatchdogReport, groups, host_record, steering, timed,
    wire::{BODY_MAX, Envelope, QUEUE_ALL, REPLY_BIT, Reader, STRATEGY_ALL, Writer, header, operation},
};
use crate::{AdaptiveState, Coalescing, Histogram, Reason, RxCounts};

/// What a card answers, and what it says unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Answers [`Request::Hello`](super::Request::Hello).
    Hello(Abilities),
    /// Answers [`Request::GetCoalescing`](super::Request::GetCoalescing).
    GetCoalescing(CoalescingReport),
    /// Answers [`Request::SetCoalescing`](super::Request::SetCoalescing) with the settings now in use (of queue 0, if all
    /// were changed).
    SetCoalescing(CoalescingReport),
    /// Answers [`Request::GetStrategies`](super::Request::GetStrategies).
    GetStrategies(StrategyNames),
    /// Answers [`Request::GetCounters`](super::Request::GetCounters).
    GetCounters(CounterReport),
    /// Answers [`Request::GetSteering`](super::Request::GetSteering).
    GetSteering(SteeringReport),
    /// Answers [`Request::SetSteering`](super::Request::SetSteering) with the settings now in use, and the entries from the
    /// first that was changed on.
    SetSteering(SteeringReport),
    /// Answers [`Request::GetAdaptive`](super::Request::GetAdaptive).
    GetAdaptive(AdaptiveReport),
    /// Answers [`Request::GetWatchdog`](super::Request::GetWatchdog).
    GetWatchdog(WatchdogReport),
    /// Answers [`Request::SetWatchdog`](super::Request::SetWatchdog) with the settings now in use.
    SetWatchdog(WatchdogReport),
    /// Answers [`Request::ArmTimer`](super::Request::ArmTimer).
    ArmTimer(TimerReport),
    /// Answers [`Request::DisarmTimer`](super::Request::DisarmTimer).
    DisarmTimer(TimerReport),
    /// Answers no request: a timer rang.
    TimerExpired(Doorbell),
    /// Answers [`Request::JoinGroup`](super::Request::JoinGroup).
    JoinGroup(GroupReport),
    /// Answers [`Request::LeaveGroup`](super::Request::LeaveGroup).
    LeaveGroup(GroupReport),
    /// Answers [`Request::GetGroups`](super::Request::GetGroups); group 0 if there is none.
    GetGroups(GroupReport),
    /// Answers [`Request::GetCopyEngine`](super::Request::GetCopyEngine).
    GetCopyEngine(CopyEngineReport),
    /// Answers [`Request::SetHostRecord`](super::Request::SetHostRecord).
    SetHostRecord(HostRecordReport),
    /// Answers a request that was not done, and says why.
    Refused(Refusal),
}

/// The reasons whose counts stand together in a reply; a reason that was added later stands behind all older fields.
const FIRST_REASONS: [Reason; 8] = [
    Reason::EveryPacket,
    Reason::Mark,
    Reason::Timeout,
    Reason::Count,
    Reason::Deferred,
    Reason::Watchdog,
    Reason::Adaptive,
    Reason::Restart,
];

weft_settings::errors! {
    /// A frame is not a reply that can be understood; it is to be ignored.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ReplyError {
        /// Not a reply from the guest's own card.
        NotAReply = "not a reply of this guest's card; ignored",
        /// Shorter than its layout says, longer than a control frame, or without the magic number.
        Malformed = "a malformed reply of the card; ignored",
        /// Of an operation that this end does not know.
        UnknownOperation = "a reply of the card to an operation not known here; ignored",
        /// With a value that this end does not know, such as a newer strategy.
        UnknownValue = "a reply of the card with a value not known here; ignored",
    }
}

impl Reply {
    /// Writes the reply to request `id` as a frame from the card to `dst` (the guest's address); returns its length.
    ///
    /// `operation` is that of the request, for refusals (0 if it could not be read).
    pub(crate) fn encode(&self, dst: MacAddr, id: u16, operation: u8, frame: &mut [u8; CONTROL_FRAME_MAX]) -> usize {
        let (code, status) = match self {
            Self::Hello(_) => (operation::HELLO, 0),
            Self::GetCoalescing(_) => (operation::GET_COALESCING, 0),
            Self::SetCoalescing(_) => (operation::SET_COALESCING, 0),
            Self::GetCounters(_) => (operation::GET_COUNTERS, 0),
            Self::GetSteering(_) => (operation::GET_STEERING, 0),
            Self::SetSteering(_) => (operation::SET_STEERING, 0),
            Self::GetAdaptive(_) => (operation::GET_ADAPTIVE, 0),
            Self::GetWatchdog(_) => (operation::GET_WATCHDOG, 0),
            Self::SetWatchdog(_) => (operation::SET_WATCHDOG, 0),
            Self::ArmTimer(_) => (operation::ARM_TIMER, 0),
            Self::DisarmTimer(_) => (operation::DISARM_TIMER, 0),
            Self::TimerExpired(_) => (operation::TIMER_EXPIRED, 0),
            Self::JoinGroup(_) => (operation::JOIN_GROUP, 0),
            Self::LeaveGroup(_) => (operation::LEAVE_GROUP, 0),
            Self::GetGroups(_) => (operation::GET_GROUPS, 0),
            Self::GetCopyEngine(_) => (operation::GET_COPY_ENGINE, 0),
            Self::GetStrategies(_) => (operation::GET_STRATEGIES, 0),
            Self::SetHostRecord(_) => (operation::SET_HOST_RECORD, 0),
            Self::Refused(refusal) => (operation, refusal.code),
        };
        let mut writer = Writer::new(frame, dst, MacAddr::CARD, header(code | REPLY_BIT, id, status));
        match self {
            Self::Hello(abilities) => {
                writer.u8(abilities.version);
                writer.u8(0);
                writer.u16(abilities.queue_pairs);
                writer.u32(abilities.bits);
                writer.u32(abilities.strategies.0);
                writer.u32(abilities.delay_ns_max);
                writer.u32(abilities.frames_max_max);
            }
            Self::GetCoalescing(report) | Self::SetCoalescing(report) => {
                writer.u16(report.queue);
                writer.u8(report.coalescing.strategy.0);
                writer.u8(report.coalescing.marks.into());
                writer.u32(u32::try_from(report.coalescing.delay_ns).unwrap_or(u32::MAX));
                writer.u32(report.coalescing.frames_max);
            }
            Self::GetCounters(report) => write_counters(&mut writer, report),
            Self::GetSteering(report) | Self::SetSteering(report) => steering::write_report(&mut writer, report),
            Self::GetAdaptive(report) => write_adaptive(&mut writer, report),
            Self::GetWatchdog(report) | Self::SetWatchdog(report) => timed::write_watchdog(&mut writer, report),
            Self::ArmTimer(report) | Self::DisarmTimer(report) => timed::write_timers(&mut writer, report),
            Self::TimerExpired(doorbell) => timed::write_doorbell(&mut writer, doorbell),
            Self::JoinGroup(report) | Self::LeaveGroup(report) | Self::GetGroups(report) => {
                groups::write_report(&mut writer, report);
            }
            Self::GetCopyEngine(report) => report.write(&mut writer),
            Self::GetStrategies(names) => names.write(&mut writer),
            Self::SetHostRecord(report) => host_record::write_report(&mut writer, report),
            Self::Refused(refusal) => {
                let text = refusal.reason.as_bytes();
                writer.bytes(&text[..text.len().min(BODY_MAX)]);
            }
        }
        writer.finish()
    }

    /// Reads a frame that a guest received; gives the request's id and the reply.
    ///
    /// # Errors
    /// [`ReplyError`]; the frame is then to be ignored.
    pub fn decode(frame: &[u8]) -> Result<(u16, Self), ReplyError> {
        let from_card = Frame::new(frame)
            .is_some_and(|frame| frame.src() == MacAddr::CARD && frame.ether_type() == EtherType::CARD_CONTROL);
        if !from_card {
            return Err(ReplyError::NotAReply);
        }
        let envelope = Envelope::parse(frame).map_err(|_| ReplyError::Malformed)?;
        let header = envelope.header;
        if header.operation & REPLY_BIT == 0 {
            return Err(ReplyError::NotAReply);
        }
        if header.status != 0 {
            let refusal = Refusal {
                code: header.status,
                reason: Cow::Owned(printable(envelope.body)),
            };
            return Ok((header.id, Self::Refused(refusal)));
        }
        let mut reader = Reader(envelope.body);
        let reply = match header.operation & !REPLY_BIT {
            operation::HELLO => read_abilities(&mut reader).map(Self::Hello),
            operation::GET_COALESCING => read_coalescing(&mut reader).map(Self::GetCoalescing),
            operation::SET_COALESCING => read_coalescing(&mut reader).map(Self::SetCoalescing),
            operation::GET_COUNTERS => read_counters(&mut reader).map(Self::GetCounters),
            operation::GET_STEERING => steering::read_report(&mut reader)?.map(Self::GetSteering),
            operation::SET_STEERING => steering::read_report(&mut reader)?.map(Self::SetSteering),
            operation::GET_ADAPTIVE => read_adaptive(&mut reader).map(Self::GetAdaptive),
            operation::GET_WATCHDOG => timed::read_watchdog(&mut reader).map(Self::GetWatchdog),
            operation::SET_WATCHDOG => timed::read_watchdog(&mut reader).map(Self::SetWatchdog),
            operation::ARM_TIMER => timed::read_timers(&mut reader).map(Self::ArmTimer),
            operation::DISARM_TIMER => timed::read_timers(&mut reader).map(Self::DisarmTimer),
            operation::TIMER_EXPIRED => timed::read_doorbell(&mut reader)?.map(Self::TimerExpired),
            operation::JOIN_GROUP => groups::read_report(&mut reader).map(Self::JoinGroup),
            operation::LEAVE_GROUP => groups::read_report(&mut reader).map(Self::LeaveGroup),
            operation::GET_GROUPS => groups::read_report(&mut reader).map(Self::GetGroups),
            operation::GET_COPY_ENGINE => CopyEngineReport::read(&mut reader).map(Self::GetCopyEngine),
            operation::SET_HOST_RECORD => host_record::read_report(&mut reader).map(Self::SetHostRecord),
            operation::GET_STRATEGIES => StrategyNames::read(&mut reader)?.map(Self::GetStrategies),
            _ => return Err(ReplyError::UnknownOperation),
        };
        reply.map(|reply| (header.id, reply)).ok_or(ReplyError::Malformed)
    }
}

/// A reason as text: it may come from a card that is not ours, and ends on a terminal.
fn printable(text: &[u8]) -> String {
    text.iter()
        .map(|&byte| {
            if matches!(byte, b' '..=b'~') {
                char::from(byte)
            } else {
                '?'
            }
        })
        .collect()
}

fn read_abilities(reader: &mut Reader) -> Option<Abilities> {
    let (version, _, queue_pairs) = (reader.u8()?, reader.u8()?, reader.u16()?);
    Some(Abilities {
        version,
        queue_pairs,
        bits: reader.u32()?,
        strategies: StrategySet(reader.u32()?),
        delay_ns_max: reader.u32()?,
        frames_max_max: reader.u32()?,
    })
}

fn read_coalescing(reader: &mut Reader) -> Option<CoalescingReport> {
    let (queue, strategy, marks) = (reader.u16()?, reader.u8()?, reader.u8()?);
    let coalescing = Coalescing {
        strategy: StrategyCode(strategy),
        delay_ns: reader.u32()?.into(),
        frames_max: reader.u32()?,
        marks: marks != 0,
    };
    Some(CoalescingReport { queue, coalescing })
}

fn write_adaptive(writer: &mut Writer, report: &AdaptiveReport) {
    let state = report.state.unwrap_or_default();
    let ns = |delay_ns| u32::try_from(delay_ns).unwrap_or(u32::MAX);
    writer.u16(report.queue);
    writer.u8(report.strategy.0);
    writer.u8(report.state.is_some().into());
    writer.u32(ns(report.longest_ns));
    writer.u32(ns(state.delay_ns));
    writer.u32(0);
    writer.u64(state.packets_per_s);
    writer.u64(state.longer);
    writer.u64(state.shorter);
}

fn read_adaptive(reader: &mut Reader) -> Option<AdaptiveReport> {
    let (queue, strategy, adapts, longest_ns) = (reader.u16()?, reader.u8()?, reader.u8()?, reader.u32()?);
    let (delay_ns, _) = (reader.u32()?, reader.u32()?);
    let state = AdaptiveState {
        delay_ns: delay_ns.into(),
        packets_per_s: reader.u64()?,
        longer: reader.u64()?,
        shorter: reader.u64()?,
    };
    Some(AdaptiveReport {
        queue,
        strategy: StrategyCode(strategy),
        longest_ns: longest_ns.into(),
        state: (adapts != 0).then_some(state),
    })
}

fn write_counters(writer: &mut Writer, report: &CounterReport) {
    let counts = &report.counts;
    writer.u16(report.queue.unwrap_or(QUEUE_ALL));
    writer.u8(report.strategy.map_or(STRATEGY_ALL, |strategy| strategy.0));
    writer.u8(0);
    for value in [
        counts.packets,
        counts.bytes,
        counts.marked,
        counts.announced,
        counts.discarded,
        counts.refused_full,
        counts.deferred,
        counts.suppressed,
        counts.signalled,
    ] {
        writer.u64(value);
    }
    FIRST_REASONS
        .iter()
        .for_each(|&reason| writer.u64(counts.decided_for(reason)));
    counts
        .packets_per_interrupt
        .counts()
        .iter()
        .for_each(|&value| writer.u64(value));
    writer.u64(counts.decided_for(Reason::Clock));
    writer.u64(counts.polled);
}

fn read_counters(reader: &mut Reader) -> Option<CounterReport> {
    let (queue, code, _) = (reader.u16()?, reader.u8()?, reader.u8()?);
    Some(CounterReport {
        queue: (queue != QUEUE_ALL).then_some(queue),
        strategy: (code != STRATEGY_ALL).then_some(StrategyCode(code)),
        counts: read_counts(reader)?,
    })
}

fn read_counts(reader: &mut Reader) -> Option<RxCounts> {
    let mut counts = RxCounts {
        packets: reader.u64()?,
        bytes: reader.u64()?,
        marked: reader.u64()?,
        announced: reader.u64()?,
        discarded: reader.u64()?,
        refused_full: reader.u64()?,
        deferred: reader.u64()?,
        suppressed: reader.u64()?,
        signalled: reader.u64()?,
        ..RxCounts::default()
    };
    for reason in FIRST_REASONS {
        counts.decided[reason.index()] = reader.u64()?;
    }
    let mut histogram = [0; Histogram::BUCKETS];
    for bucket in &mut histogram {
        *bucket = reader.u64()?;
    }
    counts.packets_per_interrupt = Histogram::from_counts(histogram);
    // An older card, which does not count these, does not say them.
    counts.decided[Reason::Clock.index()] = reader.u64().unwrap_or(0);
    counts.polled = reader.u64().unwrap_or(0);
    // A frame has no room for one more reason. Each interrupt stands in the histogram, too.
    let (told, all) = (counts.decided_total(), histogram.iter().sum::<u64>());
    counts.decided[Reason::Strategy.index()] = all.saturating_sub(told);
    Some(counts)
}
