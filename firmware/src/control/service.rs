//! The card's end: does what a guest asks, or says why not.
//!
//! Bounded: one reply for each request at most, so many requests a second and no more. A frame that gets no reply is counted
//! with the reason.

use alloc::borrow::Cow;

use ether::{Frame, MacAddr, Time};

use super::{
    Abilities, AdaptiveReport, CONTROL_FRAME_MAX, CONTROL_VERSION, CoalescingReport, CopyEngineReport, CounterReport,
    Refusal, RefusalCode, Reply, Request, StrategyCode, StrategyNames, StrategySet, ability, groups,
    request::{Decoded, Reject},
    steering, timed,
};
use crate::{
    Card, ChangeError, StrategyKind, UnknownQueue,
    card::WATCHDOG_DELAY_SENTENCE,
    coalescing::{DELAY_NS_MAX, FRAMES_MAX_MAX},
};

/// Requests that a card serves per second in the long run. A person or a monitoring program needs a few; a guest that
/// sends more must not spend the data plane's time, which belongs to its neighbours too.
pub const CONTROL_REPLIES_PER_S: u64 = 1_000;
/// Requests that a card serves at once after a pause: reading every counter of a card with many queues.
pub const CONTROL_REPLIES_BURST: u64 = 256;

const NS_PER_REPLY: u64 = 1_000_000_000 / CONTROL_REPLIES_PER_S;

/// A token bucket, counted in nanoseconds of credit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimit {
    credit_ns: u64,
    since: Time,
}

impl RateLimit {
    pub(crate) const fn new() -> Self {
        Self {
            credit_ns: CONTROL_REPLIES_BURST * NS_PER_REPLY,
            since: Time::ZERO,
        }
    }

    fn take(&mut self, now: Time) -> bool {
        let earned_ns = now.nanos_since(self.since);
        self.since = self.since.max(now);
        self.credit_ns = self
            .credit_ns
            .saturating_add(earned_ns)
            .min(CONTROL_REPLIES_BURST * NS_PER_REPLY);
        match self.credit_ns.checked_sub(NS_PER_REPLY) {
            Some(rest) => {
                self.credit_ns = rest;
                true
            }
            None => false,
        }
    }
}

/// What became of control frames that the guest sent. Every frame is counted once, in `served`, in one of `refused`, or in
/// one of the `dropped_…`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ControlCounters {
    /// Requests done and answered.
    pub served: u64,
    /// Requests answered with a refusal, by [`RefusalCode`]; index = code − 1.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub refused: [u64; RefusalCode::COUNT],
    /// Frames that are not requests to the card: another destination, a reply, too short for addresses.
    pub dropped_not_request: u64,
    /// Requests from an address that cannot be answered: a group address, zero, or the card's own.
    pub dropped_source: u64,
    /// Requests above the rate limit; they were not done.
    pub dropped_rate: u64,
}

impl ControlCounters {
    /// Requests refused with this code.
    pub const fn refused_for(&self, code: RefusalCode) -> u64 {
        self.refused[code as usize - 1]
    }

    /// All control frames.
    pub fn total(&self) -> u64 {
        self.served
            + self.refused.iter().sum::<u64>()
            + self.dropped_not_request
            + self.dropped_source
            + self.dropped_rate
    }
}

/// See [`Card::handle_control`].
pub(crate) fn serve(nic: &mut Card, now: Time, frame: &[u8], out: &mut [u8; CONTROL_FRAME_MAX]) -> usize {
    let (src, decoded) = match (Frame::new(frame).map(Frame::src), Request::decode(frame)) {
        (Some(src), Decoded::Request { id, operation, request }) => (src, (id, operation, request)),
        _ => {
            nic.control_counters.dropped_not_request += 1;
            return 0;
        }
    };
    if src.is_multicast() || src == MacAddr::default() || src == MacAddr::CARD {
        nic.control_counters.dropped_source += 1;
        return 0;
    }
    if !nic.rate_limit.take(now) {
        nic.control_counters.dropped_rate += 1;
        return 0;
    }
    let (id, operation, request) = decoded;
    let reply = match request.and_then(|request| perform(nic, now, src, request)) {
        // What concerns other members of a group is answered when they know it.
        Ok(_) if nic.group_wishes.note_sender(src, id) => return 0,
        Ok(reply) => {
            nic.control_counters.served += 1;
            reply
        }
        Err(reject) => {
            nic.control_counters.refused[usize::from(reject.code.code()) - 1] += 1;
            Reply::Refused(Refusal {
                code: reject.code.code(),
                reason: Cow::Borrowed(reject.reason),
            })
        }
    };
    reply.encode(src, id, operation, out)
}

fn perform(nic: &mut Card, now: Time, src: MacAddr, request: Request) -> Result<Reply, Reject> {
    match request {
        Request::Hello {
            version_min,
            version_max,
        } => {
            if !(version_min..=version_max).contains(&CONTROL_VERSION) {
                return Err(Reject::new(
                    RefusalCode::Version,
                    "this card speaks version 1 of the control protocol",
                ));
            }
            Ok(Reply::Hello(Abilities {
                version: CONTROL_VERSION,
                queue_pairs: nic.queue_pairs(),
                bits: abilities(nic),
                strategies: StrategySet::all(),
                delay_ns_max: DELAY_NS_MAX as u32,
                frames_max_max: FRAMES_MAX_MAX,
            }))
        }
        Request::GetCoalescing { queue } => Ok(Reply::GetCoalescing(report(nic, queue)?)),
        Request::SetCoalescing { queue, change } => {
            let change = change.with_strategy(change.strategy.map(strategy).transpose()?);
            nic.change_coalescing(now, queue, change)?;
            Ok(Reply::SetCoalescing(report(nic, queue.unwrap_or(0))?))
        }
        Request::GetCounters { queue, strategy } => {
            let counters = nic.counters(queue)?;
            let counts = match strategy {
                None => counters.total(),
                Some(code) => *counters.strategy(self::strategy(code)?),
            };
            Ok(Reply::GetCounters(CounterReport {
                queue,
                strategy,
                counts,
            }))
        }
        Request::GetStrategies { first } => Ok(Reply::GetStrategies(StrategyNames::from(first))),
        Request::GetSteering { table, first } => {
            Ok(Reply::GetSteering(steering::report(nic.steering(), table, first)?))
        }
        Request::SetSteering { change } => {
            nic.steering_mut().change(&change)?;
            let (table, first) = steering::changed(&change);
            Ok(Reply::SetSteering(steering::report(nic.steering(), table, first)?))
        }
        Request::GetAdaptive { queue } => {
            let rx = nic.queues().get(usize::from(queue)).ok_or(UnknownQueue)?;
            Ok(Reply::GetAdaptive(AdaptiveReport {
                queue,
                strategy: rx.coalescing().strategy.into(),
                longest_ns: rx.coalescing().delay_ns,
                state: rx.adaptive(),
            }))
        }
        Request::GetWatchdog { queue } => Ok(Reply::GetWatchdog(timed::get_watchdog(nic, queue)?)),
        Request::SetWatchdog { queue, delay_ns } => {
            nic.set_watchdog(now, queue, delay_ns)?;
            Ok(Reply::SetWatchdog(timed::get_watchdog(nic, queue)?))
        }
        Request::ArmTimer { timer, kind, time_ns } => {
            timed::arm_timer(nic, now, src, (timer, kind, time_ns)).map(Reply::ArmTimer)
        }
        Request::DisarmTimer { timer } => Ok(Reply::DisarmTimer(timed::disarm_timer(nic, timer))),
        Request::JoinGroup { group } => groups::wish(nic, now, group, true).map(Reply::JoinGroup),
        Request::LeaveGroup { group } => groups::wish(nic, now, group, false).map(Reply::LeaveGroup),
        Request::GetGroups { after } => Ok(Reply::GetGroups(groups::next_report(nic, after))),
        Request::GetCopyEngine => {
            let report = CopyEngineReport::of(nic).ok_or(Reject::new(
                RefusalCode::Operation,
                "this card is not connected to itself, so it has no copy engine",
            ))?;
            Ok(Reply::GetCopyEngine(report))
        }
    }
}

fn abilities(nic: &Card) -> u32 {
    let mut bits = ability::COALESCING
        | ability::MARKS
        | ability::COUNTERS
        | ability::STEERING
        | ability::WATCHDOG
        | ability::TIMERS
        | ability::GROUPS
        | ability::ADAPTIVE
        | ability::STRATEGY_NAMES;
    if nic.copy_engine().is_some() {
        bits |= ability::COPY_ENGINE;
    }
    bits
}

fn report(nic: &Card, queue: u16) -> Result<CoalescingReport, UnknownQueue> {
    let coalescing = nic.coalescing(queue)?.into();
    Ok(CoalescingReport { queue, coalescing })
}

fn strategy(code: StrategyCode) -> Result<StrategyKind, Reject> {
    let unknown = Reject::new(RefusalCode::Strategy, "the card has no strategy of this code");
    code.kind().ok_or(unknown)
}

impl From<UnknownQueue> for Reject {
    fn from(_: UnknownQueue) -> Self {
        Self::new(RefusalCode::Queue, "the card has no such queue")
    }
}

impl From<ChangeError> for Reject {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Queue(error) => error.into(),
            ChangeError::Value(error) => Self::new(RefusalCode::Range, error.sentence()),
            ChangeError::WatchdogDelay { .. } => Self::new(RefusalCode::Range, WATCHDOG_DELAY_SENTENCE),
        }
    }
}
