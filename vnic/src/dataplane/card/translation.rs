//! A card whose guest is behind an IOMMU of its own: where its rings are in I/O addresses, what the frontend says about these, and
//! rings that wait to be started until it has.
//!
//! All changes come in between two rounds of the data plane, and pointers that were kept from one round to the next are
//! forgotten with them: when the frontend hears that a translation is gone, nothing goes through it any more.

use std::sync::Arc;

use ether::Time;
use vnicd_protocol::Counts;

use super::Card;
use crate::memory::{Mapping, MemoryMap, Miss, Misses};
use crate::ring::{RingAddresses, Rule};
use crate::session::{SessionRule, SessionVring, TranslationChange};

/// What a card knows of rings behind its guest's IOMMU.
pub(super) struct BehindIommu {
    misses: Arc<Misses>,
    rings: Vec<Ring>,
}

/// One ring.
#[derive(Clone, Default)]
struct Ring {
    /// Where it is, in I/O addresses.
    place: Option<RingAddresses>,
    /// It was kicked, and waits for a translation to be started.
    starting: Option<SessionVring>,
}

impl BehindIommu {
    /// The list of what is missing.
    pub fn misses(&self) -> Arc<Misses> {
        Arc::clone(&self.misses)
    }

    /// Where ring `index` is, if the frontend has said so.
    pub fn place(&self, index: usize) -> Option<RingAddresses> {
        self.rings.get(index)?.place
    }
}

/// What a card counts of translations, but for those that were missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct TranslationCounters {
    /// Translations that the frontend gave.
    updated: u64,
    /// Ranges of addresses that the frontend took back.
    invalidated: u64,
    /// Questions that the frontend answered by saying that there is no translation.
    denied: u64,
}

impl Card {
    /// The guest may be behind an IOMMU: what is missing of its translations is noted here.
    pub fn share_misses(&mut self, misses: Option<Arc<Misses>>) {
        self.misses = misses;
    }

    /// What was counted of translations, by name; none if the guest cannot be behind an IOMMU.
    pub fn translation_counts(&self) -> Option<Counts> {
        let missed = self.misses.as_ref()?.missed();
        let TranslationCounters {
            updated,
            invalidated,
            denied,
        } = self.counters.translation;
        let refused = self.counters.session_rules.of(SessionRule::TranslationRefused);
        let named = [
            ("missed", missed),
            ("updated", updated),
            ("invalidated", invalidated),
            ("denied", denied),
            ("refused", refused),
        ];
        Some(named.map(|(name, count)| (name.to_owned(), count)).into())
    }

    /// Forgets what was asked for rings that run no more, and do not wait to.
    pub(super) fn forget_questions(&mut self) {
        let Some(iommu) = &self.negotiated.iommu else { return };
        let runs = self
            .pairs
            .iter()
            .any(|pair| pair.rx.is_started() || pair.tx.is_started());
        if !runs && iommu.rings.iter().all(|ring| ring.starting.is_none()) {
            iommu.misses.clear();
        }
    }

    /// Carries out what the session says about the guest's IOMMU.
    pub fn change_translation(&mut self, change: TranslationChange, now: Time) {
        match change {
            TranslationChange::On(misses) => self.begin_translation(Some(misses), now),
            TranslationChange::Off => self.begin_translation(None, now),
            TranslationChange::RingPlaced { index, addresses } => {
                if let Some(ring) = self.ring_behind_iommu(usize::from(index)) {
                    ring.place = Some(addresses);
                }
            }
            TranslationChange::Given(mappings) => self.take_translations(&mappings, now),
            TranslationChange::Gone(range) => {
                self.counters.translation.invalidated += 1;
                self.forget_pointers();
                if let Some(translation) = self.negotiated.map.as_ref().and_then(MemoryMap::translation) {
                    translation.remove(range);
                }
            }
            TranslationChange::Denied(miss) => self.deny(miss, now),
        }
    }

    /// The driver begins anew, behind an IOMMU or not: nothing is translated, and rings are where the frontend will say.
    fn begin_translation(&mut self, misses: Option<Arc<Misses>>, now: Time) {
        let before = self.negotiated.iommu.take();
        if let Some(misses) = &misses {
            misses.clear();
        }
        let is_new = before.is_some() != misses.is_some();
        let rings = 2 * self.pairs.len();
        self.negotiated.iommu = misses.map(|misses| BehindIommu {
            misses,
            // A frontend that agrees on the same features again, under traffic, does not say again where the rings are.
            rings: before.map_or_else(|| vec![Ring::default(); rings], |before| before.rings),
        });
        if let Some(translation) = self.negotiated.map.as_ref().and_then(MemoryMap::translation).cloned() {
            self.forget_pointers();
            translation.remove(0..=u64::MAX);
        }
        if is_new && let Some(map) = self.negotiated.map.take() {
            // Its addresses are of the other kind now.
            self.set_memory(map.into_table(), now);
        }
        self.retry(now);
    }

    fn take_translations(&mut self, mappings: &[Mapping], now: Time) {
        let Some(translation) = self.negotiated.map.as_ref().and_then(MemoryMap::translation).cloned() else {
            return;
        };
        self.counters.translation.updated += 1;
        for mapping in mappings {
            if translation.insert(*mapping) {
                // What was kept may have gone through the former one.
                self.forget_pointers();
            }
        }
        self.retry(now);
    }

    /// The frontend has no translation for what was asked: the guest gave an address that it had not mapped.
    fn deny(&mut self, miss: Miss, now: Time) {
        let waited = self
            .negotiated
            .iommu
            .as_ref()
            .is_some_and(|iommu| iommu.misses.denied(miss));
        if waited {
            self.counters.translation.denied += 1;
            self.fail_rule(Rule::AddressNotMapped, now);
        }
    }

    /// Forgets every pointer that was kept since the last round.
    fn forget_pointers(&mut self) {
        self.pairs.iter_mut().for_each(|pair| pair.rx.forget_read_ahead());
    }

    /// Translations have changed: what waited for one is tried again.
    fn retry(&mut self, now: Time) {
        self.start_pending(now);
        let Some(map) = &self.negotiated.map else { return };
        for (queue, pair) in (0..).zip(&mut self.pairs) {
            if pair.rx.translations_changed(map) {
                let pipeline = self.firmware.rx(queue);
                pipeline.restart(now);
                pipeline.note_signalled();
            }
            if pair.tx.translations_changed() {
                self.counters.tx_decided += 1;
                self.counters.tx_signalled += 1;
            }
        }
    }

    /// Starts rings that waited for their translations.
    pub(super) fn start_pending(&mut self, now: Time) {
        let rings = self.negotiated.iommu.as_ref().map_or(0, |iommu| iommu.rings.len());
        for index in 0..rings {
            let vring = self.ring_behind_iommu(index).and_then(|ring| ring.starting.take());
            if let Some(vring) = vring
                && let Err(rule) = self.start_ring(index, &vring, now)
            {
                self.fail_rule(rule, now);
            }
        }
    }

    /// Ring `index` was kicked, and starts when it is translated.
    pub(super) fn start_later(&mut self, index: usize, vring: &SessionVring) {
        if let Some(ring) = self.ring_behind_iommu(index) {
            ring.starting = Some(vring.clone());
        }
    }

    /// Ring `index` does not start any more before it is kicked again.
    pub(super) fn forget_start(&mut self, index: usize) {
        if let Some(ring) = self.ring_behind_iommu(index) {
            ring.starting = None;
        }
    }

    fn ring_behind_iommu(&mut self, index: usize) -> Option<&mut Ring> {
        self.negotiated.iommu.as_mut()?.rings.get_mut(index)
    }
}
