//! The conformance suite of the receive path: the real one keeps its promises, and each wrapper around it that spoils one
//! thing is found out.

use ether::Time;
use firmware::{
    Coalescing, DmaModel, Event, Interrupt, PacketInfo, PipelineConfig, Reason, RxCounters, RxPipeline,
    conformance::{self, ReceivePath},
};

use crate::{reference::SPECIFIED, sequences::agrees};

fn real() -> RxPipeline {
    RxPipeline::new(&PipelineConfig::default())
}

#[test]
fn the_receive_path_keeps_its_promises() {
    conformance::receive_path_under(SPECIFIED, real)
        .unwrap_or_else(|broken| panic!("the receive path {}", broken.report()));
}

/// What is spoiled of a receive path.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Spoiled {
    Nothing,
    RaisesBeforeTheDma,
    TimerFromTheNewestArrival,
    TimerNeverCancelled,
    TimerNotRestarted,
    CountOffByOne,
    RaisesTwice,
    MarkLost,
    LeavesTheLastOneOut,
    SettingsForgetWhatWaits,
    ReasonOfAnother,
}

/// The real receive path with one thing spoiled.
struct Path {
    real: RxPipeline,
    spoiled: Spoiled,
    settings: Coalescing,
    newest: Time,
    /// An event to be given later, and when.
    delayed: Option<(Time, Event)>,
    /// Packets were in flight when an interrupt was decided: their time-out is the restarted one.
    restarted: bool,
    /// Interrupts made up by the mutant, so that numbers go on.
    extra: u64,
}

impl Path {
    fn new(spoiled: Spoiled) -> Self {
        Self {
            real: real(),
            spoiled,
            settings: Coalescing::DEFAULT,
            newest: Time::ZERO,
            delayed: None,
            restarted: false,
            extra: 0,
        }
    }

    fn number(&self, interrupt: Interrupt) -> Interrupt {
        Interrupt {
            sequence: interrupt.sequence + self.extra,
            ..interrupt
        }
    }

    fn hold(&mut self, at: Time, interrupt: Interrupt) {
        self.delayed = Some((at, Event::Interrupt(interrupt)));
    }

    /// What becomes of an interrupt of the real path; `None`: nothing, for now.
    fn spoil(&mut self, now: Time, real: Interrupt) -> Option<Interrupt> {
        let mut interrupt = self.number(real);
        let restarted = std::mem::replace(&mut self.restarted, self.real.pending() > 0);
        let timeout = real.reason == Reason::Timeout;
        match self.spoiled {
            Spoiled::TimerFromTheNewestArrival if timeout => {
                let at = self.newest.plus_nanos(self.settings.delay_ns);
                if at > now {
                    self.hold(
                        at,
                        Interrupt {
                            decided_at: at,
                            ..interrupt
                        },
                    );
                    return None;
                }
            }
            Spoiled::TimerNeverCancelled if real.reason == Reason::Mark => {
                self.extra += 1;
                let at = now.plus_nanos(self.settings.delay_ns);
                self.hold(
                    at,
                    Interrupt {
                        reason: Reason::Timeout,
                        packets: 0,
                        sequence: interrupt.sequence + 1,
                        decided_at: at,
                    },
                );
            }
            Spoiled::TimerNotRestarted if timeout && restarted => return None,
            Spoiled::RaisesTwice => self.hold(now, interrupt),
            Spoiled::LeavesTheLastOneOut if real.packets > 1 => interrupt.packets -= 1,
            Spoiled::ReasonOfAnother if timeout => interrupt.reason = Reason::Count,
            _ => {}
        }
        Some(interrupt)
    }
}

impl ReceivePath for Path {
    fn arrive(&mut self, now: Time, packet: PacketInfo) {
        self.newest = now;
        let marked = packet.marked && self.spoiled != Spoiled::MarkLost;
        self.real.arrive(now, PacketInfo { marked, ..packet }).unwrap();
    }

    fn poll(&mut self, now: Time) -> Option<Event> {
        if let Some((_, event)) = self.delayed.take_if(|(at, _)| *at <= now) {
            return Some(event);
        }
        match self.real.poll(now)? {
            Event::Completed {
                count,
                interrupt: Some(interrupt),
            } if self.spoiled == Spoiled::RaisesBeforeTheDma => {
                let completed = Event::Completed { count, interrupt: None };
                self.delayed = Some((now, completed));
                Some(Event::Interrupt(self.number(interrupt)))
            }
            Event::Completed { count, interrupt } => {
                let interrupt = interrupt.and_then(|interrupt| self.spoil(now, interrupt));
                Some(Event::Completed { count, interrupt })
            }
            Event::Interrupt(interrupt) => match self.spoil(now, interrupt) {
                Some(interrupt) => Some(Event::Interrupt(interrupt)),
                None => self.poll(now),
            },
            other => Some(other),
        }
    }

    fn next_event(&self) -> Option<Time> {
        let delayed = self.delayed.map(|(at, _)| at);
        delayed.into_iter().chain(self.real.next_event()).min()
    }

    fn set_coalescing(&mut self, now: Time, mut settings: Coalescing) {
        self.settings = settings;
        if self.spoiled == Spoiled::CountOffByOne && settings.frames_max != 0 {
            settings.frames_max += 1;
        }
        if self.spoiled == Spoiled::SettingsForgetWhatWaits && self.real.waiting() > 0 {
            self.real.reset();
        }
        self.real.set_coalescing(now, settings);
    }

    fn set_dma(&mut self, model: DmaModel) {
        self.real.set_dma(model);
    }

    fn restart(&mut self, now: Time) -> Interrupt {
        self.real.restart(now)
    }

    fn reset(&mut self) {
        self.real.reset();
    }

    fn counters(&self) -> &RxCounters {
        self.real.counters()
    }
}

#[test]
fn mutants_of_the_receive_path_break_the_promise_that_is_theirs() {
    conformance::receive_path_under(SPECIFIED, || Path::new(Spoiled::Nothing))
        .expect("the wrapper itself spoils nothing");
    let cases = [
        (
            Spoiled::RaisesBeforeTheDma,
            "announced a packet before its DMA completed",
        ),
        (
            Spoiled::TimerFromTheNewestArrival,
            "let a packet wait longer than the time-out and its own DMA",
        ),
        (Spoiled::TimerNeverCancelled, "interrupted an idle host"),
        (
            Spoiled::TimerNotRestarted,
            "let a packet wait longer than the time-out and its own DMA",
        ),
        (
            Spoiled::CountOffByOne,
            "let more packets wait than the count limit allows",
        ),
        (Spoiled::RaisesTwice, "gave an interrupt a number that is not the next"),
        (
            Spoiled::LeavesTheLastOneOut,
            "announced a packet twice, or left one out that had completed",
        ),
        (
            Spoiled::SettingsForgetWhatWaits,
            "lost a packet when the settings changed",
        ),
        (Spoiled::ReasonOfAnother, "gave a reason that is not true"),
    ];
    for (spoiled, sentence) in cases {
        let broken = conformance::receive_path_under(SPECIFIED, || Path::new(spoiled)).expect_err("not found out");
        assert!(broken.to_string().starts_with(sentence), "{spoiled:?}: {broken}");
    }
}

/// A lost mark breaks no promise that holds for every strategy: it is the algorithms of the paper that it breaks.
#[test]
fn m_gf4_gf5_a_mutant_that_loses_marks_and_every_other_one_differs_from_the_specification() {
    agrees(|| Path::new(Spoiled::Nothing), 2_000).expect("the wrapper itself spoils nothing");
    conformance::receive_path_under(SPECIFIED, || Path::new(Spoiled::MarkLost))
        .expect("a time-out for all is a policy too");
    for spoiled in [
        Spoiled::MarkLost,
        Spoiled::RaisesBeforeTheDma,
        Spoiled::TimerFromTheNewestArrival,
        Spoiled::TimerNeverCancelled,
        Spoiled::TimerNotRestarted,
        Spoiled::CountOffByOne,
        Spoiled::RaisesTwice,
        Spoiled::LeavesTheLastOneOut,
        Spoiled::SettingsForgetWhatWaits,
        Spoiled::ReasonOfAnother,
    ] {
        let difference = agrees(|| Path::new(spoiled), 20_000).expect_err("no difference");
        assert!(difference.contains("specification"), "{spoiled:?}: {difference}");
    }
}
