//! The control protocol fed with frames that are nearly right.

use std::sync::atomic::{AtomicU64, Ordering};

use bolero::check;
use ether::MacAddr;
use firmware::{
    CONTROL_FRAME_MAX, CoalescingChange, HostRecordPlace, SteeringChange, SteeringMode, SteeringTable, StrategyKind,
    TableChange, TableEntries, TimerKind,
    control::{GroupRefusal, HostRecordRefusal, RefusalCode, Reply, Request, StrategyCode},
};

use crate::{
    control::{card, frame_of},
    support::t,
};

/// A request that is right but for some bytes, made of a fuzzer's bytes.
struct Nearly<'a>(&'a [u8]);

impl Nearly<'_> {
    /// The next byte; zeros when there are no more.
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    fn request(&mut self) -> Request {
        let queue = u16::from(self.byte() % 4);
        let some_queue = (queue != 3).then_some(queue);
        match self.byte() % 14 {
            5 => Request::GetSteering {
                table: self.table(),
                first: u16::from_be_bytes([self.byte() % 2, self.byte()]),
            },
            6 => {
                let queues: Vec<_> = (0..self.byte() % 130).map(|_| self.byte() % 4).collect();
                let entries = TableEntries::new(self.byte().into(), &queues);
                let change = entries.map_or(TableChange::Even, TableChange::Entries);
                let mode = SteeringMode::from_code(self.byte() % 4);
                let table = (!self.byte().is_multiple_of(4)).then_some((self.table(), change));
                Request::SetSteering {
                    change: SteeringChange {
                        mode,
                        table,
                        proposed: self.byte().is_multiple_of(2),
                    },
                }
            }
            10 => Request::JoinGroup { group: queue },
            8 => Request::LeaveGroup { group: queue },
            9 => Request::GetGroups { after: queue },
            0 => Request::Hello {
                version_min: self.byte() % 3,
                version_max: self.byte() % 4,
            },
            1 => Request::GetCoalescing { queue },
            12 => Request::GetCopyEngine,
            13 => Request::SetHostRecord {
                queue,
                place: some_queue.map(|_| HostRecordPlace {
                    address: u64::from(self.byte()) * 32,
                    key: u32::from(self.byte()) + 1,
                }),
            },
            2 => {
                let fields = self.byte();
                let delay_ns = u32::from_be_bytes([self.byte() % 128, self.byte(), self.byte(), self.byte()]);
                let change = CoalescingChange {
                    strategy: StrategyKind::from_code(self.byte() % 8),
                    delay_ns: (fields & 1 != 0).then_some(delay_ns.into()),
                    frames_max: (fields & 2 != 0).then_some(u32::from(self.byte()) * 6),
                    marks: (fields & 4 != 0).then_some(fields & 8 != 0),
                };
                Request::SetCoalescing {
                    queue: some_queue,
                    change: change.into(),
                }
            }
            3 => match self.byte() % 2 {
                0 => Request::GetWatchdog { queue: some_queue },
                _ => Request::SetWatchdog {
                    queue: some_queue,
                    delay_ns: u64::from(self.byte()) * 20_000_000,
                },
            },
            4 => match self.byte() % 3 {
                0 => Request::DisarmTimer {
                    timer: Some(self.byte().into()),
                },
                kind => Request::ArmTimer {
                    timer: self.byte().into(),
                    kind: if kind == 1 { TimerKind::Once } else { TimerKind::Clock },
                    time_ns: u64::from(self.byte()) * 20_000_000,
                },
            },
            7 => match self.byte() % 2 {
                0 => Request::GetAdaptive { queue },
                _ => Request::GetStrategies {
                    first: StrategyCode(self.byte()),
                },
            },
            _ => {
                let strategy = StrategyKind::from_code(self.byte() % 8);
                Request::GetCounters {
                    queue: some_queue,
                    strategy: strategy.map(StrategyCode::from),
                }
            }
        }
    }

    fn table(&mut self) -> SteeringTable {
        match self.byte() % 2 {
            0 => SteeringTable::Endpoints,
            _ => SteeringTable::Indirection,
        }
    }

    fn frame(mut self) -> Vec<u8> {
        let mut frame = frame_of(self.request(), 7);
        for _ in 0..self.byte() % 4 {
            let at = usize::from(self.byte() % 40);
            frame[at] = self.byte();
        }
        match self.byte() % 8 {
            0 => frame.truncate(usize::from(self.byte() % 60)),
            1 => {
                frame.truncate(14 + usize::from(self.byte() % 40));
                frame.extend_from_slice(self.0);
            }
            _ => {}
        }
        frame
    }
}

#[test]
fn fuzzed_requests_never_panic_and_always_get_a_reply_or_a_counted_reason() {
    let start = card(3);
    // How often each end came, so that the test knows that it reached them all: served, dropped, refused by code.
    let ends: [AtomicU64; 2 + RefusalCode::COUNT] = Default::default();
    let count = |end: usize| ends[end].fetch_add(1, Ordering::Relaxed);
    check!().with_iterations(100_000).for_each(|bytes: &[u8]| {
        let frame = Nearly(bytes).frame();
        let mut nic = start.clone();
        let mut out = [0; CONTROL_FRAME_MAX];
        let mut len = nic.handle_control(t(0), &frame, &mut out);
        if let Some(request) = nic.take_group_request() {
            assert_eq!((len, nic.control_counters().total()), (0, 0), "answered later");
            len = nic.answer_group(request, Err(GroupRefusal::Full), &mut out);
        }
        if let Some(request) = nic.take_host_record_request() {
            assert_eq!((len, nic.control_counters().total()), (0, 0), "answered later");
            len = nic.answer_host_record(request, Err(HostRecordRefusal::Unreachable), &mut out);
        }
        let counters = nic.control_counters();
        assert_eq!(counters.total(), 1, "counted once");
        if len == 0 {
            assert_eq!(counters.dropped_not_request + counters.dropped_source, 1);
            count(1);
        } else {
            let (_, reply) = Reply::decode(&out[..len]).expect("a reply that can be read");
            match reply {
                Reply::Refused(refusal) => count(1 + usize::from(refusal.code)),
                _ => count(0),
            };
            assert_eq!(
                counters.dropped_not_request + counters.dropped_source + counters.dropped_rate,
                0
            );
        }
        for rx in nic.queues() {
            assert_eq!(
                rx.coalescing().validated(),
                Ok(rx.coalescing()),
                "settings stay within their limits"
            );
        }
    });
    for (end, count) in ends.iter().enumerate() {
        assert!(
            count.load(Ordering::Relaxed) >= 100,
            "end {end} was hardly reached: {ends:?}"
        );
    }
}

#[test]
fn fuzzed_replies_never_panic() {
    check!().with_iterations(100_000).for_each(|bytes: &[u8]| {
        let (noise, rest) = bytes.split_at_checked(6).unwrap_or_default();
        let mut frame = Nearly(rest).frame();
        frame.resize(frame.len().max(26), 0);
        frame[6..12].copy_from_slice(&MacAddr::CARD.0);
        frame[17] |= 0x80;
        frame[20..20 + noise.len()].copy_from_slice(noise);
        if let Ok((_, Reply::Refused(refusal))) = Reply::decode(&frame) {
            assert!(refusal.reason.chars().all(|c| c.is_ascii_graphic() || c == ' '));
        }
    });
}
