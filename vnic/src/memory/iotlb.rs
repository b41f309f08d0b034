//! The IOTLB of a guest behind an IOMMU of its own: which I/O addresses its frontend has translated into guest addresses,
//! and what the device may do there. Plain data: no guest memory, no clock, no message.
//!
//! Ranges are given by their first and last address, so that the end of the address space needs no exception.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::Access;

/// Translations that are kept at most, neighbours that continue each other counted as one: 128 MiB of guest memory in single
/// pages of 4 KiB. A frontend that sends more finds the table emptied, and is asked again for what is needed.
pub const ENTRIES_MAX: usize = 1 << 15;

/// What the device may do in a range of I/O addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// It may read.
    pub read: bool,
    /// It may write.
    pub write: bool,
}

impl Permission {
    /// Whether `access` is allowed.
    #[inline]
    pub fn allows(self, access: Access) -> bool {
        match access {
            Access::Read => self.read,
            Access::Write => self.write,
        }
    }
}

/// A translation: I/O addresses from `first` to `last` are guest addresses from `guest` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First I/O address.
    pub first: u64,
    /// Last I/O address; not below the first.
    pub last: u64,
    /// Guest address of the first.
    pub guest: u64,
    /// What the device may do there.
    pub permission: Permission,
}

impl Mapping {
    /// The part of the mapping that lies in `range`, which must overlap it.
    fn part(&self, first: u64, last: u64) -> Self {
        Self {
            first,
            last,
            guest: self.guest.wrapping_add(first - self.first),
            permission: self.permission,
        }
    }

    /// Whether `next` goes on where this one ends, in both address spaces and with the same permission.
    fn is_continued_by(&self, next: &Self) -> bool {
        self.last.checked_add(1) == Some(next.first)
            && self.guest.wrapping_add(next.first - self.first) == next.guest
            && self.permission == next.permission
    }

    /// Whether the mapping answers a question for `iova`, to be accessed so.
    pub fn answers(&self, iova: u64, access: Access) -> bool {
        (self.first..=self.last).contains(&iova) && self.permission.allows(access)
    }
}

/// Where an I/O address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The guest address.
    pub guest: u64,
    /// Bytes behind the first that the same translation holds for, in both address spaces.
    pub more: u64,
}

/// The translations of one card.
#[derive(Clone, Debug, Default)]
pub struct Iotlb {
    /// By first address; no two overlap.
    mappings: BTreeMap<u64, Mapping>,
    /// The one that was found last: rings and long buffers ask for one again and again.
    last_found: Option<Mapping>,
}

impl Iotlb {
    /// Where `iova` leads, if it may be accessed so.
    #[inline]
    pub fn find(&mut self, iova: u64, access: Access) -> Option<Target> {
        let mapping = match self.last_found.filter(|mapping| mapping.answers(iova, access)) {
            Some(mapping) => mapping,
            None => {
                let (_, mapping) = self.mappings.range(..=iova).next_back()?;
                if !mapping.answers(iova, access) {
                    return None;
                }
                *self.last_found.insert(*mapping)
            }
        };
        Some(Target {
            guest: mapping.guest.wrapping_add(iova - mapping.first),
            more: mapping.last - iova,
        })
    }

    /// Takes a translation in; what an earlier one said about the same addresses is void. True if there was such a one.
    pub fn insert(&mut self, mapping: Mapping) -> bool {
        let replaced = self.remove(mapping.first..=mapping.last);
        if self.mappings.len() >= ENTRIES_MAX {
            self.clear();
        }
        let mut mapping = mapping;
        if let Some((&first, before)) = self.mappings.range(..mapping.first).next_back()
            && before.is_continued_by(&mapping)
        {
            mapping = Mapping {
                last: mapping.last,
                ..*before
            };
            self.mappings.remove(&first);
        }
        if let Some(next) = mapping.last.checked_add(1)
            && let Some(behind) = self.mappings.get(&next).copied()
            && mapping.is_continued_by(&behind)
        {
            mapping.last = behind.last;
            self.mappings.remove(&next);
        }
        self.mappings.insert(mapping.first, mapping);
        replaced
    }

    /// Forgets what is known of these addresses. True if anything was.
    pub fn remove(&mut self, range: RangeInclusive<u64>) -> bool {
        let (first, last) = (*range.start(), *range.end());
        self.last_found = None;
        let mut any = false;
        if let Some((_, before)) = self.mappings.range_mut(..first).next_back()
            && before.last >= first
        {
            any = true;
            let whole = *before;
            before.last = first - 1;
            if whole.last > last {
                self.mappings.insert(last + 1, whole.part(last + 1, whole.last));
                return true;
            }
        }
        while let Some((&at, &mapping)) = self.mappings.range(range.clone()).next() {
            any = true;
            self.mappings.remove(&at);
            if mapping.last > last {
                self.mappings.insert(last + 1, mapping.part(last + 1, mapping.last));
                break;
            }
        }
        any
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.mappings.clear();
        self.last_found = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const READ: Permission = Permission {
        read: true,
        write: false,
    };
    const WRITE: Permission = Permission {
        read: false,
        write: true,
    };
    const BOTH: Permission = Permission {
        read: true,
        write: true,
    };

    fn mapping(first: u64, last: u64, guest: u64, permission: Permission) -> Mapping {
        Mapping {
            first,
            last,
            guest,
            permission,
        }
    }

    #[test]
    fn a_translation_leads_to_its_guest_addresses_and_no_further() {
        let mut iotlb = Iotlb::default();
        assert!(!iotlb.insert(mapping(0x1000, 0x1fff, 0x8000, READ)));
        assert!(!iotlb.insert(mapping(u64::MAX - 0xfff, u64::MAX, 0, BOTH)));
        let target = |guest, more| Some(Target { guest, more });
        assert_eq!(iotlb.find(0x1000, Access::Read), target(0x8000, 0xfff));
        assert_eq!(iotlb.find(0x1fff, Access::Read), target(0x8fff, 0));
        assert_eq!(iotlb.find(0x1000, Access::Write), None);
        assert_eq!(iotlb.find(0xfff, Access::Read), None);
        assert_eq!(iotlb.find(0x2000, Access::Read), None);
        assert_eq!(iotlb.find(u64::MAX, Access::Write), target(0xfff, 0));
    }

    #[test]
    fn neighbours_that_continue_each_other_are_one_and_come_apart_again() {
        let mut iotlb = Iotlb::default();
        for page in [1, 3, 2] {
            iotlb.insert(mapping(page << 12, (page << 12) + 0xfff, (page + 7) << 12, BOTH));
        }
        assert_eq!(iotlb.mappings.len(), 1);
        assert!(iotlb.remove(0x2000..=0x2fff));
        assert_eq!(iotlb.find(0x1fff, Access::Write).map(|target| target.more), Some(0));
        assert_eq!(iotlb.find(0x2000, Access::Write), None);
        assert_eq!(
            iotlb.find(0x3000, Access::Write).map(|target| target.guest),
            Some(0xa000)
        );
        assert!(!iotlb.remove(0x2000..=0x2fff));
    }

    #[test]
    fn a_table_that_is_full_is_emptied_and_goes_on() {
        let mut iotlb = Iotlb::default();
        for page in 0..=ENTRIES_MAX as u64 {
            iotlb.insert(mapping(page << 13, (page << 13) + 0xfff, 0, BOTH));
        }
        assert_eq!(iotlb.mappings.len(), 1);
        let last = (ENTRIES_MAX as u64) << 13;
        assert!(iotlb.find(last, Access::Read).is_some() && iotlb.find(0, Access::Read).is_none());
    }

    /// The plain model: each unit of address space by itself.
    #[derive(Default)]
    struct Plain(BTreeMap<u64, (u64, Permission)>);

    #[derive(Clone, Debug)]
    enum Step {
        Insert(Mapping),
        Remove(u64, u64),
        Clear,
    }

    /// Units of address space in the tests, the last of them at its very end.
    const UNITS: u64 = 24;
    const BASE: u64 = u64::MAX - UNITS + 1;

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let range = (0..UNITS, 0..UNITS).prop_map(|(a, b)| (BASE + a.min(b), BASE + a.max(b)));
        let permission = prop_oneof![Just(READ), Just(WRITE), Just(BOTH)];
        // Few guest addresses, so that neighbours often continue each other.
        let insert = (range.clone(), 0..3u64, permission).prop_map(|((first, last), to, permission)| {
            mapping(first, last, first.wrapping_add(to * 1000), permission)
        });
        let step = prop_oneof![
            6 => insert.prop_map(Step::Insert),
            4 => range.prop_map(|(first, last)| Step::Remove(first, last)),
            1 => Just(Step::Clear),
        ];
        proptest::collection::vec(step, 1..24)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// 20,000 sequences of a dozen changes each on average: the table says of each address what a list of single
        /// addresses says, and how far a translation holds is never too far.
        #[test]
        fn the_table_says_what_a_list_of_single_addresses_says(steps in steps()) {
            let (mut iotlb, mut plain) = (Iotlb::default(), Plain::default());
            for step in steps {
                match step {
                    Step::Insert(mapping) => {
                        let known = (mapping.first..=mapping.last).any(|unit| plain.0.contains_key(&unit));
                        prop_assert_eq!(iotlb.insert(mapping), known);
                        for unit in mapping.first..=mapping.last {
                            let guest = mapping.guest.wrapping_add(unit - mapping.first);
                            plain.0.insert(unit, (guest, mapping.permission));
                        }
                    }
                    Step::Remove(first, last) => {
                        let known = (first..=last).any(|unit| plain.0.contains_key(&unit));
                        prop_assert_eq!(iotlb.remove(first..=last), known);
                        plain.0.retain(|unit, _| !(first..=last).contains(unit));
                    }
                    Step::Clear => {
                        iotlb.clear();
                        plain.0.clear();
                    }
                }
                for unit in BASE..=u64::MAX {
                    for access in [Access::Read, Access::Write] {
                        let known = plain.0.get(&unit).filter(|(_, permission)| permission.allows(access));
                        let found = iotlb.find(unit, access);
                        prop_assert_eq!(found.map(|target| target.guest), known.map(|(guest, _)| *guest));
                        let Some(Target { guest, more }) = found else { continue };
                        for ahead in 0..=more {
                            let same = plain.0.get(&(unit + ahead)).filter(|(_, permission)| permission.allows(access));
                            prop_assert_eq!(same.map(|(guest, _)| *guest), Some(guest.wrapping_add(ahead)));
                        }
                    }
                }
            }
        }
    }
}
