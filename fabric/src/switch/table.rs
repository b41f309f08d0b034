//! The forwarding table: which port an address was last seen on.
//!
//! It uses open addressing with linear probing in one fixed block of slots, so nothing is allocated after the start and every
//! operation ends after [`PROBES_MAX`] slots, whatever addresses a guest invents. Limits per port are the switch's
//! business, and so is what an expired entry means.

use alloc::{boxed::Box, vec};

use ether::{MacAddr, Time};

use crate::ports::PortId;

/// Slots checked before an address counts as absent, or as not storable.
///
/// At the highest load (half of the slots) a chain this long does not happen by chance (below 1 in 10⁶ for a full
/// table); when guests provoke it, it bounds the work to 2 KiB of memory.
const PROBES_MAX: usize = 128;

/// No address: group addresses are never sources, so this one cannot be in the table.
const EMPTY: u64 = u64::MAX;

/// One address, 16 bytes, so that four share a cache line.
#[derive(Clone, Copy)]
struct Slot {
    /// The address in the upper 48 bits, the port in the lower 16; [`EMPTY`] if free.
    key: u64,
    last_seen: Time,
}

/// Where an address is in the table, until the table next gains or loses an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotIndex(u32);

impl SlotIndex {
    /// Nowhere: touching it does nothing.
    pub(super) const NONE: Self = Self(u32::MAX);
}

/// What the table knows about an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) index: SlotIndex,
    pub(super) port: PortId,
    pub(super) last_seen: Time,
}

pub(super) struct MacTable {
    slots: Box<[Slot]>,
    /// The VLAN of each slot's address, in a switch that has VLANs; else empty, and all addresses are of VLAN 0.
    vlans: Box<[u16]>,
    /// Right shift that brings a 64-bit hash to a slot number.
    shift: u32,
    seed: u64,
    entries: usize,
    entries_max: usize,
    /// Where [`MacTable::sweep`] goes on.
    hand: usize,
}

impl MacTable {
    /// An empty table; `has_vlans` says whether its VLAN is a part of an address's key.
    pub(super) fn new(entries_max: usize, seed: u64, has_vlans: bool) -> Self {
        let count = (entries_max * 2).next_power_of_two().max(PROBES_MAX);
        Self {
            slots: vec![
                Slot {
                    key: EMPTY,
                    last_seen: Time::ZERO
                };
                count
            ]
            .into_boxed_slice(),
            vlans: vec![0; if has_vlans { count } else { 0 }].into_boxed_slice(),
            shift: 64 - count.trailing_zeros(),
            seed,
            entries: 0,
            entries_max,
            hand: 0,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries >= self.entries_max
    }

    pub(super) fn len(&self) -> usize {
        self.entries
    }

    /// Multiplication by an odd constant, with the seed mixed in before and after, so that a guest that does not know
    /// the seed cannot choose addresses that share one slot.
    #[inline(always)]
    fn home(&self, mac: u64, vlan: u16) -> usize {
        let station = mac | u64::from(vlan) << 48;
        let mixed = (station ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 32) ^ self.seed.rotate_left(32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed >> self.shift) as usize
    }

    #[inline]
    fn vlan(&self, index: usize) -> u16 {
        self.vlans.get(index).copied().unwrap_or(0)
    }

    #[inline]
    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    /// What is known of an address in a VLAN, which is 0 in a table without VLANs.
    #[inline(always)]
    pub(super) fn find(&self, mac: MacAddr, vlan: u16) -> Option<Found> {
        // With a constant, only one of the two is there.
        if vlan == 0 {
            self.find_in::<false>(mac, 0)
        } else {
            self.find_in::<true>(mac, vlan)
        }
    }

    #[inline(always)]
    fn find_in<const HAS_VLANS: bool>(&self, mac: MacAddr, vlan: u16) -> Option<Found> {
        let mac = mac.to_u64();
        let home = self.home(mac, vlan);
        for distance in 0..PROBES_MAX {
            let index = (home + distance) & self.mask();
            let slot = self.slots[index];
            if slot.key == EMPTY {
                return None;
            }
            if slot.key >> 16 == mac && (!HAS_VLANS || self.vlan(index) == vlan) {
                return Some(Found {
                    index: SlotIndex(index as u32),
                    port: PortId(slot.key as u16),
                    last_seen: slot.last_seen,
                });
            }
        }
        None
    }

    /// Notes that the address was seen now. The index must be of the table's present state.
    #[inline]
    pub(super) fn touch(&mut self, index: SlotIndex, now: Time) {
        if let Some(slot) = self.slots.get_mut(index.0 as usize) {
            slot.last_seen = now;
        }
    }

    /// Stores an address that is not in the table; `None` if the table is full or the chain too long. `vlan` is 0 in a table
    /// without VLANs.
    pub(super) fn insert(&mut self, mac: MacAddr, vlan: u16, port: PortId, now: Time) -> Option<SlotIndex> {
        if self.is_full() {
            return None;
        }
        let mac = mac.to_u64();
        let home = self.home(mac, vlan);
        for distance in 0..PROBES_MAX {
            let index = (home + distance) & self.mask();
            if self.slots[index].key == EMPTY {
                if let Some(place) = self.vlans.get_mut(index) {
                    *place = vlan;
                }
                self.slots[index] = Slot {
                    key: mac << 16 | u64::from(port.0),
                    last_seen: now,
                };
                self.entries += 1;
                return Some(SlotIndex(index as u32));
            }
        }
        None
    }

    /// Frees a slot and closes the gap, so that no chain is cut in two.
    pub(super) fn remove(&mut self, index: SlotIndex) {
        self.remove_at(index.0 as usize);
    }

    fn remove_at(&mut self, mut gap: usize) {
        self.entries -= 1;
        let mut next = gap;
        loop {
            next = (next + 1) & self.mask();
            let slot = self.slots[next];
            if slot.key == EMPTY {
                break;
            }
            // The entry may move back into the gap unless its home lies behind the gap.
            let home = self.home(slot.key >> 16, self.vlan(next));
            let from_home = next.wrapping_sub(home) & self.mask();
            let from_gap = next.wrapping_sub(gap) & self.mask();
            if from_home >= from_gap {
                self.slots[gap] = slot;
                if !self.vlans.is_empty() {
                    self.vlans[gap] = self.vlans[next];
                }
                gap = next;
            }
        }
        self.slots[gap].key = EMPTY;
    }

    /// Checks `slots` slots after those of the call before, removes the entries for which `expired` and tells `gone`
    /// the port of each.
    pub(super) fn sweep(&mut self, slots: usize, expired: impl Fn(Time) -> bool, mut gone: impl FnMut(PortId)) {
        for _ in 0..slots.min(self.slots.len()) {
            let slot = self.slots[self.hand];
            if slot.key != EMPTY && expired(slot.last_seen) {
                gone(PortId(slot.key as u16));
                // Another entry may have moved here: the hand stays.
                self.remove_at(self.hand);
            } else {
                self.hand = (self.hand + 1) & self.mask();
            }
        }
    }

    /// Removes everything learned on `port`, in time proportional to the size of the table.
    pub(super) fn remove_port(&mut self, port: PortId) {
        let mut index = 0;
        // Closing a gap only brings entries backwards, over the end of the block too; those that come from its start
        // have been checked, so one pass finds all.
        while index < self.slots.len() {
            let slot = self.slots[index];
            if slot.key != EMPTY && slot.key as u16 == port.0 {
                self.remove_at(index);
            } else {
                index += 1;
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (MacAddr, u16, PortId, Time)> + '_ {
        let used = self.slots.iter().enumerate().filter(|(_, slot)| slot.key != EMPTY);
        used.map(|(index, slot)| {
            let [a, b, c, d, e, f, _, _] = slot.key.to_be_bytes();
            let mac = MacAddr([a, b, c, d, e, f]);
            (mac, self.vlan(index), PortId(slot.key as u16), slot.last_seen)
        })
    }
}

#[cfg(test)]
mod tests;
