//! Packets that are marked as some of many, which a receiver may take by another path.

use esp::{
    Counter,
    wire::{BULK_FRAME_LEN_MIN, Frame, Kind},
};
use ether::EtherType;

use super::{
    program::connect,
    world::{World, config},
};

const S: u64 = 1_000_000_000;

/// Sends messages of these lengths, each when the one before was read and acknowledged, or all together, and checks that they arrive.
fn send(world: &mut World, lengths: &[usize], together: bool) {
    let ids = connect(world);
    let all: Vec<u8> = (0..lengths.iter().sum::<usize>()).map(|at| (at / 3) as u8).collect();
    let (mut given, mut message, mut taken) = (0, 0, Vec::new());
    let mut room = vec![0; 70_000];
    let done = world.run_until(100 * S, |world| {
        let now = world.now;
        while let Ok(len) = world.hosts[1].engine.receive(ids[1], &mut room, now) {
            taken.extend_from_slice(&room[..len]);
        }
        while message < lengths.len() {
            let end = lengths[..=message].iter().sum::<usize>();
            if given < end {
                match world.hosts[0].engine.send(ids[0], &all[given..end], true, now) {
                    Ok(len) => given += len,
                    Err(_) => break,
                }
            } else if together || taken.len() == end && world.hosts[0].engine.info(ids[0]).unwrap().unacknowledged == 0
            {
                message += 1;
            } else {
                break;
            }
        }
        taken.len() == all.len()
    });
    assert!(done && taken == all, "{} of {}", taken.len(), all.len());
}

/// The frames of data that were sent: how long they are and whether they are marked.
fn data(world: &mut World) -> Vec<(usize, bool)> {
    let trace = world.trace.take().unwrap();
    let frames = trace.iter().filter_map(|(_, bytes)| {
        let frame = Frame::parse(bytes, EtherType::ESP).unwrap();
        (frame.kind == Kind::Data).then_some((bytes.len(), frame.header.bulk))
    });
    frames.collect()
}

fn traced(mtu: u16) -> World {
    let mut configs = [config(0), config(1)];
    for config in &mut configs {
        config.mtu = mtu;
    }
    let mut world = World::new(configs, 41);
    world.trace = Some(Vec::new());
    world
}

#[test]
fn only_packets_behind_many_long_ones_are_marked() {
    let mut world = traced(1_500);
    send(&mut world, &[1, 100, 1_400, 20_000, 1_400, 300_000, 8_000, 64], false);
    assert!(data(&mut world).iter().all(|(_, marked)| !marked));
    let mut world = traced(1_500);
    send(&mut world, &[64; 300], false);
    assert!(data(&mut world).iter().all(|(_, marked)| !marked));
    let mut world = traced(1_500);
    send(&mut world, &[400_000, 100_007], true);
    let data = data(&mut world);
    let first = data.iter().position(|(_, marked)| *marked).unwrap();
    assert_eq!(first, 256, "after so many long ones");
    // The last one has a few bytes only.
    assert!(
        data[first..]
            .iter()
            .all(|(len, marked)| *marked && *len >= BULK_FRAME_LEN_MIN)
    );
    assert!(data.iter().all(|(len, _)| *len <= 1_514));
}

#[test]
fn no_packet_is_marked_where_the_mtu_has_no_room_for_the_mark() {
    for (mtu, may_mark) in [(68, false), (152, false), (153, true)] {
        let mut world = traced(mtu);
        send(&mut world, &[60_000], false);
        let data = data(&mut world);
        assert_eq!(data.iter().any(|(_, marked)| *marked), may_mark, "MTU {mtu}");
        assert!(data.iter().all(|(len, _)| *len <= 14 + usize::from(mtu)));
    }
}

#[test]
fn packets_stay_in_order_when_marked_ones_take_a_slower_path() {
    let mixed: Vec<usize> = (0..36)
        .map(|at| [1, 400_000, 700, 600_001, 1_475, 33][at % 6])
        .collect();
    for bulk_ns in [0, 1_000, 30_000, 400_000] {
        for together in [false, true] {
            let mut world = traced(1_500);
            world.faults.bulk_ns = bulk_ns;
            send(&mut world, &mixed, together);
            assert!(data(&mut world).iter().any(|(_, marked)| *marked));
            let count = |host: usize, counter| world.hosts[host].engine.counters().of(counter);
            assert_eq!(count(1, Counter::OutOfOrder), 0, "{bulk_ns} {together}");
            assert_eq!(count(0, Counter::Retransmitted), 0, "{bulk_ns} {together}");
        }
    }
}

#[test]
fn a_slower_path_for_marked_packets_loses_nothing_where_packets_are_lost() {
    let mixed: Vec<usize> = (0..12).map(|at| [1, 500_000, 90_001, 33][at % 4]).collect();
    for seed in 0..20 {
        let mut world = World::pair(seed);
        world.faults.bulk_ns = 20_000 * (seed % 5);
        (world.faults.lose, world.faults.duplicate) = (10, 10);
        send(&mut world, &mixed, seed % 2 == 0);
    }
}
