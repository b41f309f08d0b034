//! Calls a strategy directly, as the pipeline would: with completions, and with `announced` behind each interrupt.

use alloc::{format, vec::Vec};

use ether::Time;

use super::{
    Broken, Promise,
    load::Numbers,
    shrink::{Case, without_some},
    timeline::Timeline,
};
use crate::{
    PacketInfo, Reason,
    coalescing::{Action, Attention, Completion, Oldest, Strategy},
};

/// Calls in a sequence.
const CALLS: u64 = 40;

/// One call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    /// A packet reached host memory.
    Completed(Completion),
    /// An interrupt that the strategy did not ask for.
    Announced(Time),
    /// A packet is the oldest, if none waits; the longest delay.
    Delay(Time, u64),
}

/// Calls in the order of time.
pub(super) type Calls = Vec<Call>;

/// The calls of a seed.
pub(super) fn some_calls(seed: u64) -> Calls {
    let mut numbers = Numbers(seed);
    let mut now = 0;
    let mut call = |_| {
        now += numbers.one_of(&[0, 1, 5, 40]);
        let at = Time::from_nanos(now);
        match numbers.below(100) {
            0..15 => Call::Announced(at),
            15..30 => Call::Delay(at, numbers.one_of(&[1, 40, 75_000])),
            _ => Call::Completed(Completion {
                at,
                packet: PacketInfo {
                    len: numbers.one_of(&[60, 1500]),
                    marked: numbers.percent(40),
                },
                others_pending: numbers.percent(50),
            }),
        }
    };
    (0..CALLS).map(&mut call).collect()
}

impl Case for Calls {
    fn smaller(&self) -> Vec<Self> {
        let mut smaller = without_some(self);
        for (position, call) in self.iter().enumerate() {
            let Call::Completed(completion) = *call else { continue };
            let plain = PacketInfo { len: 60, marked: false };
            for packet in [
                plain,
                PacketInfo {
                    len: 60,
                    ..completion.packet
                },
            ] {
                if packet != completion.packet {
                    let mut calls = self.clone();
                    calls[position] = Call::Completed(Completion { packet, ..completion });
                    smaller.push(calls);
                }
            }
        }
        smaller
    }
}

/// Equal calls have equal answers.
pub(super) fn same_answers<S: Strategy>(calls: &Calls) -> Result<(), Broken> {
    let (mut once, mut again) = (S::default(), S::default());
    let mut timeline = Timeline::default();
    for call in calls {
        if let Call::Completed(completion) = *call {
            let (first, second) = (once.completed(completion), again.completed(completion));
            timeline.completion(completion.at, completion.packet, completion.others_pending, &first);
            if first != second {
                let details = format!("{first:?}, and {second:?} when all is done again");
                return Err(Broken::new(Promise::SameAnswers, details).shown(timeline));
            }
            if !matches!(first, Action::Raise(_)) {
                continue;
            }
        }
        once.announced();
        again.announced();
    }
    Ok(())
}

/// Behind an interrupt, a strategy that saw marks decides about unmarked packets as one that saw these packets without
/// marks.
pub(super) fn marks_end<S: Strategy>(calls: &Calls) -> Result<(), Broken> {
    let (mut saw, mut spared) = (S::default(), S::default());
    let mut timeline = Timeline::default();
    let mut any_marked = false;
    for call in calls {
        match *call {
            Call::Delay(..) => continue,
            Call::Announced(at) => timeline.note(Some(at), "announced() behind the interrupt of another"),
            Call::Completed(completion) => {
                let mut unmarked = completion;
                unmarked.packet.marked = false;
                any_marked |= completion.packet.marked;
                let (action, without) = (saw.completed(completion), spared.completed(unmarked));
                timeline.completion(completion.at, completion.packet, completion.others_pending, &action);
                if !any_marked && action != without {
                    let details = format!("without marks before the last interrupt, {without:?} and not {action:?}");
                    return Err(Broken::new(Promise::ForgetsWhatIsAnnounced, details).shown(timeline));
                }
                if ![action, without]
                    .iter()
                    .any(|action| matches!(action, Action::Raise(_)))
                {
                    continue;
                }
            }
        }
        any_marked = false;
        saw.announced();
        spared.announced();
    }
    Ok(())
}

/// What the pipeline knows while it calls a strategy.
struct Caller<S> {
    strategy: S,
    announced: u64,
    waiting: u64,
    /// A marked packet waits.
    marked: bool,
    /// An interrupt was put off.
    owed: bool,
    timeline: Timeline,
}

/// What the strategy says of itself is true: what it need not hear of, what it put off, its reasons, its delay.
pub(super) fn honest<S: Strategy>(calls: &Calls) -> Result<(), Broken> {
    let mut caller = Caller {
        strategy: S::default(),
        announced: 0,
        waiting: 0,
        marked: false,
        owed: false,
        timeline: Timeline::default(),
    };
    for call in calls {
        caller.call(*call).map_err(|broken| broken.shown(&caller.timeline))?;
    }
    Ok(())
}

impl<S: Strategy> Caller<S> {
    fn call(&mut self, call: Call) -> Result<(), Broken> {
        if self.strategy.is_deferring() && !self.owed {
            let details = "is_deferring() without Defer";
            return Err(Broken::new(Promise::ForgetsWhatIsAnnounced, details));
        }
        match call {
            Call::Delay(now, longest_ns) if self.waiting == 0 => self.delay(now, longest_ns),
            Call::Delay(..) => Ok(()),
            Call::Announced(at) => {
                self.timeline
                    .note(Some(at), "announced() behind the interrupt of another");
                self.announce()
            }
            Call::Completed(completion) => self.complete(completion),
        }
    }

    fn announce(&mut self) -> Result<(), Broken> {
        self.strategy.announced();
        self.announced += self.waiting;
        (self.waiting, self.marked, self.owed) = (0, false, false);
        if self.strategy.is_deferring() {
            let details = "is_deferring() behind announced()";
            return Err(Broken::new(Promise::ForgetsWhatIsAnnounced, details));
        }
        Ok(())
    }

    fn complete(&mut self, completion: Completion) -> Result<(), Broken> {
        let Completion {
            at,
            packet,
            others_pending,
        } = completion;
        let heard = match self.strategy.attention() {
            Attention::EveryPacket => true,
            Attention::MarkedPackets | Attention::MarkedTogether => packet.marked,
            Attention::NoPacket => false,
        };
        let attention = self.strategy.attention();
        let action = self.strategy.completed(completion);
        self.timeline.completion(at, packet, others_pending, &action);
        self.waiting += 1;
        self.marked |= packet.marked;
        if !heard && action != Action::Wait {
            let details = format!("it answers {action:?}, and attention() was {attention:?}");
            return Err(Broken::new(Promise::HonestAttention, details));
        }
        match action {
            Action::Raise(reason) => {
                judge(reason, self.marked, self.owed)?;
                return self.announce();
            }
            Action::Defer if !others_pending => {
                let details = "no other packet was in flight";
                return Err(Broken::new(Promise::RemembersWhatItPutOff, details));
            }
            Action::Defer => self.owed = true,
            Action::Wait if self.owed && !others_pending => {
                let details = "the last one in flight completed";
                return Err(Broken::new(Promise::RemembersWhatItPutOff, details));
            }
            Action::Wait => {}
        }
        if self.owed && !self.strategy.is_deferring() {
            return Err(Broken::new(Promise::RemembersWhatItPutOff, "is_deferring() denies it"));
        }
        Ok(())
    }

    fn delay(&mut self, now: Time, longest_ns: u64) -> Result<(), Broken> {
        let oldest = Oldest {
            arrived: now,
            announced: self.announced,
            longest_ns,
        };
        let delay_ns = self.strategy.delay_ns(oldest);
        self.timeline
            .note(Some(now), format!("delay_ns()  {delay_ns} ns, of at most {longest_ns}"));
        let details = match self.strategy.adaptive(longest_ns) {
            _ if delay_ns > longest_ns => format!("{delay_ns} ns, where at most {longest_ns} are allowed"),
            None if delay_ns != longest_ns => format!("{delay_ns} ns, and adaptive() says nothing"),
            Some(state) if state.delay_ns != delay_ns => {
                format!("{delay_ns} ns, and adaptive() says {}", state.delay_ns)
            }
            _ if self.strategy.delay_ns(oldest) != delay_ns => {
                format!("{delay_ns} ns, and another one when asked again")
            }
            _ => return Ok(()),
        };
        Err(Broken::new(Promise::HonestDelay, details))
    }
}

/// Whether a strategy may give this reason now.
fn judge(reason: Reason, marked: bool, owed: bool) -> Result<(), Broken> {
    match reason {
        Reason::Mark if !marked => Err(Broken::new(Promise::ForgetsWhatIsAnnounced, "no marked packet waits")),
        Reason::Deferred if !owed => Err(Broken::new(Promise::ForgetsWhatIsAnnounced, "nothing was put off")),
        Reason::Mark | Reason::Deferred | Reason::EveryPacket | Reason::Strategy => Ok(()),
        other => {
            let details = format!("`{other}`; what a strategy decides by itself has Reason::Strategy");
            Err(Broken::new(Promise::OwnReason, details))
        }
    }
}
