//! What the front decides for guests behind an IOMMU of their own, of which the published backend knows nothing.

use super::super::message::{GET_FEATURES, GET_PROTOCOL_FEATURES, Message, VIRTIO_ACCESS_PLATFORM, protocol};
use super::super::refusal::{Refusal, SessionRule};
use super::super::translation::{self, TranslationChange};
use super::{Limits, Rules, Verdict};
use crate::ring::RingAddresses;

impl Limits {
    /// Features of the front itself, of which the backend is told nothing: virtio features and protocol features.
    pub(super) const fn own(&self) -> [u64; 2] {
        if self.iommu {
            [VIRTIO_ACCESS_PLATFORM, protocol::BACKEND_REQ]
        } else {
            [0, 0]
        }
    }
}

impl Rules {
    /// Whether addresses are those of the guest's IOMMU.
    pub fn is_translated(&self) -> bool {
        self.translated
    }

    /// Adds the front's own features to those of the backend.
    pub fn complete(&self, answer: &mut Message) {
        let [features, protocol_features] = self.limits.own();
        let own = match answer.request {
            GET_FEATURES => features,
            GET_PROTOCOL_FEATURES => protocol_features,
            _ => return,
        };
        if own != 0 && answer.body.len() == 8 {
            answer.body = (answer.long(0) | own).to_ne_bytes().to_vec();
        }
    }

    /// The protocol feature that the backend is not told of, because its channel is the front's own.
    pub(super) const fn own_channel(&self) -> u64 {
        self.limits.own()[1]
    }

    pub(super) fn translate(&self, message: &Message) -> Result<Verdict, Refusal> {
        let change = translation::read(message, &self.regions)?;
        match change {
            // Frontends clean up when a driver is gone.
            TranslationChange::Gone(_) if !self.translated => Ok(self.settled(message)),
            _ if !self.translated => Err(SessionRule::FeatureNotAgreed
                .broken("IOTLB_MSG gives a translation, and ACCESS_PLATFORM was not agreed on")),
            change => Ok(Verdict::Translation(change, self.answer(message))),
        }
    }

    pub(super) fn place_ring(&self, index: usize, message: &Message) -> Verdict {
        let addresses = RingAddresses {
            descriptors: message.long(8),
            used: message.long(16),
            available: message.long(24),
        };
        let index = index as u16;
        Verdict::Translation(TranslationChange::RingPlaced { index, addresses }, self.answer(message))
    }
}
