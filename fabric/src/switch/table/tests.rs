//! The table against an ordered map, half full and with every chain that can come about.

use alloc::{collections::BTreeMap, vec::Vec};

use proptest::prelude::*;

use super::*;

const ENTRIES_MAX: usize = 64;

fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

fn content(table: &MacTable) -> BTreeMap<(MacAddr, u16), (PortId, Time)> {
    table
        .iter()
        .map(|(mac, vlan, port, last_seen)| ((mac, vlan), (port, last_seen)))
        .collect()
}

#[derive(Clone, Debug)]
enum Step {
    Learn(u8, u16, u64),
    Remove(u8),
    RemovePort(u16),
    Sweep(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..100u8, 0..4u16, 0..1000u64).prop_map(|(n, port, at)| Step::Learn(n, port, at)),
        6 => (0..100u8).prop_map(Step::Remove),
        1 => (0..4u16).prop_map(Step::RemovePort),
        2 => (0..100usize, 0..300u64).prop_map(|(slots, before)| Step::Sweep(slots, before)),
    ]
}

proptest! {
    #[test]
    fn holds_what_a_map_holds(steps in proptest::collection::vec(step(), 0..400), seed: u64, has_vlans: bool) {
        // With VLANs, neighbours share an address.
        let mac = |n: u8| if has_vlans { mac(n / 3) } else { mac(n) };
        let vlan = |n: u8| if has_vlans { u16::from(n % 3) + 1 } else { 0 };
        let mut table = MacTable::new(ENTRIES_MAX, seed, has_vlans);
        prop_assert_eq!(table.slots.len(), 2 * ENTRIES_MAX, "so the chains are as long as they may become");
        let mut map = BTreeMap::new();
        for step in steps {
            match step {
                Step::Learn(n, port, at) => {
                    let (port, at) = (PortId(port), Time::from_nanos(at));
                    match table.find(mac(n), vlan(n)) {
                        Some(found) => {
                            let (known_on, known_at) = map[&(mac(n), vlan(n))];
                            prop_assert_eq!((found.port, found.last_seen), (known_on, known_at));
                            table.touch(found.index, at);
                            map.insert((mac(n), vlan(n)), (known_on, at));
                        }
                        None => {
                            prop_assert!(!map.contains_key(&(mac(n), vlan(n))));
                            let stored = table.insert(mac(n), vlan(n), port, at).is_some();
                            prop_assert_eq!(stored, map.len() < ENTRIES_MAX);
                            if stored {
                                map.insert((mac(n), vlan(n)), (port, at));
                            }
                        }
                    }
                }
                Step::Remove(n) => {
                    let found = table.find(mac(n), vlan(n));
                    prop_assert_eq!(found.is_some(), map.remove(&(mac(n), vlan(n))).is_some());
                    if let Some(found) = found {
                        table.remove(found.index);
                    }
                }
                Step::RemovePort(port) => {
                    table.remove_port(PortId(port));
                    map.retain(|_, (on, _)| *on != PortId(port));
                }
                Step::Sweep(slots, before) => {
                    let len = table.len();
                    let mut gone = Vec::new();
                    let before = Time::from_nanos(before);
                    table.sweep(slots, |last_seen| last_seen < before, |port| gone.push(port));
                    prop_assert_eq!(len - table.len(), gone.len());
                    // What it removed had expired; what had not is still there.
                    let kept = content(&table);
                    map.retain(|station, (_, last_seen)| *last_seen >= before || kept.contains_key(station));
                }
            }
            prop_assert_eq!(content(&table), map.clone());
            prop_assert_eq!(table.len(), map.len());
            for (address, vlan) in map.keys() {
                prop_assert!(table.find(*address, *vlan).is_some(), "{} can be found", address);
            }
        }
    }
}

#[test]
fn a_full_round_of_the_sweep_frees_everything_that_expired() {
    let mut table = MacTable::new(ENTRIES_MAX, 7, false);
    for n in 0..64 {
        table
            .insert(mac(n), 0, PortId(u16::from(n % 3)), Time::from_nanos(u64::from(n)))
            .unwrap();
    }
    assert!(table.is_full());
    // A slot that was freed is checked again, so a round takes one check for each slot and each entry freed.
    table.sweep(128, |last_seen| last_seen < Time::from_nanos(40), |_| ());
    table.sweep(40, |last_seen| last_seen < Time::from_nanos(40), |_| ());
    assert_eq!(table.len(), 24);
}

#[test]
fn any_number_of_entries_up_to_the_limit_finds_room() {
    for seed in 0..20 {
        let mut table = MacTable::new(4096, seed, false);
        for n in 0..4096u16 {
            let [high, low] = n.to_be_bytes();
            let mac = MacAddr([0x52, 0x54, 0, 0, high, low]);
            assert!(
                table.insert(mac, 0, PortId(0), Time::ZERO).is_some(),
                "seed {seed}, address {mac}"
            );
        }
        assert!(table.is_full());
    }
}
