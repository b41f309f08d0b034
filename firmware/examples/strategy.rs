//! A coalescing strategy driven by hand: packets arrive at chosen times, and the example prints when the card interrupts and why.
//!
//! `cargo run -p weft-firmware --example strategy`

use ether::Time;
use firmware::{
    Coalescing, Event, PacketInfo, Pipeline, PipelineConfig, Reason,
    coalescing::{Action, Completion, Selection, Strategy},
};

/// Interrupts at once for packets of 1000 bytes and more; smaller ones wait for the timeout.
#[derive(Clone, Copy, Debug, Default)]
pub struct LargeAtOnce;

impl Strategy for LargeAtOnce {
    fn completed(&mut self, completion: Completion) -> Action {
        if completion.packet.len >= 1000 {
            Action::Raise(Reason::Strategy)
        } else {
            Action::Wait
        }
    }
}

/// A receive queue that has this strategy and no other. A card's queues have all registered ones.
impl Selection for LargeAtOnce {
    fn new(_settings: Coalescing) -> Self {
        Self
    }

    fn serves(&self, _settings: Coalescing) -> bool {
        true
    }
}

/// An interrupt: when in nanoseconds, why, and how many packets it announces.
pub type Raised = (u64, &'static str, u32);

/// Lets packets of these lengths in bytes arrive at these times in nanoseconds; returns the interrupts that follow.
pub fn drive(arrivals: &[(u64, u32)]) -> Vec<Raised> {
    let mut queue = Pipeline::<LargeAtOnce>::new(&PipelineConfig::default());
    let mut raised = Vec::new();
    for &(at_ns, len) in arrivals {
        let now = Time::from_nanos(at_ns);
        run_until(&mut queue, now, &mut raised);
        queue
            .arrive(now, PacketInfo { len, marked: false })
            .expect("the queue has room");
        take_events(&mut queue, now, &mut raised);
    }
    run_until(&mut queue, Time::MAX, &mut raised);
    raised
}

/// Does everything that is due up to `end`, in the order of time, as a driver's timer would.
fn run_until(queue: &mut Pipeline<LargeAtOnce>, end: Time, raised: &mut Vec<Raised>) {
    while let Some(due) = queue.next_event().filter(|due| *due <= end) {
        take_events(queue, due, raised);
    }
}

fn take_events(queue: &mut Pipeline<LargeAtOnce>, now: Time, raised: &mut Vec<Raised>) {
    while let Some(event) = queue.poll(now) {
        let interrupt = match event {
            // Here a driver publishes `count` descriptors before it signals.
            Event::Completed { interrupt, .. } => interrupt,
            Event::Interrupt(interrupt) => Some(interrupt),
            Event::FetchHostState => None,
        };
        raised.extend(interrupt.map(|interrupt| {
            queue.note_signalled();
            (
                interrupt.decided_at.as_nanos(),
                interrupt.reason.name(),
                interrupt.packets,
            )
        }));
    }
}

/// Prints the interrupts of four packets.
pub fn main() {
    for (at_ns, reason, packets) in drive(&[(1_000, 60), (20_000, 60), (30_000, 1500), (100_000, 60)]) {
        println!("{at_ns:>8} ns  {reason}, announces {packets}");
    }
}
