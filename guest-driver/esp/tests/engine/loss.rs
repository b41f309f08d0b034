//! Loss, repetition and reordering, whatever programs do: streams are exact and closes are clean.

use std::fmt::Write;

use esp::wire::{Blocks, Kind};

use super::{
    program::{BULK, PATTERNS, Pattern, assert_each_suffered, exchange},
    world::{Faults, Suffered, World, config},
};

const REORDER: Faults = Faults {
    lose: 0,
    duplicate: 0,
    reorder: 10,
    reorder_ns: 60_000,
    bulk_ns: 0,
};

fn faults(lose: u64, reorder: bool, duplicate: bool) -> Faults {
    Faults {
        lose,
        duplicate: if duplicate { 10 } else { 0 },
        ..if reorder { REORDER } else { Faults::default() }
    }
}

fn len_of(pattern: &Pattern) -> usize {
    match pattern.write {
        1 => 200,
        37 => 40_000,
        _ => 300_000,
    }
}

#[test]
fn m_hr3_streams_are_exact_and_closes_clean_whatever_is_lost_repeated_and_reordered() {
    let mut suffered = Suffered::default();
    let mut seed = 0;
    for lose in [0, 1, 10, 50, 200] {
        for (reorder, duplicate) in [(false, false), (true, false), (false, true), (true, true)] {
            for pattern in PATTERNS {
                for rounds in 0..if pattern.write == 1 { 8 } else { 1 } {
                    seed += 1;
                    let mut world = World::pair(seed);
                    world.faults = faults(lose, reorder, duplicate);
                    if rounds % 2 == 1 {
                        world.faults.reorder *= 20;
                        world.faults.duplicate *= 20;
                    }
                    let len = len_of(&pattern);
                    exchange(&mut world, pattern, [len, len / 2]);
                    for (what, count) in world.suffered {
                        *suffered.entry(what).or_default() += count;
                    }
                }
            }
        }
    }
    assert_each_suffered(&suffered, &[Kind::Data, Kind::Ack, Kind::Syn, Kind::SynAck, Kind::Fin]);
}

#[test]
fn m_hr3_peers_without_selective_acknowledgements_or_with_check_sequences_do_as_well() {
    for seed in 0..8 {
        let blocks = Blocks {
            selective: seed % 2 == 0,
            mark: seed % 4 == 1,
            check: seed % 3 == 1,
        };
        let configs = (0..2).map(|host| {
            let mut config = config(host);
            if host == 1 || seed > 3 {
                config.blocks = blocks;
            }
            config
        });
        let mut world = World::new(configs, seed);
        world.faults = faults(20, true, true);
        exchange(&mut world, BULK, [300_000, 200_000]);
    }
}

/// Mbit/s of a stream from one host to the other.
fn goodput(mtu: u16, faults: Faults) -> u64 {
    const LEN: usize = 60 << 20;
    let configs = (0..2).map(|host| {
        let mut config = config(host);
        config.mtu = mtu;
        config
    });
    let mut world = World::new(configs, 11);
    world.faults = faults;
    let took_ns = exchange(&mut world, BULK, [LEN, 0]);
    LEN as u64 * 8 * 1_000 / took_ns
}

#[test]
fn m_hr3_a_stream_keeps_its_share_of_the_link_under_loss() {
    let mut table = String::from(
        "goodput of a stream of 60 MiB, 10 Gbit/s, 10 us, in Mbit/s\n\
         loss 1/1000         0      1     10     50    200\n",
    );
    for (name, reorder, duplicate) in [
        ("", false, false),
        (" reorder", true, false),
        (" duplicate", false, true),
        (" both", true, true),
    ] {
        for mtu in [1_500, 9_000] {
            let rates = [0, 1, 10, 50, 200].map(|lose| goodput(mtu, faults(lose, reorder, duplicate)));
            write!(table, "{mtu}{name}").unwrap();
            for rate in rates {
                write!(table, " {rate}").unwrap();
            }
            table.push('\n');
            for (rate, percent) in rates.into_iter().zip([100, 80, 50, 20, 2]) {
                assert!(rate * 100 >= rates[0] * percent, "{mtu}{name}: {rates:?}");
            }
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn m_hr3_any_single_packet_of_a_connection_may_be_lost() {
    let mut number = 0;
    loop {
        let mut world = World::pair(17);
        world.drop_frame = Some(number);
        exchange(&mut world, PATTERNS[4], [9_000, 5_000]);
        if world.frames <= number {
            break;
        }
        assert_eq!(world.suffered.len(), 1, "frame {number} was lost");
        number += 1;
    }
    assert!(number > 15, "{number} frames");
}
