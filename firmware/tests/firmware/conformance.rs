//! The conformance suite of strategies: every registered one keeps its promises, and each of these mutants is found out by
//! name.

use std::sync::atomic::{AtomicU32, Ordering};

use ether::Time;
use firmware::{
    PacketInfo, Reason,
    coalescing::{Action, AdaptiveState, Attention, Completion, Oldest, Strategy, Together},
    conformance::{self, Arrival, Expectation, Expected, Promise},
};

#[test]
fn every_registered_strategy_keeps_its_promises() {
    conformance::registered().unwrap_or_else(|(strategy, broken)| panic!("{strategy} {}", broken.report()));
}

/// What a mutant of a strategy does in place of Stream coalescing.
trait Mutation: Copy + Default {
    fn completed(flag: &mut bool, completion: Completion) -> Action {
        stream(flag, completion)
    }
    fn attention(flag: bool) -> Attention {
        if flag {
            Attention::EveryPacket
        } else {
            Attention::MarkedPackets
        }
    }
    fn completed_together(_flag: bool, _together: Together) -> (u32, Action) {
        (0, Action::Wait)
    }
    fn announced(flag: &mut bool) {
        *flag = false;
    }
    fn is_deferring(flag: bool) -> bool {
        flag
    }
    fn delay_ns(oldest: Oldest) -> u64 {
        oldest.longest_ns
    }
    fn adaptive(_longest_ns: u64) -> Option<AdaptiveState> {
        None
    }
}

/// Algorithm 2.
fn stream(flag: &mut bool, completion: Completion) -> Action {
    match (completion.others_pending, completion.packet.marked) {
        (false, _) if *flag => Action::Raise(Reason::Deferred),
        (false, true) => Action::Raise(Reason::Mark),
        (true, true) => {
            *flag = true;
            Action::Defer
        }
        _ => Action::Wait,
    }
}

#[derive(Clone, Copy, Default)]
struct Mutant<M> {
    flag: bool,
    _mutation: std::marker::PhantomData<M>,
}

impl<M: Mutation> Strategy for Mutant<M> {
    fn completed(&mut self, completion: Completion) -> Action {
        M::completed(&mut self.flag, completion)
    }
    fn attention(&self) -> Attention {
        M::attention(self.flag)
    }
    fn completed_together(&mut self, together: Together) -> (u32, Action) {
        M::completed_together(self.flag, together)
    }
    fn announced(&mut self) {
        M::announced(&mut self.flag);
    }
    fn is_deferring(&self) -> bool {
        M::is_deferring(self.flag)
    }
    fn delay_ns(&mut self, oldest: Oldest) -> u64 {
        M::delay_ns(oldest)
    }
    fn adaptive(&self, longest_ns: u64) -> Option<AdaptiveState> {
        M::adaptive(longest_ns)
    }
}

/// The mutant breaks this promise, in these words.
#[track_caller]
fn breaks<M: Mutation>(promise: Promise, sentence: &str) {
    let broken = conformance::strategy::<Mutant<M>>().expect_err("the mutant is not found out");
    assert_eq!(broken.promise, promise, "{broken}");
    assert!(broken.to_string().starts_with(sentence), "{broken}");
}

/// Where a strategy must not keep anything.
static ELSEWHERE: AtomicU32 = AtomicU32::new(0);

macro_rules! mutations {
    ($($name:ident { $($body:tt)* })*) => {
        $(#[derive(Clone, Copy, Default)] struct $name; impl Mutation for $name { $($body)* })*
    };
}

mutations! {
    Unchanged {}
    ForgetsTheDeferredFlag {
        fn completed(_: &mut bool, completion: Completion) -> Action {
            stream(&mut false, completion)
        }
    }
    FlagSurvivesAnnounced {
        fn announced(_: &mut bool) {}
    }
    HidesTheFlagThatSurvives {
        fn announced(_: &mut bool) {}
        fn is_deferring(_: bool) -> bool { false }
        fn completed(flag: &mut bool, completion: Completion) -> Action {
            match stream(flag, completion) {
                Action::Defer => Action::Wait,
                other => other,
            }
        }
    }
    NeedNotHearOfMarks {
        fn attention(_: bool) -> Attention { Attention::NoPacket }
    }
    NeedNotHearOfTheLast {
        fn attention(_: bool) -> Attention { Attention::MarkedPackets }
    }
    RaisesWithoutMark {
        fn completed(_: &mut bool, completion: Completion) -> Action {
            match completion.others_pending {
                true => Action::Wait,
                false => Action::Raise(Reason::Mark),
            }
        }
        fn attention(_: bool) -> Attention { Attention::EveryPacket }
    }
    MarkOutlivesItsAnnouncement {
        fn completed(flag: &mut bool, completion: Completion) -> Action {
            match (completion.packet.marked, std::mem::replace(flag, completion.packet.marked)) {
                (true, _) => Action::Raise(Reason::Mark),
                (false, true) => Action::Raise(Reason::Strategy),
                (false, false) => Action::Wait,
            }
        }
        fn attention(_: bool) -> Attention { Attention::EveryPacket }
        fn announced(_: &mut bool) {}
        fn is_deferring(_: bool) -> bool { false }
    }
    CountsTogetherWhatWasNotPutOff {
        fn attention(flag: bool) -> Attention {
            if flag { Attention::EveryPacket } else { Attention::MarkedTogether }
        }
        fn completed_together(_: bool, together: Together) -> (u32, Action) {
            let before = together.marked - u32::from(together.last.marked);
            let reason = if before > 0 { Reason::Deferred } else { Reason::Mark };
            (before + 1, Action::Raise(reason))
        }
    }
    KeepsSomethingElsewhere {
        fn completed(_: &mut bool, _: Completion) -> Action {
            match ELSEWHERE.fetch_add(1, Ordering::Relaxed) % 7 {
                0 => Action::Raise(Reason::Strategy),
                _ => Action::Wait,
            }
        }
        fn attention(_: bool) -> Attention { Attention::EveryPacket }
    }
    GivesTheTimeoutsReason {
        fn completed(_: &mut bool, completion: Completion) -> Action {
            match completion.packet.marked {
                true => Action::Raise(Reason::Timeout),
                false => Action::Wait,
            }
        }
    }
    WaitsLongerThanTheTimeout {
        fn delay_ns(oldest: Oldest) -> u64 { oldest.longest_ns * 2 }
        fn adaptive(longest_ns: u64) -> Option<AdaptiveState> {
            Some(AdaptiveState { delay_ns: longest_ns * 2, ..AdaptiveState::default() })
        }
    }
    TellsAnotherDelay {
        fn delay_ns(_: Oldest) -> u64 { 0 }
        fn adaptive(longest_ns: u64) -> Option<AdaptiveState> {
            Some(AdaptiveState { delay_ns: longest_ns, ..AdaptiveState::default() })
        }
    }
}

#[test]
fn the_strategy_that_mutants_are_made_of_keeps_its_promises() {
    conformance::strategy::<Mutant<Unchanged>>().unwrap();
}

#[test]
fn mutant_that_forgets_the_deferred_flag() {
    breaks::<ForgetsTheDeferredFlag>(Promise::RemembersWhatItPutOff, "put an interrupt off and forgot it");
}

#[test]
fn mutant_whose_flag_survives_announced() {
    let sentence = "keeps a mark or a flag that should not survive announced()";
    breaks::<FlagSurvivesAnnounced>(Promise::ForgetsWhatIsAnnounced, sentence);
    breaks::<HidesTheFlagThatSurvives>(Promise::ForgetsWhatIsAnnounced, sentence);
}

#[test]
fn mutant_that_need_not_hear_of_what_it_would_raise_for() {
    let sentence = "claims it need not hear of a packet that matters to it";
    breaks::<NeedNotHearOfMarks>(Promise::HonestAttention, sentence);
    breaks::<NeedNotHearOfTheLast>(Promise::HonestAttention, sentence);
}

#[test]
fn mutant_that_raises_without_a_mark() {
    breaks::<RaisesWithoutMark>(Promise::ForgetsWhatIsAnnounced, "keeps a mark or a flag");
}

#[test]
fn m_gf11_mutant_whose_mark_outlives_its_announcement() {
    let sentence = "keeps a mark or a flag that should not survive announced()";
    breaks::<MarkOutlivesItsAnnouncement>(Promise::ForgetsWhatIsAnnounced, sentence);
}

#[test]
fn mutant_that_counts_together_what_was_not_put_off() {
    breaks::<CountsTogetherWhatWasNotPutOff>(Promise::Counted, "counted something else than what happened");
}

#[test]
fn mutant_that_keeps_something_elsewhere() {
    breaks::<KeepsSomethingElsewhere>(Promise::SameAnswers, "answers equal calls differently");
}

#[test]
fn mutant_that_gives_the_pipelines_reason() {
    breaks::<GivesTheTimeoutsReason>(Promise::OwnReason, "gives a reason that is the pipeline's");
}

#[test]
fn m_gf7_mutants_that_choose_or_tell_a_wrong_delay() {
    let sentence = "chooses a delay that it may not choose, or tells another one";
    breaks::<WaitsLongerThanTheTimeout>(Promise::HonestDelay, sentence);
    breaks::<TellsAnotherDelay>(Promise::HonestDelay, sentence);
}

/// Raises with every second packet.
#[derive(Clone, Copy, Default)]
struct EverySecond {
    packets: u32,
}

impl Strategy for EverySecond {
    fn completed(&mut self, _: Completion) -> Action {
        self.packets += 1;
        match self.packets {
            2 => Action::Raise(Reason::Strategy),
            _ => Action::Wait,
        }
    }

    fn announced(&mut self) {
        self.packets = 0;
    }
}

/// Like `EverySecond`, but its counter is never reset: it raises once in its life.
#[derive(Clone, Copy, Default)]
struct NeverReset(EverySecond);

impl Strategy for NeverReset {
    fn completed(&mut self, completion: Completion) -> Action {
        self.0.completed(completion)
    }
}

/// Like `EverySecond`, but its counter runs on, whatever was announced meanwhile.
#[derive(Clone, Copy, Default)]
struct RunsOn {
    packets: u32,
}

impl Strategy for RunsOn {
    fn completed(&mut self, _: Completion) -> Action {
        self.packets += 1;
        match self.packets % 2 {
            0 => Action::Raise(Reason::Strategy),
            _ => Action::Wait,
        }
    }
}

/// Raises if the last interrupt is long enough ago, as interrupt throttling does: time brings it back, not an announcement.
#[derive(Clone, Copy, Default)]
struct Throttled {
    next: Time,
}

impl Strategy for Throttled {
    fn completed(&mut self, completion: Completion) -> Action {
        if completion.at < self.next {
            return Action::Wait;
        }
        self.next = completion.at.plus_nanos(20);
        Action::Raise(Reason::Strategy)
    }
}

/// Gives the reason that looks natural for a strategy that counts, and answers wrongly to more than one promise.
#[derive(Clone, Copy, Default)]
struct CountsAndIsDeaf(EverySecond);

impl Strategy for CountsAndIsDeaf {
    fn completed(&mut self, completion: Completion) -> Action {
        match self.0.completed(completion) {
            Action::Raise(_) => Action::Raise(Reason::Count),
            other => other,
        }
    }

    fn attention(&self) -> Attention {
        Attention::NoPacket
    }
}

#[test]
fn strategies_with_a_memory_that_ends_keep_their_promises() {
    assert_eq!(conformance::broken_promises::<EverySecond>(), []);
    assert_eq!(conformance::broken_promises::<Throttled>(), []);
}

#[test]
fn a_counter_that_is_never_reset_is_found_out_with_the_fewest_packets() {
    let sentence = "decides otherwise after a minute without packets than one that was just selected";
    for broken in [conformance::strategy::<NeverReset>(), conformance::strategy::<RunsOn>()] {
        let broken = broken.expect_err("it is not found out");
        assert_eq!(broken.promise, Promise::StartsAnew, "{broken}");
        assert!(broken.to_string().starts_with(sentence), "{broken}");
        // One packet before the minute and two behind it are enough: or one of each, if that raises at once.
        let count = |what: &str| broken.timeline.lines().filter(|line| line.contains(what)).count();
        assert!(count("arrives") <= 4, "{}", broken.report());
        assert_eq!(count("a minute has passed"), 1, "{}", broken.report());
        assert!(count("DMA done") >= 1 && count("INTERRUPT") >= 1, "{}", broken.report());
        assert!(
            broken.timeline.contains("one that was just selected: an interrupt"),
            "{}",
            broken.report()
        );
    }
}

#[test]
fn each_broken_promise_is_told_once_and_what_to_do_in_place_of_it() {
    let broken = conformance::broken_promises::<CountsAndIsDeaf>();
    let promises: Vec<_> = broken.iter().map(|broken| broken.promise).collect();
    assert!(promises.contains(&Promise::HonestAttention), "{promises:?}");
    assert!(
        promises
            .iter()
            .all(|promise| promises.iter().filter(|other| *other == promise).count() == 1)
    );
    #[derive(Clone, Copy, Default)]
    struct Counts(EverySecond);
    impl Strategy for Counts {
        fn completed(&mut self, completion: Completion) -> Action {
            match self.0.completed(completion) {
                Action::Raise(_) => Action::Raise(Reason::Count),
                other => other,
            }
        }
        fn announced(&mut self) {
            self.0.announced();
        }
    }
    let broken = conformance::strategy::<Counts>().expect_err("`count` is the pipeline's");
    assert_eq!(broken.promise, Promise::OwnReason);
    assert!(broken.to_string().contains("has Reason::Strategy"), "{broken}");
}

fn pairs() -> Expectation {
    let arrival = |at| Arrival {
        at: Time::from_nanos(at),
        packet: PacketInfo { len: 60, marked: false },
    };
    let interrupt = |at, reason, packets| Expected {
        at: Time::from_nanos(at),
        reason: Some(reason),
        packets: Some(packets),
    };
    Expectation {
        delay_ns: 75_000,
        frames_max: 0,
        dma_ns: 0,
        arrivals: [0, 10, 1_000, 200_000, 200_010].map(arrival).into(),
        interrupts: vec![
            interrupt(10, Reason::Strategy, 2),
            interrupt(76_000, Reason::Timeout, 1),
            interrupt(200_010, Reason::Strategy, 2),
        ],
    }
}

#[test]
fn an_expectation_tells_right_from_wrong_and_shows_where() {
    pairs().check::<EverySecond>().unwrap();
    let unexpected = pairs().check::<NeverReset>().expect_err("it raises once only");
    assert_eq!(
        unexpected.details,
        "interrupt 3 should be: at 200010 ns, strategy, 2 packets; it is: at 275000 ns, timeout, 2 packets"
    );
    assert!(
        unexpected
            .timeline
            .contains("275000 ns  INTERRUPT   timeout, announces #4 to #5"),
        "{}",
        unexpected.timeline
    );
    let unexpected = pairs().check::<RunsOn>().expect_err("it counts on");
    assert!(
        unexpected.details.contains("interrupt 3 should be: at 200010 ns"),
        "{unexpected}"
    );
    let any = Expectation {
        interrupts: vec![Expected {
            at: Time::from_nanos(10),
            reason: None,
            packets: None,
        }],
        arrivals: pairs().arrivals[..2].into(),
        ..pairs()
    };
    any.check::<EverySecond>().unwrap();
    let none = Expectation {
        interrupts: Vec::new(),
        ..any
    };
    let unexpected = none.check::<EverySecond>().expect_err("an interrupt too many");
    assert!(
        unexpected.details.contains("interrupt 1 should be: no more"),
        "{unexpected}"
    );
}
