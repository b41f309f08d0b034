//! Does one strategy keep the promises that every strategy gives? Called directly, and at work in the real pipeline.

use alloc::format;

use ether::Time;

use super::{
    Broken, Promise,
    load::{Load, Numbers},
    path::{Decisions, decisions, receive_path},
};
use crate::{
    Coalescing, PacketInfo, Pipeline, PipelineConfig, Reason, StrategyKind,
    coalescing::{Action, AdaptiveState, Attention, Completion, Disabled, Oldest, Selection, Strategy, Together},
};

/// Sequences of calls, and loads with and without the shortcut of `attention`.
const SEQUENCES: u64 = 2_000;
/// Calls in each.
const CALLS: u64 = 40;

/// Runs the whole suite on one strategy.
///
/// # Errors
/// The first promise that is broken, and how.
pub fn strategy<S: Strategy>() -> Result<(), Broken> {
    let pipeline = || Pipeline::<Only<S>>::new(&PipelineConfig::default());
    for seed in 0..SEQUENCES {
        let [once, again] = [(); 2].map(|()| answers::<S>(&mut Numbers(seed)));
        if once != again {
            let details = format!("{once:?}, and {again:?} when all is done again; calls {seed}");
            return Err(Broken::new(Promise::SameAnswers, details));
        }
    }
    for seed in 0..SEQUENCES {
        calls::<S>(&mut Numbers(seed)).map_err(|broken| broken.during(format!("calls {seed}")))?;
    }
    for seed in 0..SEQUENCES {
        marks_end::<S>(&mut Numbers(seed)).map_err(|broken| broken.during(format!("calls {seed}")))?;
    }
    for seed in 0..SEQUENCES {
        let load = Load::new(seed, StrategyKind::ALL);
        let hearing = Pipeline::<Only<Hearing<S>>>::new(&PipelineConfig::default());
        let (told, spared) = (decisions(hearing, &load)?, decisions(pipeline(), &load)?);
        if let Some((told, spared)) = difference(&told, &spared) {
            let details = format!("it would decide {told:?} and decides {spared:?}; load {seed}");
            return Err(Broken::new(Promise::HonestAttention, details));
        }
        if told.deferred != spared.deferred {
            let details = format!(
                "{} put off one by one, and {} of packets together; load {seed}",
                told.deferred, spared.deferred
            );
            return Err(Broken::new(Promise::Counted, details));
        }
    }
    receive_path(pipeline)
}

/// The first interrupts that are not the same.
fn difference(one: &Decisions, other: &Decisions) -> Option<(Decision, Decision)> {
    let (one, other) = (&one.interrupts, &other.interrupts);
    let at = (0..one.len().max(other.len())).find(|&at| one.get(at) != other.get(at))?;
    Some((one.get(at).copied(), other.get(at).copied()))
}

/// When, why, for how many packets; `None` = no more.
type Decision = Option<(Time, Reason, u32)>;

/// What a strategy answers to some completions.
fn answers<S: Strategy>(numbers: &mut Numbers) -> [Action; 8] {
    let mut strategy = S::default();
    let mut now = 0;
    [(); 8].map(|()| {
        now += numbers.one_of(&[0, 1, 5, 40]);
        let completion = Completion {
            at: Time::from_nanos(now),
            packet: PacketInfo {
                len: numbers.one_of(&[60, 1500]),
                marked: numbers.percent(40),
            },
            others_pending: numbers.percent(50),
        };
        let action = strategy.completed(completion);
        if matches!(action, Action::Raise(_)) {
            strategy.announced();
        }
        action
    })
}

/// Behind an interrupt, a strategy that saw marks decides about unmarked packets as one that saw the same packets without
/// marks.
fn marks_end<S: Strategy>(numbers: &mut Numbers) -> Result<(), Broken> {
    let (mut saw, mut spared) = (S::default(), S::default());
    let mut now = 0;
    for _ in 0..CALLS / 10 {
        for may_be_marked in [true, false] {
            for _ in 0..numbers.one_of(&[1, 2, 5]) {
                now += numbers.one_of(&[0, 1, 5, 40]);
                let completion = |marked, len, others_pending| Completion {
                    at: Time::from_nanos(now),
                    packet: PacketInfo { len, marked },
                    others_pending,
                };
                let (len, others_pending) = (numbers.one_of(&[60, 1500]), numbers.percent(50));
                let marked = may_be_marked && numbers.percent(60);
                let action = saw.completed(completion(marked, len, others_pending));
                let without = spared.completed(completion(false, len, others_pending));
                if !may_be_marked && action != without {
                    let details = format!("without marks before the last interrupt, {without:?} and not {action:?}");
                    return Err(Broken::new(Promise::ForgetsWhatIsAnnounced, details));
                }
                if [action, without]
                    .iter()
                    .any(|action| matches!(action, Action::Raise(_)))
                {
                    saw.announced();
                    spared.announced();
                }
            }
            saw.announced();
            spared.announced();
        }
    }
    Ok(())
}

/// What the pipeline owes a strategy is kept: completions, and an `announced` behind each interrupt.
fn calls<S: Strategy>(numbers: &mut Numbers) -> Result<(), Broken> {
    let mut strategy = S::default();
    let (mut now, mut announced, mut waiting) = (0, 0, 0);
    // A marked packet waits; an interrupt was put off.
    let (mut marked, mut owed) = (false, false);
    for _ in 0..CALLS {
        now += numbers.one_of(&[0, 1, 5, 40]);
        if strategy.is_deferring() && !owed {
            return Err(Broken::new(
                Promise::ForgetsWhatIsAnnounced,
                "is_deferring() without Defer",
            ));
        }
        if waiting == 0 && numbers.percent(50) {
            delay(&mut strategy, now, announced, numbers)?;
        }
        if numbers.percent(15) {
            strategy.announced();
            if strategy.is_deferring() {
                return Err(Broken::new(
                    Promise::ForgetsWhatIsAnnounced,
                    "is_deferring() behind announced()",
                ));
            }
            announced += waiting;
            (waiting, marked, owed) = (0, false, false);
            continue;
        }
        let packet = PacketInfo {
            len: numbers.one_of(&[60, 1500]),
            marked: numbers.percent(40),
        };
        let completion = Completion {
            at: Time::from_nanos(now),
            packet,
            others_pending: numbers.percent(50),
        };
        let heard = match strategy.attention() {
            Attention::EveryPacket => true,
            Attention::MarkedPackets | Attention::MarkedTogether => packet.marked,
            Attention::NoPacket => false,
        };
        let action = strategy.completed(completion);
        waiting += 1;
        marked |= packet.marked;
        if !heard && action != Action::Wait {
            let details = format!("it answered {action:?} to {completion:?}");
            return Err(Broken::new(Promise::HonestAttention, details));
        }
        match action {
            Action::Raise(reason) => {
                judge(reason, marked, owed)?;
                strategy.announced();
                announced += waiting;
                (waiting, marked, owed) = (0, false, false);
                if strategy.is_deferring() {
                    return Err(Broken::new(
                        Promise::ForgetsWhatIsAnnounced,
                        "is_deferring() behind announced()",
                    ));
                }
            }
            Action::Defer if !completion.others_pending => {
                return Err(Broken::new(
                    Promise::RemembersWhatItPutOff,
                    "nothing else was on its way",
                ));
            }
            Action::Defer => owed = true,
            Action::Wait if owed && !completion.others_pending => {
                return Err(Broken::new(
                    Promise::RemembersWhatItPutOff,
                    "the last one on its way completed",
                ));
            }
            Action::Wait => {}
        }
        if owed && !strategy.is_deferring() {
            return Err(Broken::new(Promise::RemembersWhatItPutOff, "is_deferring() denies it"));
        }
    }
    Ok(())
}

fn judge(reason: Reason, marked: bool, owed: bool) -> Result<(), Broken> {
    match reason {
        Reason::Mark if !marked => Err(Broken::new(Promise::ForgetsWhatIsAnnounced, "no marked packet waits")),
        Reason::Deferred if !owed => Err(Broken::new(Promise::ForgetsWhatIsAnnounced, "nothing was put off")),
        Reason::Mark | Reason::Deferred | Reason::EveryPacket | Reason::Adaptive => Ok(()),
        other => Err(Broken::new(Promise::OwnReason, other)),
    }
}

fn delay<S: Strategy>(strategy: &mut S, now: u64, announced: u64, numbers: &mut Numbers) -> Result<(), Broken> {
    let oldest = Oldest {
        arrived: Time::from_nanos(now),
        announced,
        longest_ns: numbers.one_of(&[1, 40, 75_000]),
    };
    let longest_ns = oldest.longest_ns;
    let delay_ns = strategy.delay_ns(oldest);
    let details = match strategy.adaptive(longest_ns) {
        _ if delay_ns > longest_ns => format!("{delay_ns} ns, where at most {longest_ns} are allowed"),
        None if delay_ns != longest_ns => format!("{delay_ns} ns, and adaptive() says nothing"),
        Some(state) if state.delay_ns != delay_ns => format!("{delay_ns} ns, and adaptive() says {}", state.delay_ns),
        _ if strategy.delay_ns(oldest) != delay_ns => format!("{delay_ns} ns, and another one when asked again"),
        _ => return Ok(()),
    };
    Err(Broken::new(Promise::HonestDelay, details))
}

/// One strategy for all settings, but for a delay of 0, which turns coalescing off.
#[derive(Clone, Copy, Debug)]
enum Only<S> {
    Off(Disabled),
    On(S),
}

impl<S: Strategy> Default for Only<S> {
    fn default() -> Self {
        Self::On(S::default())
    }
}

impl<S: Strategy> Selection for Only<S> {
    fn new(settings: Coalescing) -> Self {
        match settings.delay_ns {
            0 => Self::Off(Disabled),
            _ => Self::On(S::default()),
        }
    }

    fn serves(&self, settings: Coalescing) -> bool {
        matches!(self, Self::Off(_)) == (settings.delay_ns == 0)
    }
}

impl<S: Strategy> Strategy for Only<S> {
    fn completed(&mut self, completion: Completion) -> Action {
        match self {
            Self::Off(off) => off.completed(completion),
            Self::On(strategy) => strategy.completed(completion),
        }
    }

    fn completed_together(&mut self, together: Together) -> (u32, Action) {
        match self {
            Self::Off(off) => off.completed_together(together),
            Self::On(strategy) => strategy.completed_together(together),
        }
    }

    fn attention(&self) -> Attention {
        match self {
            Self::Off(off) => off.attention(),
            Self::On(strategy) => strategy.attention(),
        }
    }

    fn announced(&mut self) {
        match self {
            Self::Off(off) => off.announced(),
            Self::On(strategy) => strategy.announced(),
        }
    }

    fn is_deferring(&self) -> bool {
        match self {
            Self::Off(off) => off.is_deferring(),
            Self::On(strategy) => strategy.is_deferring(),
        }
    }

    fn delay_ns(&mut self, oldest: Oldest) -> u64 {
        match self {
            Self::Off(off) => off.delay_ns(oldest),
            Self::On(strategy) => strategy.delay_ns(oldest),
        }
    }

    fn adaptive(&self, longest_ns: u64) -> Option<AdaptiveState> {
        match self {
            Self::Off(off) => off.adaptive(longest_ns),
            Self::On(strategy) => strategy.adaptive(longest_ns),
        }
    }
}

/// The same strategy, told of every completion.
#[derive(Clone, Copy, Debug, Default)]
struct Hearing<S>(S);

impl<S: Strategy> Strategy for Hearing<S> {
    fn completed(&mut self, completion: Completion) -> Action {
        self.0.completed(completion)
    }

    fn announced(&mut self) {
        self.0.announced();
    }

    fn is_deferring(&self) -> bool {
        self.0.is_deferring()
    }

    fn delay_ns(&mut self, oldest: Oldest) -> u64 {
        self.0.delay_ns(oldest)
    }

    fn adaptive(&self, longest_ns: u64) -> Option<AdaptiveState> {
        self.0.adaptive(longest_ns)
    }
}
