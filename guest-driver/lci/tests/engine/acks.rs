//! Acknowledgements: delayed, with other frames where there are some, and sent by timers that the host looks at itself.

use ether::Time;
use lci::{Counter, Event};

use super::{node::Target, world::World};

const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn m_bv11_an_acknowledgement_travels_with_an_answer_and_otherwise_waits_for_its_time() {
    let mut world = World::ready(2, 1);
    assert!(world.settle(SECOND_NS));
    let acks = |world: &World| world.nodes[1].count(Counter::AcksSent);
    let piggybacked = |world: &World| world.nodes[1].count(Counter::AcksPiggybacked);
    // A ping without a pong: the acknowledgement comes on its own, after its delay.
    let before = (acks(&world), piggybacked(&world));
    let start = world.now;
    world.nodes[0].backlog.push_back((Target::Node(1), 100));
    world.kick(0);
    assert!(world.run(SECOND_NS, |world| world.nodes[1].got_from(0) == 1));
    assert_eq!(acks(&world), before.0, "not at once");
    assert!(world.settle(SECOND_NS));
    assert_eq!((acks(&world), piggybacked(&world)), (before.0 + 1, before.1));
    let delay_ns = world.nodes[1].engine.config().timing.ack_delay_ns;
    let took_ns = world.now.nanos_since(start);
    assert!((delay_ns..delay_ns + 100_000).contains(&took_ns), "{took_ns}");
    // Pings with pongs: no acknowledgement of its own but for the last pong.
    for round in 0..100 {
        world.nodes[0].backlog.push_back((Target::Node(1), 100));
        world.kick(0);
        assert!(world.run(SECOND_NS, |world| world.nodes[1].got_from(0) == round + 2));
        world.nodes[1].backlog.push_back((Target::Node(0), 100));
        world.kick(1);
        assert!(world.run(SECOND_NS, |world| world.nodes[0].got_from(1) == round + 1));
    }
    assert_eq!((acks(&world), piggybacked(&world)), (before.0 + 1, before.1 + 100));
    assert_eq!(world.nodes[0].count(Counter::Retransmitted), 0);
}

#[test]
fn m_bv11_a_stream_is_acknowledged_every_quarter_of_the_window() {
    let mut world = World::ready(2, 1);
    for _ in 0..640 {
        world.nodes[0].backlog.push_back((Target::Node(1), 1_024));
    }
    world.kick(0);
    assert!(world.settle(SECOND_NS), "{}", world.report());
    let acks = world.nodes[1].count(Counter::AcksSent);
    assert!((40..=42).contains(&acks), "{acks}");
}

#[test]
fn m_bv10_timers_of_the_program_end_at_their_time_and_stop_when_told() {
    let mut world = World::ready(2, 1);
    assert!(world.settle(SECOND_NS));
    let (start, running) = (world.now, world.nodes[0].engine.timers_running());
    let engine = &mut world.nodes[0].engine;
    assert!(
        engine.start_timer(start, 3, 70_000)
            && engine.start_timer(start, 4, 1_000)
            && engine.start_timer(start, 5, 2_000)
    );
    assert!(!engine.start_timer(start, 64, 1), "there are 64");
    assert_eq!(engine.timers_running(), running + 3);
    assert!(engine.stop_timer(5) && !engine.stop_timer(5) && !engine.stop_timer(99));
    world.kick(0);
    world.run(SECOND_NS, |_| false);
    let ended: Vec<_> = world.nodes[0]
        .events
        .iter()
        .filter(|(_, event)| matches!(event, Event::Timer { .. }))
        .copied()
        .collect();
    let at = |ns| Time::from_nanos(start.as_nanos() + ns);
    assert_eq!(
        ended,
        [
            (at(1_000), Event::Timer { timer: 4 }),
            (at(70_000), Event::Timer { timer: 3 })
        ]
    );
    assert_eq!(world.nodes[0].engine.timers_running(), running);
}
