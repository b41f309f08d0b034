//! What a card does when its guest asks in band: it does what a control frame says, or says why not.
//!
//! The work is bounded: a request has one reply at most, and a card serves so many requests a second and no more. A frame that gets
//! no reply is counted with the reason.

use alloc::borrow::Cow;

use ether::{EtherType, Frame, MacAddr, Time};

use super::{Card, ChangeError, UnknownQueue, timed::WATCHDOG_DELAY_SENTENCE};
use crate::{
    CoalescingChange, HostRecordCounters, HostRecordPlace, SteeringChange, SteeringError, SteeringTable, StrategyKind,
    TableChange, TableEntries, TimerKind,
    clock::TIMER_NS_MAX,
    coalescing::{DELAY_NS_MAX, FRAMES_MAX_MAX},
    control::{
        Abilities, AdaptiveReport, CONTROL_FRAME_MAX, CONTROL_VERSION, CoalescingReport, ControlCounters,
        CopyEngineReport, CounterReport, Decoded, HostRecordReport, HostRecordRequest, Refusal, RefusalCode, Reject,
        Reply, Request, SteeringReport, StrategyCode, StrategyNames, StrategySet, TimerReport, WatchdogReport, ability,
    },
    watchdog::WATCHDOG_DELAY_NS_MAX,
};

impl Card {
    /// True for a frame that the guest sends to its card (EtherType 0x88B5, to the card's own address): it ends here and
    /// goes to [`Card::handle_control`]. All others of that type are for other stations, and go on. `header` are the first
    /// bytes of the frame.
    #[inline]
    pub fn is_control(header: &[u8]) -> bool {
        header.get(12..14) == Some(&EtherType::CARD_CONTROL.0.to_be_bytes()) && header[..6] == MacAddr::CARD.0
    }

    /// Answers a control frame of the guest; `docs/spec/card-control.md` says how.
    ///
    /// `frame` is the whole frame, or at least its first [`CONTROL_FRAME_MAX`] + 1 bytes. Returns the length of the reply written to
    /// `reply`, a frame for the guest's receive queue 0; 0 = no reply (which is counted, see [`Card::control_counters`]).
    /// Settings may have changed: poll the queues. A request that concerns other cards is answered later, see
    /// [`Card::take_group_request`].
    pub fn handle_control(&mut self, now: Time, frame: &[u8], reply: &mut [u8; CONTROL_FRAME_MAX]) -> usize {
        self.group_wishes.forget();
        self.host_record_wish = None;
        let (src, id, operation, request) = match (Frame::new(frame).map(Frame::src), Request::decode(frame)) {
            (Some(src), Decoded::Request { id, operation, request }) => (src, id, operation, request),
            _ => {
                self.control_counters.dropped_not_request += 1;
                return 0;
            }
        };
        if src.is_multicast() || src == MacAddr::default() || src == MacAddr::CARD {
            self.control_counters.dropped_source += 1;
            return 0;
        }
        if !self.rate_limit.take(now) {
            self.control_counters.dropped_rate += 1;
            return 0;
        }
        let answer = match request.and_then(|request| self.perform(now, src, request)) {
            // What concerns other members of a group is answered when they know it.
            Ok(_) if self.group_wishes.note_sender(src, id) => return 0,
            // Whether the card reaches that memory its driver knows.
            Ok(Reply::SetHostRecord(_)) => {
                if let Some(wish) = &mut self.host_record_wish {
                    (wish.guest, wish.id) = (src, id);
                }
                return 0;
            }
            Ok(answer) => {
                self.control_counters.served += 1;
                answer
            }
            Err(reject) => self.refuse(reject),
        };
        answer.encode(src, id, operation, reply)
    }

    /// What became of control frames.
    pub fn control_counters(&self) -> &ControlCounters {
        &self.control_counters
    }

    /// Counts a refusal and makes the reply of it.
    pub(super) fn refuse(&mut self, reject: Reject) -> Reply {
        self.control_counters.refused[usize::from(reject.code.code()) - 1] += 1;
        Reply::Refused(Refusal {
            code: reject.code.code(),
            reason: Cow::Borrowed(reject.reason),
        })
    }

    fn perform(&mut self, now: Time, src: MacAddr, request: Request) -> Result<Reply, Reject> {
        Ok(match request {
            Request::Hello {
                version_min,
                version_max,
            } => Reply::Hello(self.hello(version_min, version_max)?),
            Request::GetCoalescing { queue } => Reply::GetCoalescing(self.coalescing_report(queue)?),
            Request::SetCoalescing { queue, change } => {
                Reply::SetCoalescing(self.set_coalescing_as_asked(now, queue, change)?)
            }
            Request::GetCounters { queue, strategy } => Reply::GetCounters(self.counter_report(queue, strategy)?),
            Request::GetStrategies { first } => Reply::GetStrategies(StrategyNames::from(first)),
            Request::GetSteering { table, first } => Reply::GetSteering(self.steering_report(table, first)?),
            Request::SetSteering { change } => {
                self.steering_mut().change(&change)?;
                let (table, first) = table_to_report(&change);
                Reply::SetSteering(self.steering_report(table, first)?)
            }
            Request::GetAdaptive { queue } => Reply::GetAdaptive(self.adaptive_report(queue)?),
            Request::GetWatchdog { queue } => Reply::GetWatchdog(self.watchdog_report(queue)?),
            Request::SetWatchdog { queue, delay_ns } => {
                self.set_watchdog(now, queue, delay_ns)?;
                Reply::SetWatchdog(self.watchdog_report(queue)?)
            }
            Request::ArmTimer { timer, kind, time_ns } => {
                Reply::ArmTimer(self.arm_timer(now, src, timer, kind, time_ns)?)
            }
            Request::DisarmTimer { timer } => Reply::DisarmTimer(self.disarm_timer(timer)),
            Request::JoinGroup { group } => Reply::JoinGroup(self.wish(now, group, true)?),
            Request::LeaveGroup { group } => Reply::LeaveGroup(self.wish(now, group, false)?),
            Request::GetGroups { after } => Reply::GetGroups(self.next_group_report(after)),
            Request::GetCopyEngine => Reply::GetCopyEngine(self.copy_engine_report()?),
            Request::SetHostRecord { queue, place } => Reply::SetHostRecord(self.wish_host_record(queue, place)?),
        })
    }

    /// Notes what the guest wants; the answer that counts comes later.
    fn wish_host_record(
        &mut self,
        queue: u16,
        place: Option<HostRecordPlace>,
    ) -> Result<HostRecordReport, UnknownQueue> {
        self.watchdog(queue)?;
        self.host_record_wish = Some(HostRecordRequest {
            queue,
            place,
            guest: MacAddr::default(),
            id: 0,
        });
        Ok(HostRecordReport {
            queue,
            is_read: false,
            counters: HostRecordCounters::default(),
        })
    }

    fn hello(&self, version_min: u8, version_max: u8) -> Result<Abilities, Reject> {
        if !(version_min..=version_max).contains(&CONTROL_VERSION) {
            return Err(Reject::new(
                RefusalCode::Version,
                "this card speaks version 1 of the control protocol",
            ));
        }
        let mut bits = ability::COALESCING
            | ability::MARKS
            | ability::COUNTERS
            | ability::STEERING
            | ability::WATCHDOG
            | ability::TIMERS
            | ability::GROUPS
            | ability::ADAPTIVE
            | ability::STRATEGY_NAMES
            | ability::HOST_RECORD;
        if self.copy_engine().is_some() {
            bits |= ability::COPY_ENGINE;
        }
        Ok(Abilities {
            version: CONTROL_VERSION,
            queue_pairs: self.queue_pairs(),
            bits,
            strategies: StrategySet::all(),
            delay_ns_max: DELAY_NS_MAX as u32,
            frames_max_max: FRAMES_MAX_MAX,
        })
    }

    fn coalescing_report(&self, queue: u16) -> Result<CoalescingReport, UnknownQueue> {
        let coalescing = self.coalescing(queue)?.into();
        Ok(CoalescingReport { queue, coalescing })
    }

    fn set_coalescing_as_asked(
        &mut self,
        now: Time,
        queue: Option<u16>,
        change: CoalescingChange<StrategyCode>,
    ) -> Result<CoalescingReport, Reject> {
        let change = change.with_strategy(change.strategy.map(known_strategy).transpose()?);
        self.change_coalescing(now, queue, change)?;
        Ok(self.coalescing_report(queue.unwrap_or(0))?)
    }

    fn counter_report(&self, queue: Option<u16>, strategy: Option<StrategyCode>) -> Result<CounterReport, Reject> {
        let counters = self.counters(queue)?;
        let counts = match strategy {
            None => counters.total(),
            Some(code) => *counters.strategy(known_strategy(code)?),
        };
        Ok(CounterReport {
            queue,
            strategy,
            counts,
        })
    }

    fn steering_report(&self, table: SteeringTable, first: u16) -> Result<SteeringReport, Reject> {
        let steering = self.steering();
        let settings = steering.settings();
        Ok(SteeringReport {
            mode: settings.mode,
            endpoints_even: settings.endpoints.is_even(),
            indirection_even: settings.indirection.is_even(),
            queue_pairs: steering.queue_pairs(),
            ready: steering.ready_queues(),
            counters: steering.counters(),
            table,
            entries: TableEntries::of_table(steering.table(table), first).ok_or(SteeringError::BeyondTable)?,
        })
    }

    fn adaptive_report(&self, queue: u16) -> Result<AdaptiveReport, UnknownQueue> {
        let rx = self.queues().get(usize::from(queue)).ok_or(UnknownQueue)?;
        Ok(AdaptiveReport {
            queue,
            strategy: rx.coalescing().strategy.into(),
            longest_ns: rx.coalescing().delay_ns,
            state: rx.adaptive(),
        })
    }

    fn watchdog_report(&self, queue: Option<u16>) -> Result<WatchdogReport, UnknownQueue> {
        let watchdog = self.watchdog(queue.unwrap_or(0))?;
        let ns = |ns: u64| u32::try_from(ns).unwrap_or(u32::MAX);
        Ok(WatchdogReport {
            queue,
            delay_ns: ns(watchdog.delay_ns()),
            delay_ns_min: ns(self.watchdog_ns_min()),
            delay_ns_max: ns(WATCHDOG_DELAY_NS_MAX),
            counters: match queue {
                Some(_) => *watchdog.counters(),
                None => self.watchdog_counters(),
            },
        })
    }

    fn arm_timer(
        &mut self,
        now: Time,
        owner: MacAddr,
        timer: u16,
        kind: TimerKind,
        time_ns: u64,
    ) -> Result<TimerReport, Reject> {
        self.timers_mut()
            .arm(now, timer, kind, time_ns, owner)
            .map_err(|error| Reject::new(RefusalCode::Range, error.sentence()))?;
        Ok(self.timer_report(Some(timer), true))
    }

    fn disarm_timer(&mut self, timer: Option<u16>) -> TimerReport {
        if let Some(timer) = timer {
            self.timers_mut().disarm(timer);
        }
        self.timer_report(timer, false)
    }

    fn timer_report(&self, timer: Option<u16>, is_armed: bool) -> TimerReport {
        let timers = self.timers();
        TimerReport {
            timer,
            is_armed,
            armed: timers.armed() as u8,
            shortest_ns: u32::try_from(timers.shortest_ns()).unwrap_or(u32::MAX),
            longest_ns: TIMER_NS_MAX as u32,
            counters: timers.counters().with_one_lateness(),
        }
    }

    fn copy_engine_report(&self) -> Result<CopyEngineReport, Reject> {
        self.copy_engine().map(CopyEngineReport::of).ok_or(Reject::new(
            RefusalCode::Operation,
            "this card is not connected to itself, so it has no copy engine",
        ))
    }
}

/// The table that the answer to a SET_STEERING reports: the changed one from its first changed entry on, or that of endpoints.
fn table_to_report(change: &SteeringChange) -> (SteeringTable, u16) {
    match &change.table {
        None => (SteeringTable::Endpoints, 0),
        Some((table, TableChange::Even)) => (*table, 0),
        Some((table, TableChange::Entries(entries))) => (*table, entries.first()),
    }
}

fn known_strategy(code: StrategyCode) -> Result<StrategyKind, Reject> {
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
